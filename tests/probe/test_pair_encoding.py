from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.finetune.encoding import Pieces, find_starts, tokenize_words
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.aligners import Encoding
from metaxlm.probe.pool import LayerChoice, every_layer
from metaxlm.probe.pair_states import (
    PairEncoding,
    compute_states,
    cut_pieces,
    encode_pairs,
    index_units,
    make_units,
    spread_ranges,
)
from tests.finetune.conftest import CPU, TEXT, MakeEncoder

WORDS = [line.split() for line in TEXT]
PAIRS = [(WORDS[i], WORDS[j]) for i in range(len(WORDS)) for j in (0, 3, 6, 8)]


def list_rows(flat: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    return [row.tolist() for row in np.split(flat, np.cumsum(lengths)[:-1])]


def test_ranges() -> None:
    lengths = np.array([2, 0, 3])
    assert find_starts(lengths).tolist() == [0, 2, 2]
    assert spread_ranges(np.array([10, 20, 30]), lengths).tolist() == [10, 11, 30, 31, 32]


def make_pieces(words: Sequence[Sequence[int]]) -> Pieces:
    lengths = np.array([len(row) for row in words])
    flat = np.array([word for row in words for word in row])
    return Pieces(np.arange(len(flat)) + 100, flat, lengths, find_starts(lengths))


def test_units() -> None:
    # The second sentence begins with the word number that the first one ends with.
    pieces = make_pieces([[0, 0, 2], [], [2, 2, 3, 5, 5, 5]])
    units = make_units(pieces, "any")
    assert list_rows(units.firsts_N, units.lengths_P) == [[0, 1, 2], [], [0, 1, 2, 3, 4, 5]]
    assert units.sizes_N.tolist() == [1] * 9
    for rule in ("first", "mean"):
        units = make_units(pieces, rule)
        assert list_rows(units.firsts_N, units.lengths_P) == [[0, 2], [], [0, 2, 3]]
        assert list_rows(units.sizes_N, units.lengths_P) == [[2, 1], [], [2, 1, 3]]
        assert list_rows(units.words_N, units.lengths_P) == [[0, 2], [], [2, 3, 5]]


def test_cut_pieces() -> None:
    pieces = cut_pieces(make_pieces([[0, 0, 2], [], [2, 2, 3]]), np.array([1, 4, 2]))
    assert list_rows(pieces.ids_N, pieces.lengths_P) == [[100], [], [103, 104]]
    assert list_rows(pieces.words_N, pieces.lengths_P) == [[0], [], [2, 2]]
    assert pieces.starts_P.tolist() == [0, 1, 1]


def encode(
    tokenizer: PreTrainedTokenizerBase, make: MakeEncoder, encoding: Encoding, positions: int
) -> tuple[AnyEncoder, PairEncoding]:
    model = AnyEncoder("", tokenizer, make(tokenizer, max_positions=positions))
    return model, encode_pairs(model, PAIRS, encoding)


def test_joint_sequences(any_tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder) -> None:
    model, encoding = encode(any_tokenizer, make_encoder, "joint", 512)
    cls, sep = any_tokenizer.cls_token_id, any_tokenizer.sep_token_id
    rows = list_rows(encoding.ids_N, encoding.lengths_Q)
    sources, targets = (tokenize_words(any_tokenizer, side) for side in zip(*PAIRS, strict=True))
    for k, (a, b) in enumerate(zip(sources, targets, strict=True)):
        assert rows[k] == [cls, *a.ids, sep, *b.ids, sep]
        assert rows[k][encoding.places[1][k] :][: len(b)] == b.ids
    assert (encoding.types_N is None) == (model.encoder.config.num_token_types == 1)
    if encoding.types_N is not None:
        types = list_rows(encoding.types_N, encoding.lengths_Q)
        for k, (a, b) in enumerate(zip(sources, targets, strict=True)):
            assert types[k] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert not encoding.num_cut_P.any()
    assert not encoding.num_bare_P.any()


def test_separate_sequences(tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder) -> None:
    _, encoding = encode(tokenizer, make_encoder, "separate", 512)
    rows = list_rows(encoding.ids_N, encoding.lengths_Q)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    for side in (0, 1):
        pieces = tokenize_words(tokenizer, [pair[side] for pair in PAIRS])
        for k, found in enumerate(pieces):
            assert rows[encoding.sequences[side][k]] == [cls, *found.ids, sep]
    assert encoding.types_N is None


@pytest.mark.parametrize(("encoding", "positions"), [("joint", 40), ("separate", 30)])
def test_what_is_too_long_is_cut(
    tokenizer: PreTrainedTokenizerBase,
    make_encoder: MakeEncoder,
    encoding: Encoding,
    positions: int,
) -> None:
    _, whole = encode(tokenizer, make_encoder, encoding, 512)
    _, cut = encode(tokenizer, make_encoder, encoding, positions)
    assert cut.lengths_Q.max() == positions
    room = positions - (3 if encoding == "joint" else 2)
    for k in range(len(PAIRS)):
        before = [int(side.lengths_P[k]) for side in whole.sides]
        after = [int(side.lengths_P[k]) for side in cut.sides]
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
        for side in (0, 1):
            rows = [list_rows(e.sides[side].words_N, e.sides[side].lengths_P) for e in (whole, cut)]
            assert rows[1][k] == rows[0][k][: after[side]]
        assert cut.num_cut_P[k] == sum(before) - sum(after)
    assert cut.num_cut_P.any()
    assert not cut.num_cut_P.all()


def test_bare_words_are_counted(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    model = AnyEncoder("", tokenizer, make_encoder(tokenizer))
    pairs = [(["\u200b", "hill"], ["the", "\u200b", "\u200b"]), (["the"], ["hill"])]
    assert encode_pairs(model, pairs, "joint").num_bare_P.tolist() == [3, 0]


@pytest.mark.parametrize("batch_tokens", [1, 100, 2_000])
def test_states_of_units(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder, batch_tokens: int
) -> None:
    """Each unit gets the states that its sequence has by itself, in whatever batch."""
    model, encoding = encode(tokenizer, make_encoder, "joint", 256)
    model.encoder.eval()
    choices = [LayerChoice((0,)), LayerChoice((1,)), LayerChoice((0, 1))]
    pairs = np.array([3, 0, 17, 30])
    with torch.inference_mode():
        span = compute_states(model, encoding, pairs, choices, CPU, batch_tokens)
    side = encoding.sides[1]
    for rule in ("any", "first", "mean"):
        units = make_units(side, rule)
        bases = span.bases_Q[pairs] + encoding.places[1][pairs]
        index = index_units(units, pairs, bases, rule, CPU)
        for number, k in enumerate(pairs.tolist()):
            start = int(encoding.starts_Q[k])
            ids = torch.from_numpy(encoding.ids_N[start : start + int(encoding.lengths_Q[k])])
            with torch.inference_mode():
                states = model.encoder.hidden_states(ids[None])
            pieces = side.words_N[side.starts_P[k] :][: side.lengths_P[k]]
            first = int(encoding.places[1][k])
            groups = [[p] for p in range(len(pieces))]
            if rule != "any":
                groups = [np.flatnonzero(pieces == w).tolist() for w in sorted(set(pieces))]
            if rule == "first":
                groups = [group[:1] for group in groups]
            assert int(index.mask_BS[number].sum()) == len(groups)
            for choice, found in zip(choices, span.states, strict=True):
                state = choice.pick([layer[0] for layer in states])
                expected = torch.stack([state[first + np.array(g)].mean(dim=0) for g in groups])
                torch.testing.assert_close(
                    index.pick(found)[number, : len(groups)], expected, atol=2e-5, rtol=0
                )


def test_no_layer_after_the_wanted_one_is_computed(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    model, encoding = encode(tokenizer, make_encoder, "separate", 64)
    calls: list[int] = []
    for number, layer in enumerate(model.encoder.layers, start=1):
        layer.register_forward_hook(lambda *_, number=number: calls.append(number))
    with torch.inference_mode():
        compute_states(model, encoding, np.arange(4), [LayerChoice((1,))], CPU, 1_000)
        assert set(calls) == {1}
        compute_states(model, encoding, np.arange(4), every_layer(2), CPU, 1_000)
    assert set(calls) == {1, 2}
