"""The figure on top of the page: what MetaXLM and +Dict gain over XLM, task by task.

Measurements and paired tests come in, a figure goes out: points right of the line are better than
XLM. Thick whiskers are the 95 % bootstrap intervals of the paired tests over the same examples,
which hold the finetuned models fixed; thin ones add what other seeds of finetuning would change, as
the claims do. Features at each model's best layer are not tested and have none. For alignment the
gain is the fall of the error rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from metaxlm.experiments.claims.claim import MissingEvidenceError
from metaxlm.experiments.claims.contrast import contrast
from metaxlm.experiments.claims.evidence import Evidence, Part
from metaxlm.experiments.names import display_name
from metaxlm.experiments.statistics import Difference
from metaxlm.experiments.task_comparison import TaskComparison
from metaxlm.experiments.wins import find_mean_difference
from metaxlm.report.palette import GRID, INK, Look
from metaxlm.report.paper.measurements import MAIN_VARIANTS, TASKS, Measurements
from metaxlm.report.scores import is_lower_better, score_series
from metaxlm.report.sections import TaskSection
from metaxlm.report.vector import drawing_style

BASE = "xlm"
_WIDTH = 5.7
_MOST_WHISKER = 0.35
"""How far whiskers may widen the figure, by the range of what else it shows."""


@dataclass(frozen=True)
class Gain:
    """One variant's gain over XLM on one task, as a fraction."""

    label: str
    variant: str
    value: float
    interval: tuple[float, float] | None
    """Over examples."""
    half_width: float | None = None
    """Of the interval over examples and seeds."""


def list_gains(found: Measurements, comparisons: Sequence[TaskComparison]) -> list[Gain]:
    """List the gains over XLM in the order of the tables; reviews where supervised."""
    evidence = Evidence(found.rows, comparisons)
    sections = found.sections(MAIN_VARIANTS, [facts.name for facts in TASKS])
    gains = []
    for section in sections.values():
        if section.facts.trained_in_each and section.scenario == "transfer":
            continue
        base = score_series(section.series(BASE)[0])
        for variant in MAIN_VARIANTS[1:]:
            score = score_series(section.series(variant)[0])
            if base is None or score is None:
                continue
            sign = -1 if is_lower_better(section.facts.metric) else 1
            tested = find_mean_difference(
                comparisons, section.facts.name, variant, BASE, section.scenario
            )
            value = sign * (score.mean - base.mean)
            interval = _find_interval(tested, value)
            half_width = _find_half_width(evidence, section, variant)
            gains.append(Gain(section.facts.title, variant, value, interval, half_width))
    return gains


def _find_interval(tested: Difference | None, value: float) -> tuple[float, float] | None:
    """Return the interval around our point; tests pool the seeds, which moves it a little."""
    if tested is None:
        return None
    return tested.low - tested.value + value, tested.high - tested.value + value


def _find_half_width(evidence: Evidence, section: TaskSection, variant: str) -> float | None:
    """Return half of the interval over examples and seeds; None for features and for one seed."""
    having = [name for name in MAIN_VARIANTS if name in section.scores.variants]
    part = Part(section.facts.name, section.scenario)
    try:
        return contrast(evidence, variant, BASE, [part], having).half_width
    except MissingEvidenceError:
        return None


def draw_gains(gains: Sequence[Gain], looks: Mapping[str, Look]) -> Figure | None:
    """Draw one line a task, the gains as points with their intervals."""
    if not gains:
        return None
    labels = list(dict.fromkeys(gain.label for gain in gains))
    variants = [v for v in MAIN_VARIANTS if any(gain.variant == v for gain in gains)]
    with drawing_style():
        figure = Figure(figsize=(_WIDTH, 1.2 + 0.33 * len(labels)))
        axis = figure.add_subplot()
        for stripe in range(0, len(labels), 2):
            axis.axhspan(stripe - 0.5, stripe + 0.5, color=GRID.light, alpha=0.35, linewidth=0)
        axis.axvline(0, color=looks[BASE].tone.light, linewidth=1.8)
        low, high = _find_limits(gains)
        for gain in gains:
            shift = 0.32 * (variants.index(gain.variant) - (len(variants) - 1) / 2)
            place, look = labels.index(gain.label) + shift, looks[gain.variant]
            if gain.half_width is not None:
                ends = [100 * (gain.value + sign * gain.half_width) for sign in (-1, 1)]
                axis.plot(ends, [place, place], color=look.tone.light, linewidth=0.7)
                for end, limit, marker in zip(ends, (low, high), "<>", strict=True):
                    if not low <= end <= high:  # it goes on beyond the figure
                        axis.plot(
                            [limit], [place], marker=marker, markersize=4, linestyle="",
                            color=look.tone.light, clip_on=False,
                        )  # fmt: skip
            if gain.interval is not None:
                ends = [100 * end for end in gain.interval]
                axis.plot(ends, [place, place], color=look.tone.light, linewidth=2.2)
            axis.plot(
                [100 * gain.value], [place], marker=look.marker, markersize=6, linestyle="",
                color=look.tone.light,
            )  # fmt: skip
        axis.set_yticks(range(len(labels)), labels)
        axis.set_ylim(len(labels) - 0.5, -0.5)
        axis.set_xlim(low, high)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="y", visible=False)
        axis.grid(axis="x")
        axis.set_xlabel("points of F1, accuracy or error rate better than XLM")
        axis.set_title("Points gained over XLM, by task")
        handles = [Line2D([], [], color=looks[BASE].tone.light, linewidth=1.8)]
        handles += [
            Line2D([], [], color=looks[v].tone.light, marker=looks[v].marker, linestyle="",
                   markersize=7)
            for v in variants
        ]  # fmt: skip
        names = [display_name(BASE), *map(display_name, variants)]
        if any(gain.interval is not None for gain in gains):
            handles.append(Line2D([], [], color=INK.light, linewidth=2.2))
            names.append("95 %, other examples")
        if any(gain.half_width is not None for gain in gains):
            handles.append(Line2D([], [], color=INK.light, linewidth=0.7))
            names.append("and other seeds")
        figure.legend(handles, names, loc="outside upper left", ncols=3, handlelength=1.3)
    return figure


def _find_limits(gains: Sequence[Gain]) -> tuple[float, float]:
    """Return the ends of the axis: all points, and whiskers but for the part that is far out."""
    ends = [100 * gain.value for gain in gains] + [0.0]
    ends += [100 * end for gain in gains for end in gain.interval or ()]
    low, high = min(ends), max(ends)
    room = _MOST_WHISKER * max(1.0, high - low)
    widths = [(g.value, g.half_width) for g in gains if g.half_width is not None]
    far_low = min([low, *(100 * (value - width) for value, width in widths)])
    far_high = max([high, *(100 * (value + width) for value, width in widths)])
    low, high = max(far_low, low - room), min(far_high, high + room)
    margin = 0.03 * max(1.0, high - low)
    return low - margin, high + margin
