from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from metaxlm.init.comparison import compare_plans
from rich.console import Console

from metaxlm.analysis.tables import Table, render_terminal
from metaxlm.init.ledger import (
    comparison_table,
    coverage,
    coverage_tables,
    draw_coverage,
    explain,
    story_text,
    write_coverage,
)
from metaxlm.init.plan import Plan, make_plan
from metaxlm.init.vocabulary import list_vocabulary
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokens import Kind

TARGET = list_vocabulary(["<s>", "▁cat", "▁Dog", "▁дом", "ш"], Kind.SENTENCEPIECE)
SOURCE = list_vocabulary(["<s>", "Ġcat", "Ġdog"], Kind.BYTE_BPE)


@pytest.fixture
def plan() -> Plan:
    return make_plan(TARGET, SOURCE)


@pytest.fixture
def found(plan: Plan) -> dict[str, Any]:
    counts = {"de": np.array([0, 6, 0, 2, 0]), "ru": np.array([0, 1, 0, 8, 1])}
    return coverage(plan, counts)


def _print(value: object) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(value)
    return captured.get()


def list_cells(table: Table) -> list[list[str]]:
    return [[line.label, *(cell.text for cell in line.cells)] for line in table.lines]


def test_tables_count_tokens_and_text(found: dict[str, Any]) -> None:
    rules, scripts, languages = map(list_cells, coverage_tables(found))
    assert rules[:4] == [
        ["special", "1", "20.0 %", "20.0 %"],
        ["direct", "1", "20.0 %", "40.0 %"],
        ["nfkc", "0", "0.0 %", "40.0 %"],
        ["lower", "1", "20.0 %", "60.0 %"],
    ]
    assert rules[-1] == ["filler", "2", "40.0 %", "100.0 %"]
    assert ["Cyrillic", "2", "0", "0.0 %"] in scripts
    # The best covered language first.
    assert languages == [
        ["German", "2", "50.0 %", "8", "75.0 %"],
        ["Russian", "3", "33.3 %", "10", "10.0 %"],
    ]


def test_without_text_there_is_no_table_of_languages(plan: Plan) -> None:
    assert len(coverage_tables(coverage(plan))) == 2
    assert len(draw_coverage(coverage(plan)).axes) == 1


def test_bars_are_as_long_as_the_shares(found: dict[str, Any]) -> None:
    figure = draw_coverage(found)
    text = figure.axes[1]
    assert [label.get_text() for label in text.get_yticklabels()] == ["German", "Russian"]
    # German: 75 % direct, the rest filler.
    lengths = [bar.get_width() for bar in text.patches if round(bar.get_y() + 0.31) == 0]
    assert sorted(length for length in lengths if length) == pytest.approx([25, 75])


def test_files(found: dict[str, Any], tmp_path: Path) -> None:
    write_coverage(tmp_path, found)
    text = (tmp_path / "coverage.md").read_text("utf-8")
    assert "| German | 2 | 50.0 % | 8 | 75.0 % |" in text and "| filler | 2 | 40.0 % |" in text
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["coverage.md", "coverage.pdf", "coverage.svg"]
    first = (tmp_path / "coverage.svg").read_bytes()
    write_coverage(tmp_path, found)
    assert (tmp_path / "coverage.svg").read_bytes() == first


def test_a_story_is_printed_with_its_end(plan: Plan) -> None:
    printed = _print(story_text(explain(plan, 2)))
    assert '▁Dog  row 2: "Dog", Latin script, starts a word' in printed
    assert "→ lower" in printed
    assert "starts from a copy of Ġdog" in printed


def test_a_comparison_is_printed_with_examples(plan: Plan) -> None:
    bare = make_plan(TARGET, SOURCE, MatchingRecipe(rules=["direct"]))
    other = list_vocabulary(["<s>", "▁cat", "▁Dog", "▁new"], Kind.SENTENCEPIECE)
    printed = _print(
        render_terminal(comparison_table(compare_plans(bare, make_plan(other, SOURCE))))
    )
    assert "▁Dog: random → Ġdog" in printed
    assert "only before" in printed
    assert "▁дом, ш" in printed
    assert "▁new" in printed
