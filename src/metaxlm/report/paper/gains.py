"""The figure on top of the page: what MetaXLM and +Dict gain over XLM, task by task.

Measurements and paired tests come in, a figure goes out: points right of the line are better than
XLM. Whiskers are the 95 % bootstrap intervals of the paired tests over the same examples; features
are not tested and have none. For alignment the gain is the fall of the error rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from metaxlm.experiments.comparison import TaskComparison
from metaxlm.experiments.names import display_name
from metaxlm.experiments.statistics import Difference
from metaxlm.experiments.wins import find_mean_difference
from metaxlm.report.palette import GRID, INK, Look
from metaxlm.report.paper.measurements import MAIN_VARIANTS, TASKS, Measurements
from metaxlm.report.scores import is_lower_better, score_series
from metaxlm.report.vector import drawing_style

BASE = "xlm"
_WIDTH = 5.7


@dataclass(frozen=True)
class Gain:
    """One variant's gain over XLM on one task, as a fraction."""

    label: str
    variant: str
    value: float
    interval: tuple[float, float] | None


def list_gains(found: Measurements, comparisons: Sequence[TaskComparison]) -> list[Gain]:
    """List the gains over XLM in the order of the tables; reviews where supervised."""
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
            gains.append(Gain(section.facts.title, variant, value, interval))
    return gains


def _find_interval(tested: Difference | None, value: float) -> tuple[float, float] | None:
    """Return the interval around our point; tests pool the seeds, which moves it a little."""
    if tested is None:
        return None
    return tested.low - tested.value + value, tested.high - tested.value + value


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
        for gain in gains:
            shift = 0.32 * (variants.index(gain.variant) - (len(variants) - 1) / 2)
            place, look = labels.index(gain.label) + shift, looks[gain.variant]
            if gain.interval is not None:
                ends = [100 * end for end in gain.interval]
                axis.plot(ends, [place, place], color=look.tone.light, linewidth=1.6)
            axis.plot(
                [100 * gain.value], [place], marker=look.marker, markersize=6, linestyle="",
                color=look.tone.light,
            )  # fmt: skip
        axis.set_yticks(range(len(labels)), labels)
        axis.set_ylim(len(labels) - 0.5, -0.5)
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
            handles.append(Line2D([], [], color=INK.light, linewidth=1.6))
            names.append("95 % interval")
        figure.legend(handles, names, loc="outside upper left", ncols=4, handlelength=1.3)
    return figure
