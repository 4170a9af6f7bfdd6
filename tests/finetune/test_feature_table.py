from __future__ import annotations

import numpy as np
import pytest
import torch

from metaxlm.finetune.feature_table import FeatureTable
from metaxlm.finetune.forward import round_total, split_logits
from metaxlm.finetune.task import IGNORED, Features
from metaxlm.model.encoder import EncoderConfig
from tests.finetune.conftest import CPU

CUDA = torch.device("cuda")
CONFIG = EncoderConfig(vocab_size=50, hidden_size=8, num_heads=2, pad_id=3, position_offset=4)
TYPED = EncoderConfig(vocab_size=50, hidden_size=8, num_heads=2, pad_id=3, num_token_types=2,
                      position_offset=0)  # fmt: skip


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


def test_rounded_totals_are_few_and_close() -> None:
    rounded = np.array([round_total(n, CUDA) for n in range(1024, 8192)])
    assert len(set(rounded)) <= 16 * 3 + 1
    waste = rounded / np.arange(1024, 8192) - 1
    assert waste.min() == 0 and waste.max() < 1 / 16 and waste.mean() < 0.025


def test_logits_find_their_sequences_again() -> None:
    """Padded, packed, and one of each sequence."""
    values = torch.arange(24.0).view(1, 12, 2)
    packed = split_logits(values, [3, 1, 6])
    assert [rows[:, 0].tolist() for rows in packed] == [[0, 2, 4], [6], [8, 10, 12, 14, 16, 18]]
    padded = split_logits(values.view(3, 4, 2), [4, 2, 1])
    assert [rows[:, 0].tolist() for rows in padded] == [[0, 2, 4, 6], [8, 10], [16]]
    assert [rows[:, 0].tolist() for rows in split_logits(values, [2])] == [[0, 2]]
    assert [row.tolist() for row in split_logits(values[0, :2], [5, 3])] == [[0, 1], [2, 3]]
