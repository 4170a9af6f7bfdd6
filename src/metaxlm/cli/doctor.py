"""`metaxlm doctor`: check a machine, and a recipe on it, before a long run.

Print one line per check. Nothing is looked up that can be tried: products are timed, a checkpoint
is saved and loaded, and a step of the largest batch is taken. Temporary files are removed again.
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

from metaxlm.cli.options import Device, Output, Overrides, Quiet
from metaxlm.errors import MetaXLMError
from metaxlm.progress import console, set_quiet

if TYPE_CHECKING:
    import torch

    from metaxlm.cli.planning import Training
    from metaxlm.model.encoder import EncoderConfig
    from metaxlm.pretrain.checkpoint import Checkpoint
    from metaxlm.recipe import Recipe
    from metaxlm.run.layout import RunLayout

LEAST_VERSIONS = {"torch": (2, 11), "transformers": (5, 0)}
"""Minimum versions, as in pyproject.toml."""
STEP_LIMIT_S = 60.0
"""A step that would take longer is not tried."""
_LEAST_FREE = 1 << 30
_LARGEST_TRIAL = 8e9
_NAME_WIDTH = 16
OK, SKIPPED, WARNING, FAILED = "ok", "skipped", "warning", "FAILED"
_COLORS = {OK: "green", SKIPPED: "dim", WARNING: "yellow", FAILED: "bold red"}

Result = tuple[str, str]
"""Status and detail."""
Checks = dict[str, Callable[[], Result]]


def doctor_command(
    recipe: Annotated[
        Path | None, typer.Argument(help="The experiment; without it, check the machine only.")
    ] = None,
    overrides: Overrides = None,
    output: Output = Path("runs"),
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Check GPU, disk space and shards; save and load a checkpoint; run the largest batch."""
    from metaxlm.pretrain.distributed import choose_device
    from metaxlm.recipe.load import load_recipe

    set_quiet(quiet)
    chosen = choose_device(device)
    checks = list_machine_checks(chosen, output)
    if recipe is not None:
        checks |= list_recipe_checks(load_recipe(recipe, overrides or []), output, chosen)
    statuses = []
    for name, check in checks.items():
        try:
            status, detail = check()
        except MetaXLMError as error:
            status, detail = FAILED, str(error)
        except OSError as error:
            status, detail = FAILED, f"{error.filename or 'disk'}: {error.strerror or error}"
        statuses.append(status)
        _show(status, name, detail)
    if FAILED in statuses:
        raise typer.Exit(1)


def _show(status: str, name: str, detail: str) -> None:
    """Print one line; on a terminal in color, with long details wrapped in their column."""
    if not console.is_terminal:
        console.print(f"{status:<8} {name:<{_NAME_WIDTH}} {detail}", soft_wrap=True, markup=False)
        return
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 1))
    for width in (8, _NAME_WIDTH, None):
        line.add_column(width=width)
    line.add_row(Text(status, _COLORS[status]), Text(name), Text(detail))
    console.print(line)


def list_machine_checks(device: torch.device, output: Path) -> Checks:
    """Return the checks that need no recipe."""
    return {
        "python": lambda: (OK, f"{platform.python_version()}, {sys.executable}"),
        **{package: partial(_check_version, package) for package in LEAST_VERSIONS},
        "device": partial(_check_device, device),
        "bfloat16": partial(_check_bfloat16, device),
        "kernels": partial(_check_kernels, device),
        "matmul": partial(_check_matmul, device),
        "output folder": partial(_check_output, output),
    }


def list_recipe_checks(recipe: Recipe, output: Path, device: torch.device) -> Checks:
    """Return the checks of a recipe: disk space, shards, a checkpoint, the largest batches."""
    from metaxlm.cli.planning import list_trainings
    from metaxlm.run.layout import RunLayout
    from metaxlm.run.pipeline import check_models, check_recipe

    check_recipe(recipe, [])
    check_models(recipe)
    layout = RunLayout(output / recipe.name)
    trainings = [training for training in list_trainings(recipe) if training.recipe.steps]
    checks: Checks = {
        "disk space": partial(_check_disk, trainings, layout),
        "shards": partial(_check_shards, recipe, layout),
    }
    if trainings:
        checks["save and load"] = partial(_check_checkpoint, trainings, output)
    shapes = set()
    for training in trainings:
        if training.shape not in shapes:
            shapes.add(training.shape)
            name = f"step of {training.name}"[:_NAME_WIDTH]
            checks[name] = partial(_check_step, training, device)
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
    return (OK, detail) if free >= _LEAST_FREE else (WARNING, f"{detail}; end other processes")


def _check_bfloat16(device: torch.device) -> Result:
    import torch

    if device.type == "cpu":
        return OK, "not used: a CPU trains in float32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return OK, "supported"
    return WARNING, "not supported; training runs in float32, much slower"


def _check_kernels(device: torch.device) -> Result:
    if device.type == "cpu":
        return OK, "plain torch; the fused kernels are for GPUs"
    from metaxlm.model.kernels import is_available

    if not is_available(device):
        return WARNING, "plain torch; the fused kernels need Triton and an Ampere GPU or newer"
    importlib.import_module("metaxlm.model.kernels.blocks")
    return OK, f"fused, Triton {importlib.metadata.version('triton')}"


def _check_matmul(device: torch.device) -> Result:
    from metaxlm.pretrain.cost import measure_peak

    rate = measure_peak(device) / 1e12
    return OK, f"{rate:,.2f} TFLOP/s for a large product in the training's precision"


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
    """Return the folder, or its nearest existing parent."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())


def _check_disk(trainings: list[Training], layout: RunLayout) -> Result:
    from metaxlm.pretrain.cost import estimate_disk

    needed = sum(estimate_disk(t.config, t.recipe, frozen_body=t.frozen_body) for t in trainings)
    folders = [layout.meta, *(layout.variant(training.name) for training in trainings)]
    there = sum(p.stat().st_size for folder in folders for p in folder.rglob("*") if p.is_file())
    free = shutil.disk_usage(_existing(layout.root)).free
    detail = f"checkpoints and models need {needed / 1e9:,.1f} GB"
    detail += f", {there / 1e9:,.1f} GB of it exist" if there else ""
    detail += f"; {free / 1e9:,.1f} GB are free"
    if needed - there > free:
        return FAILED, f"{detail}; free some, lower keep_checkpoints, or use another --output"
    return OK, detail


def _check_shards(recipe: Recipe, layout: RunLayout) -> Result:
    from metaxlm.run.preparation import MONOLINGUAL, MULTILINGUAL
    from metaxlm.run.verification import verify

    if not layout.shards.is_dir():
        return SKIPPED, f"none yet; `metaxlm run` makes them in {layout.shards}"
    wanted = [layout.shards / MULTILINGUAL / language for language in recipe.languages]
    if recipe.meta.model is None:
        wanted.append(layout.shards / MONOLINGUAL / recipe.source_language)
    problems = {folder: "missing" for folder in wanted if not folder.is_dir()}
    size = 0
    if not problems:
        result = verify(layout.shards)
        size = result.bytes
        problems = {Path(path): problem for path, problem in sorted(result.problems.items())}
    if problems:
        path, problem = next(iter(problems.items()))
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return FAILED, f"{path}: {problem}{more}; run the stage `shards` again"
    return OK, f"{len(wanted)}, {size / 1e6:,.1f} MB, all digests match"


def _check_checkpoint(trainings: list[Training], output: Path) -> Result:
    """Save and load a checkpoint of the recipe's size, or a small one if it is too large."""
    from metaxlm.pretrain.checkpoint import load_newest, save_checkpoint
    from metaxlm.pretrain.cost import estimate_checkpoint

    sizes = [estimate_checkpoint(t.config, frozen_body=t.frozen_body) for t in trainings]
    place, config = _existing(output), trainings[sizes.index(max(sizes))].config
    is_whole = 2 * max(sizes) < min(_LARGEST_TRIAL, shutil.disk_usage(place).free)
    if not is_whole:
        config = replace(config, vocab_size=min(config.vocab_size, 1_000), num_layers=1)
    saved = _make_checkpoint(config)
    with TemporaryDirectory(prefix=".tmp-doctor-", dir=place) as folder:
        start = time.perf_counter()
        save_checkpoint(Path(folder), saved)
        middle = time.perf_counter()
        loaded = load_newest(Path(folder))
        end = time.perf_counter()
    tensors = saved.model | saved.moments
    found = {} if loaded is None else loaded.model | loaded.moments
    if found.keys() != tensors.keys() or any(
        not tensors[name].equal(found[name]) for name in tensors
    ):
        return FAILED, f"{place}: loaded values differ from saved values; check the disk"
    num_bytes = sum(tensor.nbytes for tensor in tensors.values())
    what = f"{num_bytes / 1e6:,.1f} MB" + ("" if is_whole else ", smaller than the recipe's")
    return OK, f"{what}: saved in {middle - start:.1f} s, loaded in {end - middle:.1f} s"


def _make_checkpoint(config: EncoderConfig) -> Checkpoint:
    """Make a checkpoint of a random model."""
    import torch

    from metaxlm.model.encoder import MaskedLM
    from metaxlm.pretrain.checkpoint import Checkpoint, TrainingState
    from metaxlm.pretrain.optimizer import MOMENTS

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MaskedLM(config).state_dict()
    moments = {
        f"{moment}.{name}": tensor * scale
        for moment, scale in zip(MOMENTS, (0.5, 0.25), strict=True)
        for name, tensor in model.items()
    }
    return Checkpoint(model, moments, TrainingState(step=1))


def _check_step(training: Training, device: torch.device) -> Result:
    """Take a step of the largest batch: full rows, and the maximum number of predictions."""
    from metaxlm.pretrain.cost import affordable_rows, measure_step

    config, recipe = training.config, training.recipe
    batch = f"{recipe.batch_size} x {recipe.length} tokens"
    affordable = affordable_rows(config, recipe, device, STEP_LIMIT_S)
    if affordable < recipe.batch_size:
        return SKIPPED, (
            f"{batch} take more than {STEP_LIMIT_S:.0f} s on this device; "
            f"about {affordable} rows would fit that time"
        )
    measured = measure_step(
        config, recipe, device, steps=1, limit_s=STEP_LIMIT_S * 4, frozen_body=training.frozen_body
    )
    if not math.isfinite(measured.loss):
        return FAILED, f"{batch}: the loss is {measured.loss}"
    memory = f", {measured.peak_bytes / 2**30:,.1f} GiB" if measured.peak_bytes else ""
    return OK, f"{batch}: {measured.seconds:,.3f} s{memory}, loss {measured.loss:.2f}"
