"""Dynamic masking, as fairseq's RoBERTa does it.

Of a sequence of L tokens int(p L + U[0, 1)) are chosen; every real position is a candidate, special
tokens included unless told otherwise. Of the chosen, 80 % become `<mask>`, 10 % a token drawn
uniformly from the ordinary vocabulary, and 10 % stay. A pure function of its random generator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MASKED_SHARE = 0.8
_REPLACED_SHARE = 0.1


@dataclass(frozen=True)
class Masked:
    """A batch after masking: what the model sees, and what it must predict where."""

    ids: NDArray[np.int64]
    """[B, L] the input."""
    rows: NDArray[np.int64]
    """[M] flat indices of the chosen positions."""
    labels: NDArray[np.int64]
    """[M] the original tokens there."""


def mask_tokens(
    ids: NDArray[np.int64],
    candidates: NDArray[np.bool_],
    probability: float,
    mask_id: int,
    ordinary_ids: NDArray[np.int64],
    random: np.random.Generator,
) -> Masked:
    """Choose positions among the candidates of a [B, L] batch and hide them."""
    num_candidates = candidates.sum(axis=1)
    num_chosen = np.floor(probability * num_candidates + random.random(len(ids)))
    keys = np.where(candidates, random.random(ids.shape), np.inf)
    ranks = keys.argsort(axis=1).argsort(axis=1)
    rows = np.flatnonzero(ranks < np.minimum(num_chosen, num_candidates)[:, None])

    labels = ids.reshape(-1)[rows]
    fate = random.random(len(rows))
    replacements = random.choice(ordinary_ids, len(rows))
    hidden = np.where(fate < _MASKED_SHARE, mask_id, labels)
    replaced = (fate >= _MASKED_SHARE) & (fate < _MASKED_SHARE + _REPLACED_SHARE)
    hidden = np.where(replaced, replacements, hidden)

    masked_ids = ids.copy()
    masked_ids.reshape(-1)[rows] = hidden
    return Masked(masked_ids, rows, labels)
