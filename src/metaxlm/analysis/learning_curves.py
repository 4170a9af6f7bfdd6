"""Scores along pretraining: the transfer gap, and where a curve starts to rise (section 5.1).

A learning curve has three quantities by step and seed: the score in the source language, the mean
score in the other languages, and the transfer gap, which is the first less the second. The paper
sees XLM's English leave its plateau after 14K steps and the other languages after 20K: a lag. The
rise of a noisy curve is found in four steps:

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

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from metaxlm.analysis.contrast import (
    FEWEST_SEEDS,
)
from metaxlm.analysis.results import SOURCE, display_name
from metaxlm.analysis.scores import Results
from metaxlm.analysis.stats import SeedScores, average, deviation, mean, subtract
from metaxlm.analysis.tables import Column, Group, Line, Table, mark_best, seed_cell

Quantity = Literal["source", "others", "gap"]
Curve = dict[int, SeedScores]  # values by step (ascending) and seed
Curves = Mapping[Quantity, Curve]

CURVE_TASK = "mlqa"  # the task of the paper's figure 5
PANELS: dict[Quantity, str] = {
    "others": "(a) other languages", "source": "(b) English", "gap": "(c) transfer gap"
}  # fmt: skip
_CURVE_LANGUAGES = {"source": "en", "others": "all but en", "gap": "en less all but en"}
MIN_RISE = 0.02  # a curve that ends less than this above its plateau has not risen
NOISE_FACTOR = 3.0
RISE_SHARE = 0.1
FEWEST_FLAT = 3  # checkpoints that make a plateau
PLATEAU_SLOPE = 0.5  # a plateau's slope is below this share of the slope of the climb
_MAD_TO_DEVIATION = 1.4826
_MAX_ROUNDS = 20


@dataclass(frozen=True)
class Onset:
    """Where a curve starts to rise: after `low`, by `high`."""

    step: float | None  # interpolated; None where the curve rises from its start
    low: int | None  # last checkpoint of the plateau; None where there is no plateau
    high: int  # first checkpoint that has risen for good

    @property
    def resolution(self) -> int:
        """Distance of the two checkpoints around it."""
        return self.high - (self.low or 0)

    def __str__(self) -> str:
        if self.step is None:
            return f"from the start, clearly by step {self.high:,}"
        return f"between steps {self.low:,} and {self.high:,}"


@dataclass(frozen=True)
class Lag:
    """How many steps after the source language the other languages start to rise."""

    steps: float
    resolution: int  # smaller lags cannot be seen: the distance of checkpoints around the onsets
    by_seed: tuple[float, ...]  # of the seeds in which both curves rise after a plateau
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


def trace_curves(results: Results, task: str, variant: str) -> dict[Quantity, Curve]:
    """Return the curves of a variant, finetuned in English at each saved checkpoint.

    Steps at which a language is missing are left out.
    """
    by_step = {
        step: {pair[1]: series for pair, series in scores.items() if pair[0] == SOURCE}
        for step, scores in sorted(results.learning_curve(task, variant).items())
    }
    languages = {language for scores in by_step.values() for language in scores}
    others = sorted(languages - {SOURCE})
    curves: dict[Quantity, Curve] = {"source": {}, "others": {}, "gap": {}}
    for step, scores in by_step.items():
        if others and SOURCE in languages and scores.keys() == languages:
            curves["source"][step] = scores[SOURCE]
            curves["others"][step] = average([scores[code] for code in others])
            curves["gap"][step] = subtract(curves["source"][step], curves["others"][step])
    return curves


def find_onset(curve: Curve, seed: int | None = None) -> Onset | None:
    """Return where the mean over seeds, or one seed, starts to rise; None if it never does."""
    steps = sorted(curve)
    values = [mean(curve[step]) if seed is None else curve[step][seed] for step in steps]
    errors = [deviation(list(curve[step].values())) or 0.0 for step in steps]
    if seed is None:
        errors = [e / math.sqrt(len(curve[s])) for e, s in zip(errors, steps, strict=True)]
    roughness = measure_roughness(steps, values)
    return detect_rise(steps, values, [max(roughness, error) for error in errors])


Floats = Sequence[float]


def detect_rise(steps: Sequence[int], values: Floats, noises: Floats) -> Onset | None:
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
    pair = curves["source"], curves["others"]
    source, others = map(find_onset, pair)
    if source is None or others is None or source.step is None or others.step is None:
        return None
    seeds = sorted(set.intersection(*(set(s) for curve in pair for s in curve.values())))
    lags = []
    for seed in seeds:
        one, two = (find_onset(curve, seed) for curve in pair)
        if one and two and one.step is not None and two.step is not None:
            lags.append(two.step - one.step)
    resolution = max(source.resolution, others.resolution)
    return Lag(others.step - source.step, resolution, tuple(lags), len(seeds), source, others)


def _is_straight(steps: Sequence[int], values: Floats, place: int, halfway: float) -> bool:
    """Return whether the points before `place` climb at half the speed of those after, or more."""
    slope = statistics.linear_regression(steps[:place], values[:place]).slope
    half = next(k for k in range(place, len(values)) if values[k] >= halfway)
    climb = (values[half] - values[place - 1]) / (steps[half] - steps[place - 1])
    return slope >= PLATEAU_SLOPE * climb


def measure_roughness(steps: Sequence[int], values: Floats) -> float:
    """Estimate noise from distances to the line between both neighbors; robust to a few kinks."""
    distances = []
    for k in range(1, len(steps) - 1):
        weight = (steps[k] - steps[k - 1]) / (steps[k + 1] - steps[k - 1])
        line = (1 - weight) * values[k - 1] + weight * values[k + 1]
        distances.append(abs(values[k] - line) / math.sqrt(1 + weight**2 + (1 - weight) ** 2))
    return _MAD_TO_DEVIATION * statistics.median(distances) if distances else 0.0


def format_steps(step: float) -> str:
    """Write a number of steps as short as the paper does."""
    return f"{step / 1000:g}K" if step >= 1000 else f"{step:g}"


def find_curves(results: Results) -> dict[str, Curves]:
    """Return the curves of every variant that was measured at two steps or more."""
    every = {variant: trace_curves(results, CURVE_TASK, variant) for variant in results.variants}
    return {variant: curves for variant, curves in every.items() if len(curves["gap"]) > 1}


def describe_curves(curves: Mapping[str, Curves]) -> str:
    """Write where the curves of every variant start to rise, and how well a lag is known."""
    sentences = []
    for variant, of in curves.items():
        onsets = (find_onset(of["source"]), find_onset(of["others"]))
        source, others = (f"rise {one}" if one else "no rise" for one in onsets)
        sentences.append(f"{display_name(variant)}, English: {source}; other languages: {others}.")
        if (lag := find_lag(of)) is not None:
            sentences.append(_describe_lag(lag))
    return " ".join(sentences)


def _describe_lag(lag: Lag) -> str:
    if abs(lag.steps) < lag.resolution:
        return f"They rise together, within {lag.resolution:,} steps."
    low, high = sorted(map(abs, lag.bounds))
    order = "after" if lag.steps > 0 else "before"
    doubt = "" if lag.is_resolved else ", on which the seeds do not agree"
    doubt = ", in one seed" if lag.num_seeds < FEWEST_SEEDS else doubt
    return f"The others start {low:,} to {high:,} steps {order} English{doubt}."


def make_curve_table(curves: Mapping[str, Curves]) -> Table | None:
    """Build figure 5 as a table: steps across, and variants down in three groups."""
    steps = sorted({step for of in curves.values() for step in of["gap"]})
    if not steps:
        return None
    groups = []
    for quantity, label in PANELS.items():
        lines = []
        for variant, of in curves.items():
            trace = {"variant": variant, "task": CURVE_TASK, "metric": "f1", "source": SOURCE,
                     "scenario": "transfer", "language": _CURVE_LANGUAGES[quantity]}  # fmt: skip
            cells = []
            for step in steps:
                series = of[quantity].get(step, {})
                seeds = " ".join(map(str, sorted(series)))
                cells.append(seed_cell(series, trace={**trace, "step": step, "seed": seeds}))
            lines.append(Line(display_name(variant), cells, variant))
        groups.append(Group(lines, label, None if quantity == "gap" else "higher"))
    note = (
        "F1, mean over languages, then over the seeds of finetuning; the gap is English less the "
        f"mean of the others. {describe_curves(curves)}"
    )
    columns, title = [Column(format_steps(s)) for s in steps], "MLQA along pretraining, by step"
    return mark_best(Table("curves-mlqa", title, columns, groups, [note]))
