from __future__ import annotations

import csv
import io
import statistics
from typing import Any

import pytest

from metaxlm.report.cells import Table
from metaxlm.report.paper.detail_tables import (
    make_direction_table,
    make_language_tables,
    make_layer_tables,
)
from metaxlm.report.paper.measurements import Measurements
from metaxlm.report.paper.rendering import render_html, render_plain, render_tex, render_tidy
from metaxlm.report.paper.score_tables import (
    make_ablation_tables,
    make_review_table,
    make_xtreme_table,
)

from .synthetic import (
    AMAZON,
    make_curve_rows,
    make_direction_rows,
    make_layer_rows,
    make_paper_rows,
)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    directions = make_direction_rows({"xlm": 0.6, "metaxlm": 0.7})
    own = make_paper_rows() + make_paper_rows(tasks=AMAZON)
    return own + directions + make_layer_rows() + make_curve_rows()


def read_tidy(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render_tidy(table))))


def find_mean(rows: list[dict[str, Any]], line: dict[str, str]) -> float:
    """Find a number again by the fields of its CSV line: over languages, then over seeds."""
    fields = {
        key: line[key].split()
        for key in ("variant", "task", "metric", "scenario", "source", "language", "step", "seed")
    }
    chosen = [
        row for row in rows
        if all(str(row[key]) in wanted for key, wanted in fields.items())
        and (not line["layer"] or str(row["layer"]) == line["layer"])
    ]  # fmt: skip
    if line["scenario"] == "supervised":
        chosen = [row for row in chosen if row["source"] == row["language"]]
    assert {row["origin"] for row in chosen} <= set(line["origin"].split())
    seeds = {row["seed"] for row in chosen}
    return statistics.fmean(
        statistics.fmean(row["value"] for row in chosen if row["seed"] == seed) for seed in seeds
    )


def test_every_number_of_every_table_is_found_again_in_the_rows(rows: list[dict[str, Any]]) -> None:
    found = Measurements(rows)
    direction_table = make_direction_table(found)
    assert direction_table is not None
    tables = [
        make_xtreme_table(found), make_review_table(found), *make_ablation_tables(found),
        *make_language_tables(found), *make_layer_tables(found), direction_table,
    ]  # fmt: skip
    checked = 0
    for table in tables:
        for line in read_tidy(table):
            if line["language"] and line["value"]:
                assert float(line["value"]) == pytest.approx(find_mean(rows, line), abs=1e-9)
                checked += 1
    assert checked > 500


def test_the_csv_has_one_line_a_number(rows: list[dict[str, Any]]) -> None:
    lines = read_tidy(make_xtreme_table(Measurements(rows)))
    xquad = [line for line in lines if (line["row"], line["column"]) == ("MetaXLM", "XQuAD")]
    assert [(line["number"], line["metric"], line["paper"]) for line in xquad] == [
        ("1", "f1", "0.579"), ("2", "em", "0.42"),
    ]  # fmt: skip
    mbert = [line for line in lines if line["row"] == "mBERT" and line["column"] == "MLQA"]
    assert [(line["value"], line["paper"], line["variant"]) for line in mbert] == [
        ("", "0.614", ""), ("", "0.442", ""),
    ]  # fmt: skip


def test_html_has_the_papers_number_in_a_column_of_its_own(rows: list[dict[str, Any]]) -> None:
    html = render_html(make_xtreme_table(Measurements(rows)), {"xlm": "v0"})
    head, _, body = html.partition("</thead>")
    assert head.count('colspan="2"') == 8 and head.count('class="theirs"') == 8
    xlm = body[body.index("XLM</th>") : body.index("</tr>")]
    assert xlm.count("<td") == 16 and xlm.count('<td class="theirs">') == 8
    assert '<td class="theirs">47.3 / 33.2</td>' in xlm
    assert "<small>± 1.0 / 1.0</small>" in xlm
    assert 'title="variant: xlm; step: 20000; task: xquad; scenario: transfer;' in xlm
    assert "metric: f1 / em" in xlm
    assert 'class="swatch v0"' in html


def test_markdown_and_latex_have_the_papers_rows_beneath(rows: list[dict[str, Any]]) -> None:
    table = make_xtreme_table(Measurements(rows))
    text = render_plain(table)
    ours, _, theirs = text.partition("another size")
    assert "| mBERT |" not in ours and "| mBERT | 70.3 | 62.2 | 64.5 / 49.4" in theirs
    assert "| XLM | 63.8 | 51.0 | 47.3 / 33.2 |" in theirs
    assert "| XLM | 63.8 ± 1.0 |" in ours
    tex = render_tex(table)
    assert r"\textbf{67.4 $\pm$ 1.0}" in tex
    widths = {line.count("&") for line in tex.splitlines() if line.endswith(r"\\") and "&" in line}
    assert widths == {8}


def test_where_models_stand_across_the_papers_are_columns(rows: list[dict[str, Any]]) -> None:
    [pawsx] = [t for t in make_language_tables(Measurements(rows)) if t.name.endswith("pawsx")]
    text = render_plain(pawsx)
    assert "| XLM | XLM (paper) | MetaXLM | MetaXLM (paper) |" in text
    korean = next(line for line in text.splitlines() if line.startswith("| Korean"))
    assert korean == (
        "| Korean, ko | 68.2 ± 1.0 | 68.2 | 72.5 ± 1.0 | 72.5 | **73.3 ± 1.0** | 73.3 |"
    )
