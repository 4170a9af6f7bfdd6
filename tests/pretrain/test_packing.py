"""Packing: every sentence once, nothing too long, hardly any padding."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaxlm.pretrain.batches.packing import Packing, pack

CAPACITY_AND_LENGTHS = st.integers(1, 20).flatmap(
    lambda capacity: st.tuples(
        st.just(capacity),
        # More than a lane, which is 16 times the capacity, and more than the look-ahead.
        st.lists(st.integers(1, capacity), min_size=1, max_size=700),
    )
)


def list_blocks(packing: Packing) -> list[list[int]]:
    return [packing.sentences(block) for block in range(len(packing))]


@settings(deadline=None, max_examples=50)
@given(CAPACITY_AND_LENGTHS)
def test_every_sentence_is_in_one_block_and_blocks_are_full(case: tuple[int, list[int]]) -> None:
    capacity, lengths = case
    (packing,) = pack([np.array(lengths)], capacity)
    blocks = list_blocks(packing)
    assert sorted(sentence for block in blocks for sentence in block) == list(range(len(lengths)))
    assert all(block == sorted(block) for block in blocks)
    rooms = [capacity - sum(lengths[sentence] for sentence in block) for block in blocks]
    assert all(0 <= room < capacity for room in rooms)
    # No sentence in sight would have fitted into the block before its own.
    for room, (block, following) in zip(rooms, pairwise(blocks), strict=False):
        same_lane = block[0] // packing.lane == following[0] // packing.lane
        if same_lane and following[0] < block[0] + 64:
            assert lengths[following[0]] > room


@pytest.mark.parametrize(
    ("median", "spread", "length", "most"),
    [(18, 0.6, 512, 0.003), (25, 0.75, 128, 0.007)],
)
def test_there_is_little_padding(median: float, spread: float, length: int, most: float) -> None:
    random = np.random.default_rng(0)
    lengths = np.exp(random.normal(np.log(median), spread, 40_000)).astype(np.int64) + 2
    lengths = np.minimum(lengths, length - 1)
    (packing,) = pack([lengths], length - 1)
    assert 1 - (int(lengths.sum()) + len(packing)) / (len(packing) * length) < most


def test_blocks_keep_neighbors_together() -> None:
    random = np.random.default_rng(0)
    lengths = np.exp(random.normal(3, 0.7, 20_000)).astype(np.int64) + 2
    (packing,) = pack([np.minimum(lengths, 511)], 511)
    blocks = list_blocks(packing)
    assert all(block[-1] - block[0] < 64 for block in blocks)
    adjacent = [b - a == 1 for block in blocks for a, b in pairwise(block)]
    assert np.mean(adjacent) > 0.8
