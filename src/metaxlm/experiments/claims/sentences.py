"""How checks put what they find: contrasts come in, an outcome and a sentence go out."""

from __future__ import annotations

from collections.abc import Sequence

from metaxlm.experiments.claims.claim import Outcome
from metaxlm.experiments.claims.contrast import NUMBERS_ALONE, Contrast
from metaxlm.experiments.claims.evidence import Evidence, Part
from metaxlm.experiments.wins import EQUAL

Numbers = list[tuple[str, str]]
"""Labels and numbers of a verdict."""


def decide_all(contrasts: Sequence[Contrast]) -> Outcome:
    """Decide a claim that needs every contrast: each must be supported by itself."""
    if contrasts and all(found.direction > 0 for found in contrasts):
        return "holds"
    return "fails" if any(found.direction < 0 for found in contrasts) else "cannot be told"


def explain(contrasts: Sequence[Contrast], unlearned: Sequence[str]) -> str:
    """Say which differences are supported, by which test."""
    words = {1: "is better than", -1: "is worse than", 0: "does not differ clearly from"}
    told = [f"{found.first} {words[found.direction]} {found.second}" for found in contrasts]
    sentence = f"{', '.join(told)}: {name_basis(contrasts)}."
    return f"{sentence} {name_unlearned(unlearned)}".strip()


def list_contrasts(contrasts: Sequence[Contrast]) -> Numbers:
    """Label differences with the names of their variants."""
    return [(f"{found.first} less {found.second}", found.describe()) for found in contrasts]


def name_basis(contrasts: Sequence[Contrast]) -> str:
    """Name the tests behind several contrasts, each once."""
    names = dict.fromkeys(found.basis for found in contrasts)
    if len(names) > 2:
        names = dict.fromkeys(name.split(",")[0] for name in names)
    return NUMBERS_ALONE if NUMBERS_ALONE in names else "; ".join(names)


def list_unlearned(evidence: Evidence, variants: Sequence[str], parts: Sequence[Part]) -> list[str]:
    """Return the tasks on which none of the variants is above what needs no model."""
    learned = {part.task for part in parts if evidence.is_learned(variants, part)}
    return [task for task in dict.fromkeys(part.task for part in parts) if task not in learned]


def name_unlearned(tasks: Sequence[str]) -> str:
    """Say that tasks are at the level of guessing; nothing for none."""
    if not tasks:
        return ""
    return f"On {', '.join(tasks)} no model is above guessing or the most frequent label."


def list_p_values(contrasts: Sequence[Contrast], sign: int) -> list[float]:
    """Return the p-values of differences with this sign; 1 for the others and untested ones."""
    return [
        found.p_value
        if found.p_value is not None and found.agrees and sign * found.value > EQUAL
        else 1.0
        for found in contrasts
    ]
