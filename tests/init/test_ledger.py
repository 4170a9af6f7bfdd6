from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metaxlm.analysis.tables import Table
from metaxlm.errors import MetaXLMError
from metaxlm.init.ledger import (
    _describe_outcome,
    coverage,
    coverage_tables,
    draw_coverage,
    explain,
    find_rows,
    load_ledger,
    save_ledger,
    write_coverage,
)
from metaxlm.init.match_plan import Origin, Plan, make_plan
from metaxlm.init.vocabulary import list_vocabulary
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokens import Kind
from tests.init.conftest import DICTIONARIES, MakePlan


def test_round_trip_is_exact(make: MakePlan, tmp_path: Path) -> None:
    path = tmp_path / "ledger.parquet"
    for texts in (None, DICTIONARIES):
        plan = make(texts, dictionaries="/secret/muse", filler="normal")
        save_ledger(plan, path)
        loaded = load_ledger(path)
        assert loaded == plan
        for name in ("offsets", "sources", "weights"):
            assert getattr(loaded, name).dtype == getattr(plan, name).dtype
        # The path of the dictionaries is not stored.
        assert loaded.recipe == MatchingRecipe(filler="normal")
        assert b"secret" not in path.read_bytes()
    rows = {row["token"]: row for row in pq.read_table(path).to_pylist()}
    row = plan.tokens.index("▁любит")
    assert rows["▁любит"] == {
        "id": row,
        "token": "▁любит",
        "script": "Cyrillic",
        "rule": "dictionary",
        "source_ids": list(plan.origin(row).source_rows),
        "source_tokens": ["Ġloves", "Ġlove"],
        "weights": [0.5, 0.5],
        "languages": ["ru", "ru"],
        "translations": ["loves", "love"],
    }
    assert rows["ш"]["source_ids"] == rows["ш"]["languages"] == []


def test_missing_and_broken_ledgers(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "ledger.parquet"
    with pytest.raises(MetaXLMError, match=r"ledger\.parquet: no such ledger"):
        load_ledger(path)
    path.write_bytes(b"PAR1 and then nothing of the kind")
    with pytest.raises(MetaXLMError, match=r"ledger\.parquet: .*damaged or cut short"):
        load_ledger(path)
    pq.write_table(pa.table({"a": [1], "b": [2]}), path)
    with pytest.raises(MetaXLMError, match=r"ledger\.parquet: not a ledger, its columns are a, b"):
        load_ledger(path)
    save_ledger(plan, path)
    table = pq.read_table(path)
    rules = pa.array(["guess", *table["rule"].to_pylist()[1:]])
    pq.write_table(table.set_column(3, "rule", rules), path)
    with pytest.raises(MetaXLMError, match="unknown rule 'guess'"):
        load_ledger(path)


def test_coverage_counts_tokens(plan: Plan) -> None:
    found = coverage(plan)
    assert found["by_rule"] == plan.count_rules()
    assert sum(script["rows"] for script in found["by_script"].values()) == len(plan)
    assert found["by_script"]["Special"] == {"rows": 5, "matched": 5, "by_rule": {"special": 5}}
    # кошка, дом and любит, each once.
    assert found["by_script"]["Cyrillic"]["matched"] == 3
    assert found["by_dictionary"]["ru"] == 3
    assert found["by_language"] == {}


@pytest.fixture
def found() -> dict[str, Any]:
    """The coverage of a small plan."""
    target = list_vocabulary(["<s>", "▁cat", "▁Dog", "▁дом", "ш"], Kind.SENTENCEPIECE)
    plan = make_plan(target, list_vocabulary(["<s>", "Ġcat", "Ġdog"], Kind.BYTE_BPE))
    counts = {"de": np.array([0, 6, 0, 2, 0]), "ru": np.array([0, 1, 0, 8, 1])}
    return coverage(plan, counts)


def _list_cells(table: Table) -> list[list[str]]:
    return [[line.label, *(cell.text for cell in line.cells)] for line in table.lines]


def test_tables_count_tokens_and_text(found: dict[str, Any]) -> None:
    rules, scripts, languages = map(_list_cells, coverage_tables(found))
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
    assert len(coverage_tables({**found, "by_language": {}})) == 2


def test_files_and_figure(found: dict[str, Any], tmp_path: Path) -> None:
    text = draw_coverage(found).axes[1]
    assert [label.get_text() for label in text.get_yticklabels()] == ["German", "Russian"]
    # German: 75 % direct, the rest filler.
    lengths = [bar.get_width() for bar in text.patches if round(bar.get_y() + 0.31) == 0]
    assert sorted(length for length in lengths if length) == pytest.approx([25, 75])
    write_coverage(tmp_path, found)
    markdown = (tmp_path / "coverage.md").read_text("utf-8")
    assert "| German | 2 | 50.0 % | 8 | 75.0 % |" in markdown
    assert "| filler | 2 | 40.0 % |" in markdown
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["coverage.md", "coverage.pdf", "coverage.svg"]


def test_explanation_of_a_dictionary_word(plan: Plan) -> None:
    [row] = find_rows(plan, "▁Haus")
    assert find_rows(plan, f"#{row}") == [row]
    story = explain(plan, row)
    assert story.description == '"Haus", Latin script, starts a word'
    assert story.steps == (
        ("direct", '"Haus" at a word start: not in the source'),
        ("nfkc", "nothing new to try"),
        ("lower", '"haus" at a word start: not in the source'),
        ("capitalized", "nothing new to try"),
        ("word_start", '"Haus" inside a word, "haus" inside a word: not in the source'),
        ("accents", "nothing new to try"),
        ("dictionary", '"haus" is German house'),
    )
    assert story.outcome == "a copy of Ġhouse"
    several = explain(plan, plan.tokens.index("▁любит"))
    assert several.steps[-1] == ("dictionary", '"любит" is Russian loves, love')
    assert several.outcome == "0.50 Ġloves + 0.50 Ġlove"


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ((0.0, 1.0), "a copy of b"),
        ((0.003, 0.997), "0.997 b + 0.003 a"),
        ((0.25, 0.75), "0.75 b + 0.25 a"),
        ((0.00004, 0.99996), "0.99996 b + 0.00004 a"),
    ],
)
def test_weights_have_enough_digits(plan: Plan, weights: tuple[float, ...], expected: str) -> None:
    origin = Origin("x", "dictionary", (1, 2), ("a", "b"), weights, ())
    assert _describe_outcome(plan, origin) == expected
