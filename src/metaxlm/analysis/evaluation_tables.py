"""Tables of `metaxlm evaluate`: by task, over seeds, tests, and confusions of classes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from metaxlm.analysis import paper
from metaxlm.analysis.results import (
    FEATURES,
    MORE_FEATURES,
    Names,
    Result,
    Row,
    TaskInfo,
    make_frame,
    name_metric,
)
from metaxlm.analysis.score_tables import (
    LAYER_AXES,
    describe_data,
    make_language_table,
    make_layer_table,
)
from metaxlm.analysis.scores import Results, Section
from metaxlm.analysis.stats import (
    TaskComparison,
    deviation,
    find_interval,
)
from metaxlm.analysis.style import assign_looks, write_figure
from metaxlm.analysis.tables import (
    Cell,
    Column,
    Group,
    Line,
    Table,
    mark_best,
    section_cell,
    transpose,
    write_tables,
)
from metaxlm.manifest import atomic_folder

CONFUSION = "confusion-"
"""Start of the names of tables that are too long for terminals."""
_LAYERED = (*FEATURES, *MORE_FEATURES)


def make_tables(
    records: Sequence[Row], rows: Iterable[Result], tests: Sequence[TaskComparison],
    models: Names, order: Names, notes: Names = (),
) -> list[Table]:  # fmt: skip
    """Build all tables: by layer, by language, over seeds, tests, and by task at the end."""
    infos = {
        record["task"]: TaskInfo(
            record["task"], record["title"], record["metric"],
            "em" if record["kind"] == "span" else "", record.get("trained_in_each", False),
        )
        for record in records
    }  # fmt: skip
    infos = {name: infos[name] for name in [*order, *infos] if name in infos}
    results = Results(make_frame(map(asdict, rows)), tests, infos=infos)
    sections = list(results.sections(infos, models).values())
    about = [*_list_notes(records), *(each.describe() for each in results.collapsed), *notes]
    tables = [
        *(make_layer_table(results, t, models, by_language=True) for t in _LAYERED if t in infos),
        *map(make_language_table, sections),
        *make_confusion_tables(records, _name_set),
        make_seed_table(sections, models),
        paper.make_test_table(tests, {name: info.title for name, info in infos.items()}),
        make_task_table(results, sections, models, about),
    ]
    return [table for table in tables if table is not None]


def _list_notes(records: Sequence[Row]) -> list[str]:
    notes = []
    if limits := sorted({record["limit"] for record in records if record.get("limit")}):
        shown = ", ".join(map(str, limits))
        notes.append(f"A quick try: only the first {shown} examples of each file.")
    blank: dict[str, set[str]] = {}
    for record, file in ((r, f) for r in records for f in r["files"] if not f["num_examples"]):
        blank.setdefault(f"{record['task']} {file['name']}", set()).add(file["language"])
    for name, languages in sorted(blank.items()):
        notes.append(f"No labels, predictions only: {name} of {' '.join(sorted(languages))}.")
    return notes


def _name_set(record: Row, file: Row) -> str:
    return f"{record['model']}: {record['source']} → {file['language']}, {file['name']} set"


def make_confusion_tables(
    records: Sequence[Row], name_group: Callable[[Row, Row], str]
) -> list[Table]:
    """Build a table per task: gold classes down, predicted ones across.

    `name_group` names the group of a record and a file; the files of a group are added up.
    """
    first: dict[str, Row] = {}
    counts: dict[tuple[str, str], Any] = {}
    for record in records:
        files = [file for file in record["files"] if file.get("confusion")]
        tested = {file["language"] for file in files if file["split"] == "test"}
        if not files or first.setdefault(record["task"], record)["labels"] != record["labels"]:
            continue
        for file in files:
            if file["split"] == "test" or file["language"] not in tested:
                key = record["task"], name_group(record, file)
                counts[key] = counts.get(key, 0) + np.array(file["confusion"])
    tables = []
    for task, record in first.items():
        labels = record["labels"]
        groups = [
            Group(
                [
                    Line(label, [Cell(n, style="count", best=k == at) for k, n in enumerate(row)])
                    for at, (label, row) in enumerate(zip(labels, found.tolist(), strict=True))
                ],
                title,
            )
            for (name, title), found in counts.items()
            if name == task
        ]
        heading = f"{record['title']}: gold classes (rows) and predicted ones (columns)"
        columns, notes = list(map(Column, labels)), ["Examples, summed over seeds."]
        tables.append(Table(f"{CONFUSION}{task}", heading, columns, groups, notes))
    return tables


def make_task_table(
    results: Results, sections: Sequence[Section], models: Names, notes: Names = ()
) -> Table:
    """Build models x tasks, with the paper's rows beneath."""
    by_name = {section.name: section for section in sections}
    has_average = all(t in by_name and by_name[t].is_papers for t in paper.AVERAGED)
    lines = []
    for model in models:
        cells = [section_cell(section, model) for section in sections]
        if has_average:
            cells.append(replace(paper.average_cell(results, by_name, model), paper=None))
        lines.append(Line(model, cells, model))
    published = []
    for name in paper.MODELS:
        values = {s.name: paper.find_paper_cell(s, name, s.shared) or Cell() for s in sections}
        if any(cell.value is not None for cell in values.values()):
            cells = list(values.values())
            if has_average:
                seven = [[c.value for c in values[t].parts if c.value] for t in paper.AVERAGED]
                cells.append(Cell(paper.average_tasks(seven)))
            published.append(Line(f"{name} (paper)", cells, reference=True))
    groups = [Group(lines)]
    about = ["Mean over languages, then mean ± deviation over seeds."]
    if published:
        about.append("The paper's rows are over the same languages.")
        groups.append(Group(published, "The paper: 270 million parameters"))
    for section in sections:
        where = f" ({section.scenario})" if section.task.trained_in_each else ""
        splits = section.splits(section.shared)
        about.append(f"{section.task.title}{where}: {splits}, {describe_data(section)}.")
    columns = [*map(paper.section_column, sections)]
    columns += [Column("Avg", "", "higher")] if has_average else []
    return mark_best(Table("tasks", "Scores by task", columns, groups, [*about, *notes]))


def make_seed_table(sections: Sequence[Section], models: Names) -> Table | None:
    """Build mean, deviation and 95 % t-interval over seeds of each model and task."""
    groups = []
    for section in sections:
        lines = []
        for model, metric in product(models, section.metrics):
            values = list(section.series(model, metric=metric).values())
            if model in section.variants and (interval := find_interval(values)) is not None:
                numbers = (sum(values) / len(values), deviation(values), *interval)
                cells = [*map(Cell, numbers), Cell(len(values), style="count")]
                lines.append(Line(model, cells, detail=name_metric(metric)))
        if lines:
            groups.append(Group(lines, f"{section.task.title}, {section.scenario}"))
    if not groups:
        return None
    heads = ("Mean", "Deviation", "Interval from", "to", "Seeds")
    title = "Spread over seeds: sample deviation and 95 % t-interval of the mean"
    return Table("seeds", title, list(map(Column, heads)), groups)


def write_evaluation(
    folder: Path, tables: Sequence[Table], rows: Iterable[Result], models: Names
) -> None:
    """Write each table in all formats, and figures by layer; the folder is replaced as a whole."""
    results = Results(make_frame(map(asdict, rows)))
    with atomic_folder(folder) as temporary:
        write_tables(temporary, tables)
        for task in (task for task in _LAYERED if task in results.tasks):
            from metaxlm.analysis.figures import draw_layers

            figure = draw_layers(results, assign_looks(models), task, LAYER_AXES[task])
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
    wide = {"Examples", "Seeds"} if table.name == "tests" else set()
    kept = [k for k, c in enumerate(table.columns) if c.detail != "paper" and c.label not in wide]
    narrow = table.with_cells(lambda line: [line.cells[k] for k in kept])
    return replace(narrow, columns=[table.columns[k] for k in kept])
