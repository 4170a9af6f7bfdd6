"""`metaxlm plan`: the cost of the training runs of a recipe, before anything exists.

Print parameters, tokens, FLOPs, memory, disk space and hours of meta-pretraining and of every
variant. Hours are from ten timed steps on this device; `--on` adds an estimate for another device
from its datasheet. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from metaxlm.cli.options import Device, Overrides, Quiet, RecipeFile
from metaxlm.errors import MetaXLMError
from metaxlm.progress import console, set_quiet

if TYPE_CHECKING:
    import torch
    from rich.table import Table

    from metaxlm.model.encoder import EncoderConfig
    from metaxlm.pretrain.cost import Measurement
    from metaxlm.recipe import Recipe, TrainingRecipe

ASSUMED_SHARE = 0.4  # assumed share of the matmul rate of a GPU in a step, if none was measured
REACHED_OF_DATASHEET = 0.79
"""Share of a datasheet's rate that a large product reaches: 782 of 989 TFLOP/s on an H200."""

# Dense TFLOP/s in bfloat16 (float16 on T4 and V100), and GB of memory, from public datasheets.
ACCELERATORS: dict[str, tuple[int, int]] = {
    "A10": (125, 24), "A100": (312, 80), "A100-40GB": (312, 40), "B200": (2_250, 180),
    "H100": (989, 80), "H100-PCIe": (756, 80), "H200": (989, 141), "L4": (121, 24),
    "L40S": (362, 48), "MI250X": (383, 128), "MI300X": (1_307, 192), "RTX-3090": (71, 24),
    "RTX-4090": (165, 24), "RTX-5090": (209, 32), "RTX-A6000": (155, 48), "T4": (65, 16),
    "V100": (125, 16),
}  # fmt: skip


MEMORY_SIZES = (8, 16, 24)  # GB of small GPUs


@dataclass(frozen=True)
class TrainingRun:
    """One training run of a recipe."""

    name: str
    config: EncoderConfig
    recipe: TrainingRecipe
    frozen_body: bool = False
    teacher_share: float = 0.0  # of the blocks that a teacher reads too

    @property
    def shape(self) -> tuple[Any, ...]:
        """Everything that decides the time of a step; each shape is measured once."""
        recipe = self.recipe
        sizes = (recipe.batch_size, recipe.micro_batches, recipe.length, recipe.precision)
        return (self.config, sizes, str(recipe.mask_probability), self.frozen_body)


def list_training_runs(recipe: Recipe) -> list[TrainingRun]:
    """Return the training runs of a recipe in order; an imported encoder needs none."""
    from metaxlm.recipe import name_encoder
    from metaxlm.run.training import encoder_config, estimate_config
    from metaxlm.vocab.tokenizer import load_tokenizer

    runs = []
    if recipe.meta.model is None:
        config = encoder_config(recipe, recipe.vocabulary.monolingual_size)
        runs.append(TrainingRun("meta", config, recipe.meta))
    vocabulary = recipe.vocabulary
    size = vocabulary.size if vocabulary.model is None else len(load_tokenizer(vocabulary.model))
    if vocabulary.extend:
        assert recipe.meta.model is not None  # the recipe checks it
        size += len(load_tokenizer(recipe.meta.model))
    config = estimate_config(recipe, size)
    for name, variant in recipe.variants.items():
        frozen, taught = variant.freeze == "body", variant.distill is not None
        share = _expect_share(recipe) if taught else 0.0
        runs.append(TrainingRun(name, config, recipe.pretraining, frozen, share))
        if recipe.sentences is not None and name in recipe.list_encoders():
            training = recipe.sentences.make_training()
            runs.append(TrainingRun(name_encoder(name), config, training))
    return runs


def _expect_share(recipe: Recipe) -> float:
    """Return the expected share of blocks in the source language: by the paper's Wikipedia sizes,
    or equal shares if a language has none.
    """
    from metaxlm.languages import LANGUAGES, rebalance
    from metaxlm.pretrain.optimizer import value_at

    known = {code: LANGUAGES[code].paper_gb for code in recipe.languages if code in LANGUAGES}
    sizes = {code: size for code, size in known.items() if size is not None}
    if len(sizes) < len(recipe.languages):
        return 1 / len(recipe.languages)
    alpha = value_at(recipe.pretraining.alpha, recipe.pretraining.steps // 2)
    return rebalance(sizes, alpha)[recipe.source_language]


def plan_command(
    recipe: RecipeFile,
    overrides: Overrides = None,
    on: Annotated[str | None, Option(help="Also estimate for a device such as A100.")] = None,
    device: Device = "auto",
    measure: Annotated[
        bool, Option("--measure/--no-measure", help="Time ten steps on this device.")
    ] = True,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Print parameters, memory, FLOPs, tokens and hours of a recipe's training runs."""
    from metaxlm.files import dump_json
    from metaxlm.pretrain.distributed import choose_device
    from metaxlm.recipe.recipe_file import load_recipe

    set_quiet(quiet)
    named = None if on is None else _find_accelerator(on)
    plan = make_plan(load_recipe(recipe, overrides or []), choose_device(device), named, measure)
    if as_json:
        typer.echo(dump_json(plan), nl=False)
        return
    console.print(_make_table(plan))
    for note in plan["notes"]:
        console.print(note, soft_wrap=not console.is_terminal, markup=False)
    console.print(_make_memory_table(plan["trainings"]))


def _find_accelerator(name: str) -> str:

    def simplify(text: str) -> str:
        return "".join(c for c in text.lower() if c.isalnum())

    for known in ACCELERATORS:
        if simplify(known) == simplify(name):
            return known
    raise MetaXLMError(f"--on {name}: unknown device; known are {', '.join(ACCELERATORS)}")


def make_plan(
    recipe: Recipe, device: torch.device, named: str | None, measure: bool
) -> dict[str, Any]:
    """Return everything that `metaxlm plan` prints, as JSON values."""
    from metaxlm.pretrain import cost
    from metaxlm.pretrain.distributed import describe_device
    from metaxlm.run.grid import check_recipe
    from metaxlm.run.stages import check_models

    check_recipe(recipe, [])
    try:
        check_models(recipe)
    except MetaXLMError as error:
        size = "--set vocabulary.model=null --set vocabulary.size=ROWS"
        fix = f"to plan without it: --set meta.model=null, or {size}"
        raise MetaXLMError(f"{error}; {fix}") from error
    runs = list_training_runs(recipe)
    measured: dict[tuple[Any, ...], Measurement | str] = {}
    for run in (run for run in runs if measure and run.recipe.steps):
        if run.shape not in measured:
            with console.status(f"measuring steps of {run.name} ..."):
                try:
                    measured[run.shape] = cost.measure_step(
                        run.config, run.recipe, device, frozen_body=run.frozen_body,
                        execution=recipe.execution,
                    )  # fmt: skip
                except cost.DoesNotFit as error:
                    measured[run.shape] = str(error)
    again = recipe.execution.gradient_checkpointing
    rows = [_plan_run(run, device, measured.get(run.shape), named, again) for run in runs]
    return {
        "recipe": recipe.name,
        "device": describe_device(device),
        "on": named,
        "trainings": rows,
        "notes": _explain(recipe, rows, device, named),
    }


def _plan_run(
    run: TrainingRun,
    device: torch.device,
    measured: Measurement | str | None,
    named: str | None,
    checkpointing: bool,
) -> dict[str, Any]:
    from metaxlm.pretrain import cost
    from metaxlm.pretrain.distributed import choose_dtype

    config, recipe, frozen = run.config, run.recipe, run.frozen_body
    is_gpu, dtype = device.type == "cuda", choose_dtype(recipe.precision, device)

    def estimate_memory(is_half: bool, flash: bool) -> dict[str, int]:
        num_rows = -(-recipe.batch_size // recipe.micro_batches)
        slots = cost.count_slots(recipe, num_rows)
        return cost.estimate_memory(
            config, num_rows, recipe.length, slots, is_half, frozen_body=frozen, flash=flash,
            accumulates=recipe.micro_batches > 1, gradient_checkpointing=checkpointing,
        )  # fmt: skip

    memory = estimate_memory(dtype.itemsize == cost.HALF, is_gpu or not config.attention_dropout)
    own_flops = cost.step_flops(config, recipe, frozen_body=frozen)
    flops = own_flops + cost.teacher_flops(config, recipe, run.teacher_share)
    row: dict[str, Any] = {
        "name": run.name,
        "parameters": cost.count_parameters(config),
        "trainable": cost.count_trainable(config, frozen),
        "steps": recipe.steps,
        "tokens": recipe.steps * recipe.batch_size * recipe.length,
        "flops": recipe.steps * flops,
        "memory_bytes": sum(memory.values()),
        "memory_parts": memory,
        "fits": {
            f"{size} GB": None if found is None else asdict(found)
            for size in MEMORY_SIZES
            for found in [cost.find_setting(config, recipe, size * 1e9, frozen_body=frozen)]
        },
        "disk_bytes": cost.estimate_disk(config, recipe, frozen_body=frozen),
        "teacher_share": run.teacher_share,
        "measured": None,
        "problem": measured if isinstance(measured, str) else None,
        "hours": 0.0 if not recipe.steps else None,
        "hours_on": None,
    }
    share = ASSUMED_SHARE
    if measured is not None and not isinstance(measured, str):
        peak = cost.measure_peak(device, dtype)
        row["measured"] = {
            "seconds_per_step": measured.seconds,
            "steps": measured.num_steps,
            "rows": measured.num_rows,
            "batch_size": recipe.batch_size,
            "length": recipe.length,
            "tokens_per_second": recipe.batch_size * recipe.length / measured.seconds,
            "matmul_flops": peak,
            "peak_share": own_flops / measured.seconds / peak,
            "memory_bytes": measured.peak_bytes,
        }
        # Steps are measured without the teacher.
        row["hours"] = recipe.steps * measured.seconds * flops / own_flops / 3600
        # A share measured on a CPU does not apply to a GPU.
        share = min(row["measured"]["peak_share"], 1.0) if is_gpu else share
    if named is not None:
        rate = share * REACHED_OF_DATASHEET * ACCELERATORS[named][0] * 1e12
        row["assumed_share"] = share
        row["hours_on"] = recipe.steps * flops / rate / 3600
        row["memory_bytes_on"] = sum(estimate_memory(recipe.precision != "float32", True).values())
    return row


def _make_table(plan: dict[str, Any]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"{plan['recipe']} on {plan['device']}",
        box=box.SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        show_footer=True,
    )
    table.title_justify, table.pad_edge = "left", False
    rows = plan["trainings"]
    for row in rows:
        row["memory"] = (row["measured"] or {}).get("memory_bytes") or row["memory_bytes"]
    columns = [
        ("params", "parameters", _count, False),
        ("tokens", "tokens", _count, True),
        ("FLOP", "flops", _power, True),
        ("memory", "memory", _binary_size, False),
        ("disk", "disk_bytes", _size, True),
        ("here", "hours", _duration, True),
        *([(plan["on"], "hours_on", _duration, True)] if plan["on"] else []),
    ]
    table.add_column("training", "total", overflow="fold")
    for heading, key, show, has_total in columns:
        values = [row[key] for row in rows]
        footer = show(sum(values)) if has_total and None not in values else ""
        table.add_column(heading, footer, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row["name"], *(show(row[key]) for _, key, show, _ in columns))
    return table


def _make_memory_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the settings of the largest training run for small GPUs."""
    from rich import box
    from rich.table import Table

    largest = max(rows, key=lambda row: float(row["memory_bytes"]))
    table = Table(
        title=f"{largest['name']} on small GPUs, estimated", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.title_justify = "left"
    headings = ("GPU", "micro_batches", "gradient_checkpointing", "needs", "compute")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for size, found in largest["fits"].items():
        if found is None:
            table.add_row(size, "does not fit", "", "", "")
            continue
        needed, more = f"{found['memory_bytes'] / 1e9:.1f} GB", found["compute"] - 1
        again = "true" if found["gradient_checkpointing"] else "false"
        table.add_row(size, str(found["micro_batches"]), again, needed, f"+{more:.0%}")
    return table


def _explain(
    recipe: Recipe, rows: Sequence[dict[str, Any]], device: torch.device, named: str | None
) -> list[str]:
    notes = [f"{row['name']}: not measured, {row['problem']}" for row in rows if row["problem"]]
    shown: set[float] = set()
    for row in rows:
        if row["measured"] and row["measured"]["seconds_per_step"] not in shown:
            shown.add(row["measured"]["seconds_per_step"])
            notes.append(f"{row['name']}: {_describe_measured(row['measured'])}")
    largest = max(rows, key=lambda row: float(row["memory_bytes"]))
    sizes = largest["memory_parts"].items()
    parts = ", ".join(f"{name} {_binary_size(size)}" for name, size in sizes if size)
    notes.append(f"memory of {largest['name']}, estimated for plain torch: {parts}")
    if named is not None:
        tera, giga = ACCELERATORS[named]
        share = max(row["assumed_share"] for row in rows)
        is_measured = device.type == "cuda" and any(row["measured"] for row in rows)
        needed = max(row["memory_bytes_on"] for row in rows)
        notes.append(
            f"{named}: an estimate from its datasheet ({tera:,} TFLOP/s), of which large products "
            f"reach {REACHED_OF_DATASHEET:.0%} and a step {share:.0%} of those "
            f"({'measured here' if is_measured else 'assumed'}); needs about "
            f"{_binary_size(needed)} of its {_binary_size(giga * 1e9)}"
            + ("; increase micro_batches" if needed > giga * 1e9 else "")
        )
    if recipe.meta.model is not None:
        notes.append(f"meta: {recipe.meta.model} is imported, nothing is trained")
    if recipe.vocabulary.min_count:
        notes.append("vocabulary.min_count will leave fewer tokens than are counted here")
    for row in (row for row in rows if row["teacher_share"]):
        notes.append(
            f"{row['name']}: with the teacher's forward pass on {row['teacher_share']:.0%} of the "
            "blocks, the expected share of its language; not measured, and without its memory"
        )
    if recipe.list_encoders():
        notes.append("sentence encoders: estimated for texts of sentences.max_length tokens")
    return notes


def _describe_measured(measured: dict[str, Any]) -> str:
    seconds = measured["seconds_per_step"]
    pace = f"{seconds * 1e3:,.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"
    product = f"{measured['matmul_flops'] / 1e12:,.2f} TFLOP/s of a large product"
    share = f"{measured['peak_share']:.0%} of the {product}"
    if measured["peak_share"] > 1:
        share = f"more than the {product}, which was measured on a busy machine"
    text = (
        f"{pace} per step of {measured['batch_size']} x {measured['length']} tokens, "
        f"{measured['tokens_per_second']:,.0f} tokens/s, {share}; "
    )
    if measured["rows"] == measured["batch_size"]:
        return text + f"{measured['steps']} steps measured"
    return text + (
        f"extrapolated from steps of {measured['rows']} of the {measured['batch_size']} rows, "
        "because whole steps take too long here"
    )


def _duration(hours: float | None) -> str:
    if hours is None:
        return "–"
    for least, factor, unit, digits in (
        (2 * 365 * 24, 1 / 24 / 365, "years", ",.0f"),
        (100, 1 / 24, "days", ",.0f"),
        (1, 1, "h", ".1f"),
        (1 / 40, 60, "min", ".0f"),
    ):
        if hours >= least:
            return f"{hours * factor:{digits}} {unit}"
    seconds = hours * 3600
    return f"{seconds:.0f} s" if seconds >= 1 or not seconds else "< 1 s"


def _power(number: float) -> str:
    return f"{number:.1e}".replace("e+", "e") if number else "0"


def _count(number: float) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if number >= size:
            digits = ".3g" if number < 1000 * size else ",.0f"
            return f"{number / size:{digits}}{unit}"
    return f"{number:.0f}"


def _size(num_bytes: float, base: int = 1000, units: Sequence[str] = ("MB", "GB")) -> str:
    number = num_bytes / base**2
    return f"{number:,.0f} {units[0]}" if number < base else f"{number / base:,.1f} {units[1]}"


def _binary_size(num_bytes: float) -> str:
    return _size(num_bytes, 1024, ("MiB", "GiB"))
