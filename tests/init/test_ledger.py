from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries
from metaxlm.init.ledger import coverage, load_ledger, save_ledger
from metaxlm.init.plan import Plan, make_plan
from metaxlm.recipe import MatchingRecipe


def test_round_trip_is_exact(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "ledger.parquet"
    save_ledger(plan, path)
    loaded = load_ledger(path)
    assert loaded == plan
    assert loaded.offsets.dtype == plan.offsets.dtype
    assert loaded.sources.dtype == plan.sources.dtype
    assert loaded.weights.dtype == plan.weights.dtype


def test_round_trip_keeps_the_filler_and_plans_without_dictionaries(
    pieces: PreTrainedTokenizerBase, byte_bpe: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    plan = make_plan(pieces, byte_bpe, MatchingRecipe(filler="normal"), None)
    save_ledger(plan, tmp_path / "ledger.parquet")
    loaded = load_ledger(tmp_path / "ledger.parquet")
    assert loaded == plan
    assert loaded.recipe.filler == "normal"


def test_round_trip_forgets_where_the_dictionaries_lay(
    pieces: PreTrainedTokenizerBase,
    byte_bpe: PreTrainedTokenizerBase,
    dictionaries: Dictionaries,
    tmp_path: Path,
) -> None:
    recipe = MatchingRecipe(dictionaries=tmp_path / "muse", one_to_many="first")
    plan = make_plan(pieces, byte_bpe, recipe, dictionaries)
    save_ledger(plan, tmp_path / "ledger.parquet")
    loaded = load_ledger(tmp_path / "ledger.parquet")
    assert loaded == plan
    assert loaded.recipe == MatchingRecipe(one_to_many="first")
    assert str(tmp_path).encode() not in (tmp_path / "ledger.parquet").read_bytes()


def test_ledger_reads_as_a_table(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "ledger.parquet"
    save_ledger(plan, path)
    rows = {row["token"]: row for row in pq.read_table(path).to_pylist()}
    row = plan.tokens.index("▁любит")
    origin = plan.origin(row)
    assert rows["▁любит"] == {
        "id": row,
        "token": "▁любит",
        "script": "Cyrillic",
        "rule": "dictionary",
        "source_ids": list(origin.source_rows),
        "source_tokens": ["Ġloves", "Ġlove"],
        "weights": [0.5, 0.5],
        "languages": ["ru", "ru"],
        "translations": ["loves", "love"],
    }
    assert rows["ш"]["source_ids"] == rows["ш"]["languages"] == []


def test_missing_and_broken_ledgers(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match=r"none\.parquet: no such ledger"):
        load_ledger(tmp_path / "none.parquet")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and then nothing of the kind")
    with pytest.raises(MetaXLMError, match=r"broken\.parquet: .*damaged or cut short"):
        load_ledger(broken)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1], "b": [2]}), other)
    with pytest.raises(MetaXLMError, match=r"other\.parquet: not a ledger, its columns are a, b"):
        load_ledger(other)


def test_ledger_with_an_unknown_rule(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "ledger.parquet"
    save_ledger(plan, path)
    table = pq.read_table(path)
    rules = pa.array(["guess", *table["rule"].to_pylist()[1:]])
    pq.write_table(table.set_column(3, "rule", rules), path)
    with pytest.raises(MetaXLMError, match="unknown rule 'guess'"):
        load_ledger(path)


def test_coverage_counts_rows(plan: Plan) -> None:
    found = coverage(plan)
    assert found["rows"] == len(plan)
    assert found["by_rule"] == plan.count_rules()
    assert sum(script["rows"] for script in found["by_script"].values()) == len(plan)
    matched = sum(script["matched"] for script in found["by_script"].values())
    assert matched == int(plan.is_matched.sum())
    special = {"rows": 5, "matched": 5, "by_rule": {"special": 5}}
    assert found["by_script"]["Special"] == special
    for one in found["by_script"].values():
        assert sum(one["by_rule"].values()) == one["rows"]
    # кошка, дом and любит, each once; ru knows no other piece.
    assert found["by_script"]["Cyrillic"]["matched"] == 3
    assert found["by_dictionary"]["ru"] == 3
    assert found["by_language"] == {}


def test_coverage_of_running_text(plan: Plan, pieces: PreTrainedTokenizerBase) -> None:
    # Three tokens that start from something, one that does not.
    counts = np.zeros(len(plan), np.int64)
    for token, count in {"▁Katze": 2, "▁London": 1, "ш": 1}.items():
        counts[plan.tokens.index(token)] = count
    found = coverage(plan, {"de": counts, "fr": np.zeros_like(counts)})
    german, french = found["by_language"]["de"], found["by_language"]["fr"]
    shares = {rule: share for rule, share in german.pop("by_rule").items() if share}
    assert shares == {"dictionary": 0.5, "direct": 0.25, "filler": 0.25}
    assert german == {"tokens": 4, "matched": 0.75, "rows": 3, "matched_rows": 2}
    assert not any(french.pop("by_rule").values())
    assert french == {"tokens": 0, "matched": 0.0, "rows": 0, "matched_rows": 0}


def test_coverage_refuses_counts_of_another_vocabulary(plan: Plan) -> None:
    with pytest.raises(MetaXLMError, match="de has counts for 3 tokens"):
        coverage(plan, {"de": np.zeros(3, np.int64)})
