"""A step of pretraining: its pieces come in, are masked, and change the weights.

Loss and gradients are divided by the number of predictions in the whole step, so that a step is the
same sum whoever computes its pieces. Where a teacher's rows change in number, there is one CUDA
graph for each shape.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from metaxlm.pretrain.batches.masking import IGNORED, Masked, Masking
from metaxlm.pretrain.batches.source import Piece
from metaxlm.pretrain.device import own_bfloat16
from metaxlm.pretrain.distributed import World
from metaxlm.pretrain.guarded_step import GuardedStep, is_recording
from metaxlm.pretrain.objective import Objective

if TYPE_CHECKING:
    from metaxlm.pretrain.fused_update import FusedUpdate


@dataclass(frozen=True)
class _Inputs:
    """The pieces of a step that this process computes, and what masks them."""

    pieces: list[Piece]
    seeds: list[Tensor]
    """The pieces' dropout seeds, for the fused kernels."""
    key: Tensor
    probability: Tensor

    @classmethod
    def make(cls, pieces: Sequence[Piece], key: int, probability: float) -> _Inputs:
        seeds = [torch.tensor([piece.dropout_seed]) for piece in pieces]
        return cls(
            list(pieces), seeds, torch.tensor(key), torch.tensor(probability, dtype=torch.float64)
        )

    def shape(self) -> Hashable:
        return tuple(tuple(tensor.shape for tensor in _tensors(piece)) for piece in self.pieces)

    def to(self, device: torch.device) -> Self:
        return type(self)(
            [piece.to(device) for piece in self.pieces],
            [seed.to(device) for seed in self.seeds],
            self.key.to(device),
            self.probability.to(device),
        )

    def fill(self, other: Self) -> None:
        for target, piece in zip(self.pieces, other.pieces, strict=True):
            for old, new in zip(_tensors(target), _tensors(piece), strict=True):
                old.copy_(new, non_blocking=True)
        for seed, piece in zip(self.seeds, other.pieces, strict=True):
            seed.fill_(piece.dropout_seed)
        self.key.fill_(other.key.item())
        self.probability.fill_(other.probability.item())


def _tensors(piece: Piece) -> list[Tensor]:
    """Return all that the host must copy for a piece."""
    extra = [] if piece.extra is None else piece.extra.tensors()
    return [piece.ids_BL, piece.lengths_B, piece.rows_B, *extra]


class TrainingStep(GuardedStep[_Inputs]):
    """Trains a model one step at a time."""

    def __init__(
        self,
        objective: nn.Module,
        optimizer: torch.optim.AdamW,
        masking: Masking,
        world: World,
        *,
        clip: float,
        bfloat16: bool,
    ) -> None:
        super().__init__(optimizer, world, clip=clip, bfloat16=bfloat16)
        self._objective = objective
        self._masking = masking

    def __call__(
        self, pieces: Sequence[Piece], rate: float, probability: float, mask_key: int
    ) -> None:
        """Take a step; `mask_key` decides its masks, each piece's `dropout_seed` its dropout."""
        self.take(_Inputs.make(pieces, mask_key, probability), rate)

    def _compute(self, inputs: _Inputs, skip: bool = False) -> None:
        masked = [
            self._masking(p.ids_BL, p.lengths_B, p.rows_B, inputs.key, inputs.probability)
            for p in inputs.pieces
        ]
        count = torch.stack([(m.labels_M != IGNORED).sum() for m in masked]).sum()
        count = self._world.sum(count).clamp_min(1)
        self._optimizer.zero_grad(set_to_none=True)
        loss = torch.zeros((), dtype=torch.float64, device=self._world.device)
        for index, piece in enumerate(inputs.pieces):
            with self._world.no_sync(self._objective, index + 1 < len(masked)):
                loss += self._backward(piece, masked[index], inputs.seeds[index], count)
        self._update(self._world.sum(loss), skip)

    def _backward(self, piece: Piece, masked: Masked, seed: Tensor, count: Tensor) -> Tensor:
        if not is_recording():
            torch.manual_seed(piece.dropout_seed)
        with own_bfloat16(self._world.device, self._bfloat16):
            with self._autocast():
                loss_sum, teaching = self._objective(masked, piece.lengths_B, piece.extra, seed)
            loss: Tensor = loss_sum / count + teaching
            # DDP and FSDP average over processes; the division above already made this a sum.
            torch.autograd.backward(loss * self._world.size)
        return loss.detach().double()

    def _can_be_captured(self) -> bool:
        if self._world.size > 1 or not isinstance(self._objective, Objective):
            return False
        with self._autocast():
            return self._objective.uses_fused_kernels(self._world.device)

    def _make_fused_update(self) -> FusedUpdate:
        from metaxlm.pretrain.fused_update import FusedUpdate

        assert isinstance(self._objective, Objective)
        model = self._objective.model
        update = FusedUpdate(model.encoder, self._optimizer, copies_words=True)
        self._objective.copies = update.copies
        return update
