"""Tables that describe a run itself: initialization, dictionaries, training, cost and data."""

import math
from collections.abc import Sequence
from typing import Any

from metaxlm.analysis.paper import read_table
from metaxlm.analysis.results import (
    Row,
    display_name,
    join_names,
    title_task,
)
from metaxlm.analysis.run_folder import Run
from metaxlm.analysis.tables import (
    Cell,
    Column,
    Group,
    Line,
    Table,
    mark_best,
    text_cell,
    text_table,
)
from metaxlm.languages import language_name

_DATA_HEADS = {"used": "Used for", "what": "What", "here": "Here", "license": "License"}
_TWINS_OWN = "Text in 22 languages"  # data of the recipes whose names begin with `twin`


def make_start_tables(run: Run) -> list[Table]:
    """Build what each variant is initialized with: by rule, by language of text, by script."""
    coverage = {v: run.coverage[v] for v in run.variants if v in run.coverage}

    def list_keys(section: str) -> list[str]:
        return list(dict.fromkeys(key for one in coverage.values() for key in one.get(section, {})))

    tables = []
    used = [r for one in coverage.values() for r, n in one.get("by_rule", {}).items() if n]
    rules = sorted((r for r in list_keys("by_rule") if r in used), key=lambda r: r == "filler")
    if rules:
        lines = []
        for variant, one in coverage.items():
            by_rule = one.get("by_rule", {})
            total = one.get("rows") or sum(by_rule.values())
            counts = [by_rule.get(rule, 0) for rule in rules]
            copied = 1 - by_rule.get("filler", 0) / total if total else None
            cells = [*(Cell(n, style="count") for n in (*counts, total)), Cell(copied)]
            lines.append(Line(display_name(variant), cells, variant))
        heads = [*(rule.replace("_", " ") for rule in rules), "All rows"]
        columns = [*map(Column, heads), Column("Copied", "%")]
        title = "Embeddings of the shared vocabulary by matching rule"
        note = "A filler has no match and is initialized at random."
        tables.append(Table("start-rules", title, columns, [Group(lines)], [note]))
    for name, key, title, note in (
        ("tokens", "by_language", "Running text with a copied embedding, by language",
         "Share of the tokens of running text whose embedding was copied, in percent."),
        ("scripts", "by_script", "Copied embeddings, by script",
         "Share of the vocabulary in this script whose embedding was copied, in percent."),
    ):  # fmt: skip
        if keys := list_keys(key):
            lines = []
            for variant, one in coverage.items():
                cells = [_share_cell(one.get(key, {}).get(k, {}), key) for k in keys]
                lines.append(Line(display_name(variant), cells, variant))
            names = {k: language_name(k) if key == "by_language" else k for k in keys}
            columns = [Column(n, "" if n == k else k, "higher") for k, n in names.items()]
            table = Table(f"start-{name}", title, columns, [Group(lines)], [note])
            tables.append(mark_best(table))
    return tables


def _share_cell(entry: Row, key: str) -> Cell:
    """Return the matched share, which languages have as such and scripts as counts of rows."""
    if key == "by_language" or not entry:
        return Cell(entry.get("matched"))
    return Cell(entry["matched"] / entry["rows"] if entry["rows"] else None)


def make_dictionary_table(run: Run) -> Table | None:
    """Build sources, size and coverage of the dictionaries, and what a second round added."""
    by_record: dict[str, list[str]] = {}
    for variant, record in run.dictionaries.items():
        by_record.setdefault(repr(record), []).append(variant)
    has_growth = any("growth" in one for r in run.dictionaries.values() for one in r.values())
    groups = []
    for variants in by_record.values():
        lines = []
        for language, one in run.dictionaries[variants[0]].items():
            sources = ", ".join(f"{name} {number:,}" for name, number in one["sources"].items())
            cells = [text_cell(sources), Cell(one["entries"], style="count"), Cell(one["covered"])]
            if has_growth:
                growth = one.get("growth", {})
                cells += [Cell(growth.get(key), style="count") for key in ("pairs", "added")]
                cells += [Cell(growth.get(key)) for key in ("agreeing", "covered_before")]
            lines.append(Line(language_name(language), cells))
        groups.append(Group(lines, join_names(variants, ", ")))
    if not groups:
        return None
    heads = ["Sources", "Entries", "Covered", "Pairs", "Added", "Agreement", "Covered before"]
    notes = [
        "An entry of several sources counts in each. Covered: share of the words of running text "
        "(letters, in languages without spaces) that have a translation.",
        "Pairs: sentence pairs in which a model linked words. Agreement: share of the linked words "
        "that are translations in the dictionary, of those whose source word it had before.",
    ]
    columns = list(map(Column, heads if has_growth else heads[:3]))
    return Table(
        "dictionaries", "Dictionaries", columns, groups, notes if has_growth else notes[:1]
    )


def make_training_table(run: Run) -> Table | None:
    """Build steps, tokens, final loss and time of each training from its log."""
    named: list[tuple[str, Sequence[Row], str | None]] = [
        ("Meta-pretraining (English)", run.meta_log, None),
        *((display_name(variant), log, variant) for variant, log in run.logs.items()),
    ]
    lines = []
    for label, log, variant in (one for one in named if one[1]):
        tail = [float(row["loss"]) for row in log[-max(1, len(log) // 10) :]]
        cells = [Cell(log[-1].get(key), style="count") for key in ("step", "tokens")]
        cells.append(Cell(sum(tail) / len(tail), style="decimal"))
        cells.append(Cell(log[-1].get("seconds"), style="seconds"))
        lines.append(Line(label, cells, variant))
    if not lines:
        return None
    columns = list(map(Column, ("Steps", "Tokens", "Final loss", "Time")))
    note = (
        "Final loss: mean of the last tenth of the log. Losses over different vocabularies "
        "(meta-pretraining and the others) do not compare."
    )
    return Table("training", "Training", columns, [Group(lines)], [note])


def make_cost_tables(provenance: Row) -> list[Table]:
    """Build time, steps and tokens by stage, and time by evaluated model and task."""
    tables = []
    stages, cells = (
        [one for one in provenance.get(key, []) if isinstance(one, dict)]
        for key in ("stages", "cells")
    )
    if stages:
        keys = ("seconds", "steps", "tokens")
        total = {key: sum(float(stage.get(key) or 0) for stage in stages) for key in keys}
        last = _make_stage_line({"title": "All stages", **total})
        groups = [Group(list(map(_make_stage_line, stages))), Group([last])]
        columns, note = map(Column, ("Minutes", "Steps", "Tokens", "Device")), _sum_devices(stages)
        tables.append(Table("cost-stages", "Cost by stage", list(columns), groups, [note]))
    return [*tables, _make_evaluation_cost(cells)] if cells else tables


def _make_stage_line(stage: Row) -> Line:
    variant, label = stage.get("variant"), str(stage.get("title") or "?")
    name = display_name(str(variant)) if variant else ""
    counts = [Cell(stage.get(key), style="count") for key in ("steps", "tokens")]
    cells = [_minutes(stage.get("seconds")), *counts, text_cell(str(stage.get("device") or ""))]
    return Line(label, cells, detail="" if name in label else name)


def _make_evaluation_cost(cells: Sequence[Row]) -> Table:
    times: dict[tuple[str, str], list[float]] = {}
    for cell in cells:
        # Checkpoints (`xlm-step-1000`) count as one model per variant.
        variant, mark, number = str(cell.get("model")).rpartition("-step-")
        is_checkpoint = bool(mark) and number.isdecimal()
        model = f"{display_name(variant)}, checkpoints" if is_checkpoint else str(cell.get("model"))
        seconds = float(cell.get("seconds") or 0)
        times.setdefault((model, str(cell.get("task"))), []).append(seconds)
    models, tasks = (list(dict.fromkeys(key[k] for key in times)) for k in (0, 1))

    def make_line(label: str, rows: Sequence[str], model: str | None) -> Line:
        columns = [*([task] for task in tasks), tasks]
        sums = [[s for m in rows for t in some for s in times.get((m, t), ())] for some in columns]
        made = [_minutes(math.fsum(seconds)) if seconds else Cell() for seconds in sums]
        return Line(label, made, model, reference=model is None)

    lines = [make_line(display_name(model), [model], model) for model in models]
    columns = list(map(Column, [*map(title_task, tasks), "Sum"]))
    note = f"{len(cells)} evaluations of one model, task, training language and seed."
    groups = [Group(lines), Group([make_line("All", models, None)])]
    title, notes = "Cost of evaluation, in minutes", [note, _sum_devices(cells)]
    return Table("cost-evaluation", title, columns, groups, notes)


def _minutes(seconds: Any) -> Cell:
    return Cell(None if seconds is None else float(seconds) / 60, style="decimal")


def _sum_devices(entries: Sequence[Row]) -> str:
    sums: dict[str, float] = {}
    for entry in entries:
        device = str(entry.get("device") or "unknown device")
        sums[device] = sums.get(device, 0.0) + float(entry.get("seconds") or 0) / 60
    shown = ", ".join(f"{minutes:.1f} on {device}" for device, minutes in sums.items())
    return f"Minutes by device, parallel runs counted each: {shown}."


def make_data_table(run: Run) -> Table:
    """Build the data sets with their licenses; sizes are known for the twin's data only."""
    is_twin = str(run.recipe.get("name") or "").startswith("twin")
    title, note = (
        "Data of the twin, and licenses",
        "Sizes are those of the data of the twin's published run. With other data under the "
        "same recipe they may differ: results.jsonl has the number of test examples.",
    ) if is_twin else (
        "The paper's tasks: data and licenses",
        "As published with each set. This report does not know the sizes of this run's training "
        "sets and text; results.jsonl has the number of test examples.",
    )  # fmt: skip
    keys = [key for key in _DATA_HEADS if is_twin or key != "here"]
    known = [row for row in read_table("data_sources.tsv") if is_twin or row["name"] != _TWINS_OWN]
    rows = [[row["name"], *(row[key] for key in keys)] for row in known]
    return text_table("data", title, ["", *(_DATA_HEADS[key] for key in keys)], rows, [note])
