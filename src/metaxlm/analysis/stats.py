"""Statistics of scores: intervals over seeds, paired tests over the same examples, correction.

The paired tests take tallies by example (`Task.tally`, summed over seeds) of several models. They
return for each pair of models the difference of a score, a 95 % bootstrap interval and the p-value
of an approximate-randomization test, by language and for the mean over languages, which the paper's
tables show. Paired tests cover the variance of test sets with the trained models fixed; intervals
over seeds cover the variance of finetuning.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from metaxlm.errors import MetaXLMError
from metaxlm.files import find_packed, read_json
from metaxlm.randomness import generator

Floats = npt.NDArray[np.float64]
Score = Callable[[Floats], Floats]
"""Sums [..., counts] to scores [...]: one metric of `Task.summarize`."""
Tallies = Mapping[str, Sequence[Floats]]  # for each model, one [examples, counts] per language
SeedScores = dict[int, float]  # a value for each seed
Samples = Sequence[Sequence[float]]
ALPHA = 0.05  # differences with a smaller p-value are supported
CONFIDENCE = 0.95
RESAMPLES = 10_000
EQUAL = 1e-9  # scores this close are equal
COMPARISONS = "comparisons.json"
_CHUNK = 1 << 22  # weights of examples in memory at once
_TIE = 1e-12  # sums of fractions depend on their order
_INTERVAL_WIDTH = 2 * statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Width of a 95 % interval in standard errors."""
_MOST_FREEDOM = 60  # above it Student's t is nearly normal


def mean(series: SeedScores) -> float:
    """Return the mean over seeds."""
    return statistics.fmean(series.values())


def average(many: Sequence[SeedScores]) -> SeedScores:
    """Average several quantities within each seed, over the seeds that all of them have.

    Without a common seed (half-finished runs) their means are averaged into one value, as seed 0.
    Empty where one of them is empty.
    """
    if not many or not all(many):
        return {}
    shared = [seed for seed in many[0] if all(seed in series for series in many)]
    if not shared:
        return {0: statistics.fmean(map(mean, many))}
    return {seed: statistics.fmean(series[seed] for series in many) for seed in shared}


def subtract(left: SeedScores, right: SeedScores) -> SeedScores:
    """Subtract seed by seed, over the seeds both have; without a common one, the means."""
    if not left or not right:
        return {}
    shared = {seed: left[seed] - right[seed] for seed in left if seed in right}
    return shared or {0: mean(left) - mean(right)}


def deviation(values: Sequence[float]) -> float | None:
    """Return the sample deviation; None for one value."""
    return statistics.stdev(values) if len(values) > 1 else None


def find_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % t-interval of the mean; None for one value."""
    if len(values) < 2:
        return None
    center, half = statistics.fmean(values), find_half_width([values])
    return center - half, center + half


def find_p_value(value: float, samples: Samples, known_variance: float = 0.0) -> float:
    """Return the two-sided p-value that a sum or difference of means of samples is 0 (Welch).

    `known_variance` of the value adds to the variances of the means.
    """
    from scipy import special  # scipy.stats takes most of a second to load

    total, freedom = _add_errors(samples, known_variance)
    if total <= EQUAL**2:
        return 0.0 if abs(value) > EQUAL else 1.0
    return float(2 * special.stdtr(freedom, -abs(value) / math.sqrt(total)))


def weigh_strata(
    strata: Sequence[tuple[float, Samples, Samples]],
) -> tuple[float, list[list[float]]]:
    """Return a weighted sum of differences, and the samples whose means make it up.

    Each stratum has a weight and the samples of two variants, such as the seeds of finetuning on
    one task, one sample for each pretraining. Errors of different samples are independent: their
    variances add, and so do degrees of freedom, of which a mean over tasks within each seed would
    keep only those of a few seeds.
    """
    value, samples = 0.0, []
    for weight, *sides in strata:
        for sign, side in zip((weight, -weight), sides, strict=True):
            value += sign * statistics.fmean(map(statistics.fmean, side))
            samples += [[sign / len(side) * score for score in sample] for sample in side]
    return value, samples


def find_half_width(samples: Samples, known_variance: float = 0.0) -> float:
    """Return half of the 95 % interval of a sum or difference of means, as it is tested."""
    from scipy import special

    total, freedom = _add_errors(samples, known_variance)
    return float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(total)


def _add_errors(samples: Samples, known_variance: float) -> tuple[float, int]:
    """Return the variance of a sum of means, and its degrees of freedom (Welch-Satterthwaite).

    The degrees of freedom are rounded down, which is the cautious side.
    """
    errors = [(statistics.variance(sample) / len(sample), len(sample) - 1) for sample in samples]
    total = known_variance + sum(error for error, _ in errors)
    uncertainty = sum(error**2 / freedom for error, freedom in errors)
    if uncertainty * _MOST_FREEDOM <= total**2:
        return total, _MOST_FREEDOM
    return total, max(1, int(total**2 / uncertainty + 1e-9))


def sign_test(better: int, worse: int) -> float:
    """Return the two-sided p-value of a split, were both sides equally likely."""
    from scipy import special

    total = better + worse
    return min(1.0, 2 * float(special.bdtr(min(better, worse), total, 0.5))) if total else 1.0


def share_test(hits: int, total: int, share: float) -> float:
    """Return the probability of at least this many hits, were each as likely as the share."""
    from scipy import special

    return float(special.bdtrc(hits - 1, total, share))


def trend_test(values: Sequence[float]) -> tuple[float, float]:
    """Return Kendall's rank correlation with time and its p-value (Mann and Kendall)."""
    from scipy import stats

    if len(set(values)) < 2:
        return 0.0, 1.0
    tau, p_value = stats.kendalltau(range(len(values)), values)
    return float(tau), float(p_value)


def correct_holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values that hold together: Holm's step-down correction."""
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    raised = np.minimum(1.0, factors * np.asarray(p_values, dtype=np.float64)[order])
    corrected = np.empty(len(p_values))
    corrected[order] = np.maximum.accumulate(raised)
    return [float(value) for value in corrected]


def join_p_values(p_values: Sequence[float], at_least: int) -> float:
    """Return the p-value that fewer than `at_least` of these are real (a partial conjunction).

    With `at_least=1` this is Bonferroni's correction of the smallest one.
    """
    if at_least <= 0:
        return 0.0
    if at_least > len(p_values):
        return 1.0
    return min(1.0, (len(p_values) - at_least + 1) * sorted(p_values)[at_least - 1])


@dataclass(frozen=True)
class Difference:
    """A score of the first model less that of the second."""

    value: float
    low: float  # ends of the bootstrap interval: this and the next
    high: float
    p_value: float
    """Two-sided, of the hypothesis that it does not matter which model an answer is from."""

    @property
    def variance(self) -> float:
        """The variance over examples that the interval implies."""
        return ((self.high - self.low) / _INTERVAL_WIDTH) ** 2

    def turn(self) -> Self:
        """Exchange the two models."""
        return type(self)(-self.value, -self.high, -self.low, self.p_value)


@dataclass(frozen=True)
class PairComparison:
    """Two models on the same examples."""

    first: str
    second: str
    by_language: tuple[Difference, ...]  # in the order of the tallies
    mean: Difference  # of the mean over languages

    def turn(self) -> Self:
        """Exchange the two models."""
        turned = tuple(difference.turn() for difference in self.by_language)
        return type(self)(self.second, self.first, turned, self.mean.turn())


@dataclass(frozen=True)
class TaskComparison:
    """Pairs of models on one task, those that share the same files and seeds."""

    task: str
    scenario: str
    metric: str
    units: tuple[tuple[str, str], ...]  # training and test language of each file
    num_examples: tuple[int, ...]
    num_seeds: int
    pairs: tuple[PairComparison, ...]
    """P-values by language are corrected over the languages; that of the mean is not."""
    layer: int | None = None  # of a task without finetuning, of which only the means are compared


def read_comparisons(path: Path) -> list[TaskComparison]:
    """Return the tests that a run has kept; none where there is no file."""
    path = find_packed(path)
    if not path.is_file():
        return []
    try:
        return [restore_comparison(values) for values in read_json(path).values()]
    except (AttributeError, ValueError) as error:
        raise MetaXLMError(
            f"{path}: not a file of comparisons ({error!r}); delete it and run the evaluation again"
        ) from error


_ADAPTER = TypeAdapter(TaskComparison)


def restore_comparison(values: Mapping[str, Any]) -> TaskComparison:
    """Make a comparison from the dictionary that `asdict` gives."""
    try:
        return _ADAPTER.validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def find_comparison(
    many: Sequence[TaskComparison], task: str, models: tuple[str, str], scenario: str,
    layer: int | None = None,
) -> tuple[TaskComparison, PairComparison] | None:  # fmt: skip
    """Return the test between two models, the first one first; None where there is none."""
    for comparison in many:
        if (comparison.task, comparison.scenario, comparison.layer) == (task, scenario, layer):
            for pair in comparison.pairs:
                if (pair.first, pair.second) == models:
                    return comparison, pair
                if (pair.second, pair.first) == models:
                    return comparison, pair.turn()
    return None


def compare_pairs(
    tallies: Tallies, score: Score, seed: int = 0, resamples: int = RESAMPLES,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> list[PairComparison]:  # fmt: skip
    """Compare models, by default every two.

    The randomization test exchanges both models' answers of each example with probability 1/2; the
    bootstrap draws examples with replacement, the same ones for all models. Languages with equally
    many examples share their draws: in XNLI, PAWS-X and XQuAD example k is the same one in every
    language, so that only whole rows of translations are exchangeable.
    """
    pairs = list(combinations(tallies, 2)) if pairs is None else pairs
    if not pairs:
        return []
    sizes = [len(tally) for tally in next(iter(tallies.values()))]
    for name, of_model in tallies.items():
        assert [len(tally) for tally in of_model] == sizes, f"{name}: other examples"
    sums = {name: [t.sum(axis=0) for t in of_model] for name, of_model in tallies.items()}
    both = [zip(sums[one], sums[two], strict=True) for one, two in pairs]
    observed = np.array([[float(score(a) - score(b)) for a, b in sides] for sides in both])
    swapped = np.empty((len(pairs), len(sizes), resamples))
    drawn = np.empty((len(pairs), len(sizes), resamples))
    for size in sorted(set(sizes)):
        places = [k for k, length in enumerate(sizes) if length == size]
        swap, draw = generator(seed, "swap", size), generator(seed, "bootstrap", size)
        step = max(1, _CHUNK // max(1, size))
        for start in range(0, resamples, step):
            rows = slice(start, min(start + step, resamples))
            flips_RN = _draw_flips(swap, rows.stop - start, size)
            weights_RN = _draw_weights(draw, rows.stop - start, size)
            for place in places:
                scores = {name: score(weights_RN @ tally[place]) for name, tally in tallies.items()}
                for k, (one, two) in enumerate(pairs):
                    drawn[k, place, rows] = scores[one] - scores[two]
                    moved = flips_RN @ (tallies[two][place] - tallies[one][place])
                    first, second = sums[one][place] + moved, sums[two][place] - moved
                    swapped[k, place, rows] = score(first) - score(second)
    return [
        PairComparison(
            *pair,
            tuple(map(_test, observed[k], swapped[k], drawn[k])),
            _test(observed[k].mean(), swapped[k].mean(axis=0), drawn[k].mean(axis=0)),
        )
        for k, pair in enumerate(pairs)
    ]


def _draw_flips(random: np.random.Generator, num_rows: int, size: int) -> Floats:
    """Return 0 or 1 for each resample and example."""
    packed = random.integers(0, 256, (num_rows, -(-size // 8)), dtype=np.uint8)
    return np.unpackbits(packed, axis=1, count=size).astype(np.float64)


def _draw_weights(random: np.random.Generator, num_rows: int, size: int) -> Floats:
    """Return how often each resample has each example."""
    chosen = random.integers(0, size, (num_rows, size), dtype=np.int32)
    chosen += (np.arange(num_rows, dtype=np.int32) * size)[:, None]
    counts = np.bincount(chosen.ravel(), minlength=num_rows * size)
    return counts.reshape(num_rows, size).astype(np.float64)


def _test(observed: float, swapped_R: Floats, drawn_R: Floats) -> Difference:
    """Return the interval of percentiles, and the p-value that counts the observed value too."""
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(drawn_R, [tail, 100 - tail])
    extreme = int((np.abs(swapped_R) >= abs(observed) - _TIE).sum())
    p_value = (1 + extreme) / (1 + len(swapped_R))
    return Difference(float(observed), float(low), float(high), p_value)
