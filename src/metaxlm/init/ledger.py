"""The ledger: a plan on the disk, and what it covers.

Comes in: a `Plan`. Goes out: a parquet file with one line a target row (id, token, script, rule,
source ids, source tokens, weights, dictionary entries), from which the same plan can be read again;
and the coverage record that the report draws: how many rows each rule of section 3.2 of the paper
filled, how much of each script is matched, and what share of each language's running text starts
from something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import ValidationError

from metaxlm.data.readers.parquet import (
    LARGE_BYTES,
    MAX_EXPANSION,
    check_table,
    open_parquet,
    reading_parquet,
)
from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.files import atomic_file
from metaxlm.init.matching import RULES
from metaxlm.init.plan import Plan
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.token_forms import Kind

LEDGER = "ledger.parquet"
COVERAGE = "coverage.json"
"""What the two are called beside a model."""

_SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("token", pa.string()),
        ("script", pa.string()),
        ("rule", pa.string()),
        ("source_ids", pa.list_(pa.int32())),
        ("source_tokens", pa.list_(pa.string())),
        ("weights", pa.list_(pa.float32())),
        ("languages", pa.list_(pa.string())),
        ("translations", pa.list_(pa.string())),
    ]
)

_TEXT_COLUMNS = [
    f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
    for field in _SCHEMA
    if pa.types.is_string(getattr(field.type, "value_type", field.type))
]


def save_ledger(plan: Plan, path: Path) -> None:
    """Write a plan as parquet."""
    offsets = pa.array(plan.offsets, pa.int32())
    entry_offsets = pa.array(plan.entry_offsets, pa.int32())
    source_tokens = [plan.source_tokens[row] for row in plan.sources.tolist()]
    columns = [
        pa.array(np.arange(len(plan)), pa.int32()),
        pa.array(plan.tokens, pa.string()),
        pa.array(plan.scripts, pa.string()),
        pa.array([RULES[code] for code in plan.rules.tolist()], pa.string()),
        pa.ListArray.from_arrays(offsets, pa.array(plan.sources)),
        pa.ListArray.from_arrays(offsets, pa.array(source_tokens, pa.string())),
        pa.ListArray.from_arrays(offsets, pa.array(plan.weights)),
        pa.ListArray.from_arrays(entry_offsets, pa.array(plan.languages, pa.string())),
        pa.ListArray.from_arrays(entry_offsets, pa.array(plan.translations, pa.string())),
    ]
    metadata = {
        "source_size": str(plan.source_size),
        "kind": plan.kind.value,
        "matching": plan.recipe.model_dump_json(),
    }
    table = pa.Table.from_arrays(columns, schema=_SCHEMA.with_metadata(metadata))
    with atomic_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def load_ledger(path: Path) -> Plan:
    """Read a plan that `save_ledger` wrote."""
    require_whole(path)
    with reading_parquet(path):
        table = _read_table(path)
        try:
            return _make_plan(table, path)
        except (AssertionError, KeyError, ValidationError) as error:
            raise MetaXLMError(
                f"{path}: its columns contradict each other ({type(error).__name__}); match again "
                "to write it"
            ) from error


def _make_plan(table: Any, path: Path) -> Plan:
    rules = table["rule"].to_pylist()
    unknown = sorted(set(rules) - set(RULES))
    if unknown:
        raise MetaXLMError(
            f"{path}: unknown rule {unknown[0]!r}; the ledger is of another version, match again"
        )
    sources = _flatten(table, "source_ids")
    source_tokens = _flatten(table, "source_tokens").to_pylist()
    metadata = table.schema.metadata
    return Plan(
        tokens=tuple(table["token"].to_pylist()),
        scripts=tuple(table["script"].to_pylist()),
        rules=np.array([RULES.index(rule) for rule in rules], np.uint8),
        offsets=_find_offsets(table, "source_ids"),
        sources=sources.to_numpy(),
        weights=_flatten(table, "weights").to_numpy(),
        entry_offsets=_find_offsets(table, "languages"),
        languages=tuple(_flatten(table, "languages").to_pylist()),
        translations=tuple(_flatten(table, "translations").to_pylist()),
        source_tokens=dict(zip(sources.to_pylist(), source_tokens, strict=True)),
        source_size=int(metadata[b"source_size"]),
        kind=Kind(metadata[b"kind"].decode()),
        recipe=MatchingRecipe.model_validate_json(metadata[b"matching"]),
    )


def _read_table(path: Path) -> Any:
    if not path.is_file():
        raise MetaXLMError(f"{path}: no such ledger")
    with open_parquet(path) as file:
        schema = file.schema_arrow
        if schema.names != _SCHEMA.names or b"matching" not in (schema.metadata or {}):
            raise MetaXLMError(
                f"{path}: not a ledger, its columns are {', '.join(schema.names)}; "
                f"a ledger has {', '.join(_SCHEMA.names)}"
            )
        check_table(path, file, _SCHEMA.names)
    # As dictionaries, repeated strings take no memory.
    with open_parquet(path, read_dictionary=_TEXT_COLUMNS) as file:
        table = file.read(use_threads=False)
    num_bytes = sum(_measure_text(table[name].combine_chunks()) for name in _SCHEMA.names)
    if num_bytes > max(LARGE_BYTES, MAX_EXPANSION * path.stat().st_size):
        raise MetaXLMError(f"{path}: unpacks to {num_bytes:,} bytes of text; match again")
    table = table.cast(_SCHEMA.with_metadata(schema.metadata))
    table.validate(full=True)
    return table.combine_chunks()


def _measure_text(column: Any) -> int:
    """Return the bytes of a column's strings, repeated ones each time."""
    if isinstance(column, pa.ListArray):
        column = column.flatten()
    if not isinstance(column, pa.DictionaryArray):
        return 0
    lengths = pc.binary_length(column.dictionary)
    return pc.sum(lengths.take(column.indices)).as_py() or 0


def _flatten(table: Any, column: str) -> Any:
    return table[column].combine_chunks().flatten()


def _find_offsets(table: Any, column: str) -> NDArray[np.int64]:
    lengths = table[column].combine_chunks().value_lengths().to_numpy()
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def coverage(plan: Plan, token_counts: Mapping[str, NDArray[Any]] | None = None) -> dict[str, Any]:
    """Return how much a plan covers, as coverage.json has it.

    `token_counts` has for each language how often each target row occurs in its text; with it the
    share of running tokens that a rule matched is known, by language and rule.
    """
    return {
        "rows": len(plan),
        "by_rule": plan.count_rules(),
        "by_script": _cover_scripts(plan),
        "by_dictionary": _count_languages(plan),
        "by_language": {
            language: _cover_text(plan, language, counts)
            for language, counts in (token_counts or {}).items()
        },
    }


def _cover_scripts(plan: Plan) -> dict[str, dict[str, Any]]:
    names, places = np.unique(np.array(plan.scripts, dtype=np.str_), return_inverse=True)
    rows = np.bincount(places, minlength=len(names))
    matched = np.bincount(places[plan.is_matched], minlength=len(names))
    shape = (len(names), len(RULES))
    by_rule = np.bincount(places * len(RULES) + plan.rules, minlength=shape[0] * shape[1])
    largest_first = sorted(range(len(names)), key=lambda place: (-rows[place], names[place]))
    return {
        str(names[place]): {
            "rows": int(rows[place]),
            "matched": int(matched[place]),
            "by_rule": {
                rule: int(count)
                for rule, count in zip(RULES, by_rule.reshape(shape)[place], strict=True)
                if count
            },
        }
        for place in largest_first
    }


def _count_languages(plan: Plan) -> dict[str, int]:
    """Return how many rows each dictionary language helped to fill."""
    rows = np.repeat(np.arange(len(plan)), np.diff(plan.entry_offsets)).tolist()
    counts = Counter(language for _, language in set(zip(rows, plan.languages, strict=True)))
    return dict(sorted(counts.items()))


def _cover_text(plan: Plan, language: str, counts: NDArray[Any]) -> dict[str, Any]:
    if len(counts) != len(plan):
        raise MetaXLMError(
            f"coverage: {language} has counts for {len(counts)} tokens, the plan has {len(plan)} "
            "rows; count the text with the plan's own vocabulary"
        )
    total = int(counts.sum())
    by_rule = np.bincount(plan.rules, weights=counts, minlength=len(RULES)) / max(total, 1)
    is_used = counts > 0
    return {
        "tokens": total,
        "matched": float(counts[plan.is_matched].sum() / max(total, 1)),
        "rows": int(is_used.sum()),
        "matched_rows": int((is_used & plan.is_matched).sum()),
        "by_rule": {rule: float(share) for rule, share in zip(RULES, by_rule, strict=True)},
    }
