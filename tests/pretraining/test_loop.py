"""The training loop: it learns, it resumes to the bit, it survives damage and stops on request."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.config import TrainingRecipe
from metaxlm.corpus.shards import Shard
from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.manifest import find_damage
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.pretraining.batches import Batch, BatchSource
from metaxlm.pretraining.checkpoint import list_checkpoints, load_newest
from metaxlm.pretraining.device import choose_device
from metaxlm.pretraining.loop import train

CPU = torch.device("cpu")
RECIPE = TrainingRecipe(
    steps=30,
    batch_size=8,
    length=32,
    learning_rate=3e-3,
    warmup_steps=5,
    checkpoint_every=10,
    log_every=7,
)


class Training:
    """One run in a folder; `stop_at` makes it raise or signal at that step, as a crash would."""

    def __init__(self, shards: dict[str, Shard], tokenizer: PreTrainedTokenizerBase) -> None:
        self.shards, self.tokenizer = shards, tokenizer

    def run(
        self,
        folder: Path,
        recipe: TrainingRecipe = RECIPE,
        crash_at: int | None = None,
        signal_at: int | None = None,
    ) -> MaskedLM:
        torch.manual_seed(0)
        model = MaskedLM(EncoderConfig(len(self.tokenizer), 32, 2, 2, 64, 32))
        source = BatchSource(self.shards, self.tokenizer, recipe, 1)

        class Source:
            def batch(self, step: int) -> Batch:
                if step == crash_at:
                    raise RuntimeError("crash")
                if step == signal_at:
                    os.kill(os.getpid(), signal.SIGINT)
                return source.batch(step)

        train(model, Source(), recipe, folder, 1, CPU, "training")  # type: ignore[arg-type]
        return model


@pytest.fixture
def training(shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase) -> Training:
    return Training(shards, multilingual_tokenizer)


def same(first: MaskedLM, second: MaskedLM) -> bool:
    states = first.state_dict(), second.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def log_rows(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def test_the_loss_falls(training: Training, tmp_path: Path) -> None:
    recipe = RECIPE.model_copy(update={"steps": 200})
    training.run(tmp_path, recipe)
    rows = log_rows(tmp_path)
    assert rows[0]["loss"] > 4.5
    assert rows[-1]["loss"] < 3.6
    assert rows[-1]["step"] == 200


def test_a_crashed_run_ends_as_an_undisturbed_one(training: Training, tmp_path: Path) -> None:
    whole = training.run(tmp_path / "whole")
    for crash_at in (3, 17, 24):  # before the first checkpoint, and twice after
        with pytest.raises(RuntimeError, match="crash"):
            training.run(tmp_path / "parts", crash_at=crash_at)
    assert same(training.run(tmp_path / "parts"), whole)
    assert log_rows(tmp_path / "parts") == log_rows(tmp_path / "whole")


def test_ctrl_c_saves_the_step_and_the_next_start_continues(
    training: Training, tmp_path: Path
) -> None:
    whole = training.run(tmp_path / "whole")
    with pytest.raises(Interrupted, match="stopped after step 14"):
        training.run(tmp_path / "parts", signal_at=13)
    assert [p.name for p in list_checkpoints(tmp_path / "parts")][-1] == "step-00000014"
    assert same(training.run(tmp_path / "parts"), whole)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_damaged_checkpoint_is_passed_over(
    training: Training, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = training.run(tmp_path)
    newest = list_checkpoints(tmp_path)[-1]
    path = newest / "optimizer.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert find_damage(newest) == [f"{path}: changed, its digest does not fit"]
    assert same(training.run(tmp_path), whole)
    assert "passed over" in capsys.readouterr().out
    for name in ("state.json", "manifest.json"):
        (list_checkpoints(tmp_path)[-1] / name).unlink()
        loaded = load_newest(tmp_path)
        assert loaded is not None
        assert loaded.state.step == 20
        training.run(tmp_path)


def test_only_the_newest_checkpoints_stay(training: Training, tmp_path: Path) -> None:
    training.run(tmp_path, RECIPE.model_copy(update={"keep_checkpoints": 1}))
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000030"]


def test_checkpoints_hold_no_pickle(training: Training, tmp_path: Path) -> None:
    training.run(tmp_path)
    endings = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert endings == {".safetensors", ".json", ".jsonl"}


def test_a_loss_that_is_not_finite_stops_the_run(training: Training, tmp_path: Path) -> None:
    wild = RECIPE.model_copy(update={"learning_rate": 1e30, "warmup_steps": 0, "clip": 0.0})
    with pytest.raises(MetaXLMError, match="lower learning_rate"):
        training.run(tmp_path, wild)


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "meta"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(MetaXLMError, match="--device"):
        choose_device(name)
