"""Claims about layers: retrieval and word alignment as pretrained, the paper's figures 2 and 3.

Layer 0 is the word embeddings. Every layer has one score for each language, and no seeds: the
tests are over languages, a sign test or, as for the four pairs of word alignment, Student's t.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from metaxlm.experiments.claims.claim import Judgment, MissingEvidenceError, Outcome
from metaxlm.experiments.claims.contrast import contrast, contrast_values, find_joint_p_value
from metaxlm.experiments.claims.evidence import Evidence, Part
from metaxlm.experiments.claims.sentences import (
    Numbers,
    explain,
    list_p_values,
    name_basis,
    name_unlearned,
)
from metaxlm.experiments.comparison import Unit
from metaxlm.experiments.score_table import find_mean
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
        (f"layer {layer}: {first} less {second}", compared.describe())
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
        f"{first} is better at {ahead} of {len(judged)} layers, clearly so at {clearly}, and "
        f"clearly worse at {behind} ({name_basis(list(found.values()))}).{aside}"
    )
    return Judgment(outcome, tuple(numbers), reason)


def check_best_layer(
    evidence: Evidence, variants: Sequence[str], task: str, layer: int, of: int
) -> Judgment:
    """The best layer lies at this depth, give or take one layer (of so many)."""
    evidence.require_variants(variants)
    numbers: Numbers = []
    outcomes: list[Outcome] = []
    for variant in variants:
        profile = _read_profile(evidence, variant, task)
        layers = sorted(next(iter(profile.values())))
        means = {layer: statistics.fmean(p[layer] for p in profile.values()) for layer in layers}
        if not evidence.is_learned(
            [variant], Part(task, "features", layer=max(means, key=lambda k: means[k]))
        ):
            raise MissingEvidenceError(f"At the level of guessing: {variant} on {task}")
        target = layer * layers[-1] / of
        reach = max(1.0, layers[-1] / of)
        best = max(layers, key=lambda layer: means[layer])
        near = [
            abs(max(of_unit, key=lambda layer: of_unit[layer]) - target) <= reach + 1e-9
            for of_unit in (dict(sorted(p.items())) for p in profile.values())
        ]
        numbers.append((f"{variant}: best layer", f"{best} of {layers[-1]}"))
        numbers.append((f"{variant}: languages with their best near {target:.0f}",
                        f"{sum(near)} of {len(near)}"))  # fmt: skip
        outcomes.append(_decide_best(abs(best - target) <= reach + 1e-9, near))
    outcome: Outcome = "cannot be told"
    if set(outcomes) == {"holds"}:
        outcome = "holds"
    elif "fails" in outcomes:
        outcome = "fails"
    reason = (
        f"Layer {target:.0f} of {layers[-1]}, give or take {reach:.0f}, is where the paper's "
        f"{layer} of {of} would lie; the mean and most languages decide."
    )
    return Judgment(outcome, tuple(numbers), reason)


def check_stability(evidence: Evidence, first: str, second: str, task: str) -> Judgment:
    """The scores of the first variant vary less over its layers than those of the second."""
    evidence.require_variants([first, second])
    profiles = [_read_profile(evidence, variant, task) for variant in (first, second)]
    shared = [unit for unit in profiles[0] if unit in profiles[1]]
    if not shared:
        raise MissingEvidenceError(f"No languages of {task} that {first} and {second} share")
    spreads = [
        [statistics.pstdev(v for layer, v in profile[unit].items() if layer) for unit in shared]
        for profile in profiles
    ]
    gains = [wide - narrow for narrow, wide in zip(*spreads, strict=True)]
    found = contrast_values(evidence, first, second, statistics.fmean(gains), [], gains)
    numbers = (
        *(
            (f"{variant}: deviation over layers", f"{100 * statistics.fmean(spread):.1f}")
            for variant, spread in zip((first, second), spreads, strict=True)
        ),
        (f"{second} less {first}", found.describe()),
    )
    outcomes: dict[int, Outcome] = {1: "holds", -1: "fails", 0: "cannot be told"}
    reason = f"Of the deviations over all layers but the embeddings, {explain([found], [])}"
    return Judgment(outcomes[found.direction], numbers, reason)


def _decide_best(is_near: bool, near: Sequence[bool]) -> Outcome:
    most = 2 * sum(near) - len(near)
    if is_near and most > 0:
        return "holds"
    return "fails" if not is_near and most < 0 else "cannot be told"


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
        raise MissingEvidenceError(f"No scores of {' and '.join(missing)} on {task}")
    if len({frozenset(layers) for layers in found.values()}) > 1:
        raise MissingEvidenceError(f"Not the same layers of {' and '.join(variants)}")
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
