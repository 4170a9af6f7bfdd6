"""`metaxlm run --dry` lists all work and its state, and writes nothing."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Command
from tests.toy_runs import write_toy

KEPT = "evaluation.grid=[{tasks: [udpos], steps: kept, languages: [en, de], sources: [en]}]"
VARIANTS = ("xlm", "metaxlm+dict")
STAGES = ["corpus", "vocabulary", "shards", "meta"]
STAGES += [f"{stage} {name}" for name in VARIANTS for stage in ("initialize", "pretrain")]
JOBS = [f"{name} {task}" for name in VARIANTS for task in ("tatoeba", "alignment", "udpos")]


Dry = Callable[..., tuple[dict[str, list[str]], str]]


def read_table(printed: str) -> dict[str, list[str]]:
    """Return the columns of each line: its jobs (if any) and its state."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines()]
    return {row[0]: row[1:] for row in rows if len(row) > 1}


@pytest.fixture
def dry(metaxlm: Command, toy_run: Path) -> Dry:
    """Do a dry run, which must not change its output folder."""

    def start(output: Path, *more: str) -> tuple[dict[str, list[str]], str]:
        before = list_tree(output.parent)
        options: list[str | Path] = ["--output", output, "--device", "cpu", "--dry"]
        code, printed, errors = metaxlm("run", toy_run.parents[1] / "toy.yaml", *options, *more)
        assert (code, errors) == (0, "")
        assert list_tree(output.parent) == before
        return read_table(printed), printed

    return start


def list_tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


def test_everything_is_listed_before_anything_exists(
    dry: Dry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    work, printed = dry(tmp_path / "new" / "runs")
    assert not (tmp_path / "new").exists()
    assert not list(temporary.iterdir())
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= 80
    assert [name for name in work if name != "work"] == STAGES + JOBS
    assert {name: work[name] for name in STAGES} == {key: ["to do"] for key in STAGES}
    assert {name: work[name] for name in JOBS} == {key: ["en-0", "to do"] for key in JOBS}
    assert "0 of 6 evaluation jobs done" in printed


def test_a_finished_run_has_nothing_left(dry: Dry, toy_run: Path) -> None:
    work, printed = dry(toy_run.parent)
    assert {name: work[name][-1] for name in STAGES + JOBS} == dict.fromkeys(STAGES + JOBS, "done")
    assert "6 of 6 evaluation jobs done" in printed


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_vocabulary_is_made_again_if_it_is_read(
    name: str, dry: Dry, copied: Path
) -> None:
    output = copied.parent
    path = copied / "vocabulary/multilingual" / name
    path.write_bytes(bytes(path.stat().st_size))
    assert "vocabulary" not in dry(output)[0]  # finished stages do not read it
    work, printed = dry(output, "--set", "pretraining.steps=5")
    assert work["vocabulary"][0] == "again"
    damage = f"multilingual/{name}: changed, its digest does not fit"
    assert f"vocabulary: again, its files are damaged or missing ({damage})" in printed


def test_repeated_work_is_listed_with_its_reason(dry: Dry, toy_run: Path) -> None:
    more_epochs = ("--set", "evaluation.finetune.udpos.epochs=40")
    work, printed = dry(toy_run.parent, *more_epochs)
    assert {work[name][-1] for name in STAGES} == {"done"}
    assert work["xlm tatoeba"][1] == "done"
    assert work["xlm udpos"][:2] == ["en-0", "again"]
    reason = "again, changed: settings.epochs: 1 -> 40"
    assert f"xlm udpos en-0, metaxlm+dict udpos en-0: {reason}" in printed

    work, printed = dry(toy_run.parent, "--set", "pretraining.steps=5", "--variant", "xlm")
    assert "pretrain xlm: again, changed: pretraining.steps: 4 -> 5" in printed
    assert [work["pretrain xlm"][0], work["xlm tatoeba"][1]] == ["again", "again"]
    assert "metaxlm" not in printed
    assert (
        "xlm tatoeba en-0, xlm alignment en-0, xlm udpos en-0: again, changed: model: " in printed
    )


def test_missing_seeds_and_checkpoints_are_named(dry: Dry, toy_run: Path) -> None:
    work, printed = dry(toy_run.parent, "--set", "evaluation.finetune.udpos.seeds=4")
    assert work["xlm udpos"] == ["en-1..3", "1 of 4 done"]
    assert "6 of 12 evaluation jobs done" in printed
    work, _ = dry(toy_run.parent, "--set", KEPT)
    assert work["metaxlm+dict udpos"] == ["en-0", "done"]
    assert work["metaxlm+dict-step-2 udpos"][:2] == ["en-0", "to do"]


def test_only_requested_stages_are_listed(dry: Dry, tmp_path: Path) -> None:
    work, _ = dry(tmp_path / "new", "--stage", "initialize", "--variant", "xlm")
    assert list(work)[-4:] == ["corpus", "vocabulary", "shards", "initialize xlm"]
    work, _ = dry(tmp_path / "new", "--stage", "pretrain", "--variant", "metaxlm+dict")
    needed = ["meta", "initialize metaxlm+dict", "pretrain metaxlm+dict"]
    assert list(work)[-6:] == ["corpus", "vocabulary", "shards", *needed]
    assert list(dry(tmp_path / "new", "--stage", "corpus")[0])[-1] == "corpus"
    assert dry(tmp_path / "new", "--quiet") == ({}, "")


def test_an_interrupted_training_shows_its_checkpoint(
    dry: Dry, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(copied / "variants/xlm/model")
    shutil.rmtree(copied / "variants/xlm/checkpoints/step-00000004")
    work, _ = dry(copied.parent)
    assert work["pretrain xlm"] == ["at step 2"]
    assert work["pretrain metaxlm+dict"] == ["done"]
    monkeypatch.setenv("RANK", "1")  # of several processes, rank 0 prints
    assert dry(copied.parent) == ({}, "")


TEXT = "corpus={source: text, path: nowhere}"
DATA, DICTIONARIES = "evaluation.data=.", "matching.dictionaries=."


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["evaluation.finetune={poetry: {}}"], "unknown task"),
        (["evaluation.grid=[{tasks: [poetry]}]"], "unknown task"),
        ([TEXT], "evaluation.data is not set"),
        ([TEXT, DATA], "matching.dictionaries names no folder"),
        ([TEXT, DATA, DICTIONARIES], "nowhere: no such folder"),
        (["matching.dictionaries=nowhere"], "nowhere: no such folder"),
    ],
)
def test_a_dry_run_rejects_what_a_run_rejects(
    metaxlm: Command, tmp_path: Path, changes: list[str], expected: str
) -> None:
    write_toy(tmp_path, variants={"xlm": {"dictionaries": True}})
    settings = [word for change in changes for word in ("--set", change)]
    arguments = ["run", tmp_path / "toy.yaml", "--device", "cpu", *settings]
    complaint = metaxlm.complaint(*arguments, "--dry")
    assert expected in complaint
    assert list(tmp_path.iterdir()) == [tmp_path / "toy.yaml"]
    assert metaxlm.complaint(*arguments) == complaint
