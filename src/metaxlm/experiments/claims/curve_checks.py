"""Claims about the course of pretraining: scores at kept checkpoints, the paper's figure 4.

`curves.py` finds onsets, lags and trends; here they become judgments. The checkpoints are of one
pretraining, and the seeds are those of finetuning: no verdict speaks of other pretrainings.
"""

from __future__ import annotations

import statistics
from typing import Literal

from metaxlm.experiments.claims.claim import Judgment, MissingEvidenceError, Outcome
from metaxlm.experiments.claims.contrast import contrast_values, write_p_value
from metaxlm.experiments.claims.evidence import MARGIN, Evidence
from metaxlm.experiments.claims.sentences import Numbers
from metaxlm.experiments.curves import (
    Curve,
    Onset,
    Quantity,
    find_lag,
    find_onset,
    find_trend,
    find_trend_p_value,
    trace_curves,
)
from metaxlm.experiments.score_table import SOURCE, average_series, find_level, find_mean
from metaxlm.experiments.wins import ALPHA

FEWEST_CHECKPOINTS = 5
"""With fewer points no trend can reach 0.05."""
FINE = 0.2
"""Checkpoints closer than this share of the source's onset would show a lag like the paper's, which
is 6K of 14K steps."""


def check_lag(evidence: Evidence, variant: str, task: str) -> Judgment:
    """The other languages leave the plateau later than the source language."""
    curves = _trace(evidence, variant, task)
    onsets = {name: find_onset(curves[name]) for name in _COMPARED}
    numbers = [(f"{_LABELS[name]} rise", describe_onset(onset)) for name, onset in onsets.items()]
    lag = find_lag(curves)
    if lag is None:
        reason = f"A lag needs both curves of {variant} to leave a plateau that is seen."
        return Judgment("cannot be told", tuple(numbers), reason)
    numbers.append(("lag", f"{lag.steps:.0f} steps, checkpoints {lag.resolution} apart"))
    agree = sum(value * lag.steps > 0 for value in lag.by_seed)
    numbers.append(("seeds that agree", f"{agree} of {lag.num_seeds}"))
    assert lag.source.step is not None
    if lag.is_resolved:
        words = "after" if lag.steps > 0 else "before"
        reason = f"The others rise {abs(lag.steps):.0f} steps {words} the source, in every seed."
        return Judgment("holds" if lag.steps > 0 else "fails", tuple(numbers), reason)
    if abs(lag.steps) >= lag.resolution:
        reason = "The seeds do not agree on the lag."
        return Judgment("cannot be told", tuple(numbers), reason)
    if lag.resolution <= FINE * lag.source.step:
        reason = "Both rise within one distance of checkpoints, and these are close enough to tell."
        return Judgment("fails", tuple(numbers), reason)
    reason = "The lag, if any, is smaller than the distance of checkpoints."
    return Judgment("cannot be told", tuple(numbers), reason)


def check_no_lag(evidence: Evidence, variant: str, task: str) -> Judgment:
    """The other languages rise from the first checkpoints on, or together with the source."""
    curves = _trace(evidence, variant, task)
    onsets = {name: find_onset(curves[name]) for name in _COMPARED}
    numbers = [(f"{_LABELS[name]} rise", describe_onset(onset)) for name, onset in onsets.items()]
    source, others = onsets["source"], onsets["others"]
    if others is None:
        reason = f"The other languages of {variant} do not rise, so nothing can lag."
        return Judgment("cannot be told", tuple(numbers), reason)
    if others.step is None:
        reason = f"The other languages rise from the first checkpoint ({min(curves['others'])}) on."
        return Judgment("holds", tuple(numbers), reason)
    lag = find_lag(curves)
    if lag is None:
        # The source is high from the start, or rises at once: the others' plateau is the lag.
        words = "does not rise any more" if source is None else "rises at once"
        reason = f"The others stay on a plateau up to step {others.low}, where the source {words}."
        return Judgment("fails", tuple(numbers), reason)
    numbers.append(("lag", f"{lag.steps:.0f} steps, checkpoints {lag.resolution} apart"))
    if lag.is_resolved and lag.steps > 0:
        reason = f"The others rise {lag.steps:.0f} steps after the source, in every seed."
        return Judgment("fails", tuple(numbers), reason)
    if lag.steps < lag.resolution:
        reason = "Both rise within one distance of checkpoints, or the others first."
        return Judgment("holds", tuple(numbers), reason)
    return Judgment("cannot be told", tuple(numbers), "The seeds do not agree on the lag.")


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
            f"Too few checkpoints: {variant} has {len(steps)}, a trend needs {FEWEST_CHECKPOINTS}"
        )
    values = [find_mean(curve[step]) for step in steps]
    p_value = find_trend_p_value(values)
    change = values[-1] - values[0]
    sign = 1 if toward == "up" else -1
    trend = sign * find_trend(values)
    numbers: Numbers = [
        (f"{_LABELS[quantity]} at step {steps[0]}", f"{100 * values[0]:.1f}"),
        (f"{_LABELS[quantity]} at step {steps[-1]}", f"{100 * values[-1]:.1f}"),
        ("trend over checkpoints", f"{write_p_value(p_value)}, {len(steps)} checkpoints"),
    ]
    outcome: Outcome = "cannot be told"
    if p_value < ALPHA and trend > 0 and sign * change > 0:
        outcome = "holds"
    elif p_value < ALPHA and trend < 0:
        outcome = "fails"
    told = "no clear trend" if p_value >= ALPHA else "rises" if sign * trend > 0 else "falls"
    reason = f"{_LABELS[quantity].capitalize()} of {variant}: {told} (Mann and Kendall's test)."
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
        (f"{_LABELS[quantity]} over steps {steps[0]} to {steps[number - 1]}",
         f"{100 * find_mean(ends[0]):.1f}"),
        (f"{_LABELS[quantity]} over steps {steps[-number]} to {steps[-1]}",
         f"{100 * find_mean(ends[1]):.1f}"),
        (f"change {toward}", found.describe()),
    )  # fmt: skip
    outcomes: dict[int, Outcome] = {1: "holds", -1: "fails", 0: "cannot be told"}
    words = {1: f"goes {toward}", -1: f"does not go {toward}", 0: "does not change clearly"}
    label = _LABELS[quantity].capitalize()
    reason = f"{label} of {variant} {words[found.direction]}: {found.basis}."
    return Judgment(outcomes[found.direction], numbers, reason)


def check_first_gap(evidence: Evidence, first: str, second: str, task: str) -> Judgment:
    """At the first checkpoint, the first variant has the larger transfer gap."""
    gaps = {name: _trace(evidence, name, task)["gap"] for name in (first, second)}
    shared = sorted(set(gaps[first]) & set(gaps[second]))
    if not shared:
        raise MissingEvidenceError(f"No checkpoint on {task} that {first} and {second} share")
    one, two = (gaps[name][shared[0]] for name in (first, second))
    value = find_mean(one) - find_mean(two)
    seeds = [list(series.values()) for series in (one, two)]
    found = contrast_values(evidence, first, second, value, seeds, [])
    numbers = (
        (f"{first}: gap at step {shared[0]}", f"{100 * find_mean(one):.1f}"),
        (f"{second}: gap at step {shared[0]}", f"{100 * find_mean(two):.1f}"),
        ("difference", found.describe()),
    )
    outcomes: dict[int, Outcome] = {1: "holds", -1: "fails", 0: "cannot be told"}
    words = {1: "is larger than", -1: "is smaller than", 0: "does not differ clearly from"}
    reason = f"The gap of {first} {words[found.direction]} that of {second}: {found.basis}."
    return Judgment(outcomes[found.direction], numbers, reason)


def check_stays_high(
    evidence: Evidence, variant: str, base: str, task: str, share: float
) -> Judgment:
    """In the source language a variant has most of its score at once, and stays above the base."""
    own, other = (_trace(evidence, name, task)["source"] for name in (variant, base))
    shared = sorted(set(own) & set(other))
    if len(shared) < 2:
        raise MissingEvidenceError(f"Too few checkpoints on {task} that {variant} and {base} share")
    least = min(shared, key=lambda step: find_mean(own[step]))
    ratio = find_mean(own[least]) / find_mean(own[shared[-1]])
    ahead = sum(find_mean(own[step]) > find_mean(other[step]) for step in shared)
    numbers = (
        (f"{variant}: lowest {_LABELS['source']}", f"{100 * find_mean(own[least]):.1f} at {least}"),
        (f"{variant}: last {_LABELS['source']}", f"{100 * find_mean(own[shared[-1]]):.1f}"),
        ("lowest by last", f"{100 * ratio:.0f} %"),
        (f"checkpoints above {base}", f"{ahead} of {len(shared)}"),
    )
    seeds = [list(own[least].values()), [share * value for value in own[shared[-1]].values()]]
    value = statistics.fmean(seeds[0]) - statistics.fmean(seeds[1])
    found = contrast_values(evidence, "lowest", "limit", value, seeds, [])
    outcome: Outcome = "cannot be told"
    if found.direction > 0 and ahead == len(shared):
        outcome = "holds"
    elif found.direction < 0 or 2 * ahead < len(shared):
        outcome = "fails"
    reason = (
        f"The lowest point is {100 * ratio:.0f} % of the last ({100 * share:.0f} % is asked for; "
        f"{found.basis}), and {ahead} of {len(shared)} checkpoints are above {base}."
    )
    return Judgment(outcome, numbers, reason)


def describe_onset(onset: Onset | None) -> str:
    """Put where a curve starts to rise in words."""
    if onset is None:
        return "never"
    if onset.step is None:
        return f"by step {onset.high}, no plateau seen"
    return f"at step {onset.step:.0f} (between {onset.low} and {onset.high})"


_COMPARED: tuple[Quantity, ...] = ("source", "others")
_LABELS: dict[Quantity, str] = {
    "source": "the source language",
    "others": "the other languages",
    "gap": "the transfer gap",
}


def _trace(evidence: Evidence, variant: str, task: str) -> dict[Quantity, Curve]:
    """Return a variant's curves; it must have learned the task in the source language."""
    if variant not in evidence.final_steps:
        raise MissingEvidenceError(f"No scores of {variant}")
    curves = trace_curves(evidence.rows, task, variant)
    if len(curves["source"]) < 3:
        raise MissingEvidenceError(
            f"Too few checkpoints: {variant} was measured at {len(curves['source'])} on {task}"
        )
    level = find_level(evidence.list_rows(task), task, "transfer", [(SOURCE, SOURCE)])
    if max(find_mean(series) for series in curves["source"].values()) <= level + MARGIN:
        raise MissingEvidenceError(
            f"At the level of guessing: {variant} on {task} in the source language"
        )
    return curves
