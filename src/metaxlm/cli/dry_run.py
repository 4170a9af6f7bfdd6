"""`metaxlm run --dry`: list all work of a recipe and what is done already.

Print one line per stage, and one line per model and task with its evaluation jobs. Run the same
checks as `metaxlm run`, and write nothing to the run folder. Task data of the built-in corpus that
does not exist yet is written to the system's temporary folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich import box
from rich.table import Table

from metaxlm.cli.execution import Request, Work
from metaxlm.errors import MetaXLMError
from metaxlm.manifest import MARKER, read_sealed
from metaxlm.pretrain.checkpoint import list_checkpoints
from metaxlm.pretrain.distributed import DistributedContext, choose_device
from metaxlm.progress import console, say
from metaxlm.run.cells import Cell
from metaxlm.run.grid import Grid
from metaxlm.run.layout import RunLayout
from metaxlm.run.pipeline import check_models
from metaxlm.run.preparation import prepare_corpus
from metaxlm.run.stage import Stage

_DIGEST = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")
_NEW_DATA = "again, its data will be made again"

Reasons = Mapping[Path, str | None]
"""Why a job is missing, by its folder: None if it is complete, empty if it is new."""


def list_work(request: Request) -> None:
    """Print the stages and evaluation jobs of a run; write nothing."""
    if os.environ.get("RANK", "0") != "0":
        return  # rank 0 prints
    work = Work.plan(request, DistributedContext.alone(choose_device(request.device)))
    check_models(request.recipe, work.wanted)
    with _task_data(work) as (grid, is_new):
        cells = _list_cells(grid) if request.measures else []
    if console.quiet:
        return
    table = Table("work", "jobs", "state", title=request.recipe.name, title_justify="left")
    table.box, table.pad_edge = box.SIMPLE_HEAD, False
    notes = []
    for stage in work.wanted:
        state, reason = _describe_stage(stage)
        table.add_row(stage.title, "", state)
        notes += [f"{stage.title}: {reason}"] if reason else []
    table.add_section()
    reasons = {cell.folder: _find_reason(cell, is_new) for cell in cells}
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(f"{cell.key.model} {cell.key.task}", []).append(cell)
    for name, members in groups.items():
        table.add_row(name, *_describe_group(members, reasons))
    console.print(table)
    for note in [*notes, *_list_reasons(groups, reasons)]:
        say(_DIGEST.sub(r"\1…", note))
    if cells:
        done = sum(reason is None for reason in reasons.values())
        say(f"{done} of {len(cells)} evaluation jobs done")


@contextmanager
def _task_data(work: Work) -> Iterator[tuple[Grid, bool]]:
    """Yield the grid with task data, and whether the built-in corpus will be made again."""
    recipe, layout = work.request.recipe, work.request.layout
    if recipe.corpus.source != "phrasebook" or work.stages_made("corpus"):
        yield work.grid, False
        return
    with TemporaryDirectory(prefix="metaxlm-") as name:
        there = RunLayout(Path(name))
        prepare_corpus(recipe, there, there.corpus)
        data = recipe.evaluation.data or there.corpus / "tasks"
        evaluation = recipe.evaluation.model_copy(update={"data": data})
        changed = recipe.model_copy(update={"evaluation": evaluation})
        try:
            yield Grid(changed, layout, work.grid.pretrained, work.grid.device), True
        except MetaXLMError as error:
            message = str(error).replace(str(there.corpus), str(layout.corpus))
            raise MetaXLMError(message) from error


def _list_cells(grid: Grid) -> list[Cell]:
    """Return all jobs by variant, those of its finished model first."""
    models = {model.name: model for each in grid.evaluations for model in each.models}
    last, variants = grid.recipe.pretraining.steps, list(grid.recipe.variants)

    def find_place(cell: Cell) -> tuple[int, int]:
        model = models[cell.key.model]
        step = model.step or 0
        return variants.index(model.variant or ""), 0 if step == last else step

    return sorted(grid.list_cells(), key=find_place)


def _find_reason(cell: Cell, is_new: bool) -> str | None:
    if is_new:  # existing jobs used data that will be written again
        return _NEW_DATA if cell.folder.exists() else ""
    return cell.find_reason()


def _describe_stage(stage: Stage) -> tuple[str, str]:
    """Return the state of a stage, and why it runs again."""
    if stage.is_complete():
        return "done", ""
    if step := _find_progress(stage):
        return f"at step {step:,}", ""
    reason = stage.find_reason().removeprefix("running").strip()
    return "again" if reason else "to do", reason


def _find_progress(stage: Stage) -> int:
    """Return the step from which an interrupted training run will resume; 0 if it starts."""
    if stage.work_dir is None:
        return 0
    try:
        if read_sealed(stage.work_dir / MARKER).get("fingerprint") != stage.fingerprint:
            return 0
    except MetaXLMError:
        return 0
    checkpoints = list_checkpoints(stage.work_dir)
    return int(checkpoints[-1].name.removeprefix("step-")) if checkpoints else 0


def _describe_group(members: Sequence[Cell], reasons: Reasons) -> tuple[str, str]:
    """Return names and state of the jobs of a model and task."""
    missing = [cell for cell in members if reasons[cell.folder] is not None]
    if not missing:
        return name_cells(members), "done"
    if done := len(members) - len(missing):
        return name_cells(missing), f"{done} of {len(members)} done"
    is_again = all(reasons[cell.folder] for cell in missing)
    return name_cells(missing), "again" if is_again else "to do"


def name_cells(cells: Iterable[Cell]) -> str:
    """Name jobs by source language and seeds, such as `en-0..2 de-0`."""
    seeds: dict[str, list[int]] = {}
    for cell in cells:
        seeds.setdefault(cell.key.source, []).append(cell.key.seed)
    names: list[str] = []
    for source, numbers in seeds.items():
        runs: list[list[int]] = []
        for number in sorted(numbers):
            if runs and runs[-1][-1] == number - 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        names += [f"{source}-{r[0]}" + (f"..{r[-1]}" if len(r) > 1 else "") for r in runs]
    return " ".join(names)


def _list_reasons(groups: Mapping[str, Sequence[Cell]], reasons: Reasons) -> list[str]:
    """Return why jobs run again, one line per reason."""
    by_reason: dict[str, list[str]] = {}
    for name, members in groups.items():
        for reason in dict.fromkeys(filter(None, (reasons[cell.folder] for cell in members))):
            same = [cell for cell in members if reasons[cell.folder] == reason]
            by_reason.setdefault(reason, []).append(f"{name} {name_cells(same)}")
    return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
