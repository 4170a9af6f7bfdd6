from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.features.alignment import align_words, draw_examples, measure_alignment
from metaxlm.model.encoder import Encoder
from metaxlm.tasks.encoding import tokenize_words
from metaxlm.tasks.metrics import compute_alignment_scores
from metaxlm.tasks.readers import AlignedPair, AlignmentSet, read_word_alignment
from tests.features.test_transport import align_step_by_step
from tests.tasks.conftest import CPU, TEXT, MakeEncoder

WORDS = [line.split() for line in TEXT]
PAIRS = [(WORDS[i], WORDS[j]) for i in range(len(WORDS)) for j in (0, 3, 6, 8)]


def align_one(
    encoder: Encoder,
    tokenizer: PreTrainedTokenizerBase,
    source: list[str],
    target: list[str],
) -> list[set[tuple[int, int]]]:
    """One pair by itself: encode jointly, cut both sides out, link pieces, then words."""
    left, right = tokenize_words(tokenizer, [source, target])
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    ids = torch.tensor([[cls, *left.ids, sep, *right.ids, sep]])
    types = None
    if encoder.config.num_token_types > 1:
        types = torch.tensor([[0] * (len(left) + 2) + [1] * (len(right) + 1)])
    with torch.no_grad():
        states = encoder.eval().hidden_states(ids, None, types)
    result = []
    for state in states:
        rows = state[0].tolist()
        links = align_step_by_step(rows[1 : 1 + len(left)], rows[2 + len(left) : -1])
        result.append({(left.words[i], right.words[j]) for i, j in links})
    return result


def test_batched_equals_one_by_one(
    any_tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    encoder = make_encoder(any_tokenizer, max_positions=256)
    links = align_words(encoder, any_tokenizer, PAIRS, CPU, batch_tokens=700)
    assert len(links) == 3
    for k, (source, target) in enumerate(PAIRS):
        expected = align_one(encoder, any_tokenizer, source, target)
        assert [set(links[layer][k]) for layer in range(3)] == expected
    assert links[0] != links[2]


def test_a_sentence_aligns_with_itself(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    """With positions out of the way, layer 0 sees the same rows on both sides."""
    encoder = make_encoder(tokenizer)
    with torch.no_grad():
        encoder.embeddings.positions.weight.zero_()
    words = WORDS[2][:6]
    gold = AlignmentSet(
        "de",
        "en",
        (
            AlignedPair(
                tuple(words), tuple(words), frozenset((k, k) for k in range(6)), frozenset()
            ),
        ),
    )
    outcome = measure_alignment(encoder, tokenizer, gold, CPU)
    assert outcome.layers[0].scores.aer == 0.0
    assert outcome.layers[0].links == (gold.pairs[0].sure,)


def test_scores_are_those_of_the_links(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    gold = make_gold("de", "en")
    outcome = measure_alignment(make_encoder(tokenizer), tokenizer, gold, CPU)
    assert (outcome.language, outcome.num_pairs) == ("de", 2)
    for number, layer in enumerate(outcome.layers):
        assert layer.layer == number
        assert layer.scores == compute_alignment_scores(
            [pair.sure for pair in gold.pairs], [pair.possible for pair in gold.pairs], layer.links
        )


def make_gold(source: str, target: str) -> AlignmentSet:
    links = frozenset({(0, 1), (1, 0)})
    possible = links | {(2, 1)}
    pairs = (
        AlignedPair(tuple(WORDS[3]), tuple(WORDS[0]), links, possible),
        AlignedPair(("wir", "nicht", "nur"), ("not", "we"), links, possible),
    )
    return AlignmentSet(source, target, pairs)


def test_examples_are_english_first(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    encoder = make_encoder(tokenizer)
    for source, target, flip in (("de", "en", True), ("en", "fr", False)):
        gold = make_gold(source, target)
        outcome = measure_alignment(encoder, tokenizer, gold, CPU)
        (example,) = draw_examples(gold, outcome, layer=1, count=1)
        pair = gold.pairs[0]
        links = outcome.layers[1].links[0]
        turned = {(j, i) for i, j in links} if flip else set(links)
        assert example.layer == 1
        assert example.source_words == (pair.target if flip else pair.source)
        assert example.target_words == (pair.source if flip else pair.target)
        assert set(example.predicted) == turned
        assert example.sure == ((0, 1), (1, 0))
        assert ((1, 2) if flip else (2, 1)) in example.possible
        assert len(draw_examples(gold, outcome, layer=0, count=9)) == 2


def test_examples_are_short(tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder) -> None:
    short = AlignedPair(("we",), ("wir",), frozenset({(0, 0)}), frozenset({(0, 0)}))
    long = AlignedPair(("we",) * 20, ("wir",) * 20, frozenset({(0, 0)}), frozenset({(0, 0)}))
    gold = AlignmentSet("en", "de", (long, short))
    outcome = measure_alignment(make_encoder(tokenizer), tokenizer, gold, CPU)
    (example,) = draw_examples(gold, outcome, layer=0, count=1)
    assert example.source_words == ("we",)


def test_words_and_sentences_without_pieces(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    encoder = make_encoder(tokenizer)
    pairs = [(["the", "\u200b", "hill"], ["hill"]), (["\u200b"], ["hill"]), (["hill"], ["\u200b"])]
    with_gap, *nothing = align_words(encoder, tokenizer, pairs, CPU)[2]
    (without,) = align_words(encoder, tokenizer, [(["the", "hill"], ["hill"])], CPU)[2]
    assert with_gap == {({0: 0, 1: 2}[i], j) for i, j in without}
    assert with_gap
    assert nothing == [frozenset(), frozenset()]
    assert align_words(encoder, tokenizer, pairs[1:], CPU) == [[frozenset()] * 2] * 3


def test_long_pairs_are_cut_and_said(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder, messages: Callable[[], str]
) -> None:
    encoder = make_encoder(tokenizer, max_positions=40)
    long = [word for words in WORDS for word in words]
    pairs = [(["the", "hill"], long), (long, long), (long, ["hill"]), (["the"], ["hill"])]
    links = align_words(encoder, tokenizer, pairs, CPU, title="alignment de")[2]
    assert "alignment de: 3 of 4 pairs are longer than 40 tokens and were cut\n" in messages()
    assert all(links)
    # The short side is kept whole, and what is left of the long side is its beginning.
    (pieces,) = tokenize_words(tokenizer, [long])
    room = 40 - 3 - len(tokenize_words(tokenizer, [["hill"]])[0])
    assert {i for i, _ in links[2]} <= set(pieces.words[:room])
    assert {j for _, j in links[1]} <= set(pieces.words[: (40 - 3 + 1) // 2])


def test_wrong_tokenizer(tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder) -> None:
    with pytest.raises(MetaXLMError, match="load both from one model folder"):
        align_words(make_encoder(tokenizer, vocab_size=50), tokenizer, PAIRS, CPU)


def test_published(
    published: Callable[[str], Path],
    tokenizer: PreTrainedTokenizerBase,
    make_encoder: MakeEncoder,
) -> None:
    """All layers on real pairs; a random encoder is bad at it, but not always wrong."""
    gold = read_word_alignment(published("wordalign"), "hi")
    outcome = measure_alignment(make_encoder(tokenizer, max_positions=512), tokenizer, gold, CPU)
    assert outcome.num_pairs == 90
    for layer in outcome.layers:
        assert 0.5 < layer.scores.aer < 1.0
        assert layer.scores.recall > 0.0
