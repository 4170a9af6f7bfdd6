"""Stages run when an input changed, name the change, and write atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from metaxlm.run.stage import Stage


class Counter:
    """Fills folders and counts the calls."""

    def __init__(self) -> None:
        self.runs = 0

    def fill(self, folder: Path) -> None:
        self.runs += 1
        (folder / "a.txt").write_text("content", encoding="utf-8")
        (folder / "README.md").write_text("card", encoding="utf-8")


def make(
    tmp_path: Path,
    counter: Counter,
    inputs: dict[str, Any],
    upstream: tuple[Stage, ...] = (),
    name: str = "corpus",
) -> Stage:
    return Stage(name, tmp_path / name, inputs, upstream, counter.fill)


def test_a_change_affects_all_later_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counter = Counter()
    for value in (1, 1, 2):
        upper = make(tmp_path, counter, {"a": value})
        lower = make(tmp_path, counter, {}, (upper,), "shards")
        upper.run()
        lower.run()
    assert counter.runs == 4
    assert "shards: running again, an earlier stage changed" in capsys.readouterr().out


def test_a_missing_or_changed_file_is_detected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counter = Counter()
    stage = make(tmp_path, counter, {})
    stage.run()
    (stage.output / "README.md").write_text("a longer card", encoding="utf-8")
    assert stage.is_complete()
    for text in ("cut", "contenT"):
        (stage.output / "a.txt").write_text(text, encoding="utf-8")
        stage.run()
    (stage.output / "a.txt").unlink()
    stage.run()
    assert counter.runs == 4
    again = "corpus: running again, its files are damaged or missing (a.txt: "
    printed = capsys.readouterr().out
    for what in ("3 bytes, should be 7", "changed, its digest does not fit", "missing"):
        assert f"{again}{what})" in printed


def test_a_failed_stage_keeps_the_earlier_output(tmp_path: Path) -> None:
    make(tmp_path, Counter(), {"a": 1}).run()

    def fail(folder: Path) -> None:
        (folder / "half.txt").write_text("half", encoding="utf-8")
        raise RuntimeError("crash")

    with pytest.raises(RuntimeError):
        Stage("corpus", tmp_path / "corpus", {"a": 2}, (), fail).run()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus"]
    assert (tmp_path / "corpus" / "a.txt").exists()
    assert make(tmp_path, Counter(), {"a": 1}).is_complete()


def test_unfinished_work_is_kept_for_the_same_inputs_only(tmp_path: Path) -> None:
    work = tmp_path / "work"

    def stage(value: int) -> Stage:
        def fill(folder: Path) -> None:
            seen.append((work / "checkpoint").exists())
            (work / "checkpoint").write_text("", encoding="utf-8")
            raise RuntimeError("crash")

        return Stage("meta", tmp_path / "model", {"a": value}, (), fill, work_dir=work)

    seen: list[bool] = []
    for value in (1, 1, 2, 2, 1):
        with pytest.raises(RuntimeError):
            stage(value).run()
    assert seen == [False, True, False, True, False]
