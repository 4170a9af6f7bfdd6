"""The LaTeX files of a whole report: rows as wide as their tables, nothing unescaped, compiled."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from metaxlm.report.cells import Cell, Column, Group, Line, Table
from metaxlm.report.paper.measurements import Measurements
from metaxlm.report.paper.page import make_sections
from metaxlm.report.paper.rendering import render_tex
from metaxlm.report.paper.source import PaperSource

from .synthetic import (
    AMAZON,
    make_comparison,
    make_curve_rows,
    make_direction_rows,
    make_layer_rows,
    make_paper_rows,
    make_row,
)

LATEX = shutil.which("pdflatex")
PROVENANCE = {
    "stages": [{"title": "meta_pretraining 100 %", "seconds": 9, "steps": 3, "tokens": 5}],
    "cells": [{"model": "xlm", "task": "xnli", "source": "en", "seed": 0, "seconds": 30}],
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = make_paper_rows() + make_paper_rows(tasks=AMAZON) + make_layer_rows()
    rows += make_direction_rows({"xlm": 0.6, "metaxlm": 0.7}) + make_curve_rows()
    rows.append(make_row("my_idea & 50% #1", "xnli", "accuracy", "de", 0.7))
    tests = [make_comparison("xnli", {("xlm", "metaxlm"): (-0.07, 0.01)})]
    logs = {"xlm": [{"step": 1, "loss": 5.0}, {"step": 2, "loss": 4.0}]}
    source = PaperSource("all_tables", rows, tests, (), PROVENANCE, {"name": "twin"}, logs)
    folder = tmp_path_factory.mktemp("tables")
    for section in make_sections(source, Measurements(rows)).values():
        for table in section:
            (folder / f"{table.name}.tex").write_text(render_tex(table), "utf-8")
    return folder


def count_columns(tex: str) -> int:
    """Count the columns that a tabular declares."""
    (spec,) = re.findall(r"\\begin{tabular}{((?:[lr]|p{[^}]*})*)}", tex)
    return len(re.findall(r"[lr](?![^{]*})|p{[^}]*}", spec))


def check_tex(tex: str) -> None:
    """Check braces, the cells of each row, and that nothing special stands unescaped."""
    columns = count_columns(tex)
    body = tex[tex.index(r"\toprule") : tex.index(r"\end{tabular}")]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert rows
    for row in rows:
        spans = [int(number) - 1 for number in re.findall(r"\\multicolumn{(\d+)}", row)]
        assert len(re.findall(r"(?<!\\)&", row)) + 1 + sum(spans) == columns, row
    tex = tex.replace("{!}{%\n", "{!}{\n")  # a line's end that is no space
    plain = re.sub(r"\\[\\{}&%$#_]", "", tex.split("\n", 1)[1])
    depth = 0
    for mark in re.findall(r"[{}]", plain):
        depth += 1 if mark == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert plain.count("$") % 2 == 0
    assert not re.search(r"[%#_^~]", plain)
    assert tex.isascii() or not re.search(r"[±−–→×≥≤]", tex)


def test_every_table_is_well_formed(tables: Path) -> None:
    paths = sorted(tables.glob("*.tex"))
    assert len(paths) > 18
    for path in paths:
        check_tex(path.read_text("utf-8"))


def test_the_checker_sees_mistakes(tables: Path) -> None:
    good = (tables / "table-1-xtreme.tex").read_text("utf-8")
    for bad in (
        good.replace(r"\%", "%").replace("(XTREME)", "100% (XTREME)"),
        good.replace("{table}", "{table", 1),
        good.replace(" & ", " ", 1),
        good.replace("XLM &", "XLM_1 &", 1),
    ):
        with pytest.raises((AssertionError, ValueError)):
            check_tex(bad)


def test_long_words_stand_in_columns_that_break_lines(tables: Path) -> None:
    tex = (tables / "data.tex").read_text("utf-8")
    widths = re.findall(r"p{(\d\.\d+)\\linewidth}", tex)
    assert len(widths) == 4 and sum(map(float, widths)) == pytest.approx(0.75, abs=0.02)
    cells = (Cell(style="text", text="short"), Cell(style="text", text="x" * 40), Cell(0.5))
    table = Table("t", "T", (Column("a"), Column("b"), Column("c")), (Group((Line("m", cells),)),))
    assert r"\begin{tabular}{llp{0.75\linewidth}r}" in render_tex(table)
    assert "graphicx" not in render_tex(table)


def test_wide_tables_are_shrunk_to_the_line(tables: Path) -> None:
    wide = (tables / "table-2-amazon.tex").read_text("utf-8")
    assert wide.startswith("% needs \\usepackage{booktabs,graphicx}")
    assert wide.count(r"\resizebox{\linewidth}{!}{%") == 1 == wide.count(r"\end{tabular}}")
    narrow = (tables / "table-3-distillation.tex").read_text("utf-8")
    assert "resizebox" not in narrow and "graphicx" not in narrow


@pytest.mark.skipif(LATEX is None, reason="no pdflatex to compile the tables with")
def test_every_table_compiles(tables: Path, tmp_path: Path) -> None:
    assert LATEX is not None
    inputs = [rf"\input{{{path.as_posix()}}}\clearpage" for path in sorted(tables.glob("*.tex"))]
    head = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"
    (tmp_path / "all.tex").write_text("\n".join([head, *inputs, r"\end{document}"]), "utf-8")
    command = [LATEX, "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
