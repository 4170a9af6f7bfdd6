"""Batches: functions of the step, whatever splits a step and prepares it."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.sentences import sentence_batches
from metaxlm.sentences.sentence_batches import SentenceBatch
from tests.sentences.encoder_trainings import LoudPairs
from tests.sentences.test_sentence_step import NUM_ANCHORS, make_source


def list_rows(batch: SentenceBatch) -> list[tuple[int, list[int]]]:
    bounds = batch.starts_B1.tolist()
    ids = [batch.ids_N[a:b].tolist() for a, b in pairwise(bounds)]
    return list(zip(batch.anchors_B.tolist(), ids, strict=True))


def test_a_row_is_the_text_of_its_pair(tokenizer: Tokenizer) -> None:
    drawn = LoudPairs().draw(np.arange(16, 24))
    expected = sorted(zip(drawn.anchors.tolist(), tokenizer(drawn.texts)["input_ids"], strict=True))
    assert sorted(list_rows(make_source(tokenizer).micro_batch(2))) == expected


@pytest.mark.parametrize("count", [2, 4])
def test_micro_batches_have_the_rows_of_the_step(tokenizer: Tokenizer, count: int) -> None:
    source = make_source(tokenizer, num_negatives=5)
    whole = source.micro_batch(3)
    parts = [source.micro_batch(3, index, count) for index in range(count)]
    assert sorted(chain.from_iterable(map(list_rows, parts))) == sorted(list_rows(whole))
    assert all(torch.equal(part.extra_E, whole.extra_E) for part in parts)
    assert len({part.dropout_seed for part in [whole, *parts]}) == count + 1


def test_long_texts_keep_their_last_special_token(tokenizer: Tokenizer) -> None:
    long, short = (make_source(tokenizer, max_length=most).micro_batch(0) for most in (24, 5))
    assert max(long.sizes) > 5 and set(short.sizes) == {5}
    expected = {(anchor, *row[:4], row[-1]) for anchor, row in list_rows(long)}
    assert {(anchor, *row) for anchor, row in list_rows(short)} == expected


def test_negatives_are_other_anchors_of_the_run(tokenizer: Tokenizer) -> None:
    source = make_source(tokenizer, num_negatives=200)
    found = [source.micro_batch(step).extra_E for step in (0, 0, 1)]
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    assert set(found[0].tolist()) <= set(range(NUM_ANCHORS)) and len(set(found[0].tolist())) > 32


@pytest.mark.parametrize("forks", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_processes_prepare_the_same_batches(
    tokenizer: Tokenizer, forks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentence_batches, "_CAN_FORK", forks)
    with make_source(tokenizer, workers=2) as source:
        found = [source.micro_batch(step) for step in range(4)]
    for step, batch in enumerate(found):
        expected = make_source(tokenizer).micro_batch(step)
        pairs = zip(batch.tensors(), expected.tensors(), strict=True)
        assert all(torch.equal(*pair) for pair in pairs)
