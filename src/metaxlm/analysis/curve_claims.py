"""Claims about scores along pretraining (section 5.1), on the curves of `learning_curves`.

One seed of finetuning decides nothing.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from metaxlm.analysis.contrast import (
    FAILS,
    FEWEST_SEEDS,
    HOLDS,
    UNDECIDED,
    Conclusion,
    Contrast,
    MissingScoresError,
    Outcome,
    contrast_values,
    decide_all,
    explain,
    name_basis,
    write_p_value,
)
from metaxlm.analysis.learning_curves import (
    NOISE_FACTOR,
    RISE_SHARE,
    Curve,
    Onset,
    Quantity,
    find_lag,
    find_onset,
    measure_roughness,
    trace_curves,
)
from metaxlm.analysis.results import SOURCE, display_name, has_learned, join_names, title_task
from metaxlm.analysis.scores import Results
from metaxlm.analysis.stats import ALPHA, average, mean, trend_test

FEWEST_CHECKPOINTS = 5  # with fewer points no trend can reach 0.05
FINE = 0.2
"""Checkpoints closer than this share of the source's onset would show a lag like the paper's, which
is 6K of 14K steps."""
FAST, STEADY = 0.5, 0.35  # shares of a growth within a quarter of the checkpoints; a line has 1/3
SETTLED = 0.2  # a curve has settled if it changes by this share of its growth at most
_LABELS = {"source": "English", "others": "the other languages", "gap": "the transfer gap"}


def check_starts_low(results: Results, variant: str, task: str) -> Conclusion:
    """Both curves start on a plateau; one that never leaves it counts as well."""
    curves = _trace(results, variant, task)
    source, others = find_onset(curves["source"]), find_onset(curves["others"])
    numbers = _describe_onsets(source, others)
    if source is None:
        return UNDECIDED, numbers, "English does not leave its plateau."
    early = [
        name for name, one in (("English", source), ("others", others)) if one and not one.step
    ]
    if early:
        outcome, reason = FAILS, f"No plateau at the start: {' and '.join(early)}."
    else:
        outcome, reason = HOLDS, f"Both stay on a plateau up to step {source.low:,} or longer."
    return _confirm(outcome, numbers, reason, len(next(iter(curves["others"].values()))))


def check_lag(results: Results, variant: str, task: str) -> Conclusion:
    """The other languages leave the plateau later than the source language."""
    curves = _trace(results, variant, task)
    numbers = _describe_onsets(find_onset(curves["source"]), find_onset(curves["others"]))
    lag = find_lag(curves)
    if lag is None:
        return UNDECIDED, numbers, "A lag needs both curves to leave a plateau."
    low, high = lag.bounds
    numbers += [
        ("lag", f"about {_round(lag.steps)} steps ({low:,} to {high:,} by the checkpoints)"),
        ("seeds that agree", f"{lag.num_agreeing} of {lag.num_seeds}"),
    ]
    outcome, reason = UNDECIDED, "The seeds do not agree on the lag."
    if abs(lag.steps) < lag.resolution:
        is_fine = lag.resolution <= FINE * (lag.source.step or 0.0)
        outcome = FAILS if is_fine else UNDECIDED
        reason = "Both rise between neighboring checkpoints."
    elif lag.is_resolved:
        outcome = HOLDS if lag.steps > 0 else FAILS
        order = "after" if lag.steps > 0 else "before"
        reason = f"The others rise about {_round(abs(lag.steps))} steps {order} English."
    return _confirm(outcome, numbers, reason, lag.num_seeds)


def check_rises(results: Results, variant: str, task: str) -> Conclusion:
    """The other languages rise from the first checkpoints on, and keep what they gained."""
    curves = _trace(results, variant, task)
    others, curve = find_onset(curves["others"]), curves["others"]
    numbers = [("the others rise", str(others or "never"))]
    if others is None:
        return UNDECIDED, numbers, "The others do not rise."
    steps = sorted(curve)
    values = [mean(curve[step]) for step in steps]
    peak, last = max(values), statistics.median(values[-3:])
    noise = NOISE_FACTOR * measure_roughness(steps, values)
    numbers.append(("highest, and at the end", f"{100 * peak:.1f}, {100 * last:.1f}"))
    if others.step is not None:
        outcome, reason = FAILS, f"The others stay on a plateau up to step {others.low:,}."
    elif peak - last > max(noise, RISE_SHARE * (peak - values[0])):
        outcome, reason = FAILS, "The others rise from the first checkpoints on, and fall later."
    else:
        outcome, reason = HOLDS, "The others rise from the first checkpoints on."
    return _confirm(outcome, numbers, reason, min(map(len, curve.values())))


def _describe_onsets(source: Onset | None, others: Onset | None) -> list[tuple[str, str]]:
    return [("English rises", str(source or "never")), ("the others rise", str(others or "never"))]


def _confirm(
    outcome: Outcome, numbers: list[tuple[str, str]], reason: str, num_seeds: int
) -> Conclusion:
    """One seed decides nothing."""
    if outcome != UNDECIDED and num_seeds < FEWEST_SEEDS:
        return UNDECIDED, numbers, f"{reason} This is one seed, and another one must confirm it."
    return outcome, numbers, reason


def check_grows(results: Results, variant: str, task: str, quantity: Quantity) -> Conclusion:
    """A quantity grows from the first quarter of checkpoints to the last, and does so fast.

    Fast is at least half of the growth within a quarter of the checkpoints that ends before the
    last one; about a third is a steady growth, which fails, and so does a late one.
    """
    curve = _trace(results, variant, task)[quantity]
    growth, numbers = _measure_growth(results, variant, curve, quantity)
    values = [mean(curve[step]) for step in sorted(curve)]
    width = max(1, len(values) // 4)
    fastest = max(b - a for a, b in zip(values, values[width:-width], strict=False))
    share = fastest / growth.value if growth.value > 0 else 0.0
    numbers.append(("most growth in an earlier quarter of the checkpoints", f"{100 * share:.0f} %"))
    reason = explain([growth], verbs=("is larger than", "is smaller than"))
    outcome = decide_all([growth])
    if outcome == HOLDS and share < FAST:
        outcome = FAILS if share < STEADY else UNDECIDED
        reason += " It grows slowly, or late."
    return outcome, numbers, reason


def check_settles(results: Results, variant: str, task: str, quantity: Quantity) -> Conclusion:
    """A quantity that grows hardly changes from the third quarter of checkpoints to the last."""
    curve = _trace(results, variant, task)[quantity]
    growth, numbers = _measure_growth(results, variant, curve, quantity)
    reason = explain([growth], verbs=("is larger than", "is smaller than"))
    if growth.direction <= 0:
        return decide_all([growth]), numbers, reason
    change = _compare_parts(results, variant, curve, ("last quarter", "third quarter"))
    share = abs(change.value) / growth.value
    numbers += [(change.label, change.describe()), ("of the growth", f"{100 * share:.0f} %")]
    if share <= SETTLED:
        return HOLDS, numbers, f"{reason} It changes little after the third quarter."
    moves = change.direction != 0 and share > 2 * SETTLED
    outcome = FAILS if moves else UNDECIDED
    return outcome, numbers, f"{reason} It still changes after the third quarter."


def _measure_growth(
    results: Results, variant: str, curve: Curve, quantity: Quantity
) -> tuple[Contrast, list[tuple[str, str]]]:
    if len(curve) < FEWEST_CHECKPOINTS:
        words = f"{display_name(variant)} has {len(curve)} checkpoints"
        raise MissingScoresError(f"{words}, quarters need {FEWEST_CHECKPOINTS}")
    growth = _compare_parts(results, variant, curve, ("last quarter", "first quarter"))
    parts = _split(sorted(curve))
    numbers = []
    for name in ("first quarter", "last quarter"):
        steps = parts[name]
        where = f"step {steps[0]:,}" + (f" to {steps[-1]:,}" if steps[1:] else "")
        value = mean(average([curve[step] for step in steps]))
        numbers.append((f"{_LABELS[quantity]} at {where}", f"{100 * value:.1f}"))
    return growth, [*numbers, ("difference", growth.describe())]


def _compare_parts(
    results: Results, variant: str, curve: Curve, names: tuple[str, str]
) -> Contrast:
    parts = _split(sorted(curve))
    series = [average([curve[step] for step in parts[name]]) for name in names]
    first, second = (f"{display_name(variant)} ({name})" for name in names)
    samples, value = [list(one.values()) for one in series], mean(series[0]) - mean(series[1])
    return contrast_values(results, first, second, value, samples, [])


def _split(steps: Sequence[int]) -> dict[str, Sequence[int]]:
    number = max(1, len(steps) // 4)
    return {"first": steps[:1], "first quarter": steps[:number],
            "third quarter": steps[-2 * number : -number],
            "last quarter": steps[-number:]}  # fmt: skip


def check_trend(
    results: Results, variant: str, task: str, quantity: Quantity, toward: Literal["up", "down"]
) -> Conclusion:
    """A quantity rises, or falls, over the checkpoints."""
    curve = _trace(results, variant, task)[quantity]
    steps = sorted(curve)
    if (number := len(steps)) < FEWEST_CHECKPOINTS:
        words = f"{display_name(variant)} has {number} checkpoints"
        raise MissingScoresError(f"{words}, a trend needs {FEWEST_CHECKPOINTS}")
    values = [mean(curve[step]) for step in steps]
    trend, p_value = trend_test(values)
    sign = 1 if toward == "up" else -1
    numbers = [
        (f"{_LABELS[quantity]} at step {steps[k]:,}", f"{100 * values[k]:.1f}") for k in (0, -1)
    ]
    numbers.append(("trend over checkpoints", f"{write_p_value(p_value)}, {number} checkpoints"))
    outcome, words = UNDECIDED, "has no clear trend"
    if p_value < ALPHA:
        words = "rises" if trend > 0 else "falls"
        if sign * trend < 0:
            outcome = FAILS
        elif sign * (values[-1] - values[0]) > 0:
            outcome = HOLDS
    reason = f"{display_name(variant)} {words}: Mann and Kendall's test over the checkpoints."
    return outcome, numbers, reason


def check_points(
    results: Results, task: str, quantity: Quantity, high: str, low: str
) -> Conclusion:
    """A quantity of one variant is larger than another's at the first checkpoint that both have."""
    curves = [_trace(results, variant, task)[quantity] for variant in (high, low)]
    shared = sorted(set(curves[0]) & set(curves[1]))
    if not shared:
        names = join_names([high, low])
        raise MissingScoresError(f"{names} share no checkpoint on {title_task(task)}")
    series = [curve[shared[0]] for curve in curves]
    numbers = [
        (f"{display_name(variant)}: {_LABELS[quantity]} at step {shared[0]:,}",
         f"{100 * mean(one):.1f}")
        for variant, one in zip((high, low), series, strict=True)
    ]  # fmt: skip
    samples, value = [list(one.values()) for one in series], mean(series[0]) - mean(series[1])
    lead = contrast_values(results, high, low, value, samples, [])
    reason = explain([lead], verbs=("is larger than", "is smaller than"))
    return decide_all([lead]), [*numbers, ("difference", lead.describe())], reason


def check_stays_high(
    results: Results, variant: str, base: str, task: str, share: float
) -> Conclusion:
    """In the source language a variant keeps most of its highest score, and stays above the base.

    The highest and not the last score, so that forgetting counts.
    """
    own, other = (_trace(results, name, task)["source"] for name in (variant, base))
    shared = sorted(set(own) & set(other))
    if len(shared) < 2:
        names = join_names([variant, base])
        raise MissingScoresError(f"{names} share too few checkpoints on {title_task(task)}")
    lowest, highest = (find(shared, key=lambda step: mean(own[step])) for find in (min, max))
    ratio = mean(own[lowest]) / mean(own[highest])
    ahead = sum(mean(own[step]) > mean(other[step]) for step in shared)
    numbers = [
        ("lowest score in English", f"{100 * mean(own[lowest]):.1f} at step {lowest:,}"),
        ("highest score in English", f"{100 * mean(own[highest]):.1f} at step {highest:,}"),
        ("lowest by highest", f"{100 * ratio:.0f} %"),
        (f"checkpoints above {display_name(base)}", f"{ahead} of {len(shared)}"),
    ]
    seeds = [list(own[lowest].values()), [share * value for value in own[highest].values()]]
    value = statistics.fmean(seeds[0]) - statistics.fmean(seeds[1])
    lead = contrast_values(results, "lowest", "limit", value, seeds, [])
    outcome = UNDECIDED
    if lead.direction > 0 and ahead == len(shared):
        outcome = HOLDS
    elif lead.direction < 0 or (lead.p_value is not None and 2 * ahead < len(shared)):
        outcome = FAILS
    reason = f"The claim needs {100 * share:.0f} % and every checkpoint: {name_basis([lead])}."
    return outcome, numbers, reason


def _trace(results: Results, variant: str, task: str) -> dict[Quantity, Curve]:
    """Return a variant's curves; it must have learned the task in the source language."""
    name, title = display_name(variant), title_task(task)
    if variant not in results.final_steps:
        raise MissingScoresError(f"No scores of {name}")
    curves = trace_curves(results, task, variant)
    if (number := len(curves["source"])) < 3:
        raise MissingScoresError(f"Too few checkpoints: {name} was measured at {number} on {title}")
    level = results.best_baseline(task, "transfer", [(SOURCE, SOURCE)])
    if not has_learned(max(map(mean, curves["source"].values())), level):
        raise MissingScoresError(f"{name} is at its baselines on {title} in English")
    return curves


def _round(steps: float) -> str:
    """Write steps with two digits, which is as well as checkpoints allow."""
    digits = 1 - math.floor(math.log10(max(1.0, abs(steps))))
    return f"{round(steps, digits):,.0f}"
