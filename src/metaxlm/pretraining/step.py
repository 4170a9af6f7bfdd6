"""One optimizer step that never waits for the device.

Comes in: the pieces of a step that this process computes. Goes out: changed weights, and totals
that stay on the device until somebody reads them. Loss and gradients are divided by the number of
predictions in the whole step, so that a step is the same sum whoever computes its pieces. A step
whose loss or gradient is not finite changes no weight and no moment, and is counted.

On one GPU with fused kernels the whole step, from masking to the optimizer, is one CUDA graph: the
host copies the rows and starts it. Where a teacher's rows change in number, there is one graph for
each shape.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from metaxlm.pretraining.batches import Piece
from metaxlm.pretraining.distributed import World
from metaxlm.pretraining.masking import IGNORED, Masked, Masking
from metaxlm.pretraining.objective import Objective
from metaxlm.pretraining.optimizer import set_rate

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

    from metaxlm.pretraining.fused_update import FusedUpdate

_STEPS_AHEAD = 8
"""Steps that the host may run ahead of the device."""
_WARM_UP = 2
"""Steps without effect before a graph is captured: kernels are compiled, moments made."""
_MOST_GRAPHS = 24
"""Shapes that get a graph; steps of further ones are started kernel by kernel."""


@dataclass
class Totals:
    """What steps add up to, as scalars on the device."""

    loss: Tensor
    """Sum of the losses of good steps since `reset`, float64."""
    steps: Tensor
    """Good steps since `reset`."""
    norm: Tensor
    """The last gradient's norm before clipping."""
    last_loss: Tensor
    """The last step's loss, finite or not."""
    bad: Tensor
    """Steps that were skipped because something was not finite, since the start of the run."""
    bad_in_row: Tensor
    """How many of the latest steps in a row were skipped."""

    @classmethod
    def zeros(cls, device: torch.device) -> Totals:
        """Return totals of nothing."""
        real = [torch.zeros((), dtype=torch.float64, device=device) for _ in range(3)]
        whole = [torch.zeros((), dtype=torch.int64, device=device) for _ in range(3)]
        return cls(real[0], whole[0], real[1], real[2], whole[1], whole[2])

    def reset(self) -> None:
        """Begin a new mean, after a row of the log."""
        self.loss.zero_()
        self.steps.zero_()


@dataclass(frozen=True)
class _Inputs:
    """Everything that differs from step to step, on the device."""

    pieces: list[Piece]
    seeds: list[Tensor]
    key: int | Tensor
    probability: float | Tensor


class TrainingStep:
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
        self.totals = Totals.zeros(world.device)
        self._objective = objective
        self._optimizer = optimizer
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._masking = masking
        self._world = world
        self._clip = clip if clip > 0 else math.inf
        self._bfloat16 = bfloat16
        self._graphs: dict[_Shape, _Graph] = {}
        self._fused_update: FusedUpdate | None = None
        self._running: deque[torch.cuda.Event] = deque()

    def __call__(
        self, pieces: Sequence[Piece], rate: float, probability: float, mask_key: int
    ) -> None:
        """Take a step; `mask_key` decides its masks, each piece's `dropout_seed` its dropout."""
        graph = self._find_graph(pieces)
        set_rate(self._optimizer, rate)
        if graph is not None:
            graph.replay(pieces, probability, mask_key)
        else:
            device = self._world.device
            seeds = [torch.tensor([piece.dropout_seed], device=device) for piece in pieces]
            moved = [piece.to(device) for piece in pieces]
            self._compute(_Inputs(moved, seeds, mask_key, probability))
        self._stay_close()

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
        if not torch.cuda.is_available() or not torch.cuda.is_current_stream_capturing():
            torch.manual_seed(piece.dropout_seed)
        with self._autocast():
            loss_sum, teaching = self._objective(masked, piece.lengths_B, piece.extra, seed)
        loss: Tensor = loss_sum / count + teaching
        # DDP and FSDP average over processes; the division above already made this a sum.
        torch.autograd.backward(loss * self._world.size)
        return loss.detach().double()

    def _update(self, loss: Tensor, skip: bool) -> None:
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = self._world.total_norm(gradients)
        bad = ~(norm.isfinite() & loss.isfinite()) | skip
        shrink = (norm / self._clip).clamp_min(1.0)
        if self._fused_update is not None:
            self._fused_update.step(shrink, bad.float())
        else:
            self._optimizer.grad_scale = shrink  # type: ignore[attr-defined]
            self._optimizer.found_inf = bad.float()  # type: ignore[attr-defined]
            self._optimizer.step()
        if skip:
            return
        totals = self.totals
        totals.norm.copy_(norm)
        totals.last_loss.copy_(loss)
        totals.loss += torch.where(bad, 0.0, loss)
        totals.steps += ~bad
        totals.bad += bad
        totals.bad_in_row.copy_((totals.bad_in_row + 1) * bad)

    def _autocast(self) -> AbstractContextManager[object]:
        if not self._bfloat16:
            return nullcontext()
        # A graph must cast weights in each replay, not find them in a cache from before.
        return torch.autocast(self._world.device.type, torch.bfloat16, cache_enabled=False)

    def _find_graph(self, pieces: Sequence[Piece]) -> _Graph | None:
        """Return the graph of a step of this shape, recorded now if it is new."""
        if not self._can_be_captured():
            return None
        shape = _shape(pieces)
        if shape not in self._graphs and len(self._graphs) < _MOST_GRAPHS:
            if self._fused_update is None:
                self._prepare_capture()
            # Nothing in a graph's memory outlives its step, so that all may share it.
            pool = next(iter(self._graphs.values())).pool if self._graphs else None
            self._graphs[shape] = _Graph(self, pieces, self._world.device, pool)
        return self._graphs.get(shape)

    def _can_be_captured(self) -> bool:
        """One process and fused kernels."""
        if self._world.size > 1 or not isinstance(self._objective, Objective):
            return False
        with self._autocast():
            return self._objective.uses_fused_kernels(self._world.device)

    def _prepare_capture(self) -> None:
        from metaxlm.pretraining.fused_update import FusedUpdate

        for group in self._optimizer.param_groups:
            group["capturable"] = True
            group["lr"] = torch.tensor(0.0, device=self._world.device)
        assert isinstance(self._objective, Objective)
        self._fused_update = FusedUpdate(self._objective.model, self._optimizer)
        self._objective.copies = self._fused_update.copies

    def _stay_close(self) -> None:
        """Wait for the device when the host is far ahead: queued rows would fill the memory."""
        if self._world.device.type != "cuda":
            return
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._running.append(event)
        if len(self._running) > _STEPS_AHEAD:
            self._running.popleft().synchronize()


_Shape = tuple[tuple[torch.Size, ...], ...]


def _shape(pieces: Sequence[Piece]) -> _Shape:
    return tuple(tuple(tensor.shape for tensor in _tensors(piece)) for piece in pieces)


def _tensors(piece: Piece) -> list[Tensor]:
    """Return all that the host must copy for a piece."""
    extra = [] if piece.extra is None else piece.extra.tensors()
    return [piece.ids_BL, piece.lengths_B, piece.rows_B, *extra]


class _Graph:
    """A step that was recorded once and is started again with other inputs."""

    def __init__(
        self,
        step: TrainingStep,
        pieces: Sequence[Piece],
        device: torch.device,
        pool: _POOL_HANDLE | None,
    ) -> None:
        self._key = torch.zeros((), dtype=torch.int64, device=device)
        self._probability = torch.zeros((), dtype=torch.float64, device=device)
        self._inputs = _Inputs(
            [piece.to(device) for piece in pieces],
            [torch.zeros(1, dtype=torch.int64, device=device) for _ in pieces],
            self._key,
            self._probability,
        )
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                step._compute(self._inputs, skip=True)
        torch.cuda.current_stream(device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            step._compute(self._inputs)
        self.pool = self._graph.pool()

    def replay(self, pieces: Sequence[Piece], probability: float, key: int) -> None:
        """Copy the inputs and start the step."""
        inputs = self._inputs
        for target, piece, seed in zip(inputs.pieces, pieces, inputs.seeds, strict=True):
            for old, new in zip(_tensors(target), _tensors(piece), strict=True):
                old.copy_(new, non_blocking=True)
            seed.fill_(piece.dropout_seed)
        self._key.fill_(key)
        self._probability.fill_(probability)
        self._graph.replay()
