from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest
from rich.console import Console

from metaxlm.report import summary_table
from metaxlm.report.cells import (
    Cell,
    Column,
    Group,
    Line,
    Table,
    format_cell,
    format_seconds,
    mark_best,
)
from metaxlm.report.rendering import render_html, render_latex, render_markdown
from metaxlm.report.run_folder import read_run
from metaxlm.report.start_tables import list_rules, make_start_tables, make_training_table
from metaxlm.report.tables import (
    make_alignment_table,
    make_retrieval_table,
    make_summary_table,
    make_transfer_tables,
)

from .fake_run import LANGUAGES, VARIANTS, make_row, make_run, retrieval_value, transfer_value


def read_markdown(text: str) -> dict[str, list[str]]:
    """Return the cells of a Markdown table by row label; a later group's rows do not overwrite."""
    rows: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("| ---"):
            label, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            rows.setdefault(label, cells)
    return rows


def column(better: str | None, *values: float | None) -> list[bool]:
    """Mark one column and return which of its cells are best."""
    lines = tuple(Line(str(n), (Cell(value),)) for n, value in enumerate(values))
    table = Table("t", "T", (Column("c", "", better),), (Group(lines),))  # type: ignore[arg-type]
    return [line.cells[0].best for line in mark_best(table).groups[0].lines]


def test_best_is_highest_or_lowest() -> None:
    assert column("higher", 0.1, 0.3, 0.2) == [False, True, False]
    assert column("lower", 0.1, 0.3, 0.2) == [True, False, False]
    assert column(None, 0.1, 0.3) == [False, False]


def test_best_needs_a_rival_and_ties_share_it() -> None:
    assert column("higher", 0.1, None) == [False, False]
    assert column("higher", 0.30001, 0.30004, 0.1) == [True, True, False]


def test_reference_never_competes() -> None:
    lines = (Line("a", (Cell(0.1),)), Line("b", (Cell(0.2),)),
             Line("majority", (Cell(0.9),), reference=True))  # fmt: skip
    table = mark_best(Table("t", "T", (Column("c", "", "higher"),), (Group(lines),)))
    assert [line.cells[0].best for line in table.groups[0].lines] == [False, True, False]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(0.3125), "31.2"),
        (Cell(0.5, 0.0123), "50.0 ± 1.2"),
        (Cell(-0.021), "−2.1"),
        (Cell(-0.0001), "0.0"),
        (Cell(), "–"),
        (Cell(1234567, style="count"), "1,234,567"),
        (Cell(2.345, style="decimal"), "2.35"),
    ],
)
def test_values_as_written(cell: Cell, text: str) -> None:
    assert format_cell(cell) == text


def test_durations_as_written() -> None:
    assert [format_seconds(s) for s in (9.4, 61, 3661)] == ["9 s", "1 min 01 s", "1 h 01 min"]


def test_summary_holds_hand_computed_means(run_dir: Path) -> None:
    run = read_run(run_dir)
    cells = read_markdown(render_markdown(make_summary_table(run.rows)))
    # Layer 3 is best. Retrieval of XLM: 0.21, 0.19, 0.17, 0.15; error rates are 1 minus that.
    # Transfer of XLM: English 0.86; others 0.37, 0.36, 0.35, 0.34.
    assert cells["XLM"] == ["18.0", "82.0", "86.0", "35.5", "50.5"]
    assert cells["MetaXLM"] == ["43.0", "57.0", "87.0", "50.5", "36.5"]
    assert cells["MetaXLM+Dict"] == ["**68.0**", "**32.0**", "**88.0**", "**65.5**", "**22.5**"]
    assert cells["Majority label"] == ["–", "–", "33.3", "33.3", "–"]


def test_summary_over_seeds_has_deviations(tmp_path: Path) -> None:
    rows = read_run(make_run(tmp_path, seeds=3)).rows
    table = make_summary_table(rows)
    cell = table.groups[0].lines[0].cells[0]
    by_seed = [
        statistics.fmean(retrieval_value("xlm", 3, language, seed) for language in LANGUAGES)
        for seed in (1, 2, 3)
    ]
    assert cell.value == pytest.approx(statistics.fmean(by_seed))
    assert cell.deviation == pytest.approx(statistics.stdev(by_seed))
    assert "19.0 ± 1.0" in render_markdown(table)
    assert r"19.0 $\pm$ 1.0" in render_latex(table)
    assert "4 languages × 200 examples, 3 seeds" in table.notes[0]


def test_retrieval_by_language_and_direction(run_dir: Path) -> None:
    table = make_retrieval_table(read_run(run_dir).rows, VARIANTS)
    assert table is not None
    assert [c.detail for c in table.columns] == [*LANGUAGES, ""]
    both, to_source, from_source = table.groups
    for group, shift in ((both, 0.0), (to_source, 0.02), (from_source, -0.02)):
        for line, variant in zip(group.lines, VARIANTS, strict=True):
            expected = [retrieval_value(variant, 3, language) + shift for language in LANGUAGES]
            values = [cell.value for cell in line.cells]
            assert values == pytest.approx([*expected, statistics.fmean(expected)])
            assert line.detail == "layer 3"
            assert all(cell.best == (variant == "metaxlm+dict") for cell in line.cells)


def test_lower_error_is_bold_but_higher_precision(run_dir: Path) -> None:
    table = make_alignment_table(read_run(run_dir).rows, VARIANTS)
    assert table is not None
    for group, best in zip(table.groups, ("lower", "higher", "higher"), strict=True):
        means = [line.cells[-1].value for line in group.lines]
        extreme = (min if best == "lower" else max)(m for m in means if m is not None)
        assert [line.cells[-1].best for line in group.lines] == [m == extreme for m in means]
    assert table.groups[0].lines[2].cells[0].value == pytest.approx(0.29)


def test_transfer_by_language_with_majority(run_dir: Path) -> None:
    (table,) = make_transfer_tables(read_run(run_dir).rows, VARIANTS)
    assert [c.detail or c.label for c in table.columns] == ["en", *LANGUAGES, "mean", "Gap"]
    first = [cell.value for cell in table.groups[0].lines[0].cells]
    expected = [transfer_value("xlm", language) for language in ("en", *LANGUAGES)]
    others = statistics.fmean(expected[1:])
    assert first == pytest.approx([*expected, others, expected[0] - others])
    majority = table.groups[0].lines[-1]
    assert majority.reference and majority.cells[1].value == pytest.approx(1 / 3)


def test_left_out_languages_are_told() -> None:
    rows = [
        make_row("xlm", "tatoeba", "accuracy", "de", 0.4, layer=0),
        make_row("xlm", "tatoeba", "accuracy", "fr", 0.6, layer=0),
        make_row("metaxlm", "tatoeba", "accuracy", "de", 0.5, layer=0),
    ]
    table = make_retrieval_table(rows, ["xlm", "metaxlm"])
    assert table is not None
    assert "1 language that every variant has (1 left out)" in table.notes[0]
    xlm, metaxlm = table.groups[0].lines
    assert [cell.value for cell in xlm.cells] == [0.4, 0.6, 0.4]
    assert [cell.value for cell in metaxlm.cells] == [0.5, None, 0.5]


def test_rules_that_filled_nothing_have_no_column() -> None:
    coverage = {"a": {"by_rule": {"direct": 3, "nfkc": 0, "filler": 1}, "rows": 4}}
    assert list_rules(coverage) == ["direct", "filler"]


def test_start_tables_count_rows_and_tokens(run_dir: Path) -> None:
    run = read_run(run_dir)
    rules, tokens, scripts = make_start_tables(run.coverage, run.variants)
    assert [c.label for c in rules.columns] == [
        "special", "direct", "lower", "accents", "dictionary",
        "dictionary tokens", "filler", "All rows", "Copied",
    ]  # fmt: skip
    values = [cell.value for cell in rules.groups[0].lines[1].cells]
    assert values == [5, 1495, 300, 200, 2400, 200, 3400, 8000, pytest.approx(0.575)]
    assert tokens.groups[0].lines[0].cells[1].value == pytest.approx(0.31)
    assert scripts.groups[0].lines[0].cells[0].value == pytest.approx(1900 / 4000)
    assert make_start_tables({}, run.variants) == []


def test_training_table_reads_the_logs(run_dir: Path) -> None:
    run = read_run(run_dir)
    table = make_training_table(run.meta_log, run.logs, run.variants)
    assert table is not None
    steps, tokens, loss, seconds = table.groups[0].lines[1].cells
    assert (steps.value, tokens.value, seconds.value) == (1000, 1000 * 4096, pytest.approx(90))
    tail = [row["loss"] for row in run.logs["xlm"]][-5:]
    assert loss.value == pytest.approx(statistics.fmean(tail))


def test_latex_is_booktabs_with_escapes() -> None:
    lines = (Line("a_b & 50%", (Cell(0.1),)), Line("c", (Cell(-0.2),)))
    table = mark_best(Table("t", "T #1", (Column("x", "y", "lower"),), (Group(lines, "G"),)))
    text = render_latex(table)
    assert r"a\_b \& 50\% & 10.0 \\" in text
    assert r"c & \textbf{$-$20.0} \\" in text
    assert r"\multicolumn{2}{l}{\textit{G}} \\" in text
    assert r"\caption{T \#1.}" in text
    for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}{lr}"):
        assert text.count(rule) == 1


def test_markdown_rows_are_equally_wide(run_dir: Path) -> None:
    for table in make_transfer_tables(read_run(run_dir).rows, VARIANTS):
        rows = [x for x in render_markdown(table).splitlines() if x.startswith("|")]
        assert {row.count("|") for row in rows} == {len(table.columns) + 2}
    pipe = Table("t", "T", (Column("a|b"),), (Group((Line("x|y", (Cell(),)),)),))
    assert r"x\|y" in render_markdown(pipe) and r"a\|b" in render_markdown(pipe)


def test_html_has_scopes_and_escapes() -> None:
    line = Line("<b>", (Cell(0.5, 0.01, best=True), Cell()), "v", "layer 1")
    table = Table("t", "T & U", (Column("<i>"), Column("y", "z")), (Group((line,), "G"),), ("n<",))
    text = render_html(table, {"v": "v1"})
    assert "<strong>50.0</strong> <small>± 1.0</small>" in text
    assert '<th scope="row"><span class="swatch v1"></span>&lt;b&gt; <small>layer 1</small>' in text
    assert text.count('scope="col"') == 3 and text.count('scope="rowgroup"') == 1
    assert "<caption>T &amp; U</caption>" in text and "n&lt;" in text
    assert "<i>" not in text


def test_terminal_table_fits_eighty_columns(tmp_path: Path) -> None:
    rows = read_run(make_run(tmp_path, seeds=3)).rows
    console = Console(width=80, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(summary_table(rows))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capture.get())
    numbers = ["69.0 ± 1.0", "31.0 ± 1.0", "89.0 ± 1.0", "66.5 ± 1.0", "22.5 ± 0.0"]
    assert re.search(" +".join(map(re.escape, ["MetaXLM+Dict", *numbers])), plain)
    assert "…" not in plain
    assert max(map(len, plain.splitlines())) <= 80
    assert "\x1b[1m69.0 ± 1.0\x1b[0m" in capture.get()
