"""Bitext mining: vectors of two texts come in, pairs of translations with their scores go out.

What the paper's sentence vectors (Section 4.4) are used for: to find the translations in two texts
that are not parallel. A cosine alone favors sentences that are near to everything, so a pair is
judged by its margin over the neighborhoods of both sentences (Artetxe and Schwenk, 2019, "Margin-
based Parallel Corpus Mining with Multilingual Sentence Embeddings"). Shapes: N sources, M targets,
D dimensions, k neighbors, P pairs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.probe.faiss_search import FaissIndex, find_by_faiss
from metaxlm.probe.nearest import Nearest, find_both
from metaxlm.probe.vector_side import Vectors

Margin = Literal["ratio", "distance", "absolute"]
"""The cosine divided by the neighborhoods' mean, less the mean, or as it is."""
Mode = Literal["mutual", "forward", "backward", "max"]
"""Which best candidates become pairs: those that are each other's, those of the sources, those of
the targets, or the highest of both as long as neither sentence is taken."""


@dataclass(frozen=True)
class MinedPairs:
    """Pairs, the best first; of equal scores the first source first."""

    source_P: Tensor
    """Rows of the sources, counted from 0."""
    target_P: Tensor
    score_P: Tensor

    def __len__(self) -> int:
        return len(self.score_P)

    def cut(self, threshold: float) -> MinedPairs:
        """Return the pairs that score at least as high."""
        kept_P = self.score_P >= threshold
        return MinedPairs(self.source_P[kept_P], self.target_P[kept_P], self.score_P[kept_P])


@dataclass(frozen=True)
class MiningScores:
    """Mined pairs against the true ones."""

    num_right: int
    num_found: int
    num_gold: int

    @property
    def precision(self) -> float:
        """The share of the found pairs that are true."""
        return self.num_right / self.num_found if self.num_found else 0.0

    @property
    def recall(self) -> float:
        """The share of the true pairs that were found."""
        return self.num_right / self.num_gold if self.num_gold else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        total = self.num_found + self.num_gold
        return 2 * self.num_right / total if total else 0.0


@dataclass(frozen=True)
class TunedThreshold:
    """The threshold of the highest F1 on the very pairs it is judged by: an upper bound."""

    threshold: float
    scores: MiningScores


def mine_pairs(
    source_ND: Vectors,
    target_MD: Vectors,
    *,
    margin: Margin = "ratio",
    k: int = 4,
    mode: Mode = "mutual",
    threshold: float | None = None,
    device: torch.device | None = None,
    faiss_index: FaissIndex | None = None,
    title: str = "",
) -> MinedPairs:
    """Find the translations of sources among targets by the margin over k neighbors.

    The search is exact, unless a faiss index is asked for.
    """
    if faiss_index is None:
        forward, backward = find_both(source_ND, target_MD, k=k, device=device, title=title)
    else:
        forward = find_by_faiss(source_ND, target_MD, faiss_index, k=k, title=title)
        backward = find_by_faiss(target_MD, source_ND, faiss_index, k=k, title=title)
    return choose_pairs(forward, backward, margin=margin, mode=mode, threshold=threshold)


def choose_pairs(
    forward: Nearest,
    backward: Nearest,
    *,
    margin: Margin = "ratio",
    mode: Mode = "mutual",
    threshold: float | None = None,
) -> MinedPairs:
    """Turn the neighbors of both directions (of any search) into pairs."""
    for name, value, known in (("margin", margin, Margin), ("mode", mode, Mode)):
        if value not in get_args(known):
            raise MetaXLMError(f"{name} {value!r}: use {', '.join(get_args(known))}")
    mean_N, mean_M = (side.similarities_Qk.double().mean(dim=1) for side in (forward, backward))
    target_N, score_N = _pick_best(forward, mean_N, mean_M, margin)
    source_M, score_M = _pick_best(backward, mean_M, mean_N, margin)
    rows_N, rows_M = torch.arange(len(target_N)), torch.arange(len(source_M))
    if mode == "mutual":
        is_mutual_N = source_M[target_N] == rows_N
        found = MinedPairs(rows_N[is_mutual_N], target_N[is_mutual_N], score_N[is_mutual_N])
    elif mode == "forward":
        found = MinedPairs(rows_N, target_N, score_N)
    elif mode == "backward":
        found = MinedPairs(source_M, rows_M, score_M)
    else:
        both = MinedPairs(
            torch.cat([rows_N, source_M]),
            torch.cat([target_N, rows_M]),
            torch.cat([score_N, score_M]),
        )
        found = _take_each_once(_sort_pairs(both))
    found = _sort_pairs(found)
    return found if threshold is None else found.cut(threshold)


def score_mining(found: MinedPairs, gold: Collection[tuple[int, int]]) -> MiningScores:
    """Compare pairs with the true ones, both counted from 0; a pair found twice counts once."""
    true = set(gold)
    pairs = set(_list_pairs(found))
    return MiningScores(len(pairs & true), len(pairs), len(true))


def tune_threshold(found: MinedPairs, gold: Collection[tuple[int, int]]) -> TunedThreshold:
    """Find the threshold of the highest F1 on the gold pairs; of equal ones the highest."""
    true = set(gold)
    pairs, scores = _list_pairs(found), found.score_P.tolist()
    best = TunedThreshold(float("inf"), MiningScores(0, 0, len(true)))
    num_right = 0
    for number, (pair, score) in enumerate(zip(pairs, scores, strict=True), start=1):
        num_right += pair in true
        # A threshold cannot part pairs of one score.
        if number < len(scores) and scores[number] == score:
            continue
        judged = MiningScores(num_right, number, len(true))
        if judged.f1 > best.scores.f1:
            best = TunedThreshold(score, judged)
    return best


def _pick_best(
    nearest: Nearest, mean_Q: Tensor, mean_K: Tensor, margin: Margin
) -> tuple[Tensor, Tensor]:
    """Return the neighbor of the highest margin of each row, and that margin."""
    similarity_Qk = nearest.similarities_Qk.double()
    around_Qk = (mean_Q[:, None] + mean_K[nearest.indices_Qk]) / 2
    if margin == "ratio":
        if bool((around_Qk <= 0).any()):
            row = int((around_Qk <= 0).any(dim=1).nonzero()[0]) + 1
            raise MetaXLMError(
                f"the neighbors of sentence {row:,} have cosines of 0 or less on average, which "
                f"the margin cannot divide by; use the margin distance"
            )
        score_Qk = similarity_Qk / around_Qk
    elif margin == "distance":
        score_Qk = similarity_Qk - around_Qk
    else:
        score_Qk = similarity_Qk
    best_Q1 = score_Qk.argmax(dim=1, keepdim=True)
    return nearest.indices_Qk.gather(1, best_Q1)[:, 0], score_Qk.gather(1, best_Q1)[:, 0]


def _sort_pairs(pairs: MinedPairs) -> MinedPairs:
    """Sort by falling score, then by source and target."""
    order = torch.arange(len(pairs))
    for values, descending in (
        (pairs.target_P, False),
        (pairs.source_P, False),
        (pairs.score_P, True),
    ):
        order = order[values[order].sort(stable=True, descending=descending).indices]
    return MinedPairs(pairs.source_P[order], pairs.target_P[order], pairs.score_P[order])


def _take_each_once(pairs: MinedPairs) -> MinedPairs:
    """Go down the list and take a pair if neither of its sentences is taken."""
    sources: set[int] = set()
    targets: set[int] = set()
    kept = []
    for place, (source, target) in enumerate(_list_pairs(pairs)):
        if source not in sources and target not in targets:
            sources.add(source)
            targets.add(target)
            kept.append(place)
    rows = torch.tensor(kept, dtype=torch.long)
    return MinedPairs(pairs.source_P[rows], pairs.target_P[rows], pairs.score_P[rows])


def _list_pairs(pairs: MinedPairs) -> list[tuple[int, int]]:
    return list(zip(pairs.source_P.tolist(), pairs.target_P.tolist(), strict=True))
