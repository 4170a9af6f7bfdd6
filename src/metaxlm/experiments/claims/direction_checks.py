"""Claims about single languages and directions of transfer: the paper's table 2 and figure 6.

Amazon reviews are trained and tested in four languages and three domains. A direction is a pair of
training and test language, the mean over domains; equal languages count as directions too.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaxlm.experiments.claims.claim import Judgment, MissingEvidenceError, Outcome
from metaxlm.experiments.claims.contrast import (
    Contrast,
    contrast,
    contrast_values,
    find_joint_p_value,
    write_p_value,
)
from metaxlm.experiments.claims.evidence import Evidence, Part
from metaxlm.experiments.claims.sentences import (
    Numbers,
    decide_all,
    explain,
    list_p_values,
    name_basis,
)
from metaxlm.experiments.names import display_name, title_task
from metaxlm.experiments.series import find_mean
from metaxlm.experiments.wins import ALPHA, EQUAL, find_sign_p_value
from metaxlm.languages import language_name

Group = tuple[str, list[Part]]
"""A name, and what is averaged under it."""


def check_units(
    evidence: Evidence,
    first: str,
    second: str,
    tasks: Sequence[str],
    at_least: int,
    languages: Sequence[str],
    directions: bool = False,
) -> Judgment:
    """The first variant is better in at least so many languages of tasks, or directions."""
    variants = [first, second]
    evidence.require_variants(variants)
    groups = _list_directions(tasks, languages) if directions else _list_cells(tasks, languages)
    learned = [k for k, (_, parts) in enumerate(groups) if _is_learned(evidence, variants, parts)]
    contrasts = [contrast(evidence, first, second, parts) for _, parts in groups]
    names = [name for name, _ in groups]
    better = [k for k in learned if contrasts[k].value > EQUAL]
    worse = [k for k in learned if contrasts[k].value < -EQUAL]
    p_value = find_sign_p_value(len(better), len(worse)) if evidence.tested else 0.0
    losses = list_p_values([contrasts[k] for k in learned], -1)
    losses += [1.0] * (len(groups) - len(learned))
    is_lost = find_joint_p_value(losses, len(groups) - at_least + 1) < ALPHA
    outcome: Outcome = "cannot be told"
    if any(found.p_value is None for found in contrasts):
        pass  # the counts of one seed may be those of a training that did not catch on
    elif is_lost or (p_value < ALPHA and len(worse) > len(better)):
        outcome = "fails"
    elif p_value < ALPHA and len(better) >= at_least:
        outcome = "holds"
    numbers: Numbers = [("better", f"{len(better)} of {len(groups)}")]
    numbers += [("sign test", write_p_value(p_value))] if evidence.tested else []
    numbers += [
        (name, f"{found.describe()}{'' if k in learned else ' (at the level of guessing)'}")
        for k, (name, found) in enumerate(zip(names, contrasts, strict=True))
    ]
    clear = [sum(contrasts[k].direction == sign for k in learned) for sign in (1, -1)]
    against = f"; behind in {', '.join(names[k] for k in worse)}" if worse else ""
    idle = len(groups) - len(learned)
    aside = f" In {idle} neither is above guessing or the most frequent label." if idle else ""
    reason = (
        f"{display_name(first)} is ahead of {display_name(second)} in {len(better)} of "
        f"{len(groups)}, {clear[0]} of them by a "
        f"test of their own, and clearly behind in {clear[1]} ({name_basis(contrasts)}){against}."
    )
    return Judgment(outcome, tuple(numbers), reason + aside)


def check_similar(
    evidence: Evidence,
    variants: Sequence[str],
    tasks: Sequence[str],
    similar: Sequence[Sequence[str]],
    dissimilar: Sequence[Sequence[str]],
) -> Judgment:
    """Transfer between similar languages scores higher than between others, in all variants."""
    evidence.require_variants(variants)
    numbers: Numbers = []
    found = []
    for variant in variants:
        near, far = (
            [Part(task, units=((a, b),)) for a, b in units for task in tasks]
            for units in (similar, dissimilar)
        )
        if not _is_learned(evidence, [variant], near):
            raise MissingEvidenceError(
                f"At the level of guessing: the transfer of {display_name(variant)}"
            )
        compared = _contrast_directions(evidence, variant, near, far)
        numbers.append((f"{display_name(variant)}: similar less dissimilar", compared.describe()))
        found.append(compared)
    return Judgment(decide_all(found), tuple(numbers), explain(found))


def _contrast_directions(
    evidence: Evidence, variant: str, near: Sequence[Part], far: Sequence[Part]
) -> Contrast:
    one, two = (evidence.average([variant], parts)[variant] for parts in (near, far))
    by_unit = [
        find_mean(next(iter(a.values()))) - find_mean(next(iter(b.values())))
        for a, b in zip(one[1], two[1], strict=True)
    ]
    value = find_mean(one[0]) - find_mean(two[0])
    seeds = [list(series.values()) for series, _ in (one, two)]
    names = (f"{display_name(variant)} between similar languages", "between dissimilar ones")
    return contrast_values(evidence, *names, value, seeds, by_unit)


def _is_learned(evidence: Evidence, variants: Sequence[str], parts: Sequence[Part]) -> bool:
    return any(evidence.is_learned(variants, part) for part in parts)


def _list_cells(tasks: Sequence[str], languages: Sequence[str]) -> list[Group]:
    """Return every language of every task, trained and tested in the same one."""
    return [
        (
            f"{title_task(task)}, {language_name(code)}",
            [Part(task, "supervised", units=((code, code),))],
        )
        for code in languages
        for task in tasks
    ]


def _list_directions(tasks: Sequence[str], languages: Sequence[str]) -> list[Group]:
    """Return every pair of training and test language, over all tasks."""
    return [
        (
            f"{one}→{two}",
            [
                Part(task, "supervised" if one == two else "transfer", units=((one, two),))
                for task in tasks
            ],
        )
        for one in languages
        for two in languages
    ]
