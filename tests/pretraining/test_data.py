"""Sampling, packing, masking and batches: properties of pure functions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.config import TrainingRecipe
from metaxlm.corpus.shards import Shard
from metaxlm.languages import rebalance
from metaxlm.pretraining.batches import BatchSource
from metaxlm.pretraining.masking import mask_tokens
from metaxlm.pretraining.packing import Blocks, pack
from metaxlm.pretraining.sampling import Schedule
from metaxlm.randomness import generator


def test_rebalancing_follows_the_papers_formula() -> None:
    # English 12.58 GB and Swahili 0.03 GB of the paper's table at alpha 0.7.
    shares = rebalance({"en": 12.58, "sw": 0.03}, 0.7)
    assert shares["sw"] == pytest.approx(0.03**0.7 / (0.03**0.7 + 12.58**0.7))
    assert shares["sw"] > 0.03 / 12.61
    assert sum(shares.values()) == pytest.approx(1)
    assert rebalance({"a": 9, "b": 1}, 0.0) == {"a": 0.5, "b": 0.5}


def make_schedule(seed: int = 3, batch_size: int = 7) -> Schedule:
    return Schedule(
        {"en": 0.6, "de": 0.3, "sw": 0.1}, {"en": 50, "de": 11, "sw": 3}, batch_size, seed
    )


def test_any_step_can_be_asked_first() -> None:
    forward = make_schedule()
    rows = {step: forward.rows(step) for step in range(600)}
    for step in (599, 0, 256, 255, 257, 512):
        assert make_schedule().rows(step) == rows[step]
    assert make_schedule(seed=4).rows(5) != rows[5]


def test_no_block_repeats_before_its_language_was_seen_whole() -> None:
    schedule = make_schedule()
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for step in range(300):
        for language, block in schedule.rows(step):
            seen[language].append(block)
    for language, size in enumerate([50, 11, 3]):
        blocks = seen[language]
        epochs = [blocks[i : i + size] for i in range(0, len(blocks) - size + 1, size)]
        assert len(epochs) > 3
        assert all(sorted(epoch) == list(range(size)) for epoch in epochs)
        assert epochs[0] != epochs[1]


def test_languages_appear_as_often_as_their_probability_says() -> None:
    schedule = make_schedule(batch_size=64)
    counts = Counter(language for step in range(400) for language, _ in schedule.rows(step))
    total = sum(counts.values())
    for language, share in enumerate([0.6, 0.3, 0.1]):
        spread = 4 * (share * (1 - share) / total) ** 0.5
        assert abs(counts[language] / total - share) < spread


def pack_slowly(lengths: list[int], capacity: int) -> list[int]:
    starts, used = [0], 0
    for index, length in enumerate(lengths):
        if used + length > capacity:
            starts.append(index)
            used = 0
        used += length
    return [*starts, len(lengths)]


def test_packing_equals_the_obvious_loop() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        capacity = int(random.integers(1, 60))
        lengths = random.integers(1, capacity + 1, int(random.integers(1, 80)))
        assert pack(lengths, capacity).tolist() == pack_slowly(lengths.tolist(), capacity)


def make_shard(lengths: list[int]) -> Shard:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint64)
    return Shard(np.arange(10, 10 + sum(lengths), dtype=np.uint16), offsets, None)  # type: ignore[arg-type]


def test_blocks_hold_whole_sentences_between_their_special_tokens() -> None:
    blocks = Blocks(make_shard([3, 2, 4, 1]), length=9, bos_id=0, eos_id=2)
    assert [blocks[i].tolist() for i in range(len(blocks))] == [
        [0, 10, 11, 12, 2, 13, 14, 2],
        [0, 15, 16, 17, 18, 2, 19, 2],
    ]


def test_a_sentence_longer_than_a_block_is_cut_and_keeps_its_end() -> None:
    blocks = Blocks(make_shard([2, 20, 2]), length=8, bos_id=0, eos_id=2)
    assert [blocks[i].tolist() for i in range(len(blocks))] == [
        [0, 10, 11, 2],
        [0, 12, 13, 14, 15, 16, 17, 2],
        [0, 32, 33, 2],
    ]


def mask_many(
    probability: float = 0.15, rows: int = 4_000
) -> tuple[np.ndarray, np.ndarray, object]:
    ids = generator(1, "ids").integers(4, 99, (rows, 40))
    lengths = generator(1, "lengths").integers(5, 41, rows)
    real = np.arange(40) < lengths[:, None]
    ids[~real] = 1
    masked = mask_tokens(ids, real, probability, 99, np.arange(4, 99), generator(1, "masks"))
    return ids, real, masked


def test_masking_chooses_and_hides_as_fairseq_does() -> None:
    ids, real, masked = mask_many()
    chosen = np.zeros(ids.size, bool)
    chosen[masked.rows] = True
    chosen = chosen.reshape(ids.shape)
    assert not (chosen & ~real).any()
    counts, lengths = chosen.sum(1), real.sum(1)
    assert ((counts == np.floor(0.15 * lengths)) | (counts == np.floor(0.15 * lengths) + 1)).all()
    assert counts.sum() / lengths.sum() == pytest.approx(0.15, abs=0.002)
    assert (masked.labels == ids.reshape(-1)[masked.rows]).all()
    now = masked.ids.reshape(-1)[masked.rows]
    assert (now == 99).mean() == pytest.approx(0.8, abs=0.01)
    # A tenth is drawn from 95 tokens, one of which is the token itself.
    assert (now == masked.labels).mean() == pytest.approx(0.1 + 0.1 / 95, abs=0.01)
    untouched = masked.ids[~chosen]
    assert (untouched == ids[~chosen]).all()


def test_masking_positions_are_uniform() -> None:
    _, real, masked = mask_many()
    columns = np.bincount(masked.rows % 40, minlength=40) / real.sum(0)
    assert columns[:5] == pytest.approx(np.full(5, columns[0]), abs=0.03)


@pytest.fixture
def source(
    shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase
) -> BatchSource:
    return BatchSource(shards, multilingual_tokenizer, TrainingRecipe(batch_size=8, length=32), 1)


def test_batches_are_functions_of_the_step(
    source: BatchSource, shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    again = BatchSource(shards, multilingual_tokenizer, TrainingRecipe(batch_size=8, length=32), 1)
    for step in (5, 0, 300):
        first, second = source.batch(step), again.batch(step)
        assert first.samples == second.samples
        assert torch.equal(first.ids_BL, second.ids_BL)
        assert torch.equal(first.rows_M, second.rows_M)


def test_a_block_is_masked_anew_each_time(
    shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    recipe = TrainingRecipe(batch_size=1, length=256)
    source = BatchSource({"de": shards["de"]}, multilingual_tokenizer, recipe, 1)
    masks: dict[tuple[str, int], list[list[int]]] = {}
    for step in range(12):
        batch = source.batch(step)
        masks.setdefault(batch.samples[0], []).append(batch.rows_M.tolist())
    repeated = [rows for rows in masks.values() if len(rows) > 1]
    assert repeated
    assert all(rows[0] != rows[1] for rows in repeated)


def test_a_batch_restores_the_text_it_was_made_from(
    source: BatchSource, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    batch = source.batch(3)
    ids = batch.ids_BL.clone()
    ids.view(-1)[batch.rows_M] = batch.labels_M
    assert batch.ids_BL.shape[1] <= 32
    assert (ids[:, 0] == multilingual_tokenizer.bos_token_id).all()
    real = ids != multilingual_tokenizer.pad_token_id
    assert batch.mask_BL is None or torch.equal(batch.mask_BL, real)
    assert batch.num_tokens == int(real.sum())
    text = multilingual_tokenizer.decode(ids[0][real[0]], skip_special_tokens=True)
    assert text.count(".") == (ids[0] == multilingual_tokenizer.eos_token_id).sum()


def test_special_tokens_can_be_left_out_of_masking(
    shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    def labels(exclude: bool) -> set[int]:
        recipe = TrainingRecipe(batch_size=32, length=32, exclude_special=exclude)
        source = BatchSource(shards, multilingual_tokenizer, recipe, 1)
        return {int(label) for step in range(5) for label in source.batch(step).labels_M}

    specials = set(multilingual_tokenizer.all_special_ids)
    assert labels(exclude=False) & specials
    assert not labels(exclude=True) & specials
