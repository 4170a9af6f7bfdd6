"""What a training costs, before it starts and while it runs: parameters, FLOPs, memory, disk.

Comes in: an encoder's shape and a training's. Goes out: numbers that follow from them, and the rate
of matrix products on a device, which is measured. `metaxlm plan` shows them, the training log
divides by them. Section 4.1 of the paper gives its own cost as one A100 day.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

import torch

from metaxlm.config import TrainingRecipe
from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import EncoderConfig
from metaxlm.pretrain.schedules import largest, value_at

FLOAT, HALF = 4, 2
"""Bytes of a float32 and of a bfloat16."""
REACHED_OF_DATASHEET = 0.79
"""What a large product reaches of a datasheet's figure: an H200's 782 of 989 TFLOP/s."""
_SAMPLED_STEPS = 1_000
_PEAK_REPEATS = 10


@dataclass(frozen=True)
class Accelerator:
    """A device by name, as its maker's datasheet describes it."""

    name: str
    peak: float
    """Dense bfloat16 FLOP/s with float32 sums, without sparsity."""
    memory: float
    """Bytes."""


# From the makers' public datasheets, not measured here.
_ACCELERATORS = [
    Accelerator(name, tera * 1e12, giga * 1e9)
    for name, tera, giga in (
        ("A10", 125, 24),
        ("A100", 312, 80),
        ("A100-40GB", 312, 40),
        ("B200", 2_250, 180),
        ("H100", 989, 80),
        ("H100-PCIe", 756, 80),
        ("H200", 989, 141),
        ("L4", 121, 24),
        ("L40S", 362, 48),
        ("MI250X", 383, 128),
        ("MI300X", 1_307, 192),
        ("RTX-3090", 71, 24),
        ("RTX-4090", 165, 24),
        ("RTX-5090", 209, 32),
        ("RTX-A6000", 155, 48),
    )
]
ACCELERATORS = {accelerator.name: accelerator for accelerator in _ACCELERATORS}
"""Devices that a training can be planned for without having one."""


def find_accelerator(name: str) -> Accelerator:
    """Return a device of the table; case, spaces and hyphens do not matter."""

    def simplify(text: str) -> str:
        return "".join(c for c in text.lower() if c.isalnum())

    for known, accelerator in ACCELERATORS.items():
        if simplify(known) == simplify(name):
            return accelerator
    raise MetaXLMError(f"--on {name}: no such device; known are {', '.join(ACCELERATORS)}")


def count_parts(config: EncoderConfig) -> dict[str, int]:
    """Count the parameters of each part; the head's output rows are the word rows."""
    size, inner = config.hidden_size, config.ffn_size
    norm, square = 2 * size, size * size + size
    positions = config.position_offset + config.max_positions + config.num_token_types
    layer = 4 * square + 2 * size * inner + inner + size + 2 * norm
    return {
        "words": config.vocab_size * size,
        "positions": positions * size + norm,
        "layers": config.num_layers * layer,
        "head": square + norm + config.vocab_size,
    }


def count_parameters(config: EncoderConfig) -> int:
    """Count all parameters of the encoder with its head."""
    return sum(count_parts(config).values())


def count_trainable(config: EncoderConfig, frozen_body: bool) -> int:
    """Count the parameters that move; with a frozen body, only embeddings and head do."""
    parts = count_parts(config)
    return sum(parts.values()) - (parts["layers"] if frozen_body else 0)


def count_predictions(recipe: TrainingRecipe) -> float:
    """Return how many tokens a step predicts, in the mean over the training."""
    steps = range(0, max(1, recipe.steps), max(1, recipe.steps // _SAMPLED_STEPS))
    shares = [value_at(recipe.mask_probability, step) for step in steps]
    return recipe.batch_size * recipe.length * sum(shares) / len(shares)


def count_slots(recipe: TrainingRecipe, num_rows: int) -> int:
    """Return the places for predictions in so many rows: one number for a shape, used or not."""
    return num_rows * (int(largest(recipe.mask_probability) * recipe.length) + 1)


def count_step_flops(
    config: EncoderConfig,
    batch_size: int,
    length: int,
    num_predictions: float,
    *,
    frozen_body: bool = False,
) -> float:
    """Count what a step must do at least: three products, one forward and two back, per weight.

    A frozen body has no gradient of its own, but passes one on to the embeddings.
    """
    size = config.hidden_size
    weights = config.num_layers * (4 * size**2 + 2 * size * config.ffn_size)
    attention = config.num_layers * 2 * length * size
    head = size * (config.vocab_size + size)
    body = (4 if frozen_body else 6) * weights + 6 * attention
    return float(batch_size * length * body + 6 * num_predictions * head)


def step_flops(
    config: EncoderConfig, recipe: TrainingRecipe, *, frozen_body: bool = False
) -> float:
    """Count the FLOPs of a training's mean step."""
    predictions = count_predictions(recipe)
    return count_step_flops(
        config, recipe.batch_size, recipe.length, predictions, frozen_body=frozen_body
    )


def estimate_memory(
    config: EncoderConfig,
    batch_size: int,
    length: int,
    num_predictions: int,
    bfloat16: bool,
    *,
    frozen_body: bool = False,
    flash: bool = True,
) -> dict[str, int]:
    """Estimate the bytes of a step by part, computed with torch alone.

    `batch_size` counts the rows that are computed at once (a piece), `num_predictions` their slots.
    `flash` says that attention keeps no weights; on a CPU with dropout it does.
    """
    parameters, trainable = count_parameters(config), count_trainable(config, frozen_body)
    size, inner = config.hidden_size, config.ffn_size
    width = HALF if bfloat16 else FLOAT
    # Dropout keeps a byte for each number on a GPU; on a CPU it keeps the factor itself.
    mask = (1 if flash else width) if config.dropout else 0
    # What a layer keeps for its backward pass, per token: query, key, value and their mixture;
    # inputs of products; both sums before a LayerNorm, always float32; dropout's masks.
    layer = (6 * size + 2 * inner) * width + 2 * size * (FLOAT + mask)
    if not flash:
        # Scaled queries and keys; attention's weights before and after dropout, and its factors.
        layer += 2 * size * width + config.num_heads * length * 3 * width
    # The log-probabilities and their gradient, and once in the type of the product.
    logits = config.vocab_size * (2 * FLOAT + (HALF if bfloat16 else 0))
    return {
        "weights": parameters * FLOAT,
        "gradients": trainable * FLOAT,
        "moments": 2 * trainable * FLOAT,
        "bfloat16 copies": parameters * HALF if bfloat16 else 0,
        "activations": batch_size * length * config.num_layers * layer,
        "logits": num_predictions * logits,
    }


def estimate_checkpoint(config: EncoderConfig, *, frozen_body: bool = False) -> int:
    """Return the bytes of one checkpoint: weights, and two moments of what is trained."""
    return FLOAT * (count_parameters(config) + 2 * count_trainable(config, frozen_body))


def estimate_disk(
    config: EncoderConfig, recipe: TrainingRecipe, *, frozen_body: bool = False
) -> int:
    """Return the most bytes that a training's checkpoints and model take at any time."""
    model = FLOAT * count_parameters(config)
    checkpoint = estimate_checkpoint(config, frozen_body=frozen_body)
    permanent = sum(step <= recipe.steps for step in set(recipe.keep_steps))
    # A new checkpoint is complete before the oldest goes.
    newest = recipe.keep_checkpoints + 1 if recipe.steps else 0
    return model + newest * checkpoint + permanent * (checkpoint + model)


def measure_peak(device: torch.device, bfloat16: bool | None = None) -> float:
    """Measure the FLOP/s of a large matrix product in the training's type, once a process.

    Without `bfloat16` the type is the one that `precision: auto` takes. Torch's generators stay as
    they are.
    """
    if bfloat16 is None:
        bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return _measure_peak(str(device), bfloat16, torch.get_num_threads())


def peak_flops(device: torch.device, bfloat16: bool | None = None) -> float | None:
    """Return the measured FLOP/s, or None where there is no memory left to measure them."""
    try:
        return measure_peak(device, bfloat16)
    except torch.OutOfMemoryError:
        return None


@cache
def _measure_peak(name: str, bfloat16: bool, _threads: int) -> float:
    device = torch.device(name)
    size = 8192 if device.type == "cuda" else 1024
    dtype = torch.bfloat16 if bfloat16 else torch.float32
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
    # The first calls choose and load kernels. A GPU's clock falls under load, so its median counts;
    # a CPU works for others too, so its best.
    place = _PEAK_REPEATS // 2 if device.type == "cuda" else 0
    return float(2 * size**3 / sorted(seconds[2:])[place])


def synchronize(device: torch.device) -> None:
    """Wait until a device has done what it was asked to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
