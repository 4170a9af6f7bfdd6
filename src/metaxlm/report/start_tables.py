"""The tables of how the variants were made: what they start with, and how long they trained.

In come each variant's coverage.json (section 3.2 of the paper: which rule filled which row of the
shared vocabulary) and the training logs; out come table objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from metaxlm.experiments.names import display_name
from metaxlm.report.cells import Cell, Column, Group, Line, Table, mark_best
from metaxlm.report.run_folder import Row
from metaxlm.report.tables import make_language_columns

Coverage = Mapping[str, Mapping[str, Any]]
"""coverage.json by variant."""


def make_start_tables(coverage: Coverage, variants: Sequence[str]) -> list[Table]:
    """Build what each variant starts with: rows by rule, running tokens by language, scripts."""
    present = [variant for variant in variants if variant in coverage]
    makers = (_make_rule_table, _make_token_table, _make_script_table)
    return [table for make in makers if (table := make(coverage, present)) is not None]


def list_rules(coverage: Coverage) -> list[str]:
    """List the rules that filled rows, in the order of their use, fillers last."""
    found = _list_keys(coverage.values(), "by_rule")
    counts = [one.get("by_rule", {}) for one in coverage.values()]
    rules = [rule for rule in found if any(count.get(rule) for count in counts)]
    return sorted(rules, key=lambda rule: rule == "filler")


def _make_rule_table(coverage: Coverage, variants: Sequence[str]) -> Table | None:
    rules = list_rules({variant: coverage[variant] for variant in variants})
    if not rules:
        return None
    lines = []
    for variant in variants:
        by_rule = coverage[variant].get("by_rule", {})
        total = coverage[variant].get("rows") or sum(by_rule.values())
        counts = [Cell(by_rule.get(rule, 0), style="count") for rule in rules]
        copied = 1 - by_rule.get("filler", 0) / total if total else None
        lines.append(
            Line(
                display_name(variant),
                (*counts, Cell(total, style="count"), Cell(copied)),
                variant,
            )
        )
    columns = (
        *(Column(rule.replace("_", " ")) for rule in rules),
        Column("All rows"),
        Column("Copied", "%"),
    )
    note = "A filler row has no match and starts from random values."
    title = "Rows of the shared vocabulary by the rule that filled them"
    return Table("start-rules", title, columns, (Group(tuple(lines)),), (note,))


def _make_token_table(coverage: Coverage, variants: Sequence[str]) -> Table | None:
    chosen = [coverage[variant] for variant in variants]
    languages = _list_keys(chosen, "by_language")
    if not languages:
        return None
    lines = []
    for variant in variants:
        found = coverage[variant].get("by_language", {})
        cells = tuple(Cell(found.get(language, {}).get("matched")) for language in languages)
        lines.append(Line(display_name(variant), cells, variant))
    columns = tuple(make_language_columns(languages, "higher"))
    note = "Share of the tokens of running text whose row was copied, in percent."
    title = "Running text that starts with a copied row, by language"
    return mark_best(Table("start-tokens", title, columns, (Group(tuple(lines)),), (note,)))


def _make_script_table(coverage: Coverage, variants: Sequence[str]) -> Table | None:
    scripts = _list_keys((coverage[variant] for variant in variants), "by_script")
    if not scripts:
        return None
    lines = []
    for variant in variants:
        found = coverage[variant].get("by_script", {})
        shares = (
            entry["matched"] / entry["rows"] if (entry := found.get(s)) and entry["rows"] else None
            for s in scripts
        )
        lines.append(Line(display_name(variant), tuple(Cell(share) for share in shares), variant))
    columns = tuple(Column(script, "", "higher") for script in scripts)
    note = "Share of the vocabulary's rows in this script that were copied, in percent."
    title = "Rows that start from a copy, by script"
    return mark_best(Table("start-scripts", title, columns, (Group(tuple(lines)),), (note,)))


def _list_keys(coverage: Iterable[Mapping[str, Any]], section: str) -> list[str]:
    return list(dict.fromkeys(key for one in coverage for key in one.get(section, {})))


def make_training_table(
    meta_log: Sequence[Row], logs: Mapping[str, Sequence[Row]], variants: Sequence[str]
) -> Table | None:
    """Build steps, tokens, final loss and time of each training from its log."""
    lines = [_make_training_line("Meta-pretraining (English)", meta_log, None)] if meta_log else []
    lines += [_make_training_line(display_name(v), logs[v], v) for v in variants if v in logs]
    if not lines:
        return None
    columns = (Column("Steps"), Column("Tokens"), Column("Final loss"), Column("Time"))
    note = "Final loss: mean of the last tenth of the log. Losses over different vocabularies "
    note += "(meta-pretraining beside the others) do not compare."
    return Table("training", "Training", columns, (Group(tuple(lines)),), (note,))


def _make_training_line(label: str, log: Sequence[Row], variant: str | None) -> Line:
    tail = [float(row["loss"]) for row in log[-max(1, len(log) // 10) :]]
    cells = (
        Cell(log[-1]["step"], style="count"),
        Cell(log[-1].get("tokens"), style="count"),
        Cell(sum(tail) / len(tail), style="decimal"),
        Cell(log[-1].get("seconds"), style="seconds"),
    )
    return Line(label, cells, variant)
