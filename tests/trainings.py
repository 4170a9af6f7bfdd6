"""Small training runs that tests start, disturb and compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.data.shards import Shard
from metaxlm.files import digest_file, read_json
from metaxlm.model.encoder import EncoderConfig, Rotary
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import BatchSource, Extra, MicroBatch
from metaxlm.pretrain.checkpoint import list_checkpoints
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.pretrain.loop import Export, train
from metaxlm.recipe import ExecutionRecipe, TrainingRecipe

CPU = torch.device("cpu")
RECIPE = TrainingRecipe(
    steps=30, batch_size=8, length=32, learning_rate=3e-3, warmup_steps=5, checkpoint_every=10,
    log_every=7, evaluate_every=9, anchor=1.0,
)  # fmt: skip
_TIMES = ("seconds", "tokens_per_second", "peak_share")


class Source(BatchSource):
    """Batches that call `act` at each step, and pass the step to teachers."""

    act: Callable[[int], None] = staticmethod(lambda step: None)

    def mask_key(self, step: int) -> int:
        self.act(step)
        return super().mask_key(step)

    def micro_batch(self, step: int, index: int = 0, count: int = 1) -> MicroBatch:
        return replace(super().micro_batch(step, index, count), extra=Now(torch.tensor([step])))


@dataclass(frozen=True)
class Now:
    """The step, as an extra input of a teacher."""

    step: Tensor

    def to(self, device: torch.device) -> Now:
        return Now(self.step.to(device))

    def tensors(self) -> list[Tensor]:
        return [self.step]


BAD_GRADIENT = object()
"""A term of `AddedLoss` that is finite and whose gradient is not."""


STEEP = object()
"""A term of `AddedLoss` that is nearly 0, with a large gradient."""


class AddedLoss:
    """A teacher that adds a number to the loss of some steps."""

    def __init__(self, numbers: Mapping[int, object]) -> None:
        size = max(numbers, default=0) + 2  # the last place is for all later steps
        self.numbers = torch.zeros(size)
        self.roots = torch.ones(size)
        self.slopes = torch.zeros(size)
        for step, number in numbers.items():
            if number is STEEP:
                self.slopes[step] = 1e3
            elif number is BAD_GRADIENT:
                self.roots[step] = 0.0
            else:
                assert isinstance(number, float)
                self.numbers[step] = number

    def loss(self, hidden_BLD: Tensor, extra: Extra) -> Tensor:
        assert isinstance(extra, Now)
        self.numbers, self.roots, self.slopes = (
            t.to(hidden_BLD.device) for t in (self.numbers, self.roots, self.slopes)
        )
        at = extra.step.clamp_max(len(self.numbers) - 1)
        nothing = hidden_BLD.sum() * 0.0
        root = self.roots[at].sum()
        # The root of 0 has no slope; the root of 1 has.
        zero = (nothing.square() + root).sqrt() - root.sqrt()
        steep = self.slopes[at].sum() * hidden_BLD.float().mean()
        return zero + self.numbers[at].sum() * (1.0 + nothing) + steep


class Training:
    """Training runs of one model on one corpus; each starts or resumes in its folder."""

    def __init__(
        self,
        shards: Mapping[str, Shard],
        tokenizer: PreTrainedTokenizerBase,
        device: torch.device = CPU,
        rotary: Rotary | None = None,
    ) -> None:
        self.shards, self.tokenizer, self.device = shards, tokenizer, device
        self.rotary = rotary

    def make_model(self, hidden: int = 32) -> MaskedLM:
        torch.manual_seed(0)
        return MaskedLM(
            EncoderConfig(len(self.tokenizer), hidden, 2, 2, 64, 32, rotary=self.rotary)
        )

    def run(
        self,
        folder: Path,
        recipe: TrainingRecipe = RECIPE,
        *,
        act: Callable[[int], None] | None = None,
        workers: int = 1,
        gradient_checkpointing: bool = False,
        added: Mapping[int, object] | None = None,
        export: Export | None = None,
        model: MaskedLM | None = None,
    ) -> MaskedLM:
        model = self.make_model() if model is None else model
        source = Source(self.shards, self.tokenizer, recipe, 1)
        if act is not None:
            source.act = act
        train(
            model,
            source,
            recipe,
            folder,
            1,
            DistributedContext.alone(self.device),
            "training",
            masking=Masking(self.tokenizer, recipe, self.device),
            execution=ExecutionRecipe(
                workers=workers, gradient_checkpointing=gradient_checkpointing
            ),
            teacher=None if added is None else AddedLoss(added),
            export=export,
        )
        return model


def crash(at: int) -> Callable[[int], None]:
    def act(step: int) -> None:
        if step == at:
            raise RuntimeError("crash")

    return act


def ending(folder: Path) -> dict[str, Any]:
    """The results of a run, which must not depend on interruptions."""
    newest = list_checkpoints(folder)[-1]
    names = ("model.safetensors", "optimizer.safetensors")
    digests = {name: digest_file(newest / name) for name in names}
    state = read_json(newest / "state.json")
    state = {key: value for key, value in state.items() if key not in ("seconds", "log")}
    return digests | {"state": state, "log": rows(folder)}


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a training's log, without times."""
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in _TIMES} for line in lines]
