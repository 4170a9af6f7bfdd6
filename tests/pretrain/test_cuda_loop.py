"""The training loop on a GPU: the same promises, with copies and numbers that arrive late."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from tests.conftest import Shards
from tests.trainings import BAD_GRADIENT, RECIPE, STEEP, Training, crash, ending, rows
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json
from metaxlm.model.encoder import EncoderConfig, Rotary
from metaxlm.pretrain import optimizer
from metaxlm.pretrain import step as step_module
from metaxlm.pretrain.checkpoint import CheckpointWriter, TrainingState, load_newest
from metaxlm.pretrain.cost import measure_step
from metaxlm.recipe import ExecutionRecipe, TrainingRecipe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture
def training(shards: Shards, tokenizer: Tokenizer) -> Training:
    return Training(shards, tokenizer, torch.device("cuda"))


def test_crashes_do_not_change_the_result(training: Training, tmp_path: Path) -> None:
    training.run(tmp_path / "whole", workers=0)
    for workers, crash_at in enumerate((3, 17, 24)):
        with pytest.raises(RuntimeError, match="crash"):
            training.run(tmp_path / "parts", act=crash(crash_at), workers=workers)
    training.run(tmp_path / "parts", workers=2)
    assert ending(tmp_path / "parts") == ending(tmp_path / "whole")


def test_bad_steps_are_skipped_and_end_the_run(training: Training, tmp_path: Path) -> None:
    nan = float("nan")
    training.run(tmp_path / "some", added={4: nan, 7: BAD_GRADIENT, 8: float("inf")})
    assert [row["skipped"] for row in rows(tmp_path / "some") if "loss" in row][-1] == 3
    recipe = RECIPE.model_copy(update={"max_bad_steps": 3, "steps": 400})
    with pytest.raises(MetaXLMError, match="steps in a row, 11 to"):
        training.run(tmp_path / "many", recipe, added=dict.fromkeys(range(11, 400), nan))
    assert read_json(tmp_path / "many" / "bad_steps.json")[0]["step"] == 11


LONG = RECIPE.model_copy(update={"steps": 60, "log_every": 10, "learning_rate": 1e-2})


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in rows(folder) if "loss" in row]


def scales(folder: Path) -> list[float]:
    return [row["loss_scale"] for row in rows(folder) if "loss_scale" in row]


def test_float16_learns_as_bfloat16_does(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_module, "is_available", lambda device: False)  # the same dropout
    for precision in ("bfloat16", "float16"):
        training.run(tmp_path / precision, LONG.model_copy(update={"precision": precision}))
    found, expected = losses(tmp_path / "float16"), losses(tmp_path / "bfloat16")
    assert found[-1] < found[0] - 0.3
    assert found == pytest.approx(expected, abs=0.2)
    assert len(scales(tmp_path / "float16")) == len(found) and not scales(tmp_path / "bfloat16")
    assert scales(tmp_path / "float16")[-1] > 1.0


def test_an_older_gpu_trains_in_float16_without_kernels(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training.run(tmp_path / "named", LONG.model_copy(update={"precision": "float16"}))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    training.run(tmp_path / "auto", LONG)
    assert losses(tmp_path / "auto") == pytest.approx(losses(tmp_path / "named"), abs=0.1)
    assert scales(tmp_path / "auto")


def test_float16_resumes_with_its_scale(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer, "_GROWTH_INTERVAL", 6)
    recipe = RECIPE.model_copy(update={"precision": "float16"})
    bad = {3: BAD_GRADIENT, 15: float("nan")}
    training.run(tmp_path / "whole", recipe, added=bad)
    for crash_at in (5, 17, 24):
        with pytest.raises(RuntimeError, match="crash"):
            training.run(tmp_path / "parts", recipe, added=bad, act=crash(crash_at))
    training.run(tmp_path / "parts", recipe, added=bad)
    states = [ending(tmp_path / name)["state"] for name in ("whole", "parts")]
    for key in ("loss_scale", "scale_steps", "skipped", "skipped_in_row", "tokens"):
        assert states[0][key] == states[1][key], key
    # Torch's attention adds up its gradients in any order.
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), abs=0.02)


@pytest.mark.parametrize("rotary", [None, Rotary(window=3)], ids=["roberta", "modernbert"])
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_layers_computed_again_change_nothing(
    shards: Shards, tokenizer: Tokenizer, tmp_path: Path, precision: str, rotary: Rotary | None
) -> None:
    """Recorded steps of the fused kernels, and plain steps with dropout of torch."""
    training = Training(shards, tokenizer, torch.device("cuda"), rotary)
    recipe = RECIPE.model_copy(update={"precision": precision, "micro_batches": 2})
    for again in (False, True):
        training.run(tmp_path / f"{again}", recipe, gradient_checkpointing=again)
    if precision == "bfloat16":
        assert ending(tmp_path / "True") == ending(tmp_path / "False")
    assert losses(tmp_path / "True") == pytest.approx(losses(tmp_path / "False"), abs=0.05)


def test_layers_computed_again_take_less_memory() -> None:
    device, config = torch.device("cuda"), EncoderConfig(2_000, 256, 8, 4, 1024, 128)
    recipe = TrainingRecipe(batch_size=512, length=128, micro_batches=2)
    peaks = []
    for again in (False, True):
        execution = ExecutionRecipe(gradient_checkpointing=again)
        measured = measure_step(config, recipe, device, steps=2, execution=execution)
        assert measured.peak_bytes is not None
        peaks.append(measured.peak_bytes)
    assert peaks[1] < 0.7 * peaks[0]


def test_a_save_in_the_background_holds_what_its_step_had(tmp_path: Path) -> None:
    # Large enough that the copy is still under way when the tensors change.
    tensors = {f"t{number}": torch.rand(4096, 4096, device="cuda") for number in range(8)}
    expected = {name: tensor.cpu() for name, tensor in tensors.items()}
    go_on = threading.Event()
    with CheckpointWriter(
        tmp_path, keep=2, permanent=[3], publish=lambda _: go_on.wait(60) and None
    ) as writer:
        writer.save(tensors, {}, TrainingState(3))
        for tensor in tensors.values():
            tensor.fill_(-1.0)
        go_on.set()
    loaded = load_newest(tmp_path)
    assert loaded is not None
    assert all(torch.equal(loaded.model[name], expected[name]) for name in expected)


def test_a_rewind_replaces_captured_steps(training: Training, tmp_path: Path) -> None:
    """Recorded steps contain the moments, which a checkpoint replaces."""
    recipe = RECIPE.model_copy(update={"log_every": 1, "held_out": 0, "rewind": True})
    training.run(tmp_path / "whole", recipe, added={16: STEEP})
    found = load_newest(tmp_path / "whole")
    assert found is not None and found.state.skipped_batches == 7
    with pytest.raises(RuntimeError, match="crash"):
        training.run(tmp_path / "parts", recipe, added={16: STEEP}, act=crash(19))
    training.run(tmp_path / "parts", recipe, added={16: STEEP})
    assert ending(tmp_path / "parts") == ending(tmp_path / "whole")


def test_other_threads_may_copy_while_a_step_is_recorded(
    training: Training, tmp_path: Path
) -> None:
    stop = threading.Event()

    def copy() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            while not stop.is_set():
                torch.ones(1 << 16).pin_memory().to("cuda", non_blocking=True)

    thread = threading.Thread(target=copy)
    thread.start()
    try:
        training.run(tmp_path / "beside")
    finally:
        stop.set()
        thread.join()
    training.run(tmp_path / "alone")
    assert ending(tmp_path / "beside") == ending(tmp_path / "alone")
