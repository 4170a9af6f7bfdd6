"""One step: the loss, the vectors of texts, and what a bad step leaves as it was."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain import optimizer
from metaxlm.pretrain import step as step_module
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import BatchSource
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.recipe import ExecutionRecipe, TrainingRecipe
from metaxlm.recipe.sentences_schema import SentencesRecipe
from metaxlm.sentences.sentence_batches import SentenceBatch, SentenceSource
from metaxlm.sentences.sentence_step import SentenceObjective, SentenceStep, compute_loss
from tests.conftest import Shards
from tests.sentences.encoder_trainings import (
    CPU,
    SETTINGS,
    WIDTH,
    LoudPairs,
    make_student,
)

NUM_ANCHORS = 64
BLOCKS = TrainingRecipe(steps=4, warmup_steps=0, batch_size=8, length=32)


def make_source(tokenizer: Tokenizer, **options: Any) -> SentenceSource:
    pairs = LoudPairs()
    return SentenceSource(
        pairs, np.arange(len(pairs.anchors)), tokenizer,
        **{"batch_size": 8, "max_length": 24, "seed": 1, "device": CPU} | options,
    )  # fmt: skip


def make_vectors() -> Tensor:
    torch.manual_seed(5)
    return torch.randn(NUM_ANCHORS, WIDTH).half()


def make_step(
    model: MaskedLM, settings: SentencesRecipe = SETTINGS, masking: Masking | None = None
) -> SentenceStep:
    world = DistributedContext.alone(CPU)
    return SentenceStep(
        model, make_vectors(), "mean", settings, ExecutionRecipe(), world, masking, 0.15
    )


def expect_loss(
    students: Any, teachers: Any, anchors: Any, temperature: float, weight: float
) -> Any:
    """The loss in float64, term by term."""
    students, teachers = (x / np.linalg.norm(x, axis=1)[:, None] for x in (students, teachers))
    total = 0.0
    for row, student in enumerate(students):
        cosine = student @ teachers[row]
        others = [c for c in range(len(teachers)) if anchors[c] != anchors[row]]
        rows = [r for r in range(len(students)) if anchors[r] != anchors[row]]
        for negatives in (
            [student @ teachers[c] for c in others],
            [students[r] @ teachers[row] for r in rows],
        ):
            exponents = np.exp(np.array([cosine, *negatives]) / temperature)
            total -= np.log(exponents[0] / exponents.sum()) / 2
        total += weight * (1 - cosine)
    return total / len(students)


@pytest.mark.parametrize("extra", [0, 5])
def test_the_loss_contrasts_other_anchors_only(extra: int) -> None:
    random = np.random.default_rng(3)
    students, teachers = random.normal(size=(6, 4)), random.normal(size=(6 + extra, 4))
    anchors = np.array([0, 1, 2, 1, 3, 1, 4, 2, 9, 9, 0][: 6 + extra])
    for row, anchor in enumerate(anchors):  # equal anchors have equal vectors
        teachers[row] = teachers[list(anchors).index(anchor)]
    found = compute_loss(
        *map(torch.from_numpy, (students, teachers, anchors)), temperature=0.2, cosine_weight=3.0
    )
    assert float(found) == pytest.approx(expect_loss(students, teachers, anchors, 0.2, 3.0))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_of_a_batch_are_those_of_each_text(tokenizer: Tokenizer, pooling: Any) -> None:
    model = make_student(tokenizer).eval()
    objective = SentenceObjective(model, pooling, predicts_tokens=False).eval()
    batch = make_source(tokenizer).micro_batch(3)
    assert len(set(batch.sizes)) > 2 and sorted(batch.sizes, reverse=True) == list(batch.sizes)
    expected = []
    for start, end in zip(batch.starts_B1[:-1], batch.starts_B1[1:], strict=True):
        hidden_LD = model.encoder(batch.ids_N[None, start:end])[0]
        expected.append(hidden_LD.mean(dim=0) if pooling == "mean" else hidden_LD[0])
    torch.testing.assert_close(objective([batch]), torch.stack(expected), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        objective._encode_groups(batch), torch.stack(expected), atol=1e-5, rtol=1e-4
    )


def test_gradients_of_packed_texts_are_those_of_padded_ones(tokenizer: Tokenizer) -> None:
    batch = make_source(tokenizer).micro_batch(0)
    gradients = []
    for name in ("_encode", "_encode_groups"):
        objective = SentenceObjective(make_student(tokenizer, 0.0), "mean", predicts_tokens=False)
        encode = getattr(objective, name)
        vectors_BD = encode(batch, None) if name == "_encode" else encode(batch)
        vectors_BD[:, 0].sum().backward()
        gradients.append({n: p.grad for n, p in objective.named_parameters() if p.requires_grad})
    assert gradients[0].keys() == gradients[1].keys()
    assert not any("head" in name for name in gradients[0])
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], atol=1e-5, rtol=1e-4)


def snapshot(step: SentenceStep) -> dict[str, Tensor]:
    weights, moments = step.collect()
    return {name: tensor.clone() for name, tensor in (weights | moments).items()}


def test_a_bad_step_changes_nothing(tokenizer: Tokenizer) -> None:
    step, source = make_step(make_student(tokenizer)), make_source(tokenizer)
    step([source.micro_batch(0)], 1e-3, 0)
    before = snapshot(step)
    bad = source.micro_batch(1)
    step._vectors_AD[bad.anchors_B[2]] = float("nan")
    step([bad], 1e-3, 0)
    assert int(step.totals.bad) == 1 and step.count_bad_steps() == 1
    after = snapshot(step)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    good = next(b for b in map(source.micro_batch, range(2, 9)) if not is_bad(step, b))
    step([good], 1e-3, 0)
    assert step.count_bad_steps() == 0
    assert any(not torch.equal(snapshot(step)[name], tensor) for name, tensor in before.items())


def test_float16_scales_both_losses(
    shards: Shards, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms = []
    monkeypatch.setattr(optimizer, "_FIRST_SCALE", 2.0**10)
    for dtype in (torch.float32, torch.float16):
        monkeypatch.setattr(step_module, "choose_dtype", lambda *_, dtype=dtype: dtype)
        masking = Masking(tokenizer, BLOCKS, CPU)
        blocks = BatchSource(shards, tokenizer, BLOCKS, 1)
        settings = SETTINGS.model_copy(update={"mlm_weight": 0.5})
        step = make_step(make_student(tokenizer), settings, masking)
        step([make_source(tokenizer, blocks=blocks).micro_batch(0)], 1e-3, 0)
        assert (step.scale is not None) == (dtype == torch.float16)
        assert int(step.totals.bad) == 0
        norms.append((float(step.totals.norm), float(step.totals.last_loss)))
    assert norms[0] != norms[1]
    assert norms[0] == pytest.approx(norms[1], rel=0.02)


def test_layers_computed_again_change_nothing(tokenizer: Tokenizer) -> None:
    found = []
    for again in (False, True):
        execution = ExecutionRecipe(gradient_checkpointing=again)
        world, model = DistributedContext.alone(CPU), make_student(tokenizer)
        step = SentenceStep(model, make_vectors(), "mean", SETTINGS, execution, world)
        step([make_source(tokenizer).micro_batch(0)], 1e-3, 0)
        found.append(snapshot(step))
    assert all(torch.equal(found[1][name], tensor) for name, tensor in found[0].items())


def is_bad(step: SentenceStep, batch: SentenceBatch) -> bool:
    return bool(step._vectors_AD[batch.anchors_B].isnan().any())


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_the_body_has_its_own_rate(tokenizer: Tokenizer, rate: float) -> None:
    batch, moves = make_source(tokenizer).micro_batch(0), {}
    for body_rate in (1.0, rate):
        settings = SETTINGS.model_copy(update={"body_rate": body_rate})
        model = make_student(tokenizer, 0.0)
        start = copy.deepcopy(model.state_dict())
        make_step(model, settings)([batch], 1e-4, 0)
        moves[body_rate] = {n: t - start[n] for n, t in model.state_dict().items()}
    for name, move in moves[rate].items():
        factor = rate if "encoder.layers" in name else 1.0
        torch.testing.assert_close(move, factor * moves[1.0][name], atol=1e-7, rtol=2e-2)


def test_masked_language_modeling_in_the_same_step(shards: Shards, tokenizer: Tokenizer) -> None:
    blocks = BatchSource(shards, tokenizer, BLOCKS, 1)
    batch = make_source(tokenizer, blocks=blocks).micro_batch(0)
    masking = Masking(tokenizer, BLOCKS, CPU)
    losses = {}
    for weight in (0.0, 0.5, 1.0):
        settings = SETTINGS.model_copy(update={"mlm_weight": weight})
        model = make_student(tokenizer, 0.0)
        bias = model.head.bias.detach().clone()
        step = make_step(model, settings, masking)
        step([batch], 1e-3, 7)
        losses[weight] = float(step.totals.last_loss)
        assert torch.equal(bias, model.head.bias) == (weight == 0.0)
    assert losses[1.0] - losses[0.0] == pytest.approx(np.log(len(tokenizer)), rel=0.1)
    assert losses[0.5] == pytest.approx((losses[0.0] + losses[1.0]) / 2)
