from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from torch import nn

from metaxlm.finetune.batches import (
    collate_inputs,
    evaluating,
    pad_rows,
    plan_batches,
    shuffle_batches,
    split_batch,
)

CPU = torch.device("cpu")


def draw_lengths(count: int) -> list[int]:
    draw = random.Random(count)
    return [draw.randint(1, 60) for _ in range(count)]


def measure_waste(lengths: list[int], batches: list[list[int]]) -> float:
    padded = sum(len(batch) * max(lengths[k] for k in batch) for batch in batches)
    return 1 - sum(lengths) / padded


def test_plan_keeps_everything_within_the_budget() -> None:
    lengths = [*draw_lengths(500), 900]
    batches = plan_batches(lengths, 512)
    assert sorted(k for batch in batches for k in batch) == list(range(501))
    assert batches[0] == [500]
    assert all(len(b) * max(lengths[k] for k in b) <= 512 for b in batches[1:])
    assert measure_waste(lengths, batches) < 0.05
    assert plan_batches([], 512) == []


def test_shuffle_deals_each_example_once() -> None:
    lengths = draw_lengths(3_001)
    batches = shuffle_batches(lengths, 32, seed=1, epoch=1)
    assert sorted(k for batch in batches for k in batch) == list(range(3_001))
    assert [len(batch) for batch in batches] == [32] * 93 + [25]
    for batch in batches:
        assert [lengths[k] for k in batch] == sorted((lengths[k] for k in batch), reverse=True)


def test_shuffle_is_a_function_of_seed_and_epoch() -> None:
    lengths = draw_lengths(200)
    first = shuffle_batches(lengths, 8, seed=1, epoch=1)
    assert first == shuffle_batches(lengths, 8, seed=1, epoch=1)
    assert first != shuffle_batches(lengths, 8, seed=1, epoch=2)
    assert first != shuffle_batches(lengths, 8, seed=2, epoch=1)


def test_shuffle_does_not_go_by_length() -> None:
    """Batches are samples of the whole: their means differ as those of random samples do."""
    lengths = draw_lengths(6_400)
    means = [
        np.mean([lengths[k] for k in batch])
        for batch in shuffle_batches(lengths, 32, seed=1, epoch=1)
    ]
    assert np.std(means) == pytest.approx(np.std(lengths) / 32**0.5, rel=0.2)


def cost(lengths: list[int], sizes: Sequence[int], group_cost: int) -> int:
    starts = np.cumsum([0, *sizes[:-1]])
    return sum(
        lengths[k] * size + group_cost for k, size in zip(starts.tolist(), sizes, strict=True)
    )


@pytest.mark.parametrize("group_cost", [0, 5, 40, 10_000])
def test_groups_of_a_batch_are_the_cheapest(group_cost: int) -> None:
    for number in range(30):
        lengths = sorted(draw_lengths(1 + number % 9), reverse=True)
        sizes = split_batch(lengths, group_cost)
        assert sum(sizes) == len(lengths)
        ways = [
            [end - start for start, end in pairwise((0, *cuts, len(lengths)))]
            for count in range(len(lengths))
            for cuts in combinations(range(1, len(lengths)), count)
        ]
        assert cost(lengths, sizes, group_cost) == min(
            cost(lengths, way, group_cost) for way in ways
        )


def test_groups_save_most_of_the_padding() -> None:
    draw = np.random.default_rng(3)
    lengths = sorted(np.minimum(draw.gamma(2, 12, 32) + 4, 128).astype(int).tolist(), reverse=True)
    padded = cost(lengths, split_batch(lengths, 32), 0)
    assert 1 - sum(lengths) / padded < 0.2 < 0.5 < 1 - sum(lengths) / (lengths[0] * 32)


def test_padding() -> None:
    rows = [[1, 2, 3], np.array([4], dtype=np.int32)]
    assert pad_rows(rows, -7).tolist() == [[1, 2, 3], [4, -7, -7]]
    inputs = collate_inputs(rows, 9, CPU, [[0, 0, 1], [0]])
    ids, mask, types = inputs
    assert ids is inputs.ids_BL
    assert ids.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert mask is not None and mask.tolist() == [[True] * 3, [True, False, False]]
    assert types is not None and types.tolist() == [[0, 0, 1], [0, 0, 0]]


def test_without_padding_there_is_no_mask() -> None:
    assert collate_inputs([[1, 2], [3, 4]], 9, CPU).mask_BL is None


def test_a_real_token_that_looks_like_padding_is_kept() -> None:
    mask = collate_inputs([[9, 1], [9]], 9, CPU).mask_BL
    assert mask is not None and mask.tolist() == [[True, True], [True, False]]


def test_evaluating_restores_the_mode() -> None:
    for training in (True, False):
        module = nn.Sequential(nn.Dropout(0.5)).train(training)
        with evaluating(module):
            assert not module[0].training
            assert torch.is_inference_mode_enabled()
        assert module.training is module[0].training is training
