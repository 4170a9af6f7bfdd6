"""`metaxlm doctor`: whether a machine, and a recipe on it, will do what a long run asks of them.

Comes in: a device, and maybe a recipe. Goes out: one line a check, with what was found and what to
do. Everything is tried and not looked up: products are timed, a checkpoint is saved, flushed, and
loaded again, a whole step of the longest batch is taken. What is written is removed again.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
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
    from metaxlm.config import Recipe
    from metaxlm.experiments.layout import RunLayout
    from metaxlm.model.encoder import EncoderConfig
    from metaxlm.pretrain.checkpoint import Checkpoint

LEAST_VERSIONS = {"torch": (2, 11), "transformers": (5, 0)}
"""What pyproject.toml asks for."""
STEP_LIMIT_S = 60.0
"""A whole step that would take longer is not tried."""
_LEAST_FREE = 1 << 30
_LARGEST_TRIAL = 8e9
_NAME_WIDTH = 16


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    FAILED = "FAILED"


_COLORS = {Status.OK: "green", Status.SKIPPED: "dim", Status.WARNING: "yellow"}
Result = tuple[Status, str]


@dataclass(frozen=True)
class Check:
    """Something to try, and what it is called."""

    name: str
    act: Callable[[], Result]

    def run(self) -> Result:
        """Try it; what goes wrong in a way that a user can mend is a failure of the check."""
        try:
            return self.act()
        except MetaXLMError as error:
            return Status.FAILED, str(error)
        except OSError as error:
            return Status.FAILED, f"{error.filename or 'disk'}: {error.strerror or error}"


def doctor_command(
    recipe: Annotated[
        Path | None, typer.Argument(help="The experiment; without it only the machine is checked.")
    ] = None,
    overrides: Overrides = None,
    output: Output = Path("runs"),
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Check device, disk, shards, a save and a load, and the longest batch, before a long run."""
    from metaxlm.pretrain.device import choose_device
    from metaxlm.recipe_file import load_recipe

    set_quiet(quiet)
    chosen = choose_device(device)
    checks = list(list_machine_checks(chosen, output))
    if recipe is not None:
        checks += list_recipe_checks(load_recipe(recipe, overrides or []), output, chosen)
    failures = 0
    for check in checks:
        status, detail = check.run()
        failures += status is Status.FAILED
        _show(status, check.name, detail)
    if failures:
        raise typer.Exit(1)


def _show(status: Status, name: str, detail: str) -> None:
    """Print one line; on a terminal with color, and continued below its own column."""
    if not console.is_terminal:
        console.print(f"{status:<8} {name:<{_NAME_WIDTH}} {detail}", soft_wrap=True, markup=False)
        return
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 1))
    line.add_column(width=8)
    line.add_column(width=_NAME_WIDTH)
    line.add_column()
    line.add_row(Text(status, _COLORS.get(status, "bold red")), Text(name), Text(detail))
    console.print(line)


def list_machine_checks(device: torch.device, output: Path) -> Iterator[Check]:
    """Return what can be checked without a recipe."""
    yield Check("python", _check_python)
    for package in LEAST_VERSIONS:
        yield Check(package, lambda package=package: _check_version(package))  # type: ignore[misc]
    yield Check("device", lambda: _check_device(device))
    yield Check("bfloat16", lambda: _check_bfloat16(device))
    yield Check("kernels", lambda: _check_kernels(device))
    yield Check("matmul", lambda: _check_matmul(device))
    yield Check("output folder", lambda: _check_output(output))


def list_recipe_checks(recipe: Recipe, output: Path, device: torch.device) -> list[Check]:
    """Return what a recipe adds: disk space, shards, a checkpoint, the longest batches."""
    from metaxlm.cli.planning import list_trainings
    from metaxlm.experiments.layout import RunLayout
    from metaxlm.experiments.pipeline import check_models, check_recipe

    check_recipe(recipe, [])
    check_models(recipe)
    layout = RunLayout(output / recipe.name)
    trainings = [training for training in list_trainings(recipe) if training.recipe.steps]
    by_shape = {training.shape: training for training in reversed(trainings)}
    checks = [
        Check("disk space", lambda: _check_disk(trainings, layout)),
        Check("shards", lambda: _check_shards(recipe, layout)),
    ]
    if trainings:
        largest = max(trainings, key=_checkpoint_bytes)
        checks.append(Check("save and load", lambda: _check_checkpoint(largest, output)))
    for training in reversed(by_shape.values()):
        name = f"step of {training.name}"[:_NAME_WIDTH]
        checks.append(Check(name, lambda t=training: _check_step(t, device)))  # type: ignore[misc]
    return checks


def _check_python() -> Result:
    return Status.OK, f"{platform.python_version()}, {sys.executable}"


def _check_version(package: str) -> Result:
    found, least = importlib.metadata.version(package), LEAST_VERSIONS[package]
    numbers = tuple(int(part) for part in found.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < least:
        wanted = ".".join(map(str, least))
        return Status.FAILED, f"{found}; pip install '{package}>={wanted}'"
    return Status.OK, found


def _check_device(device: torch.device) -> Result:
    from metaxlm.pretrain.device import describe_device
    from metaxlm.pretrain.measure import free_memory

    name, free = describe_device(device), free_memory(device)
    if free is None:
        return Status.OK, name
    detail = f"{name}; {free / 2**30:,.1f} GiB of memory free"
    if free < _LEAST_FREE:
        return Status.WARNING, f"{detail}; end what else uses it"
    return Status.OK, detail


def _check_bfloat16(device: torch.device) -> Result:
    import torch

    if device.type == "cpu":
        return Status.OK, "not used on a CPU, which trains in float32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return Status.OK, "the device computes in it"
    return Status.WARNING, "the device does not have it; training runs in float32, much slower"


def _check_kernels(device: torch.device) -> Result:
    if device.type == "cpu":
        return Status.OK, "plain torch; the fused ones are for GPUs"
    from metaxlm.model.fused import is_available

    if not is_available(device):
        return Status.WARNING, "the fused ones need Triton and an NVIDIA GPU since Ampere; slower"
    importlib.import_module("metaxlm.model.kernels.blocks")
    return Status.OK, f"fused, Triton {importlib.metadata.version('triton')}"


def _check_matmul(device: torch.device) -> Result:
    from metaxlm.pretrain.cost import measure_peak

    rate = measure_peak(device) / 1e12
    return Status.OK, f"{rate:,.2f} TFLOP/s, a large product in the training's type"


def _check_output(output: Path) -> Result:
    """Write, flush and rename as a checkpoint does, in the folder or where it will be made."""
    from metaxlm.files import write_text

    if output.exists() and not output.is_dir():
        return Status.FAILED, f"{output}: a file stands there; choose another --output"
    with TemporaryDirectory(prefix=".tmp-doctor-", dir=_existing(output)) as folder:
        start = time.perf_counter()
        write_text(Path(folder) / "trial", "written\n")
        seconds = time.perf_counter() - start
    return Status.OK, f"{output} can be written and flushed, {seconds * 1e3:.0f} ms"


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that is there."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())


def _checkpoint_bytes(training: Training) -> int:
    from metaxlm.pretrain.cost import estimate_checkpoint

    return estimate_checkpoint(training.config, frozen_body=training.frozen_body)


def _check_disk(trainings: list[Training], layout: RunLayout) -> Result:
    from metaxlm.pretrain.cost import estimate_disk

    needed = sum(estimate_disk(t.config, t.recipe, frozen_body=t.frozen_body) for t in trainings)
    folders = [layout.meta, *(layout.variant(training.name) for training in trainings)]
    there = sum(p.stat().st_size for folder in folders for p in folder.rglob("*") if p.is_file())
    free = shutil.disk_usage(_existing(layout.root)).free
    detail = f"checkpoints and models need {needed / 1e9:,.1f} GB"
    detail += f", {there / 1e9:,.1f} GB of it are there" if there else ""
    detail += f"; {free / 1e9:,.1f} GB are free"
    if needed - there > free:
        return (
            Status.FAILED,
            f"{detail}; free some, lower keep_checkpoints, or use another --output",
        )
    return Status.OK, detail


def _check_shards(recipe: Recipe, layout: RunLayout) -> Result:
    from metaxlm.experiments.preparation import MONOLINGUAL, MULTILINGUAL
    from metaxlm.experiments.verification import verify

    if not layout.shards.is_dir():
        return Status.SKIPPED, f"none yet; `metaxlm run` makes them in {layout.shards}"
    wanted = [layout.shards / MULTILINGUAL / language for language in recipe.languages]
    if recipe.meta.model is None:
        wanted.append(layout.shards / MONOLINGUAL / recipe.source_language)
    missing = [folder for folder in wanted if not folder.is_dir()]
    if missing:
        return Status.FAILED, f"{missing[0]}: missing (and {len(missing) - 1} more); run them again"
    result = verify(layout.shards)
    if result.problems:
        path, problem = next(iter(sorted(result.problems.items())))
        more = len(result.problems) - 1
        return Status.FAILED, f"{path}: {problem}" + (f" (and {more} more)" if more else "")
    return Status.OK, f"{len(wanted)}, {result.bytes / 1e6:,.1f} MB, all as they were written"


def _check_checkpoint(training: Training, output: Path) -> Result:
    """Save a checkpoint of the recipe's size, or a small one where it is too large, and load it."""
    from dataclasses import replace

    from metaxlm.pretrain.checkpoint import load_newest, save_checkpoint

    config, place = training.config, _existing(output)
    size = _checkpoint_bytes(training)
    is_whole = 2 * size < min(_LARGEST_TRIAL, shutil.disk_usage(place).free)
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
        return Status.FAILED, f"{place}: what was loaded is not what was saved; check the disk"
    num_bytes = sum(tensor.nbytes for tensor in tensors.values())
    what = f"{num_bytes / 1e6:,.1f} MB" + ("" if is_whole else ", smaller than the recipe's")
    return Status.OK, f"{what}: saved in {middle - start:.1f} s, loaded in {end - middle:.1f} s"


def _make_checkpoint(config: EncoderConfig) -> Checkpoint:
    """Make a checkpoint of a fresh model; moments are as large as weights."""
    import torch

    from metaxlm.model.encoder import MaskedLM
    from metaxlm.pretrain.checkpoint import Checkpoint, TrainingState

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MaskedLM(config).state_dict()
    moments = {
        f"{moment}.{name}": tensor * scale
        for moment, scale in (("exp_avg", 0.5), ("exp_avg_sq", 0.25))
        for name, tensor in model.items()
    }
    return Checkpoint(model, moments, TrainingState(step=1))


def _check_step(training: Training, device: torch.device) -> Result:
    """Take a step of the longest batch: every row full, as many predictions as there can be."""
    from metaxlm.pretrain.measure import affordable_rows, measure_step

    config, recipe = training.config, training.recipe
    batch = f"{recipe.batch_size} x {recipe.length} tokens"
    affordable = affordable_rows(config, recipe, device, STEP_LIMIT_S)
    if affordable < recipe.batch_size:
        return Status.SKIPPED, (
            f"{batch} take more than {STEP_LIMIT_S:.0f} s on this device; "
            f"about {affordable} rows would fit that time"
        )
    measured = measure_step(
        config, recipe, device, steps=1, limit_s=STEP_LIMIT_S * 4, frozen_body=training.frozen_body
    )
    if not measured.is_finite:
        return Status.FAILED, f"{batch}: the loss is {measured.loss}"
    memory = f", {measured.peak_bytes / 2**30:,.1f} GiB" if measured.peak_bytes else ""
    return Status.OK, f"{batch}: {measured.seconds:,.3f} s{memory}, loss {measured.loss:.2f}"
