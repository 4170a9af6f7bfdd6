"""Scores out of result rows: by unit and seed, of finished models or along pretraining.

In come the rows of results.jsonl, out come values by (training language, test language) and seed,
their means over languages within each seed, as the paper takes them for its table 1, and the
levels that need no model. Everything that judges results (`wins.py`, `curves.py`, `claims/`) reads
scores through here, so that all choose the same step and the same split.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from metaxlm.experiments.features import METRICS
from metaxlm.experiments.results import Row, choose_split, is_tuning
from metaxlm.experiments.series import Series, find_mean
from metaxlm.experiments.task_comparison import Unit
from metaxlm.tasks.registry import TASKS

UnitScores = dict[Unit, Series]

SOURCE = "en"
LOWER_IS_BETTER = frozenset({"aer"})
MARGIN = 0.02
"""A task is learned where a model is this far above what needs no model."""


def find_metric(task: str) -> str:
    """Return the metric that a task is judged by."""
    if task in METRICS:
        return METRICS[task]
    return TASKS[task].metric if task in TASKS else "accuracy"


def list_metrics(task: str) -> tuple[str, ...]:
    """Return the metrics that count in the paper's `Avg`: F1 and exact match for questions."""
    metric = find_metric(task)
    return (metric, "em") if task in ("xquad", "mlqa", "tydiqa") else (metric,)


def gather_scores(
    rows: Iterable[Row],
    task: str,
    variant: str | None,
    *,
    metric: str | None = None,
    scenario: str = "transfer",
    layer: int | None = None,
) -> UnitScores:
    """Return a variant's scores by unit and seed; rows must be of one step.

    Dev sets count only where more languages have these than have test sets, as in the tests
    between models (`comparison.py`). Variant None and metric `majority` or `chance` give levels.
    """
    wanted = (metric or find_metric(task), scenario, layer)
    of_task = [row for row in rows if row["task"] == task]
    use_dev = choose_split({(row["split"], row["language"]): None for row in of_task})
    scores: UnitScores = {}
    for row in of_task:
        if (
            (row["metric"], row["scenario"], row.get("layer")) == wanted
            and row.get("variant") == variant
            and is_tuning(row["split"]) == use_dev
        ):
            unit = (str(row["source"]), str(row["language"]))
            scores.setdefault(unit, {})[int(row["seed"])] = float(row["value"])
    return scores


def share_units(many: Sequence[UnitScores]) -> list[Unit]:
    """Return the units that all have, in the order of the first; only these are comparable."""
    if not many:
        return []
    return [unit for unit in many[0] if all(unit in scores for scores in many[1:])]


def find_level(rows: Iterable[Row], task: str, scenario: str, units: Sequence[Unit]) -> float:
    """Return what needs no model, as a mean over units: the most frequent label or guessing.

    The larger of both counts in each unit, and 0 where neither was measured.
    """
    rows = list(rows)
    levels = [
        gather_scores(rows, task, None, metric=name, scenario=scenario)
        for name in ("majority", "chance")
    ]
    best = [
        max((find_mean(level[unit]) for level in levels if unit in level), default=0.0)
        for unit in units
    ]
    return statistics.fmean(best) if best else 0.0
