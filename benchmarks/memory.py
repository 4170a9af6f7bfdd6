"""Memory and speed of pretraining by setting, on a GPU whose memory is limited.

    python benchmarks/memory.py                               # a GPU of 8, 15, 24 GB, and all of it
    python benchmarks/memory.py --limits 8 --settings bfloat16:16:true,bfloat16:32:false
    python benchmarks/memory.py --tiny --device cpu           # checks the script

Trains a random model of 12 x 768 with 250,002 subwords, 64 x 512 tokens per step, and prints the
peak memory beside the estimate of `metaxlm plan`. Without `--settings`, each limit has the setting
that `plan` recommends, and the same with the other choice of gradient checkpointing. Each run is
a process of its own, limited by `torch.cuda.set_per_process_memory_fraction`: to the limit, less
what CUDA itself takes outside of torch. A GB is 10^9 bytes. The share of the speed is that of the
same precision without a limit, in one micro-batch and without checkpointing.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table

from metaxlm.model.encoder import EncoderConfig
from metaxlm.pretrain import cost
from metaxlm.recipe import ExecutionRecipe, TrainingRecipe

SIZE, TINY = (12, 768, 250_002, 64, 512), (2, 64, 1_000, 8, 32)
PRECISIONS = ("bfloat16", "float16")
STEPS = 13  # timed after two others; the median counts
TIME_LIMIT_S = 30.0
HEADINGS = (
    "precision", "micro batches", "check- pointing", "limit", "peak", "reserved", "estimate",
    "tokens/s", "of full speed",
)  # fmt: skip
console = Console(width=110, highlight=False)


@dataclass(frozen=True)
class Run:
    """One training under a limit."""

    size: tuple[int, int, int, int, int]
    precision: str
    micro_batches: int
    checkpointing: bool
    limit: float  # GB, or infinity

    @property
    def config(self) -> EncoderConfig:
        layers, hidden, vocabulary, _, length = self.size
        return EncoderConfig(
            vocabulary, hidden, layers, max(1, hidden // 64), 4 * hidden, max_positions=length
        )

    @property
    def recipe(self) -> TrainingRecipe:
        return make_recipe(self.size, self.precision, self.micro_batches)

    def estimate(self) -> float:
        """Return the estimate of `plan` in GB."""
        rows = self.recipe.batch_size // self.micro_batches
        parts = cost.estimate_memory(
            self.config, rows, self.recipe.length, cost.count_slots(self.recipe, rows),
            is_half=True, accumulates=self.micro_batches > 1,
            gradient_checkpointing=self.checkpointing,
        )  # fmt: skip
        return sum(parts.values()) / 1e9


@dataclass(frozen=True)
class Result:
    """What a run needs; `problem` says why it did not end."""

    seconds: float = math.nan
    allocated: float | None = None  # peaks in GB
    reserved: float | None = None
    problem: str = ""


def main() -> None:
    options = parse()
    size, device = TINY if options.tiny else SIZE, options.device
    if device == "auto":
        device = "cuda" if torch.cuda.device_count() else "cpu"
    layers, hidden, vocabulary, rows, length = size
    console.print(
        f"{layers} x {hidden}, {vocabulary:,} subwords, {rows} x {length} tokens per step"
    )
    table = Table(*HEADINGS)
    full: dict[str, float] = {}
    for run in list_runs(size, options.limits, options.settings):
        found = measure_apart(run, device)
        limit = "none" if math.isinf(run.limit) else f"{run.limit:g} GB"
        setting = (run.precision, str(run.micro_batches), "yes" if run.checkpointing else "no")
        speed = rows * length / found.seconds
        if math.isinf(run.limit) and not found.problem:
            full.setdefault(run.precision, speed)
        share = speed / full.get(run.precision, math.nan)
        sizes = ("" if n is None else f"{n:.1f} GB" for n in (found.allocated, found.reserved))
        pace = (found.problem, "") if found.problem else (
            f"{speed:,.0f}", "" if math.isnan(share) else f"{share:.0%}"
        )  # fmt: skip
        cells = (*setting, limit, *sizes, f"{run.estimate():.1f} GB", *pace)
        table.add_row(*cells)
        console.print(" | ".join(cells))
    console.print(table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limits", type=read_limits, default="8,15,24,none", help="GB")
    parser.add_argument("--settings", default="", help="PRECISION:MICRO_BATCHES:CHECKPOINTING,...")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tiny", action="store_true", help="train a small model")
    return parser.parse_args()


def read_limits(text: str) -> list[float]:
    """Return limits in descending order, because the speed without one comes first."""
    found = (math.inf if part == "none" else float(part) for part in text.split(","))
    return sorted(found, reverse=True)


def make_recipe(size: tuple[int, ...], precision: str, micro_batches: int = 1) -> TrainingRecipe:
    values = {"batch_size": size[3], "length": size[4], "precision": precision}
    return TrainingRecipe.model_validate(values | {"micro_batches": micro_batches})


def list_runs(
    size: tuple[int, int, int, int, int], limits: list[float], settings: str
) -> Iterator[Run]:
    for limit in limits:
        if settings:
            for text in settings.split(","):
                precision, count, flag = text.split(":")
                yield Run(size, precision, int(count), flag == "true", limit)
            continue
        for precision in PRECISIONS:
            first = Run(size, precision, 1, False, limit)
            found = cost.find_setting(first.config, first.recipe, limit * 1e9)
            if found is None:
                console.print(f"{precision}: no setting is estimated to fit into {limit:g} GB")
                continue
            chosen = found.gradient_checkpointing
            for checkpointing in (chosen, not chosen):
                yield Run(size, precision, found.micro_batches, checkpointing, limit)


def measure_apart(run: Run, device: str) -> Result:
    """Measure in a new process; the server that starts it has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["metaxlm.pretrain.cost"])
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(measure, run, device).result()


def measure(run: Run, device_name: str) -> Result:
    device = torch.device(device_name)
    is_cuda = device.type == "cuda"
    if is_cuda and not math.isinf(run.limit):
        total = torch.cuda.get_device_properties(device).total_memory
        limit_bytes = run.limit * 1e9 - cost.GPU_CONTEXT
        fraction = min(1.0, limit_bytes / total)
        torch.cuda.set_per_process_memory_fraction(fraction, device.index or 0)
    execution = ExecutionRecipe(gradient_checkpointing=run.checkpointing)
    try:
        found = cost.measure_step(
            run.config, run.recipe, device, STEPS, limit_s=TIME_LIMIT_S, execution=execution
        )
    except cost.DoesNotFit:
        return Result(problem="out of memory")
    except RuntimeError as error:
        # The end of a capture may raise another error after that of the memory.
        chain = (error, error.__context__, error.__cause__)
        is_memory = any(isinstance(one, torch.OutOfMemoryError) for one in chain)
        return Result(problem="out of memory" if is_memory else str(error).splitlines()[0][:40])
    if not is_cuda:
        return Result(found.seconds)
    allocated = torch.cuda.max_memory_allocated(device) / 1e9
    return Result(found.seconds, allocated, torch.cuda.max_memory_reserved(device) / 1e9)


if __name__ == "__main__":
    main()
