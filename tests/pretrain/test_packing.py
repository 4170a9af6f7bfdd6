"""Packing: every sentence once, nothing too long, hardly any padding."""

from __future__ import annotations

import lzma
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaxlm.data.sentences import split_sentences
from metaxlm.pretrain.batches.packing import Packing, pack

CORPORA = Path(__file__).parents[2] / ".." / "shared" / "data" / "corpora"

CAPACITY_AND_LENGTHS = st.integers(1, 20).flatmap(
    lambda capacity: st.tuples(
        st.just(capacity),
        # More than a lane, which is 16 times the capacity, and more than the look-ahead.
        st.lists(st.integers(1, capacity), min_size=1, max_size=700),
    )
)


def list_blocks(packing: Packing) -> list[list[int]]:
    return [packing.sentences(block) for block in range(len(packing))]


def padding(lengths: np.ndarray, length: int) -> float:
    (packing,) = pack([np.minimum(lengths, length - 1)], length - 1)
    num_tokens = int(np.minimum(lengths, length - 1).sum()) + len(packing)
    return 1 - num_tokens / (len(packing) * length)


@settings(deadline=None)
@given(CAPACITY_AND_LENGTHS)
def test_every_sentence_is_in_one_block_in_text_order(case: tuple[int, list[int]]) -> None:
    capacity, lengths = case
    (packing,) = pack([np.array(lengths)], capacity)
    blocks = list_blocks(packing)
    assert sorted(sentence for block in blocks for sentence in block) == list(range(len(lengths)))
    assert all(block == sorted(block) for block in blocks)
    assert all(0 < sum(lengths[sentence] for sentence in block) <= capacity for block in blocks)


@settings(deadline=None)
@given(CAPACITY_AND_LENGTHS)
def test_no_sentence_that_was_in_sight_would_have_fitted(case: tuple[int, list[int]]) -> None:
    capacity, lengths = case
    (packing,) = pack([np.array(lengths)], capacity)
    blocks = list_blocks(packing)
    for block, following in pairwise(blocks):
        same_lane = block[0] // packing.lane == following[0] // packing.lane
        room = capacity - sum(lengths[sentence] for sentence in block)
        if same_lane and following[0] < block[0] + 64:
            assert lengths[following[0]] > room


@settings(deadline=None)
@given(st.lists(CAPACITY_AND_LENGTHS, min_size=2, max_size=4))
def test_languages_do_not_meddle(cases: list[tuple[int, list[int]]]) -> None:
    capacity = max(capacity for capacity, _ in cases)
    streams = [np.array(lengths) for _, lengths in cases]
    for together, stream in zip(pack(streams, capacity), streams, strict=True):
        (alone,) = pack([stream], capacity)
        assert list_blocks(together) == list_blocks(alone)


@pytest.mark.parametrize(
    ("median", "spread", "length", "most"),
    [(18, 0.6, 128, 0.005), (18, 0.6, 512, 0.003), (25, 0.75, 128, 0.007), (25, 0.75, 512, 0.0035)],
)
def test_natural_lengths_leave_little_padding(
    median: float, spread: float, length: int, most: float
) -> None:
    random = np.random.default_rng(0)
    lengths = np.exp(random.normal(np.log(median), spread, 40_000)).astype(np.int64) + 2
    assert padding(lengths, length) < most


@pytest.mark.parametrize(("language", "characters"), [("de", 4.3), ("en", 4.5), ("hi", 4.0)])
def test_real_text_leaves_little_padding(language: str, characters: float) -> None:
    path = CORPORA / f"{language}.txt.xz"
    if not path.exists():
        pytest.skip("no shared data beside the checkout")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        paragraphs = [line.strip() for line in islice(file, 4_000)]
    sentences = [s for text in paragraphs if text for s in split_sentences(text, language)]
    # The mean number of characters of a token in a multilingual vocabulary.
    lengths = (np.array([len(s) for s in sentences]) / characters).astype(np.int64) + 2
    assert padding(lengths, 128) < 0.02
    assert padding(lengths, 512) < 0.02


def test_blocks_keep_neighbors_together() -> None:
    random = np.random.default_rng(0)
    lengths = np.exp(random.normal(3, 0.7, 20_000)).astype(np.int64) + 2
    (packing,) = pack([np.minimum(lengths, 511)], 511)
    blocks = list_blocks(packing)
    assert all(block[-1] - block[0] < 64 for block in blocks)
    adjacent = [b - a == 1 for block in blocks for a, b in pairwise(block)]
    assert np.mean(adjacent) > 0.8


@pytest.mark.parametrize("wrong", [0, 12])
def test_a_sentence_without_a_place_is_a_programmers_mistake(wrong: int) -> None:
    with pytest.raises(AssertionError, match="would never be placed"):
        pack([np.array([3, wrong, 4])], 11)
