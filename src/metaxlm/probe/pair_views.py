"""What a person looks at: sentence pairs come in, their links layer by layer and neighbors go out.

Both probes of the paper's Section 4.4 on single sentences: for each pair and layer the weights by
which words are linked, the links, and the sentences of the other side that lie nearest by cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from metaxlm.finetune.readers.parallel import AlignedPair
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.align_methods import AlignSettings
from metaxlm.probe.alignment import PairScores, score_words
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.layers import LayerChoice
from metaxlm.probe.link_spans import Links
from metaxlm.probe.nearest import find_nearest
from metaxlm.probe.pair_files import SentencePair
from metaxlm.progress import track


@dataclass(frozen=True)
class Neighbor:
    """A sentence of the other side, and how near it is."""

    place: int
    """Its pair among those searched, counted from 0."""
    text: str
    similarity: float
    is_right: bool
    """It is the translation that the file gives, or reads the same."""


@dataclass(frozen=True)
class LayerNeighbors:
    """The nearest sentences of a pair in one layer, nearest first."""

    of_source: tuple[Neighbor, ...]
    """Target sentences near the source sentence."""
    of_target: tuple[Neighbor, ...]
    """Source sentences near the target sentence."""


@dataclass(frozen=True)
class PairView:
    """One sentence pair, with what every layer makes of it."""

    number: int
    """Its line in the user's file."""
    pair: SentencePair
    layers: tuple[PairScores, ...]
    neighbors: tuple[LayerNeighbors, ...]
    """As many as layers, or none where nothing was searched."""
    gold: AlignedPair | None = None


def collect_views(
    model: AnyEncoder,
    pairs: Sequence[SentencePair],
    device: torch.device,
    *,
    settings: AlignSettings,
    layers: Sequence[LayerChoice],
    count: int,
    num_searched: int,
    k: int = 3,
    gold: Sequence[AlignedPair] | None = None,
) -> tuple[PairView, ...]:
    """Look at the first `count` pairs in the given layers.

    Neighbors come from the first `num_searched` pairs, and from those that are shown. With 0 of
    them, or a single pair, nothing is searched.
    """
    shown = pairs[:count]
    searched = pairs[: max(num_searched, len(shown))] if num_searched else []
    found = _find_neighbors(model, searched, len(shown), device, layers, k)
    views = []
    with track("look at pairs", len(shown), "pairs") as advance:
        for place, pair in enumerate(shown):
            words = pair.source, pair.target
            scores = score_words(model, words, device, settings=settings, layers=layers)
            neighbors = tuple(layer[place] for layer in found)
            known = None if gold is None else gold[place]
            views.append(PairView(place + 1, pair, tuple(scores), neighbors, known))
            advance()
    return tuple(views)


def _find_neighbors(
    model: AnyEncoder,
    pairs: Sequence[SentencePair],
    count: int,
    device: torch.device,
    layers: Sequence[LayerChoice],
    k: int,
) -> list[list[LayerNeighbors]]:
    """Return neighbors by layer and pair."""
    if len(pairs) < 2:
        return []
    sources = [pair.source_text for pair in pairs]
    targets = [pair.target_text for pair in pairs]
    texts = [*sources, *targets]
    vectors_YND = embed_texts(model, texts, device, layers=layers, title="neighbors")
    result = []
    for vectors_ND in vectors_YND:
        source_ND, target_ND = vectors_ND.split(len(pairs))
        forward = _name_neighbors(source_ND[:count], target_ND, targets, k)
        backward = _name_neighbors(target_ND[:count], source_ND, sources, k)
        result.append([LayerNeighbors(*both) for both in zip(forward, backward, strict=True)])
    return result


def _name_neighbors(
    queries_QD: torch.Tensor, keys_KD: torch.Tensor, texts: Sequence[str], k: int
) -> list[tuple[Neighbor, ...]]:
    nearest = find_nearest(queries_QD, keys_KD, k=k)
    return [
        tuple(
            Neighbor(place, texts[place], similarity, texts[place] == texts[query])
            for place, similarity in zip(places, similarities, strict=True)
        )
        for query, (places, similarities) in enumerate(
            zip(nearest.indices_Qk.tolist(), nearest.similarities_Qk.tolist(), strict=True)
        )
    ]


def group_words(
    links: Links, num_source: int, num_target: int
) -> tuple[list[int | None], list[int | None]]:
    """Number the words that hang together by links, in the order of the source; None is unlinked.

    Words of one number get one color: a source word, all that it is linked to, and what these are
    linked to in turn.
    """
    partners: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i, j in links:
        partners.setdefault((0, i), []).append((1, j))
        partners.setdefault((1, j), []).append((0, i))
    groups: tuple[list[int | None], list[int | None]] = ([None] * num_source, [None] * num_target)
    number = 0
    for start in sorted(partners):
        waiting = [start]
        is_new = groups[start[0]][start[1]] is None
        while waiting:
            side, place = waiting.pop()
            if groups[side][place] is None:
                groups[side][place] = number
                waiting += partners[side, place]
        number += is_new
    return groups
