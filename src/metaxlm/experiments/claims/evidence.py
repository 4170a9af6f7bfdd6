"""What a run has to say: result rows and paired tests come in, scores of what is asked for go out.

A measure is a list of parts, each a task in one scenario, or some of its units; its value is the
mean over parts of the mean over units, within each seed. What is not there raises
`MissingEvidenceError` with a sentence for the verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from metaxlm.experiments.claims.claim import MissingEvidenceError
from metaxlm.experiments.failed_trainings import FailedTrainings, find_failed
from metaxlm.experiments.names import display_name, title_task
from metaxlm.experiments.results import Row, find_final_steps, select_final
from metaxlm.experiments.score_table import (
    LOWER_IS_BETTER,
    MARGIN,
    SOURCE,
    UnitScores,
    find_level,
    find_metric,
    gather_scores,
    share_units,
)
from metaxlm.experiments.series import Series, average_series, find_mean
from metaxlm.experiments.task_comparison import TaskComparison, Unit


@dataclass(frozen=True)
class Part:
    """One task in one scenario; all its units from the source language, or those given."""

    task: str
    scenario: str = "transfer"
    metrics: tuple[str, ...] = ()
    """Averaged; empty for the metric that the task is judged by."""
    units: tuple[Unit, ...] = ()
    layer: int | None = None

    @property
    def is_lower_better(self) -> bool:
        """Whether its metric is an error rate."""
        return find_metric(self.task) in LOWER_IS_BETTER


@dataclass(frozen=True)
class Evidence:
    """All rows of a run, kept checkpoints included, and the paired tests between its variants."""

    rows: Sequence[Row]
    comparisons: Sequence[TaskComparison] = ()
    tested: bool = True
    """False for numbers that come without seeds and examples, as published ones do: then the signs
    of differences decide alone, and every reason says so."""

    @cached_property
    def final_steps(self) -> dict[str, int | None]:
        """The last step of each variant."""
        return find_final_steps(self.rows)

    @cached_property
    def failed(self) -> list[FailedTrainings]:
        """Finetunings of finished models that learned nothing."""
        return find_failed(self.rows)

    @cached_property
    def _by_task(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in select_final(self.rows):
            found.setdefault(row["task"], []).append(row)
        return found

    def list_rows(self, task: str) -> list[Row]:
        """Return the rows of finished models on a task, and of its levels."""
        return self._by_task.get(task, [])

    def require_variants(self, variants: Sequence[str]) -> None:
        """Refuse to compare what is not there, or was trained for another number of steps."""
        if missing := [name for name in variants if name not in self.final_steps]:
            raise MissingEvidenceError(f"No scores of {join_names(missing)}")
        steps = {name: self.final_steps[name] for name in variants}
        known = {step for step in steps.values() if step is not None}
        if len(known) > 1:
            told = ", ".join(f"{display_name(name)} {step}" for name, step in steps.items())
            raise MissingEvidenceError(f"Unequal numbers of steps: {told}")

    def read(self, variant: str, part: Part) -> UnitScores:
        """Return a finished variant's scores on a part, by unit and seed."""
        rows = self.list_rows(part.task)
        by_metric = [
            gather_scores(
                rows, part.task, variant, metric=name, scenario=part.scenario, layer=part.layer
            )
            for name in part.metrics or (find_metric(part.task),)
        ]
        found = {
            unit: average_series([scores[unit] for scores in by_metric])
            for unit in share_units(by_metric)
            if (unit in part.units if part.units else unit[0] == SOURCE or _is_diagonal(part))
        }
        if not found or any(unit not in found for unit in part.units):
            place = title_task(part.task)
            if part.layer is not None:
                place = f"layer {part.layer} of {place}"
            where = "".join(f" {a}→{b}" for a, b in part.units if (a, b) not in found)
            raise MissingEvidenceError(f"No scores of {display_name(variant)} on {place}{where}")
        return found

    def read_shared(self, variants: Sequence[str], part: Part) -> dict[str, UnitScores]:
        """Return the scores of several variants on the units that all of them have."""
        found = {variant: self.read(variant, part) for variant in variants}
        units = share_units(list(found.values()))
        if not units:
            raise MissingEvidenceError(
                f"No languages of {title_task(part.task)} that {join_names(variants)} share"
            )
        return {name: {unit: scores[unit] for unit in units} for name, scores in found.items()}

    def average(
        self, variants: Sequence[str], parts: Sequence[Part]
    ) -> dict[str, tuple[Series, list[UnitScores]]]:
        """Return each variant's mean over parts by seed, and the scores behind it."""
        found: dict[str, list[UnitScores]] = {variant: [] for variant in variants}
        for part in parts:
            for variant, scores in self.read_shared(variants, part).items():
                found[variant].append(scores)
        return {
            variant: (average_series([average_series(list(s.values())) for s in many]), many)
            for variant, many in found.items()
        }

    def is_learned(self, variants: Sequence[str], part: Part) -> bool:
        """Say whether the best of the variants is above what needs no model."""
        found = self.read_shared(variants, part)
        units = list(next(iter(found.values())))
        means = [find_mean(average_series(list(scores.values()))) for scores in found.values()]
        if part.is_lower_better:
            return min(means) < 1 - MARGIN
        return max(means) > self._find_level(part, units) + MARGIN

    def _find_level(self, part: Part, units: Sequence[Unit]) -> float:
        rows = self.list_rows(part.task)
        if part.task == "tatoeba":
            sizes = {row["language"]: row["examples"] for row in rows if row["examples"]}
            known = [1 / sizes[language] for _, language in units if language in sizes]
            return statistics.fmean(known) if known else 0.0
        return find_level(rows, part.task, part.scenario, units)


def join_names(variants: Sequence[str]) -> str:
    """Join the names of variants as in running text."""
    return " and ".join(map(display_name, variants))


def _is_diagonal(part: Part) -> bool:
    return part.scenario == "supervised"
