"""The text of `metaxlm run --dry`: a table that fits 80 columns, and what its times rest on.

Come in: stages and cells with their states and estimates, as `dry_run.py` finds them. Goes out: a
line for each stage, a line for the cells of each model and task that names every cell still to be
made, the total, and notes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from rich import box
from rich.table import Table

from metaxlm.experiments.cells import Cell
from metaxlm.experiments.estimates import Basis, Estimate
from metaxlm.pretrain.device import describe_device
from metaxlm.progress import console, say

_DIGEST = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")
_RESTS_ON: Mapping[Basis, str] = {
    "measured": "timed on this device just now",
    "recorded": "from what earlier ones took",
    "computed": "from their tokens at a rate timed just now (rough)",
    "usual": "at rates of other machines (rough)",
    "unknown": "not known (?)",
}


@dataclass(frozen=True)
class Item:
    """A stage's line."""

    title: str
    state: str
    estimate: Estimate
    reason: str = ""
    shared: bool = False
    """Whether all processes of torchrun work at it."""


@dataclass(frozen=True)
class PlannedCell:
    """A cell; its reason is None if it is complete, and empty if nothing is there."""

    cell: Cell
    reason: str | None
    estimate: Estimate


def show_work(
    name: str,
    device: torch.device,
    stages: Sequence[Item],
    cells: Sequence[PlannedCell],
    problems: Iterable[str],
) -> None:
    """Print everything."""
    groups: dict[tuple[str, str], list[PlannedCell]] = {}
    for cell in cells:
        groups.setdefault((cell.cell.key.model, cell.cell.key.task), []).append(cell)
    table = _start_table(f"{name} on {describe_device(device)}")
    for item in stages:
        time = "" if item.state == "done" else tell_seconds(item.estimate.seconds)
        table.add_row(item.title, "", item.state, time)
    table.add_section()
    for (model, task), members in groups.items():
        table.add_row(f"{model} {task}", *_describe_group(members))
    table.add_section()
    _add_totals(table, stages, cells)
    console.print(table)
    for note in [*_list_reasons(stages, groups), *problems, tell_basis(stages, cells)]:
        say(note)


def _start_table(title: str) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("work", overflow="fold")
    table.add_column("cells", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    return table


def _describe_group(members: Sequence[PlannedCell]) -> tuple[str, str, str]:
    """Return names, state and time of the cells of a model and task."""
    missing = [cell for cell in members if cell.reason is not None]
    if not missing:
        return name_cells(members), "done", ""
    done = len(members) - len(missing)
    again = sum(bool(cell.reason) for cell in missing)
    state = "again" if again == len(missing) else "to do"
    if done:
        state = f"{done} of {len(members)} done"
    seconds = _add_seconds(cell.estimate for cell in missing)
    return name_cells(missing), state, tell_seconds(seconds)


def name_cells(cells: Iterable[PlannedCell]) -> str:
    """Name cells as their folders, rows of seeds together: `en-0..2 de-0`."""
    seeds: dict[str, list[int]] = {}
    for cell in cells:
        seeds.setdefault(cell.cell.key.source, []).append(cell.cell.key.seed)
    names: list[str] = []
    for source, numbers in seeds.items():
        rows: list[list[int]] = []
        for number in sorted(numbers):
            if rows and rows[-1][-1] == number - 1:
                rows[-1].append(number)
            else:
                rows.append([number])
        names += [f"{source}-{r[0]}" + (f"..{r[-1]}" if len(r) > 1 else "") for r in rows]
    return " ".join(names)


def _add_totals(table: Table, stages: Sequence[Item], cells: Sequence[PlannedCell]) -> None:
    left = [item.estimate for item in stages if item.state != "done"]
    made = [cell.estimate for cell in cells if cell.reason is not None]
    unknown = any(estimate.seconds is None for estimate in [*left, *made])
    done = f"{len(cells) - len(made)} of {len(cells)} cells done" if cells else ""
    more = "+ ? " if unknown else ""
    total = sum(estimate.seconds or 0.0 for estimate in [*left, *made])
    table.add_row("total", done, "", more + tell_seconds(total))
    size, jointly = count_processes()
    if size > 1:
        shared = divide_work(stages, cells, size, jointly)
        table.add_row(f"by {size} processes", "", "", more + tell_seconds(shared))


def count_processes() -> tuple[int, bool]:
    """Return how many processes were started, and whether they train one model together."""
    for name, jointly in (("WORLD_SIZE", True), ("SLURM_ARRAY_TASK_COUNT", False)):
        if (number := os.environ.get(name, "")).isdecimal():
            return int(number), jointly
    return 1, True


def divide_work(
    stages: Sequence[Item], cells: Sequence[PlannedCell], size: int, jointly: bool
) -> float:
    """Return the seconds that so many processes need if they share what they can evenly.

    Together they share every training. Side by side each takes another variant, and all wait for
    what every variant needs.
    """
    alone, shared, longest = 0.0, 0.0, 0.0
    for item in stages:
        seconds = 0.0 if item.state == "done" else item.estimate.seconds or 0.0
        has_variant = " " in item.title
        if (item.shared and jointly) or (has_variant and not jointly):
            shared += seconds
            longest = longest if jointly else max(longest, seconds)
        else:
            alone += seconds
    for cell in cells:
        seconds = 0.0 if cell.reason is None else cell.estimate.seconds or 0.0
        shared, longest = shared + seconds, max(longest, seconds)
    return alone + max(shared / size, longest)


def _list_reasons(
    stages: Sequence[Item], groups: Mapping[tuple[str, str], Sequence[PlannedCell]]
) -> list[str]:
    """Say why work is done again; cells with one reason share a line."""
    lines = [f"{item.title}: {item.reason}" for item in stages if item.reason]
    by_reason: dict[str, list[str]] = {}
    for (model, task), members in groups.items():
        reasons: dict[str, list[PlannedCell]] = {}
        for cell in members:
            if cell.reason:
                reasons.setdefault(cell.reason, []).append(cell)
        for reason, same in reasons.items():
            by_reason.setdefault(reason, []).append(f"{model} {task} {name_cells(same)}")
    lines += [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    return [_DIGEST.sub(r"\1…", line) for line in lines]


def tell_basis(stages: Sequence[Item], cells: Sequence[PlannedCell]) -> str:
    """Say in one line what the times rest on."""
    found: dict[Basis, list[str]] = {}
    for item in stages:
        if item.state != "done":
            found.setdefault(item.estimate.basis, []).append(item.title.split()[0])
    counts: dict[Basis, int] = {}
    for cell in cells:
        if cell.reason is not None:
            counts[cell.estimate.basis] = counts.get(cell.estimate.basis, 0) + 1
    for basis, count in counts.items():
        found.setdefault(basis, []).append(f"{count:,} cell{'s' if count > 1 else ''}")
    if not found:
        return "nothing is left to do"
    parts = [
        f"{', '.join(dict.fromkeys(found[basis]))} {text}"
        for basis, text in _RESTS_ON.items()
        if basis in found
    ]
    return f"times: {'; '.join(parts)}. Results and report come on top."


def _add_seconds(estimates: Iterable[Estimate]) -> float | None:
    seconds = [estimate.seconds for estimate in estimates]
    return None if None in seconds else sum(s for s in seconds if s is not None)


def tell_seconds(seconds: float | None) -> str:
    """Show a time as a person would say it."""
    if seconds is None:
        return "?"
    if seconds >= 100 * 3600:
        return f"{seconds / 86_400:,.1f} days"
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 100:
        return f"{seconds / 60:.{0 if seconds >= 600 else 1}f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
