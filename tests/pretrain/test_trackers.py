"""Trackers: the real services where they are installed, read back."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.pretrain.log import Trackers, open_trackers

RECIPE = {"name": "toy", "seed": 1}


def log_twice(names: list[str], folder: Path) -> None:
    """Log steps 10 to 50, then, as after a crash and a resume, 40 to 70."""
    for first, last in ((10, 50), (40, 70)):
        trackers = open_trackers(names, folder, "pretraining x", RECIPE)
        assert trackers.names == names
        for step in range(first, last + 1, 10):
            trackers.log(step, {"loss": 1 / step, "held_out/en": 2.0, "peak_share": None})
        trackers.close()


def test_tensorboard_continues(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log_twice(["tensorboard"], tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert events.Tags()["scalars"] == ["loss", "held_out/en"]
    rows = events.Scalars("loss")
    assert [row.step for row in rows] == [10, 20, 30, 40, 50, 60, 70]
    assert rows[4].value == pytest.approx(1 / 50)
    assert b"pretraining x" in events.Tensors("recipe/text_summary")[0].tensor_proto.string_val[0]


def test_wandb_works_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    log_twice(["wandb"], tmp_path)
    runs = sorted(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
    assert runs
    # Both starts belong to one run, which is known by what the folder holds.
    name = (tmp_path / "board_id").read_text(encoding="utf-8")
    assert {path.stem for path in runs} == {f"run-{name}"}


def test_trackio_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The folder is read when trackio is imported, so nothing may have imported it before.
    assert "trackio" not in sys.modules
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    log_twice(["trackio"], tmp_path)
    (run,) = SQLiteStorage.get_runs("toy")
    assert [row["step"] for row in SQLiteStorage.get_logs("toy", run)] == list(range(10, 71, 10))


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_absent_trackers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MetaXLMError, match=rf"{name} is not installed; pip .*metaxlm\[{name}\]"):
        open_trackers([name], tmp_path, "meta", RECIPE)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # may be absent
    assert open_trackers(["tensorboard"], tmp_path, "meta", RECIPE).names == []


class Failing:
    """A tracker whose service ends after two rows."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if len(self.steps) == 2:
            raise ConnectionError("the service\nis gone")
        self.steps.append(step)

    def close(self) -> None:
        raise AssertionError("it was dropped before")


def test_a_failing_tracker_does_not_end_training(capsys: pytest.CaptureFixture[str]) -> None:
    board = Failing()
    trackers = Trackers({"wandb": board})
    for step in range(5):
        trackers.log(step, {"loss": 1.0})
    trackers.close()
    assert board.steps == [0, 1]
    line = "wandb: closed after an error, training continues (the service is gone)\n"
    assert capsys.readouterr().out == line
