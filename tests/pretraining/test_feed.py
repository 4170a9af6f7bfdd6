"""The feed: the same pieces for any number of threads, and none of them left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.config import TrainingRecipe
from metaxlm.data.shards import Shard
from metaxlm.pretraining.batches import BatchSource, Piece, Sample
from metaxlm.pretraining.feed import Feed

RECIPE = TrainingRecipe(batch_size=8, length=32)


@pytest.fixture
def source(
    shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase
) -> BatchSource:
    return BatchSource(shards, multilingual_tokenizer, RECIPE, 1)


def count_threads() -> int:
    return sum(thread.name.startswith("feed") for thread in threading.enumerate())


def collect(source: BatchSource, workers: int, first: int = 250, last: int = 262) -> list[object]:
    with Feed(source, first, last, [1, 3], 4, workers) as feed:
        assert count_threads() <= workers
        return [
            (piece.samples, piece.ids_BL.tolist(), piece.rows_B.tolist(), piece.dropout_seed)
            for step in range(first, last)
            for piece in feed.get(step)
        ]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_number_of_workers_changes_nothing(source: BatchSource, workers: int) -> None:
    # A fresh source for each, so that threads race for the same chunk of the schedule.
    assert collect(source, workers) == collect(source, 0)
    assert count_threads() == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_a_feed_gives_the_pieces_that_were_asked_for(source: BatchSource, workers: int) -> None:
    with Feed(source, 7, 10, [2, 3], 4, workers) as feed:
        for step in range(7, 10):
            pieces = feed.get(step)
            assert [piece.rows_B.tolist() for piece in pieces] == [[4, 5], [6, 7]]
            assert torch.equal(pieces[1].ids_BL, source.piece(step, 3, 4).ids_BL)


def make_failing(
    shards: dict[str, Shard], tokenizer: PreTrainedTokenizerBase, seen: list[object]
) -> BatchSource:
    def prepare(piece: Piece, step_samples: Sequence[Sample]) -> object:
        seen.append(piece.samples)
        if len(seen) > 3:
            raise ValueError("the fourth piece cannot be prepared")
        return None

    return BatchSource(shards, tokenizer, RECIPE, 1, prepare)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_error_in_a_worker_is_raised_to_whoever_waits(
    shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase, workers: int
) -> None:
    source = make_failing(shards, multilingual_tokenizer, [])
    with (
        pytest.raises(ValueError, match="fourth piece"),
        Feed(source, 0, 100, [0], 1, workers) as feed,
    ):
        for step in range(100):
            feed.get(step)
    assert count_threads() == 0


def test_threads_end_when_the_loop_is_left_early(source: BatchSource) -> None:
    with pytest.raises(KeyboardInterrupt), Feed(source, 0, 100, [0], 1, 2) as feed:
        feed.get(0)
        raise KeyboardInterrupt
    assert count_threads() == 0


def test_no_more_steps_are_prepared_than_asked_for(
    shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    seen: list[object] = []

    def prepare(piece: Piece, step_samples: Sequence[Sample]) -> object:
        seen.append(piece.samples)
        return None

    source = BatchSource(shards, multilingual_tokenizer, RECIPE, 1, prepare)

    def assert_prepared(expected: int) -> None:
        deadline = time.monotonic() + 20
        while len(seen) < expected and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)  # for what should not come
        assert len(seen) == expected

    with Feed(source, 0, 9, [0], 1, 2, depth=3) as feed:
        assert_prepared(3)
        feed.get(0)
        assert_prepared(4)
        for step in range(1, 9):
            feed.get(step)
        assert_prepared(9)


def test_a_feed_with_workers_must_be_entered(source: BatchSource) -> None:
    with pytest.raises(AssertionError, match="with"):
        Feed(source, 0, 9, [0], 1, 2).get(0)
