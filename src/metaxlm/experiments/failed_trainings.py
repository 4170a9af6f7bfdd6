"""Finetunings that learned nothing: result rows come in, those go out that are no better than none.

A finetuning may collapse: the model then gives one answer to everything, in its own training
language too. Such a seed says more of the finetuning than of the model, and it widens every
interval, so tables, tests and claims keep it and name it. Where no seed of a model learned, the
task is beyond the model, which is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from metaxlm.experiments.names import display_name, title_task
from metaxlm.experiments.results import Row, select_final
from metaxlm.experiments.score_table import (
    MARGIN,
    UnitScores,
    find_level,
    find_metric,
    gather_scores,
)
from metaxlm.experiments.series import average_series, find_mean
from metaxlm.languages import language_name


@dataclass(frozen=True)
class FailedTrainings:
    """The seeds of one model, task and training language that learned nothing."""

    variant: str
    task: str
    source: str
    seeds: tuple[int, ...]
    num_seeds: int
    """All that were trained."""
    value: float
    """Their mean in the training language."""
    others: float
    """The mean of the seeds that learned, over all languages of the scenario."""

    def describe(self) -> str:
        """Say it in one sentence."""
        numbers = ", ".join(map(str, self.seeds))
        which = f"seed{'s' if len(self.seeds) > 1 else ''} {numbers}"
        language = language_name(self.source)
        return (
            f"{title_task(self.task)}: {len(self.seeds)} of {self.num_seeds} finetunings "
            f"of {display_name(self.variant)} learned nothing ({which}: "
            f"{100 * self.value:.1f} in {language} itself); "
            f"without {'it' if len(self.seeds) == 1 else 'them'} "
            f"the mean is {100 * self.others:.1f}."
        )


def find_failed(
    rows: Sequence[Row], metrics: Mapping[str, str] | None = None
) -> list[FailedTrainings]:
    """List what learned nothing while another seed of the same did; kept steps are left out.

    `metrics` names those that the tasks are judged by, where they are not tasks of the paper.
    """
    by_task: dict[str, list[Row]] = {}
    for row in select_final(rows):
        by_task.setdefault(str(row["task"]), []).append(row)
    return [
        failed
        for task, of_task in by_task.items()
        for scenario in ("transfer", "supervised")
        for failed in _search(of_task, task, scenario, (metrics or {}).get(task))
    ]


def choose_failed(
    found: Iterable[FailedTrainings], variants: Iterable[str], tasks: Iterable[str]
) -> list[FailedTrainings]:
    """Keep those of some variants on some tasks."""
    variants, tasks = set(variants), set(tasks)
    return [failed for failed in found if failed.variant in variants and failed.task in tasks]


def has_learned(value: float, *levels: float) -> bool:
    """Say whether a score is above what needs no model."""
    return value > max(levels, default=0.0) + MARGIN


def _search(
    rows: Sequence[Row], task: str, scenario: str, metric: str | None
) -> Iterator[FailedTrainings]:
    metric = metric or find_metric(task)
    variants = dict.fromkeys(str(row["variant"]) for row in rows if row["variant"] is not None)
    for variant in variants:
        scores = gather_scores(rows, task, variant, metric=metric, scenario=scenario)
        for (source, language), series in scores.items():
            if source != language:
                continue
            level = find_level(rows, task, scenario, [(source, language)])
            failed = [seed for seed, value in series.items() if not has_learned(value, level)]
            if failed and len(failed) < len(series):
                yield FailedTrainings(
                    variant,
                    task,
                    source,
                    tuple(sorted(failed)),
                    len(series),
                    find_mean({seed: series[seed] for seed in failed}),
                    _average_without(scores, source, failed),
                )


def _average_without(scores: UnitScores, source: str, failed: Sequence[int]) -> float:
    """Average the seeds that learned over all languages that were tested from a source."""
    kept = [
        {seed: value for seed, value in series.items() if seed not in failed}
        for unit, series in scores.items()
        if unit[0] == source
    ]
    return find_mean(average_series(kept))
