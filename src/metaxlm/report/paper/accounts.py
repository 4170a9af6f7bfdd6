"""What stands beside the scores: claims, ideas beyond the paper, cost, data, and missing pieces.

Verdicts, measurements, provenance and the table of data sets come in, tables and sentences go out.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from metaxlm.experiments.claims import Verdict
from metaxlm.experiments.claims.claim import MissingEvidenceError
from metaxlm.experiments.claims.contrast import contrast
from metaxlm.experiments.claims.evidence import Evidence, Part
from metaxlm.experiments.features import FEATURE_TASKS
from metaxlm.experiments.names import display_name
from metaxlm.experiments.paper_scores import AVERAGED
from metaxlm.experiments.score_table import list_metrics
from metaxlm.experiments.series import average_series, find_mean
from metaxlm.experiments.task_comparison import TaskComparison
from metaxlm.report.cells import Cell, Column, Group, Line, Table, mark_best
from metaxlm.report.paper.headline import TaskTests
from metaxlm.report.paper.measurements import (
    MAIN_VARIANTS,
    PAPER_VARIANTS,
    TASKS,
    Measurements,
    PaperCell,
)
from metaxlm.report.paper.source import PaperSource

BASE = "metaxlm+dict"
"""What an own idea has to beat at equal cost."""
_DATA_HEADS = {"used": "Used for", "what": "What", "here": "Here", "license": "License"}
_TWIN = "twin"
"""Names of the recipes that have the twin's data begin so."""
_TWINS_OWN = ("Text in 22 languages",)


def make_claims_table(verdicts: Sequence[Verdict]) -> Table | None:
    """Build the claims with verdict, numbers and reason, for Markdown and LaTeX."""
    if not verdicts:
        return None
    lines = []
    for verdict in verdicts:
        numbers = "; ".join(f"{label}: {number}" for label, number in verdict.numbers)
        claim = verdict.claim
        texts = (claim.section, verdict.outcome, claim.paper, numbers, verdict.reason)
        cells = tuple(Cell(style="text", text=text) for text in texts)
        lines.append(Line(claim.statement, cells))
    columns = tuple(map(Column, ("Section", "Verdict", "In the paper", "Here", "Why")))
    return Table("claims", "The paper's claims, judged", columns, (Group(tuple(lines)),))


def list_verdicts(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return the verdicts as plain data, for claims.json."""
    return [
        {
            "name": verdict.claim.name,
            "statement": verdict.claim.statement,
            "section": verdict.claim.section,
            "paper": verdict.claim.paper,
            "test": verdict.claim.test,
            "outcome": verdict.outcome,
            "numbers": [list(pair) for pair in verdict.numbers],
            "reason": verdict.reason,
        }
        for verdict in verdicts
    ]


def make_ideas_table(
    found: Measurements, comparisons: Sequence[TaskComparison] = ()
) -> Table | None:
    """Build our own variants beside +Dict, on everything any of them was measured on."""
    own = [variant for variant in found.variants if variant not in PAPER_VARIANTS]
    if not own:
        return None
    shown = [BASE, *own] if BASE in found.variants else own
    sections = found.sections(shown, [facts.name for facts in TASKS])
    chosen = [s for s in sections.values() if any(variant in s.scores.variants for variant in own)]
    lines = [
        Line(
            display_name(variant),
            (
                *(_drop_paper(found.cell(section, variant)) for section in chosen),
                _drop_paper(found.average_cell(sections, variant)),
            ),
            variant,
        )
        for variant in shown
    ]
    columns = [*(section.column for section in chosen), Column("Avg", "seven tasks", "higher")]
    notes = [
        "Means over the languages that all rows have; features at each model's best layer. By "
        "tests over examples and seeds (p < 0.05):",
    ]
    if BASE not in found.variants:
        notes.append(f"{display_name(BASE)}, which they are to be compared with, is not here yet.")
    evidence = Evidence(found.rows, comparisons)
    for variant in own if BASE in found.variants else ():
        tasks = [t for t in AVERAGED if t in sections and variant in sections[t].scores.variants]
        if tasks:
            notes.append(f"{TaskTests(evidence, tasks, variant, BASE).describe()}.")
    tasks_shown = [section.facts.name for section in chosen]
    notes += [failed.describe() for failed in found.list_failed(shown, tasks_shown)]
    title = "Ideas beyond the paper, beside MetaXLM+Dict"
    return mark_best(Table("ideas", title, tuple(columns), (Group(tuple(lines)),), tuple(notes)))


def make_idea_tests(
    found: Measurements, comparisons: Sequence[TaskComparison] = ()
) -> Table | None:
    """Build the tests between each of our own variants, the main ones, and each other."""
    own = [variant for variant in found.variants if variant not in PAPER_VARIANTS]
    known = [*(variant for variant in MAIN_VARIANTS if variant in found.variants), *own]
    evidence = Evidence(found.rows, comparisons)
    measured = [facts for facts in TASKS if facts.name in (*AVERAGED, *FEATURE_TASKS)]
    lines = []
    for variant in own:
        for base in known[: known.index(variant)]:
            texts = [_write_contrast(evidence, variant, base, [task.name]) for task in measured]
            texts.append(_write_contrast(evidence, variant, base, AVERAGED))
            cells = tuple(Cell(style="text", text=text) for text in texts)
            lines.append(Line(f"{display_name(variant)} less {display_name(base)}", cells))
    if not lines:
        return None
    columns = tuple(Column(facts.title) for facts in measured)
    note = (
        "Points by which the first is better, and p over examples and seeds, or as it says; in the "
        "average, questions count as (F1 + EM) / 2. Tatoeba and word alignment: at the second "
        "one's best layer, over sentences."
    )
    title = "Ideas beyond the paper, tested"
    heads = (*columns, Column("Avg", "seven tasks"))
    return Table("ideas-tests", title, heads, (Group(tuple(lines)),), (note,))


def _write_contrast(evidence: Evidence, variant: str, base: str, tasks: Sequence[str]) -> str:
    try:
        if tasks[0] in FEATURE_TASKS:
            layer = _find_best_layer(evidence, base, tasks[0])
            parts = [Part(tasks[0], "features", layer=layer)]
        else:
            parts = [Part(task, metrics=list_metrics(task) if tasks[1:] else ()) for task in tasks]
        return contrast(evidence, variant, base, parts).describe(names_weaker_tests=True)
    except MissingEvidenceError:
        return "–"


def _find_best_layer(evidence: Evidence, variant: str, task: str) -> int | None:
    means = {
        layer: find_mean(average_series(list(evidence.read(variant, part).values())))
        for layer in {r["layer"] for r in evidence.list_rows(task) if r["variant"] == variant}
        for part in [Part(task, "features", layer=layer)]
    }
    choose = min if Part(task).is_lower_better else max
    return choose(means, key=means.__getitem__, default=None)


def _drop_paper(cell: PaperCell) -> PaperCell:
    return PaperCell(**{**vars(cell), "paper": None})


def make_cost_tables(provenance: Mapping[str, Any] | None) -> list[Table]:
    """Build time, steps and tokens by stage, and time by evaluated model and by task."""
    if provenance is None:
        return []
    tables = []
    stages = [stage for stage in provenance.get("stages", []) if isinstance(stage, dict)]
    if stages:
        lines = [_make_stage_line(stage) for stage in stages]
        lines.append(_make_total_line(stages))
        heads = ("Minutes", "Steps", "Tokens", "Device")
        columns = tuple(map(Column, heads))
        notes = (_sum_devices(stages),)
        groups = (Group(tuple(lines[:-1])), Group((lines[-1],)))
        tables.append(Table("cost-stages", "Cost by stage", columns, groups, notes))
    cells = [cell for cell in provenance.get("cells", []) if isinstance(cell, dict)]
    if cells:
        tables.append(_make_cell_cost_table(cells))
    return tables


def _make_stage_line(stage: Mapping[str, Any]) -> Line:
    variant = stage.get("variant")
    detail = display_name(str(variant)) if variant else ""
    cells = (
        _minutes(stage.get("seconds")),
        Cell(stage.get("steps"), style="count"),
        Cell(stage.get("tokens"), style="count"),
        Cell(style="text", text=str(stage.get("device") or "")),
    )
    label = str(stage.get("title") or "?")
    return Line(label, cells, detail="" if detail in label else detail)


def _make_total_line(stages: Sequence[Mapping[str, Any]]) -> Line:
    seconds, steps, tokens = (
        sum(float(stage.get(key) or 0) for stage in stages)
        for key in ("seconds", "steps", "tokens")
    )
    cells = (_minutes(seconds), Cell(steps, style="count"), Cell(tokens, style="count"))
    return Line("All stages", (*cells, Cell(style="text")))


def _make_cell_cost_table(cells: Sequence[Mapping[str, Any]]) -> Table:
    cells = [{**cell, "model": _merge_checkpoints(str(cell.get("model")))} for cell in cells]
    models = list(dict.fromkeys(cell["model"] for cell in cells))
    tasks = list(dict.fromkeys(str(cell.get("task")) for cell in cells))
    titles = {facts.name: facts.title for facts in TASKS}

    def add(chosen: Sequence[Mapping[str, Any]]) -> Cell:
        if not chosen:
            return Cell()
        return _minutes(sum(float(cell.get("seconds") or 0) for cell in chosen))

    lines = [
        Line(
            display_name(model),
            (
                *(
                    add([c for c in cells if (c.get("model"), c.get("task")) == (model, task)])
                    for task in tasks
                ),
                add([cell for cell in cells if cell.get("model") == model]),
            ),
            model,
        )
        for model in models
    ]
    sums = [add([cell for cell in cells if cell.get("task") == task]) for task in tasks]
    total = Line("All", (*sums, add(cells)), reference=True)
    columns = (*(Column(titles.get(task, task)) for task in tasks), Column("Sum"))
    notes = (f"{len(cells)} evaluations of one model, task, training language and seed. "
             f"{_sum_devices(cells)}",)  # fmt: skip
    title = "Cost of evaluation, in minutes"
    return Table("cost-evaluation", title, columns, (Group(tuple(lines)), Group((total,))), notes)


def _merge_checkpoints(model: str) -> str:
    """Name a kept checkpoint (`xlm-step-1000`) by its variant: the sum over all of them counts."""
    variant, mark, step = model.rpartition("-step-")
    return f"{display_name(variant)}, checkpoints" if mark and step.isdecimal() else model


def _minutes(seconds: Any) -> Cell:
    return Cell(None if seconds is None else float(seconds) / 60, style="decimal")


def _sum_devices(entries: Sequence[Mapping[str, Any]]) -> str:
    """Say how many minutes each kind of device was used."""
    sums: dict[str, float] = {}
    for entry in entries:
        device = str(entry.get("device") or "unknown device")
        sums[device] = sums.get(device, 0.0) + float(entry.get("seconds") or 0) / 60
    shown = ", ".join(f"{minutes:.1f} on {device}" for device, minutes in sums.items())
    return f"Minutes by device, side-by-side runs counted each: {shown}."


def read_data_sources() -> list[dict[str, str]]:
    """Return the corpora and test sets that the twin's recipes use, with their licenses."""
    text = (files("metaxlm.report.paper") / "data_sources.tsv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t"))


def make_data_table(recipe: Mapping[str, Any]) -> Table:
    """Build the data sets with their licenses; what is here is known for the twin's data only."""
    is_twin = str(recipe.get("name") or "").startswith(_TWIN)
    keys = [key for key in _DATA_HEADS if is_twin or key != "here"]
    lines = tuple(
        Line(row["name"], tuple(Cell(style="text", text=row[key]) for key in keys))
        for row in read_data_sources()
        if is_twin or row["name"] not in _TWINS_OWN
    )
    columns = tuple(Column(_DATA_HEADS[key]) for key in keys)
    if is_twin:
        title = "Data of the twin, and licenses"
        note = (
            "Sizes are those of the data that the twin's published run had. With other data under "
            "the same recipe they may differ: results.jsonl has the number of test examples."
        )
    else:
        title = "The paper's tasks: data and licenses"
        note = (
            "What is told here is published with each set. The sizes of this run's training and "
            "test sets, and its text for pretraining, are not known to this report; results.jsonl "
            "has the number of test examples."
        )
    return Table("data", title, columns, (Group(lines),), (note,))


def list_missing(source: PaperSource, found: Measurements) -> list[str]:
    """Say what a complete report would have and this one does not."""
    notes = []
    absent = [display_name(v) for v in PAPER_VARIANTS if v not in found.variants]
    if absent:
        notes.append(f"Not measured yet: {', '.join(absent)}.")
    measured = {row["task"] for row in found.rows}
    tasks = [facts.title for facts in TASKS if facts.name not in measured]
    if tasks:
        notes.append(f"No scores yet on {', '.join(tasks)}.")
    pretraining = source.recipe.get("pretraining")
    steps = pretraining.get("steps") if isinstance(pretraining, dict) else None
    for variant in found.variants:
        last = found.steps.get(variant)
        if isinstance(steps, int) and last is not None and last < steps:
            notes.append(
                f"{display_name(variant)}: the last measured step is {last:,} of {steps:,}."
            )
    if set(MAIN_VARIANTS) & set(found.variants) and not source.comparisons:
        notes.append("There are no paired tests (comparisons.json).")
    if source.provenance is None:
        notes.append("There is no record of time and tokens (provenance.json).")
    if not source.logs:
        notes.append("There are no training logs.")
    if not set(AVERAGED) <= measured:
        notes.append("The average over the seven tasks needs all of them.")
    return notes
