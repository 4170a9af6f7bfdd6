"""Scores along pretraining: the transfer gap, and where a curve starts to rise (section 5.1).

A learning curve has three quantities by step and seed: the score in the source language, the mean
score in the other languages, and the transfer gap, which is the first less the second. The paper
sees XLM's English leave its plateau after 14K steps and the other languages after 20K: a lag. This
is how a rise is found in a noisy curve:

1. The curve is the mean over seeds, without single outliers (median of three neighbors).
2. Its noise is the larger of the deviation between seeds on the plateau and the distance of points
   from the line between their neighbors.
3. The plateau is all points before the rise, its level their median. A curve has risen where it
   stays above level + max(3 noise, 10 % of the total rise).
4. The onset is where the line between the last point of the plateau and the next one crosses that
   threshold. Its resolution is the distance of these two checkpoints.

A plateau needs three checkpoints, and a slope below half of that of the climb after it. Otherwise
the curve rises from its start. Seeds are those of finetuning: a lag is one observation of one
pretraining.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from metaxlm.analysis.results import SOURCE, Results
from metaxlm.analysis.stats import SeedScores, average, deviation, mean, subtract

Quantity = Literal["source", "others", "gap"]
Curve = dict[int, SeedScores]
"""Values by step (ascending) and seed."""
Curves = Mapping[Quantity, Curve]

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
    """Last checkpoint of the plateau; None where there is no plateau."""
    high: int
    """First checkpoint that has risen for good."""

    @property
    def resolution(self) -> int:
        """Distance of the two checkpoints around it."""
        return self.high - (self.low or 0)


@dataclass(frozen=True)
class Lag:
    """How many steps after the source language the other languages start to rise."""

    steps: float
    resolution: int
    """Smaller lags cannot be seen: the distance of checkpoints around the onsets."""
    by_seed: tuple[float, ...]
    """Of the seeds in which both curves rise after a plateau."""
    num_seeds: int
    source: Onset
    others: Onset

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the most it can be, by the checkpoints around the onsets."""
        assert self.source.low is not None and self.others.low is not None
        return self.others.low - self.source.high, self.others.high - self.source.low

    @property
    def num_agreeing(self) -> int:
        """Seeds whose own lag has the same sign; one without an onset of its own has none."""
        return sum(value * self.steps > 0 for value in self.by_seed)

    @property
    def is_resolved(self) -> bool:
        """Whether it is a lag (or a lead) beyond the resolution, in all seeds."""
        return abs(self.steps) >= self.resolution and self.num_agreeing == self.num_seeds


def trace_curves(
    results: Results, task: str, variant: str, metric: str | None = None, source: str = SOURCE
) -> dict[Quantity, Curve]:
    """Return the curves of a variant, finetuned in the source language at each saved checkpoint.

    Steps at which a language is missing are left out.
    """
    found = {
        step: {pair[1]: series for pair, series in scores.items() if pair[0] == source}
        for step, scores in results.learning_curve(task, variant, metric).items()
    }
    languages = {language for scores in found.values() for language in scores}
    curves: dict[Quantity, Curve] = {"source": {}, "others": {}, "gap": {}}
    if source not in languages or len(languages) < 2:
        return curves
    others = [code for code in sorted(languages) if code != source]
    for step in sorted(step for step in found if found[step].keys() == languages):
        curves["source"][step] = found[step][source]
        curves["others"][step] = average([found[step][code] for code in others])
        curves["gap"][step] = subtract(curves["source"][step], curves["others"][step])
    return curves


def find_onset(curve: Curve, seed: int | None = None) -> Onset | None:
    """Return where the mean over seeds, or one seed, starts to rise; None if it never does."""
    steps = sorted(curve)
    values = [mean(curve[step]) if seed is None else curve[step][seed] for step in steps]
    errors = [deviation(list(curve[step].values())) or 0.0 for step in steps]
    if seed is None:
        errors = [e / math.sqrt(len(curve[s])) for e, s in zip(errors, steps, strict=True)]
    roughness = _measure_roughness(steps, values)
    return detect_rise(steps, values, [max(roughness, error) for error in errors])


def detect_rise(
    steps: Sequence[int], values: Sequence[float], noises: Sequence[float]
) -> Onset | None:
    """Find the onset of a curve, as the module describes; at least three points are needed."""
    if len(steps) < 3:
        return None
    inner = [statistics.median(values[k - 1 : k + 2]) for k in range(1, len(values) - 1)]
    smooth = [values[0], *inner, values[-1]]
    end = statistics.median(smooth[-3:]) if len(smooth) > 5 else smooth[-1]
    level, place = smooth[0], 0
    for _ in range(_MAX_ROUNDS):
        noise = math.sqrt(statistics.fmean(one**2 for one in noises[: max(2, place)]))
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


def find_lag(curves: Curves) -> Lag | None:
    """Return the lag of the others behind the source; None unless both rise after a plateau."""
    source, others = (find_onset(curves[name]) for name in ("source", "others"))
    if source is None or others is None or source.step is None or others.step is None:
        return None
    sets = [set(scores) for name in ("source", "others") for scores in curves[name].values()]
    seeds = sorted(set.intersection(*sets))
    lags = []
    for seed in seeds:
        one, two = (find_onset(curves[name], seed) for name in ("source", "others"))
        if one and two and one.step is not None and two.step is not None:
            lags.append(two.step - one.step)
    resolution = max(source.resolution, others.resolution)
    return Lag(others.step - source.step, resolution, tuple(lags), len(seeds), source, others)


def describe_onset(onset: Onset | None) -> str:
    """Write where a curve starts to rise."""
    if onset is None:
        return "never"
    if onset.step is None:
        return f"from the start, clearly by step {onset.high:,}"
    return f"between steps {onset.low:,} and {onset.high:,}"


def _is_straight(steps: Sequence[int], values: Sequence[float], place: int, halfway: float) -> bool:
    """Say whether the points before `place` climb at half the speed of those after, or more."""
    slope = statistics.linear_regression(steps[:place], values[:place]).slope
    last = place - 1
    half = next(k for k in range(place, len(values)) if values[k] >= halfway)
    climb = (values[half] - values[last]) / (steps[half] - steps[last])
    return slope >= PLATEAU_SLOPE * climb


def _measure_roughness(steps: Sequence[int], values: Sequence[float]) -> float:
    """Estimate noise from distances to the line between both neighbors; robust to a few kinks."""
    distances = []
    for k in range(1, len(steps) - 1):
        weight = (steps[k] - steps[k - 1]) / (steps[k + 1] - steps[k - 1])
        line = (1 - weight) * values[k - 1] + weight * values[k + 1]
        distances.append(abs(values[k] - line) / math.sqrt(1 + weight**2 + (1 - weight) ** 2))
    return _MAD_TO_DEVIATION * statistics.median(distances) if distances else 0.0
