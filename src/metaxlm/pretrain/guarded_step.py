"""An optimizer step that never waits for the device, for pretraining and finetuning alike.

Comes in: the inputs of a step. Goes out: changed weights, and totals that stay on the device until
somebody reads them. A step whose loss or gradient is not finite changes no weight and no moment,
and is counted.

On one GPU with fused kernels the whole step, from its inputs to the optimizer, is one CUDA graph:
the host copies the inputs and starts it. There is one graph for each shape of the inputs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from metaxlm.pretrain.distributed import World
from metaxlm.pretrain.optimizer import set_rate

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

    from metaxlm.pretrain.fused_update import FusedUpdate

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


class StepInputs(Protocol):
    """Everything that differs from step to step."""

    def shape(self) -> Hashable:
        """Return what two steps must share to be started by one graph."""
        ...

    def to(self, device: torch.device) -> Self:
        """Return the inputs on a device."""
        ...

    def fill(self, other: Self) -> None:
        """Take over the values of a step of the same shape, in place."""
        ...


Inputs = TypeVar("Inputs", bound=StepInputs)


class GuardedStep(ABC, Generic[Inputs]):
    """Trains a model one step at a time."""

    def __init__(
        self, optimizer: torch.optim.AdamW, world: World, *, clip: float, bfloat16: bool
    ) -> None:
        self.totals = Totals.zeros(world.device)
        self._optimizer = optimizer
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._world = world
        self._clip = clip if clip > 0 else math.inf
        self._bfloat16 = bfloat16
        self._graphs: dict[Hashable, _Graph[Inputs]] = {}
        self._fused_update: FusedUpdate | None = None
        self._running: deque[torch.cuda.Event] = deque()

    @abstractmethod
    def _compute(self, inputs: Inputs, skip: bool = False) -> None:
        """Compute loss and gradients of inputs on the device and call `_update`."""

    @abstractmethod
    def _can_be_captured(self) -> bool:
        """Say whether the whole step runs without the host's help: fused kernels, one process."""

    @abstractmethod
    def _make_fused_update(self) -> FusedUpdate:
        """Return what updates the weights in a graph, and let the model use its copies."""

    def _before_replay(self, inputs: Inputs) -> None:
        """Do what a graph cannot, such as seeding torch's generator."""

    def take(self, inputs: Inputs, rate: float) -> None:
        """Take a step with this learning rate."""
        graph = self._find_graph(inputs)
        set_rate(self._optimizer, rate)
        if graph is not None:
            self._before_replay(inputs)
            graph.replay(inputs)
        else:
            self._compute(inputs.to(self._world.device))
        self._stay_close()

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

    def _find_graph(self, inputs: Inputs) -> _Graph[Inputs] | None:
        """Return the graph of a step of this shape, recorded now if it is new."""
        if not self._can_be_captured():
            return None
        shape = inputs.shape()
        if shape not in self._graphs and len(self._graphs) < _MOST_GRAPHS:
            if self._fused_update is None:
                self._prepare_capture()
            # Nothing in a graph's memory outlives its step, so that all may share it.
            pool = next(iter(self._graphs.values())).pool if self._graphs else None
            self._graphs[shape] = _Graph(self, inputs, self._world.device, pool)
        return self._graphs.get(shape)

    def _prepare_capture(self) -> None:
        for group in self._optimizer.param_groups:
            group["capturable"] = True
            group["lr"] = torch.tensor(0.0, device=self._world.device)
        self._fused_update = self._make_fused_update()

    def _stay_close(self) -> None:
        """Wait for the device when the host is far ahead: queued rows would fill the memory."""
        if self._world.device.type != "cuda":
            return
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._running.append(event)
        if len(self._running) > _STEPS_AHEAD:
            self._running.popleft().synchronize()


class _Graph(Generic[Inputs]):
    """A step that was recorded once and is started again with other inputs."""

    def __init__(
        self,
        step: GuardedStep[Inputs],
        inputs: Inputs,
        device: torch.device,
        pool: _POOL_HANDLE | None,
    ) -> None:
        self._inputs = inputs.to(device)
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

    def replay(self, inputs: Inputs) -> None:
        """Copy the inputs and start the step."""
        self._inputs.fill(inputs)
        self._graph.replay()


def is_recording() -> bool:
    """Say whether a CUDA graph is being recorded, where the host's random numbers are out."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
