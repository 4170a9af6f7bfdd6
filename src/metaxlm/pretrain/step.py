"""Optimizer steps that never wait for the device, for pretraining and finetuning.

A step whose loss or gradient is not finite changes no weight and no moment, and is counted. In
float16 the loss is scaled, and a gradient that overflows lowers the scale. Totals stay on the
device until they are read. On one GPU with fused kernels the whole step, from its
inputs to the optimizer, is one CUDA graph per input shape. In pretraining, loss and
gradients are divided by the number of predictions in the whole step, so the result does not depend
on the split into micro-batches and processes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from metaxlm.model.encoder import NativeEncoder
from metaxlm.model.kernels import fits, is_available
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.batches.masking import IGNORED, Masked, Masking
from metaxlm.pretrain.batches.source import Extra, MicroBatch
from metaxlm.pretrain.checkpoint import Checkpoint, TrainingState
from metaxlm.pretrain.distributed import (
    DistributedContext,
    choose_dtype,
    own_products,
    widest_float,
)
from metaxlm.pretrain.optimizer import LossScale, export_moments, make_optimizer, set_rate
from metaxlm.recipe import ExecutionRecipe, TrainingRecipe

_STEPS_AHEAD = 8  # of the host before the device
_WARM_UP = 2  # steps without effect before a capture compile kernels and allocate moments
_MOST_GRAPHS = 24  # steps of further shapes run without a graph


@dataclass
class Totals:
    """Sums over steps, as scalars on the device: the widest floats, and int64."""

    loss: Tensor  # summed over good steps since `reset`
    steps: Tensor  # good steps since `reset`
    norm: Tensor  # of the last gradient before clipping
    last_loss: Tensor  # finite or not
    bad: Tensor  # skipped steps since the start of the run
    bad_in_row: Tensor  # consecutive skipped steps up to now, without overflows
    overflows: Tensor  # skipped steps that lowered the loss scale, since the object was made
    largest_norm: Tensor  # of the gradients of good steps since `reset`

    @classmethod
    def zeros(cls, device: torch.device) -> Self:
        """Return empty totals."""
        real, whole = widest_float(device), torch.int64
        kinds = (real, whole, real, real, whole, whole, whole, real)
        return cls(*(torch.zeros((), dtype=kind, device=device) for kind in kinds))

    def reset(self) -> None:
        """Start a new mean loss and largest norm, after a log row."""
        self.loss.zero_()
        self.steps.zero_()
        self.largest_norm.zero_()


class _StepInputs(Protocol):
    def shape(self) -> Hashable: ...  # equal for steps that can use the same graph
    def to(self, device: torch.device) -> Self: ...
    def fill(self, other: Self) -> None: ...  # copies the values of inputs of the same shape


Inputs = TypeVar("Inputs", bound=_StepInputs)


class TrainStep(ABC, Generic[Inputs]):
    """Trains a model one step at a time."""

    def __init__(
        self,
        optimizer: torch.optim.AdamW,
        world: DistributedContext,
        *,
        clip: float,
        dtype: torch.dtype,
    ) -> None:
        self.totals = Totals.zeros(world.device)
        self.world, self.dtype = world, dtype
        self.scale = LossScale(world.device) if dtype == torch.float16 else None
        self._optimizer = optimizer
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._clip = clip if clip > 0 else math.inf
        self._graphs: dict[Hashable, _Graph[Inputs]] = {}
        self._fused_update: FusedUpdate | None = None
        self._running: deque[torch.cuda.Event] = deque()

    @abstractmethod
    def _compute(self, inputs: Inputs, skip: bool = False) -> None:
        """Compute loss and gradients of inputs on the device and call `_update`."""

    @abstractmethod
    def _can_be_captured(self) -> bool:
        """Return whether the step runs without the host: fused kernels and one process."""

    @abstractmethod
    def _make_fused_update(self) -> FusedUpdate:
        """Return the optimizer of captured steps, and let the model use its weight copies."""

    def _before_update(self, bad: Tensor) -> None:
        """Change weights before the optimizer does, unless the step is `bad`."""

    def _before_replay(self, inputs: Inputs) -> None:
        """Do work that a graph cannot, such as seeding torch's generator."""

    def take(self, inputs: Inputs, rate: float) -> None:
        """Take a step with this learning rate; it may still be in progress on return."""
        graph = self._find_graph(inputs)
        set_rate(self._optimizer, rate)
        if graph is not None:
            self._before_replay(inputs)
            graph.replay(inputs)
        else:
            self._compute(inputs.to(self.world.device))
        if self.world.device.type == "cuda":
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            self._running.append(event)
            if len(self._running) > _STEPS_AHEAD:  # queued inputs would fill the memory
                self._running.popleft().synchronize()

    def _backpropagate(self, loss: Tensor) -> None:
        """Add the gradients of a loss, which is this process's share of a sum."""
        # DDP and FSDP average over processes.
        factor = self.world.size if self.scale is None else self.scale.value * self.world.size
        torch.autograd.backward(loss * factor)

    def _update(self, loss: Tensor, skip: bool) -> None:
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = self.world.total_norm(gradients)
        if self.scale is not None:
            norm = norm / self.scale.value
        bad = ~(norm.isfinite() & loss.isfinite()) | skip
        shrink = (norm / self._clip).clamp_min(1.0)
        if self.scale is not None:
            shrink = shrink * self.scale.value
        self._before_update(bad)
        if self._fused_update is not None:
            self._fused_update.step(shrink, bad.float())
        elif self.world.device.type == "mps":
            self._step_plainly(gradients, shrink, bad)
        else:
            # Fused AdamW divides gradients by `grad_scale` and does nothing if `found_inf` is 1.
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
        counted = bad
        if self.scale is not None:
            overflow = self.scale.is_overflow(bad, loss)
            totals.overflows += overflow
            counted = bad & ~overflow
            self.scale.update(bad)
        totals.bad_in_row.copy_((totals.bad_in_row + counted) * bad)
        good_norm = torch.where(bad, 0.0, norm).to(totals.largest_norm.dtype)
        totals.largest_norm.copy_(torch.maximum(totals.largest_norm, good_norm))

    def _step_plainly(self, gradients: list[Tensor], shrink: Tensor, bad: Tensor) -> None:
        """Scale gradients and skip bad steps where no fused AdamW does it; wait for the device."""
        if not bad:
            torch._foreach_div_(gradients, shrink)
            self._optimizer.step()

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context of forward passes."""
        if self.dtype == torch.float32:
            return nullcontext()
        # A graph must cast weights in each replay instead of using an earlier cache.
        return torch.autocast(self.world.device.type, self.dtype, cache_enabled=False)

    def _find_graph(self, inputs: Inputs) -> _Graph[Inputs] | None:
        if not self._can_be_captured():
            return None
        shape = inputs.shape()
        if shape not in self._graphs and len(self._graphs) < _MOST_GRAPHS:
            if self._fused_update is None:
                for group in self._optimizer.param_groups:
                    group["capturable"] = True
                    group["lr"] = torch.tensor(0.0, device=self.world.device)
                self._fused_update = self._make_fused_update()
            # No tensor of a graph outlives its step, so all graphs can share their memory.
            pool = next(iter(self._graphs.values())).pool if self._graphs else None
            self._graphs[shape] = _Graph(self, inputs, self.world.device, pool)
        return self._graphs.get(shape)


class _Graph(Generic[Inputs]):
    def __init__(
        self, step: TrainStep[Inputs], inputs: Inputs, device: torch.device, pool: Any
    ) -> None:
        self._inputs = inputs.to(device)
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                step._compute(self._inputs, skip=True)
        torch.cuda.current_stream(device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            step._compute(self._inputs)
        self.pool = self._graph.pool()

    def replay(self, inputs: Inputs) -> None:
        self._inputs.fill(inputs)
        self._graph.replay()


def is_recording() -> bool:
    """Return whether a CUDA graph is being captured, where torch cannot be seeded."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


class FusedUpdate:
    """AdamW for captured steps: updates a large weight and its bfloat16 copy in one pass.

    Torch's AdamW holds the moments, so checkpoints do not differ, and updates the other weights.
    """

    def __init__(
        self, encoder: NativeEncoder, optimizer: torch.optim.AdamW, *, copies_words: bool
    ) -> None:
        from metaxlm.model.kernels.blocks import pad_rows

        self._optimizer = optimizer
        words = encoder.words.weight
        self.copies: dict[Tensor, Tensor] = {}
        if copies_words:  # only the masked-LM head multiplies with the token embeddings
            self.copies[words] = pad_rows(words.detach(), torch.bfloat16)
        for name, weight in encoder.layers.named_parameters():
            if name.endswith("bias") or weight.ndim > 1:
                self.copies[weight] = weight.detach().to(torch.bfloat16)
        groups = optimizer.param_groups
        self._large = [(p, group) for group in groups for p in group["params"] if p.ndim > 1]
        taken = [state["step"] for state in optimizer.state.values()]
        self._time = taken[0].clone() if taken else torch.zeros((), device=words.device)
        for parameter, _ in self._large:
            state = optimizer.state[parameter]
            if not state:
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["step"] = self._time  # one count for all

    @torch.no_grad()
    def step(self, shrink: Tensor, skip: Tensor) -> None:
        """Take a step with gradients divided by `shrink`; do nothing if `skip` is 1."""
        from metaxlm.model.kernels.adamw import update

        time = self._time.double() + 1
        numbers: dict[int, Tensor] = {}  # by group: rates may differ
        for parameter, group in self._large:
            if id(group) not in numbers:
                first, second = (-torch.expm1(time * math.log(beta)) for beta in group["betas"])
                found = [group["lr"].double(), shrink.double(), first, second.sqrt()]
                numbers[id(group)] = torch.stack(found).float()
            state = self._optimizer.state[parameter]
            update(
                parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"],
                self.copies.get(parameter), numbers[id(group)], skip,
                group["betas"], group["eps"], group["weight_decay"],
            )  # fmt: skip
            parameter.grad = None  # so that torch's step ignores it
        self._time += 1 - skip
        self._optimizer.grad_scale = shrink  # type: ignore[attr-defined]
        self._optimizer.found_inf = skip  # type: ignore[attr-defined]
        self._optimizer.step()
        small = [(copy, weight) for weight, copy in self.copies.items() if weight.ndim == 1]
        if small:
            copies, weights = zip(*small, strict=True)
            torch._foreach_copy_(copies, weights)


class Teacher(Protocol):
    """Adds a loss term, such as distillation."""

    def loss(self, hidden_BLD: Tensor, extra: Extra) -> Tensor:
        """Return the weighted loss of a micro-batch; the losses of a step are summed."""


class Objective(nn.Module):
    """A model with its training loss; the module that DDP and FSDP wrap."""

    predicts_tokens = True  # whether the masked-LM head is used

    def __init__(
        self, model: MaskedLM, teacher: Teacher | None = None, *, kernels: str = "auto"
    ) -> None:
        super().__init__()
        self.model, self.teacher = model, teacher
        # The bfloat16 copies of weights of a `FusedUpdate`; other weights are cast when used.
        self.copies: Mapping[Tensor, Tensor] = {}
        self._kernels = kernels

    def uses_fused_kernels(self, device: torch.device) -> bool:
        """Return whether the fused kernels are used: on a supported GPU, in bfloat16."""
        if self._kernels == "plain" or not torch.is_autocast_enabled("cuda"):
            return False
        is_bfloat16 = torch.get_autocast_dtype("cuda") == torch.bfloat16
        return is_bfloat16 and is_available(device) and fits(self.model.config)

    def forward(
        self,
        masked: Masked,
        lengths_B: Tensor,
        extra: Extra | None = None,
        seed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the summed loss of the masked tokens, and the teacher's loss (0 without one)."""
        # The dropout of the fused kernels follows from `seed`, that of torch from its generator.
        if self.uses_fused_kernels(lengths_B.device):
            from metaxlm.model.kernels.blocks import Blocks, TiedGradient

            if seed is None:
                assert not self.model.training, "dropout needs a seed"
                seed = torch.zeros(1, dtype=torch.int64, device=lengths_B.device)
            tied = TiedGradient(is_used=self.teacher is None or extra is None)
            length = masked.ids_BL.shape[1]
            blocks = Blocks(lengths_B, length, seed, copies=self.copies, tied=tied)
            encoder = self.model.encoder
            assert isinstance(encoder, NativeEncoder), "the kernels compute our own encoder"
            hidden_BLD = encoder.encode_blocks(masked.ids_BL, blocks)
            loss = self.model.loss_sum(hidden_BLD, masked.positions_M, masked.labels_M, blocks)
        else:
            columns_L = torch.arange(masked.ids_BL.shape[1], device=lengths_B.device)
            hidden_BLD = self.model.encoder(masked.ids_BL, columns_L < lengths_B[:, None])
            loss = self.model.loss_sum(hidden_BLD, masked.positions_M, masked.labels_M)
        if self.teacher is None or extra is None:
            return loss, torch.zeros((), device=loss.device)
        return loss, self.teacher.loss(hidden_BLD, extra)


@dataclass(frozen=True)
class _MaskedLMInputs:
    batches: list[MicroBatch]
    seeds: list[Tensor]  # for the dropout of the fused kernels
    key: Tensor
    probability: Tensor

    @classmethod
    def make(cls, batches: Sequence[MicroBatch], key: int, probability: float) -> Self:
        seeds = [torch.tensor([batch.dropout_seed]) for batch in batches]
        share = torch.tensor(probability, dtype=torch.float64)
        return cls(list(batches), seeds, torch.tensor(key), share)

    def shape(self) -> Hashable:
        return tuple(tuple(tensor.shape for tensor in _tensors(batch)) for batch in self.batches)

    def to(self, device: torch.device) -> Self:
        return type(self)(
            [batch.to(device) for batch in self.batches],
            [seed.to(device) for seed in self.seeds],
            self.key.to(device),
            self.probability.to(device, widest_float(device)),
        )

    def fill(self, other: Self) -> None:
        for target, batch in zip(self.batches, other.batches, strict=True):
            for old, new in zip(_tensors(target), _tensors(batch), strict=True):
                old.copy_(new, non_blocking=True)
        for seed, batch in zip(self.seeds, other.batches, strict=True):
            seed.fill_(batch.dropout_seed)
        self.key.fill_(other.key.item())
        self.probability.fill_(other.probability.item())


def _tensors(batch: MicroBatch) -> list[Tensor]:
    extra = [] if batch.extra is None else batch.extra.tensors()
    return [batch.ids_BL, batch.lengths_B, batch.rows_B, *extra]


class ModelStep(TrainStep[Inputs]):
    """Trains a whole model; only `read`, `collect` and `restore` wait for the device."""

    def __init__(
        self,
        objective: Objective,
        recipe: TrainingRecipe,
        execution: ExecutionRecipe,
        world: DistributedContext,
    ) -> None:
        self.model = objective.model.to(world.device).train()
        if execution.gradient_checkpointing:
            self.model.encoder.gradient_checkpointing_enable()
        self.objective = world.wrap(objective, execution.sharding)
        # The optimizer comes after `wrap`, because sharding replaces the parameters.
        rate, decay, epsilon = recipe.learning_rate, recipe.weight_decay, recipe.adam_epsilon
        first, second = recipe.adam_betas
        optimizer = make_optimizer(
            self.model, learning_rate=rate, weight_decay=decay, betas=(first, second),
            epsilon=epsilon, body_rate=recipe.body_rate,
        )  # fmt: skip
        dtype = choose_dtype(recipe.precision, world.device)
        super().__init__(optimizer, world, clip=recipe.clip, dtype=dtype)
        self._anchor = recipe.anchor
        words = self.model.encoder.words.weight
        self._start = words.detach().clone() if recipe.anchor else None
        self._new_tokens = 0
        # A late copy of `totals.bad_in_row` on the host, so that no step waits for it.
        counter = self.totals.bad_in_row
        self._bad_in_row = torch.zeros((), dtype=counter.dtype, pin_memory=counter.is_cuda)
        self._copied: torch.cuda.Event | None = None

    def count_bad_steps(self) -> int:
        """Return the number of consecutive bad steps as of a few steps ago; never wait."""
        counter = self.totals.bad_in_row
        if not counter.is_cuda:
            return int(counter)
        if self._copied is not None and not self._copied.query():  # type: ignore[no-untyped-call]
            return 0
        value = int(self._bad_in_row) if self._copied is not None else 0
        self._bad_in_row.copy_(counter, non_blocking=True)
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._copied.record(torch.cuda.current_stream(counter.device))
        return value

    def read(self, state: TrainingState) -> float:
        """Update a state; return the norm of the last gradient (collective)."""
        new_tokens = torch.tensor(self._new_tokens, device=self.world.device)
        state.tokens += int(self.world.sum(new_tokens))
        self._new_tokens = 0
        totals = self.totals
        numbers = (
            totals.steps, totals.bad, totals.bad_in_row, totals.loss, totals.largest_norm,
            totals.norm,
        )  # fmt: skip
        read = torch.stack([n.to(totals.loss.dtype) for n in numbers]).tolist()
        *counts, state.loss_sum, state.largest_norm, norm = read
        state.loss_count, state.skipped, state.skipped_in_row = map(int, counts)
        if self.scale is not None:
            state.loss_scale = float(self.scale.value)
            state.scale_steps = int(self.scale.good_steps)
        return float(norm)

    def collect(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the whole weights and moments in rank 0 (collective)."""
        moments = export_moments(self._optimizer, self.model)
        return self.world.gather(self.model.state_dict()), self.world.gather(moments)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Load a checkpoint; only rank 0 needs its tensors (collective)."""
        state, totals = checkpoint.state, self.totals
        self.world.load_state(
            self.model, self._optimizer, checkpoint.model, checkpoint.moments, state.good_steps
        )
        totals.loss.fill_(state.loss_sum)
        totals.steps.fill_(state.loss_count)
        totals.bad.fill_(state.skipped)
        totals.bad_in_row.fill_(state.skipped_in_row)
        totals.largest_norm.fill_(state.largest_norm)
        if self.scale is not None and state.loss_scale is not None:
            self.scale.value.fill_(state.loss_scale)
            self.scale.good_steps.fill_(state.scale_steps)
        # Graphs contain the replaced moments.
        self._graphs.clear()
        self._fused_update = None
        self._new_tokens = 0

    @torch.no_grad()
    def _before_update(self, bad: Tensor) -> None:
        if self._start is not None:
            words, rate = self.model.encoder.words.weight, self._optimizer.param_groups[0]["lr"]
            words.add_((self._start - words) * (rate * self._anchor * ~bad))

    def _can_be_captured(self) -> bool:
        if self.world.size > 1 or not isinstance(self.objective, Objective):
            return False
        with self.autocast():
            return self.objective.uses_fused_kernels(self.world.device)

    def _make_fused_update(self) -> FusedUpdate:
        assert isinstance(self.objective, Objective) and isinstance(
            self.model.encoder, NativeEncoder
        )
        copies_words = self.objective.predicts_tokens
        update = FusedUpdate(self.model.encoder, self._optimizer, copies_words=copies_words)
        self.objective.copies = update.copies
        return update


class PretrainStep(ModelStep[_MaskedLMInputs]):
    """Pretrains a model by masked language modeling."""

    def __init__(
        self,
        model: MaskedLM,
        masking: Masking,
        recipe: TrainingRecipe,
        execution: ExecutionRecipe,
        world: DistributedContext,
        teacher: Teacher | None = None,
    ) -> None:
        objective = Objective(model, teacher, kernels=execution.kernels)
        super().__init__(objective, recipe, execution, world)
        self._masking = masking

    def __call__(
        self, batches: Sequence[MicroBatch], rate: float, probability: float, mask_key: int
    ) -> None:
        """Take a step; `mask_key` decides its masks, each `dropout_seed` the dropout."""
        self.take(_MaskedLMInputs.make(batches, mask_key, probability), rate)
        self._new_tokens += sum(batch.num_tokens for batch in batches)

    def _compute(self, inputs: _MaskedLMInputs, skip: bool = False) -> None:
        masked = [
            self._masking(b.ids_BL, b.lengths_B, b.rows_B, inputs.key, inputs.probability)
            for b in inputs.batches
        ]
        count = torch.stack([(m.labels_M != IGNORED).sum() for m in masked]).sum()
        count = self.world.sum(count).clamp_min(1)
        self._optimizer.zero_grad(set_to_none=True)
        loss = torch.zeros_like(self.totals.loss)
        for index, batch in enumerate(inputs.batches):
            with self.world.no_sync(self.objective, index + 1 < len(masked)):
                loss += self._backward(batch, masked[index], inputs.seeds[index], count)
        self._update(self.world.sum(loss), skip)

    def _backward(self, batch: MicroBatch, masked: Masked, seed: Tensor, count: Tensor) -> Tensor:
        if not is_recording():
            torch.manual_seed(batch.dropout_seed)
        with own_products(self.world.device, self.dtype):
            with self.autocast():
                loss_sum, teaching = self.objective(masked, batch.lengths_B, batch.extra, seed)
            loss: Tensor = loss_sum / count + teaching
            self._backpropagate(loss)
        return loss.detach().to(self.totals.loss.dtype)
