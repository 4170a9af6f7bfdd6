from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers import ParallelSentences
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.pool import LayerChoice
from metaxlm.probe.retrieval import LayerRetrieval, measure_pairs, measure_retrieval
from tests.finetune.conftest import CPU, TEXT, MakeEncoder


def test_identical_sentences_find_themselves(
    any_tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    model = AnyEncoder("", any_tokenizer, make_encoder(any_tokenizer, max_positions=256))
    outcome = measure_retrieval(model, ParallelSentences("de", tuple(TEXT), tuple(TEXT)), CPU)
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
        AnyEncoder("", tokenizer, make_encoder(tokenizer)),
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
    model = AnyEncoder("", tokenizer, make_encoder(tokenizer))
    foreign = (TEXT[0], f"{TEXT[0]} .", f"{TEXT[0]} , .")
    english = (TEXT[0], TEXT[8], TEXT[9])
    last = measure_retrieval(model, ParallelSentences("de", foreign, english), CPU).layers[-1]
    sides = [F.normalize(embed_texts(model, s, CPU)[-1]) for s in (foreign, english)]
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
    hits = torch.tensor([[1, 1], [0, 1], [0, 1], [0, 0], [0, 0]], dtype=torch.bool)
    found = LayerRetrieval(LayerChoice((0,)), hits)
    assert found.accuracy_to_source == pytest.approx(0.2)
    assert found.accuracy_from_source == pytest.approx(0.6)
    assert found.accuracy == pytest.approx(0.4)


def test_chosen_layers(tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder) -> None:
    """A mean of layers is its own choice; its accuracies are those of its vectors."""
    model = AnyEncoder("", tokenizer, make_encoder(tokenizer))
    sentences = ParallelSentences("de", tuple(TEXT[:6]), (*TEXT[:2], *TEXT[6:10]))
    choices = [LayerChoice((2,)), LayerChoice((0, 1))]
    outcome = measure_retrieval(
        model, sentences, CPU, layers=choices, specials=False, num_examples=6
    )
    assert [layer.choice for layer in outcome.layers] == choices
    assert [layer.layer for layer in outcome.layers] == [2, 1]
    for choice, layer in zip(choices, outcome.layers, strict=True):
        foreign, english = (
            F.normalize(embed_texts(model, side, CPU, layers=[choice], specials=False)[0])
            for side in (sentences.foreign, sentences.english)
        )
        cosines = foreign @ english.T
        rows = torch.arange(6)
        assert layer.accuracy_to_source == (cosines.argmax(dim=1) == rows).double().mean() > 0
        assert layer.accuracy_from_source == (cosines.argmax(dim=0) == rows).double().mean() > 0
        similarities = [example.similarity for example in layer.examples]
        assert similarities == pytest.approx(cosines.amax(dim=1).tolist(), abs=1e-5)


def test_pairs_need_two_equal_sides() -> None:
    with pytest.raises(MetaXLMError, match="3 vectors on one side and 2 on the other"):
        measure_pairs(torch.eye(3), torch.eye(3)[:2])
