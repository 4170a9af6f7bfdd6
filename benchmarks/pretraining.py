"""Pretraining steps: ours and transformers' model of the same family, side by side in one run.

    python benchmarks/pretraining.py              # both, eager and compiled, with the ceiling
    python benchmarks/pretraining.py --family mpnet --size 12x768x64000x64x512
    python benchmarks/pretraining.py --grow       # what ours costs as it grows
    python benchmarks/pretraining.py --parity 200 # the losses of the fused and the plain path

All train on the same random batches with AdamW, bfloat16 on a GPU and float32 on a CPU. The peer
computes logits for every position, as its loss does; ours for the predicted ones. The device's
matmul rate is measured before and after each contender, because GPUs slow down when they get warm:
shares are of what was measured around it.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import AutoConfig, AutoModelForMaskedLM

from metaxlm.model.encoder import EncoderConfig, Rotary
from metaxlm.model.families import export_config
from metaxlm.model.foreign import dump_config
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import MicroBatch
from metaxlm.pretrain.checkpoint import TrainingState
from metaxlm.pretrain.cost import count_predictions, count_step_flops, make_tokenizer, synchronize
from metaxlm.pretrain.distributed import DistributedContext, choose_device, choose_dtype
from metaxlm.pretrain.step import PretrainStep
from metaxlm.recipe import ExecutionRecipe, TrainingRecipe

Step = Callable[[int], None]
console = Console(width=100, highlight=False)
RATE = 1e-4
GROWTH = [(6, 384), (12, 384), (12, 512), (12, 768), (24, 1024)]
VOCABULARIES = [64_000, 250_002]
FAMILIES: dict[str, dict[str, Any]] = {  # settings that differ from RoBERTa's
    "xlm-roberta": {},
    "mpnet": {"num_token_types": 0, "relative_buckets": 32},
    "modernbert": {
        "num_token_types": 0, "position_offset": 0, "max_positions": 8192, "rotary": Rotary(),
        "dropout": 0.0, "attention_dropout": 0.0,
    },
}  # fmt: skip
GENERAL: dict[str, dict[str, Any]] = {  # transformers' settings of families that it computes
    "electra": {"type_vocab_size": 2},
    "deberta-v2": {
        "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm",
        "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False,
        "type_vocab_size": 0,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """What is trained."""

    layers: int
    hidden: int
    vocabulary: int
    sequences: int
    length: int
    family: str = field(default="xlm-roberta", kw_only=True)
    dropout: float = field(default=0.1, kw_only=True)

    @property
    def config(self) -> EncoderConfig:
        general: dict[str, Any] = {}
        if self.family in GENERAL:
            settings = dump_config(AutoConfig.for_model(**self.settings))
            general = {"settings": settings, "position_offset": 0}
        values: dict[str, Any] = {
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "num_layers": self.layers,
            "num_heads": self.hidden // 64,
            "ffn_size": (3 * self.hidden // 2) if self.family == "modernbert" else 4 * self.hidden,
            "dropout": self.dropout,
            "attention_dropout": self.dropout,
            "family": self.family,
        }
        return EncoderConfig(**values | FAMILIES.get(self.family, general))

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration of transformers' model."""
        if self.family not in GENERAL:
            return export_config(self.config)
        return GENERAL[self.family] | {
            "model_type": self.family,
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "embedding_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.hidden // 64,
            "intermediate_size": 4 * self.hidden,
            "pad_token_id": 1,
        }

    @property
    def recipe(self) -> TrainingRecipe:
        return TrainingRecipe(batch_size=self.sequences, length=self.length)

    @property
    def flops(self) -> float:
        predictions = count_predictions(self.recipe)
        return count_step_flops(self.config, self.sequences, self.length, predictions)


def main() -> None:
    options = parse()
    device = choose_device(options.device)
    preset = "12x768x250002x64x512" if device.type == "cuda" else "4x256x64000x16x128"
    size = Size(*map(int, (options.size or preset).split("x")), family=options.family)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    threads = "" if device.type == "cuda" else f", {torch.get_num_threads()} threads"
    console.print(f"{name}{threads}, torch {torch.__version__}; {options.repeats} steps each")
    if options.parity:
        compare_losses(replace(size, dropout=0.0), options.parity, device)
    elif options.grow:
        show_growth(options, device)
    else:
        compare_speed(size, options, device)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", help="LAYERSxHIDDENxVOCABULARYxSEQUENCESxTOKENS")
    parser.add_argument("--family", choices=[*FAMILIES, *GENERAL], default="xlm-roberta")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--parity", type=int, metavar="STEPS")
    parser.add_argument("--without", default="", help="contenders to leave out, by semicolon")
    return parser.parse_args()


def compare_speed(size: Size, options: argparse.Namespace, device: torch.device) -> None:
    console.print(f"{size}: {size.flops / 1e12:.2f} TFLOP per step")
    contenders: dict[str, Callable[[], Step]] = {
        "transformers": lambda: peer(size, device, compiled=False),
        "transformers, compiled": lambda: peer(size, device, compiled=True),
        "metaxlm, plain": lambda: ours(size, device, "plain")[0],
        "metaxlm": lambda: ours(size, device, "auto")[0],
    }
    if size.family == "modernbert":
        contenders["transformers, compiled, flex"] = lambda: peer(
            size, device, compiled=True, attention="flex_attention"
        )
    if device.type == "cpu" or size.family in GENERAL:
        del contenders["metaxlm, plain"]  # there it is the same
    table = Table("", "ms per step", "steps/s", "tokens/s", "of the matmul rate", "peak GiB")
    times: dict[str, float] = {}
    for name, build in contenders.items():
        if name in options.without.split(";"):
            continue
        try:
            times[name], rate, memory = measure(build, options.repeats, device)
        except Exception as error:
            table.add_row(name, "failed", str(error).splitlines()[0][:40])
            continue
        table.add_row(*describe(name, size, times[name], rate, memory))
    console.print(table)
    for name, seconds in times.items():
        if name.startswith("transformers") and "metaxlm" in times:
            console.print(f"metaxlm is {seconds / times['metaxlm']:.2f} times as fast as {name}")


def show_growth(options: argparse.Namespace, device: torch.device) -> None:
    table = Table("shape", "ms per step", "steps/s", "tokens/s", "of the matmul rate", "peak GiB")
    for vocabulary in VOCABULARIES:
        for layers, hidden in GROWTH:
            size = Size(layers, hidden, vocabulary, 64, 512)

            def build(size: Size = size) -> Step:
                return ours(size, device, "auto")[0]

            name = f"{layers} x {hidden}, {vocabulary:,}"
            table.add_row(*describe(name, size, *measure(build, options.repeats, device)))
    console.print(table)


def describe(
    name: str, size: Size, seconds: float, rate: float, memory: float | None
) -> tuple[str, ...]:
    tokens = size.sequences * size.length
    return (
        name,
        f"{seconds * 1e3:.1f}",
        f"{1 / seconds:.1f}",
        f"{tokens / seconds:,.0f}",
        f"{size.flops / seconds / rate:.1%} of {rate / 1e12:.{0 if rate > 1e13 else 2}f} T",
        "" if memory is None else f"{memory:.1f}",
    )


def measure(
    build: Callable[[], Step], repeats: int, device: torch.device
) -> tuple[float, float, float | None]:
    """Return a contender's seconds per step, the matmul rate around it, and its peak memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    before = measure_ceiling(device)
    step = build()
    for turn in range(3):
        step(turn)
    rounds = []
    for turn in range(3):
        synchronize(device)
        start = time.perf_counter()
        for number in range(repeats):
            step(turn * repeats + number)
        synchronize(device)
        rounds.append((time.perf_counter() - start) / repeats)
    memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
    after = measure_ceiling(device)
    return sorted(rounds)[1], (before + after) / 2, memory


def ours(
    size: Size, device: torch.device, kernels: str, precision: str = "auto"
) -> tuple[Step, PretrainStep]:
    """Return a step of the engine that `metaxlm run` uses, and the engine."""
    torch.manual_seed(0)
    with torch.device(device):
        model = MaskedLM(size.config)
    recipe = size.recipe.model_copy(update={"precision": precision})
    masking = Masking(make_tokenizer(size.vocabulary), recipe, device)
    execution = ExecutionRecipe(kernels="plain" if kernels == "plain" else "auto")
    engine = PretrainStep(model, masking, recipe, execution, DistributedContext.alone(device))
    pieces = [make_piece(ids_BL, seed) for seed, ids_BL in enumerate(batches(size))]

    def step(number: int) -> None:
        engine([pieces[number % len(pieces)]], RATE, 0.15, number)

    return step, engine


def make_piece(ids_BL: Tensor, seed: int) -> MicroBatch:
    rows, length = ids_BL.shape
    lengths_B = torch.full((rows,), length, dtype=torch.int32)
    return MicroBatch(ids_BL.int(), lengths_B, torch.arange(rows), seed, [], ids_BL.numel())


def peer(size: Size, device: torch.device, *, compiled: bool, attention: str | None = None) -> Step:
    """Return a step of transformers' model, as a careful user would write it."""
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForMaskedLM.from_config(
            AutoConfig.for_model(**size.settings), attn_implementation=attention
        )
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    forward = torch.compile(model) if compiled else model
    dtype = choose_dtype(size.recipe.precision, device)
    examples = []
    for ids_BL in batches(size):
        chosen_BL = torch.rand(ids_BL.shape) < 0.15
        labels_BL = torch.where(chosen_BL, ids_BL, -100)
        examples.append((ids_BL.masked_fill(chosen_BL, 4).to(device), labels_BL.to(device)))

    def step(number: int) -> None:
        ids_BL, labels_BL = examples[number % len(examples)]
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            loss = forward(input_ids=ids_BL, labels=labels_BL).loss
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def batches(size: Size) -> Iterator[Tensor]:
    """Yield random batches whose words are as unevenly frequent as those of a language."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(8):
        uniform = torch.rand(size.sequences, size.length, generator=generator, dtype=torch.float64)
        yield (uniform**4 * (size.vocabulary - 5)).long() + 5


def compare_losses(size: Size, steps: int, device: torch.device) -> None:
    """Train on the same batches three ways, without dropout, whose random numbers differ."""
    curves = {}
    for name, kernels, precision in (
        ("float32", "plain", "float32"),
        ("plain bfloat16", "plain", "bfloat16"),
        ("fused bfloat16", "auto", "bfloat16"),
    ):
        step, engine = ours(size, device, kernels, precision)
        losses = []
        for number in range(steps):
            step(number)
            state = TrainingState()
            engine.read(state)
            losses.append(state.loss_sum)
            engine.totals.reset()
        curves[name] = torch.tensor(losses, dtype=torch.float64)
    console.print(f"{size}: losses of {steps} steps without dropout")
    table = Table("", "first", "last", "mean difference", "largest difference to float32")
    for name, losses_S in curves.items():
        difference = losses_S - curves["float32"]
        table.add_row(
            name,
            f"{losses_S[0]:.5f}",
            f"{losses_S[-1]:.5f}",
            f"{difference.mean():+.1e}",
            f"{difference.abs().max():.1e}",
        )
    console.print(table)


def measure_ceiling(device: torch.device) -> float:
    """Return the FLOP/s of a large matrix product in the type that training uses."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (2048, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    times = []
    for _ in range(4):
        synchronize(device)
        start = time.perf_counter()
        for _ in range(10 if device.type == "cuda" else 1):
            torch.mm(a, b)
        synchronize(device)
        times.append((time.perf_counter() - start) / (10 if device.type == "cuda" else 1))
    return 2 * size**3 / sorted(times[1:])[1]


if __name__ == "__main__":
    main()
