"""One step of finetuning: the numbers of its sequences come in, changed weights go out.

A step's sequences are any, long and short, and yet little of it is padding. An encoder of ours
takes them packed; on a GPU the whole step, from gathering tokens to AdamW, is then one CUDA graph
for each total of tokens. Another encoder takes them padded, on a CPU in groups of similar length;
the loss is that of the whole step.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from metaxlm.finetune.batches import split_batch
from metaxlm.finetune.feature_table import FeatureTable
from metaxlm.finetune.forward import compute_logits, compute_packed, round_total, takes_packed
from metaxlm.finetune.task import IGNORED, Task
from metaxlm.model.heads import TaskModel
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.pretrain.step import TrainStep, is_recording

if TYPE_CHECKING:
    from metaxlm.pretrain.step import FusedUpdate

_GROUP_COST = 16
"""Tokens that take a CPU as long as one more group: all gradients are added once more."""


@dataclass(frozen=True)
class Group:
    """Sequences of a step that are computed together."""

    size: int
    length: int
    """What they are padded to."""
    is_even: bool = False
    """Whether none of them is padded."""


@dataclass(frozen=True)
class StepRows:
    """The sequences of a step."""

    rows_B: Tensor
    seed: int
    """Decides the step's dropout."""
    total: int
    """Tokens of all, rounded, if they are packed."""
    groups: tuple[Group, ...] = ()
    """How they are computed, in their order, if they are padded."""
    seed_1: Tensor | None = None
    """The seed on the device."""

    def shape(self) -> Hashable:
        """Return the number of tokens: only packed steps are recorded."""
        return self.total

    def to(self, device: torch.device) -> Self:
        """Return copies on a device, whose memory nobody else uses."""
        return replace(
            self,
            rows_B=self.rows_B.to(device, copy=True),
            seed_1=torch.tensor([self.seed], device=device),
        )

    def fill(self, other: Self) -> None:
        """Take over the numbers of another step of this shape."""
        assert self.seed_1 is not None
        self.rows_B.copy_(other.rows_B, non_blocking=True)
        self.seed_1.fill_(other.seed)

    def split(self) -> Iterator[tuple[Tensor, Group]]:
        """Yield the numbers of each group's sequences."""
        start = 0
        for group in self.groups:
            yield self.rows_B[start : start + group.size], group
            start += group.size


def make_groups(lengths: Sequence[int], device: torch.device) -> tuple[Group, ...]:
    """Group a step's sequences by their lengths, which stand in descending order.

    A GPU waits for the host more than it computes: one group.
    """
    sizes = split_batch(lengths, _GROUP_COST) if device.type == "cpu" else [len(lengths)]
    groups: list[Group] = []
    start = 0
    for size in sizes:
        last = lengths[start + size - 1]
        groups.append(Group(size, lengths[start], lengths[start] == last))
        start += size
    return tuple(groups)


class FinetuneStep(TrainStep[StepRows]):
    """Trains a task model one step at a time."""

    def __init__(
        self,
        task: Task[Any, Any],
        model: nn.Module,
        table: FeatureTable,
        optimizer: torch.optim.AdamW,
        device: torch.device,
        *,
        clip: float,
    ) -> None:
        super().__init__(
            optimizer, DistributedContext.alone(device), clip=clip, bfloat16=device.type == "cuda"
        )
        self._task = task
        self._model = model
        self._table = table
        self._is_packed = takes_packed(model, device)
        self._copies: Mapping[Tensor, Tensor] = {}

    def make_inputs(self, batch: Sequence[int], batch_size: int, seed: int) -> StepRows:
        """Prepare a step on these sequences, the longest first."""
        lengths = [self._table.lengths[k] for k in batch]
        device = self.world.device
        if not self._is_packed:
            return StepRows(torch.tensor(batch), seed, 0, make_groups(lengths, device))
        # An incomplete batch is filled up: graphs have one size.
        missing = batch_size - len(batch) if self._can_be_captured() else 0
        rows_B = torch.tensor([*batch, *[self._table.filler] * missing])
        return StepRows(rows_B, seed, round_total(sum(lengths) + missing, device))

    def _compute(self, inputs: StepRows, skip: bool = False) -> None:
        if not is_recording():
            torch.manual_seed(inputs.seed)
        self._optimizer.zero_grad(set_to_none=True)
        compute = self._train_packed if self._is_packed else self._train_groups
        self._update(compute(inputs), skip)

    def _train_packed(self, inputs: StepRows) -> Tensor:
        """Compute the gradients of a packed step and return its loss."""
        packed = self._table.pack(inputs.rows_B, inputs.total)
        logits = compute_packed(self._model, packed, inputs.seed_1, self._copies)
        loss = self._task.compute_loss(logits, packed.labels_BW, packed.lengths_B)
        torch.autograd.backward(loss)
        return loss.detach()

    def _train_groups(self, inputs: StepRows) -> Tensor:
        """Compute the gradients of a step in groups and return its loss."""
        batches = [self._table.gather(rows_B, group.length) for rows_B, group in inputs.split()]
        counts = [(batch.labels_BW != IGNORED).sum() for batch in batches]
        total = torch.stack(counts).sum().clamp_min(1)
        step_loss = torch.zeros((), dtype=torch.float64, device=total.device)
        for batch, group, count in zip(batches, inputs.groups, counts, strict=True):
            logits = compute_logits(self._model, batch, group.is_even)
            loss = self._task.compute_loss(logits, batch.labels_BW, batch.lengths_B)
            loss = loss * (count / total)
            torch.autograd.backward(loss)
            step_loss += loss.detach()
        return step_loss

    def _before_replay(self, inputs: StepRows) -> None:
        torch.manual_seed(inputs.seed)  # the head's dropout is torch's

    def _can_be_captured(self) -> bool:
        return self._is_packed and self.world.device.type == "cuda"

    def _make_fused_update(self) -> FusedUpdate:
        from metaxlm.pretrain.step import FusedUpdate

        assert isinstance(self._model, TaskModel)
        update = FusedUpdate(self._model.encoder, self._optimizer, copies_words=False)
        self._copies = update.copies
        return update
