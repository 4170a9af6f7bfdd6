"""Claims about the course of pretraining: scores at kept checkpoints, the paper's figure 5.

`curves.py` finds onsets, lags and trends; here they become judgments. The checkpoints are of one
pretraining, and the seeds are those of finetuning: no verdict speaks of other pretrainings. With
one seed a lag is told and not judged; a trend is, as each checkpoint is finetuned by itself.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Literal

from metaxlm.experiments.claims.claim import Judgment, MissingEvidenceError, Outcome
from metaxlm.experiments.claims.contrast import FEWEST_SEEDS, contrast_values, write_p_value
from metaxlm.experiments.claims.evidence import Evidence, join_names
from metaxlm.experiments.claims.sentences import Numbers, compare, name_basis
from metaxlm.experiments.curves import (
    Curve,
    Lag,
    Onset,
    Quantity,
    find_lag,
    find_onset,
    find_trend,
    find_trend_p_value,
    trace_curves,
)
from metaxlm.experiments.names import display_name, title_task
from metaxlm.experiments.score_table import MARGIN, SOURCE, find_level
from metaxlm.experiments.series import Series, average_series, find_mean
from metaxlm.experiments.wins import ALPHA
from metaxlm.languages import language_name

FEWEST_CHECKPOINTS = 5
"""With fewer points no trend can reach 0.05."""
FINE = 0.2
"""Checkpoints closer than this share of the source's onset would show a lag like the paper's, which
is 6K of 14K steps."""


def check_lag(evidence: Evidence, variant: str, task: str) -> Judgment:
    """The other languages leave the plateau later than the source language."""
    curves = _trace(evidence, variant, task)
    lag = find_lag(curves)
    numbers = _list_lag_numbers(curves, lag)
    if lag is None:
        reason = f"A lag needs both curves of {display_name(variant)} to leave a plateau."
        return Judgment("cannot be told", numbers, reason)
    assert lag.source.step is not None
    if abs(lag.steps) >= lag.resolution:
        words = "after" if lag.steps > 0 else "before"
        reason = f"The others rise about {_round(abs(lag.steps))} steps {words} {_LABELS['source']}"
        if not lag.is_resolved:
            reason = f"{reason} on average, but not in every seed."
            return Judgment("cannot be told", numbers, reason)
        outcome: Outcome = "holds" if lag.steps > 0 else "fails"
        return _judge_by_seeds(lag.num_seeds, outcome, numbers, f"{reason}, in every seed.")
    if lag.resolution <= FINE * lag.source.step:
        reason = "Both rise within one distance of checkpoints, and these are close enough to tell."
        return _judge_by_seeds(lag.num_seeds, "fails", numbers, reason)
    reason = "The lag, if any, is smaller than the distance of checkpoints."
    return Judgment("cannot be told", numbers, reason)


def check_no_lag(evidence: Evidence, variant: str, task: str) -> Judgment:
    """The other languages rise from the first checkpoints on, or together with the source."""
    curves = _trace(evidence, variant, task)
    source, others = (find_onset(curves[name]) for name in _COMPARED)
    lag = find_lag(curves)
    numbers = _list_lag_numbers(curves, lag)
    seeds = _count_seeds(curves["others"])
    if others is None:
        reason = f"The other languages of {display_name(variant)} do not rise, so nothing can lag."
        return Judgment("cannot be told", numbers, reason)
    if others.step is None:
        reason = (
            f"The other languages rise from the first checkpoint ({min(curves['others']):,}) on, "
            f"clearly by step {others.high:,}."
        )
        return _judge_by_seeds(seeds, "holds", numbers, reason)
    if lag is None:
        # The source is high from the start, or rises at once: the others' plateau is the lag.
        words = "does not rise any more" if source is None else "rises at once"
        reason = (
            f"The others stay on a plateau up to step {others.low:,}, where {_LABELS['source']} "
            f"{words}."
        )
        return _judge_by_seeds(seeds, "fails", numbers, reason)
    if lag.is_resolved and lag.steps > 0:
        reason = (
            f"The others rise about {_round(lag.steps)} steps after {_LABELS['source']}, in every "
            "seed."
        )
        return _judge_by_seeds(seeds, "fails", numbers, reason)
    if lag.steps < lag.resolution:
        reason = "Both rise within one distance of checkpoints, or the others first."
        return _judge_by_seeds(seeds, "holds", numbers, reason)
    return Judgment("cannot be told", numbers, "The seeds do not agree on the lag.")


def _list_lag_numbers(
    curves: Mapping[Quantity, Curve], lag: Lag | None
) -> tuple[tuple[str, str], ...]:
    numbers = [
        (f"{_LABELS['source']} rises", describe_onset(find_onset(curves["source"]))),
        ("the others rise", describe_onset(find_onset(curves["others"]))),
    ]
    if lag is not None:
        low, high = lag.bounds
        known = f"{low:,} to {high:,} by the checkpoints"
        numbers.append(("lag", f"about {_round(lag.steps)} steps ({known})"))
        agree = sum(value * lag.steps > 0 for value in lag.by_seed)
        numbers.append(("seeds that agree", f"{agree} of {lag.num_seeds}"))
    return tuple(numbers)


def _judge_by_seeds(
    seeds: int, outcome: Outcome, numbers: tuple[tuple[str, str], ...], reason: str
) -> Judgment:
    """Take an outcome back where it rests on a single finetuning of each checkpoint."""
    if seeds < FEWEST_SEEDS:
        reason = reason.replace(", in every seed", "")
        reason = f"{reason} This is one seed, and another one would have to confirm it."
        return Judgment("cannot be told", numbers, reason)
    return Judgment(outcome, numbers, reason)


def check_trend(
    evidence: Evidence,
    variant: str,
    task: str,
    quantity: Quantity,
    toward: Literal["up", "down"],
) -> Judgment:
    """A quantity rises, or falls, over the checkpoints."""
    curve = _trace(evidence, variant, task)[quantity]
    steps = sorted(curve)
    if len(steps) < FEWEST_CHECKPOINTS:
        raise MissingEvidenceError(
            f"Too few checkpoints: {display_name(variant)} has {len(steps)}, a trend needs "
            f"{FEWEST_CHECKPOINTS}"
        )
    values = [find_mean(curve[step]) for step in steps]
    p_value = find_trend_p_value(values)
    change = values[-1] - values[0]
    sign = 1 if toward == "up" else -1
    trend = sign * find_trend(values)
    numbers: Numbers = [
        (f"{_LABELS[quantity]} at step {steps[0]:,}", f"{100 * values[0]:.1f}"),
        (f"{_LABELS[quantity]} at step {steps[-1]:,}", f"{100 * values[-1]:.1f}"),
        ("trend over checkpoints", f"{write_p_value(p_value)}, {len(steps)} checkpoints"),
    ]
    outcome: Outcome = "cannot be told"
    if p_value < ALPHA and trend > 0 and sign * change > 0:
        outcome = "holds"
    elif p_value < ALPHA and trend < 0:
        outcome = "fails"
    clear = "rises" if sign * trend > 0 else "falls"
    told = "has no clear trend" if p_value >= ALPHA else clear
    seeds = _count_seeds(curve)
    reason = (
        f"{_start(quantity)} of {display_name(variant)} goes from {100 * values[0]:.1f} to "
        f"{100 * values[-1]:.1f} and {told} between (Mann and Kendall's test over {len(steps)} "
        f"checkpoints, {seeds} seed{'s' if seeds > 1 else ''} each)."
    )
    return Judgment(outcome, tuple(numbers), reason)


def check_change(
    evidence: Evidence,
    variant: str,
    task: str,
    quantity: Quantity,
    toward: Literal["up", "down"],
) -> Judgment:
    """A quantity is higher, or lower, over the last quarter of checkpoints than over the first.

    Unlike a trend, this allows for a jump with a standstill before and after it.
    """
    curve = _trace(evidence, variant, task)[quantity]
    steps = sorted(curve)
    number = max(1, len(steps) // 4)
    ends = [
        average_series([curve[step] for step in part]) for part in (steps[:number], steps[-number:])
    ]
    sign = 1 if toward == "up" else -1
    value = sign * (find_mean(ends[1]) - find_mean(ends[0]))
    seeds = [list(series.values()) for series in ends]
    found = contrast_values(evidence, "last", "first", value, seeds, [])
    numbers = (
        (f"{_LABELS[quantity]} over steps {steps[0]:,} to {steps[number - 1]:,}",
         f"{100 * find_mean(ends[0]):.1f}"),
        (f"{_LABELS[quantity]} over steps {steps[-number]:,} to {steps[-1]:,}",
         f"{100 * find_mean(ends[1]):.1f}"),
        (f"change {toward}", found.describe()),
    )  # fmt: skip
    outcomes: dict[int, Outcome] = {1: "holds", -1: "fails", 0: "cannot be told"}
    words = {1: f"goes {toward}", -1: f"does not go {toward}", 0: "does not change clearly"}
    told = words[found.direction]
    if found.p_value is None:
        told = f"goes {'up' if sign * value > 0 else 'down'} by {abs(100 * value):.1f} points"
    basis = name_basis([found])
    reason = f"{_start(quantity)} of {display_name(variant)} {told}: {basis}."
    return Judgment(outcomes[found.direction], numbers, reason)


def check_first_gap(evidence: Evidence, first: str, second: str, task: str) -> Judgment:
    """At the first checkpoint, the first variant has the larger transfer gap."""
    gaps = {name: _trace(evidence, name, task)["gap"] for name in (first, second)}
    shared = sorted(set(gaps[first]) & set(gaps[second]))
    if not shared:
        raise MissingEvidenceError(
            f"No checkpoint on {title_task(task)} that {join_names([first, second])} share"
        )
    one, two = (gaps[name][shared[0]] for name in (first, second))
    value = find_mean(one) - find_mean(two)
    seeds = [list(series.values()) for series in (one, two)]
    found = contrast_values(evidence, first, second, value, seeds, [])
    numbers = (
        (f"{display_name(first)}: gap at step {shared[0]:,}", f"{100 * find_mean(one):.1f}"),
        (f"{display_name(second)}: gap at step {shared[0]:,}", f"{100 * find_mean(two):.1f}"),
        ("difference", found.describe()),
    )
    outcomes: dict[int, Outcome] = {1: "holds", -1: "fails", 0: "cannot be told"}
    told = compare(found, "is larger than that of", "is smaller than that of")
    reason = f"At step {shared[0]:,} the gap of {told}: {name_basis([found])}."
    return Judgment(outcomes[found.direction], numbers, reason)


def check_stays_high(
    evidence: Evidence, variant: str, base: str, task: str, share: float
) -> Judgment:
    """In the source language a variant has most of its score at once, and stays above the base."""
    own, other = (_trace(evidence, name, task)["source"] for name in (variant, base))
    shared = sorted(set(own) & set(other))
    if len(shared) < 2:
        raise MissingEvidenceError(
            f"Too few checkpoints on {title_task(task)} that {join_names([variant, base])} share"
        )
    least = min(shared, key=lambda step: find_mean(own[step]))
    ratio = find_mean(own[least]) / find_mean(own[shared[-1]])
    ahead = sum(find_mean(own[step]) > find_mean(other[step]) for step in shared)
    numbers = (
        ("lowest score in English", f"{100 * find_mean(own[least]):.1f} at step {least:,}"),
        ("last score in English", f"{100 * find_mean(own[shared[-1]]):.1f}"),
        ("lowest by last", f"{100 * ratio:.0f} %"),
        (f"checkpoints above {display_name(base)}", f"{ahead} of {len(shared)}"),
    )
    seeds = [list(own[least].values()), [share * value for value in own[shared[-1]].values()]]
    value = statistics.fmean(seeds[0]) - statistics.fmean(seeds[1])
    found = contrast_values(evidence, "lowest", "limit", value, seeds, [])
    outcome: Outcome = "cannot be told"
    if found.direction > 0 and ahead == len(shared):
        outcome = "holds"
    elif found.direction < 0 or (found.p_value is not None and 2 * ahead < len(shared)):
        outcome = "fails"
    reason = (
        f"The lowest point is {100 * ratio:.0f} % of the last ({100 * share:.0f} % is asked for; "
        f"{name_basis([found])}), and {ahead} of {len(shared)} checkpoints are above "
        f"{display_name(base)}."
    )
    return Judgment(outcome, numbers, reason)


def describe_onset(onset: Onset | None) -> str:
    """Put where a curve starts to rise in words."""
    if onset is None:
        return "never"
    if onset.step is None:
        return f"from the start, clearly by step {onset.high:,}"
    return f"between steps {onset.low:,} and {onset.high:,}"


_COMPARED: tuple[Quantity, ...] = ("source", "others")
_LABELS: dict[Quantity, str] = {
    "source": language_name(SOURCE),
    "others": "the other languages",
    "gap": "the transfer gap",
}


def _trace(evidence: Evidence, variant: str, task: str) -> dict[Quantity, Curve]:
    """Return a variant's curves; it must have learned the task in the source language."""
    if variant not in evidence.final_steps:
        raise MissingEvidenceError(f"No scores of {display_name(variant)}")
    curves = trace_curves(evidence.rows, task, variant)
    if len(curves["source"]) < 3:
        raise MissingEvidenceError(
            f"Too few checkpoints: {display_name(variant)} was measured at "
            f"{len(curves['source'])} on {title_task(task)}"
        )
    level = find_level(evidence.list_rows(task), task, "transfer", [(SOURCE, SOURCE)])
    if max(find_mean(series) for series in curves["source"].values()) <= level + MARGIN:
        raise MissingEvidenceError(
            f"At the level of guessing: {display_name(variant)} on {title_task(task)} in "
            f"{_LABELS['source']}"
        )
    return curves


def _count_seeds(curve: Mapping[int, Series]) -> int:
    """Return the number of seeds that every checkpoint has."""
    return min(len(series) for series in curve.values())


def _round(steps: float) -> str:
    """Write steps with two digits: a lag is known no better than the checkpoints are close."""
    digits = 1 - math.floor(math.log10(max(1.0, abs(steps))))
    return f"{round(steps, digits):,.0f}"


def _start(quantity: Quantity) -> str:
    """Write what a sentence is about at its start."""
    label = _LABELS[quantity]
    return label[0].upper() + label[1:]
