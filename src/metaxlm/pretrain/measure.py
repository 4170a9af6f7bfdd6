"""How long a step takes on a device, measured before any data is there.

Comes in: an encoder's shape and a training's. Goes out: seconds a step and the memory that it
needs, from real steps (masking, forward, backward, AdamW) on random tokens with the recipe's
shapes. Where whole steps would take too long, as on a CPU, a tiny step and one of a few rows are
measured, and a line through both tells the rest.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerBase

from metaxlm.config import ExecutionRecipe, TrainingRecipe
from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import Piece
from metaxlm.pretrain.checkpoint import TrainingState
from metaxlm.pretrain.cost import (
    count_slots,
    count_step_flops,
    estimate_memory,
    measure_peak,
    synchronize,
)
from metaxlm.pretrain.distributed import World
from metaxlm.pretrain.engine import Engine, uses_bfloat16
from metaxlm.pretrain.schedules import largest
from metaxlm.vocabulary.special_tokens import FIRST_TOKENS, MASK_TOKEN, wrap_tokenizer

TIME_LIMIT_S = 20.0
"""How long a measurement may take."""
_EXPECTED_SHARE = 0.3
"""What a step makes of the matmul rate, to guess how many rows can be afforded."""
_MEMORY_MARGIN = 1.3
"""What the backward pass holds for a moment, and gaps between tensors: measured on a CPU."""
_FEW_TOKENS = 8
"""Length of the smallest step, which shows what the optimizer takes."""
_WARM_UP = 2
_RATE = 1e-4


class DoesNotFit(MetaXLMError):
    """There is too little memory for a step."""


@dataclass(frozen=True)
class Measurement:
    """What steps of a training took."""

    seconds: float
    """Of one whole step."""
    num_steps: int
    """Steps that were timed."""
    num_rows: int
    """Most rows in a timed step; fewer than a batch where the rest is extrapolated."""
    peak_bytes: int | None
    """Most memory on the device during whole steps, if the device tells."""
    loss: float
    """Mean of the steps; not a number if one of them was skipped."""

    @property
    def is_finite(self) -> bool:
        """Whether all steps had a finite loss and gradient."""
        return math.isfinite(self.loss)


def measure_step(
    config: EncoderConfig,
    recipe: TrainingRecipe,
    device: torch.device,
    steps: int = 10,
    *,
    limit_s: float = TIME_LIMIT_S,
    frozen_body: bool = False,
    execution: ExecutionRecipe | None = None,
) -> Measurement:
    """Time steps of the recipe's shape; raise `DoesNotFit` where there is too little memory.

    Past `limit_s` no further step is begun. Where so many steps cannot be afforded at all, fewer
    rows are measured. Torch's generators are left as they were.
    """
    rows = recipe.batch_size
    # On a GPU a step is recorded for one shape, and whole steps are short enough.
    if device.type == "cpu":
        affordable = affordable_rows(config, recipe, device, limit_s / (steps + _WARM_UP))
        rows = min(rows, max(1, affordable))
        _check_memory(config, recipe, rows)
    is_whole = rows == recipe.batch_size
    settings = execution or ExecutionRecipe()
    try:
        with (
            _kept_generators(device),
            _trial(config, recipe, device, settings, frozen_body) as trial,
        ):
            few = None if is_whole else trial.time(1, _FEW_TOKENS, steps, limit_s / 4)
            measured = trial.time(rows, recipe.length, steps, limit_s * (1 if is_whole else 0.75))
            seconds = measured.seconds
            if few is not None:
                whole = count_slots(recipe, recipe.batch_size), recipe.batch_size
                flops = count_step_flops(config, whole[1], recipe.length, whole[0])
                seconds = extrapolate(few, measured, flops)
            peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
            return Measurement(seconds, measured.num_steps, rows, peak, trial.mean_loss())
    except torch.OutOfMemoryError as error:
        total = torch.cuda.get_device_properties(device).total_memory / 2**30
        raise DoesNotFit(
            f"a step of {recipe.batch_size} x {recipe.length} tokens does not fit into the "
            f"{total:.0f} GiB of {device}; raise micro_batches"
        ) from error


@dataclass(frozen=True)
class Timing:
    """Steps of one shape."""

    flops: float
    seconds: float
    num_steps: int = 1


def extrapolate(few: Timing, many: Timing, flops: float) -> float:
    """Return the seconds of a step of so many FLOPs, from two smaller ones.

    The optimizer takes the same time however small a step is, so it is a line through both. Noise
    must not make work free.
    """
    per_flop = (many.seconds - few.seconds) / (many.flops - few.flops)
    return many.seconds + max(per_flop, 0.1 * many.seconds / many.flops) * (flops - many.flops)


def affordable_rows(
    config: EncoderConfig, recipe: TrainingRecipe, device: torch.device, seconds: float
) -> int:
    """Guess how many rows a step may have to end within some seconds."""
    row = count_step_flops(config, 1, recipe.length, count_slots(recipe, 1))
    rate = measure_peak(device, uses_bfloat16(recipe, device))
    return int(seconds * rate * _EXPECTED_SHARE / row)


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that are free on a device, or None where the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines)
    return int(values["MemAvailable"].split()[0]) * 1024


def _check_memory(config: EncoderConfig, recipe: TrainingRecipe, num_rows: int) -> None:
    """Refuse what the system would kill this process for."""
    free = free_memory(torch.device("cpu"))
    slots = count_slots(recipe, num_rows)
    keeps_weights = config.attention_dropout > 0
    parts = estimate_memory(
        config, num_rows, recipe.length, slots, bfloat16=False, flash=not keeps_weights
    )
    needed = _MEMORY_MARGIN * sum(parts.values())
    if free is not None and needed > free:
        raise DoesNotFit(
            f"a step of {num_rows} x {recipe.length} tokens needs about {needed / 2**30:.1f} GiB, "
            f"and {free / 2**30:.1f} GiB of memory are free"
        )


class _Trial:
    """A model in training on random tokens."""

    def __init__(self, engine: Engine, recipe: TrainingRecipe) -> None:
        self._engine, self._recipe = engine, recipe
        self._probability = largest(recipe.mask_probability)

    def mean_loss(self) -> float:
        """Return the mean loss of all steps; not a number if one was skipped."""
        state = TrainingState()
        self._engine.read(state)
        if state.skipped or not state.loss_count:
            return math.nan
        return state.loss_sum / state.loss_count

    def time(self, num_rows: int, length: int, steps: int, limit_s: float) -> Timing:
        """Time steps of a shape: their median, of one at least."""
        device, begin = self._engine.world.device, time.perf_counter()
        pieces = self._pieces(num_rows, length)
        seconds: list[float] = []
        while len(seconds) < steps + _WARM_UP:
            synchronize(device)
            start = time.perf_counter()
            self._engine.take_step(pieces, _RATE, self._probability, len(seconds))
            synchronize(device)
            end = time.perf_counter()
            seconds.append(end - start)
            if len(seconds) == 1 and device.type == "cuda":
                begin = end  # kernels are compiled in the first step, which tells nothing
                continue
            # Another one would end too late.
            if end - begin + seconds[-1] > limit_s:
                break
        timed = seconds[_WARM_UP:] or seconds[-1:]
        slots = num_rows * (int(self._probability * length) + 1)
        flops = count_step_flops(self._engine.model.config, num_rows, length, slots)
        return Timing(flops, sorted(timed)[len(timed) // 2], len(timed))

    def _pieces(self, num_rows: int, length: int) -> list[Piece]:
        # A measured part of a batch is one piece; a whole one is cut as the training cuts it.
        is_whole = num_rows == self._recipe.batch_size
        count = self._recipe.micro_batches if is_whole else 1
        generator = torch.Generator().manual_seed(1)
        shape = (num_rows, length)
        low, high = len(FIRST_TOKENS), self._engine.model.config.vocab_size - 1
        ids_BL = torch.randint(low, high, shape, generator=generator, dtype=torch.int32)
        rows_B = torch.arange(num_rows)
        lengths_B = torch.full((num_rows,), length, dtype=torch.int32)
        return [
            Piece(ids, lengths, rows, seed, [], ids.numel())
            for seed, (ids, lengths, rows) in enumerate(
                zip(ids_BL.chunk(count), lengths_B.chunk(count), rows_B.chunk(count), strict=True)
            )
        ]


@contextmanager
def _trial(
    config: EncoderConfig,
    recipe: TrainingRecipe,
    device: torch.device,
    execution: ExecutionRecipe,
    frozen_body: bool,
) -> Iterator[_Trial]:
    """Put a training together; the device's memory is free again afterwards."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    torch.manual_seed(0)
    with device:
        model = MaskedLM(config)
    model.encoder.layers.requires_grad_(not frozen_body)
    masking = Masking(make_tokenizer(config.vocab_size), recipe, device)
    trial = _Trial(Engine(model, masking, recipe, execution, World.alone(device)), recipe)
    try:
        yield trial
    finally:
        del trial, model
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def make_tokenizer(vocab_size: int) -> PreTrainedTokenizerBase:
    """Make a tokenizer with so many rows, to stand for one that is not trained yet.

    Every second ordinary piece starts a word.
    """
    ordinary = vocab_size - len(FIRST_TOKENS) - 1
    pieces = [f"{'▁' if number % 2 else ''}{number}" for number in range(ordinary)]
    ids = {piece: number for number, piece in enumerate([*FIRST_TOKENS, *pieces, MASK_TOKEN])}
    return wrap_tokenizer(Tokenizer(WordLevel(ids, unk_token="<unk>")))


@contextmanager
def _kept_generators(device: torch.device) -> Iterator[None]:
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield
