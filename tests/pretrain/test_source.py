"""Batches: the same rows for every cut of a step, and held-out blocks that no step shows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import Shards
from tests.trainings import Now
from transformers import BertTokenizerFast
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.data.shards import Shard, ShardCounts
from metaxlm.errors import MetaXLMError
from metaxlm.languages import rebalance
from metaxlm.pretrain.batches.packing import pack
from metaxlm.pretrain.batches.sampling import CHUNK
from metaxlm.pretrain.batches.source import (
    BatchSource,
    MicroBatch,
    PackedBlocks,
    Prefetcher,
    Sample,
)
from metaxlm.recipe import TrainingRecipe

RECIPE = TrainingRecipe(batch_size=8, length=32, held_out=2)


@pytest.fixture
def source(shards: Shards, tokenizer: Tokenizer) -> BatchSource:
    return BatchSource(shards, tokenizer, RECIPE, 1)


def assert_same(first: MicroBatch, second: MicroBatch) -> None:
    assert first.samples == second.samples
    assert torch.equal(first.ids_BL, second.ids_BL)
    assert torch.equal(first.lengths_B, second.lengths_B)
    assert torch.equal(first.rows_B, second.rows_B)
    assert first.dropout_seed == second.dropout_seed
    assert first.num_tokens == second.num_tokens


def test_batches_depend_on_seed_and_step(
    source: BatchSource, shards: Shards, tokenizer: Tokenizer
) -> None:
    again = BatchSource(shards, tokenizer, RECIPE, 1)
    other = BatchSource(shards, tokenizer, RECIPE, 2)
    for step in (5, 0, 300):
        assert_same(source.micro_batch(step), again.micro_batch(step))
        assert source.mask_key(step) == again.mask_key(step) != other.mask_key(step)
        assert source.samples(step) == source.micro_batch(step).samples != other.samples(step)
    assert source.samples(0) != source.samples(1)
    assert source.mask_key(0) != source.mask_key(1)


@pytest.mark.parametrize("count", [2, 4])
def test_micro_batches_make_the_same_step(source: BatchSource, count: int) -> None:
    for step in (0, 3, 700):
        whole = source.micro_batch(step)
        batches = [source.micro_batch(step, index, count) for index in range(count)]
        assert [sample for batch in batches for sample in batch.samples] == whole.samples
        assert torch.equal(torch.cat([batch.ids_BL for batch in batches]), whole.ids_BL)
        assert torch.equal(torch.cat([batch.lengths_B for batch in batches]), whole.lengths_B)
        assert torch.cat([batch.rows_B for batch in batches]).tolist() == list(range(8))
        assert sum(batch.num_tokens for batch in batches) == whole.num_tokens
        assert len({batch.dropout_seed for batch in [whole, *batches]}) == count + 1


def test_held_out_blocks_are_shown_by_no_step(source: BatchSource) -> None:
    batches = [batch for language in source.languages for batch in source.held_out(language)]
    held = {sample for batch in batches for sample in batch.samples}
    drawn = {sample for step in range(200) for sample in source.samples(step)}
    # 128 English sentences make some 40 blocks; a twentieth of those is 2, of the others' 20 is 1.
    assert sorted(language for language, _ in held) == ["de", "en", "en", "ru"]
    assert not held & drawn
    for language in source.languages:
        blocks = {block for name, block in held | drawn if name == language}
        assert blocks == set(range(len(blocks)))


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_held_out_micro_batches(shards: Shards, tokenizer: Tokenizer, micro_batches: int) -> None:
    recipe = TrainingRecipe(
        batch_size=2 * micro_batches, micro_batches=micro_batches, length=10, held_out=100
    )
    source = BatchSource(shards, tokenizer, recipe, 1)
    batches = source.held_out("en")
    assert len(batches) > 1
    assert {len(batch.samples) for batch in batches[:-1]} == {2}
    rows = [row for batch in batches for row in batch.rows_B.tolist()]
    assert rows == list(range(len(rows)))
    none = BatchSource(shards, tokenizer, TrainingRecipe(batch_size=2, length=10, held_out=0), 1)
    assert none.held_out("en") == []
    tiny = BatchSource(shards, tokenizer, TrainingRecipe(batch_size=2, length=512), 1)
    assert tiny.held_out("de") == []


def test_alpha_may_follow_a_schedule(shards: Shards, tokenizer: Tokenizer) -> None:
    recipe = TrainingRecipe(batch_size=8, length=32, alpha={0: 1.0, 2 * CHUNK: 0.0})
    source = BatchSource(shards, tokenizer, recipe, 1)
    sizes = {name: shard.counts.bytes for name, shard in shards.items()}
    assert source.probabilities(0) == source.probabilities(CHUNK - 1) == rebalance(sizes, 1.0)
    assert source.probabilities(CHUNK + 9) == rebalance(sizes, 0.5)
    assert source.probabilities(9 * CHUNK) == pytest.approx(dict.fromkeys(shards, 1 / 3))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_micro_batches_move_to_the_gpu(source: BatchSource) -> None:
    batch = replace(source.micro_batch(0), extra=Now(torch.ones(3)))
    assert batch.ids_BL.is_pinned()
    moved = batch.to(torch.device("cuda"))
    assert moved.extra is not None
    for tensor in (moved.ids_BL, moved.lengths_B, moved.rows_B, *moved.extra.tensors()):
        assert tensor.is_cuda
    assert torch.equal(moved.ids_BL.cpu(), batch.ids_BL)


SPECIALS = SimpleNamespace(bos_token_id=0, pad_token_id=1, eos_token_id=2)


def make_shard(lengths: list[int], first_token: int = 10) -> Shard:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint64)
    tokens = np.arange(first_token, first_token + sum(lengths), dtype=np.uint32)
    return Shard(tokens, offsets, ShardCounts(tokens=len(tokens)))


def read(blocks: PackedBlocks, rows: list[tuple[int, int]], length: int) -> list[list[int]]:
    output = np.full((len(rows), length), -7, np.int32)
    languages, numbers = np.array(rows).T
    lengths = blocks.read(languages, numbers, output)
    for row, size in zip(output.tolist(), lengths.tolist(), strict=True):
        assert row[size:] == [1] * (length - size)
    return [row[:size] for row, size in zip(output.tolist(), lengths.tolist(), strict=True)]


def read_slowly(shard: Shard, length: int) -> list[list[int]]:
    """Return all blocks of a shard; sentences are cut and keep their end."""
    sizes = np.minimum(np.diff(shard.offsets.astype(np.int64)) + 1, length - 1)
    (packing,) = pack([sizes], length - 1)
    cut = [[*shard.sentence(n).tolist()[: length - 2], 2] for n in range(len(sizes))]
    return [
        [0, *chain.from_iterable(cut[sentence] for sentence in packing.sentences(block))]
        for block in range(len(packing))
    ]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=40), min_size=1, max_size=4),
    st.integers(3, 30),
    st.randoms(use_true_random=False),
)
def test_rows_of_all_languages(lengths: list[list[int]], length: int, random: object) -> None:
    shards = [make_shard(part, 1_000 * index + 10) for index, part in enumerate(lengths)]
    blocks = PackedBlocks(dict(enumerate(shards)), SPECIALS, length)  # type: ignore[arg-type]
    rows = [(k, block) for k, count in blocks.num_blocks.items() for block in range(count)]
    random.shuffle(rows)  # type: ignore[attr-defined]
    expected = [read_slowly(shard, length) for shard in shards]
    for part in (rows, rows[:3]):
        assert read(blocks, part, length) == [expected[language][block] for language, block in part]


def test_bert_names_its_boundaries_differently(encoder: object) -> None:
    tokenizer: Tokenizer = BertTokenizerFast.from_pretrained(encoder)
    blocks = PackedBlocks({"en": make_shard([2])}, tokenizer, 6)
    output = np.zeros((1, 6), np.int32)
    blocks.read(np.array([0]), np.array([0]), output)
    assert tokenizer.convert_ids_to_tokens(output[0])[::3] == ["[CLS]", "[SEP]"]
    with pytest.raises(MetaXLMError, match="length is 2"):
        PackedBlocks({"en": make_shard([3])}, tokenizer, 2)


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


@pytest.mark.parametrize("workers", [1, 5])
def test_the_number_of_workers_changes_nothing(source: BatchSource, workers: int) -> None:
    # A fresh source for each, so that threads race for the same chunk of the schedule.
    assert collect(source, workers) == collect(source, 0)
    assert count_threads() == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_a_teacher_prepares_inputs_ahead_and_its_errors_are_raised(
    shards: Shards, tokenizer: Tokenizer, workers: int
) -> None:
    seen: list[Sequence[Sample]] = []

    def prepare(batch: MicroBatch, samples: Sequence[Sample]) -> object:
        seen.append(samples)
        if len(seen) > 20:
            raise ValueError("the next batch cannot be prepared")
        return batch.samples, samples

    source = BatchSource(shards, tokenizer, RECIPE, 1, prepare)  # type: ignore[arg-type]
    with (
        pytest.raises(ValueError, match="next batch"),
        Prefetcher(source, 0, 100, [1], 2, workers, depth=3) as prefetcher,
    ):
        for step in range(100):
            assert len(seen) <= step + 3 * bool(workers)
            (batch,) = prefetcher.get(step)
            assert batch.extra == (batch.samples, source.samples(step))
    assert count_threads() == 0
    assert source.held_out("en")[0].extra is None
