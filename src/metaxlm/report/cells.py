"""What a table is before it is rendered: columns, groups of competing rows, cells with values.

Values stay as they are in the results (fractions, counts); `rendering` writes them. Whether a high
or a low value is good belongs to the column, or to the group where groups hold different metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from metaxlm.report.scores import Score

Direction = Literal["higher", "lower"]
Style = Literal["percent", "count", "decimal", "seconds", "text"]


@dataclass(frozen=True)
class Cell:
    """A value as it stands in the results; `style` says how it is written."""

    value: float | None = None
    deviation: float | None = None
    style: Style = "percent"
    best: bool = False
    beside: Cell | None = None
    """A second score after a slash: exact match after F1."""
    text: str = ""
    """What is written, for the style `text`; its value only orders."""


@dataclass(frozen=True)
class Column:
    """A column's heading; `detail` is a second, smaller line such as a language's code."""

    label: str
    detail: str = ""
    better: Direction | None = None


@dataclass(frozen=True)
class Line:
    """One row of cells; a reference row, such as the majority level, never competes."""

    label: str
    cells: tuple[Cell, ...]
    variant: str | None = None
    detail: str = ""
    reference: bool = False


@dataclass(frozen=True)
class Group:
    """Rows that compete with one another; `better` holds for them instead of the columns'."""

    lines: tuple[Line, ...]
    label: str = ""
    better: Direction | None = None


@dataclass(frozen=True)
class Table:
    """A table to be rendered; `name` is its file's."""

    name: str
    title: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()


def make_score_cell(score: Score | None) -> Cell:
    """Return the cell of a score, empty when it was not measured."""
    return Cell() if score is None else Cell(score.mean, score.deviation)


def format_cell(cell: Cell) -> str:
    """Write a value: fractions times 100 with one decimal, counts with thousands separators."""
    if cell.style == "text":
        return cell.text
    if cell.value is None:
        return "–"
    if cell.beside is not None:
        return f"{format_cell(replace(cell, beside=None))} / {format_cell(cell.beside)}"
    if cell.style == "count":
        return f"{round(cell.value):,}"
    if cell.style == "decimal":
        return f"{cell.value:.2f}".replace("-", "−")
    if cell.style == "seconds":
        return format_seconds(cell.value)
    text = f"{100 * cell.value:.1f}".replace("-", "−")
    text = "0.0" if text == "−0.0" else text
    return text if cell.deviation is None else f"{text} ± {100 * cell.deviation:.1f}"


def format_seconds(seconds: float) -> str:
    """Write a duration the way a person says it."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def mark_best(table: Table) -> Table:
    """Mark the best value of every column in each group; a single value has nothing to beat."""
    return replace(table, groups=tuple(_mark_group(g, table.columns) for g in table.groups))


def _mark_group(group: Group, columns: Sequence[Column]) -> Group:
    rows = [list(line.cells) for line in group.lines]
    for position, column in enumerate(columns):
        better = group.better or column.better
        shown = {
            number: _as_shown(cells[position])
            for number, cells in enumerate(rows)
            if cells[position].value is not None and not group.lines[number].reference
        }
        if better is None or len(shown) < 2:
            continue
        best = min(shown.values()) if better == "lower" else max(shown.values())
        for number, value in shown.items():
            if value == best:
                rows[number][position] = replace(rows[number][position], best=True)
    marked = (
        replace(line, cells=tuple(cells)) for line, cells in zip(group.lines, rows, strict=True)
    )
    return replace(group, lines=tuple(marked))


def _as_shown(cell: Cell) -> float:
    """Return the value at printed precision: what prints alike is equally good."""
    value = cell.value or 0.0
    return float(f"{100 * value:.1f}") if cell.style == "percent" else round(value, 2)
