"""Sentence retrieval: translations come in, accuracy@1 by layer and direction goes out.

The paper's Tatoeba experiment (Section 4.4 and its figure): each sentence looks for its translation
among all sentences of the other side by cosine similarity, from the language into English and from
English into the language; the figure averages both. Shapes: N pairs, D hidden, Y choices of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.parallel import ParallelSentences
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.pretrain.distributed import choose_device
from metaxlm.probe.embedding import choose_layers, embed_texts
from metaxlm.probe.layers import LayerChoice
from metaxlm.probe.nearest import Nearest, find_both
from metaxlm.probe.vector_side import Vectors


@dataclass(frozen=True)
class RetrievalExample:
    """One sentence of the language, the English one it should find, and the one it found."""

    query: str
    expected: str
    found: str
    similarity: float
    """Cosine between the query and what it found."""


@dataclass(frozen=True)
class PairAccuracy:
    """How often row i of one side finds row i of the other, each way."""

    hits_N2: Tensor
    """Whether each row finds its other half, forward and backward."""
    found: Nearest
    """What the rows of the first side find."""

    @property
    def forward(self) -> float:
        """Share of the first side's rows that find theirs."""
        return _share(self.hits_N2[:, 0])

    @property
    def backward(self) -> float:
        """Share of the second side's rows that find theirs."""
        return _share(self.hits_N2[:, 1])


@dataclass(frozen=True)
class LayerRetrieval:
    """Accuracy@1 of one choice of layers."""

    choice: LayerChoice
    hits_N2: Tensor
    """Whether each pair is found, from the language and from English."""
    examples: tuple[RetrievalExample, ...] = ()

    @property
    def accuracy_to_source(self) -> float:
        """From the language into English (xx -> en)."""
        return _share(self.hits_N2[:, 0])

    @property
    def accuracy_from_source(self) -> float:
        """From English into the language (en -> xx)."""
        return _share(self.hits_N2[:, 1])

    @property
    def layer(self) -> int:
        """The layer, or the last of several."""
        return self.choice.numbers[-1]

    @property
    def accuracy(self) -> float:
        """Mean of both directions, which is what the paper's figure shows."""
        return (self.accuracy_to_source + self.accuracy_from_source) / 2


@dataclass(frozen=True)
class RetrievalOutcome:
    """All asked layers on one language; layer 0 is the embedding output."""

    language: str
    num_pairs: int
    layers: tuple[LayerRetrieval, ...]


def measure_retrieval(
    model: AnyEncoder,
    sentences: ParallelSentences,
    device: torch.device | None = None,
    *,
    layers: Sequence[LayerChoice] | None = None,
    specials: bool = True,
    batch_tokens: int = 16_384,
    num_examples: int = 4,
) -> RetrievalOutcome:
    """Embed both sides once, and retrieve both ways with every layer, or the asked ones."""
    num_pairs = len(sentences.foreign)
    device = device or choose_device("auto")
    # Both sides in one go: more sentences of each length, so less padding.
    vectors_YND = embed_texts(
        model,
        [*sentences.foreign, *sentences.english],
        device,
        layers=layers,
        specials=specials,
        batch_tokens=batch_tokens,
        title=f"tatoeba {sentences.language}: embed",
    )
    chosen = torch.linspace(0, num_pairs - 1, min(num_examples, num_pairs)).long().tolist()
    outcomes: list[LayerRetrieval] = []
    for choice, vectors_ND in zip(choose_layers(model, layers), vectors_YND, strict=True):
        right = measure_pairs(vectors_ND[:num_pairs], vectors_ND[num_pairs:], device)
        found = right.found
        examples = tuple(
            RetrievalExample(
                query=sentences.foreign[k],
                expected=sentences.english[k],
                found=sentences.english[int(found.indices_Qk[k, 0])],
                similarity=float(found.similarities_Qk[k, 0]),
            )
            for k in chosen
        )
        outcomes.append(LayerRetrieval(choice, right.hits_N2, examples))
    return RetrievalOutcome(sentences.language, num_pairs, tuple(outcomes))


def measure_pairs(
    source_ND: Vectors, target_ND: Vectors, device: torch.device | None = None
) -> PairAccuracy:
    """Let row i of each side look for row i of the other."""
    if len(source_ND) != len(target_ND):
        raise MetaXLMError(
            f"{len(source_ND):,} vectors on one side and {len(target_ND):,} on the other; pairs "
            f"need equally many"
        )
    found = find_both(source_ND, target_ND, device=device)
    own_N = torch.arange(len(source_ND))
    hits_N2 = torch.stack([side.indices_Qk[:, 0] == own_N for side in found], dim=1)
    return PairAccuracy(hits_N2, found[0])


def _share(hits_N: Tensor) -> float:
    return float(hits_N.double().mean())
