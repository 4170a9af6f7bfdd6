"""The training step against torch's own batches put together by hand."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.conftest import Shards
from tests.trainings import BAD_GRADIENT, AddedLoss, Source
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain import optimizer
from metaxlm.pretrain import step as step_module
from metaxlm.pretrain.batches.masking import IGNORED, Masking
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.pretrain.optimizer import LossScale
from metaxlm.pretrain.step import PretrainStep
from metaxlm.recipe import ExecutionRecipe, TrainingRecipe

CPU = torch.device("cpu")
RECIPE = TrainingRecipe(batch_size=8, length=32, learning_rate=1e-2, weight_decay=0.1)
RATE, PROBABILITY = 1e-2, 0.3


class Case:
    """A model without dropout, its batches and its step."""

    def __init__(
        self,
        shards: Shards,
        tokenizer: Tokenizer,
        clip: float = 0.0,
        precision: str = "float32",
        dropout: float = 0.0,
        teacher: AddedLoss | None = None,
        anchor: float = 0.0,
    ) -> None:
        self.source = Source(shards, tokenizer, RECIPE, 1)
        self.masking = Masking(tokenizer, RECIPE, CPU)
        torch.manual_seed(0)
        rates = {"dropout": dropout, "attention_dropout": dropout}
        config = EncoderConfig(len(tokenizer), 32, 2, 2, 64, 32, **rates)
        self.model = MaskedLM(config)
        self.start = copy.deepcopy(self.model)
        settings = {"clip": clip, "precision": precision, "anchor": anchor}
        recipe = RECIPE.model_copy(update=settings)
        alone = DistributedContext.alone(CPU)
        self.step = PretrainStep(
            self.model, self.masking, recipe, ExecutionRecipe(), alone, teacher
        )

    def train(self, num_batches: int, steps: int = 3) -> list[float]:
        losses = []
        for step in range(steps):
            batches = [
                self.source.micro_batch(step, index, num_batches) for index in range(num_batches)
            ]
            self.step(batches, RATE, PROBABILITY, self.source.mask_key(step))
            losses.append(float(self.step.totals.last_loss))
        return losses


def test_micro_batches_make_one_step(shards: Shards, tokenizer: Tokenizer) -> None:
    whole, cut = (Case(shards, tokenizer) for _ in range(2))
    assert cut.train(4) == pytest.approx(whole.train(1), rel=1e-6)
    for name, parameter in whole.model.named_parameters():
        found = cut.model.get_parameter(name)
        torch.testing.assert_close(found, parameter, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize("anchor", [0.0, 30.0])
def test_steps_are_those_of_torch(shards: Shards, tokenizer: Tokenizer, anchor: float) -> None:
    clip = 0.05
    case = Case(shards, tokenizer, clip, anchor=anchor)
    losses = case.train(1)
    model = case.start
    words = model.encoder.words.weight
    start = words.detach().clone()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98), eps=1e-6)
    for step, found in enumerate(losses):
        batch = case.source.micro_batch(step)
        masked = case.masking(
            batch.ids_BL, batch.lengths_B, batch.rows_B, case.source.mask_key(step), PROBABILITY
        )
        real_BL = torch.arange(32) < batch.lengths_B[:, None]
        used_M = masked.labels_M != IGNORED
        logits_BLV = model.logits(masked.ids_BL, real_BL)
        loss = F.cross_entropy(
            logits_BLV.flatten(0, 1)[masked.positions_M[used_M]], masked.labels_M[used_M]
        )
        assert found == pytest.approx(loss.item(), rel=1e-6)
        adamw.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        assert norm > clip, "the case must clip"
        words.data.lerp_(start, RATE * anchor)
        adamw.step()
    assert float(case.step.totals.norm) == pytest.approx(norm.item(), rel=1e-4)
    for name, parameter in model.named_parameters():
        found_parameter = case.model.get_parameter(name)
        torch.testing.assert_close(found_parameter, parameter, atol=2e-5, rtol=0, msg=name)


class NoFloat64(TorchDispatchMode):
    """Fails where a GPU of Apple does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        tensors = [value for value in tree_leaves(found) if isinstance(value, torch.Tensor)]
        assert all(tensor.dtype != torch.float64 for tensor in tensors), func
        return found


class PlainUpdate:
    """The update of a device whose fused AdamW does not scale."""

    def __init__(self, step: PretrainStep) -> None:
        self._step = step

    def step(self, shrink: torch.Tensor, bad: torch.Tensor) -> None:
        gradients = [p.grad for p in self._step.model.parameters() if p.grad is not None]
        self._step._step_plainly(gradients, shrink, bad)


@pytest.mark.parametrize("bad_step", [None, 1])
def test_steps_without_float64_and_fused_scaling_are_the_same(
    shards: Shards, tokenizer: Tokenizer, bad_step: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_case() -> Case:
        teacher = None if bad_step is None else AddedLoss({bad_step: float("nan")})
        return Case(shards, tokenizer, clip=0.05, teacher=teacher)

    expected = make_case()
    expected.train(1)
    monkeypatch.setattr(step_module, "widest_float", lambda device: torch.float32)
    case = make_case()
    step, compute, mask = case.step, case.step._compute, case.step._masking

    def compute_strictly(inputs: Any, skip: bool = False) -> None:
        with NoFloat64():
            compute(inputs, skip)

    def mask_exactly(*arguments: Any) -> Any:
        with _disable_current_modes():
            return mask(*arguments)

    monkeypatch.setattr(step, "_compute", compute_strictly)
    monkeypatch.setattr(step, "_masking", mask_exactly)
    monkeypatch.setattr(step, "_fused_update", PlainUpdate(step))
    case.train(1)
    assert int(step.totals.bad) == int(bad_step is not None)
    for name, parameter in expected.model.named_parameters():
        found = case.model.get_parameter(name)
        torch.testing.assert_close(found, parameter, atol=2e-6, rtol=0, msg=name)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_changes_steps_a_little(
    shards: Shards, tokenizer: Tokenizer, precision: str
) -> None:
    case, exact = Case(shards, tokenizer, 0.05, precision), Case(shards, tokenizer, 0.05)
    losses, expected = case.train(2), exact.train(2)
    assert losses != expected
    assert losses == pytest.approx(expected, rel=0.01)
    assert float(case.step.totals.norm) == pytest.approx(float(exact.step.totals.norm), rel=0.05)
    assert int(case.step.totals.bad) == 0
    assert (case.step.scale is not None) == (precision == "float16")


def test_scaled_steps_are_those_without_a_scale(shards: Shards, tokenizer: Tokenizer) -> None:
    case, exact = (Case(shards, tokenizer, 0.05) for _ in range(2))
    case.step.scale = LossScale(CPU)
    assert case.train(1) == exact.train(1)  # powers of two leave all digits as they are
    for name, parameter in exact.model.named_parameters():
        torch.testing.assert_close(case.model.get_parameter(name), parameter, msg=name)


def test_an_overflow_lowers_the_scale_and_changes_nothing_else(
    shards: Shards, tokenizer: Tokenizer
) -> None:
    bad = {0: BAD_GRADIENT, 1: float("nan")}
    case = Case(shards, tokenizer, precision="float16", teacher=AddedLoss(bad), anchor=10.0)
    scale, totals = case.step.scale, case.step.totals
    assert scale is not None
    first = float(scale.value)
    case.train(1, steps=1)
    assert (int(totals.bad), int(totals.overflows), int(totals.bad_in_row)) == (1, 1, 0)
    case.train(1, steps=2)  # the first overflows again; another scale does not help the second
    assert (int(totals.bad), int(totals.overflows), int(totals.bad_in_row)) == (3, 2, 1)
    assert float(scale.value) == first / 8
    for name, parameter in case.start.named_parameters():
        assert torch.equal(case.model.get_parameter(name), parameter), name
    case.train(1)
    assert (int(totals.bad_in_row), int(totals.steps), int(scale.good_steps)) == (0, 1, 1)
    assert not torch.equal(case.model.encoder.words.weight, case.start.encoder.words.weight)


def test_the_scale_grows_after_good_steps_and_has_a_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer, "_GROWTH_INTERVAL", 3)
    monkeypatch.setattr(optimizer, "_FIRST_SCALE", 4.0)
    scale, good, bad = LossScale(CPU), torch.tensor(False), torch.tensor(True)
    found = []
    for is_bad in (good, good, good, good, bad, good, good, bad, bad, bad, bad):
        found.append((bool(scale.is_overflow(bad, torch.ones(()))), float(scale.value)))
        scale.update(is_bad)
    assert [value for _, value in found] == [4, 4, 4, 8, 8, 4, 4, 4, 2, 1, 1]
    assert [is_overflow for is_overflow, _ in found] == [True] * 9 + [False] * 2
    assert not scale.is_overflow(bad, torch.tensor(float("nan")))


def test_a_bad_step_is_left_out_of_the_mean(shards: Shards, tokenizer: Tokenizer) -> None:
    case = Case(shards, tokenizer, teacher=AddedLoss({1: float("nan")}), anchor=10.0)
    losses = case.train(1)
    assert math.isnan(losses[1])
    totals = case.step.totals
    assert (int(totals.steps), int(totals.bad)) == (2, 1)
    assert float(totals.loss) == pytest.approx(losses[0] + losses[2], rel=1e-9)


def test_micro_batches_have_their_own_dropout(shards: Shards, tokenizer: Tokenizer) -> None:
    losses = []
    for seed in (1, 1, 2):
        case = Case(shards, tokenizer, dropout=0.5)
        batch = replace(case.source.micro_batch(0), dropout_seed=seed)
        case.step([batch], RATE, PROBABILITY, case.source.mask_key(0))
        losses.append(float(case.step.totals.last_loss))
    assert losses[0] == losses[1] != losses[2]
