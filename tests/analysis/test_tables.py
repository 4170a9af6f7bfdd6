"""The one renderer: what is bold, and the same numbers in every format."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from metaxlm.analysis.style import make_environment
from metaxlm.analysis.tables import (
    Cell,
    Column,
    Group,
    Line,
    Table,
    format_cell,
    mark_best,
    mark_row,
    render_csv,
    render_latex,
    render_markdown,
    render_terminal,
    text_table,
    transpose,
    write_tables,
)
from tests.analysis.pages import Page


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(), "–"),
        (Cell(0.12345), "12.3"),
        (Cell(-0.0001), "0.0"),
        (Cell(-0.05), "−5.0"),
        (Cell(0.5, 0.012), "50.0 ± 1.2"),
        (Cell(0.5, 0.01, beside=Cell(0.25, 0.02)), "50.0 ± 1.0 / 25.0 ± 2.0"),
        (Cell(12345.6, style="count"), "12,346"),
        (Cell(3.14159, style="decimal"), "3.14"),
        (Cell(59.4, style="seconds"), "59 s"),
        (Cell(90, style="seconds"), "1 min 30 s"),
        (Cell(7260, style="seconds"), "2 h 01 min"),
        (Cell(style="text", text="a & b"), "a & b"),
    ],
)
def test_formats(cell: Cell, text: str) -> None:
    assert format_cell(cell) == text


def make_table() -> Table:
    """Two variants with the paper's numbers, a baseline, and a second group of errors."""
    trace = {"variant": "xlm", "task": "xnli", "language": "de fr", "metric": "accuracy"}
    ours = [
        Line("XLM", (Cell(0.5004, 0.01, trace=trace, paper=Cell(0.6)), Cell(0.4)), "xlm"),
        Line("Meta_XLM", (Cell(0.4999, paper=Cell(0.7)), Cell(None)), "metaxlm"),
        Line("Majority", (Cell(0.9), Cell(0.9)), reference=True),
    ]
    errors = [Line("XLM", (Cell(0.3), Cell(0.2)), "xlm"), Line("B", (Cell(0.2), Cell(0.3)), "b")]
    columns = (Column("XNLI", "accuracy", "higher"), Column("50 % <b>", "", "higher"))
    groups = (Group(tuple(ours)), Group(tuple(errors), "Errors", "lower"))
    return mark_best(Table("t", "A title", columns, groups, ("One note.", "Two & notes.")))


def test_what_prints_alike_is_equally_good() -> None:
    best = [[cell.best for cell in line.cells] for line in make_table().lines]
    assert best == [[True, False], [True, False], [False, False], [False, True], [True, False]]
    row = mark_row([Cell(0.30004), Cell(0.3), Cell(0.2), Cell()], "higher")
    assert [cell.best for cell in row] == [True, True, False, False]
    assert [cell.best for cell in mark_row([Cell(0.3), Cell(0.2)], "lower")] == [False, True]
    assert not any(cell.best for cell in mark_row([Cell(0.3), Cell()]))


def test_markdown_stacks_the_papers_rows_under_models() -> None:
    lines = render_markdown(make_table()).splitlines()
    assert lines[0] == "**A title**"
    assert lines[2:6] == [
        "|  | XNLI (accuracy) | 50 % <b> |",
        "| --- | ---: | ---: |",
        "| XLM | **50.0 ± 1.0** | 40.0 |",
        "| Meta_XLM | **50.0** | – |",
    ]
    assert lines[-4:-2] == ["| XLM | 60.0 | – |", "| Meta_XLM | 70.0 | – |"]
    assert lines[-1] == "One note. Two & notes."


def test_markdown_has_the_papers_columns_beside_languages() -> None:
    line = Line("German", (Cell(0.5, paper=Cell(0.6)), Cell(0.4)), detail="de")
    table = Table("t", "T", (Column("XLM", "layer 3"), Column("B")), (Group((line,)),))
    assert render_markdown(table).splitlines()[2::2] == [
        "|  | XLM (layer 3) | XLM (layer 3, paper) | B |",
        "| German, de | 50.0 | 60.0 | 40.0 |",
    ]


def test_html_is_escaped_and_has_the_trace() -> None:
    environment = make_environment()
    environment.filters["cell"] = format_cell
    module = environment.get_template("table.html.jinja").module
    text = str(module.html_table(make_table(), {"xlm": "v0"}))  # type: ignore[attr-defined]
    page = Page(text)
    assert page.ids == ["table-t"]
    assert '<span class="swatch v0"></span>XLM' in text
    assert "50 % &lt;b&gt;" in text and "Two &amp; notes." in text
    assert 'title="variant: xlm; task: xnli; language: de fr; metric: accuracy"' in text
    assert "<strong>50.0</strong><small>± 1.0</small>" in text
    assert '<td class="theirs">60.0</td>' in text
    assert text.count("<small>paper</small>") == 1
    assert '<tr class="reference">' in text


def test_csv_has_all_digits_and_fields() -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(make_table()))))
    assert rows[0] | {"value": "0.5004", "deviation": "0.01", "paper": "0.6"} == rows[0]
    assert (rows[0]["variant"], rows[0]["language"], rows[0]["column"]) == ("xlm", "de fr", "XNLI")
    both = Table("t", "T", (Column("A"),), (Group((Line("x", (Cell(0.1, beside=Cell(0.2)),)),)),))
    assert [r["value"] for r in csv.DictReader(io.StringIO(render_csv(both)))] == ["0.1", "0.2"]


def test_terminal_and_transposed() -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(render_terminal(transpose(make_table())))
    text = captured.get()
    assert "XNLI, accuracy" in text and "50.0 ± 1.0" in text and "A title" in text


def test_latex(tmp_path: Path) -> None:
    text = render_latex(make_table())
    assert r"\textbf{50.0 $\pm$ 1.0} & 40.0 \\" in text
    assert r"Meta\_XLM" in text and r"50 \% $<$b$>$" in text
    assert r"\multicolumn{3}{l}{\textit{Errors}} \\" in text
    wide = replace(make_table(), columns=(Column("x" * 60), Column("y" * 30)))
    assert r"\resizebox" in render_latex(wide) and "graphicx" in render_latex(wide)
    long = text_table("t", "T", ("", "a", "b"), [["x", "word " * 20, "short"]])
    assert r"{lp{0.75\linewidth}l}" in render_latex(long)
    write_tables(tmp_path, [make_table()])
    assert {path.name for path in tmp_path.iterdir()} == {"t.md", "t.tex", "t.csv"}
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not here")
    document = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"
    for part in (text, render_latex(wide), render_latex(long)):
        document += part
    (tmp_path / "a.tex").write_text(document + r"\end{document}", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    assert subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode == 0
