from __future__ import annotations

import random

import numpy as np
import torch
from torch import nn

from metaxlm.tasks.batches import (
    collate_inputs,
    evaluating,
    pad_rows,
    plan_batches,
    shuffle_batches,
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
    assert sorted(map(len, batches)) == [25] + [32] * 93
    assert measure_waste(lengths, batches) < 0.1


def test_shuffle_is_a_function_of_seed_and_epoch() -> None:
    lengths = draw_lengths(200)
    first = shuffle_batches(lengths, 8, seed=1, epoch=1)
    assert first == shuffle_batches(lengths, 8, seed=1, epoch=1)
    assert first != shuffle_batches(lengths, 8, seed=1, epoch=2)
    assert first != shuffle_batches(lengths, 8, seed=2, epoch=1)


def test_shuffle_does_not_go_by_length() -> None:
    lengths = draw_lengths(640)
    batches = shuffle_batches(lengths, 32, seed=1, epoch=1)
    longest = [max(lengths[k] for k in batch) for batch in batches]
    assert longest not in (sorted(longest), sorted(longest, reverse=True))


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
