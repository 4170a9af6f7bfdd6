"""The tables of an evaluation: cells and tests come in, files and tables for the terminal go out.

`tables/` holds each as Markdown, LaTeX and CSV, and figures by layer as SVG and PDF, made anew from
all complete cells each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from matplotlib.figure import Figure

from metaxlm.experiments.cells import StoredCell
from metaxlm.experiments.failed_trainings import find_failed
from metaxlm.experiments.results import Result
from metaxlm.experiments.task_comparison import TaskComparison
from metaxlm.manifest import atomic_folder
from metaxlm.report.cells import Table
from metaxlm.report.comparison import (
    make_language_tables,
    make_seed_table,
    make_task_table,
    make_test_table,
)
from metaxlm.report.rendering import render_csv, render_latex, render_markdown
from metaxlm.report.sections import describe_tasks, list_notes, make_sections
from metaxlm.report.vector import render_pdf, render_svg


def make_tables(
    cells: Sequence[StoredCell],
    rows: Sequence[Result],
    tests: Sequence[TaskComparison],
    models: Sequence[str],
    order: Sequence[str],
    notes: Sequence[str] = (),
) -> list[Table]:
    """Build all tables: by language, over seeds, tests, and by task at the end."""
    records = [cell.record for cell in cells]
    tasks = describe_tasks(records, order)
    values = [asdict(row) for row in rows]
    sections = make_sections(values, tasks)
    failed = find_failed(values, {facts.name: facts.metric for facts in tasks})
    about = [*list_notes(records), *(each.describe() for each in failed), *notes]
    tables: list[Table | None] = [
        *make_language_tables(sections, models),
        make_seed_table(sections, models),
        make_test_table(tests, {facts.name: facts.title for facts in tasks}),
        make_task_table(sections, models, about),
    ]
    return [table for table in tables if table is not None]


def write_tables(
    folder: Path, tables: Sequence[Table], figures: Mapping[str, Figure] | None = None
) -> None:
    """Write each table and figure in all its formats; the folder is renewed as a whole."""
    renderers = {".md": render_markdown, ".tex": render_latex, ".csv": render_csv}
    with atomic_folder(folder) as temporary:
        for table in tables:
            for suffix, render in renderers.items():
                path = temporary / f"{table.name}{suffix}"
                path.write_text(render(table), encoding="utf-8")
        for name, figure in (figures or {}).items():
            (temporary / f"{name}.svg").write_text(render_svg(figure), encoding="utf-8")
            (temporary / f"{name}.pdf").write_bytes(render_pdf(figure))
