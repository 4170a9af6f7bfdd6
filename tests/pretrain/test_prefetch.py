"""The feed: the same batches for any number of threads, and none of them left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.data.shards import Shard
from metaxlm.pretrain.batches.source import BatchSource, MicroBatch, Prefetcher, Sample
from metaxlm.recipe import TrainingRecipe

RECIPE = TrainingRecipe(batch_size=8, length=32)


@pytest.fixture
def source(shards: dict[str, Shard], tokenizer: Tokenizer) -> BatchSource:
    return BatchSource(shards, tokenizer, RECIPE, 1)


def count_threads() -> int:
    return sum(thread.name.startswith("prefetch") for thread in threading.enumerate())


def collect(source: BatchSource, workers: int, first: int = 250, last: int = 262) -> list[object]:
    with Prefetcher(source, first, last, [1, 3], 4, workers) as prefetcher:
        assert count_threads() <= workers
        return [
            (batch.samples, batch.ids_BL.tolist(), batch.rows_B.tolist(), batch.dropout_seed)
            for step in range(first, last)
            for batch in prefetcher.get(step)
        ]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_number_of_workers_changes_nothing(source: BatchSource, workers: int) -> None:
    # A fresh source for each, so that threads race for the same chunk of the schedule.
    assert collect(source, workers) == collect(source, 0)
    assert count_threads() == 0


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_error_in_a_worker_is_raised_in_the_training_loop(
    shards: dict[str, Shard], tokenizer: Tokenizer, workers: int
) -> None:
    seen: list[object] = []

    def prepare(batch: MicroBatch, step_samples: Sequence[Sample]) -> None:
        seen.append(batch.samples)
        if len(seen) > 3:
            raise ValueError("the fourth batch cannot be prepared")

    source = BatchSource(shards, tokenizer, RECIPE, 1, prepare)
    with (
        pytest.raises(ValueError, match="fourth batch"),
        Prefetcher(source, 0, 100, [0], 1, workers) as prefetcher,
    ):
        for step in range(100):
            prefetcher.get(step)
    assert count_threads() == 0


def test_no_more_steps_are_prepared_than_asked_for(
    shards: dict[str, Shard], tokenizer: Tokenizer
) -> None:
    seen: list[object] = []

    def prepare(batch: MicroBatch, step_samples: Sequence[Sample]) -> None:
        seen.append(batch.samples)

    source = BatchSource(shards, tokenizer, RECIPE, 1, prepare)

    def assert_prepared(expected: int) -> None:
        deadline = time.monotonic() + 20
        while len(seen) < expected and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)  # for what should not come
        assert len(seen) == expected

    with Prefetcher(source, 0, 9, [0], 1, 2, depth=3) as prefetcher:
        assert_prepared(3)
        prefetcher.get(0)
        assert_prepared(4)
        for step in range(1, 9):
            prefetcher.get(step)
        assert_prepared(9)
