"""Sentence retrieval: translations come in, accuracy@1 by layer and direction goes out.

The paper's Tatoeba experiment (Section 4.4 and its figure): each sentence looks for its translation
among all sentences of the other side by cosine similarity, from the language into English and from
English into the language; the figure averages both. Shapes: Q queries, K keys, D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.features.embedding import embed_texts
from metaxlm.model.encoder import Encoder
from metaxlm.model.foreign import ForeignEncoder
from metaxlm.tasks.readers import ParallelSentences


@dataclass(frozen=True)
class RetrievalExample:
    """One sentence of the language, the English one it should find, and the one it found."""

    query: str
    expected: str
    found: str
    similarity: float
    """Cosine between the query and what it found."""


@dataclass(frozen=True)
class LayerRetrieval:
    """Accuracy@1 of one layer."""

    layer: int
    accuracy_to_source: float
    """From the language into English (xx -> en)."""
    accuracy_from_source: float
    """From English into the language (en -> xx)."""
    examples: tuple[RetrievalExample, ...]

    @property
    def accuracy(self) -> float:
        """Mean of both directions, which is what the paper's figure shows."""
        return (self.accuracy_to_source + self.accuracy_from_source) / 2


@dataclass(frozen=True)
class RetrievalOutcome:
    """All layers on one language; layer 0 is the embedding output."""

    language: str
    num_pairs: int
    layers: tuple[LayerRetrieval, ...]


def measure_retrieval(
    encoder: Encoder | ForeignEncoder,
    tokenizer: PreTrainedTokenizerBase,
    sentences: ParallelSentences,
    device: torch.device,
    *,
    batch_tokens: int = 16_384,
    num_examples: int = 4,
) -> RetrievalOutcome:
    """Embed both sides once, and retrieve in both directions with every layer."""
    num_pairs = len(sentences.foreign)
    # Both sides in one go: more sentences of each length, so less padding.
    vectors_YND = embed_texts(
        encoder,
        tokenizer,
        [*sentences.foreign, *sentences.english],
        device,
        batch_tokens=batch_tokens,
        title=f"tatoeba {sentences.language}: embed",
    )
    chosen = torch.linspace(0, num_pairs - 1, min(num_examples, num_pairs)).long().tolist()
    layers: list[LayerRetrieval] = []
    for layer, vectors_ND in enumerate(vectors_YND):
        vectors_ND = vectors_ND.to(device)
        foreign_ND, english_ND = vectors_ND[:num_pairs], vectors_ND[num_pairs:]
        found, similarities = find_nearest(foreign_ND, english_ND)
        back, _ = find_nearest(english_ND, foreign_ND)
        examples = tuple(
            RetrievalExample(
                query=sentences.foreign[k],
                expected=sentences.english[k],
                found=sentences.english[int(found[k])],
                similarity=float(similarities[k]),
            )
            for k in chosen
        )
        layers.append(LayerRetrieval(layer, _share_right(found), _share_right(back), examples))
    return RetrievalOutcome(sentences.language, num_pairs, tuple(layers))


def find_nearest(
    queries_QD: Tensor, keys_KD: Tensor, *, query_chunk: int = 1_024, key_chunk: int = 8_192
) -> tuple[Tensor, Tensor]:
    """Return for each query the index of the key with the highest cosine, and that cosine.

    Only a chunk of the similarity matrix exists at a time. Of equal keys the first wins.
    """
    indices, similarities = [], []
    for first in range(0, len(queries_QD), query_chunk):
        queries_CD = F.normalize(queries_QD[first : first + query_chunk], dim=-1)
        best_C = queries_CD.new_full((len(queries_CD),), float("-inf"))
        index_C = torch.zeros(len(queries_CD), dtype=torch.long, device=queries_CD.device)
        for start in range(0, len(keys_KD), key_chunk):
            keys_CD = F.normalize(keys_KD[start : start + key_chunk], dim=-1)
            top_C, place_C = (queries_CD @ keys_CD.T).max(dim=1)
            better_C = top_C > best_C
            best_C = torch.where(better_C, top_C, best_C)
            index_C = torch.where(better_C, place_C + start, index_C)
        indices.append(index_C.cpu())
        similarities.append(best_C.cpu())
    return torch.cat(indices), torch.cat(similarities)


def _share_right(found_N: Tensor) -> float:
    return float((found_N == torch.arange(len(found_N))).double().mean())
