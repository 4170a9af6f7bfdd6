"""The difference of two variants on a measure, and the best test that the data allow.

In come scores by unit and seed and the paired tests over examples, out comes a difference that is
positive where the first variant is better, with a p-value and the name of its test. In this order:

1. over examples and seeds: the error over examples (from the bootstrap interval of a difference)
   and those over each variant's seeds of finetuning add up, and Student's t has Welch and
   Satterthwaite's degrees of freedom;
2. over seeds: the same without examples;
3. over sentences, for features, which have no seeds: randomization within pairs of the same
   sentences; without such tests over languages, by their signs, or Student's t for fewer than six.

With one seed of finetuning there is no test: that a training caught on, or did not, shows in all
examples and all languages at once, so that neither can tell it from a better model.

Seeds of two variants are not paired: the same seed in two models is another training. The p-values
are therefore larger than those of `comparison.py`, which hold the trained models fixed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from metaxlm.experiments.claims.evidence import Evidence, Part
from metaxlm.experiments.score_table import UnitScores
from metaxlm.experiments.series import find_mean
from metaxlm.experiments.statistics import CONFIDENCE, Difference, find_t_quantile
from metaxlm.experiments.wins import (
    ALPHA,
    EQUAL,
    find_differences,
    find_mean_difference,
    find_pair,
    find_sign_p_value,
)

BOTH = "over examples and seeds"
SENTENCES = "over sentences"
NUMBERS_ALONE = "by the numbers alone"
ONE_SEED = "one seed"
UNTESTED = "nothing to test with"
FEWEST_SEEDS = 2
"""Of finetuning; a verdict on fewer would be one on chance."""
_INTERVAL_WIDTH = 2 * statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Of a 95 % interval, in standard errors."""
_FEWEST_SIGNS = 6
"""With fewer signs, even equal ones, a sign test cannot reach 0.05."""
_FEWEST_VALUES = 3
_MOST_FREEDOM = 60
"""Where Student's t is nearly normal, and errs on the side of caution."""


@dataclass(frozen=True)
class Contrast:
    """How much better the first variant is than the second."""

    first: str
    second: str
    value: float
    """Positive where the first is better."""
    p_value: float | None
    """None where nothing could be tested."""
    basis: str
    """Name of the test."""
    agrees: bool = True
    """Whether what was tested has the sign of the value."""
    half_width: float | None = None
    """Half of the 95 % interval around the value, for tests over seeds."""

    @property
    def direction(self) -> int:
        """1 or -1 where a difference is supported, else 0."""
        if self.p_value is None or self.p_value >= ALPHA or not self.agrees:
            return 0
        return 1 if self.value > EQUAL else -1 if self.value < -EQUAL else 0

    def describe(self, *, names_weaker_tests: bool = False) -> str:
        """Return the difference in points with its p-value, and tests without examples by name."""
        points = write_points(self.value)
        if self.basis == NUMBERS_ALONE:
            return points
        if self.p_value is None:
            return f"{points} ({self.basis})"
        aside = "" if self.agrees else ", of unlike signs"
        if names_weaker_tests and self.basis not in (BOTH, SENTENCES):
            aside += f", {self.basis}"
        return f"{points} ({write_p_value(self.p_value)}{aside})"


def write_points(value: float) -> str:
    """Write a difference in points, with its sign unless it is nothing."""
    points = f"{100 * value:+.1f}"
    return "0.0" if points in ("+0.0", "-0.0") else points


def write_p_value(p_value: float) -> str:
    """Write a p-value with three digits."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def contrast(
    evidence: Evidence,
    first: str,
    second: str,
    parts: Sequence[Part],
    among: Sequence[str] = (),
) -> Contrast:
    """Compare two variants on a measure, over the units that these and `among` have."""
    names = list(dict.fromkeys([first, second, *among]))
    found = evidence.average(names, parts)
    sign = -1.0 if parts[0].is_lower_better else 1.0
    value = sign * (find_mean(found[first][0]) - find_mean(found[second][0]))
    by_unit = [
        sign * (find_mean(one[unit]) - find_mean(two[unit]))
        for one, two in zip(found[first][1], found[second][1], strict=True)
        for unit in one
    ]
    is_finetuned = parts[0].scenario != "features"
    if not is_finetuned and evidence.tested and len(parts) == 1:
        part = parts[0]
        about = (part.task, first, second, part.scenario, part.layer)
        tested_there = find_pair(evidence.comparisons, *about)
        if tested_there is not None and set(tested_there[0].units) == set(found[first][1][0]):
            mean = tested_there[1].mean
            agrees = sign * mean.value * value > 0
            return Contrast(first, second, value, mean.p_value, SENTENCES, agrees)
    seeds = [list(found[name][0].values()) for name in (first, second)] if is_finetuned else []
    tested = _read_tests(evidence, first, second, parts, found[first][1])
    if not (evidence.tested and tested and seeds) or min(map(len, seeds)) < FEWEST_SEEDS:
        return contrast_values(evidence, first, second, value, seeds, by_unit)
    agrees = sign * sum(difference.value for difference in tested) * value > 0
    error = sum(((d.high - d.low) / _INTERVAL_WIDTH) ** 2 for d in tested) / len(tested) ** 2
    p_value, half_width = judge_difference(value, seeds, error), find_half_width(seeds, error)
    return Contrast(first, second, value, p_value, BOTH, agrees, half_width)


def contrast_values(
    evidence: Evidence,
    first: str,
    second: str,
    value: float,
    seeds: Sequence[Sequence[float]],
    by_unit: Sequence[float],
) -> Contrast:
    """Test a difference over seeds; over units where there are no seeds.

    `seeds` are the samples whose means make it up: those of both variants, or of one difference,
    and empty for features; `by_unit` are differences, positive where the first is better.
    """
    if not evidence.tested:
        return Contrast(first, second, value, 0.0, NUMBERS_ALONE)
    if seeds:
        if (fewest := min(map(len, seeds))) < FEWEST_SEEDS:
            return Contrast(first, second, value, None, ONE_SEED)
        p_value, half_width = judge_difference(value, seeds), find_half_width(seeds)
        basis = f"over {fewest} seeds"
        return Contrast(first, second, value, p_value, basis, half_width=half_width)
    better = sum(gain > EQUAL for gain in by_unit)
    worse = sum(gain < -EQUAL for gain in by_unit)
    if better + worse >= _FEWEST_SIGNS:
        agrees = (better - worse) * value > 0
        p_value, basis = find_sign_p_value(better, worse), f"{better} of {len(by_unit)} sets better"
        return Contrast(first, second, value, p_value, f"sign test, {basis}", agrees)
    if len(by_unit) >= _FEWEST_VALUES:
        p_value = judge_difference(value, [by_unit])
        return Contrast(first, second, value, p_value, f"Student's t over {len(by_unit)} languages")
    return Contrast(first, second, value, None, UNTESTED)


def find_joint_p_value(p_values: Sequence[float], at_least: int) -> float:
    """Return the p-value of fewer than so many of these being real (a partial conjunction).

    All of them, and the largest decides; one of them, and the smallest is corrected for their
    number, as Bonferroni does.
    """
    if at_least <= 0:
        return 0.0
    if at_least > len(p_values):
        return 1.0
    return min(1.0, (len(p_values) - at_least + 1) * sorted(p_values)[at_least - 1])


def judge_difference(
    value: float, samples: Sequence[Sequence[float]], known_variance: float = 0.0
) -> float:
    """Return the two-sided p-value that a sum or difference of means of samples is 0.

    The known variance of the value, that has no sample here, adds to those of the means.
    """
    total, freedom = _add_errors(samples, known_variance)
    if total <= EQUAL**2:
        return 0.0 if abs(value) > EQUAL else 1.0
    return find_t_p_value(abs(value) / math.sqrt(total), freedom)


def find_half_width(samples: Sequence[Sequence[float]], known_variance: float = 0.0) -> float:
    """Return half of the 95 % interval of a sum or difference of means, as it is judged."""
    total, freedom = _add_errors(samples, known_variance)
    return find_t_quantile(CONFIDENCE, freedom) * math.sqrt(total)


def _add_errors(samples: Sequence[Sequence[float]], known_variance: float) -> tuple[float, int]:
    """Return the variance of a sum of means, and its degrees of freedom."""
    errors = [(statistics.variance(sample) / len(sample), len(sample) - 1) for sample in samples]
    total = known_variance + sum(error for error, _ in errors)
    uncertainty = sum(error**2 / freedom for error, freedom in errors)
    if uncertainty * _MOST_FREEDOM <= total**2:
        return total, _MOST_FREEDOM
    return total, max(1, int(total**2 / uncertainty + 1e-9))


def find_t_p_value(t: float, freedom: int) -> float:
    """Return P(|T| > t) for Student's T."""
    low, high = 0.0, 1.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        if find_t_quantile(middle, freedom) > t:
            high = middle
        else:
            low = middle
    return 1 - (low + high) / 2


def _read_tests(
    evidence: Evidence,
    first: str,
    second: str,
    parts: Sequence[Part],
    scores: Sequence[UnitScores],
) -> list[Difference] | None:
    """Return the tested difference of each part; None unless every part was tested."""
    found: list[Difference] = []
    for part, of_part in zip(parts, scores, strict=True):
        about = (evidence.comparisons, part.task, first, second, part.scenario)
        by_unit, mean = find_differences(*about), find_mean_difference(*about)
        if by_unit is None or mean is None or not set(of_part) <= set(by_unit):
            return None
        is_whole = len(of_part) == len(by_unit)
        found.append(mean if is_whole else _average([by_unit[unit] for unit in of_part]))
    return found


def _average(differences: Sequence[Difference]) -> Difference:
    """Average the differences of some languages of a task.

    Examples may be translations of each other, so that errors may go together: the width of a mean
    is at most the mean of the widths, and that is taken.
    """
    value, low, high = (
        statistics.fmean(numbers)
        for numbers in zip(*((d.value, d.low, d.high) for d in differences), strict=True)
    )
    error = (high - low) / _INTERVAL_WIDTH
    return Difference(value, low, high, judge_difference(value, [], error**2))
