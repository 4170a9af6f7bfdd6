"""The report in the paper's layout: one folder with a page, Markdown, tables, figures and claims.

A `PaperSource` comes in; out come `index.html` (one file that needs nothing else), `report.md`,
`tables/*.{md,tex,csv}`, `figures/*.{svg,pdf}` and `claims.{md,json}`. Everything is drawn from the
results table, and the same source gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from metaxlm.experiments.names import display_name
from metaxlm.files import write_json, write_text
from metaxlm.manifest import atomic_folder
from metaxlm.report.cells import Table
from metaxlm.report.palette import Look, assign_looks, write_css_variables
from metaxlm.report.paper.accounts import (
    list_missing,
    list_verdicts,
    make_claims_table,
    make_cost_tables,
    make_data_table,
    make_idea_tests,
    make_ideas_table,
)
from metaxlm.report.paper.courses import find_courses, make_course_table
from metaxlm.report.paper.detail_tables import (
    make_direction_table,
    make_language_tables,
    make_layer_tables,
    make_paired_tests,
)
from metaxlm.report.paper.headline import Headline, find_headline
from metaxlm.report.paper.measurements import MAIN_VARIANTS, Measurements
from metaxlm.report.paper.plates import make_plates
from metaxlm.report.paper.rendering import render_html, render_plain, render_tex, render_tidy
from metaxlm.report.paper.score_tables import (
    ANOTHER_SIZE,
    make_ablation_tables,
    make_review_table,
    make_xtreme_table,
)
from metaxlm.report.paper.source import META, PaperSource
from metaxlm.report.plates import Plate
from metaxlm.report.start_tables import make_training_table
from metaxlm.report.templating import TEMPLATES, make_environment
from metaxlm.report.vector import embed_svg, render_pdf, render_svg

Sections = Mapping[str, Sequence[Table]]


@dataclass(frozen=True)
class Content:
    """All that a report shows, before it is written in any format."""

    source: PaperSource
    found: Measurements
    looks: dict[str, Look]
    headline: Headline
    sections: Sections
    plates: Sequence[Plate]
    undrawn: Sequence[str]
    """Figures that there is no data for."""
    missing: Sequence[str]


def write_paper_report(source: PaperSource, folder: Path) -> Path:
    """Fill a folder with the report and return its page.

    An older report's files are replaced; whatever else stands in the folder, such as the results
    themselves, stays.
    """
    content = make_content(source)
    drawn = {plate.name: render_svg(plate.figure) for plate in content.plates}
    with atomic_folder(folder / "tables") as temporary:
        _write_tables(content, temporary)
    with atomic_folder(folder / "figures") as temporary:
        for plate in content.plates:
            _write(temporary / f"{plate.name}.svg", drawn[plate.name])
            (temporary / f"{plate.name}.pdf").write_bytes(render_pdf(plate.figure))
    claims = make_claims_table(source.verdicts)
    write_text(folder / "claims.md", render_plain(claims) if claims else "No claim was judged.\n")
    write_json(folder / "claims.json", list_verdicts(source.verdicts))
    write_text(folder / "report.md", render_report(content))
    write_text(folder / "index.html", render_page(content, drawn))
    return folder / "index.html"


def make_content(source: PaperSource) -> Content:
    """Build tables, figures and sentences."""
    found = Measurements(source.rows)
    variants = dict.fromkeys([*MAIN_VARIANTS, *found.variants, *source.logs])
    looks = assign_looks([variant for variant in variants if variant != META])
    plates, undrawn = make_plates(source, found, looks)
    return Content(
        source=source,
        found=found,
        looks=looks,
        headline=find_headline(found, source.comparisons, source.verdicts),
        sections=make_sections(source, found),
        plates=plates,
        undrawn=undrawn,
        missing=list_missing(source, found),
    )


def make_sections(source: PaperSource, found: Measurements) -> dict[str, list[Table]]:
    """Build every table, by section of the page."""
    tests = make_paired_tests(source.comparisons, found.variants)
    ideas = [make(found, source.comparisons) for make in (make_ideas_table, make_idea_tests)]
    drawn = [
        *make_layer_tables(found),
        make_course_table(find_courses(source.rows, found.variants)),
        make_direction_table(found),
    ]
    logs = {name: log for name, log in source.logs.items() if name != META}
    training = make_training_table(source.logs.get(META, []), logs, list(logs))
    return {
        "main": [make_xtreme_table(found), make_review_table(found)],
        "ablations": make_ablation_tables(found),
        "figures": [table for table in drawn if table is not None],
        "tests": [tests] if tests else [],
        "ideas": [table for table in ideas if table is not None],
        "cost": [*make_cost_tables(source.provenance), *([training] if training else [])],
        "data": [make_data_table(source.recipe)],
        "languages": make_language_tables(found),
    }


def _write_tables(content: Content, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for table in (table for tables in content.sections.values() for table in tables):
        for suffix, render in ((".md", render_plain), (".tex", render_tex), (".csv", render_tidy)):
            _write(folder / f"{table.name}{suffix}", render(table))


def render_page(content: Content, drawn: Mapping[str, str]) -> str:
    """Return the page."""
    swatches = {variant: look.css_class for variant, look in content.looks.items()}
    styles = [(TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", "paper.css")]
    figures = {
        plate.name: {
            "plate": plate,
            "svg": Markup(embed_svg(drawn[plate.name], plate.name, plate.title)),
        }
        for plate in content.plates
    }
    html = {
        table.name: Markup(render_html(table, swatches))
        for tables in content.sections.values()
        for table in tables
    }
    return _make_environment(is_html=True).get_template("paper.html.jinja").render(
        **_list_values(content),
        css=Markup("".join(styles) + write_css_variables()),
        swatches=swatches,
        figures=figures,
        table_html=html,
    )  # fmt: skip


def render_report(content: Content) -> str:
    """Return the same as Markdown, which links the figures."""
    tables = {
        table.name: render_plain(table).rstrip("\n")
        for tables in content.sections.values()
        for table in tables
    }
    claims = make_claims_table(content.source.verdicts)
    template = _make_environment(is_html=False).get_template("paper.md.jinja")
    return template.render(
        **_list_values(content),
        figures=content.plates,
        tables=tables,
        claims_table=render_plain(claims).rstrip("\n") if claims else "",
    )


def _list_values(content: Content) -> dict[str, Any]:
    source = content.source
    return {
        "source": source,
        "headline": content.headline,
        "sections": content.sections,
        "undrawn": content.undrawn,
        "missing": content.missing,
        "another_size": ANOTHER_SIZE,
        "facts": list_facts(source),
        "num_rows": len(source.rows),
    }


def list_facts(source: PaperSource) -> list[tuple[str, str]]:
    """List the size of the run in a few words each."""
    facts = []
    model, pretraining = (source.recipe.get(key) for key in ("model", "pretraining"))
    if isinstance(model, dict) and {"layers", "hidden"} <= model.keys():
        facts.append(("Encoder", f"{model['layers']} layers of {model['hidden']}"))
    languages = source.recipe.get("languages")
    if isinstance(languages, list):
        facts.append(("Languages", str(len(languages))))
    if isinstance(pretraining, dict) and {"steps", "batch_size", "length"} <= pretraining.keys():
        steps, batch, length = (pretraining[key] for key in ("steps", "batch_size", "length"))
        text = f"{steps:,} steps of {batch} × {length} tokens a variant"
        facts.append(("Cross-lingual pretraining", text))
    provenance = source.provenance or {}
    for label, key in (("Recipe's fingerprint", "digest"), ("metaxlm", "metaxlm"),
                       ("Put together with torch", "torch")):  # fmt: skip
        if provenance.get(key):
            facts.append((label, str(provenance[key])))
    return facts


def _make_environment(is_html: bool) -> Environment:
    environment = make_environment(is_html=is_html)
    environment.filters["variant"] = display_name
    return environment


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
