"""What a difference is worth: intervals over seeds, and paired tests over the same examples.

Comes in: scores by seed, or tallies by example (`Task.tally`, summed over seeds) of several models.
Goes out: mean, deviation and 95 % t-interval; for each pair of models the difference of a score, a
95 % bootstrap interval and the p-value of an approximate-randomization test, by language and for
the mean over languages, which is what the paper's tables show. The tests hold the trained models
fixed and ask about other test examples; what other seeds would change, the t-interval tells.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from metaxlm.randomness import generator
from metaxlm.tasks.task import Tally

Floats = npt.NDArray[np.float64]
Score = Callable[[Tally], Floats]
"""Sums [..., counts] to scores [...]: one metric of `Task.summarize`."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
_CHUNK = 1 << 22
"""Weights of examples in memory at once."""
_TIE = 1e-12
"""Differences this close are equal: sums of fractions depend on their order."""


@dataclass(frozen=True)
class SeedSummary:
    """Scores of several seeds; one seed has no deviation and no interval."""

    mean: float
    deviation: float | None
    low: float | None
    high: float | None
    num_seeds: int


@dataclass(frozen=True)
class Difference:
    """A score of the first model less that of the second."""

    value: float
    low: float
    high: float
    """Ends of the bootstrap interval."""
    p_value: float
    """Two-sided, of the hypothesis that it does not matter which model an answer is from."""


@dataclass(frozen=True)
class PairComparison:
    """Two models on the same examples."""

    first: str
    second: str
    by_language: tuple[Difference, ...]
    """In the order of the tallies that came in."""
    mean: Difference
    """Of the mean over languages."""


def summarize_seeds(values: Sequence[float]) -> SeedSummary:
    """Return mean, sample deviation and the 95 % t-interval of the mean."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return SeedSummary(mean, None, None, None, len(values))
    deviation = statistics.stdev(values)
    half = find_t_quantile(CONFIDENCE, len(values) - 1) * deviation / math.sqrt(len(values))
    return SeedSummary(mean, deviation, mean - half, mean + half, len(values))


def find_t_quantile(confidence: float, freedom: int) -> float:
    """Return t such that |T| <= t with this probability, for Student's T."""
    low, high = 0.0, 1.0
    while _central_probability(high, freedom) < confidence:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if _central_probability(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _central_probability(t: float, freedom: int) -> float:
    """P(|T| <= t): a finite sum of powers of a cosine where the degrees of freedom are whole."""
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= square * (power + 1) / (power + 2)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def compare_pairs(
    tallies: Mapping[str, Sequence[Tally]],
    score: Score,
    seed: int = 0,
    resamples: int = RESAMPLES,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> list[PairComparison]:
    """Compare models, every two unless told; each brings one [examples, counts] a language.

    Languages with equally many examples share their draws: in XNLI, PAWS-X and XQuAD example k is
    the same one in every language, so that only whole rows of translations are exchangeable.
    Where they are no translations, this does no harm.
    """
    pairs = list(combinations(tallies, 2)) if pairs is None else pairs
    if not pairs:
        return []
    sizes = [len(tally) for tally in next(iter(tallies.values()))]
    for name, of_model in tallies.items():
        assert [len(tally) for tally in of_model] == sizes, f"{name}: other examples"
    sums = {name: [t.sum(axis=0) for t in of_model] for name, of_model in tallies.items()}
    observed = np.array(
        [
            [float(score(a) - score(b)) for a, b in zip(sums[one], sums[two], strict=True)]
            for one, two in pairs
        ]
    )
    swapped = np.empty((len(pairs), len(sizes), resamples))
    drawn = np.empty((len(pairs), len(sizes), resamples))
    for size in sorted(set(sizes)):
        places = [k for k, found in enumerate(sizes) if found == size]
        _swap(tallies, sums, pairs, places, score, swapped, generator(seed, "swap", size))
        _resample(tallies, pairs, places, score, drawn, generator(seed, "bootstrap", size))
    return [
        PairComparison(
            *pair,
            tuple(
                _judge(observed[k, place], swapped[k, place], drawn[k, place])
                for place in range(len(sizes))
            ),
            _judge(observed[k].mean(), swapped[k].mean(axis=0), drawn[k].mean(axis=0)),
        )
        for k, pair in enumerate(pairs)
    ]


def correct_holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values that hold together: Holm's step-down correction."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def _swap(
    tallies: Mapping[str, Sequence[Tally]],
    sums: Mapping[str, Sequence[Tally]],
    pairs: Sequence[tuple[str, str]],
    places: Sequence[int],
    score: Score,
    out: Floats,
    random: np.random.Generator,
) -> None:
    """Exchange both models' answers of each example with probability 1/2."""
    size = len(tallies[pairs[0][0]][places[0]])
    for rows in _chunks(out.shape[-1], size):
        bits = np.unpackbits(
            random.integers(0, 256, (len(rows), -(-size // 8)), dtype=np.uint8), axis=1, count=size
        )
        flips_RN = bits.astype(np.float64)
        for k, (one, two) in enumerate(pairs):
            for place in places:
                moved = flips_RN @ (tallies[two][place] - tallies[one][place])
                out[k, place, rows.start : rows.stop] = score(sums[one][place] + moved) - score(
                    sums[two][place] - moved
                )


def _resample(
    tallies: Mapping[str, Sequence[Tally]],
    pairs: Sequence[tuple[str, str]],
    places: Sequence[int],
    score: Score,
    out: Floats,
    random: np.random.Generator,
) -> None:
    """Draw examples with replacement, the same ones for all models."""
    size = len(tallies[pairs[0][0]][places[0]])
    for rows in _chunks(out.shape[-1], size):
        chosen = random.integers(0, size, (len(rows), size), dtype=np.int32)
        chosen += (np.arange(len(rows), dtype=np.int32) * size)[:, None]
        counts = np.bincount(chosen.ravel(), minlength=len(rows) * size)
        weights_RN = counts.reshape(len(rows), size).astype(np.float64)
        for place in places:
            scores = {
                name: score(weights_RN @ of_model[place]) for name, of_model in tallies.items()
            }
            for k, (one, two) in enumerate(pairs):
                out[k, place, rows.start : rows.stop] = scores[one] - scores[two]


def _chunks(resamples: int, size: int) -> Iterator[range]:
    """Yield ranges of resamples whose weights fit in memory together."""
    step = max(1, _CHUNK // max(1, size))
    for start in range(0, resamples, step):
        yield range(start, min(start + step, resamples))


def _judge(observed: float, swapped_R: Floats, drawn_R: Floats) -> Difference:
    """Make the interval of percentiles, and the p-value that counts what was observed too."""
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(drawn_R, [tail, 100 - tail])
    extreme = int((np.abs(swapped_R) >= abs(observed) - _TIE).sum())
    p_value = (1 + extreme) / (1 + len(swapped_R))
    return Difference(float(observed), float(low), float(high), p_value)
