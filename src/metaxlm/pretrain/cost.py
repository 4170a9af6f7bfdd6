"""The cost of a training run: parameters, FLOPs, memory, disk space, and the time of a step.

Everything but time follows from the shape of the encoder and the recipe. Time is measured with real
steps on random tokens. Where whole steps take too long, as on a CPU, a tiny step and a step with a
few rows are timed and extrapolated linearly.
"""

import gc
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import nn
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.foreign import skip_initialization
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import MicroBatch
from metaxlm.pretrain.checkpoint import TrainingState
from metaxlm.pretrain.distributed import DistributedContext, choose_dtype
from metaxlm.pretrain.optimizer import largest, value_at
from metaxlm.pretrain.step import PretrainStep
from metaxlm.recipe import ExecutionRecipe, TrainingRecipe
from metaxlm.vocab.tokens import FIRST_TOKENS, MASK_TOKEN, wrap_tokenizer

FLOAT, HALF = 4, 2  # bytes of a float32, and of a bfloat16 or float16
_SAMPLED_STEPS, _PEAK_REPEATS, _TIME_LIMIT_S = 1_000, 10, 20.0
_EXPECTED_SHARE = 0.3  # of the matmul rate, to choose the number of rows to time
_MEMORY_MARGIN = 1.3  # temporary tensors and fragmentation, measured on a CPU
# The same on a GPU, measured with benchmarks/memory.py; the fused kernels need less.
_GPU_MARGIN, _PLAIN_MARGIN = 1.05, 1.12
GPU_CONTEXT = 500_000_000  # bytes of CUDA itself
_BUSY_TOKENS = 4_096  # of a micro-batch; fewer leave a GPU partly idle
_FEW_TOKENS = 8  # length of the tiny step, which takes as long as the optimizer
_WARM_UP, _RATE = 2, 1e-4


def count_parts(config: EncoderConfig) -> dict[str, int]:
    """Count the parameters of each part; the output embeddings are the token embeddings."""
    if config.settings:
        return _count_foreign(config)[0]
    size, inner = config.hidden_size, config.ffn_size
    if config.rotary is not None:
        # No biases; the first layer lacks a norm, but another one follows the last.
        layers = config.num_layers * (4 * size * size + 3 * size * inner + 2 * size)
        head = size * size + size + config.vocab_size
        words = config.vocab_size * size
        return {"words": words, "positions": size, "layers": layers, "head": head}
    norm, square = 2 * size, size * size + size
    positions = config.position_offset + config.max_positions + config.num_token_types
    layer = 4 * square + 2 * size * inner + inner + size + 2 * norm
    return {
        "words": config.vocab_size * size,
        "positions": positions * size + norm,
        "layers": config.num_layers * layer,
        "head": square + norm + config.vocab_size,
    }


@cache
def _count_foreign(config: EncoderConfig) -> tuple[dict[str, int], int, int]:
    """Count parameters by part, and weights that multiply each token and each prediction."""
    with torch.device("meta"), skip_initialization():
        model = MaskedLM(config)
    parts = dict.fromkeys(("words", "positions", "layers", "head"), 0)
    products = {"layers": 0, "head": model.encoder.words.weight.numel()}
    # Weights of linear maps; ALBERT uses those of a few layers several times.
    repeats = max(1, config.num_layers // max(1, len(model.encoder.layers)))
    for name, parameter in model.named_parameters():
        part = model.find_part(name)
        parts["positions" if part == "embedding_norm" else part] += parameter.numel()
        is_linear = isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Linear)
        if part in products and is_linear and parameter.ndim > 1:
            products[part] += parameter.numel() * (repeats if part == "layers" else 1)
    if any(model.get_parameter(f"head.{name}").ndim > 1 for name in model.head.by_token):
        products["head"] -= model.encoder.words.weight.numel()  # an untied decoder
    return parts, products["layers"], products["head"]


def count_parameters(config: EncoderConfig) -> int:
    """Count all parameters of the encoder with its head."""
    return sum(count_parts(config).values())


def count_trainable(config: EncoderConfig, frozen_body: bool) -> int:
    """Count the trained parameters; with a frozen body, embeddings and head only."""
    parts = count_parts(config)
    return sum(parts.values()) - (parts["layers"] if frozen_body else 0)


def count_predictions(recipe: TrainingRecipe) -> float:
    """Return the number of predictions per step, averaged over training."""
    steps = range(0, max(1, recipe.steps), max(1, recipe.steps // _SAMPLED_STEPS))
    shares = [value_at(recipe.mask_probability, step) for step in steps]
    return recipe.batch_size * recipe.length * sum(shares) / len(shares)


def count_slots(recipe: TrainingRecipe, num_rows: int, length: int | None = None) -> int:
    """Return the number of slots for predictions in a batch of rows, used or not."""
    return num_rows * (int(largest(recipe.mask_probability) * (length or recipe.length)) + 1)


def count_step_flops(
    config: EncoderConfig,
    batch_size: int,
    length: int,
    num_predictions: float,
    *,
    frozen_body: bool = False,
) -> float:
    """Count the minimum FLOPs of a step: one forward and two backward products per weight."""
    size = config.hidden_size
    attention = 2 * size * sum(_count_keys(config, length))
    if config.settings:
        _, weights, head = _count_foreign(config)
    else:
        matrices = 2 if config.rotary is None else 3  # of the feed-forward network
        weights = config.num_layers * (4 * size**2 + matrices * size * config.ffn_size)
        head = size * (config.vocab_size + size)
    # A frozen body has no weight gradient, but passes the gradient on to the embeddings.
    body = (4 if frozen_body else 6) * weights + 6 * attention
    return float(batch_size * length * body + 6 * num_predictions * head)


def _count_keys(config: EncoderConfig, length: int) -> list[int]:
    """Return the most tokens that a token attends to, for each layer."""
    rotary = config.rotary
    if rotary is None:
        return [length] * config.num_layers
    near = min(length, 2 * rotary.window + 1)
    return [near if rotary.is_local(number) else length for number in range(config.num_layers)]


def step_flops(
    config: EncoderConfig, recipe: TrainingRecipe, *, frozen_body: bool = False
) -> float:
    """Count the FLOPs of an average step."""
    shape = recipe.batch_size, recipe.length, count_predictions(recipe)
    return count_step_flops(config, *shape, frozen_body=frozen_body)


def teacher_flops(config: EncoderConfig, recipe: TrainingRecipe, share: float) -> float:
    """Count the FLOPs of distillation in an average step: the teacher's body reads the blocks in
    its language, one forward product per weight.
    """
    return share * count_step_flops(config, recipe.batch_size, recipe.length, 0) / 3


def estimate_memory(
    config: EncoderConfig,
    batch_size: int,
    length: int,
    num_predictions: int,
    is_half: bool,
    *,
    frozen_body: bool = False,
    flash: bool = True,
    accumulates: bool = False,
    gradient_checkpointing: bool = False,
) -> dict[str, int]:
    """Estimate the memory of a step of plain torch by part, in bytes, for one micro-batch.

    With `flash`, attention does not store its weights; on a CPU with dropout it does. A step of
    several micro-batches accumulates gradients.
    """
    parameters, trainable = count_parameters(config), count_trainable(config, frozen_body)
    size, inner = config.hidden_size, config.ffn_size
    width = HALF if is_half else FLOAT
    # Dropout stores one byte per value on a GPU, and the factor itself on a CPU.
    mask = (1 if flash else width) if config.dropout else 0
    # Saved for the backward pass of a layer, per token: query, key, value and their mixture;
    # inputs of products; both sums before a LayerNorm (always float32); dropout masks.
    layer = (6 * size + 2 * inner) * width + 2 * size * (FLOAT + mask)
    if config.rotary is not None:  # the gate and its product, and rotated queries and keys
        layer += 2 * (inner + size) * width
    if not flash:
        # Scaled queries and keys; attention weights before and after dropout, and its factors.
        layer += 2 * size * width + config.num_heads * length * 3 * width
    activations = batch_size * length * config.num_layers * layer
    if gradient_checkpointing:  # the input of each layer, and all of the layer in progress
        activations = batch_size * length * (config.num_layers * size * FLOAT + layer)
    # The log-probabilities, their gradient and that of the logits, all in float32.
    logits = num_predictions * config.vocab_size * 3 * FLOAT
    # The gradient of the head is in memory beside all activations, and at the end both gradients
    # of the table; the last of them becomes the accumulated one, if there is none before.
    words = count_parts(config)["words"] * FLOAT
    tables = max(activations + words, 2 * words) if accumulates else words
    return {
        "weights": parameters * FLOAT,
        "gradients": trainable * FLOAT,
        "moments": 2 * trainable * FLOAT,
        "half copies": parameters * HALF if is_half else 0,
        "activations": activations,
        "logits": logits,
        "token gradients": max(0, tables - activations - logits),
    }


@dataclass(frozen=True)
class MemorySetting:
    """A way to train that fits into a GPU."""

    micro_batches: int
    gradient_checkpointing: bool
    memory_bytes: int
    compute: float  # FLOPs of a step, relative to those without checkpointing


def find_setting(
    config: EncoderConfig, recipe: TrainingRecipe, limit_bytes: float, *, frozen_body: bool = False
) -> MemorySetting | None:
    """Return the setting that fits into a GPU and is likely the fastest; None if none fits.

    Prefer micro-batches that keep a GPU busy, then no checkpointing, then few micro-batches.
    """
    flops = step_flops(config, recipe, frozen_body=frozen_body)
    # The layers are computed once more: a forward pass is a third of a step.
    again = count_step_flops(config, recipe.batch_size, recipe.length, 0) / 3
    margin = _GPU_MARGIN if recipe.precision in ("auto", "bfloat16") else _PLAIN_MARGIN
    found = []
    for count in (n for n in range(1, recipe.batch_size + 1) if recipe.batch_size % n == 0):
        rows = recipe.batch_size // count
        for checkpointing in (False, True):
            parts = estimate_memory(
                config, rows, recipe.length, count_slots(recipe, rows),
                recipe.precision != "float32", frozen_body=frozen_body, accumulates=count > 1,
                gradient_checkpointing=checkpointing,
            )  # fmt: skip
            needed = int(margin * sum(parts.values())) + GPU_CONTEXT
            if needed <= limit_bytes:
                compute = 1.0 + checkpointing * again / flops
                is_slow = rows * recipe.length < _BUSY_TOKENS
                setting = MemorySetting(count, checkpointing, needed, compute)
                found.append((is_slow, checkpointing, count, setting))
    return min(found, key=lambda one: one[:3])[3] if found else None


def estimate_checkpoint(config: EncoderConfig, *, frozen_body: bool = False) -> int:
    """Return the size of a checkpoint in bytes: weights, and two moments of trained weights."""
    return FLOAT * (count_parameters(config) + 2 * count_trainable(config, frozen_body))


def estimate_disk(
    config: EncoderConfig, recipe: TrainingRecipe, *, frozen_body: bool = False
) -> int:
    """Return the maximum size of the checkpoints and models of a training run in bytes."""
    model = FLOAT * count_parameters(config)
    checkpoint = estimate_checkpoint(config, frozen_body=frozen_body)
    permanent = sum(step <= recipe.steps for step in set(recipe.keep_steps))
    # A new checkpoint is complete before the oldest one is removed.
    newest = recipe.keep_checkpoints + 1 if recipe.steps else 0
    return model + newest * checkpoint + permanent * (checkpoint + model)


@cache
def measure_peak(device: torch.device, dtype: torch.dtype | None = None) -> float:
    """Measure the FLOP/s of a large matrix product, by default in the type of `precision: auto`."""
    dtype = dtype or choose_dtype("auto", device)
    if dtype == torch.float16 and device.type == "cpu":
        dtype = torch.float32  # most CPUs have no instructions for float16
    size = 8192 if device.type == "cuda" else 1024
    generator = torch.Generator(device).manual_seed(0)
    first, second = (
        torch.randn(size, size, device=device, generator=generator).to(dtype) for _ in range(2)
    )
    result = torch.empty(size, size, device=device, dtype=dtype)
    seconds = []
    for _ in range(_PEAK_REPEATS + 2):
        synchronize(device)
        start = time.perf_counter()
        torch.mm(first, second, out=result)
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    # The first calls load kernels. Use the median on a GPU, whose clock falls under load, and the
    # minimum on a CPU, which runs other processes too.
    place = _PEAK_REPEATS // 2 if device.type == "cuda" else 0
    return float(2 * size**3 / sorted(seconds[2:])[place])


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


class DoesNotFit(MetaXLMError):
    """A step needs more memory than is free."""


@dataclass(frozen=True)
class Measurement:
    """The result of timing steps."""

    seconds: float  # of a whole step
    num_steps: int  # timed steps
    num_rows: int  # of a timed step; fewer than a batch if the time is extrapolated
    peak_bytes: int | None  # during whole steps, if the device reports it
    loss: float  # mean; NaN if a step was skipped


def measure_step(
    config: EncoderConfig,
    recipe: TrainingRecipe,
    device: torch.device,
    steps: int = 10,
    *,
    limit_s: float = _TIME_LIMIT_S,
    frozen_body: bool = False,
    execution: ExecutionRecipe | None = None,
) -> Measurement:
    """Time steps of the recipe's shape; raise `DoesNotFit` if there is too little memory.

    No step starts after `limit_s`. If whole steps would take too long, time fewer rows.
    """
    rows = recipe.batch_size
    # On a GPU whole steps are short, and a graph is captured for one shape.
    if device.type == "cpu":
        affordable = affordable_rows(config, recipe, device, limit_s / (steps + _WARM_UP))
        rows = min(rows, max(1, affordable))
        _check_memory(config, recipe, rows)
    is_whole = rows == recipe.batch_size
    try:
        with _random_training(config, recipe, device, execution, frozen_body) as step:
            if is_whole:
                seconds, count = _time_steps(step, recipe, rows, recipe.length, steps, limit_s)
            else:
                tiny, _ = _time_steps(step, recipe, 1, _FEW_TOKENS, steps, limit_s / 4)
                few, count = _time_steps(step, recipe, rows, recipe.length, steps, limit_s * 3 / 4)
                whole = (recipe.batch_size, recipe.length)
                shapes = ((1, _FEW_TOKENS), (rows, recipe.length), whole)
                flops = [
                    count_step_flops(config, *shape, count_slots(recipe, *shape))
                    for shape in shapes
                ]
                seconds = extrapolate((flops[0], tiny), (flops[1], few), flops[2])
            peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
            state = TrainingState()
            step.read(state)
    except torch.OutOfMemoryError as error:
        place = str(device)
        if device.type == "cuda":
            total = torch.cuda.get_device_properties(device).total_memory / 2**30
            place = f"the {total:.0f} GiB of {device}"
        raise DoesNotFit(
            f"a step of {recipe.batch_size} x {recipe.length} tokens does not fit into {place}; "
            "increase micro_batches"
        ) from error
    loss = math.nan if state.skipped else state.loss_sum / state.loss_count
    return Measurement(seconds, count, rows, peak, loss)


def extrapolate(few: tuple[float, float], many: tuple[float, float], flops: float) -> float:
    """Return the seconds of a step from the (FLOPs, seconds) of two smaller ones."""
    # Linear, plus a constant for the optimizer. The lower bound prevents free work due to noise.
    slope = (many[1] - few[1]) / (many[0] - few[0])
    return many[1] + max(slope, 0.1 * many[1] / many[0]) * (flops - many[0])


def affordable_rows(
    config: EncoderConfig, recipe: TrainingRecipe, device: torch.device, seconds: float
) -> int:
    """Estimate the number of rows of a step that takes this time."""
    row = count_step_flops(config, 1, recipe.length, count_slots(recipe, 1))
    rate = measure_peak(device, choose_dtype(recipe.precision, device))
    return int(seconds * rate * _EXPECTED_SHARE / row)


def free_memory(device: torch.device) -> int | None:
    """Return the free memory of a device in bytes, or None if it is unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        found = re.search(r"MemAvailable:\s*(\d+)", Path("/proc/meminfo").read_text("ascii"))
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _check_memory(config: EncoderConfig, recipe: TrainingRecipe, num_rows: int) -> None:
    """Raise an error instead of being killed by the system."""
    free = free_memory(torch.device("cpu"))
    slots, flash = count_slots(recipe, num_rows), config.attention_dropout == 0
    parts = estimate_memory(config, num_rows, recipe.length, slots, is_half=False, flash=flash)
    needed = _MEMORY_MARGIN * sum(parts.values())
    if free is not None and needed > free:
        raise DoesNotFit(
            f"a step of {num_rows} x {recipe.length} tokens needs about {needed / 2**30:.1f} GiB, "
            f"and {free / 2**30:.1f} GiB of memory are free"
        )


def _time_steps(
    step: PretrainStep, recipe: TrainingRecipe, rows: int, length: int, steps: int, limit_s: float
) -> tuple[float, int]:
    device, begin = step.world.device, time.perf_counter()
    # A whole batch is split as in training.
    count = recipe.micro_batches if rows == recipe.batch_size else 1
    batches = _make_batches(rows, length, count, step.model.config.vocab_size)
    probability = largest(recipe.mask_probability)
    seconds: list[float] = []
    while len(seconds) < steps + _WARM_UP:
        synchronize(device)
        start = time.perf_counter()
        step(batches, _RATE, probability, len(seconds))
        synchronize(device)
        end = time.perf_counter()
        seconds.append(end - start)
        if len(seconds) == 1 and device.type == "cuda":
            begin = end  # the first step compiles kernels
        elif end - begin + seconds[-1] > limit_s:
            break
    timed = seconds[_WARM_UP:] or seconds[-1:]
    return sorted(timed)[len(timed) // 2], len(timed)


def _make_batches(num_rows: int, length: int, count: int, vocab_size: int) -> list[MicroBatch]:
    generator = torch.Generator().manual_seed(1)
    low, high = len(FIRST_TOKENS), vocab_size - 1
    ids_BL = torch.randint(low, high, (num_rows, length), generator=generator, dtype=torch.int32)
    lengths_B = torch.full((num_rows,), length, dtype=torch.int32)
    parts = (tensor.chunk(count) for tensor in (ids_BL, lengths_B, torch.arange(num_rows)))
    return [
        MicroBatch(ids, lengths, rows, seed, [], ids.numel())
        for seed, (ids, lengths, rows) in enumerate(zip(*parts, strict=True))
    ]


@contextmanager
def _random_training(
    config: EncoderConfig,
    recipe: TrainingRecipe,
    device: torch.device,
    execution: ExecutionRecipe | None,
    frozen_body: bool,
) -> Iterator[PretrainStep]:
    """Yield the training step of a random model; free the device's memory afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        torch.manual_seed(0)
        with device:
            model = MaskedLM(config)
        if frozen_body:
            model.freeze_layers()
        masking = Masking(make_tokenizer(config.vocab_size), recipe, device)
        alone = DistributedContext.alone(device)
        step = PretrainStep(model, masking, recipe, execution or ExecutionRecipe(), alone)
        try:
            yield step
        finally:
            del step, model
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()


def make_tokenizer(vocab_size: int) -> PreTrainedTokenizerBase:
    """Make a placeholder tokenizer; every second ordinary token starts a word."""
    ordinary = vocab_size - len(FIRST_TOKENS) - 1
    tokens = [f"{'▁' if number % 2 else ''}{number}" for number in range(ordinary)]
    ids = {token: number for number, token in enumerate([*FIRST_TOKENS, *tokens, MASK_TOKEN])}
    return wrap_tokenizer(Tokenizer(WordLevel(ids, unk_token="<unk>")))
