"""The report of a run: one static page, its tables and its figures as files beside it.

In comes a run folder, out comes `report/index.html` with `report/tables/` (Markdown, LaTeX) and
`report/figures/` (SVG, PDF). The page needs nothing from anywhere else and no script; the same run
folder gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.table import Table as TerminalTable

from metaxlm.experiments.names import display_name
from metaxlm.languages import language_name
from metaxlm.report.cells import Table
from metaxlm.report.findings import find_headline, list_limits, list_strengths
from metaxlm.report.palette import Look, assign_looks, write_css_variables
from metaxlm.report.plates import Plate, make_plates
from metaxlm.report.rendering import (
    render_html,
    render_latex,
    render_markdown,
    render_terminal,
)
from metaxlm.report.run_folder import PAPER, Row, Run
from metaxlm.report.scores import find_source_language, summarize
from metaxlm.report.sentences import (
    LINK_NAMES,
    DrawnSentence,
    Query,
    collect_drawings,
    collect_queries,
    draw_key,
)
from metaxlm.report.start_tables import make_start_tables, make_training_table
from metaxlm.report.tables import (
    make_alignment_table,
    make_retrieval_table,
    make_summary_table,
    make_transfer_tables,
)
from metaxlm.report.templating import TEMPLATES, make_environment
from metaxlm.report.vector import embed_svg, render_pdf, render_svg

_MOST_DRAWN = 2
_MOST_QUERIES = 3


def summary_table(rows: Sequence[Row]) -> TerminalTable:
    """Return the headline numbers of every variant as a table for the terminal."""
    return render_terminal(make_summary_table(rows))


def fill_report(run: Run, folder: Path) -> None:
    """Write page, tables and figures into a new folder."""
    looks = assign_looks(run.variants)
    sections = make_tables(run)
    plates = make_plates(run, looks)
    drawn = {plate.name: render_svg(plate.figure) for plate in plates}
    (folder / "tables").mkdir(parents=True)
    (folder / "figures").mkdir()
    for table in (table for tables in sections.values() for table in tables):
        _write(folder / "tables" / f"{table.name}.md", render_markdown(table))
        _write(folder / "tables" / f"{table.name}.tex", render_latex(table))
    for plate in plates:
        _write(folder / "figures" / f"{plate.name}.svg", drawn[plate.name])
        (folder / "figures" / f"{plate.name}.pdf").write_bytes(render_pdf(plate.figure))
    _write(folder / "index.html", render_page(run, looks, sections, plates, drawn))


def make_tables(run: Run) -> dict[str, list[Table]]:
    """Build every table that the run has the data for, by section of the page."""
    evaluated = {row.get("variant") for row in run.rows}
    shown = [variant for variant in run.variants if variant in evaluated]
    features = (make_retrieval_table(run.rows, shown), make_alignment_table(run.rows, shown))
    training = make_training_table(run.meta_log, run.logs, run.variants)
    return {
        "summary": [make_summary_table(run.rows, shown)],
        "languages": [*(t for t in features if t), *make_transfer_tables(run.rows, shown)],
        "start": make_start_tables(run.coverage, run.variants),
        "training": [training] if training else [],
    }


def render_page(
    run: Run,
    looks: dict[str, Look],
    sections: dict[str, list[Table]],
    plates: Sequence[Plate],
    drawn: dict[str, str],
) -> str:
    """Return the page."""
    environment = make_environment()
    environment.filters["variant"] = display_name
    environment.filters["language"] = language_name
    swatches = {variant: look.css_class for variant, look in looks.items()}
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    figures = [
        {"plate": p, "svg": Markup(embed_svg(drawn[p.name], p.name, p.title))} for p in plates
    ]
    summaries = summarize(run.rows, run.variants)
    alignment_layers = {s.variant: s.aer_layer for s in summaries if s.aer_layer is not None}
    retrieval_layers = {
        s.variant: s.retrieval_layer for s in summaries if s.retrieval_layer is not None
    }
    drawings = collect_drawings(run.examples, alignment_layers, run.variants, _MOST_DRAWN)
    queries = collect_queries(run.examples, retrieval_layers, run.variants, _MOST_QUERIES)
    return environment.get_template("page.html.jinja").render(
        run=run,
        paper=f"{PAPER}/index.html" if run.has_grid else None,
        css=Markup(css + write_css_variables()),
        headline=find_headline(run, summaries),
        strengths=list_strengths(run),
        limits=list_limits(run),
        swatches=swatches,
        tables=sections,
        table_html={
            table.name: Markup(render_html(table, swatches))
            for tables in sections.values()
            for table in tables
        },
        figures=figures,
        sentences=_group_by_language(drawings),
        queries=_group_by_language(queries),
        keys=[(Markup(draw_key(kind)), name) for kind, name in LINK_NAMES.items()],
        source=find_source_language(run.rows),
        starts=[(v, text) for v in run.variants if (text := run.describe_start(v))],
        facts=_list_facts(run),
        markup=Markup,
    )


def _group_by_language(items: Iterable[DrawnSentence | Query]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for item in items:
        groups.setdefault(item.language, []).append(item)
    return groups


def _list_facts(run: Run) -> list[tuple[str, str]]:
    """List how the run was made, in a few words each."""
    facts = []
    languages = run.recipe.get("languages")
    if isinstance(languages, list):
        facts.append(("Languages", ", ".join(language_name(str(code)) for code in languages)))
    model = run.recipe.get("model")
    if isinstance(model, dict) and {"layers", "hidden", "heads"} <= model.keys():
        shape = f"{model['layers']} layers, width {model['hidden']}, {model['heads']} heads"
        facts.append(("Encoder", shape))
    vocabulary = run.recipe.get("vocabulary")
    if isinstance(vocabulary, dict) and isinstance(vocabulary.get("size"), int):
        facts.append(("Shared vocabulary", f"{vocabulary['size']:,} rows"))
    for label, key in (("Seeds", "seed"), ("Version", "version")):
        values = sorted({str(row[key]) for row in run.rows if row.get(key) is not None})
        if values:
            label = "Seed" if values[1:] == [] and key == "seed" else label
            prefix = "metaxlm " if key == "version" else ""
            facts.append((label, prefix + ", ".join(values)))
    return facts


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
