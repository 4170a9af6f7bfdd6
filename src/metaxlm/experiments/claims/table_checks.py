"""Claims about finished models on finetuned tasks: the paper's tables 1, 3, 4 and 5.

Each check takes the evidence and its parameters from `claims.yaml`, and returns a judgment. What
is not measured raises `MissingEvidenceError`. Tasks that no model has learned decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from metaxlm.experiments.claims.claim import Judgment, MissingEvidenceError, Outcome
from metaxlm.experiments.claims.contrast import contrast, find_joint_p_value
from metaxlm.experiments.claims.evidence import Evidence, Part, join_names
from metaxlm.experiments.claims.sentences import (
    decide_all,
    explain,
    list_contrasts,
    list_p_values,
    list_unlearned,
    name_basis,
    name_caveats,
    name_unlearned,
)
from metaxlm.experiments.names import display_name, title_task
from metaxlm.experiments.score_table import SOURCE, list_metrics
from metaxlm.experiments.series import find_mean
from metaxlm.experiments.wins import ALPHA


def check_order(
    evidence: Evidence,
    variants: Sequence[str],
    tasks: Sequence[str],
    scenario: str = "transfer",
    languages: str = "all",
    exact_match: bool = False,
) -> Judgment:
    """Each variant is better than the one before, on the mean over tasks."""
    evidence.require_variants(variants)
    parts = [
        _choose_languages(
            evidence,
            variants,
            Part(task, scenario, list_metrics(task) if exact_match else ()),
            languages,
        )
        for task in tasks
    ]
    found = evidence.average(variants, parts)
    numbers = [(display_name(name), f"{100 * find_mean(found[name][0]):.1f}") for name in variants]
    steps = [
        contrast(evidence, later, earlier, parts, variants) for earlier, later in pairwise(variants)
    ]
    numbers += list_contrasts(steps)
    unlearned = list_unlearned(evidence, variants, parts)
    if len(unlearned) == len(parts):
        return Judgment("cannot be told", tuple(numbers), name_unlearned(unlearned))
    caveats = name_caveats(evidence, variants, tasks, unlearned)
    return Judgment(decide_all(steps), tuple(numbers), explain(steps, caveats))


def check_tasks(
    evidence: Evidence,
    first: str,
    seconds: Sequence[str],
    tasks: Sequence[str],
    at_least: int,
) -> Judgment:
    """The first variant is better than each of the second ones, on at least so many tasks."""
    variants = [first, *seconds]
    evidence.require_variants(variants)
    unlearned = list_unlearned(evidence, variants, [Part(task) for task in tasks])
    found = {
        task: [contrast(evidence, first, name, [Part(task)], variants) for name in seconds]
        for task in tasks
    }
    numbers = [
        (f"{title_task(task)}: {label}", f"{number}{' (not learned)' if task in unlearned else ''}")
        for task, of_task in found.items()
        for label, number in list_contrasts(of_task)
    ]
    # A task is won against all the others, which the worst p-value decides, and lost to any.
    learned = [of_task for task, of_task in found.items() if task not in unlearned]
    gains = [max(list_p_values(of_task, 1)) for of_task in learned]
    losses = [find_joint_p_value(list_p_values(of_task, -1), 1) for of_task in learned]
    idle = [1.0] * len(unlearned)
    outcome: Outcome = "cannot be told"
    if find_joint_p_value([*gains, *idle], at_least) < ALPHA:
        outcome = "holds"
    elif find_joint_p_value([*losses, *idle], len(tasks) - at_least + 1) < ALPHA:
        outcome = "fails"
    won, lost = (sum(p_value < ALPHA for p_value in side) for side in (gains, losses))
    basis = name_basis([one for of_task in found.values() for one in of_task])
    reason = (
        f"{display_name(first)} is better on {won} of {len(tasks)} tasks, worse on {lost}, "
        f"undecided on {len(tasks) - won - lost} ({basis}); {at_least} are needed together."
    )
    caveats = name_caveats(evidence, variants, tasks, unlearned)
    return Judgment(outcome, tuple(numbers), f"{reason} {caveats}".strip())


def check_small_gain(
    evidence: Evidence,
    base: str,
    parts: Sequence[str],
    whole: str,
    tasks: Sequence[str],
    share: float,
    may_harm: bool,
) -> Judgment:
    """Each part gains at most this share of what the whole gains over the base."""
    variants = [base, *parts, whole]
    evidence.require_variants(variants)
    measure = [Part(task) for task in tasks]
    unlearned = list_unlearned(evidence, variants, measure)
    gain = contrast(evidence, whole, base, measure, variants)
    gains = [contrast(evidence, part, base, measure, variants) for part in parts]
    leads = [contrast(evidence, whole, part, measure, variants) for part in parts]
    numbers = list_contrasts([gain, *gains, *leads])
    if len(unlearned) == len(tasks):
        return Judgment("cannot be told", tuple(numbers), name_unlearned(unlearned))
    name, basis = display_name(whole), name_basis([gain])
    if any(lead.direction < 0 for lead in leads):
        return Judgment("fails", tuple(numbers), f"A part beats {name}; {basis}.")
    if gain.direction <= 0:
        reason = f"{name} itself is not supported to be better than {display_name(base)} ({basis})."
        return Judgment("cannot be told", tuple(numbers), reason)
    shares = [found.value / gain.value for found in gains]
    numbers += [
        (f"{display_name(part)}: share of the gain", f"{100 * of_gain:.0f} %")
        for part, of_gain in zip(parts, shares, strict=True)
    ]
    harmful = [found.first for found in gains if found.direction < 0 and not may_harm]
    large = [
        found.first
        for found, of_gain in zip(gains, shares, strict=True)
        if found.direction > 0 and of_gain > 2 * share
    ]
    outcome: Outcome = "fails"
    if harmful:
        reason = (
            f"{join_names(harmful)} is worse than {display_name(base)} ({basis}), where a small "
            f"gain is claimed."
        )
    elif large:
        reason = (
            f"{join_names(large)} gains over {200 * share:.0f} % of {name} over "
            f"{display_name(base)} ({basis})."
        )
    else:
        is_small = max(shares) <= share and all(lead.direction > 0 for lead in leads)
        outcome = "holds" if is_small else "cannot be told"
        reason = (
            f"The largest share of {name}'s gain is {100 * max(shares):.0f} %, and "
            f"{100 * share:.0f} % is the limit ({basis})."
        )
    caveats = name_caveats(evidence, variants, tasks, unlearned)
    return Judgment(outcome, tuple(numbers), f"{reason} {caveats}".strip())


def _choose_languages(
    evidence: Evidence, variants: Sequence[str], part: Part, languages: str
) -> Part:
    """Restrict a part to the source language (`source`) or to all others (`others`)."""
    if languages == "all":
        return part
    units = next(iter(evidence.read_shared(variants, part).values()))
    kept = [unit for unit in units if (unit[1] == SOURCE) == (languages == "source")]
    if not kept:
        raise MissingEvidenceError(
            f"No {languages} languages among the scores of {title_task(part.task)}"
        )
    return replace(part, units=tuple(kept))
