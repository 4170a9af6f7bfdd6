"""Choose the threshold of mining on known pairs, and measure its precision on others.

Known pairs are mixed into the two texts to be mined. A third of them enters with both sentences, a
third with the source only and a third with the target only: the latter are distractors, because a
text has many sentences without a translation. One half of the known pairs (the even ones, counted
from 0) chooses the threshold, the other half measures it. Mined pairs without a known sentence do
not count: whether they are right is unknown.
Shapes: P known pairs, N sources, M targets, D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.probe.nearest import FaissIndex, Vectors
from metaxlm.probe.retrieval import (
    Margin,
    MinedPairs,
    MiningScores,
    Mode,
    mine_pairs,
    score_mining,
    tune_threshold,
)

FEWEST_PAIRS = 60
"""Known pairs that are needed: ten whole ones to choose, and ten to measure."""


@dataclass(frozen=True)
class Calibration:
    """A threshold, and what it reaches on the known pairs that did not choose it."""

    threshold: float
    scores: MiningScores
    false_rate: float  # share of the sources without a partner that got one

    def count_wrong(self, num_sources: int, num_found: int) -> int:
        """Return how many of the pairs found in a text are expected to be wrong."""
        return min(num_found, round(self.false_rate * num_sources))


def calibrate(
    known_source_PD: Vectors,
    known_target_PD: Vectors,
    texts: tuple[Vectors, Vectors] | None = None,
    *,
    precision: float | None = None,
    threshold: float | None = None,
    margin: Margin = "ratio",
    k: int = 4,
    mode: Mode = "mutual",
    device: torch.device | None = None,
    faiss_index: FaissIndex | None = None,
    title: str = "",
) -> Calibration:
    """Measure a threshold; without one, take the lowest with a precision, or that of the best F1.

    `texts` are the vectors of the sources and targets to be mined.
    """
    num_pairs = len(known_source_PD)
    if num_pairs != len(known_target_PD) or num_pairs < FEWEST_PAIRS:
        raise MetaXLMError(
            f"calibration: {num_pairs:,} known sources and {len(known_target_PD):,} targets; give "
            f"at least {FEWEST_PAIRS} pairs"
        )
    numbers_P = torch.arange(num_pairs)
    role_P = numbers_P // 2 % 3
    own_source, own_target = numbers_P[role_P != 2], numbers_P[role_P != 1]
    first, second = texts if texts is not None else (None, None)
    found = mine_pairs(
        _join(known_source_PD, own_source, first), _join(known_target_PD, own_target, second),
        margin=margin, k=k, mode=mode, device=device, faiss_index=faiss_index, title=title,
    )  # fmt: skip
    # Sentences of the texts have the number -1.
    source_R, target_R = (
        _name(rows_R, own)
        for rows_R, own in ((found.source_P, own_source), (found.target_P, own_target))
    )
    named = MinedPairs(source_R, target_R, found.score_P)
    owner_R = torch.where(source_R >= 0, source_R, target_R)
    halves = [named.take((owner_R >= 0) & (owner_R % 2 == half)) for half in (0, 1)]
    whole = numbers_P[role_P == 0]
    gold = [[(p, p) for p in whole[whole % 2 == half].tolist()] for half in (0, 1)]
    if threshold is None and precision is None:
        threshold = tune_threshold(halves[0], gold[0])[0]
    elif threshold is None:
        assert precision is not None
        threshold = _find_threshold(halves[0], precision)
    kept = halves[1].cut(threshold)
    is_alone_P = (role_P == 1) & (numbers_P % 2 == 1)
    is_false_R = (kept.source_P >= 0) & is_alone_P[kept.source_P]
    false_rate = float(is_false_R.sum() / is_alone_P.sum())
    return Calibration(threshold, score_mining(kept, gold[1]), false_rate)


def _find_threshold(found: MinedPairs, precision: float) -> float:
    """Return the lowest score down to which enough pairs are right."""
    is_right_R = found.source_P == found.target_P
    reached_R = is_right_R.double().cumsum(dim=0) / torch.arange(1, len(found) + 1)
    # A threshold cannot separate pairs of equal scores.
    is_last_R = torch.ones(len(found), dtype=torch.bool)
    is_last_R[:-1] = found.score_P[1:] != found.score_P[:-1]
    good = ((reached_R >= precision) & is_last_R).nonzero()
    if not len(good):
        best = float(reached_R.max()) if len(found) else 0.0
        raise MetaXLMError(
            f"precision {precision:g}: no threshold reaches it on the known pairs, the best has "
            f"{best:.2f}; ask for less, or use a better model"
        )
    return float(found.score_P[int(good[-1])])


def _join(known_PD: Vectors, rows: Tensor, text_ND: Vectors | None) -> Tensor:
    chosen_PD = torch.as_tensor(known_PD)[rows]
    return chosen_PD if text_ND is None else torch.cat([chosen_PD, torch.as_tensor(text_ND)])


def _name(rows_R: Tensor, known: Tensor) -> Tensor:
    """Turn rows of one side of the search into numbers of known pairs; -1 for rows of the text."""
    is_known_R = rows_R < len(known)
    return torch.where(is_known_R, known[rows_R.clamp(max=len(known) - 1)], -1)
