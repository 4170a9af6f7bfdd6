"""The folder as a whole: complete, self-contained, the same bytes again, never an error."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.report.paper import PaperSource, read_paper_source, write_paper_report
from metaxlm.report.paper.page import list_facts, make_content, render_page
from metaxlm.report.vector import render_svg

from ..test_page import Page
from .synthetic import (
    AMAZON,
    make_comparison,
    make_curve_rows,
    make_direction_rows,
    make_layer_rows,
    make_paper_rows,
    make_row,
)
from .test_accounts import PROVENANCE

RECIPE = """\
name: tiny
languages: [en, de]
model: {layers: 2, hidden: 64}
pretraining: {steps: 20000, batch_size: 8, length: 32}
variants: {xlm: {initialize: none}, metaxlm: {initialize: both}}
"""


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def make_folder(folder: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    """Write the small files of a run that has everything, or these rows."""
    rows = rows or [
        *make_paper_rows(), *make_paper_rows(tasks=AMAZON), *make_layer_rows(), *make_curve_rows(),
        *make_direction_rows({"xlm": 0.6, "metaxlm": 0.7}),
        make_row("mine <b>", "xnli", "accuracy", "de", 0.7),
    ]  # fmt: skip
    write_lines(folder / "results.jsonl", rows)
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    (folder / "provenance.json").write_text(
        json.dumps(PROVENANCE | {"digest": "abcdef", "metaxlm": "9.9", "torch": "2.0"})
    )
    log = [{"step": step, "loss": 5 - step / 100, "tokens": step, "seconds": step}
           for step in range(1, 100)]  # fmt: skip
    write_lines(folder / "variants" / "xlm" / "log.jsonl", [*log, {"step": 99, "held_out": {}}])
    write_lines(folder / "meta" / "log.jsonl", log)
    (folder / "data_notes.txt").write_text("Half of the data is missing.\n\nSo it is.\n")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_folder(tmp_path_factory.mktemp("small"))
    (folder / "keep.txt").write_text("mine")
    page = write_paper_report(read_paper_source(folder), folder)
    assert page == folder / "index.html"
    return folder


def test_every_file_is_there_and_what_else_there_was(folder: Path) -> None:
    assert (folder / "keep.txt").read_text() == "mine"
    assert (folder / "results.jsonl").is_file()
    tables = {path.stem for path in (folder / "tables").glob("*.csv")}
    assert {
        "table-1-xtreme", "table-2-amazon", "table-3-distillation", "table-4-freezing",
        "table-5-initialization", "languages-udpos", "layers-tatoeba", "layers-alignment",
        "curves-mlqa", "directions", "ideas", "ideas-tests", "cost-stages",
        "cost-evaluation", "training", "data",
    } <= tables  # fmt: skip
    for suffix in ("md", "tex"):
        assert {path.stem for path in (folder / "tables").glob(f"*.{suffix}")} == tables
    figures = {"gains", "overview", "retrieval", "alignment", "curves", "directions", "loss"}
    for suffix in ("svg", "pdf"):
        assert {path.stem for path in (folder / "figures").glob(f"*.{suffix}")} == figures
    claims = json.loads((folder / "claims.json").read_text())
    assert claims and {claim["outcome"] for claim in claims} <= {"holds", "fails", "cannot be told"}
    statements = (folder / "claims.md").read_text()
    assert all(claim["statement"].replace("|", r"\|") in statements for claim in claims)


def test_the_page_is_whole_and_needs_nothing_else(folder: Path) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert len(set(page.ids)) == len(page.ids)
    assert "script" not in page.tags and "http" not in "".join(page.links)
    for target in page.links:
        if target.startswith("#"):
            assert target[1:] in page.ids, target
        else:
            assert (folder / target).is_file(), target
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    assert "mine &lt;b&gt;" in text and "mine <b>" not in text
    words = "".join(page.text)
    assert "Half of the data is missing." in words
    assert "MetaXLM scores 6.5 points above XLM" in words
    assert "another size, for orientation only" in words
    # The result comes before everything else.
    assert text.index('class="headline"') < text.index("<nav")


def test_the_verdicts_are_counted_on_top(folder: Path) -> None:
    claims = json.loads((folder / "claims.json").read_text())
    head = (folder / "index.html").read_text(encoding="utf-8").partition("<nav")[0]
    shown = {kind: int(count) for kind, count in
             re.findall(r'badge (\w+)" href="#claims"><strong>(\d+)', head)}  # fmt: skip
    names = {"holds": "holds", "fails": "fails", "cannot be told": "untold"}
    assert shown == {
        css: sum(claim["outcome"] == outcome for claim in claims) for outcome, css in names.items()
    }


def test_the_example_of_tracing_a_number_gives_that_number(folder: Path) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    shown = unescape(text.partition('<pre tabindex="0"><code>')[2].partition("</code>")[0])
    code = shown.removeprefix("python3 -c '").removesuffix("'")
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True
    )
    assert f"{float(answer.stdout):.1f}" == "64.6"  # XNLI of MetaXLM


def test_markdown_says_the_same(folder: Path) -> None:
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "| here | 49.2 ± 1.0 | 55.7 ± 1.0 | 59.3 ± 1.0 |" in text
    for target in re.findall(r"\]\((.+?)\)", text):
        assert (folder / target).is_file()
    assert "\n\n\n\n" not in text


def test_the_same_source_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    write_paper_report(read_paper_source(folder), tmp_path / "again")
    made = [path for path in (tmp_path / "again").rglob("*") if path.is_file()]
    assert len(made) > 60
    for path in made:
        assert path.read_bytes() == (folder / path.relative_to(tmp_path / "again")).read_bytes()


def test_an_older_report_leaves_no_table_behind(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "tables", tmp_path / "tables")
    source = PaperSource("few", make_paper_rows(["xlm"], ["xnli"]))
    write_paper_report(source, tmp_path)
    assert not (tmp_path / "tables" / "cost-stages.csv").exists()
    assert json.loads((tmp_path / "claims.json").read_text()) == []


@pytest.mark.parametrize(
    "rows",
    [
        [make_row("xlm", "xnli", "accuracy", "en", 0.5)],
        [make_row("mine", "tatoeba", "accuracy", "de", 0.5, layer=1, scenario="features")],
        [make_row(None, "xnli", "majority", "en", 0.3)],
        [make_row("xlm", "mlqa", "f1", "en", 0.5, step=None, seed=1)],
        [make_row("xlm", "amazon-dvd", "accuracy", "en", 0.5, source="de")],
    ],
    ids=["one score", "features of an own variant", "levels only", "no step", "one direction"],
)
def test_whatever_is_missing_there_is_a_page(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    write_lines(tmp_path / "results.jsonl", rows)
    content = make_content(read_paper_source(tmp_path))
    drawn = {plate.name: render_svg(plate.figure) for plate in content.plates}
    page = Page(render_page(content, drawn))
    words = "".join(page.text)
    assert "This report is not complete" in words and "–" in words
    assert "MLQA along pretraining (Figure 5)" in words


def test_facts_come_from_the_recipe_and_the_provenance(folder: Path) -> None:
    assert list_facts(read_paper_source(folder)) == [
        ("Encoder", "2 layers of 64"), ("Languages", "2"),
        ("Cross-lingual pretraining", "20,000 steps of 8 × 32 tokens a variant"),
        ("Recipe's fingerprint", "abcdef"), ("metaxlm", "9.9"), ("Put together with torch", "2.0"),
    ]  # fmt: skip


def test_stored_tests_are_read_back(tmp_path: Path) -> None:
    tests = [make_comparison("xnli", {("xlm", "metaxlm"): (-0.05, 0.001)})]
    stored = {str(number): asdict(one) for number, one in enumerate(tests)}
    (tmp_path / "comparisons.json").write_text(json.dumps(stored))
    write_lines(tmp_path / "results.jsonl", make_paper_rows(["xlm", "metaxlm"], ["xnli"]))
    source = read_paper_source(tmp_path)
    assert source.comparisons == tests
    [tests_table] = make_content(source).sections["tests"]
    assert tests_table.groups[0].lines[0].label == "MetaXLM − XLM"


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match="no results yet"):
        read_paper_source(tmp_path)
    write_lines(tmp_path / "results.jsonl", make_paper_rows(["xlm"], ["xnli"]))
    (tmp_path / "provenance.json").write_text("[]")
    with pytest.raises(MetaXLMError, match=r"provenance\.json: an object is expected"):
        read_paper_source(tmp_path)
    (tmp_path / "provenance.json").unlink()
    (tmp_path / "comparisons.json").write_text('{"a": {"task": "xnli"}}')
    with pytest.raises(MetaXLMError, match=r"comparisons\.json: not a file of comparisons"):
        read_paper_source(tmp_path)
    (tmp_path / "comparisons.json").unlink()
    write_lines(tmp_path / "variants" / "xlm" / "log.jsonl", [{"loss": 3.0}])
    with pytest.raises(MetaXLMError, match=r"xlm/log\.jsonl:1: a log row"):
        read_paper_source(tmp_path)
