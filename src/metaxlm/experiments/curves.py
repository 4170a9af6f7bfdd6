"""Scores along pretraining: curves, the transfer gap, and the lag of the other languages (5.1).

In come result rows of kept checkpoints, out come curves of three quantities by step and seed: the
score in the source language, the mean score in the other languages, and the transfer gap, which is
the first less the second. The paper sees XLM's English leave its plateau after 14K steps and the
other languages after 20K: a lag. Here is how a rise is found in a curve with noise:

1. The curve is the mean over seeds, with single outliers removed (median of three neighbors; a
   curve that only rises stays as it is).
2. Its noise is the larger of two: the deviation between seeds on the plateau (seeds differ more
   where scores are high), and how far points lie from the line between their neighbors (checkpoints
   differ by more than the seed of finetuning, and there may be one seed only).
3. The plateau is all points before the rise, its level their median. A curve has risen where it
   stays above level + max(3 noise, 10 % of the total rise), so that curves of equal shape and
   other height rise at the same step.
4. The onset is where the line between the last point of the plateau and the next one crosses that
   threshold. It is known no better than the distance of these two checkpoints.

A plateau needs three checkpoints, and a slope below half of that of the climb after it (up to half
of the rise). Else the curve rises from its start: two points may be level by chance, and the first
tenth of a straight climb is no plateau. Such a curve may have left one before its first checkpoint.

What a lag cannot tell: seeds of finetuning are no seeds of pretraining, so that it is one
observation of one pretraining, however small its noise; and a single seed of finetuning is one
observation even of that, for a finetuning may catch on or not.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from metaxlm.experiments.results import Row
from metaxlm.experiments.score_table import SOURCE, find_metric
from metaxlm.experiments.series import Series, average_series, find_mean, subtract_series
from metaxlm.experiments.statistics import SeedSummary, summarize_seeds

Quantity = Literal["source", "others", "gap"]
Curve = dict[int, Series]
"""Values by step (ascending) and seed."""

MIN_RISE = 0.02
"""A curve that ends less than this above its plateau has not risen."""
NOISE_FACTOR = 3.0
RISE_SHARE = 0.1
FEWEST_FLAT = 3
"""Checkpoints that make a plateau."""
PLATEAU_SLOPE = 0.5
"""A plateau's slope is below this share of the slope of the climb."""
_MAD_TO_DEVIATION = 1.4826
_MAX_ROUNDS = 20


@dataclass(frozen=True)
class Onset:
    """Where a curve starts to rise: after `low`, by `high`."""

    step: float | None
    """Interpolated; None where the curve rises from its start."""
    low: int | None
    """Last checkpoint of the plateau; None where no plateau was seen."""
    high: int
    """First checkpoint that has risen for good."""

    @property
    def resolution(self) -> int | None:
        """Distance of the two checkpoints between which it lies."""
        return None if self.low is None else self.high - self.low


@dataclass(frozen=True)
class Lag:
    """How many steps the other languages start to rise after the source language."""

    steps: float
    resolution: int
    """No smaller lag than this can be seen: the distance of checkpoints around the onsets."""
    by_seed: tuple[float, ...]
    """Of those seeds in which both curves rise after a plateau."""
    num_seeds: int
    source: Onset
    others: Onset

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the most it can be: between the checkpoints around the onsets."""
        assert self.source.low is not None and self.others.low is not None
        return self.others.low - self.source.high, self.others.high - self.source.low

    @property
    def is_resolved(self) -> bool:
        """Whether it is a lag (or a lead) beyond the resolution, with the same sign in all seeds.

        A seed that shows no onset of its own disagrees.
        """
        agree = sum(value * self.steps > 0 for value in self.by_seed)
        return abs(self.steps) >= self.resolution and agree == self.num_seeds


def trace_curves(
    rows: Sequence[Row],
    task: str,
    variant: str,
    *,
    metric: str | None = None,
    source: str = SOURCE,
) -> dict[Quantity, Curve]:
    """Return the curves of a variant: finetuned in the source language at each kept checkpoint.

    All points are of the same files: where a task has several splits, the one that is there at
    most steps counts. Languages that are missing at a step take their whole step out.
    """
    wanted = (metric or find_metric(task), "transfer", source, variant)
    found = [
        row
        for row in rows
        if row["task"] == task
        and row.get("step") is not None
        and (row["metric"], row["scenario"], row["source"], row["variant"]) == wanted
    ]
    splits = _choose_splits(found)
    values: dict[int, dict[str, Series]] = {}
    for row in found:
        if splits[row["language"]] == row["split"]:
            at_step = values.setdefault(int(row["step"]), {})
            at_step.setdefault(str(row["language"]), {})[int(row["seed"])] = float(row["value"])
    languages = {language for at_step in values.values() for language in at_step}
    curves: dict[Quantity, Curve] = {"source": {}, "others": {}, "gap": {}}
    if source not in languages or len(languages) < 2:
        return curves
    for step in sorted(values):
        if set(values[step]) == languages:
            others = average_series([values[step][code] for code in languages - {source}])
            curves["source"][step] = values[step][source]
            curves["others"][step] = others
            curves["gap"][step] = subtract_series(values[step][source], others)
    return curves


def find_gaps(
    rows: Sequence[Row],
    task: str,
    variant: str,
    *,
    metric: str | None = None,
    source: str = SOURCE,
) -> dict[int, SeedSummary]:
    """Return the transfer gap by step: taken within each seed, then summarized over seeds."""
    gaps = trace_curves(rows, task, variant, metric=metric, source=source)["gap"]
    return {step: summarize_seeds(list(series.values())) for step, series in gaps.items()}


def find_onset(curve: Mapping[int, Series]) -> Onset | None:
    """Return where the mean over seeds starts to rise; None if it never does or has few points."""
    steps = sorted(curve)
    values = [find_mean(curve[step]) for step in steps]
    errors = [_find_deviation(curve[step]) / math.sqrt(len(curve[step])) for step in steps]
    return detect_rise(steps, values, measure_noise(steps, values, errors))


def measure_noise(
    steps: Sequence[int], values: Sequence[float], errors: Sequence[float]
) -> list[float]:
    """Return a curve's noise at each step: the error over seeds, or the roughness if larger."""
    roughness = _measure_roughness(steps, values)
    return [max(roughness, error) for error in errors]


def detect_rise(
    steps: Sequence[int], values: Sequence[float], noises: Sequence[float]
) -> Onset | None:
    """Find the onset in a curve, see the head of this module; at least three points are needed."""
    if len(steps) < 3:
        return None
    smooth = _remove_outliers(values)
    end = statistics.median(smooth[-3:]) if len(smooth) > 5 else smooth[-1]
    level, place = smooth[0], 0
    for _ in range(_MAX_ROUNDS):
        noise = _join_noises(noises[: max(2, place)])
        rise = end - level
        if rise < max(MIN_RISE, NOISE_FACTOR * noise):
            return None
        threshold = level + max(NOISE_FACTOR * noise, RISE_SHARE * rise)
        below = [k for k, value in enumerate(smooth) if value <= threshold]
        before, place = place, below[-1] + 1 if below else 0
        if place == len(smooth):
            return None
        if place == before:
            break
        level = statistics.median(smooth[:place])
    if place < FEWEST_FLAT or _is_straight(steps, smooth, place, level + rise / 2):
        return Onset(None, None, steps[place])
    low, high = steps[place - 1], steps[place]
    share = (threshold - smooth[place - 1]) / (smooth[place] - smooth[place - 1])
    return Onset(low + share * (high - low), low, high)


def find_lag(curves: Mapping[Quantity, Mapping[int, Series]]) -> Lag | None:
    """Return the lag of the others behind the source; None unless both rise after a plateau."""
    onsets = [find_onset(curves[name]) for name in ("source", "others")]
    source, others = onsets
    if source is None or others is None or source.step is None or others.step is None:
        return None
    assert source.resolution is not None and others.resolution is not None
    return Lag(
        others.step - source.step,
        max(source.resolution, others.resolution),
        _list_seed_lags(curves),
        len(_share_seeds(curves)),
        source,
        others,
    )


def find_trend_p_value(values: Sequence[float]) -> float:
    """Return the two-sided p-value of Kendall's rank correlation with time (Mann and Kendall).

    Exact, for values without ties; ties count for neither side. It takes the points as
    independent but for the trend.
    """
    score = find_trend(values)
    counts = [1]
    for size in range(2, len(values) + 1):
        longer = [0] * (len(counts) + size - 1)
        for inversions, count in enumerate(counts):
            for more in range(size):
                longer[inversions + more] += count
        counts = longer
    most = len(counts) - 1
    extreme = sum(count for k, count in enumerate(counts) if abs(most - 2 * k) >= abs(score))
    return extreme / sum(counts)


def find_trend(values: Sequence[float]) -> int:
    """Return how many more pairs of points rise than fall."""
    return sum(
        (values[later] > value) - (values[later] < value)
        for place, value in enumerate(values)
        for later in range(place + 1, len(values))
    )


def _choose_splits(rows: Sequence[Row]) -> dict[str, str]:
    """Choose for each language the split that is there at most steps, the first of equals."""
    found = dict.fromkeys((row["language"], row["split"], row["step"]) for row in rows)
    counts = Counter((language, split) for language, split, _ in found)
    best: dict[str, str] = {}
    for language, split in counts:
        if language not in best or counts[language, split] > counts[language, best[language]]:
            best[language] = split
    return best


def _is_straight(steps: Sequence[int], values: Sequence[float], place: int, halfway: float) -> bool:
    """Say whether the points before `place` climb at half the speed of those after, or more."""
    slope = statistics.linear_regression(steps[:place], values[:place]).slope
    last = place - 1
    half = next(k for k in range(place, len(values)) if values[k] >= halfway)
    climb = (values[half] - values[last]) / (steps[half] - steps[last])
    return slope >= PLATEAU_SLOPE * climb


def _find_deviation(series: Series) -> float:
    return statistics.stdev(series.values()) if len(series) > 1 else 0.0


def _join_noises(noises: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(noise**2 for noise in noises))


def _remove_outliers(values: Sequence[float]) -> list[float]:
    inner = [statistics.median(values[k - 1 : k + 2]) for k in range(1, len(values) - 1)]
    return [values[0], *inner, values[-1]]


def _measure_roughness(steps: Sequence[int], values: Sequence[float]) -> float:
    """Estimate noise from distances to the line between both neighbors; robust to a few kinks."""
    distances = []
    for k in range(1, len(steps) - 1):
        weight = (steps[k] - steps[k - 1]) / (steps[k + 1] - steps[k - 1])
        line = (1 - weight) * values[k - 1] + weight * values[k + 1]
        distances.append(abs(values[k] - line) / math.sqrt(1 + weight**2 + (1 - weight) ** 2))
    return _MAD_TO_DEVIATION * statistics.median(distances) if distances else 0.0


def _list_seed_lags(curves: Mapping[Quantity, Mapping[int, Series]]) -> tuple[float, ...]:
    """Find the lag in each seed by itself, with the noise of a single seed."""
    seeds = _share_seeds(curves)
    lags = []
    for seed in seeds:
        onsets = []
        for name in ("source", "others"):
            curve = curves[name]
            steps = sorted(curve)
            values = [curve[step][seed] for step in steps]
            errors = [_find_deviation(curve[step]) for step in steps]
            onsets.append(detect_rise(steps, values, measure_noise(steps, values, errors)))
        source, others = onsets
        if source and others and source.step is not None and others.step is not None:
            lags.append(others.step - source.step)
    return tuple(lags)


def _share_seeds(curves: Mapping[Quantity, Mapping[int, Series]]) -> list[int]:
    """Return the seeds that are there at every step of both curves."""
    sets = [set(series) for name in ("source", "others") for series in curves[name].values()]
    return sorted(set.intersection(*sets)) if sets else []
