"""Two plans side by side: which rows start from something else, and why.

Comes in: two plans, of the same vocabulary or of two that share tokens. Goes out: a `Comparison` of
rows by what became of them, so that a change of the recipe, of a dictionary or of the vocabulary
can be judged before anything is trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metaxlm.init.plan import Origin, Plan


@dataclass(frozen=True)
class Change:
    """One token whose row starts from something else."""

    before: Origin
    after: Origin


@dataclass(frozen=True)
class Comparison:
    """What differs between two plans, token by token."""

    num_same: int
    """Tokens with the same origin in both."""
    changes: Mapping[tuple[str, str], tuple[Change, ...]]
    """Changed tokens by the rules before and after, most frequent pair first."""
    only_before: tuple[str, ...]
    """Tokens that only the first plan has."""
    only_after: tuple[str, ...]
    """Tokens that only the second plan has."""

    @property
    def num_changed(self) -> int:
        """Return how many tokens start from something else."""
        return sum(map(len, self.changes.values()))


def compare_plans(before: Plan, after: Plan) -> Comparison:
    """Compare the origins of all tokens that both plans have."""
    row_before = {token: row for row, token in enumerate(before.tokens)}
    row_after = {token: row for row, token in enumerate(after.tokens)}
    num_same = 0
    changes: dict[tuple[str, str], list[Change]] = {}
    for token, row in row_before.items():
        if token not in row_after:
            continue
        old, new = before.origin(row), after.origin(row_after[token])
        # Source rows are compared by token: the two sources may number theirs differently.
        if (old.rule, old.source_tokens, old.weights) == (new.rule, new.source_tokens, new.weights):
            num_same += 1
        else:
            changes.setdefault((old.rule, new.rule), []).append(Change(old, new))
    ordered = sorted(changes.items(), key=lambda item: (-len(item[1]), item[0]))
    return Comparison(
        num_same,
        {rules: tuple(items) for rules, items in ordered},
        tuple(token for token in row_before if token not in row_after),
        tuple(token for token in row_after if token not in row_before),
    )
