"""The same finetuning on a CUDA device as on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from metaxlm.finetune.catalog import TASKS
from metaxlm.model import kernels
from tests.finetune.conftest import CPU, MakeEncoder, make_tokenizer
from tests.finetune.test_trainer import (
    FAST,
    SPLITS,
    Setting,
    make_switching,
    write_german,
    write_udpos,
    write_xnli,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
CUDA = torch.device("cuda")


@pytest.mark.parametrize("kind", ["words", "bert"])
@pytest.mark.parametrize("name", ["xnli", "udpos"])
def test_finetuning_learns_in_bfloat16(
    make_encoder: MakeEncoder, tmp_path: Path, name: str, kind: str
) -> None:
    """Fused kernels, one graph for each total of tokens; with two token types and with one."""
    data_dir = write_udpos(write_xnli(tmp_path, SPLITS), SPLITS)
    settings = replace(FAST, length=150, epochs=8 if kind == "bert" else 5)
    encoder = make_encoder(make_tokenizer(kind), scale=3.0, max_positions=150)
    learn = Setting(encoder, data_dir, kind)
    before = torch.cuda.get_rng_state()
    scores = learn(name, settings=settings, device=CUDA)
    assert torch.equal(before, torch.cuda.get_rng_state())
    assert next(encoder.parameters()).device == CPU
    if kind == "words":
        for score in scores.scores:
            assert score.values[TASKS[name].metric] > 0.9
    assert scores.epochs[-1].loss < scores.epochs[0].loss
    again = learn(name, settings=settings, device=CUDA)
    assert again.epochs[0].loss == pytest.approx(scores.epochs[0].loss, abs=2e-3)


@pytest.mark.parametrize("name", ["xnli", "udpos"])
def test_an_older_gpu_learns_in_float16(
    make_encoder: MakeEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    data_dir = write_udpos(write_xnli(tmp_path, SPLITS), SPLITS)
    learn = Setting(make_encoder(make_tokenizer("words"), scale=3.0), data_dir)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    found = learn(name, settings=replace(FAST, epochs=8), device=CUDA)
    assert found.epochs[-1].loss < found.epochs[0].loss
    for score in found.scores:
        assert score.values[TASKS[name].metric] > 0.85


@pytest.mark.parametrize("kind", ["words", "bert"])
@pytest.mark.parametrize("name", ["xnli", "udpos"])
def test_recorded_steps_are_those_of_plain_torch(
    make_encoder: MakeEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """Without dropout the two ways differ by bfloat16's rounding alone, incomplete batches too."""
    data_dir = write_udpos(write_xnli(tmp_path, SPLITS), SPLITS)
    settings = replace(FAST, length=150, epochs=3, learning_rate=5e-4, batch_size=24)
    encoder = make_encoder(
        make_tokenizer(kind), scale=3.0, max_positions=150, dropout=0.0, attention_dropout=0.0
    )
    learn = Setting(encoder, data_dir, kind)
    recorded = learn(name, settings=settings, device=CUDA)
    monkeypatch.setattr(kernels, "is_available", lambda device: False)
    plain = learn(name, settings=settings, device=CUDA)
    exact = learn(name, settings=settings, device=CPU)
    for ours, theirs, right in zip(recorded.epochs, plain.epochs, exact.epochs, strict=True):
        assert ours.loss == pytest.approx(right.loss, abs=0.02)
        assert theirs.loss == pytest.approx(right.loss, abs=0.02)


def test_dropout_differs_from_step_to_step_and_repeats(
    make_encoder: MakeEncoder, tmp_path: Path
) -> None:
    """One batch, rate 0: only dropout can make the losses of two epochs differ."""
    write_xnli(tmp_path, {"train-en": 16, "dev-en": 8, "test-en": 8})
    learn = Setting(make_encoder(make_tokenizer("words"), scale=3.0), tmp_path)
    settings = replace(FAST, learning_rate=0.0, epochs=4)
    losses = [r.loss for r in learn("xnli", ("en",), settings=settings, device=CUDA).epochs]
    assert len(set(losses)) == 4
    again = [r.loss for r in learn("xnli", ("en",), settings=settings, device=CUDA).epochs]
    assert again == pytest.approx(losses, abs=1e-3)


@pytest.mark.parametrize("kind", ["words", "bert"])
@pytest.mark.parametrize("name", ["xnli", "udpos"])
def test_only_the_embeddings_of_the_training_set_are_trained(
    make_encoder: MakeEncoder, tmp_path: Path, name: str, kind: str
) -> None:
    """The weights are those of AdamW over all rows, but for the order of sums."""
    data_dir = write_udpos(write_xnli(tmp_path, SPLITS), SPLITS)
    encoder = make_encoder(make_tokenizer(kind), scale=3.0, dropout=0.0, attention_dropout=0.0)
    learn, settings = Setting(encoder, data_dir, kind), replace(FAST, epochs=2)
    ours = learn(name, settings=settings, device=CUDA)
    whole = learn(name, settings=replace(settings, weight_decay=1e-30), device=CUDA)
    for our, their in zip(ours.epochs, whole.epochs, strict=True):
        assert our.loss == pytest.approx(their.loss, abs=2e-3)
    start = encoder.words.weight
    after = ours.trained.model.encoder.words.weight.cpu()
    expected = whole.trained.model.encoder.words.weight.cpu()
    changed, should_change = (start != after).any(dim=1), (start != expected).any(dim=1)
    assert torch.equal(changed, should_change)
    assert 0 < int(changed.sum()) < len(start)
    assert (after - expected).norm() < 0.25 * (expected - start).norm()


@pytest.mark.parametrize("weight_decay", [0.0, 1e-30], ids=["used rows", "all rows"])
def test_recorded_steps_read_the_switched_words_of_the_epoch(
    make_encoder: MakeEncoder, tmp_path: Path, weight_decay: float
) -> None:
    """Losses are those of a CPU; German is learned by switching alone."""
    encoder = make_encoder(make_tokenizer("words"), scale=3.0, dropout=0.0, attention_dropout=0.0)
    learn = Setting(encoder, write_german(tmp_path, SPLITS))
    settings = replace(FAST, epochs=8, learning_rate=1e-3, weight_decay=weight_decay)
    switching = make_switching("words", 0.5)
    recorded = learn("xnli", settings=settings, device=CUDA, switching=switching)
    exact = learn("xnli", settings=settings, device=CPU, switching=switching)
    plain = learn("xnli", settings=settings, device=CUDA)
    for language in ("en", "de"):
        assert recorded.find(language).values["accuracy"] > 0.9
    assert plain.find("de").values["accuracy"] < 0.6
    assert recorded.epochs[0].loss == pytest.approx(exact.epochs[0].loss, abs=0.02)
