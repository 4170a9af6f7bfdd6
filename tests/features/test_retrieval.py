from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from transformers import PreTrainedTokenizerBase

from metaxlm.features.embedding import embed_texts
from metaxlm.features.retrieval import LayerRetrieval, find_nearest, measure_retrieval
from metaxlm.tasks.readers import ParallelSentences
from tests.tasks.conftest import CPU, TEXT, MakeEncoder


def test_nearest_equals_the_full_matrix_whatever_the_chunks() -> None:
    random = torch.Generator().manual_seed(1)
    queries = torch.randn(57, 8, generator=random)
    keys = torch.randn(83, 8, generator=random) * torch.rand(83, 1, generator=random) * 9
    full = F.cosine_similarity(queries[:, None], keys[None], dim=-1)
    for query_chunk, key_chunk in ((1, 1), (7, 10), (57, 83), (1_000, 1_000)):
        found, similarity = find_nearest(
            queries, keys, query_chunk=query_chunk, key_chunk=key_chunk
        )
        assert torch.equal(found, full.argmax(dim=1))
        torch.testing.assert_close(similarity, full.amax(dim=1))


def test_of_equal_keys_the_first_wins_across_chunks() -> None:
    keys = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    for key_chunk in (1, 2, 3, 4):
        found, _ = find_nearest(torch.tensor([[3.0, 0.0]]), keys, key_chunk=key_chunk)
        assert found.tolist() == [1]


def test_identical_sentences_find_themselves(
    any_tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    encoder = make_encoder(any_tokenizer, max_positions=256)
    outcome = measure_retrieval(
        encoder, any_tokenizer, ParallelSentences("de", tuple(TEXT), tuple(TEXT)), CPU
    )
    assert (outcome.language, outcome.num_pairs) == ("de", len(TEXT))
    assert [layer.layer for layer in outcome.layers] == [0, 1, 2]
    for layer in outcome.layers:
        assert layer.accuracy == layer.accuracy_to_source == layer.accuracy_from_source == 1.0
        for example in layer.examples:
            assert example.query == example.expected == example.found
            assert example.similarity == pytest.approx(1.0, abs=1e-5)


def test_directions_and_examples(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    """Of the two foreign copies of one sentence only the first is found from English."""
    foreign = (TEXT[0], TEXT[1], TEXT[2], TEXT[2])
    english = (TEXT[0], TEXT[2], TEXT[1], TEXT[2])
    outcome = measure_retrieval(
        make_encoder(tokenizer),
        tokenizer,
        ParallelSentences("de", foreign, english),
        CPU,
        num_examples=2,
    )
    last = outcome.layers[-1]
    # xx -> en: 0 finds 0; 1 finds 2; 2 and 3 find 1, the first copy. One of four is right.
    assert last.accuracy_to_source == 0.25
    # en -> xx: 0 finds 0; 1 finds 2; 2 finds 1; 3 finds 2, the first copy.
    assert last.accuracy_from_source == 0.25
    assert [(e.query, e.expected, e.found) for e in last.examples] == [
        (TEXT[0], TEXT[0], TEXT[0]),
        (TEXT[2], TEXT[2], TEXT[2]),
    ]


def test_directions_are_told_apart(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    """Three foreign sentences have one English neighbor; it has one foreign neighbor."""
    encoder = make_encoder(tokenizer)
    foreign = (TEXT[0], f"{TEXT[0]} .", f"{TEXT[0]} , .")
    english = (TEXT[0], TEXT[8], TEXT[9])
    last = measure_retrieval(
        encoder, tokenizer, ParallelSentences("de", foreign, english), CPU
    ).layers[-1]
    sides = [F.normalize(embed_texts(encoder, tokenizer, s, CPU)[-1]) for s in (foreign, english)]
    similarity = sides[0] @ sides[1].T
    diagonal = torch.arange(3)
    assert last.accuracy_to_source == pytest.approx(
        float((similarity.argmax(dim=1) == diagonal).float().mean())
    )
    assert last.accuracy_from_source == pytest.approx(
        float((similarity.argmax(dim=0) == diagonal).float().mean())
    )
    assert last.accuracy_to_source != last.accuracy_from_source


def test_accuracy_is_the_mean_of_both_directions() -> None:
    assert LayerRetrieval(0, 0.2, 0.6, ()).accuracy == pytest.approx(0.4)
