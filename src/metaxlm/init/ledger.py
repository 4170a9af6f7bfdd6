"""The ledger: a plan as a parquet file, its coverage, and explanations of single tokens.

The ledger has one row per target token, from which the same plan is read again. The coverage has
the number of tokens per rule, script and dictionary, and the share of each language's running text
that has a match.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import ValidationError

from metaxlm.analysis.tables import Table, text_table
from metaxlm.data.readers.parquet import (
    LARGE_BYTES,
    MAX_EXPANSION,
    check_table,
    open_parquet,
    reading_parquet,
)
from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.files import atomic_file, write_text
from metaxlm.init.match_plan import Origin, Plan
from metaxlm.init.rules import DICTIONARY_RULES, FILLER_RULES, RULES, TEXT_RULES, spell_word
from metaxlm.languages import language_name
from metaxlm.recipe import MatchingRecipe
from metaxlm.scripts import SPECIAL
from metaxlm.vocab.tokens import Form, Kind, surface_form

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEDGER, COVERAGE = "ledger.parquet", "coverage.json"  # in a model folder

_MOST_SCRIPTS, _MOST_LANGUAGES = 14, 40

_SCHEMA = pa.schema(
    {
        "id": pa.int32(),
        **dict.fromkeys(("token", "script", "rule"), pa.string()),
        "source_ids": pa.list_(pa.int32()),
        "source_tokens": pa.list_(pa.string()),
        "weights": pa.list_(pa.float32()),
        **dict.fromkeys(("languages", "translations"), pa.list_(pa.string())),
    }
)

_TEXT_COLUMNS = [
    f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
    for field in _SCHEMA
    if pa.types.is_string(getattr(field.type, "value_type", field.type))
]


def save_ledger(plan: Plan, path: Path) -> None:
    """Write a plan as a parquet file."""
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
                f"{path}: its columns contradict each other ({type(error).__name__}); run `metaxlm "
                "match` again"
            ) from error


def _make_plan(table: Any, path: Path) -> Plan:
    rules = table["rule"].to_pylist()
    if unknown := sorted(set(rules) - set(RULES)):
        raise MetaXLMError(
            f"{path}: unknown rule {unknown[0]!r}; it is from another version, match again"
        )
    lists = {name: table[name].combine_chunks() for name in _SCHEMA.names[4:]}
    sources, source_tokens, weights, languages, translations = (
        column.flatten() for column in lists.values()
    )
    metadata = table.schema.metadata
    return Plan(
        tokens=tuple(table["token"].to_pylist()),
        scripts=tuple(table["script"].to_pylist()),
        rules=np.array([RULES.index(rule) for rule in rules], np.uint8),
        offsets=_find_offsets(lists["source_ids"]),
        sources=sources.to_numpy(),
        weights=weights.to_numpy(),
        entry_offsets=_find_offsets(lists["languages"]),
        languages=tuple(languages.to_pylist()),
        translations=tuple(translations.to_pylist()),
        source_tokens=dict(zip(sources.to_pylist(), source_tokens.to_pylist(), strict=True)),
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
    # As dictionary arrays, repeated strings take no memory.
    with open_parquet(path, read_dictionary=_TEXT_COLUMNS) as file:
        table = file.read(use_threads=False)
    num_bytes = sum(_measure_text(table[name].combine_chunks()) for name in _SCHEMA.names)
    if num_bytes > max(LARGE_BYTES, MAX_EXPANSION * path.stat().st_size):
        raise MetaXLMError(f"{path}: unpacks to {num_bytes:,} bytes of text; match again")
    table = table.cast(_SCHEMA.with_metadata(schema.metadata))
    table.validate(full=True)
    return table.combine_chunks()


def _measure_text(column: Any) -> int:
    if isinstance(column, pa.ListArray):
        column = column.flatten()
    if not isinstance(column, pa.DictionaryArray):
        return 0
    lengths = pc.binary_length(column.dictionary)
    return pc.sum(lengths.take(column.indices)).as_py() or 0


def _find_offsets(column: Any) -> NDArray[np.int64]:
    lengths = column.value_lengths().to_numpy()
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def coverage(plan: Plan, token_counts: Mapping[str, NDArray[Any]] | None = None) -> dict[str, Any]:
    """Return the coverage of a plan (coverage.json), with counts of target tokens in text."""
    rows = np.repeat(np.arange(len(plan)), np.diff(plan.entry_offsets)).tolist()
    by_dictionary = Counter(code for _, code in set(zip(rows, plan.languages, strict=True)))
    texts = (token_counts or {}).items()
    return {
        "rows": len(plan),
        "by_rule": plan.count_rules(),
        "by_script": _cover_scripts(plan),
        "by_dictionary": dict(sorted(by_dictionary.items())),
        "by_language": {language: _cover_text(plan, counts) for language, counts in texts},
    }


def _cover_scripts(plan: Plan) -> dict[str, dict[str, Any]]:
    counts = Counter(zip(plan.scripts, plan.rules.tolist(), strict=True))
    found: dict[str, dict[str, Any]] = {}
    for (script, code), count in sorted(counts.items()):
        one = found.setdefault(script, {"rows": 0, "matched": 0, "by_rule": {}})
        one["rows"] += count
        one["matched"] += count if RULES[code] not in FILLER_RULES else 0
        one["by_rule"][RULES[code]] = count
    return dict(sorted(found.items(), key=lambda item: (-item[1]["rows"], item[0])))


def _cover_text(plan: Plan, counts: NDArray[Any]) -> dict[str, Any]:
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


def coverage_tables(coverage: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a coverage that are not empty."""
    rules, together = [], 0
    for rule, count in coverage["by_rule"].items():
        together += count
        shares = [_percent(value, coverage["rows"]) for value in (count, together)]
        rules.append([rule.replace("_", " "), f"{count:,}", *shares])
    scripts = [
        [name, f"{one['rows']:,}", f"{one['matched']:,}", _percent(one["matched"], one["rows"])]
        for name, one in coverage["by_script"].items()
    ]
    dictionaries = [
        [language_name(code), f"{count:,}"] for code, count in coverage["by_dictionary"].items()
    ]
    languages = []
    for code, one in _order_languages(coverage):
        used = [f"{one['rows']:,}", _percent(one["matched_rows"], one["rows"])]
        running = [f"{one['tokens']:,}", f"{100 * one['matched']:.1f} %"]
        languages.append([language_name(code), *used, *running])
    found = (
        ("rules", "Tokens by rule, in the order of their use",
         ("rule", "tokens", "share", "cumulative"), rules),
        ("scripts", "Tokens by script", ("script", "tokens", "matched", "share"), scripts),
        ("dictionaries", "Tokens by dictionary", ("language", "tokens"), dictionaries),
        ("languages", "Matched text, by language",
         ("language", "tokens in use", "matched", "running tokens", "matched"), languages),
    )  # fmt: skip
    return [text_table(*about) for about in found if about[-1]]


def draw_coverage(coverage: Mapping[str, Any]) -> Figure:
    """Draw tokens by script and, if text was counted, running text by language."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    from metaxlm.analysis.figures import draw_rule_bars, list_kinds
    from metaxlm.analysis.style import choose_rule_tone, drawing_style

    scripts = {name: one["by_rule"] for name, one in coverage["by_script"].items()}
    languages = {language_name(code): one["by_rule"] for code, one in _order_languages(coverage)}
    panels = [("vocabulary by script", dict(list(scripts.items())[:_MOST_SCRIPTS]))]
    if languages:
        bars = dict(list(languages.items())[:_MOST_LANGUAGES])
        panels.append(("running text by language", bars))
    heights = [len(bars) for _, bars in panels]
    kinds = list_kinds(bar for _, bars in panels for bar in bars.values())
    with drawing_style():
        figure = Figure(figsize=(5.7, 0.6 + 0.25 * sum(heights) + 0.7 * len(heights)))
        axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axis, (title, bars) in zip(axes, panels, strict=True):
            draw_rule_bars(axis, bars)
            axis.set_title(title)
        axes[-1].set_xlabel("share (%)")
        patches = [Patch(color=choose_rule_tone(kind).light, label=kind) for kind in kinds]
        figure.legend(
            handles=patches, loc="outside upper left", ncols=len(patches), handlelength=1,
            columnspacing=1.2, handletextpad=0.5,
        )  # fmt: skip
    return figure


def write_coverage(folder: Path, coverage: Mapping[str, Any]) -> None:
    """Write the tables as Markdown and the figure as SVG and PDF."""
    from metaxlm.analysis.style import write_figure
    from metaxlm.analysis.tables import render_markdown

    text = "\n".join(render_markdown(table) for table in coverage_tables(coverage))
    write_text(folder / "coverage.md", text)
    write_figure(folder, "coverage", draw_coverage(coverage))


def _order_languages(coverage: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(coverage["by_language"].items(), key=lambda item: (-item[1]["matched"], item[0]))


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


@dataclass(frozen=True)
class Story:
    """The explanation of one embedding."""

    row: int
    origin: Origin
    description: str  # the token: its text, script, and position in a word
    steps: tuple[tuple[str, str], ...]  # the rules in order with their result; the last one decided
    outcome: str  # the initial value of the embedding


def find_rows(plan: Plan, token: str) -> list[int]:
    """Return the ids of a token as its tokenizer writes it; `#12` is id 12."""
    if token.startswith("#") and token[1:].isdecimal() and token not in plan.tokens:
        row = int(token[1:])
        if row >= len(plan):
            raise MetaXLMError(f"{token}: the plan has rows 0 to {len(plan) - 1:,}")
        return [row]
    return [row for row, known in enumerate(plan.tokens) if known == token]


def explain(plan: Plan, row: int) -> Story:
    """Explain the origin of one embedding; a rule is tried if those before it found nothing."""
    origin = plan.origin(row)
    script = plan.scripts[row]
    form = None if script == SPECIAL else surface_form(origin.token, plan.kind)
    if form is None:
        description = "a special token or a part of a character"
        steps = [(origin.rule, _describe_sources(origin))]
    else:
        place = "starts a word" if form[1] else "continues a word"
        description = f'"{form[0]}", {script} script, {place}'
        steps = _list_steps(plan, form, origin)
    return Story(row, origin, description, tuple(steps), _describe_outcome(plan, origin))


def _list_steps(plan: Plan, form: Form, origin: Origin) -> list[tuple[str, str]]:
    by_dictionary = origin.rule in DICTIONARY_RULES
    if plan.recipe.precedence != "text" and by_dictionary:
        # Only a blend shows whether there was a text match.
        where = "mixed in" if origin.rule == "dictionary_blend" else "not before the dictionary"
        text_rules = ("text rules", f"{where} (precedence: {plan.recipe.precedence})")
        return [text_rules, (origin.rule, _describe_entries(form, origin))]
    steps: list[tuple[str, str]] = []
    looked_for: set[Form] = set()
    for rule, propose in TEXT_RULES.items():
        if rule not in plan.recipe.rules:
            steps.append((rule, "off in the recipe"))
            continue
        if rule == origin.rule:
            return [*steps, (rule, _describe_sources(origin))]
        new = [proposed for proposed in dict.fromkeys(propose(*form)) if proposed not in looked_for]
        looked_for.update(new)
        texts = ", ".join(
            f'"{text}" {"at a word start" if starts else "inside a word"}' for text, starts in new
        )
        steps.append((rule, f"{texts}: not in the source" if texts else "nothing new to try"))
    if by_dictionary:
        return [*steps, (origin.rule, _describe_entries(form, origin))]
    if not plan.languages:
        absence = "none was given, or none matched any token"
    elif plan.recipe.pieces == "word_start" and not form[1]:
        absence = "off for tokens that continue a word"
    else:
        absence = f'"{spell_word(form[0])}": no entry that the source could match'
    return [*steps, ("dictionary", absence), (origin.rule, _describe_outcome(plan, origin))]


def _describe_sources(origin: Origin) -> str:
    found = zip(origin.source_tokens, origin.source_rows, strict=True)
    tokens = ", ".join(f"{token} (row {row:,})" for token, row in found)
    return f"found {tokens}" if tokens else "no counterpart in the source"


def _describe_entries(form: Form, origin: Origin) -> str:
    by_language: dict[str, list[str]] = defaultdict(list)
    for language, translation in origin.entries:
        by_language[language].append(translation)
    entries = "; ".join(
        f"{language_name(language)} {', '.join(texts)}" for language, texts in by_language.items()
    )
    if origin.rule == "dictionary_part":
        return f"a part of dictionary words that mean: {entries}"
    return f'"{spell_word(form[0])}" is {entries}'


def _describe_outcome(plan: Plan, origin: Origin) -> str:
    if not origin.source_rows:
        if plan.recipe.filler == "normal":
            return "random numbers with the mean and deviation of the source embeddings"
        return "random numbers with deviation 0.02"
    if len(origin.source_rows) == 1:
        return f"a copy of {origin.source_tokens[0]}"
    parts = [part for part in zip(origin.weights, origin.source_tokens, strict=True) if part[0] > 0]
    if len(parts) == 1:
        return f"a copy of {parts[0][1]}"
    # Enough digits for the smallest weight.
    digits = max(2, min(6, math.ceil(-math.log10(min(weight for weight, _ in parts)))))
    ordered = sorted(parts, key=lambda part: -part[0])
    return " + ".join(f"{weight:.{digits}f} {token}" for weight, token in ordered)
