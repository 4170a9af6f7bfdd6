"""The report's own figures: all tasks at a glance, the curves of Figure 5, the 16 directions.

Measurements and rows come in, matplotlib figures go out. Curves are the paper's Figure 5: on MLQA,
(a) the other languages, (b) English, (c) the transfer gap, with marks where a curve starts to rise
(`experiments/curves.py`). Directions are its Figure 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from metaxlm.experiments.curves import Curve, find_onset
from metaxlm.experiments.names import display_name
from metaxlm.experiments.paper_scores import AVERAGED
from metaxlm.experiments.series import average_series
from metaxlm.experiments.statistics import summarize_seeds
from metaxlm.languages import language_name
from metaxlm.report.palette import GRID, INK, Look
from metaxlm.report.paper.courses import PANELS, Courses, format_steps
from metaxlm.report.paper.detail_tables import collect_directions
from metaxlm.report.paper.measurements import (
    DOMAINS,
    MAIN_VARIANTS,
    REVIEW_LANGUAGES,
    TASKS,
    Measurements,
)
from metaxlm.report.scores import Score, score_series
from metaxlm.report.vector import drawing_style

_WIDTH = 5.7
"""Inches; narrow enough for a phone to show the text at a readable size."""
_SHADE = 0.25
_TITLES = {facts.name: facts for facts in TASKS}
Looks = Mapping[str, Look]


@dataclass(frozen=True)
class TaskScore:
    """One row of the overview."""

    label: str
    scores: dict[str, Score]
    level: float | None = None
    """What always the most frequent answer scores."""


def list_task_scores(found: Measurements, variants: Sequence[str]) -> list[TaskScore]:
    """List one score a task: F1 of questions, the mean of the reviews, features at the best layer.

    Alignment stands as 100 - AER, so that more is better everywhere.
    """
    sections = found.sections(variants, [facts.name for facts in TASKS])
    rows = []
    for task in AVERAGED:
        if (section := sections.get(task)) is not None:
            units = section.scores.common_languages()
            scores = {v: score_series(section.scores.mean(v, None, units)) for v in variants}
            known = [section.majority[u].value for u in units if u in section.majority]
            levels = [value for value in known if value is not None]
            level = sum(levels) / len(levels) if levels else None
            rows.append(TaskScore(_TITLES[task].title, _keep(scores), level))
    reviews = [sections.get(f"{task}-supervised") for task in DOMAINS]
    if all(section is not None for section in reviews):
        scores = {
            v: score_series(average_series([s.series(v)[0] for s in reviews if s is not None]))
            for v in variants
        }
        rows.append(TaskScore("Amazon", _keep(scores), 0.5))
    for task, label in (("tatoeba", "Tatoeba"), ("alignment", "Alignment, 100 − AER")):
        if (section := sections.get(task)) is not None:
            scores = {v: score_series(section.series(v)[0]) for v in variants}
            kept = _keep(scores)
            if task == "alignment":
                kept = {v: Score(1 - s.mean, s.deviation, s.seeds) for v, s in kept.items()}
            rows.append(TaskScore(label, kept))
    return [row for row in rows if row.scores]


def _keep(scores: Mapping[str, Score | None]) -> dict[str, Score]:
    return {variant: score for variant, score in scores.items() if score is not None}


def draw_overview(found: Measurements, looks: Looks) -> Figure | None:
    """Draw every task as a line of points, one a model."""
    variants = [variant for variant in MAIN_VARIANTS if variant in found.variants]
    rows = list_task_scores(found, variants)
    if not rows:
        return None
    with drawing_style():
        figure = Figure(figsize=(_WIDTH, 0.9 + 0.34 * len(rows)))
        axis = figure.add_subplot()
        for place, row in enumerate(rows):
            _draw_task(axis, place, row, looks)
        axis.set_yticks(range(len(rows)), [row.label for row in rows])
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.set_xlim(0, 100)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="y", visible=False)
        axis.grid(axis="x")
        axis.set_xlabel("score; higher is better")
        handles = _make_handles(variants, looks)
        labels = list(map(display_name, variants))
        if any(row.level is not None for row in rows):
            handles.append(Line2D([], [], color=INK.light, marker="|", linestyle="", markersize=9))
            labels.append("majority label")
        figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), handlelength=1)
    return figure


def _draw_task(axis: Axes, place: int, row: TaskScore, looks: Looks) -> None:
    values = [100 * score.mean for score in row.scores.values()]
    axis.plot([min(values), max(values)], [place, place], color=GRID.light, linewidth=4, zorder=1)
    if row.level is not None:
        axis.plot([100 * row.level], [place], marker="|", markersize=11, color=INK.light, zorder=2)
    for variant, score in row.scores.items():
        look = looks[variant]
        axis.plot(
            [100 * score.mean], [place], marker=look.marker, markersize=7.5, linestyle="",
            color=look.tone.light, zorder=3,
        )  # fmt: skip


def draw_curves(courses: Courses, looks: Looks) -> Figure | None:
    """Draw Figure 5: three panels above one another, so that onsets compare at a glance."""
    if not courses:
        return None
    with drawing_style():
        figure = Figure(figsize=(_WIDTH, 7.0))
        axes = figure.subplots(3, 1, sharex=True)
        for axis, (quantity, title) in zip(axes, PANELS, strict=True):
            for variant, found in courses.items():
                _draw_curve(axis, found[quantity], looks[variant], mark=quantity != "gap")
            axis.set_title(title)
            axis.set_ylabel("F1" if quantity != "gap" else "F1 points")
        axes[-1].set_xlabel("pretraining step")
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes[-1].xaxis.set_major_formatter(FuncFormatter(lambda step, _: format_steps(step)))
        handles: list[Artist] = [*_make_handles(list(courses), looks)]
        labels = list(map(display_name, courses))
        if any(axis.patches for axis in axes):
            handles.append(Patch(color=INK.light, alpha=_SHADE, linewidth=0))
            labels.append("starts to rise")
        figure.legend(handles, labels, loc="outside upper left", ncols=min(4, len(labels)))
    return figure


def _draw_curve(axis: Axes, curve: Curve, look: Look, mark: bool) -> None:
    """Draw mean and deviation over seeds, and the stretch in which the curve starts to rise."""
    steps = sorted(curve)
    found = [summarize_seeds(list(curve[step].values())) for step in steps]
    means = [100 * one.mean for one in found]
    axis.plot(
        steps, means, look.dash, color=look.tone.light, linewidth=2, marker=look.marker,
        markersize=4, zorder=3,
    )  # fmt: skip
    spreads = [100 * (one.deviation or 0.0) for one in found]
    if any(spreads):
        low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
        high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
        axis.fill_between(steps, low, high, color=look.tone.light, alpha=0.15, linewidth=0)
    onset = find_onset(curve) if mark else None
    if onset is not None and onset.low is not None:
        color = look.tone.light
        axis.axvspan(onset.low, onset.high, color=color, alpha=_SHADE, linewidth=0, zorder=1)


def draw_directions(found: Measurements, looks: Looks) -> Figure | None:
    """Draw Figure 6: one panel a training language, one point a model and test language."""
    directions = collect_directions(found, MAIN_VARIANTS)
    if not any(directions.values()):
        return None
    with drawing_style():
        figure = Figure(figsize=(_WIDTH, 3.6))
        axes = figure.subplots(1, len(REVIEW_LANGUAGES), sharey=True)
        for axis, source in zip(axes, REVIEW_LANGUAGES, strict=True):
            for number, (variant, by_direction) in enumerate(directions.items()):
                shift = 0.22 * (number - (len(directions) - 1) / 2)
                _draw_points(axis, by_direction, source, shift, looks[variant])
            axis.axhline(50, color=INK.light, linestyle=(0, (2, 1)), linewidth=1)
            axis.set_xticks(range(len(REVIEW_LANGUAGES)), REVIEW_LANGUAGES)
            axis.set_xlim(-0.6, len(REVIEW_LANGUAGES) - 0.4)
            axis.set_title(f"{language_name(source)} →")
        axes[0].set_ylabel("accuracy (%)")
        handles = _make_handles(list(directions), looks)
        handles.append(Line2D([], [], color=INK.light, linestyle=(0, (2, 1)), linewidth=1))
        labels = [*map(display_name, directions), "chance"]
        figure.legend(handles, labels, loc="outside upper left", ncols=4, handlelength=1.4)
    return figure


def _draw_points(
    axis: Axes,
    by_direction: Mapping[tuple[str, str], Mapping[int, float]],
    source: str,
    shift: float,
    look: Look,
) -> None:
    for place, target in enumerate(REVIEW_LANGUAGES):
        score = score_series(dict(by_direction.get((source, target), {})))
        if score is None:
            continue
        axis.errorbar(
            place + shift, 100 * score.mean,
            yerr=None if score.deviation is None else 100 * score.deviation,
            marker=look.marker, markersize=5, linestyle="", color=look.tone.light, elinewidth=1.2,
        )  # fmt: skip


def _make_handles(variants: Sequence[str], looks: Looks) -> list[Line2D]:
    return [
        Line2D(
            [], [], color=looks[variant].tone.light, linestyle="", marker=looks[variant].marker,
            markersize=7,
        )
        for variant in variants
    ]  # fmt: skip
