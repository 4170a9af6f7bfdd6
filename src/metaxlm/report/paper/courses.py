"""Figure 5 in numbers: MLQA along pretraining, the transfer gap, and where curves start to rise.

Rows of kept checkpoints come in; curves by variant, their lags in words and a table go out
(`experiments/curves.py` finds them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metaxlm.experiments.claims.contrast import FEWEST_SEEDS
from metaxlm.experiments.claims.curve_checks import describe_onset
from metaxlm.experiments.curves import (
    Curve,
    Lag,
    Quantity,
    find_lag,
    find_onset,
    trace_curves,
)
from metaxlm.experiments.names import display_name
from metaxlm.report.cells import Cell, Column, Group, Line, Table, make_score_cell, mark_best
from metaxlm.report.paper.measurements import Trace, make_paper_cell
from metaxlm.report.scores import Row, score_series

TASK = "mlqa"
METRIC = "f1"
Courses = Mapping[str, Mapping[Quantity, Curve]]
"""Curves by variant."""
PANELS: tuple[tuple[Quantity, str], ...] = (
    ("others", "(a) other languages"),
    ("source", "(b) English"),
    ("gap", "(c) transfer gap"),
)
"""The three panels of the paper's figure."""


def find_courses(rows: Sequence[Row], variants: Sequence[str]) -> Courses:
    """Return the curves of every variant that was measured at two steps or more."""
    curves = {variant: trace_curves(rows, TASK, variant) for variant in variants}
    return {variant: found for variant, found in curves.items() if len(found["gap"]) > 1}


def describe_courses(courses: Courses) -> str:
    """Say where the curves of every variant start to rise, and how well a lag is known."""
    sentences = []
    for variant, found in courses.items():
        source, others = (
            "no rise" if onset is None else f"rise {describe_onset(onset)}"
            for onset in (find_onset(found["source"]), find_onset(found["others"]))
        )
        lag = find_lag(found)
        told = f" {describe_lag(lag)}" if lag is not None else ""
        sentences.append(
            f"{display_name(variant)}, English: {source}; other languages: {others}.{told}"
        )
    return " ".join(sentences)


def describe_lag(lag: Lag) -> str:
    """Say how far the other languages rise after English, and how well that is known."""
    if abs(lag.steps) < lag.resolution:
        return f"They rise together, within {format_steps(lag.resolution)} steps."
    low, high = sorted(map(abs, lag.bounds))
    order = "after" if lag.steps > 0 else "before"
    doubt = "" if lag.is_resolved else ", on which the seeds do not agree"
    if lag.num_seeds < FEWEST_SEEDS:
        doubt = ", in one seed"
    known = f"{format_steps(low)} to {format_steps(high)} steps"
    return f"The others start {known} {order} English{doubt}."


def format_steps(step: float) -> str:
    """Write a number of steps as short as the paper does."""
    return f"{step / 1000:g}K" if step >= 1000 else f"{step:g}"


def make_course_table(courses: Courses) -> Table | None:
    """Build steps across, and variants down in three groups: others, English, gap."""
    steps = sorted({step for found in courses.values() for step in found["gap"]})
    if not steps:
        return None
    groups = []
    for quantity, label in PANELS:
        lines = [
            Line(
                display_name(variant),
                tuple(_make_cell(found[quantity], variant, quantity, step) for step in steps),
                variant,
            )
            for variant, found in courses.items()
        ]
        groups.append(Group(tuple(lines), label, None if quantity == "gap" else "higher"))
    notes = (
        "F1, mean over languages, then over the seeds of finetuning; the gap is English less the "
        f"mean of the others. {describe_courses(courses)} The paper shows this as a figure, "
        "without numbers.",
    )
    columns = tuple(Column(format_steps(step)) for step in steps)
    title = "MLQA along pretraining, by step"
    return mark_best(Table("curves-mlqa", title, columns, tuple(groups), notes))


def _make_cell(curve: Curve, variant: str, quantity: Quantity, step: int) -> Cell:
    series = curve.get(step, {})
    languages = {"source": ("en",), "others": ("all but en",), "gap": ("en less all but en",)}
    trace = Trace(
        variant, TASK, METRIC, "transfer", ("en",), languages[quantity], step=step,
        seeds=tuple(sorted(series)),
    )  # fmt: skip
    ours = make_score_cell(score_series(dict(series)))
    return make_paper_cell(ours, Cell(), [trace] if series else ())
