"""How checks put what they find: contrasts come in, an outcome and a sentence go out."""

from __future__ import annotations

from collections.abc import Sequence

from metaxlm.experiments.claims.claim import Outcome
from metaxlm.experiments.claims.contrast import NUMBERS_ALONE, ONE_SEED, Contrast
from metaxlm.experiments.claims.evidence import Evidence, Part
from metaxlm.experiments.failed_trainings import choose_failed
from metaxlm.experiments.names import display_name, title_task
from metaxlm.experiments.wins import EQUAL

NO_TEST = "with one seed nothing is tested"
Numbers = list[tuple[str, str]]
"""Labels and numbers of a verdict."""


def decide_all(contrasts: Sequence[Contrast]) -> Outcome:
    """Decide a claim that needs every contrast: each must be supported by itself."""
    if contrasts and all(found.direction > 0 for found in contrasts):
        return "holds"
    return "fails" if any(found.direction < 0 for found in contrasts) else "cannot be told"


def explain(contrasts: Sequence[Contrast], caveats: str = "") -> str:
    """Say which differences are supported, by which test."""
    sentence = f"{', '.join(map(compare, contrasts))}: {name_basis(contrasts)}."
    return f"{sentence} {caveats}".strip()


def compare(
    found: Contrast,
    better: str = "is better than",
    worse: str = "is worse than",
    unclear: str = "does not differ clearly from",
) -> str:
    """Say how two variants compare; a difference that was not tested stands as it is."""
    words = {1: better, -1: worse, 0: unclear}[found.direction]
    if found.p_value is None:
        words = f"is {abs(100 * found.value):.1f} points {'above' if found.value > 0 else 'below'}"
    return f"{display_name(found.first)} {words} {display_name(found.second)}"


def list_contrasts(contrasts: Sequence[Contrast]) -> Numbers:
    """Label differences with the names of their variants."""
    return [
        (f"{display_name(found.first)} less {display_name(found.second)}", found.describe())
        for found in contrasts
    ]


def name_basis(contrasts: Sequence[Contrast]) -> str:
    """Name the tests behind several contrasts, each once."""
    names = dict.fromkeys(found.basis for found in contrasts)
    if len(names) > 2:
        names = dict.fromkeys(name.split(",")[0] for name in names)
    if NUMBERS_ALONE in names:
        return NUMBERS_ALONE
    return "; ".join(NO_TEST if name == ONE_SEED else name for name in names)


def list_unlearned(evidence: Evidence, variants: Sequence[str], parts: Sequence[Part]) -> list[str]:
    """Return the tasks on which none of the variants is above what needs no model."""
    learned = {part.task for part in parts if evidence.is_learned(variants, part)}
    return [task for task in dict.fromkeys(part.task for part in parts) if task not in learned]


def name_unlearned(tasks: Sequence[str]) -> str:
    """Say that tasks are at the level of guessing; nothing for none."""
    if not tasks:
        return ""
    names = ", ".join(map(title_task, tasks))
    return f"On {names} no model is above guessing or the most frequent label."


def name_caveats(
    evidence: Evidence, variants: Sequence[str], tasks: Sequence[str], unlearned: Sequence[str]
) -> str:
    """Say which tasks are at the level of guessing, and which single finetunings are."""
    failed = choose_failed(evidence.failed, variants, set(tasks) - set(unlearned))
    return " ".join([name_unlearned(unlearned), *(each.describe() for each in failed)]).strip()


def list_p_values(contrasts: Sequence[Contrast], sign: int) -> list[float]:
    """Return the p-values of differences with this sign; 1 for the others and untested ones."""
    return [
        found.p_value
        if found.p_value is not None and found.agrees and sign * found.value > EQUAL
        else 1.0
        for found in contrasts
    ]
