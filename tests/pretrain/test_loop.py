"""The training loop: it learns, it resumes to the bit, it guards itself and stops on request."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tests.conftest import Shards
from tests.trainings import BAD_GRADIENT, CPU, RECIPE, Training, crash, ending, rows
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.files import read_json
from metaxlm.model.encoder import Rotary
from metaxlm.model.huggingface import load_pretrained, save_pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain import optimizer
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import BatchSource
from metaxlm.pretrain.checkpoint import list_checkpoints, load_newest, step_name
from metaxlm.pretrain.distributed import choose_device
from metaxlm.randomness import derive_seed

NAN = float("nan")
SHORT = RECIPE.model_copy(
    update={"steps": 16, "checkpoint_every": 5, "log_every": 4, "evaluate_every": 7}
)
TWO = SHORT.model_copy(update={"micro_batches": 2})


@pytest.fixture(scope="module")
def training(shards: Shards, tokenizer: Tokenizer) -> Training:
    return Training(shards, tokenizer)


@pytest.fixture(scope="module")
def whole(training: Training, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run with two micro-batches."""
    folder = tmp_path_factory.mktemp("whole")
    training.run(folder, TWO, workers=0)
    return folder


def held_out_rows(folder: Path) -> list[dict[str, object]]:
    return [row for row in rows(folder) if "held_out" in row]


def test_the_loss_falls_on_trained_and_on_held_out_text(training: Training, tmp_path: Path) -> None:
    settings = {"steps": 80, "log_every": 4, "evaluate_every": 20, "learning_rate": 1e-2}
    training.run(tmp_path, RECIPE.model_copy(update=settings))
    trained = [row for row in rows(tmp_path) if "loss" in row]
    assert trained[0]["loss"] > 4.5
    assert sum(row["loss"] for row in trained[-5:]) / 5 < 3.6
    assert trained[-1]["step"] == 80
    measured = held_out_rows(tmp_path)
    assert [row["step"] for row in measured] == [20, 40, 60, 80]
    first, last = (row["held_out"] for row in (measured[0], measured[-1]))
    assert set(first) == {"en", "de", "ru"}
    assert sum(last.values()) < sum(first.values()) - 0.5


@pytest.mark.parametrize("rotary", [None, Rotary(window=3)], ids=["roberta", "modernbert"])
def test_crashes_do_not_change_the_result(
    training: Training, whole: Path, tmp_path: Path, rotary: Rotary | None
) -> None:
    if rotary is not None:
        training, whole = Training(training.shards, training.tokenizer, CPU, rotary), tmp_path / "w"
        training.run(whole, TWO)
    # Before the first checkpoint, and twice after; every start with another number of workers.
    for workers, crash_at in enumerate((3, 8, 13)):
        with pytest.raises(RuntimeError, match="crash"):
            training.run(tmp_path, TWO, act=crash(crash_at), workers=workers)
        with (tmp_path / "log.jsonl").open("a") as file:
            file.write('{"step": 15, "lo')  # a row that a crash cut short
    model = training.run(tmp_path, TWO, workers=2)
    assert ending(tmp_path) == ending(whole)
    saved = load_newest(whole)
    assert saved is not None
    assert all(torch.equal(saved.model[name], t) for name, t in model.state_dict().items())


@pytest.mark.parametrize(("number", "last"), [(signal.SIGINT, 8), (signal.SIGTERM, SHORT.steps)])
def test_a_signal_saves_after_the_step_and_the_next_start_continues(
    training: Training, whole: Path, tmp_path: Path, number: signal.Signals, last: int
) -> None:
    handler = signal.getsignal(number)

    def act(step: int) -> None:
        if step == last - 1:
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted, match=f"stopped after step {last}"):
        training.run(tmp_path, TWO, act=act)
    assert list_checkpoints(tmp_path)[-1].name == step_name(last)
    training.run(tmp_path, TWO)
    assert ending(tmp_path) == ending(whole)
    assert signal.getsignal(number) is handler


def test_measuring_held_out_text_changes_nothing(training: Training, tmp_path: Path) -> None:
    for every in (1, 1_000):
        recipe = RECIPE.model_copy(update={"evaluate_every": every, "steps": 5})
        training.run(tmp_path / str(every), recipe)
    often, once = ending(tmp_path / "1"), ending(tmp_path / "1000")
    assert len(held_out_rows(tmp_path / "1")) == 5
    assert held_out_rows(tmp_path / "1")[-1] == held_out_rows(tmp_path / "1000")[-1]
    assert often.pop("log") != once.pop("log")
    assert often == once


def test_held_out_losses_are_without_dropout(training: Training, tmp_path: Path) -> None:
    recipe = RECIPE.model_copy(update={"mask_probability": {0: 0.3, 20: 0.1}, "steps": 5})
    model = training.run(tmp_path, recipe).eval()
    source = BatchSource(training.shards, training.tokenizer, recipe, 1)
    masking = Masking(training.tokenizer, recipe, CPU)
    expected = {}
    for language in source.languages:
        (piece,) = source.held_out(language)
        key = derive_seed(1, "held-out")
        masked = masking(piece.ids_BL, piece.lengths_B, piece.rows_B, key, 0.3)
        mask_BL = torch.arange(32) < piece.lengths_B[:, None]
        with torch.no_grad():
            logits_MV = model(masked.ids_BL, mask_BL, masked.positions_M)
        expected[language] = float(F.cross_entropy(logits_MV, masked.labels_M))
    assert held_out_rows(tmp_path)[-1] == {"step": 5, "held_out": pytest.approx(expected, abs=1e-5)}


def test_rates_and_mask_schedules_are_logged(training: Training, tmp_path: Path) -> None:
    settings = {"steps": 20, "log_every": 5, "mask_probability": {4: 0.3, 14: 0.1}}
    recipe = RECIPE.model_copy(update=settings)
    training.run(tmp_path, recipe)
    raw = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    found = [row for row in raw if "loss" in row]
    assert [row["step"] for row in found] == [5, 10, 15, 20]
    assert [row["mask_probability"] for row in found] == pytest.approx([0.3, 0.2, 0.1, 0.1])
    rates = [row["learning_rate"] for row in found]
    assert rates[::3] == pytest.approx([3e-3, 3e-3 / 15])
    assert all(row["tokens_per_second"] > 0 and 0 < row["peak_share"] < 1 for row in found)
    source = BatchSource(training.shards, training.tokenizer, recipe, 1)
    assert found[-1]["tokens"] == sum(source.micro_batch(step).num_tokens for step in range(20))


def test_newest_and_permanent_checkpoints_stay(training: Training, tmp_path: Path) -> None:
    recipe = SHORT.model_copy(update={"keep_checkpoints": 1, "keep_steps": [7, 10]})

    def export(model: MaskedLM, folder: Path) -> None:
        save_pretrained(model, training.tokenizer, folder, "a step")

    training.run(tmp_path / "checkpoints", recipe, export=export)
    names = [path.name for path in list_checkpoints(tmp_path / "checkpoints")]
    assert names == ["step-00000007", "step-00000010", "step-00000016"]
    assert sorted(path.name for path in (tmp_path / "steps").iterdir()) == names[:2]
    ids = torch.arange(5, 15)[None]
    for name in names[:2]:
        ours = training.make_model().eval()
        ours.load_state_dict(load_file(tmp_path / "checkpoints" / name / "model.safetensors"))
        exported = load_pretrained(tmp_path / "steps" / name).model
        assert torch.equal(exported.encoder(ids), ours.encoder(ids))


def test_a_frozen_body_stays_and_has_no_moments(training: Training, tmp_path: Path) -> None:
    model = training.make_model()
    model.encoder.layers.requires_grad_(False)
    with pytest.raises(RuntimeError, match="crash"):
        training.run(tmp_path, SHORT, model=model, act=crash(8))
    training.run(tmp_path, SHORT, model=model)
    start = training.make_model().state_dict()
    checkpoint = load_newest(tmp_path)
    assert checkpoint is not None
    same = {n for n, tensor in checkpoint.model.items() if torch.equal(tensor, start[n])}
    assert same == {name for name in start if name.startswith("encoder.layers.")}
    assert len(same) > 10
    moments = {name.split(".", 1)[1] for name in checkpoint.moments}
    assert moments == set(start) - same


def test_a_step_that_is_not_finite_is_skipped(training: Training, tmp_path: Path) -> None:
    recipe = RECIPE.model_copy(update={"checkpoint_every": 1, "keep_checkpoints": 99, "steps": 12})
    bad = {4: NAN, 7: BAD_GRADIENT, 8: float("inf")}
    training.run(tmp_path / "whole", recipe, added=bad)
    folders = list_checkpoints(tmp_path / "whole")
    for name in ("model.safetensors", "optimizer.safetensors"):
        contents = [(folder / name).read_bytes() for folder in folders]
        unchanged = {step for step in range(1, 12) if contents[step] == contents[step - 1]}
        assert unchanged == set(bad)
    assert rows(tmp_path / "whole")[-2]["skipped"] == 3
    states = [read_json(folder / "state.json") for folder in folders]
    assert [state["skipped_in_row"] for state in states] == [0, 0, 0, 0, 1, 0, 0, 1, 2, 0, 0, 0]
    # Adam counts the steps that it took, also after a new start.
    for crash_at in (6, 9):
        with pytest.raises(RuntimeError, match="crash"):
            training.run(tmp_path / "parts", recipe, added=bad, act=crash(crash_at))
    training.run(tmp_path / "parts", recipe, added=bad)
    assert ending(tmp_path / "parts") == ending(tmp_path / "whole")


def test_float16_resumes_to_the_bit_and_logs_its_scale(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer, "_GROWTH_INTERVAL", 6)
    recipe = TWO.model_copy(update={"precision": "float16", "held_out": 0})
    bad = {3: BAD_GRADIENT, 12: NAN}
    training.run(tmp_path / "whole", recipe, added=bad)
    for crash_at in (4, 11):
        with pytest.raises(RuntimeError, match="crash"):
            training.run(tmp_path / "parts", recipe, added=bad, act=crash(crash_at))
    training.run(tmp_path / "parts", recipe, added=bad)
    assert ending(tmp_path / "parts") == ending(tmp_path / "whole")
    trained = [row for row in rows(tmp_path / "whole") if "loss" in row]
    assert [row["loss_scale"] for row in trained] == [2.0**15, 2.0**15, 2.0**16, 2.0**15]
    assert trained[-1]["loss"] < trained[0]["loss"]
    state = ending(tmp_path / "whole")["state"]
    assert (state["loss_scale"], state["scale_steps"], state["skipped"]) == (2.0**15, 3, 2)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_layers_computed_again_change_nothing(
    training: Training, tmp_path: Path, precision: str
) -> None:
    settings = {"precision": precision, "steps": 5, "held_out": 0}
    recipe = TWO.model_copy(update=settings)
    for again in (False, True):
        training.run(tmp_path / f"{again}", recipe, gradient_checkpointing=again)
    assert ending(tmp_path / "True") == ending(tmp_path / "False")


def test_overflows_do_not_stop_the_run_but_a_gradient_without_a_scale_does(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer, "_FIRST_SCALE", 2.0**5)
    settings = {"max_bad_steps": 3, "precision": "float16", "held_out": 0}
    recipe = SHORT.model_copy(update=settings)
    training.run(tmp_path / "some", recipe, added=dict.fromkeys(range(5), BAD_GRADIENT))
    with pytest.raises(MetaXLMError, match=r"3 steps in a row, 7 to 9;"):
        training.run(tmp_path / "all", recipe, added=dict.fromkeys(range(2, 16), BAD_GRADIENT))


def test_bad_steps_in_a_row_stop_the_run(training: Training, tmp_path: Path) -> None:
    recipe = SHORT.model_copy(update={"max_bad_steps": 3, "checkpoint_every": 4})
    bad = {2: NAN, 3: NAN, 11: NAN, 12: NAN, 13: NAN, 14: NAN}
    with pytest.raises(RuntimeError, match="crash"):  # in the middle of the row
        training.run(tmp_path, recipe, added=bad, act=crash(12))
    with pytest.raises(MetaXLMError, match=r"3 steps in a row, 11 to 13;.*bad_steps\.json"):
        training.run(tmp_path, recipe, added=bad)
    source = BatchSource(training.shards, training.tokenizer, recipe, 1)
    samples = [[list(sample) for sample in source.samples(step)] for step in (11, 12, 13)]
    found = read_json(tmp_path / "bad_steps.json")
    assert [row["step"] for row in found] == [11, 12, 13]
    assert [row["samples"] for row in found] == samples
    assert [path.name for path in list_checkpoints(tmp_path)][-1] == "step-00000012"
    training.run(tmp_path, recipe)
    assert load_newest(tmp_path).state.step == 16  # type: ignore[union-attr]


def test_jumps_are_logged(
    training: Training, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = RECIPE.model_copy(update={"log_every": 1, "held_out": 0, "steps": 20})
    added = {15: 50.0, 17: 5_000.0}
    training.run(tmp_path / "whole", recipe, added=added)
    spikes = {
        row["step"]: row["spike"]["loss"] for row in rows(tmp_path / "whole") if "spike" in row
    }
    assert set(spikes) == {16, 18}
    assert 50 < spikes[16] < 60
    assert capsys.readouterr().out.count("the loss jumped") == 1
    with pytest.raises(RuntimeError, match="crash"):
        training.run(tmp_path / "parts", recipe, added=added, act=crash(14))
    training.run(tmp_path / "parts", recipe, added=added)
    assert ending(tmp_path / "parts") == ending(tmp_path / "whole")


def test_a_disk_without_room_is_rejected(training: Training, tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match=r"need [\d,]+ bytes .* only [\d,]+ bytes .* are free"):
        training.run(tmp_path, RECIPE.model_copy(update={"keep_checkpoints": 10**12}))
    assert not list_checkpoints(tmp_path)


def test_a_checkpoint_of_another_model_is_rejected(training: Training, tmp_path: Path) -> None:
    training.run(tmp_path, RECIPE.model_copy(update={"steps": 2}))
    with pytest.raises(MetaXLMError, match=r"another model.*32.*64.*choose another folder"):
        training.run(tmp_path, model=training.make_model(hidden=64))
    frozen = training.make_model()
    frozen.head.requires_grad_(False)
    with pytest.raises(MetaXLMError, match=r"another model: exp_avg\.head\..* absent here"):
        training.run(tmp_path, model=frozen)


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "meta"])
def test_a_device_that_is_not_there_is_rejected(name: str) -> None:
    with pytest.raises(MetaXLMError, match="--device"):
        choose_device(name)
