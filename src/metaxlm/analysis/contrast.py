"""The difference of two variants on a measure, with the best test that the data allow.

The value is positive where the first variant is better. The tests, in order of preference:

1. over examples and seeds: the variance over examples (from the bootstrap interval of a paired
   test) and those over each variant's seeds of finetuning add up, and Student's t has Welch and
   Satterthwaite's degrees of freedom;
2. over seeds: the same without examples;
3. over sentences, for features, which have no seeds: randomization within pairs of the same
   sentences; without such tests over languages, by their signs, or Student's t for fewer than six.

One seed of finetuning is not tested: a collapsed finetuning shows in all examples and all languages
at once. Seeds of two variants are not paired, because the same seed in two models is another
finetuning; these p-values are larger than those of the paired tests, which hold the models fixed.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from metaxlm.analysis.results import (
    MARGIN,
    SOURCE,
    LanguagePair,
    PairScores,
    Results,
    display_name,
    join_names,
    share_pairs,
    title_task,
)
from metaxlm.analysis.stats import (
    ALPHA,
    EQUAL,
    Difference,
    SeedScores,
    average,
    find_comparison,
    find_half_width,
    find_p_value,
    mean,
    sign_test,
)

BOTH = "over examples and seeds"
SENTENCES = "over sentences"
NUMBERS_ALONE = "by the numbers alone"
ONE_SEED = "one seed, not tested"
UNTESTED = "too few languages to test"
FEWEST_SEEDS = 2
_FEWEST_SIGNS = 6
"""With fewer signs, even equal ones, a sign test cannot reach 0.05."""
_FEWEST_VALUES = 3


class MissingScoresError(Exception):
    """A measure is not among the results; the message is a reason for readers."""


@dataclass(frozen=True)
class Measure:
    """A task in one scenario: all pairs of languages from the source, or those given."""

    task: str
    scenario: str = "transfer"
    metrics: tuple[str, ...] = ()
    """Averaged; empty for the task's metric."""
    pairs: tuple[LanguagePair, ...] = ()
    layer: int | None = None

    def read(self, results: Results, variant: str) -> PairScores:
        """Return a finished variant's scores, by languages and seed."""
        by_metric = [
            results.scores(self.task, variant, self.scenario, metric, self.layer)
            for metric in self.metrics or (results.info(self.task).metric,)
        ]
        found = {
            pair: average([scores[pair] for scores in by_metric])
            for pair in share_pairs(by_metric)
            if (pair in self.pairs if self.pairs else self._is_default(pair))
        }
        if not found or any(pair not in found for pair in self.pairs):
            place = title_task(self.task)
            if self.layer is not None:
                place = f"layer {self.layer} of {place}"
            where = "".join(f" {a}→{b}" for a, b in self.pairs if (a, b) not in found)
            raise MissingScoresError(f"No scores of {display_name(variant)} on {place}{where}")
        return found

    def _is_default(self, pair: LanguagePair) -> bool:
        return pair[0] == SOURCE or self.scenario == "supervised"

    def read_shared(self, results: Results, variants: Sequence[str]) -> dict[str, PairScores]:
        """Return the scores of several variants on the pairs that all of them have."""
        found = {variant: self.read(results, variant) for variant in variants}
        pairs = share_pairs(list(found.values()))
        if not pairs:
            raise MissingScoresError(
                f"{join_names(variants)} share no languages of {title_task(self.task)}"
            )
        return {name: {pair: scores[pair] for pair in pairs} for name, scores in found.items()}

    def is_learned(self, results: Results, variants: Sequence[str]) -> bool:
        """Say whether the best of the variants is clearly above the baselines."""
        found = self.read_shared(results, variants)
        means = [mean(average(list(scores.values()))) for scores in found.values()]
        if results.info(self.task).lower:
            return min(means) < 1 - MARGIN
        pairs = list(next(iter(found.values())))
        return max(means) > results.find_level(self.task, self.scenario, pairs) + MARGIN


def average_measures(
    results: Results, variants: Sequence[str], measures: Sequence[Measure]
) -> dict[str, tuple[SeedScores, list[PairScores]]]:
    """Return each variant's mean over measures by seed, and the scores behind it."""
    read = [measure.read_shared(results, variants) for measure in measures]
    found = {variant: [scores[variant] for scores in read] for variant in variants}
    return {
        variant: (average([average(list(scores.values())) for scores in many]), many)
        for variant, many in found.items()
    }


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

    @property
    def label(self) -> str:
        """Name both variants."""
        return f"{display_name(self.first)} − {display_name(self.second)}"

    def one_sided(self, sign: int) -> float:
        """Return the p-value if the difference has this sign and was tested, else 1."""
        is_there = self.p_value is not None and self.agrees and sign * self.value > EQUAL
        return self.p_value if is_there and self.p_value is not None else 1.0

    def describe(self, *, names_weaker_tests: bool = False) -> str:
        """Return the difference in points with its p-value, and tests without examples by name."""
        points = write_points(self.value)
        if self.basis == NUMBERS_ALONE:
            return points
        if self.p_value is None:
            return f"{points} ({self.basis})"
        aside = "" if self.agrees else ", signs differ"
        if names_weaker_tests and self.basis not in (BOTH, SENTENCES):
            aside += f", {self.basis}"
        return f"{points} ({write_p_value(self.p_value)}{aside})"


def write_points(value: float) -> str:
    """Write a difference in points, with its sign unless it is zero."""
    points = f"{100 * value:+.1f}"
    return "0.0" if points in ("+0.0", "-0.0") else points


def write_p_value(p_value: float) -> str:
    """Write a p-value with three digits."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def contrast(
    results: Results,
    first: str,
    second: str,
    measures: Sequence[Measure],
    among: Sequence[str] = (),
) -> Contrast:
    """Compare two variants on a mean of measures, over the pairs that these and `among` have."""
    key = (first, second, tuple(measures), tuple(among))
    if key not in results.contrasts:
        results.contrasts[key] = _contrast(results, first, second, measures, among)
    found: Contrast = results.contrasts[key]
    return found


def _contrast(
    results: Results,
    first: str,
    second: str,
    measures: Sequence[Measure],
    among: Sequence[str],
) -> Contrast:
    names = list(dict.fromkeys([first, second, *among]))
    found = average_measures(results, names, measures)
    sign = -1.0 if results.info(measures[0].task).lower else 1.0
    value = sign * (mean(found[first][0]) - mean(found[second][0]))
    by_pair = [
        sign * (mean(one[pair]) - mean(two[pair]))
        for one, two in zip(found[first][1], found[second][1], strict=True)
        for pair in one
    ]
    if measures[0].scenario == "features":
        if results.tested and len(measures) == 1:
            [of] = measures
            tested = find_comparison(
                results.comparisons, of.task, first, second, of.scenario, of.layer
            )
            if tested is not None and set(tested[0].units) == set(found[first][1][0]):
                total = tested[1].mean
                agrees = sign * total.value * value > 0
                return Contrast(first, second, value, total.p_value, SENTENCES, agrees)
        return contrast_values(results, first, second, value, [], by_pair)
    seeds = [list(found[name][0].values()) for name in (first, second)]
    differences = _read_tests(results, first, second, measures, found[first][1])
    if not (results.tested and differences) or min(map(len, seeds)) < FEWEST_SEEDS:
        return contrast_values(results, first, second, value, seeds, by_pair)
    agrees = sign * sum(difference.value for difference in differences) * value > 0
    variance = sum(d.variance for d in differences) / len(differences) ** 2
    p_value, half = find_p_value(value, seeds, variance), find_half_width(seeds, variance)
    return Contrast(first, second, value, p_value, BOTH, agrees, half)


def contrast_values(
    results: Results,
    first: str,
    second: str,
    value: float,
    seeds: Sequence[Sequence[float]],
    by_pair: Sequence[float],
) -> Contrast:
    """Test a difference over seeds, or over languages where there are no seeds.

    `seeds` are the samples whose means make it up: those of both variants, or of one difference,
    and empty for features; `by_pair` are differences, positive where the first is better.
    """
    if not results.tested:
        return Contrast(first, second, value, 0.0, NUMBERS_ALONE)
    if seeds:
        if (fewest := min(map(len, seeds))) < FEWEST_SEEDS:
            return Contrast(first, second, value, None, ONE_SEED)
        p_value, half = find_p_value(value, seeds), find_half_width(seeds)
        return Contrast(first, second, value, p_value, f"over {fewest} seeds", half_width=half)
    better = sum(gain > EQUAL for gain in by_pair)
    worse = sum(gain < -EQUAL for gain in by_pair)
    if better + worse >= _FEWEST_SIGNS:
        agrees = (better - worse) * value > 0
        basis = f"sign test, {better} of {len(by_pair)} sets better"
        return Contrast(first, second, value, sign_test(better, worse), basis, agrees)
    if len(by_pair) >= _FEWEST_VALUES:
        basis = f"Student's t over {len(by_pair)} languages"
        return Contrast(first, second, value, find_p_value(value, [by_pair]), basis)
    return Contrast(first, second, value, None, UNTESTED)


def _read_tests(
    results: Results,
    first: str,
    second: str,
    measures: Sequence[Measure],
    scores: Sequence[PairScores],
) -> list[Difference] | None:
    """Return the tested difference of each measure; None unless every one was tested."""
    found: list[Difference] = []
    for measure, of_measure in zip(measures, scores, strict=True):
        tested = find_comparison(results.comparisons, measure.task, first, second, measure.scenario)
        if tested is None:
            return None
        by_pair = dict(zip(tested[0].units, tested[1].by_language, strict=True))
        if not set(of_measure) <= set(by_pair):
            return None
        is_whole = len(of_measure) == len(by_pair)
        found.append(
            tested[1].mean if is_whole else _average([by_pair[pair] for pair in of_measure])
        )
    return found


def _average(differences: Sequence[Difference]) -> Difference:
    """Average the differences of some languages of a task.

    Examples may be translations of each other, so that errors may correlate: the width of a mean is
    at most the mean of the widths, which is taken.
    """
    value, low, high = (
        statistics.fmean(getattr(difference, name) for difference in differences)
        for name in ("value", "low", "high")
    )
    return Difference(value, low, high, 1.0)
