"""Checkpoints: whole or absent, found again, written while training goes on."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from metaxlm.errors import MetaXLMError
from metaxlm.manifest import MANIFEST, write_manifest
from metaxlm.pretrain.checkpoint import (
    Checkpoint,
    CheckpointWriter,
    TrainingState,
    list_checkpoints,
    load_newest,
    remove_old,
    save_checkpoint,
)


def make_checkpoint(step: int) -> Checkpoint:
    model = {"a": torch.arange(35.0).reshape(7, 5) / step, "b": torch.arange(3.0) / step}
    moments = {f"exp_avg.{name}": tensor.square() for name, tensor in model.items()}
    state = TrainingState(step, 10 * step, 1.5, 2, 1, 0, [3.25, 1 / 3], 0.125)
    return Checkpoint(model, moments, state)


def equal(first: Checkpoint | None, second: Checkpoint) -> bool:
    assert first is not None
    for one, other in ((first.model, second.model), (first.moments, second.moments)):
        if one.keys() != other.keys() or not all(
            torch.equal(one[name], other[name]) for name in one
        ):
            return False
    return asdict(first.state) == asdict(second.state)


def names(folder: Path) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in list_checkpoints(folder)]


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(7)
    assert checkpoint.state.good_steps == 6
    path = save_checkpoint(tmp_path, checkpoint)
    assert path.name == "step-00000007"
    assert sorted(file.name for file in path.iterdir()) == [
        MANIFEST, "model.safetensors", "optimizer.safetensors", "state.json",
    ]  # fmt: skip
    assert equal(load_newest(tmp_path), checkpoint)
    assert load_newest(tmp_path / "absent") is None


def test_the_newest_whole_one_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints = [make_checkpoint(step) for step in (5, 10, 15)]
    paths = [save_checkpoint(tmp_path, checkpoint) for checkpoint in checkpoints]
    assert equal(load_newest(tmp_path), checkpoints[2])
    (paths[2] / "optimizer.safetensors").write_bytes(b"")
    (paths[1] / "state.json").unlink()
    assert equal(load_newest(tmp_path), checkpoints[0])
    said = capsys.readouterr().out
    assert f"skipped a damaged checkpoint: {paths[2] / 'optimizer.safetensors'}: 0 bytes" in said
    assert f"skipped a damaged checkpoint: {paths[1] / 'state.json'}: missing" in said
    (paths[0] / MANIFEST).unlink()
    assert load_newest(tmp_path) is None


def test_a_checkpoint_of_another_version_says_so(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, make_checkpoint(1))
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | {"epoch": 3}))
    (path / MANIFEST).unlink()
    write_manifest(path, {"step": 1})
    with pytest.raises(MetaXLMError, match=r"step-00000001: incompatible checkpoint"):
        load_newest(tmp_path)


def test_old_ones_go_permanent_ones_stay_and_later_ones_do_not_count(tmp_path: Path) -> None:
    for step in (2, 4, 6, 8, 10):
        save_checkpoint(tmp_path, make_checkpoint(step))
    # The run continued from 6: 8 and 10 must have been damaged.
    remove_old(tmp_path, 6, 1, [2])
    assert names(tmp_path) == [2, 6, 8, 10]
    remove_old(tmp_path, 10, 2, [2])
    assert names(tmp_path) == [2, 8, 10]
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_save_in_the_background_holds_what_its_step_had(tmp_path: Path) -> None:
    checkpoint, expected, go_on = make_checkpoint(3), make_checkpoint(3), threading.Event()
    with CheckpointWriter(
        tmp_path, keep=2, permanent=[3], publish=lambda _: go_on.wait(60) and None
    ) as writer:
        writer.save(checkpoint.model, checkpoint.moments, checkpoint.state)
        # The next step, before a byte is on the disk.
        assert not list_checkpoints(tmp_path)
        for tensor in (*checkpoint.model.values(), *checkpoint.moments.values()):
            tensor.fill_(-1.0)
        checkpoint.state.step, checkpoint.state.recent_losses = 4, [0.0]
        go_on.set()
    assert equal(load_newest(tmp_path), expected)


def test_a_save_under_way_is_finished_when_training_fails(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(1)
    with (
        pytest.raises(RuntimeError, match="crash"),
        CheckpointWriter(
            tmp_path, keep=2, permanent=[1], publish=lambda _: time.sleep(0.3)
        ) as writer,
    ):
        writer.save(checkpoint.model, checkpoint.moments, checkpoint.state)
        raise RuntimeError("crash")
    assert equal(load_newest(tmp_path), checkpoint)


FAILED = r"checkpoint of step 2 not saved \(.*\); .*: training will resume after step 1"


def fail_second(folder: Path, writer: CheckpointWriter, *, wait: bool = False) -> None:
    """Save two checkpoints; a file has the name of the second one's folder."""
    first, second = make_checkpoint(1), make_checkpoint(2)
    writer.save(first.model, first.moments, first.state, wait=True)
    (folder / "step-00000002").write_text("in the way")
    writer.save(second.model, second.moments, second.state, wait=wait)


def test_a_failed_save_raises_at_the_next_save(tmp_path: Path) -> None:
    third = make_checkpoint(3)
    with CheckpointWriter(tmp_path, keep=3) as writer:
        fail_second(tmp_path, writer)
        with pytest.raises(MetaXLMError, match=FAILED):
            writer.save(third.model, third.moments, third.state)
        writer.save(third.model, third.moments, third.state)
    assert names(tmp_path) == [1, 3]


@pytest.mark.parametrize("ending", ["wait", "leave", "raise"])
def test_a_failed_save_raises_at_the_end_but_hides_no_other_error(
    tmp_path: Path, ending: str
) -> None:
    error, message = (KeyError, "other") if ending == "raise" else (MetaXLMError, FAILED)
    with pytest.raises(error, match=message), CheckpointWriter(tmp_path, keep=3) as writer:
        fail_second(tmp_path, writer, wait=ending == "wait")
        assert ending != "wait"
        if ending == "raise":
            raise KeyError("other")
