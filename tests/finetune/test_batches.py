from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from metaxlm.finetune.batches import (
    FeatureTable,
    collate_inputs,
    compute_logits,
    compute_packed,
    plan_batches,
    round_total,
    shuffle_batches,
    split_batch,
    split_logits,
    takes_packed,
)
from metaxlm.finetune.task import IGNORED, Features
from metaxlm.model.encoder import EncoderConfig, Rotary
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


def test_plan_keeps_everything_within_the_budget() -> None:
    lengths = [*draw_lengths(500), 900]
    batches = plan_batches(lengths, 512)
    assert sorted(k for batch in batches for k in batch) == list(range(501))
    assert batches[0] == [500]
    sizes = [len(batch) * max(lengths[k] for k in batch) for batch in batches]
    assert max(sizes[1:]) <= 512
    assert sum(sizes) * 0.95 < sum(lengths)
    assert plan_batches([], 512) == []


def test_shuffle_deals_each_example_once() -> None:
    lengths = draw_lengths(301)
    batches = shuffle_batches(lengths, 32, seed=1, epoch=1)
    assert sorted(k for batch in batches for k in batch) == list(range(301))
    assert [len(batch) for batch in batches] == [32] * 9 + [13]
    for batch in batches:
        assert [lengths[k] for k in batch] == sorted((lengths[k] for k in batch), reverse=True)
    assert batches == shuffle_batches(lengths, 32, seed=1, epoch=1)
    assert batches != shuffle_batches(lengths, 32, seed=1, epoch=2)
    assert batches != shuffle_batches(lengths, 32, seed=2, epoch=1)


def cost(lengths: list[int], sizes: Sequence[int], group_cost: int) -> int:
    starts = np.cumsum([0, *sizes[:-1]])
    return sum(
        lengths[k] * size + group_cost for k, size in zip(starts.tolist(), sizes, strict=True)
    )


@pytest.mark.parametrize("group_cost", [0, 5, 40, 10_000])
def test_groups_of_a_batch_are_the_cheapest(group_cost: int) -> None:
    for number in range(18):
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


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def test_sequences_are_padded_or_packed() -> None:
    """The number after the last sequence is an empty one."""
    rows = [
        Features(array(5, 6, 7), array(1), token_types=array(0, 1, 1)),
        Features(array(8, 9), array(2), token_types=array(0, 1)),
        Features(array(10, 11, 12, 13), array(0), token_types=array(0, 0, 0, 1)),
    ]
    table, numbers = FeatureTable(rows, TYPED, CPU), torch.tensor([2, 0, 3, 1])
    assert (table.lengths, table.filler) == ([3, 2, 4], 3)
    batch, packed = table.gather(numbers, 5), table.pack(numbers, 12)
    wanted = [[10, 11, 12, 13, 3], [5, 6, 7, 3, 3], [3] * 5, [8, 9, 3, 3, 3]]
    assert batch.ids_BL.tolist() == wanted
    assert batch.mask().sum(1).tolist() == batch.lengths_B.tolist() == [4, 3, 1, 2]
    assert batch.mask()[1].tolist() == [True, True, True, False, False]
    assert batch.token_types_BL is not None and packed.token_types_N is not None
    assert batch.token_types_BL[1].tolist() == [0, 1, 1, 0, 0]
    assert packed.ids_N.tolist() == [10, 11, 12, 13, 5, 6, 7, 3, 8, 9, 3, 3]
    assert packed.token_types_N.tolist() == [0, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 0]
    assert packed.starts_B1.tolist() == [0, 4, 7, 8, 10]
    assert packed.longest == 4
    for found in (batch, packed):
        assert found.lengths_B.tolist() == [4, 3, 1, 2]
        assert found.labels_BW.tolist() == [[0], [1], [IGNORED], [2]]
    table = FeatureTable(rows, CONFIG, CPU)
    assert table.pack(numbers, 12).token_types_N is table.gather(numbers, 5).token_types_BL is None


def test_labels_of_words_and_of_answers() -> None:
    """Tags are padded as the tokens are; the ends of an answer stay two."""
    tags = [Features(array(5, 6), array(IGNORED, 4)), Features(array(8, 9, 7), array(1, 0, 2))]
    table, numbers = FeatureTable(tags, CONFIG, CPU), torch.tensor([1, 0, 2])
    padded = table.gather(numbers, 4).labels_BW.tolist()
    assert padded == [[1, 0, 2, IGNORED], [IGNORED, 4, IGNORED, IGNORED], [IGNORED] * 4]
    packed = table.pack(numbers, 8).labels_BW.tolist()
    assert packed == [[1, 0, 2, IGNORED, 4] + [IGNORED] * 3]
    ends = [Features(array(5, 6), array(0, 1)), Features(array(8, 9, 7, 7), array(2, 3))]
    batch = FeatureTable(ends, CONFIG, CPU).gather(torch.tensor([0, 1, 2]), 4)
    assert batch.labels_BW.tolist() == [[0, 1], [2, 3], [IGNORED, IGNORED]]


def test_rounded_totals() -> None:
    totals = {1: 64, 64: 64, 65: 128, 1100: 1152, 2047: 2048, 5800: 5888}
    assert {total: round_total(total, CUDA) for total in totals} == totals
    assert round_total(65, CPU) == 65


@pytest.mark.parametrize("rotary", [None, Rotary(window=2)], ids=["bert", "modernbert"])
@pytest.mark.parametrize(
    ("kind", "tokenizer_kind"),
    [("classification", "bert"), ("tagging", "words"), ("span", "bert")],
)
def test_packed_logits_are_the_padded_ones(
    make_encoder: MakeEncoder, kind: HeadKind, tokenizer_kind: str, rotary: Rotary | None
) -> None:
    encoder = make_encoder(make_tokenizer(tokenizer_kind), rotary=rotary)
    model = TaskModel(encoder, make_head(kind, encoder.config, 5)).eval()
    random, features = np.random.default_rng(1), []
    for length in LENGTHS:
        ids = random.integers(5, encoder.config.vocab_size, length, dtype=np.int32)
        labels = np.zeros({"classification": 1, "tagging": length, "span": 2}[kind], dtype=np.int32)
        types = (np.arange(length) > 2).astype(np.int32)
        features.append(Features(ids, labels, token_types=types))
    table = FeatureTable(features, encoder.config, CPU)
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
