"""`metaxlm doctor`: check a machine, and a recipe on it, before a long run.

Print one line per check. Checks run the real operation where possible: a large product is timed, a
checkpoint is saved and loaded, and the largest batch is run. Temporary files are removed.
"""

from __future__ import annotations

import importlib.metadata
import math
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument

from metaxlm.cli.options import Device, Output, Overrides, Quiet
from metaxlm.errors import MetaXLMError
from metaxlm.progress import console, set_quiet

if TYPE_CHECKING:
    import torch

    from metaxlm.cli.plan import TrainingRun
    from metaxlm.recipe import ExecutionRecipe, Recipe
    from metaxlm.run.layout import RunLayout

LEAST_VERSIONS = {"torch": (2, 11), "transformers": (5, 0)}
"""Minimum versions, as in pyproject.toml."""
STEP_LIMIT_S = 60.0  # a step that would take longer is not tried
_LARGEST_TRIAL = 8e9
_NAME_WIDTH = 16
OK, SKIPPED, WARNING, FAILED = "ok", "skipped", "warning", "FAILED"
_COLORS = {OK: "green", SKIPPED: "dim", WARNING: "yellow", FAILED: "bold red"}

Result = tuple[str, str]  # status and detail


def doctor_command(
    recipe: Annotated[Path | None, Argument(help="Recipe (default: check the machine).")] = None,
    overrides: Overrides = None,
    output: Output = Path("runs"),
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Check GPU, disk space and shards; save and load a checkpoint; run the largest batch."""
    from rich.text import Text

    from metaxlm.pretrain.distributed import choose_device
    from metaxlm.recipe.recipe_file import load_recipe

    set_quiet(quiet)
    chosen = choose_device(device)
    checks: dict[str, Callable[[], Result]] = {
        "python": lambda: (OK, f"{platform.python_version()}, {sys.executable}"),
        **{package: partial(_check_version, package) for package in LEAST_VERSIONS},
        "device": partial(_check_device, chosen),
        "precision": partial(_check_precision, chosen),
        "kernels": partial(_check_kernels, chosen),
        "matmul": partial(_check_matmul, chosen),
        "output folder": partial(_check_output, output),
    }
    if recipe is not None:
        checks |= _list_recipe_checks(load_recipe(recipe, overrides or []), output, chosen)
    statuses = []
    for name, check in checks.items():
        try:
            status, detail = check()
        except MetaXLMError as error:
            status, detail = FAILED, str(error)
        except OSError as error:
            status, detail = FAILED, f"{error.filename or 'disk'}: {error.strerror or error}"
        statuses.append(status)
        line = Text.assemble((f"{status:<8}", _COLORS[status]), f" {name:<{_NAME_WIDTH}} {detail}")
        console.print(line, soft_wrap=True)
    if FAILED in statuses:
        raise typer.Exit(1)


def _list_recipe_checks(
    recipe: Recipe, output: Path, device: torch.device
) -> dict[str, Callable[[], Result]]:
    from metaxlm.cli.plan import list_training_runs
    from metaxlm.run.grid import check_recipe
    from metaxlm.run.layout import RunLayout
    from metaxlm.run.stages import check_models

    check_recipe(recipe, [])
    check_models(recipe)
    layout = RunLayout(output / recipe.name)
    runs = [run for run in list_training_runs(recipe) if run.recipe.steps]
    checks: dict[str, Callable[[], Result]] = {
        "disk space": partial(_check_disk, runs, layout),
        "shards": partial(_check_shards, recipe, layout),
    }
    if runs:
        checks["save and load"] = partial(_check_checkpoint, runs, output)
    shapes: dict[object, TrainingRun] = {}
    for run in runs:
        shapes.setdefault(run.shape, run)
    for run in shapes.values():
        checks[f"step of {run.name}"[:_NAME_WIDTH]] = partial(
            _check_step, run, device, recipe.execution
        )
    return checks


def _check_version(package: str) -> Result:
    found, least = importlib.metadata.version(package), LEAST_VERSIONS[package]
    numbers = tuple(int(part) for part in found.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < least:
        return FAILED, f"{found}; pip install '{package}>={'.'.join(map(str, least))}'"
    return OK, found


def _check_device(device: torch.device) -> Result:
    from metaxlm.pretrain.cost import free_memory
    from metaxlm.pretrain.distributed import describe_device

    name, free = describe_device(device), free_memory(device)
    if free is None:
        return OK, name
    detail = f"{name}; {free / 2**30:,.1f} GiB of memory free"
    return (OK, detail) if free >= 1 << 30 else (WARNING, f"{detail}; end other processes")


def _check_precision(device: torch.device) -> Result:
    from metaxlm.pretrain.distributed import choose_dtype

    return OK, f"{str(choose_dtype('auto', device)).removeprefix('torch.')} for `precision: auto`"


def _check_kernels(device: torch.device) -> Result:
    if device.type != "cuda":
        return OK, "plain torch; the fused kernels are for CUDA devices"
    from metaxlm.model.kernels import is_available

    if not is_available(device):
        return WARNING, "plain torch; the fused kernels need Triton and an Ampere GPU or newer"
    importlib.import_module("metaxlm.model.kernels.blocks")
    return OK, f"fused, Triton {importlib.metadata.version('triton')}"


def _check_matmul(device: torch.device) -> Result:
    from metaxlm.pretrain.cost import measure_peak

    rate = measure_peak(device) / 1e12
    return OK, f"{rate:,.2f} TFLOP/s for a large product in the precision of training"


def _check_output(output: Path) -> Result:
    """Write, flush and rename a file as a checkpoint does."""
    from metaxlm.files import write_text

    if output.exists() and not output.is_dir():
        return FAILED, f"{output}: is a file; choose another --output"
    with TemporaryDirectory(prefix=".tmp-doctor-", dir=_existing(output)) as folder:
        start = time.perf_counter()
        write_text(Path(folder) / "trial", "written\n")
        seconds = time.perf_counter() - start
    return OK, f"{output} can be written and flushed, {seconds * 1e3:.0f} ms"


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())


def _check_disk(runs: list[TrainingRun], layout: RunLayout) -> Result:
    from metaxlm.pretrain.cost import estimate_disk

    needed = sum(estimate_disk(r.config, r.recipe, frozen_body=r.frozen_body) for r in runs)
    folders = [layout.meta, *(layout.variant(run.name) for run in runs)]
    there = sum(p.stat().st_size for folder in folders for p in folder.rglob("*") if p.is_file())
    free = shutil.disk_usage(_existing(layout.root)).free
    detail = f"checkpoints and models need {needed / 1e9:,.1f} GB"
    detail += f", {there / 1e9:,.1f} GB of it exist" if there else ""
    detail += f"; {free / 1e9:,.1f} GB are free"
    if needed - there > free:
        return FAILED, f"{detail}; free some, lower keep_checkpoints, or use another --output"
    return OK, detail


def _check_shards(recipe: Recipe, layout: RunLayout) -> Result:
    from metaxlm.run.prepare import MONOLINGUAL, MULTILINGUAL
    from metaxlm.run.verify import verify

    if not layout.shards.is_dir():
        return SKIPPED, f"none yet; `metaxlm run` writes them to {layout.shards}"
    folders = [layout.shards / MULTILINGUAL / language for language in recipe.languages]
    if recipe.meta.model is None:
        folders.append(layout.shards / MONOLINGUAL / recipe.source_language)
    problems = {folder: "missing" for folder in folders if not folder.is_dir()}
    result = None if problems else verify(layout.shards)
    problems |= {} if result is None else result.problems
    if problems:
        path, problem = min(problems.items())
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return FAILED, f"{path}: {problem}{more}; run the stage `shards` again"
    size = 0 if result is None else result.bytes
    return OK, f"{len(folders)}, {size / 1e6:,.1f} MB, all digests match"


def _check_checkpoint(runs: list[TrainingRun], output: Path) -> Result:
    """Save and load a checkpoint of the recipe's size, or a small one if it is too large."""
    import torch

    from metaxlm.model.masked_lm import MaskedLM
    from metaxlm.pretrain import checkpoint
    from metaxlm.pretrain.cost import estimate_checkpoint
    from metaxlm.pretrain.optimizer import MOMENTS

    sizes = [estimate_checkpoint(run.config, frozen_body=run.frozen_body) for run in runs]
    place, config = _existing(output), runs[sizes.index(max(sizes))].config
    is_whole = 2 * max(sizes) < min(_LARGEST_TRIAL, shutil.disk_usage(place).free)
    if not is_whole:
        config = replace(config, vocab_size=min(config.vocab_size, 1_000), num_layers=1)
    with torch.random.fork_rng(devices=[]):
        model = MaskedLM(config).state_dict()
    moments = {
        f"{moment}.{name}": tensor * (number + 1)
        for number, moment in enumerate(MOMENTS)
        for name, tensor in model.items()
    }
    saved = checkpoint.Checkpoint(model, moments, checkpoint.TrainingState(step=1))
    with TemporaryDirectory(prefix=".tmp-doctor-", dir=place) as folder:
        start = time.perf_counter()
        checkpoint.save_checkpoint(Path(folder), saved)
        middle = time.perf_counter()
        loaded = checkpoint.load_newest(Path(folder))
        end = time.perf_counter()
    tensors = model | moments
    found = {} if loaded is None else loaded.model | loaded.moments
    if found.keys() != tensors.keys() or any(not tensors[n].equal(found[n]) for n in tensors):
        return FAILED, f"{place}: loaded values differ from saved values; check the disk"
    num_bytes = sum(tensor.nbytes for tensor in tensors.values())
    what = f"{num_bytes / 1e6:,.1f} MB" + ("" if is_whole else ", smaller than the recipe's")
    return OK, f"{what}: saved in {middle - start:.1f} s, loaded in {end - middle:.1f} s"


def _check_step(run: TrainingRun, device: torch.device, execution: ExecutionRecipe) -> Result:
    """Run a step of the largest batch: full rows, and the maximum number of predictions."""
    from metaxlm.pretrain.cost import affordable_rows, measure_step

    config, recipe = run.config, run.recipe
    batch = f"{recipe.batch_size} x {recipe.length} tokens"
    rows = affordable_rows(config, recipe, device, STEP_LIMIT_S)
    if rows < recipe.batch_size:
        slow = f"{batch} take more than {STEP_LIMIT_S:.0f} s on this device"
        return SKIPPED, f"{slow}; about {rows} rows would fit that time"
    measured = measure_step(
        config, recipe, device, steps=1, limit_s=STEP_LIMIT_S * 4, frozen_body=run.frozen_body,
        execution=execution,
    )  # fmt: skip
    if not math.isfinite(measured.loss):
        return FAILED, f"{batch}: the loss is {measured.loss}"
    memory = f", {measured.peak_bytes / 2**30:,.1f} GiB" if measured.peak_bytes else ""
    return OK, f"{batch}: {measured.seconds:,.3f} s{memory}, loss {measured.loss:.2f}"
