from __future__ import annotations

import numpy as np
import pytest
import torch

from metaxlm.model.encoder import EncoderConfig
from metaxlm.tasks.feature_table import FeatureTable
from metaxlm.tasks.finetune_step import pad_length
from metaxlm.tasks.task import IGNORED, Features
from tests.tasks.conftest import CPU

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


@pytest.mark.parametrize(
    ("length", "padded"),
    [(1, 16), (16, 16), (17, 32), (128, 128), (129, 160), (384, 384), (385, 400), (400, 400)],
)
def test_padded_lengths(length: int, padded: int) -> None:
    assert pad_length(length, longest=400) == padded
    assert len({pad_length(n, 400) for n in range(1, 401)}) <= 24
