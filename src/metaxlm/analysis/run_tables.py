"""The tables of how a run was made: initialization, training, cost, data and claims."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from metaxlm.analysis.claims import Verdict
from metaxlm.analysis.paper import read_table
from metaxlm.analysis.results import Row, display_name, title_task
from metaxlm.analysis.tables import Cell, Column, Group, Line, Table, mark_best, text_table
from metaxlm.languages import language_name

Coverage = Mapping[str, Mapping[str, Any]]
"""coverage.json by variant."""
_DATA_HEADS = {"used": "Used for", "what": "What", "here": "Here", "license": "License"}
_TWIN = "twin"
"""How the names of the recipes begin that have the twin's data."""
_TWINS_OWN = ("Text in 22 languages",)


def make_start_tables(coverage: Coverage, variants: Sequence[str]) -> list[Table]:
    """Build what each variant is initialized with: by rule, by language of text, by script."""
    present = {v: coverage[v] for v in variants if v in coverage}
    tables = [_make_rule_table(present)]
    for name, key, title, note in (
        ("tokens", "by_language", "Running text with a copied embedding, by language",
         "Share of the tokens of running text whose embedding was copied, in percent."),
        ("scripts", "by_script", "Copied embeddings, by script",
         "Share of the vocabulary in this script whose embedding was copied, in percent."),
    ):  # fmt: skip
        keys = _list_keys(present.values(), key)
        lines = [
            Line(
                display_name(v),
                tuple(_share_cell(one.get(key, {}).get(k), key == "by_language") for k in keys),
                v,
            )
            for v, one in present.items()
        ]
        names = [(language_name(k), k) if key == "by_language" else (k, "") for k in keys]
        columns = tuple(Column(n, "" if n == k else k, "higher") for n, k in names)
        table = Table(f"start-{name}", title, columns, (Group(tuple(lines)),), (note,))
        tables.append(mark_best(table) if keys else None)
    return [table for table in tables if table is not None]


def _share_cell(entry: Mapping[str, Any] | None, is_share: bool) -> Cell:
    """Return the matched share, which languages have as such and scripts as counts."""
    if not entry:
        return Cell()
    if is_share:
        return Cell(entry.get("matched"))
    return Cell(entry["matched"] / entry["rows"] if entry["rows"] else None)


def _make_rule_table(coverage: Coverage) -> Table | None:
    rules = [
        rule
        for rule in _list_keys(coverage.values(), "by_rule")
        if any(one.get("by_rule", {}).get(rule) for one in coverage.values())
    ]
    rules.sort(key=lambda rule: rule == "filler")
    if not rules:
        return None
    lines = []
    for variant, one in coverage.items():
        by_rule = one.get("by_rule", {})
        total = one.get("rows") or sum(by_rule.values())
        counts = [Cell(by_rule.get(rule, 0), style="count") for rule in rules]
        copied = 1 - by_rule.get("filler", 0) / total if total else None
        cells = (*counts, Cell(total, style="count"), Cell(copied))
        lines.append(Line(display_name(variant), cells, variant))
    columns = (
        *(Column(rule.replace("_", " ")) for rule in rules),
        Column("All rows"),
        Column("Copied", "%"),
    )
    note = "A filler has no match and is initialized at random."
    title = "Embeddings of the shared vocabulary by matching rule"
    return Table("start-rules", title, columns, (Group(tuple(lines)),), (note,))


def _list_keys(coverage: Iterable[Mapping[str, Any]], section: str) -> list[str]:
    return list(dict.fromkeys(key for one in coverage for key in one.get(section, {})))


def make_training_table(meta_log: Sequence[Row], logs: Mapping[str, Sequence[Row]]) -> Table | None:
    """Build steps, tokens, final loss and time of each training from its log."""
    named: list[tuple[str, Sequence[Row], str | None]] = [
        *([("Meta-pretraining (English)", meta_log, None)] if meta_log else []),
        *((display_name(variant), log, variant) for variant, log in logs.items()),
    ]
    lines = []
    for label, log, variant in named:
        tail = [float(row["loss"]) for row in log[-max(1, len(log) // 10) :]]
        cells = (
            Cell(log[-1]["step"], style="count"),
            Cell(log[-1].get("tokens"), style="count"),
            Cell(sum(tail) / len(tail), style="decimal"),
            Cell(log[-1].get("seconds"), style="seconds"),
        )
        lines.append(Line(label, cells, variant))
    if not lines:
        return None
    columns = tuple(map(Column, ("Steps", "Tokens", "Final loss", "Time")))
    note = (
        "Final loss: mean of the last tenth of the log. Losses over different vocabularies "
        "(meta-pretraining and the others) do not compare."
    )
    return Table("training", "Training", columns, (Group(tuple(lines)),), (note,))


def make_cost_tables(provenance: Mapping[str, Any]) -> list[Table]:
    """Build time, steps and tokens by stage, and time by evaluated model and task."""
    tables = []
    stages = [stage for stage in provenance.get("stages", []) if isinstance(stage, dict)]
    if stages:
        total = {key: sum(float(s.get(key) or 0) for s in stages)
                 for key in ("seconds", "steps", "tokens")}  # fmt: skip
        lines = [_make_stage_line(stage) for stage in stages]
        last = _make_stage_line({"title": "All stages", **total})
        columns = tuple(map(Column, ("Minutes", "Steps", "Tokens", "Device")))
        groups = (Group(tuple(lines)), Group((last,)))
        notes = (_sum_devices(stages),)
        tables.append(Table("cost-stages", "Cost by stage", columns, groups, notes))
    cells = [cell for cell in provenance.get("cells", []) if isinstance(cell, dict)]
    if cells:
        tables.append(_make_evaluation_cost(cells))
    return tables


def _make_stage_line(stage: Mapping[str, Any]) -> Line:
    variant, label = stage.get("variant"), str(stage.get("title") or "?")
    name = display_name(str(variant)) if variant else ""
    cells = (
        _minutes(stage.get("seconds")),
        Cell(stage.get("steps"), style="count"),
        Cell(stage.get("tokens"), style="count"),
        Cell(style="text", text=str(stage.get("device") or "")),
    )
    return Line(label, cells, detail="" if name in label else name)


def _make_evaluation_cost(cells: Sequence[Mapping[str, Any]]) -> Table:
    found = []
    for cell in cells:
        # Checkpoints (`xlm-step-1000`) count as one model per variant.
        variant, mark, number = str(cell.get("model")).rpartition("-step-")
        is_checkpoint = bool(mark) and number.isdecimal()
        model = f"{display_name(variant)}, checkpoints" if is_checkpoint else str(cell.get("model"))
        found.append((model, str(cell.get("task")), float(cell.get("seconds") or 0)))
    models = list(dict.fromkeys(model for model, _, _ in found))
    tasks = list(dict.fromkeys(task for _, task, _ in found))

    def add(model: str | None, task: str | None) -> Cell:
        seconds = [s for m, t, s in found if model in (None, m) and task in (None, t)]
        return _minutes(math.fsum(seconds)) if seconds else Cell()

    def make_line(label: str, model: str | None) -> Line:
        cells = (*(add(model, task) for task in tasks), add(model, None))
        return Line(label, cells, model, reference=model is None)

    lines = tuple(make_line(display_name(model), model) for model in models)
    columns = (*(Column(title_task(task)) for task in tasks), Column("Sum"))
    notes = (f"{len(cells)} evaluations of one model, task, training language and seed. "
             f"{_sum_devices(cells)}",)  # fmt: skip
    groups = (Group(lines), Group((make_line("All", None),)))
    return Table("cost-evaluation", "Cost of evaluation, in minutes", columns, groups, notes)


def _minutes(seconds: Any) -> Cell:
    return Cell(None if seconds is None else float(seconds) / 60, style="decimal")


def _sum_devices(entries: Sequence[Mapping[str, Any]]) -> str:
    """Write how many minutes each kind of device was used."""
    sums: dict[str, float] = {}
    for entry in entries:
        device = str(entry.get("device") or "unknown device")
        sums[device] = sums.get(device, 0.0) + float(entry.get("seconds") or 0) / 60
    shown = ", ".join(f"{minutes:.1f} on {device}" for device, minutes in sums.items())
    return f"Minutes by device, parallel runs counted each: {shown}."


def make_data_table(recipe: Mapping[str, Any]) -> Table:
    """Build the data sets with their licenses; sizes are known for the twin's data only."""
    is_twin = str(recipe.get("name") or "").startswith(_TWIN)
    keys = [key for key in _DATA_HEADS if is_twin or key != "here"]
    rows = [
        [row["name"], *(row[key] for key in keys)]
        for row in read_table("data_sources.tsv")
        if is_twin or row["name"] not in _TWINS_OWN
    ]
    headings = ["", *(_DATA_HEADS[key] for key in keys)]
    if is_twin:
        title = "Data of the twin, and licenses"
        note = (
            "Sizes are those of the data of the twin's published run. With other data under the "
            "same recipe they may differ: results.jsonl has the number of test examples."
        )
    else:
        title = "The paper's tasks: data and licenses"
        note = (
            "As published with each set. This report does not know the sizes of this run's "
            "training sets and text; results.jsonl has the number of test examples."
        )
    return text_table("data", title, headings, rows, [note])


def make_claims_table(verdicts: Sequence[Verdict]) -> Table:
    """Build the claims with verdict, numbers and reason, for Markdown and LaTeX."""
    rows = [
        [v.claim.statement, v.claim.section, v.outcome, v.claim.paper,
         "; ".join(f"{label}: {number}" for label, number in v.numbers), v.reason]
        for v in verdicts
    ]  # fmt: skip
    headings = ("", "Section", "Verdict", "In the paper", "Here", "Why")
    return text_table("claims", "The paper's claims, judged", headings, rows)


def list_verdicts(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return the verdicts as plain data, for claims.json."""
    texts = ("name", "statement", "section", "paper", "test")
    return [
        {
            **{key: getattr(verdict.claim, key) for key in texts},
            "outcome": verdict.outcome,
            "numbers": [list(pair) for pair in verdict.numbers],
            "reason": verdict.reason,
        }
        for verdict in verdicts
    ]
