"""Sentence retrieval by layer (the paper's Tatoeba experiment, Section 4.4), and bitext mining.

Retrieval: each sentence searches its translation among all sentences of the other side by cosine,
from the language into English and back; the paper's figure averages both directions. Mining finds
translations in two texts that are not parallel: a pair is scored by the margin of its cosine over
the neighborhoods of both sentences (Artetxe and Schwenk, 2019).
Shapes: N sources, M targets, D hidden, Y choices of layers, k neighbors, P pairs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.parallel import ParallelSentences
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.pretrain.distributed import choose_device
from metaxlm.probe.corrections import NONE, Corrections
from metaxlm.probe.embedding import EmbedOptions, choose_layers, embed_texts
from metaxlm.probe.nearest import FaissIndex, Nearest, Vectors, find_both, find_by_faiss
from metaxlm.probe.pool import LayerChoice

Margin = Literal["ratio", "distance", "absolute"]
"""Divide the cosine by the mean of the neighborhoods, subtract the mean, or use the cosine."""
Mode = Literal["mutual", "forward", "backward", "max"]
"""Pairs: mutual best ones, the best of each source or target, or the highest of both, each once."""
NUM_EXAMPLES = 4  # per layer


@dataclass(frozen=True)
class RetrievalExample:
    """A sentence of the language, its English translation, and the sentence that was found."""

    query: str
    expected: str
    found: str
    similarity: float  # cosine between the query and the found sentence


@dataclass(frozen=True)
class LayerRetrieval:
    """Accuracy@1 of one choice of layers."""

    choice: LayerChoice
    hits_N2: Tensor  # whether each pair is found, from the language and from English
    examples: tuple[RetrievalExample, ...] = ()

    @property
    def layer(self) -> int:
        """The layer, or the last of several."""
        return self.choice.numbers[-1]

    @property
    def accuracy_to_source(self) -> float:
        """From the language into English (xx -> en)."""
        return float(self.hits_N2[:, 0].double().mean())

    @property
    def accuracy_from_source(self) -> float:
        """From English into the language (en -> xx)."""
        return float(self.hits_N2[:, 1].double().mean())

    @property
    def accuracy(self) -> float:
        """Mean of both directions, as in the paper's figure."""
        return (self.accuracy_to_source + self.accuracy_from_source) / 2


@dataclass(frozen=True)
class RetrievalOutcome:
    """The layers of one language; layer 0 is the embedding output."""

    language: str
    num_pairs: int
    layers: tuple[LayerRetrieval, ...]


def measure_retrieval(
    model: AnyEncoder,
    sentences: ParallelSentences,
    device: torch.device | None = None,
    *,
    layers: Sequence[LayerChoice] | None = None,
    batch_tokens: int = 16_384,
    corrections: Corrections = NONE,
) -> RetrievalOutcome:
    """Embed both sides once, and retrieve in both directions with each layer (default: all).

    Corrections are fitted on each side; the paper has none.
    """
    num_pairs = len(sentences.foreign)
    device = device or choose_device("auto")
    # Both sides at once: more sentences of each length need less padding.
    parts = [[*sentences.foreign, *sentences.english]]
    if corrections != NONE:
        parts = [list(sentences.foreign), list(sentences.english)]
    options: EmbedOptions = {
        "layers": layers,
        "batch_tokens": batch_tokens,
        "title": f"tatoeba {sentences.language}: embed",
        "corrections": corrections,
    }
    vectors_YND = torch.cat([embed_texts(model, part, device, **options) for part in parts], dim=1)
    shown = torch.linspace(0, num_pairs - 1, min(NUM_EXAMPLES, num_pairs)).long().tolist()
    outcomes: list[LayerRetrieval] = []
    for choice, vectors_ND in zip(choose_layers(model, layers), vectors_YND, strict=True):
        hits_N2, found = measure_pairs(vectors_ND[:num_pairs], vectors_ND[num_pairs:], device)
        best, cosines = found.indices_Qk[:, 0].tolist(), found.similarities_Qk[:, 0].tolist()
        foreign, english = sentences.foreign, sentences.english
        examples = (
            RetrievalExample(foreign[k], english[k], english[best[k]], cosines[k]) for k in shown
        )
        outcomes.append(LayerRetrieval(choice, hits_N2, tuple(examples)))
    return RetrievalOutcome(sentences.language, num_pairs, tuple(outcomes))


def measure_pairs(
    source_ND: Vectors, target_ND: Vectors, device: torch.device | None = None
) -> tuple[Tensor, Nearest]:
    """Return whether row i of each side finds row i of the other, [N, 2], and what sources find."""
    if len(source_ND) != len(target_ND):
        raise MetaXLMError(
            f"{len(source_ND):,} vectors on one side and {len(target_ND):,} on the other; pairs "
            "need equally many"
        )
    found = find_both(source_ND, target_ND, device=device)
    own_N = torch.arange(len(source_ND))
    return torch.stack([side.indices_Qk[:, 0] == own_N for side in found], dim=1), found[0]


@dataclass(frozen=True)
class MinedPairs:
    """Pairs in descending order of their scores; ties in the order of the sources."""

    source_P: Tensor  # rows of the sources, counted from 0
    target_P: Tensor
    score_P: Tensor

    def __len__(self) -> int:
        return len(self.score_P)

    def take(self, rows: Tensor) -> Self:
        """Return the pairs of an index or mask."""
        return type(self)(self.source_P[rows], self.target_P[rows], self.score_P[rows])

    def cut(self, threshold: float) -> Self:
        """Return the pairs that score at least as high."""
        return self.take(self.score_P >= threshold)

    def list_rows(self) -> list[tuple[int, int]]:
        """Return the rows of source and target of each pair."""
        return list(zip(self.source_P.tolist(), self.target_P.tolist(), strict=True))


@dataclass(frozen=True)
class MiningScores:
    """Mined pairs compared with gold pairs."""

    num_right: int
    num_found: int
    num_gold: int

    @property
    def precision(self) -> float:
        """The share of the found pairs that are gold pairs."""
        return self.num_right / max(1, self.num_found)

    @property
    def recall(self) -> float:
        """The share of the gold pairs that were found."""
        return self.num_right / max(1, self.num_gold)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.num_right / max(1, self.num_found + self.num_gold)


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
    """Find the translations of sources by the margin over k neighbors; exact without faiss."""
    for name, value, known in (("margin", margin, Margin), ("mode", mode, Mode)):
        if value not in get_args(known):
            raise MetaXLMError(f"{name} {value!r}: use {', '.join(get_args(known))}")
    if faiss_index is None:
        forward, backward = find_both(source_ND, target_MD, k=k, device=device, title=title)
    else:
        forward = find_by_faiss(source_ND, target_MD, faiss_index, k=k, title=title)
        backward = find_by_faiss(target_MD, source_ND, faiss_index, k=k, title=title)
    mean_N, mean_M = (side.similarities_Qk.double().mean(dim=1) for side in (forward, backward))
    target_N, score_N = _pick_best(forward, mean_N, mean_M, margin)
    source_M, score_M = _pick_best(backward, mean_M, mean_N, margin)
    rows_N, rows_M = torch.arange(len(target_N)), torch.arange(len(source_M))
    found = MinedPairs(rows_N, target_N, score_N)
    if mode == "mutual":
        found = found.take(source_M[target_N] == rows_N)
    elif mode == "backward":
        found = MinedPairs(source_M, rows_M, score_M)
    elif mode == "max":
        sources, targets = torch.cat([rows_N, source_M]), torch.cat([target_N, rows_M])
        both = MinedPairs(sources, targets, torch.cat([score_N, score_M]))
        found = _take_each_once(_sort_pairs(both))
    found = _sort_pairs(found)
    return found if threshold is None else found.cut(threshold)


def score_mining(found: MinedPairs, gold: Collection[tuple[int, int]]) -> MiningScores:
    """Compare pairs with gold pairs, both counted from 0; duplicates count once."""
    true, pairs = set(gold), set(found.list_rows())
    return MiningScores(len(pairs & true), len(pairs), len(true))


def tune_threshold(
    found: MinedPairs, gold: Collection[tuple[int, int]]
) -> tuple[float, MiningScores]:
    """Return the (highest) threshold with the best F1 on the gold pairs: an upper bound."""
    true = set(gold)
    pairs, scores = found.list_rows(), found.score_P.tolist()
    best = float("inf"), MiningScores(0, 0, len(true))
    num_right = 0
    for number, (pair, score) in enumerate(zip(pairs, scores, strict=True), start=1):
        num_right += pair in true
        # A threshold cannot separate pairs of equal scores.
        if number < len(scores) and scores[number] == score:
            continue
        reached = MiningScores(num_right, number, len(true))
        if reached.f1 > best[1].f1:
            best = score, reached
    return best


def _pick_best(
    nearest: Nearest, mean_Q: Tensor, mean_K: Tensor, margin: Margin
) -> tuple[Tensor, Tensor]:
    score_Qk = nearest.similarities_Qk.double()
    around_Qk = (mean_Q[:, None] + mean_K[nearest.indices_Qk]) / 2
    if margin == "ratio":
        if len(low := (around_Qk <= 0).any(dim=1).nonzero()):
            raise MetaXLMError(
                f"the neighbors of sentence {int(low[0]) + 1:,} have cosines of 0 or less on "
                "average, which the margin cannot divide by; use the margin distance"
            )
        score_Qk = score_Qk / around_Qk
    elif margin == "distance":
        score_Qk = score_Qk - around_Qk
    best_Q1 = score_Qk.argmax(dim=1, keepdim=True)
    return nearest.indices_Qk.gather(1, best_Q1)[:, 0], score_Qk.gather(1, best_Q1)[:, 0]


def _sort_pairs(pairs: MinedPairs) -> MinedPairs:
    order = np.lexsort((pairs.target_P, pairs.source_P, -pairs.score_P))
    return pairs.take(torch.from_numpy(order))


def _take_each_once(pairs: MinedPairs) -> MinedPairs:
    sources, targets = set[int](), set[int]()
    kept = []
    for place, (source, target) in enumerate(pairs.list_rows()):
        if source not in sources and target not in targets:
            sources.add(source)
            targets.add(target)
            kept.append(place)
    return pairs.take(torch.tensor(kept, dtype=torch.long))
