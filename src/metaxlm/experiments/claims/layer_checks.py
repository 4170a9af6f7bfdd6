"""Claims about layers: retrieval and word alignment as pretrained, the paper's figures 3 and 4.

Layer 0 is the word embeddings. Every layer has one score for each language, and no seeds: the
tests are over languages, a sign test or, as for the four pairs of word alignment, Student's t.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from metaxlm.experiments.claims.claim import Judgment, MissingEvidenceError, Outcome
from metaxlm.experiments.claims.contrast import (
    contrast,
    contrast_values,
    find_joint_p_value,
    write_p_value,
)
from metaxlm.experiments.claims.evidence import Evidence, Part, join_names
from metaxlm.experiments.claims.sentences import (
    Numbers,
    compare,
    list_p_values,
    name_basis,
    name_unlearned,
)
from metaxlm.experiments.names import display_name, title_task
from metaxlm.experiments.series import find_mean
from metaxlm.experiments.task_comparison import Unit
from metaxlm.experiments.wins import ALPHA, EQUAL

Profile = dict[Unit, dict[int, float]]
"""Scores by language and layer; higher is better."""


def check_layers(
    evidence: Evidence, first: str, second: str, task: str, without: Sequence[int] = ()
) -> Judgment:
    """The first variant is better than the second at every layer but those left out."""
    variants = [first, second]
    evidence.require_variants(variants)
    layers = _list_layers(evidence, variants, task)
    parts = {layer: Part(task, "features", layer=layer) for layer in layers}
    found = {layer: contrast(evidence, first, second, [part]) for layer, part in parts.items()}
    numbers: Numbers = [
        (f"layer {layer}: {display_name(first)} less {display_name(second)}", compared.describe())
        for layer, compared in found.items()
    ]
    if not any(evidence.is_learned(variants, part) for part in parts.values()):
        return Judgment("cannot be told", tuple(numbers), name_unlearned([task]))
    judged = [layer for layer in layers if layer not in without]
    of_layers = [found[layer] for layer in judged]
    ahead = sum(one.value > EQUAL for one in of_layers)
    clearly, behind = (sum(one.direction == sign for one in of_layers) for sign in (1, -1))
    outcome: Outcome = "cannot be told"
    if find_joint_p_value(list_p_values(of_layers, 1), len(judged)) < ALPHA:
        outcome = "holds"
    elif find_joint_p_value(list_p_values(of_layers, -1), 1) < ALPHA:
        outcome = "fails"
    aside = "".join(
        f" At layer {layer} it is {100 * found[layer].value:+.1f} points."
        for layer in without
        if layer in found
    )
    reason = (
        f"{display_name(first)} is better at {ahead} of {len(judged)} layers, clearly so at "
        f"{clearly}, and clearly worse at {behind} ({name_basis(list(found.values()))}).{aside}"
    )
    return Judgment(outcome, tuple(numbers), reason)


def check_best_layer(
    evidence: Evidence, variants: Sequence[str], task: str, layer: int, of: int
) -> Judgment:
    """The best layer lies at this depth, give or take one layer (of so many)."""
    evidence.require_variants(variants)
    found: list[Judgment] = []
    for variant in variants:
        profile = _read_profile(evidence, variant, task)
        layers = sorted(next(iter(profile.values())))
        target = layer * layers[-1] / of
        reach = max(1.0, layers[-1] / of)
        near = [one for one in layers if abs(one - target) <= reach + 1e-9]
        found.append(_judge_best(evidence, variant, task, profile, near))
    outcomes = {judgment.outcome for judgment in found}
    outcome: Outcome = "holds" if outcomes == {"holds"} else "cannot be told"
    if "fails" in outcomes:
        outcome = "fails"
    place = f"The paper's {layer} of {of} would be {near[0]} to {near[-1]} of {layers[-1]} here."
    reason = " ".join([*(judgment.reason for judgment in found), place])
    return Judgment(outcome, tuple(pair for one in found for pair in one.numbers), reason)


def _judge_best(
    evidence: Evidence, variant: str, task: str, profile: Profile, near: Sequence[int]
) -> Judgment:
    """Judge one variant: whether its best layer is one of those near the paper's."""
    layers = sorted(next(iter(profile.values())))
    means = {one: statistics.fmean(p[one] for p in profile.values()) for one in layers}
    best = max(layers, key=lambda one: means[one])
    if not evidence.is_learned([variant], Part(task, "features", layer=best)):
        raise MissingEvidenceError(
            f"At the level of guessing: {display_name(variant)} on {title_task(task)}"
        )
    hits = sum(max(layers, key=lambda one: p[one]) in near for p in profile.values())
    rival = max(near, key=lambda one: means[one])
    gains = [of_unit[best] - of_unit[rival] for of_unit in profile.values()]
    lead = contrast_values(evidence, str(best), str(rival), statistics.fmean(gains), [], gains)
    name = display_name(variant)
    numbers: Numbers = [
        (f"{name}: best layer", f"{best} of {layers[-1]}"),
        (f"{name}: languages with their best at {near[0]} to {near[-1]}",
         f"{hits} of {len(profile)}"),
    ]  # fmt: skip
    if best not in near:
        numbers.append((f"{name}: layer {best} less layer {rival}", lead.describe()))
        outcome: Outcome = "fails" if lead.direction > 0 else "cannot be told"
        words = "clearly" if outcome == "fails" else "not clearly"
        reason = f"{name} is best at layer {best}, {words} better than {near[0]} to {near[-1]}."
        return Judgment(outcome, tuple(numbers), reason)
    p_value = find_share_p_value(hits, len(profile), len(near) / len(layers))
    numbers.append((f"{name}: chance of so many", write_p_value(p_value)))
    outcome = "holds" if p_value < ALPHA else "cannot be told"
    words = "more than" if outcome == "holds" else "no more than may be"
    reason = (
        f"{name} is best at layer {best}, and {hits} of {len(profile)} languages at {near[0]} to "
        f"{near[-1]}, {words} by chance."
    )
    return Judgment(outcome, tuple(numbers), reason)


def find_share_p_value(hits: int, total: int, share: float) -> float:
    """Return how likely so many hits or more are, were each as likely as the share (binomial)."""
    return sum(
        math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(hits, total + 1)
    )


def check_stability(evidence: Evidence, first: str, second: str, task: str) -> Judgment:
    """The scores of the first variant vary less over its layers than those of the second."""
    evidence.require_variants([first, second])
    profiles = [_read_profile(evidence, variant, task) for variant in (first, second)]
    shared = [unit for unit in profiles[0] if unit in profiles[1]]
    if not shared:
        raise MissingEvidenceError(
            f"No languages of {title_task(task)} that {join_names([first, second])} share"
        )
    spreads = [
        [statistics.pstdev(v for layer, v in profile[unit].items() if layer) for unit in shared]
        for profile in profiles
    ]
    gains = [wide - narrow for narrow, wide in zip(*spreads, strict=True)]
    found = contrast_values(evidence, first, second, statistics.fmean(gains), [], gains)
    numbers = (
        *(
            (
                f"{display_name(variant)}: deviation over layers",
                f"{100 * statistics.fmean(spread):.1f}",
            )
            for variant, spread in zip((first, second), spreads, strict=True)
        ),
        (f"{display_name(second)} less {display_name(first)}", found.describe()),
    )
    outcomes: dict[int, Outcome] = {1: "holds", -1: "fails", 0: "cannot be told"}
    told = compare(found, "has smaller ones than", "has larger ones than")
    reason = f"Deviations over all layers but the embeddings: {told} ({name_basis([found])})."
    return Judgment(outcomes[found.direction], numbers, reason)


def _list_layers(evidence: Evidence, variants: Sequence[str], task: str) -> list[int]:
    """Return the layers of a task; all variants must have the same."""
    found = {
        variant: {
            row["layer"]
            for row in evidence.list_rows(task)
            if row.get("variant") == variant and row.get("layer") is not None
        }
        for variant in variants
    }
    if missing := [name for name, layers in found.items() if not layers]:
        raise MissingEvidenceError(f"No scores of {join_names(missing)} on {title_task(task)}")
    if len({frozenset(layers) for layers in found.values()}) > 1:
        raise MissingEvidenceError(f"Not the same layers of {join_names(variants)}")
    return sorted(found[variants[0]])


def _read_profile(evidence: Evidence, variant: str, task: str) -> Profile:
    """Return a variant's scores by language and layer, error rates turned."""
    profile: Profile = {}
    for layer in _list_layers(evidence, [variant], task):
        part = Part(task, "features", layer=layer)
        for unit, series in evidence.read(variant, part).items():
            value = find_mean(series)
            profile.setdefault(unit, {})[layer] = 1 - value if part.is_lower_better else value
    most = max(len(of_unit) for of_unit in profile.values())
    return {unit: of_unit for unit, of_unit in profile.items() if len(of_unit) == most}
