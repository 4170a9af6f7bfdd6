"""The rows of an evaluation, sorted for tables: by task and scenario, one split, one layer.

Rows of results.jsonl come in; for each column of the table by task its scores by model, language
and seed go out, with the levels that need no model. A task that is trained in several languages
(Amazon reviews) has two: supervised, and transfer with units such as `de→fr`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from metaxlm.experiments.results import choose_split, is_tuning
from metaxlm.experiments.series import Series
from metaxlm.report.cells import Cell, Column, Direction, make_score_cell
from metaxlm.report.scores import Row, Scores, is_lower_better, score_series
from metaxlm.report.tables import name_metric


@dataclass(frozen=True)
class TaskFacts:
    """What tables must know of a task."""

    name: str
    title: str
    kind: str
    metric: str
    trained_in_each: bool = False
    """Whether it is trained in several languages, and supervised where it is tested in its own."""

    @property
    def second(self) -> str | None:
        """The score that stands after the slash."""
        return "em" if self.kind == "span" else None


@dataclass(frozen=True)
class TaskSection:
    """One task in one scenario: a column of the table by task."""

    facts: TaskFacts
    scenario: str
    scores: Scores
    second: Scores | None
    chance: dict[str, Cell]
    majority: dict[str, Cell]
    splits: dict[str, str]
    """By unit: a test language, or `de→fr` where it is trained in several."""
    layers: dict[str, int]
    """Best layer of each model, for scores of layers."""
    is_papers: bool
    """Whether the paper measures the same: trained in English, or supervised for reviews."""

    @property
    def name(self) -> str:
        """Name its files."""
        name = self.facts.name
        return f"{name}-{self.scenario}" if self.facts.trained_in_each else name

    @property
    def column(self) -> Column:
        """Return its heading."""
        metric = name_metric(self.facts.metric)
        detail = f"{metric} / EM" if self.second else metric
        if self.name != self.facts.name:
            detail = f"{self.scenario}, {detail}"
        better: Direction = "lower" if is_lower_better(self.facts.metric) else "higher"
        return Column(self.facts.title, detail, better)

    def cell(self, model: str, units: Sequence[str]) -> Cell:
        """Return a model's mean over units, then over seeds."""
        cell = make_score_cell(score_series(self.scores.mean(model, None, units)))
        if self.second is not None and cell.value is not None:
            beside = make_score_cell(score_series(self.second.mean(model, None, units)))
            cell = replace(cell, beside=beside)
        return cell

    def series(self, model: str) -> list[Series]:
        """Return the mean over the common units by seed, of both scores."""
        units = self.scores.common_languages()
        both = [self.scores, self.second] if self.second else [self.scores]
        return [scores.mean(model, None, units) for scores in both]


def make_sections(rows: Sequence[Row], tasks: Sequence[TaskFacts]) -> list[TaskSection]:
    """Sort the rows of an evaluation by task and scenario, in the order of the tasks."""
    sections = []
    for facts in tasks:
        mine = [row for row in rows if row["task"] == facts.name]
        for scenario in ("features", "supervised", "transfer"):
            chosen = [row for row in mine if row["scenario"] == scenario]
            if any(row["variant"] is not None for row in chosen):
                sections.append(_make_section(facts, scenario, chosen, mine))
    return sections


def _make_section(
    facts: TaskFacts, scenario: str, rows: Sequence[Row], of_task: Sequence[Row]
) -> TaskSection:
    measured = [row for row in of_task if row["variant"] is not None]
    use_dev = choose_split((row["split"], row["language"]) for row in measured)
    is_english = {row["source"] for row in of_task} == {"en"} and not facts.trained_in_each
    crossed = scenario == "transfer" and not is_english
    named = [
        {**row, "language": f"{row['source']}→{row['language']}" if crossed else row["language"]}
        for row in rows
        if is_tuning(str(row["split"])) == use_dev
    ]
    layers = _choose_layers(named, facts.metric) if scenario == "features" else {}
    flat = [
        {**row, "layer": None} for row in named if row["layer"] == layers.get(str(row["variant"]))
    ]

    def gather(metric: str) -> Scores:
        return Scores(row for row in flat if row["metric"] == metric)

    def level(name: str) -> dict[str, Cell]:
        if scenario == "features":
            # One of all sentences is the right one; for alignment there is no such level.
            sizes = gather(facts.metric).examples
            is_retrieval = name == "chance" and facts.metric == "accuracy"
            return {unit: Cell(1 / size) for unit, size in sizes.items()} if is_retrieval else {}
        main, beside = gather(name), gather(f"{name}_{facts.second}")
        cells = {}
        for unit in main.languages():
            cell = make_score_cell(score_series(main.series(None, None, unit)))
            other = make_score_cell(score_series(beside.series(None, None, unit)))
            cell = replace(cell, deviation=None)
            other = replace(other, deviation=None)
            cells[unit] = replace(cell, beside=other) if facts.second else cell
        return cells

    return TaskSection(
        facts,
        scenario,
        gather(facts.metric),
        gather(facts.second) if facts.second else None,
        level("chance"),
        level("majority"),
        {str(row["language"]): str(row["split"]) for row in flat},
        layers,
        is_english or scenario == "supervised",
    )


def _choose_layers(rows: Sequence[Row], metric: str) -> dict[str, int]:
    scores = Scores(row for row in rows if row["metric"] == metric)
    units = scores.common_languages()
    best = {
        model: scores.best_layer(model, is_lower_better(metric), units) for model in scores.variants
    }
    return {model: layer for model, layer in best.items() if layer is not None}


def describe_tasks(records: Sequence[Mapping[str, Any]], order: Sequence[str]) -> list[TaskFacts]:
    """List the tasks of an evaluation's records: known ones in their order, then the others."""
    found = {
        record["task"]: TaskFacts(
            record["task"],
            record["title"],
            record["kind"],
            record["metric"],
            record.get("trained_in_each", False),
        )
        for record in records
    }
    names = [name for name in order if name in found]
    return [found[name] for name in [*names, *(name for name in found if name not in names)]]


def list_notes(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what a reader of the tables must know: files without labels, limits."""
    notes = []
    limits = sorted({record["limit"] for record in records if record.get("limit")})
    if limits:
        shown = ", ".join(map(str, limits))
        notes.append(f"A quick try: only the first {shown} examples of each file.")
    blank: dict[str, set[str]] = {}
    for record in records:
        for file in record["files"]:
            if not file["num_examples"]:
                name = f"{record['task']} {file['name']}"
                blank.setdefault(name, set()).add(file["language"])
    for name, languages in sorted(blank.items()):
        notes.append(f"No labels, predicted only: {name} of {' '.join(sorted(languages))}.")
    return notes
