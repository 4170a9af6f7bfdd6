"""The tables of `metaxlm evaluate`: any models side by side on any tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from metaxlm.analysis.results import FEATURES, Result, Results, TaskInfo, make_frame
from metaxlm.analysis.score_tables import (
    make_language_table,
    make_layer_table,
    make_seed_table,
    make_task_table,
    make_test_table,
)
from metaxlm.analysis.stats import TaskComparison
from metaxlm.analysis.style import assign_looks, write_figure
from metaxlm.analysis.tables import Table, transpose, write_tables
from metaxlm.manifest import atomic_folder

_AXES = {"tatoeba": "accuracy (%)", "alignment": "alignment error rate (%)"}


def make_tables(
    records: Sequence[Mapping[str, Any]],
    rows: Iterable[Result],
    tests: Sequence[TaskComparison],
    models: Sequence[str],
    order: Sequence[str],
    notes: Sequence[str] = (),
) -> list[Table]:
    """Build all tables: by layer, by language, over seeds, tests, and by task at the end."""
    infos = _describe_tasks(records, order)
    results = Results(make_frame(map(asdict, rows)), tests, infos=infos)
    sections = list(results.sections(infos, models).values())
    about = [*_list_notes(records), *(each.describe() for each in results.collapsed), *notes]
    tables = [
        *(make_layer_table(results, t, models, by_language=True) for t in FEATURES if t in infos),
        *map(make_language_table, sections),
        make_seed_table(sections, models),
        make_test_table(tests, {name: info.title for name, info in infos.items()}),
        make_task_table(results, sections, models, about),
    ]
    return [table for table in tables if table is not None]


def write_evaluation(
    folder: Path, tables: Sequence[Table], rows: Iterable[Result], models: Sequence[str]
) -> None:
    """Write each table in all formats, and figures by layer; the folder is replaced as a whole."""
    results = Results(make_frame(map(asdict, rows)))
    with atomic_folder(folder) as temporary:
        write_tables(temporary, tables)
        for task in (task for task in FEATURES if task in results.tasks):
            from metaxlm.analysis.figures import draw_layers

            figure = draw_layers(results, assign_looks(models), task, _AXES[task])
            if figure is not None:
                write_figure(temporary, f"layers-{task}", figure)


def fit_terminal(table: Table) -> Table:
    """Make a table as narrow as terminals are; the files have all of it.

    Tasks become rows; means by layer are kept without single languages, and the paper's columns and
    sizes are left out.
    """
    if table.name == "tasks":
        return transpose(table)
    if table.name.startswith("layers-"):
        return replace(table, groups=table.groups[:1])
    is_test = table.name == "tests"
    kept = [
        k
        for k, column in enumerate(table.columns)
        if column.detail != "paper" and not (is_test and column.label in ("Examples", "Seeds"))
    ]
    groups = [
        replace(group, lines=tuple(
            replace(line, cells=tuple(line.cells[k] for k in kept)) for line in group.lines
        ))
        for group in table.groups
    ]  # fmt: skip
    return replace(table, columns=tuple(table.columns[k] for k in kept), groups=tuple(groups))


def _describe_tasks(
    records: Sequence[Mapping[str, Any]], order: Sequence[str]
) -> dict[str, TaskInfo]:
    """Describe the tasks of an evaluation: known ones in their order, then the others."""
    found = {
        record["task"]: TaskInfo(
            record["task"],
            record["title"],
            record["metric"],
            "em" if record["kind"] == "span" else "",
            record.get("trained_in_each", False),
        )
        for record in records
    }
    names = [name for name in order if name in found]
    return {name: found[name] for name in dict.fromkeys([*names, *found])}


def _list_notes(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name limits, and files without labels."""
    notes = []
    if limits := sorted({record["limit"] for record in records if record.get("limit")}):
        shown = ", ".join(map(str, limits))
        notes.append(f"A quick try: only the first {shown} examples of each file.")
    blank: dict[str, set[str]] = {}
    for record in records:
        for file in record["files"]:
            if not file["num_examples"]:
                name = f"{record['task']} {file['name']}"
                blank.setdefault(name, set()).add(file["language"])
    for name, languages in sorted(blank.items()):
        notes.append(f"No labels, predictions only: {name} of {' '.join(sorted(languages))}.")
    return notes
