"""The difference of two variants on a measure, with the best test that the data allow.

The value is positive where the first variant is better. The tests, in order of preference:

1. over examples and seeds: the variance over examples (from the bootstrap interval of a paired
   test) and those over each variant's seeds of finetuning add up, and Student's t has Welch and
   Satterthwaite's degrees of freedom;
2. over seeds: the same without examples;
3. over sentences, for features, which have no seeds: randomization within pairs of the same
   sentences; without such tests over languages, by their signs, or Student's t for fewer than six.

Claims about layers are always tested over languages (`contrast_languages`): a test over sentences
holds the languages fixed, and the claims are not about these languages.

One seed of finetuning is not tested: a collapsed finetuning shows in all examples and all languages
at once. Seeds of two variants are not paired, because the same seed in two models is another
finetuning; these p-values are larger than those of the paired tests, which hold the models fixed.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from metaxlm.analysis.results import (
    MARGIN,
    SOURCE,
    LanguagePair,
    Names,
    display_name,
    join_names,
    title_task,
)
from metaxlm.analysis.scores import PairScores, Results, share_pairs
from metaxlm.analysis.stats import (
    ALPHA,
    EQUAL,
    Difference,
    Samples,
    SeedScores,
    average,
    find_comparison,
    find_half_width,
    find_p_value,
    mean,
    sign_test,
    weigh_strata,
)

Outcome = Literal["holds", "fails", "undecided"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
HOLDS, FAILS, UNDECIDED = OUTCOMES
Numbers = list[tuple[str, str]]
Conclusion = tuple[Outcome, Numbers, str]
"""Outcome, labeled numbers, and the reason in one or two sentences."""
BOTH = "over examples and seeds"
SENTENCES = "over sentences"
NUMBERS_ALONE = "by the numbers alone"
ONE_SEED = "one seed, not tested"
UNTESTED = "too few languages to test"
FEWEST_SEEDS = 2
_STRATA = (("udpos",), ("panx",), ("xquad", "mlqa"), ("tydiqa",), ("xnli",), ("pawsx",))
"""The seven tasks of XTREME; tasks that share a finetuning are one stratum."""
_FEWEST_SIGNS = 6  # with fewer signs, even equal ones, a sign test cannot reach 0.05
_FEWEST_VALUES = 3


class MissingScoresError(Exception):
    """A measure is not among the results; the message is a reason for readers."""


@dataclass(frozen=True)
class Measure:
    """A task in one scenario: all pairs of languages from the source, or those given."""

    task: str
    scenario: str = "transfer"
    metrics: tuple[str, ...] = ()  # averaged; empty for the task's metric
    pairs: tuple[LanguagePair, ...] = ()
    layer: int | None = None

    def read(self, results: Results, variant: str) -> PairScores:
        """Return a finished variant's scores, by languages and seed."""
        by_metric = [
            results.scores(self.task, variant, self.scenario, metric, self.layer)
            for metric in self.metrics or (results.info(self.task).metric,)
        ]
        is_any = self.scenario == "supervised"
        scores = {
            pair: average([scores[pair] for scores in by_metric])
            for pair in share_pairs(by_metric)
            if (pair in self.pairs if self.pairs else is_any or pair[0] == SOURCE)
        }
        missing = "".join(f" {a}→{b}" for a, b in self.pairs if (a, b) not in scores)
        if missing or not scores:
            where = "" if self.layer is None else f"layer {self.layer} of "
            raise MissingScoresError(
                f"No scores of {display_name(variant)} on {where}{title_task(self.task)}{missing}"
            )
        return scores

    def read_shared(self, results: Results, variants: Names) -> dict[str, PairScores]:
        """Return the scores of several variants on the pairs that all of them have."""
        every = {variant: self.read(results, variant) for variant in variants}
        pairs = share_pairs(list(every.values()))
        if not pairs:
            raise MissingScoresError(
                f"{join_names(variants)} share no languages of {title_task(self.task)}"
            )
        return {name: {pair: scores[pair] for pair in pairs} for name, scores in every.items()}

    def is_learned(self, results: Results, variants: Names) -> bool:
        """Return whether the best of the variants is clearly above the baselines."""
        shared = self.read_shared(results, variants)
        means = [mean(average(list(scores.values()))) for scores in shared.values()]
        if results.info(self.task).lower:
            return min(means) < 1 - MARGIN
        level = results.best_baseline(self.task, self.scenario, next(iter(shared.values())))
        return max(means) > level + MARGIN


Measures = Sequence[Measure]


def average_measures(
    results: Results, variants: Names, measures: Measures
) -> dict[str, tuple[SeedScores, list[PairScores]]]:
    """Return each variant's mean over measures by seed, and the scores behind it."""
    read = [measure.read_shared(results, variants) for measure in measures]
    behind = {variant: [scores[variant] for scores in read] for variant in variants}
    return {
        v: (average([average([*s.values()]) for s in some]), some) for v, some in behind.items()
    }


@dataclass(frozen=True)
class Contrast:
    """How much better the first variant is than the second."""

    first: str
    second: str
    value: float
    p_value: float | None  # None where nothing could be tested
    basis: str  # name of the test
    agrees: bool = True  # whether what was tested has the sign of the value
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
        if self.p_value is None or not self.agrees or sign * self.value <= EQUAL:
            return 1.0
        return self.p_value

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
    results: Results, first: str, second: str, measures: Measures, among: Names = ()
) -> Contrast:
    """Compare two variants on a mean of measures, over the pairs that these and `among` have."""
    key = (first, second, tuple(measures), tuple(among))
    return results.remember(("contrast", *key), lambda: _contrast(results, *key))


def _contrast(
    results: Results, first: str, second: str, measures: Measures, among: Names
) -> Contrast:
    names = list(dict.fromkeys([first, second, *among]))
    means = average_measures(results, names, measures)
    (one, by_measure), (two, others) = means[first], means[second]
    sign = -1.0 if results.info(measures[0].task).lower else 1.0
    value = sign * (mean(one) - mean(two))
    tested = _read_tests(results, first, second, measures, by_measure) if results.tested else None
    if measures[0].scenario == "features":
        if tested is not None and len(measures) == 1:
            agrees = sign * tested[0].value * value > 0
            return Contrast(first, second, value, tested[0].p_value, SENTENCES, agrees)
        by_pair = [
            sign * (mean(scores[pair]) - mean(base[pair]))
            for scores, base in zip(by_measure, others, strict=True)
            for pair in scores
        ]
        return contrast_values(results, first, second, value, [], by_pair)
    seeds = [list(one.values()), list(two.values())]
    if not tested or min(map(len, seeds)) < FEWEST_SEEDS:
        return contrast_values(results, first, second, value, seeds, [])
    agrees = sign * sum(difference.value for difference in tested) * value > 0
    variance = sum(d.variance for d in tested) / len(tested) ** 2
    p_value, half = find_p_value(value, seeds, variance), find_half_width(seeds, variance)
    return Contrast(first, second, value, p_value, BOTH, agrees, half)


def contrast_strata(results: Results, first: str, second: str) -> tuple[Contrast, list[int]]:
    """Compare two variants on the average of the seven tasks, and count their pretrainings.

    Finetunings of different tasks are independent, so each stratum has its own variance over seeds.
    Pretrainings that differ in their seed alone are averaged, and their averages are one more
    sample of the variant. The variance over examples is that of the two variants named.
    """
    measures = {
        task: Measure(task, metrics=results.info(task).metrics) for some in _STRATA for task in some
    }
    sides = [
        [variant, *(again for again in results.list_repetitions(variant)
                    if all(results.scores(task, again) for task in measures))]
        for variant in (first, second)
    ]  # fmt: skip
    names = [name for side in sides for name in side]
    read = {task: measure.read_shared(results, names) for task, measure in measures.items()}

    def list_seeds(variant: str, tasks: Names) -> list[float]:
        return [*average([average([*read[task][variant].values()]) for task in tasks]).values()]

    weights = [len(tasks) / len(measures) for tasks in _STRATA]
    by_side = [[[list_seeds(v, tasks) for tasks in _STRATA] for v in side] for side in sides]
    ours, theirs = ([list(many) for many in zip(*side, strict=True)] for side in by_side)
    value, samples = weigh_strata(list(zip(weights, ours, theirs, strict=True)))
    counts = [len(side) for side in sides]
    if not results.tested:
        return Contrast(first, second, value, 0.0, NUMBERS_ALONE), counts
    if min(map(len, samples)) < FEWEST_SEEDS:
        return Contrast(first, second, value, None, ONE_SEED), counts
    for side in by_side:
        if len(side) > 1:
            samples.append([
                sum(w * statistics.fmean(seeds) for w, seeds in zip(weights, strata, strict=True))
                for strata in side
            ])  # fmt: skip
    shown = [read[task][first] for task in measures]
    tested = _read_tests(results, first, second, [*measures.values()], shown)
    variance = sum(d.variance for d in tested) / len(tested) ** 2 if tested else 0.0
    p_value, half = find_p_value(value, samples, variance), find_half_width(samples, variance)
    basis = BOTH if tested else "over seeds"
    return Contrast(first, second, value, p_value, basis, half_width=half), counts


def contrast_languages(results: Results, first: str, second: str, measures: Measures) -> Contrast:
    """Compare two variants on features over the languages, each a mean over the measures."""
    sides: list[list[PairScores]] = [[], []]
    for measure in measures:
        shared = measure.read_shared(results, [first, second])
        for side, variant in zip(sides, (first, second), strict=True):
            side.append(shared[variant])
    pairs = share_pairs(sides[0])
    ours, theirs = (
        [statistics.fmean(mean(scores[pair]) for scores in side) for pair in pairs]
        for side in sides
    )
    sign = -1.0 if results.info(measures[0].task).lower else 1.0
    gains = [sign * (a - b) for a, b in zip(ours, theirs, strict=True)]
    return contrast_values(results, first, second, statistics.fmean(gains), [], gains)


def contrast_values(
    results: Results, first: str, second: str, value: float, seeds: Samples, gains: Sequence[float]
) -> Contrast:
    """Test a difference over seeds, or over languages where there are no seeds.

    `seeds` are the samples whose means make it up: those of both variants, or of one difference,
    and empty for features; `gains` are differences by language.
    """
    if not results.tested:
        return Contrast(first, second, value, 0.0, NUMBERS_ALONE)
    if seeds:
        if (fewest := min(map(len, seeds))) < FEWEST_SEEDS:
            return Contrast(first, second, value, None, ONE_SEED)
        p_value, half = find_p_value(value, seeds), find_half_width(seeds)
        return Contrast(first, second, value, p_value, f"over {fewest} seeds", half_width=half)
    better, worse = sum(g > EQUAL for g in gains), sum(g < -EQUAL for g in gains)
    if better + worse >= _FEWEST_SIGNS:
        agrees = (better - worse) * value > 0
        basis = f"sign test, {better} of {len(gains)} sets better"
        return Contrast(first, second, value, sign_test(better, worse), basis, agrees)
    if len(gains) >= _FEWEST_VALUES:
        basis = f"Student's t over {len(gains)} languages"
        return Contrast(first, second, value, find_p_value(value, [gains]), basis)
    return Contrast(first, second, value, None, UNTESTED)


def _read_tests(
    results: Results, first: str, second: str, measures: Measures, scores: Sequence[PairScores]
) -> list[Difference] | None:
    """Return the tested difference of each measure; None unless every one was tested.

    The examples of some languages of a task may be translations of each other, so that errors
    correlate: the width of a mean is at most the mean of the widths, which is used.
    """
    differences: list[Difference] = []
    for of, pairs in zip(measures, scores, strict=True):
        tested = find_comparison(
            results.comparisons, of.task, (first, second), of.scenario, of.layer
        )
        if tested is None or not pairs.keys() <= set(tested[0].units):
            return None
        if len(pairs) == len(tested[0].units):
            differences.append(tested[1].mean)
        elif of.scenario == "features":  # only means are tested
            return None
        else:
            by_pair = dict(zip(tested[0].units, tested[1].by_language, strict=True))
            value, low, high = (
                statistics.fmean(getattr(by_pair[pair], name) for pair in pairs)
                for name in ("value", "low", "high")
            )
            differences.append(Difference(value, low, high, 1.0))
    return differences


def decide_all(contrasts: Sequence[Contrast]) -> Outcome:
    """Decide a claim that needs every contrast: each must be supported by itself."""
    if all(one.direction > 0 for one in contrasts):
        return HOLDS
    return FAILS if any(one.direction < 0 for one in contrasts) else UNDECIDED


def list_numbers(contrasts: Sequence[Contrast]) -> Numbers:
    """Return the labels and differences of contrasts."""
    return [(one.label, one.describe()) for one in contrasts]


_VERBS = ("is better than", "is worse than")


def explain(contrasts: Sequence[Contrast], caveats: str = "", verbs: Names = _VERBS) -> str:
    """Write which differences are supported, by which test."""
    parts = []
    for one in contrasts:
        words = ("does not differ clearly from", *verbs)[one.direction]
        if one.p_value is None:
            words = f"is {abs(100 * one.value):.1f} points {'above' if one.value > 0 else 'below'}"
        parts.append(f"{display_name(one.first)} {words} {display_name(one.second)}")
    return f"{', '.join(parts)}: {name_basis(contrasts)}. {caveats}".strip()


def name_basis(contrasts: Sequence[Contrast]) -> str:
    """Name the tests behind several contrasts, each once."""
    names = dict.fromkeys(one.basis for one in contrasts)
    if len(names) > 2:
        names = dict.fromkeys(name.split(",")[0] for name in names)
    return NUMBERS_ALONE if NUMBERS_ALONE in names else "; ".join(names)


def try_contrast(
    results: Results, first: str, second: str, measures: Measures, among: Names = ()
) -> Contrast | None:
    """Compare two variants as `contrast` does; None where scores are missing."""
    try:
        return contrast(results, first, second, measures, among)
    except MissingScoresError:
        return None


def require_variants(results: Results, variants: Names) -> None:
    """Reject variants without scores, and those trained for different numbers of steps."""
    if missing := [name for name in variants if name not in results.final_steps]:
        raise MissingScoresError(f"No scores of {join_names(missing)}")
    steps = {name: results.final_steps[name] for name in variants}
    if len({step for step in steps.values() if step is not None}) > 1:
        shown = ", ".join(f"{display_name(name)} {step}" for name, step in steps.items())
        raise MissingScoresError(f"Different numbers of steps: {shown}")
