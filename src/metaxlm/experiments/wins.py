"""How often one model beats another: scores by unit come in, counts and a sign test go out.

A unit is a pair of training and test language. The paper counts them in words ("all languages and
domains", Section 4.3; "15 out of 16 transfer directions", Section 5.2). Plain counts take the sign
of each difference of means over seeds; clear ones are those that the paired tests over examples
support (p < 0.05 after Holm's correction over the units of a task).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metaxlm.experiments.results import Row, select_final
from metaxlm.experiments.score_table import LOWER_IS_BETTER, find_metric, gather_scores, share_units
from metaxlm.experiments.series import Series, find_mean
from metaxlm.experiments.statistics import Difference, PairComparison
from metaxlm.experiments.task_comparison import TaskComparison, Unit

ALPHA = 0.05
EQUAL = 1e-9
"""Scores this close are equal: they are fractions with at least millions of parts less."""


@dataclass(frozen=True)
class Wins:
    """On how many units the first of two models is better than the second."""

    better: tuple[Unit, ...]
    worse: tuple[Unit, ...]
    equal: tuple[Unit, ...]
    clearly_better: tuple[Unit, ...] | None = None
    """Those with a corrected p-value below 0.05; None where nothing was tested."""
    clearly_worse: tuple[Unit, ...] | None = None

    @property
    def total(self) -> int:
        """Units that both models have."""
        return len(self.better) + len(self.worse) + len(self.equal)

    @property
    def p_value(self) -> float:
        """Two-sided, of the sign test over the units that are not equal."""
        return find_sign_p_value(len(self.better), len(self.worse))


def count_wins(
    rows: Sequence[Row],
    comparisons: Sequence[TaskComparison],
    task: str,
    first: str,
    second: str,
    scenario: str = "transfer",
) -> Wins:
    """Count the units of a task on which the first variant beats the second, at their last step.

    Units that only one of them has do not count.
    """
    final = select_final(rows)
    scores = [gather_scores(final, task, name, scenario=scenario) for name in (first, second)]
    lower = find_metric(task) in LOWER_IS_BETTER
    differences = find_differences(comparisons, task, first, second, scenario)
    return compare_units(scores[0], scores[1], differences, lower=lower)


def compare_units(
    first: Mapping[Unit, Series],
    second: Mapping[Unit, Series],
    tested: Mapping[Unit, Difference] | None = None,
    *,
    lower: bool = False,
) -> Wins:
    """Sort the common units by who is better there."""
    sign = -1 if lower else 1
    gains = {
        unit: sign * (find_mean(first[unit]) - find_mean(second[unit]))
        for unit in share_units([dict(first), dict(second)])
    }
    clear = {
        unit: sign * difference.value
        for unit, difference in (tested or {}).items()
        if unit in gains and difference.p_value < ALPHA
    }
    return Wins(
        tuple(unit for unit, gain in gains.items() if gain > EQUAL),
        tuple(unit for unit, gain in gains.items() if gain < -EQUAL),
        tuple(unit for unit, gain in gains.items() if abs(gain) <= EQUAL),
        tuple(unit for unit in gains if clear.get(unit, 0.0) > 0) if tested else None,
        tuple(unit for unit in gains if clear.get(unit, 0.0) < 0) if tested else None,
    )


def find_pair(
    comparisons: Sequence[TaskComparison],
    task: str,
    first: str,
    second: str,
    scenario: str,
    layer: int | None = None,
) -> tuple[TaskComparison, PairComparison] | None:
    """Return where two models were tested against each other, and how, the first one first."""
    for comparison in comparisons:
        if (comparison.task, comparison.scenario, comparison.layer) != (task, scenario, layer):
            continue
        for pair in comparison.pairs:
            if (pair.first, pair.second) == (first, second):
                return comparison, pair
            if (pair.second, pair.first) == (first, second):
                turned = tuple(map(turn, pair.by_language))
                return comparison, PairComparison(first, second, turned, turn(pair.mean))
    return None


def find_differences(
    comparisons: Sequence[TaskComparison], task: str, first: str, second: str, scenario: str
) -> dict[Unit, Difference] | None:
    """Return the tested differences, first less second, by unit; None where there was no test."""
    found = find_pair(comparisons, task, first, second, scenario)
    if found is None:
        return None
    comparison, pair = found
    return dict(zip(comparison.units, pair.by_language, strict=True))


def find_mean_difference(
    comparisons: Sequence[TaskComparison], task: str, first: str, second: str, scenario: str
) -> Difference | None:
    """Return the tested difference of means over units, first less second."""
    found = find_pair(comparisons, task, first, second, scenario)
    return None if found is None else found[1].mean


def turn(difference: Difference) -> Difference:
    """Exchange the two models of a difference."""
    return Difference(-difference.value, -difference.high, -difference.low, difference.p_value)


def find_sign_p_value(better: int, worse: int) -> float:
    """Return the two-sided p-value of so uneven a split, were both sides equally likely."""
    total = better + worse
    if total == 0:
        return 1.0
    ways = sum(math.comb(total, k) for k in range(max(better, worse), total + 1))
    return min(1.0, 2 * ways / (1 << total))
