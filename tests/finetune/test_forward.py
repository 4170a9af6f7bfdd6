"""Packed sequences give the logits that padded ones give, under each head."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metaxlm.finetune.feature_table import FeatureTable
from metaxlm.finetune.forward import compute_logits, compute_packed, split_logits, takes_packed
from metaxlm.finetune.task import Features
from metaxlm.model.encoder import Encoder
from metaxlm.model.heads import HeadKind, TaskModel, make_head
from tests.finetune.conftest import CPU, MakeEncoder, make_tokenizer

LENGTHS = [9, 9, 6, 4, 4, 4, 1]


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


def test_a_sequence_that_does_not_fit_is_refused_packed_too(make_encoder: MakeEncoder) -> None:
    from metaxlm.errors import MetaXLMError

    encoder = make_encoder(make_tokenizer("unigram"), max_positions=8)
    with pytest.raises(MetaXLMError, match="a sequence of 9 tokens does not fit its 8 positions"):
        encoder.encode_packed(torch.full((13,), 7), [9, 4])
