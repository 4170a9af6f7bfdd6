from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from torch import nn

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.batches import (
    FeatureTable,
    collate_inputs,
    compute_logits,
    compute_packed,
    evaluating,
    plan_batches,
    round_total,
    shuffle_batches,
    split_batch,
    split_logits,
    takes_packed,
)
from metaxlm.finetune.task import IGNORED, Features
from metaxlm.model.encoder import Encoder, EncoderConfig
from metaxlm.model.heads import HeadKind, TaskModel, make_head
from tests.finetune.conftest import CPU, MakeEncoder, make_tokenizer

CUDA = torch.device("cuda")
LENGTHS = [9, 9, 6, 4, 4, 4, 1]
CONFIG = EncoderConfig(vocab_size=50, hidden_size=8, num_heads=2, pad_id=3, position_offset=4)
TYPED = EncoderConfig(vocab_size=50, hidden_size=8, num_heads=2, pad_id=3, num_token_types=2,
                      position_offset=0)  # fmt: skip


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


def test_padding() -> None:
    rows = [[1, 2, 3], np.array([4], dtype=np.int32)]
    ids, mask = collate_inputs(rows, 9, CPU)
    assert ids.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert mask is not None and mask.tolist() == [[True] * 3, [True, False, False]]
    assert collate_inputs([[1, 2], [3, 4]], 9, CPU).mask_BL is None
    mask = collate_inputs([[9, 1], [9]], 9, CPU).mask_BL  # the real token is the padding's
    assert mask is not None and mask.tolist() == [[True, True], [True, False]]


def test_evaluating_restores_the_mode() -> None:
    for training in (True, False):
        module = nn.Sequential(nn.Dropout(0.5)).train(training)
        with evaluating(module):
            assert not module[0].training
            assert torch.is_inference_mode_enabled()
        assert module.training is module[0].training is training


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def test_sequences_are_gathered_by_number_and_padded() -> None:
    table = FeatureTable(
        [
            Features(array(5, 6, 7), array(1)),
            Features(array(8, 9), array(2)),
            Features(array(10, 11, 12, 13), array(0)),
        ],
        CONFIG,
        CPU,
    )
    assert (table.lengths, table.filler) == ([3, 2, 4], 3)
    batch = table.gather(torch.tensor([2, 0, 3, 1]), 5)
    assert batch.ids_BL.tolist() == [
        [10, 11, 12, 13, 3],
        [5, 6, 7, 3, 3],
        [3, 3, 3, 3, 3],
        [8, 9, 3, 3, 3],
    ]
    assert batch.lengths_B.tolist() == [4, 3, 1, 2]
    assert batch.labels_BW.tolist() == [[0], [1], [IGNORED], [2]]
    assert batch.token_types_BL is None
    assert batch.mask().sum(1).tolist() == [4, 3, 1, 2]
    assert batch.mask()[1].tolist() == [True, True, True, False, False]


def test_tags_are_padded_with_the_tokens() -> None:
    rows = [
        Features(array(5, 6), array(IGNORED, 4)),
        Features(array(8, 9, 7), array(1, IGNORED, 2)),
    ]
    batch = FeatureTable(rows, CONFIG, CPU).gather(torch.tensor([1, 0, 2]), 4)
    assert batch.labels_BW.tolist() == [
        [1, IGNORED, 2, IGNORED],
        [IGNORED, 4, IGNORED, IGNORED],
        [IGNORED] * 4,
    ]


def test_ends_of_answers_stay_two() -> None:
    """Also where one of the sequences is as short as its labels."""
    rows = [Features(array(5, 6), array(0, 1)), Features(array(8, 9, 7, 7), array(2, 3))]
    batch = FeatureTable(rows, CONFIG, CPU).gather(torch.tensor([0, 1, 2]), 4)
    assert batch.labels_BW.tolist() == [[0, 1], [2, 3], [IGNORED, IGNORED]]


def test_token_types_only_where_the_encoder_has_several() -> None:
    rows = [
        Features(array(5, 6, 7), array(1), token_types=array(0, 1, 1)),
        Features(array(8, 9), array(2), token_types=array(0, 1)),
    ]
    order = torch.tensor([1, 0, 2])
    assert FeatureTable(rows, CONFIG, CPU).gather(order, 3).token_types_BL is None
    types = FeatureTable(rows, TYPED, CPU).gather(order, 3).token_types_BL
    assert types is not None
    assert types.tolist() == [[0, 1, 0], [0, 1, 1], [0, 0, 0]]


def test_sequences_are_packed_one_after_another() -> None:
    rows = [
        Features(array(5, 6, 7), array(1), token_types=array(0, 1, 1)),
        Features(array(8, 9), array(2), token_types=array(0, 1)),
        Features(array(10, 11, 12, 13), array(0), token_types=array(0, 0, 0, 1)),
    ]
    packed = FeatureTable(rows, TYPED, CPU).pack(torch.tensor([2, 0, 3, 1]), 12)
    assert packed.ids_N.tolist() == [10, 11, 12, 13, 5, 6, 7, 3, 8, 9, 3, 3]
    assert packed.token_types_N is not None
    assert packed.token_types_N.tolist() == [0, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 0]
    assert packed.lengths_B.tolist() == [4, 3, 1, 2]
    assert packed.starts_B1.tolist() == [0, 4, 7, 8, 10]
    assert packed.labels_BW.tolist() == [[0], [1], [IGNORED], [2]]
    assert packed.longest == 4
    assert FeatureTable(rows, CONFIG, CPU).pack(torch.tensor([1]), 2).token_types_N is None


def test_tags_are_packed_with_the_tokens() -> None:
    rows = [
        Features(array(5, 6), array(IGNORED, 4)),
        Features(array(8, 9, 7), array(1, IGNORED, 2)),
    ]
    packed = FeatureTable(rows, CONFIG, CPU).pack(torch.tensor([1, 0, 2]), 8)
    assert packed.labels_BW.tolist() == [[1, IGNORED, 2, IGNORED, 4] + [IGNORED] * 3]


@pytest.mark.parametrize(
    ("total", "rounded"), [(1, 64), (64, 64), (65, 128), (1100, 1152), (2047, 2048), (5800, 5888)]
)
def test_rounded_totals(total: int, rounded: int) -> None:
    assert round_total(total, CUDA) == rounded
    assert round_total(total, CPU) == total


def test_logits_find_their_sequences_again() -> None:
    """Padded, packed, and one of each sequence."""
    values = torch.arange(24.0).view(1, 12, 2)
    packed = split_logits(values, [3, 1, 6])
    assert [rows[:, 0].tolist() for rows in packed] == [[0, 2, 4], [6], [8, 10, 12, 14, 16, 18]]
    padded = split_logits(values.view(3, 4, 2), [4, 2, 1])
    assert [rows[:, 0].tolist() for rows in padded] == [[0, 2, 4, 6], [8, 10], [16]]
    assert [rows[:, 0].tolist() for rows in split_logits(values, [2])] == [[0, 2]]
    assert [row.tolist() for row in split_logits(values[0, :2], [5, 3])] == [[0, 1], [2, 3]]


def make_table(encoder: Encoder, kind: HeadKind) -> FeatureTable:
    random = np.random.default_rng(1)
    rows = []
    for length in LENGTHS:
        ids = random.integers(5, encoder.config.vocab_size, length, dtype=np.int32)
        count = {"classification": 1, "tagging": length, "span": 2}[kind]
        labels = np.zeros(count, dtype=np.int32)
        rows.append(Features(ids, labels, token_types=(np.arange(length) > 2).astype(np.int32)))
    return FeatureTable(rows, encoder.config, CPU)


@pytest.mark.parametrize("tokenizer_kind", ["unigram", "bert"])
@pytest.mark.parametrize("kind", ["classification", "tagging", "span"])
def test_packed_logits_are_the_padded_ones(
    make_encoder: MakeEncoder, kind: HeadKind, tokenizer_kind: str
) -> None:
    encoder = make_encoder(make_tokenizer(tokenizer_kind))
    model = TaskModel(encoder, make_head(kind, encoder.config, 5)).eval()
    table = make_table(encoder, kind)
    rows_B = torch.tensor([1, 0, 2, 3, 5, 4, 6])
    lengths = [LENGTHS[k] for k in rows_B]
    assert takes_packed(model, CPU)
    with torch.no_grad():
        padded = compute_logits(model, table.gather(rows_B, 11), False)
        packed = compute_packed(model, table.pack(rows_B, sum(LENGTHS)))
    for one, other in zip(
        split_logits(packed, lengths), split_logits(padded, lengths), strict=True
    ):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_a_packed_sequence_that_does_not_fit_is_rejected(make_encoder: MakeEncoder) -> None:
    encoder = make_encoder(make_tokenizer("unigram"), max_positions=8)
    with pytest.raises(MetaXLMError, match="a sequence of 9 tokens does not fit its 8 positions"):
        encoder.encode_packed(torch.full((13,), 7), [9, 4])
