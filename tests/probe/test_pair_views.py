from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.finetune.readers import AlignedPair
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.aligners import AlignSettings
from metaxlm.probe.alignment import score_words
from metaxlm.probe.alignment_io import SentencePair
from metaxlm.probe.alignment_page import collect_views, group_words
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.pool import LayerChoice, every_layer
from tests.finetune.conftest import CPU, TEXT, MakeEncoder


def make_pairs() -> list[SentencePair]:
    both = [*zip(TEXT[:3], TEXT[3:6], strict=True), (TEXT[1], TEXT[3]), (TEXT[6], TEXT[8])]
    return [SentencePair(a, b, tuple(a.split()), tuple(b.split())) for a, b in both]


def test_views_are_what_the_probes_give(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    model = AnyEncoder("test", tokenizer, make_encoder(tokenizer))
    pairs = make_pairs()
    layers = (*every_layer(2), LayerChoice((1, 2)))
    settings = AlignSettings(method="argmax", encoding="separate")
    nothing: frozenset[tuple[int, int]] = frozenset()
    gold = [AlignedPair(pair.source, pair.target, nothing, nothing) for pair in pairs]
    views = collect_views(
        model, pairs, CPU, settings=settings, layers=layers, count=3, num_searched=99, gold=gold
    )
    assert [view.number for view in views] == [1, 2, 3]
    sources = embed_texts(model, [pair.source_text for pair in pairs], CPU, layers=layers)
    targets = embed_texts(model, [pair.target_text for pair in pairs], CPU, layers=layers)
    for place, view in enumerate(views):
        assert view.pair == pairs[place]
        assert view.gold == gold[place]
        words = view.pair.source, view.pair.target
        expected = score_words(model, words, CPU, settings=settings, layers=layers)
        assert [scores.layer for scores in view.layers] == list(layers)
        for scores, wanted in zip(view.layers, expected, strict=True):
            assert scores.links == wanted.links
            assert np.array_equal(scores.weights, wanted.weights)
        for layer, neighbors in enumerate(view.neighbors):
            cosines = torch.cosine_similarity(sources[layer, place], targets[layer], dim=-1)
            back = torch.cosine_similarity(targets[layer, place], sources[layer], dim=-1)
            for found, wanted_row in ((neighbors.of_source, cosines), (neighbors.of_target, back)):
                values = [near.similarity for near in found]
                assert np.allclose(values, wanted_row.sort(descending=True).values[:3], atol=1e-5)
                assert np.allclose(values, [wanted_row[near.place] for near in found], atol=1e-5)
        for near in (near for layer in view.neighbors for near in layer.of_source):
            assert near.text == pairs[near.place].target_text
            # The targets of pairs 1 and 4 read the same.
            assert near.is_right == (near.place == place or {near.place, place} == {0, 3})


def test_neighbors_come_from_the_pairs_that_are_searched(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    model = AnyEncoder("test", tokenizer, make_encoder(tokenizer))

    def find_places(count: int, num_searched: int) -> set[int]:
        views = collect_views(
            model,
            make_pairs(),
            CPU,
            settings=AlignSettings(),
            layers=every_layer(2),
            count=count,
            num_searched=num_searched,
        )
        assert len(views) == count
        layers = [layer for view in views for layer in view.neighbors]
        return {near.place for layer in layers for near in (*layer.of_source, *layer.of_target)}

    assert find_places(1, 3) == {0, 1, 2}
    assert find_places(2, 1) == {0, 1}
    assert find_places(2, 0) == set()
    assert find_places(1, 1) == set()


def test_words_hang_together_by_links() -> None:
    links = frozenset({(3, 0), (0, 2), (0, 3), (1, 3), (4, 4)})
    assert group_words(links, 6, 5) == ([0, 0, None, 1, 2, None], [1, None, 0, 0, 2])
    assert group_words(frozenset(), 1, 2) == ([None], [None, None])
    ladder = frozenset({(2, 0), (2, 1), (1, 1), (1, 2), (0, 2)})
    assert group_words(ladder, 3, 3) == ([0, 0, 0], [0, 0, 0])
