from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.finetune.readers.parallel import AlignedPair, AlignmentSet
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe import alignment
from metaxlm.probe.aligners import (
    AlignSettings,
    Decision,
    Encoding,
    Masks,
    Method,
    WordRule,
    link_units,
)
from metaxlm.probe.alignment import (
    align_words,
    compute_alignment_scores,
    draw_examples,
    measure_alignment,
    score_words,
)
from metaxlm.probe.pair_states import encode_pairs
from metaxlm.probe.pool import LayerChoice
from tests.finetune.conftest import CPU, TEXT, MakeEncoder, tokenize_words
from tests.probe.conftest import MakeModel
from tests.probe.test_aligners import align_step_by_step

WORDS = [line.split() for line in TEXT]
PAIRS = [(WORDS[i], WORDS[j]) for i in range(len(WORDS)) for j in (0, 3, 6, 8)]
Links = set[tuple[int, int]]


def encode_one(
    model: AnyEncoder, source: Sequence[str], target: Sequence[str], encoding: Encoding
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """One pair by itself: the states of both sides' pieces, layer by layer."""
    tokenizer, encoder = model.tokenizer, model.encoder.eval()
    left, right = tokenize_words(model.tokenizer, [source, target])
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    with torch.no_grad():
        if encoding == "separate":
            sides = [
                encoder.hidden_states(torch.tensor([[cls, *p.ids, sep]])) for p in (left, right)
            ]
            return [(a[0, 1:-1], b[0, 1:-1]) for a, b in zip(*sides, strict=True)]
        ids = torch.tensor([[cls, *left.ids, sep, *right.ids, sep]])
        types = None
        if encoder.config.num_token_types > 1:
            types = torch.tensor([[0] * (len(left) + 2) + [1] * (len(right) + 1)])
        states = encoder.hidden_states(ids, None, types)
    return [(state[0, 1 : 1 + len(left)], state[0, 2 + len(left) : -1]) for state in states]


def align_one(
    model: AnyEncoder, source: Sequence[str], target: Sequence[str], settings: AlignSettings
) -> list[tuple[Links, Decision, list[int], list[int]]]:
    """One pair by itself: encode, cut both sides out, link units, then words."""
    pieces = tokenize_words(model.tokenizer, [source, target])
    result = []
    for states in encode_one(model, source, target, settings.encoding):
        units, words = [], []
        for found, state in zip(pieces, states, strict=True):
            groups = [[k] for k in range(len(found))]
            if settings.words != "any":
                numbers = sorted(set(found.words))
                groups = [[k for k, w in enumerate(found.words) if w == n] for n in numbers]
            if settings.words == "first":
                groups = [group[:1] for group in groups]
            words.append([found.words[group[0]] for group in groups])
            units.append(torch.stack([state[group].mean(dim=0) for group in groups])[None])
        masks = Masks(*(torch.ones(1, unit.shape[1], dtype=torch.bool) for unit in units))
        decision = link_units(units[0], units[1], masks, settings)
        links = {(words[0][i], words[1][j]) for i, j in decision.linked_BST[0].nonzero().tolist()}
        result.append((links, decision, words[0], words[1]))
    return result


def test_the_preset_equals_one_pair_step_by_step(
    any_tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    model = AnyEncoder("", any_tokenizer, make_encoder(any_tokenizer, max_positions=256))
    pairs = PAIRS[::3]
    links = align_words(model, pairs, CPU, batch_tokens=700)
    assert len(links) == 3
    for k, (source, target) in enumerate(pairs):
        left, right = tokenize_words(any_tokenizer, [source, target])
        for layer, (a, b) in enumerate(encode_one(model, source, target, "joint")):
            expected = align_step_by_step(a.tolist(), b.tolist())
            assert links[layer][k] == {(left.words[i], right.words[j]) for i, j in expected}
    assert links[0] != links[2]


# Each method, and each rule for words with each encoding.
COMBINATIONS = [
    ("transport", "joint", "any"), ("transport", "separate", "mean"), ("argmax", "joint", "first"),
    ("sinkhorn", "joint", "mean"), ("itermax", "separate", "any"), ("match", "separate", "first"),
    ("softmax", "joint", "any"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "encoding", "words"), COMBINATIONS)
def test_batched_equals_one_by_one(
    make_model: MakeModel,
    monkeypatch: pytest.MonkeyPatch,
    method: Method,
    encoding: Encoding,
    words: WordRule,
) -> None:
    """Whatever the batch, and however many are tokenized at a time."""
    monkeypatch.setattr(alignment, "CHUNK_PAIRS", 17)
    model = make_model(max_positions=256)
    settings = AlignSettings(method=method, encoding=encoding, words=words)
    pairs = PAIRS[::2]
    links = align_words(model, pairs, CPU, settings=settings, batch_tokens=300)
    num_links = 0
    for k, (source, target) in enumerate(pairs):
        expected = align_one(model, source, target, settings)
        assert [links[layer][k] for layer in range(3)] == [found[0] for found in expected]
        num_links += sum(len(found[0]) for found in expected)
    assert num_links > 2 * len(pairs)
    source, target = WORDS[1], [*WORDS[3][:4], "\u200b"]
    scores = score_words(model, (source, target), CPU, settings=settings)
    expected = align_one(model, source, target, settings)
    for score, (wanted, decision, left, right) in zip(scores, expected, strict=True):
        assert score.links == wanted
        weights = np.zeros((len(source), len(target)))
        for (i, a), (j, b) in product(enumerate(left), enumerate(right)):
            weights[a, b] = max(weights[a, b], float(decision.weigh()[0, i, j]))
        np.testing.assert_allclose(score.weights, weights, atol=1e-5)
        assert 0 == score.weights[:, -1].max() <= score.weights.min() < score.weights.max() <= 1
    (nothing, *_) = score_words(model, (["\u200b"], ["hill"]), CPU, settings=settings)
    assert (nothing.links, nothing.weights.tolist()) == (frozenset(), [[0.0]])


def test_chosen_layers(make_model: MakeModel) -> None:
    model = make_model(max_positions=256)
    every = align_words(model, PAIRS, CPU)
    chosen = [LayerChoice((2,)), LayerChoice((0,)), LayerChoice((1, 2))]
    last, first, mean = align_words(model, PAIRS, CPU, layers=chosen)
    assert (last, first) == (every[2], every[0])
    assert mean not in every
    (source, target), settings = PAIRS[5], AlignSettings()
    states = encode_one(model, source, target, "joint")
    a, b = ((states[1][side] + states[2][side]) / 2 for side in (0, 1))
    left, right = tokenize_words(model.tokenizer, [source, target])
    expected = align_step_by_step(a.tolist(), b.tolist())
    assert mean[5] == {(left.words[i], right.words[j]) for i, j in expected}
    scores = score_words(model, PAIRS[5], CPU, settings=settings, layers=chosen)
    assert [score.layer for score in scores] == chosen
    assert [score.links for score in scores] == [last[5], first[5], mean[5]]
    gold = make_gold("de", "en")
    outcome = measure_alignment(model, gold, CPU, layers=chosen[1:])
    assert [layer.choice for layer in outcome.layers] == chosen[1:]
    assert [layer.layer for layer in outcome.layers] == [0, 2]


def test_scores_by_hand() -> None:
    # Och and Ney: A = {00, 11, 22}, S = {00, 12}, P = S + {11}; the second pair adds a sure miss.
    sure = [{(0, 0), (1, 2)}, {(0, 0)}]
    possible = [{(0, 0), (1, 2), (1, 1)}, {(0, 0)}]
    scores = compute_alignment_scores(sure, possible, [{(0, 0), (1, 1), (2, 2)}, set()])
    assert scores.precision == pytest.approx(2 / 3)
    assert scores.recall == pytest.approx(1 / 3)
    assert scores.f1 == pytest.approx(4 / 9)
    assert scores.aer == pytest.approx(1 - (2 + 1) / (3 + 3))
    silent = compute_alignment_scores([{(0, 0)}], [{(0, 0)}], [set()])
    assert (silent.aer, silent.precision, silent.recall, silent.f1) == (1.0, 0.0, 0.0, 0.0)


def make_gold(source: str, target: str) -> AlignmentSet:
    links = frozenset({(0, 1), (1, 0)})
    possible = links | {(2, 1)}
    pairs = (
        AlignedPair(tuple(WORDS[3]), tuple(WORDS[0]), links, possible),
        AlignedPair(("wir", "nicht", "nur"), ("not", "we"), links, possible),
    )
    return AlignmentSet(source, target, pairs)


def test_examples_are_english_first(make_model: MakeModel) -> None:
    model = make_model()
    for source, target, flip in (("de", "en", True), ("en", "fr", False)):
        gold = make_gold(source, target)
        outcome = measure_alignment(model, gold, CPU)
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


def test_words_and_sentences_without_pieces(
    make_model: MakeModel, messages: Callable[[], str]
) -> None:
    model = make_model()
    pairs: list[tuple[list[str], list[str]]] = [
        (["the", "\u200b", "hill"], ["hill"]),
        (["\u200b"], ["hill"]),
        (["hill"], ["\u200b", "\u200b"]),
        ([], ["hill"]),
    ]
    with_gap, *nothing = align_words(model, pairs, CPU, title="alignment de", first_number=11)[2]
    assert (
        "alignment de: 4 words have no piece in this vocabulary and get no links: "
        "pairs 11, 12, 13\n" in messages()
    )
    (without,) = align_words(model, [(["the", "hill"], ["hill"])], CPU)[2]
    assert messages().count("1/1 pairs") == 1  # the end of the work is logged once
    assert with_gap == {({0: 0, 1: 2}[i], j) for i, j in without}
    assert with_gap
    assert nothing == [frozenset()] * 3
    assert align_words(model, pairs[1:], CPU) == [[frozenset()] * 3] * 3
    assert align_words(model, [], CPU) == [[]] * 3


@pytest.mark.parametrize(("encoding", "positions"), [("joint", 40), ("separate", 30)])
def test_truncation(make_model: MakeModel, encoding: Encoding, positions: int) -> None:
    whole, cut = (
        encode_pairs(make_model(max_positions=most), PAIRS, AlignSettings(encoding=encoding))
        for most in (512, positions)
    )
    assert cut.lengths_Q.max() == positions
    room = positions - (3 if encoding == "joint" else 2)
    for k in range(len(PAIRS)):
        before, after = ([int(side.lengths_P[k]) for side in e.sides] for e in (whole, cut))
        if encoding == "separate":
            assert after == [min(size, room) for size in before]
        elif sum(before) <= room:
            assert after == before
        else:
            assert sum(after) == room
            short, long = sorted((0, 1), key=lambda side: (before[side], side))
            # The shorter side stays whole unless both are long.
            assert after[short] == min(before[short], room // 2)
            assert after[long] <= before[long]
        for side, size in enumerate(after):
            starts = [int(e.sides[side].starts_P[k]) for e in (whole, cut)]
            both = zip((whole, cut), starts, strict=True)
            rows = [e.sides[side].ids_N[n : n + size] for e, n in both]
            assert np.array_equal(*rows)
        assert cut.num_cut_P[k] == sum(before) - sum(after)
    assert 0 < np.count_nonzero(cut.num_cut_P) < len(PAIRS)
