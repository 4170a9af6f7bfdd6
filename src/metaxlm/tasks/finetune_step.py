"""One step of finetuning: the numbers of its sequences come in, changed weights go out.

A CPU computes the sequences of a step in groups of similar length; the loss is that of the whole
step. On a GPU an encoder of ours runs through the fused kernels, and the step, from gathering its
tokens to AdamW, is one CUDA graph for each padded length; anything else runs as plain torch, in
bfloat16 on a GPU.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from metaxlm.model import fused
from metaxlm.model.encoder import Encoder
from metaxlm.model.heads import TaskModel
from metaxlm.pretraining.distributed import World
from metaxlm.pretraining.guarded_step import GuardedStep, is_recording
from metaxlm.tasks.batches import split_batch
from metaxlm.tasks.feature_table import Batch, FeatureTable
from metaxlm.tasks.task import IGNORED, Task

if TYPE_CHECKING:
    from metaxlm.pretraining.fused_update import FusedUpdate

_SHORT = 128
"""Up to this length, recorded steps are padded to multiples of 16, beyond it of 32."""

_GROUP_COST = 16
"""Tokens that take a CPU as long as one more group: the layers' gradients are added once more."""


def pad_length(length: int, longest: int) -> int:
    """Return the padded length that a GPU computes: few different ones, close to the real one."""
    multiple = 16 if length <= _SHORT else 32
    return min(-(-length // multiple) * multiple, longest)


def runs_fused(model: nn.Module, device: torch.device) -> bool:
    """Say whether the fused kernels compute a model: an encoder of ours, on a GPU that has them."""
    return (
        isinstance(model, TaskModel)
        and isinstance(model.encoder, Encoder)
        and fused.is_available(device)
        and fused.fits(model.encoder.config)
    )


def compute_logits(
    model: nn.Module,
    batch: Batch,
    is_even: bool,
    seed: Tensor | None = None,
    copies: Mapping[Tensor, Tensor] | None = None,
    rows_WD: Tensor | None = None,
) -> Tensor:
    """Return a batch's logits in float32; without padding (`is_even`) there is no mask to read.

    `seed` and `copies` are for the fused kernels, `rows_WD` for an encoder of ours without them.
    """
    device = batch.ids_BL.device
    with torch.autocast(device.type, torch.bfloat16, device.type == "cuda", cache_enabled=False):
        if runs_fused(model, device):
            assert isinstance(model, TaskModel)
            logits = _compute_fused(model, batch, seed, copies or {})
        else:
            mask_BL = None if is_even else batch.mask()
            rows = () if rows_WD is None else (rows_WD,)
            logits = model(batch.ids_BL, mask_BL, batch.token_types_BL, *rows)
    return logits.float()


def _compute_fused(
    model: TaskModel, batch: Batch, seed: Tensor | None, copies: Mapping[Tensor, Tensor]
) -> Tensor:
    from metaxlm.model.kernels.blocks import Blocks, TiedGradient

    if seed is None:
        seed = torch.zeros(1, dtype=torch.int64, device=batch.ids_BL.device)
    blocks = Blocks(
        batch.lengths_B,
        batch.ids_BL.shape[1],
        seed,
        copies=copies,
        tied=TiedGradient(is_used=False),
    )
    hidden_BLD = model.encoder.encode_blocks(batch.ids_BL, blocks, batch.token_types_BL)
    logits: Tensor = model.head(hidden_BLD)
    return logits


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
    groups: tuple[Group, ...]
    """How they are computed, in their order."""
    seed: int
    """Decides the step's dropout."""
    seed_1: Tensor | None = None
    """The seed on the device."""

    def shape(self) -> Hashable:
        """Return the groups' sizes and lengths."""
        return self.groups

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


def make_groups(
    lengths: Sequence[int], device: torch.device, is_fused: bool, longest: int
) -> tuple[Group, ...]:
    """Group a step's sequences by their lengths, which stand in descending order.

    A GPU waits for the host more than it computes: one group, and few different lengths of it.
    """
    if device.type == "cuda":
        length = pad_length(lengths[0], longest) if is_fused else lengths[0]
        return (Group(len(lengths), length, lengths[-1] == length),)
    groups: list[Group] = []
    start = 0
    for size in split_batch(lengths, _GROUP_COST):
        last = lengths[start + size - 1]
        groups.append(Group(size, lengths[start], lengths[start] == last))
        start += size
    return tuple(groups)


@dataclass(frozen=True)
class _WordRows:
    """The word rows of a step, as a table of their own.

    The gradient of the whole table, mostly zeros, is then made once a step and not once a group.
    """

    table_VD: Tensor
    numbers_W: Tensor
    rows_WD: Tensor
    batches: list[Batch]
    """Batches whose ids number these rows."""

    @classmethod
    def take(cls, model: nn.Module, batches: Sequence[Batch]) -> _WordRows | None:
        """Copy the rows that the batches need; None for an encoder that is not ours."""
        if not isinstance(model, TaskModel):
            return None
        table_VD = model.encoder.embeddings.words.weight
        ids_N = torch.cat([batch.ids_BL.flatten() for batch in batches])
        numbers_W, places_N = torch.unique(ids_N, return_inverse=True)
        rows_WD = table_VD.detach()[numbers_W].requires_grad_()
        places = places_N.split([batch.ids_BL.numel() for batch in batches])
        renumbered = [
            replace(batch, ids_BL=place.view_as(batch.ids_BL))
            for batch, place in zip(batches, places, strict=True)
        ]
        return cls(table_VD, numbers_W, rows_WD, renumbered)

    def give_back(self) -> None:
        """Put the rows' gradient into the table's."""
        assert self.rows_WD.grad is not None
        gradient_VD = torch.zeros_like(self.table_VD)
        gradient_VD[self.numbers_W] = self.rows_WD.grad
        self.table_VD.grad = gradient_VD


class FinetuneStep(GuardedStep[StepRows]):
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
        super().__init__(optimizer, World.alone(device), clip=clip, bfloat16=device.type == "cuda")
        self._task = task
        self._model = model
        self._table = table
        self._is_fused = runs_fused(model, device)
        self._copies: Mapping[Tensor, Tensor] = {}

    def _compute(self, inputs: StepRows, skip: bool = False) -> None:
        if not is_recording():
            torch.manual_seed(inputs.seed)
        batches = [self._table.gather(rows_B, group.length) for rows_B, group in inputs.split()]
        counts = [(batch.labels_BW != IGNORED).sum() for batch in batches]
        total = torch.stack(counts).sum().clamp_min(1)
        self._optimizer.zero_grad(set_to_none=True)
        words = _WordRows.take(self._model, batches) if inputs.rows_B.device.type == "cpu" else None
        if words is not None:
            batches = words.batches
        step_loss = torch.zeros((), dtype=torch.float64, device=total.device)
        for batch, group, count in zip(batches, inputs.groups, counts, strict=True):
            logits = compute_logits(
                self._model, batch, group.is_even, inputs.seed_1, self._copies,
                None if words is None else words.rows_WD,
            )  # fmt: skip
            loss = self._task.compute_loss(logits, batch.labels_BW, batch.lengths_B)
            loss = loss * (count / total)
            torch.autograd.backward(loss)
            step_loss += loss.detach()
        if words is not None:
            words.give_back()
        self._update(step_loss, skip)

    def _before_replay(self, inputs: StepRows) -> None:
        torch.manual_seed(inputs.seed)  # the head's dropout is torch's

    def _can_be_captured(self) -> bool:
        return self._is_fused

    def _make_fused_update(self) -> FusedUpdate:
        from metaxlm.pretraining.fused_update import FusedUpdate

        assert isinstance(self._model, TaskModel)
        update = FusedUpdate(self._model.encoder, self._optimizer, copies_words=False)
        self._copies = update.copies
        return update
