"""Blocks: reading many rows at once gives what reading one by one would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast, PreTrainedTokenizerBase

from metaxlm.data.shards import Shard, ShardCounts
from metaxlm.errors import MetaXLMError
from metaxlm.pretraining.blocks import Blocks
from metaxlm.pretraining.packing import pack


class Specials:
    """The only part of a tokenizer that blocks need."""

    bos_token_id, pad_token_id, eos_token_id = 0, 1, 2


def make_shard(lengths: list[int], first_token: int = 10) -> Shard:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint64)
    tokens = np.arange(first_token, first_token + sum(lengths), dtype=np.uint32)
    return Shard(tokens, offsets, ShardCounts(tokens=len(tokens)))


def open_blocks(shards: list[Shard], length: int) -> Blocks:
    by_name = {f"x{index}": shard for index, shard in enumerate(shards)}
    return Blocks(by_name, Specials(), length)  # type: ignore[arg-type]


def read(blocks: Blocks, rows: list[tuple[int, int]], length: int) -> list[list[int]]:
    output = np.full((len(rows), length), -7, np.int32)
    languages, numbers = np.array(rows).T
    lengths = blocks.read(languages, numbers, output)
    for row, size in zip(output.tolist(), lengths.tolist(), strict=True):
        assert row[size:] == [1] * (length - size)
    return [row[:size] for row, size in zip(output.tolist(), lengths.tolist(), strict=True)]


def read_slowly(shard: Shard, length: int) -> list[list[int]]:
    """Return all blocks of a shard."""
    sizes = np.minimum(np.diff(shard.offsets.astype(np.int64)) + 1, length - 1)
    (packing,) = pack([sizes], length - 1)
    rows = []
    for block in range(len(packing)):
        row = [0]
        for sentence in packing.sentences(block):
            row += [*shard.sentence(sentence).tolist()[: length - 2], 2]
        rows.append(row)
    return rows


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=40), min_size=1, max_size=4),
    st.integers(3, 30),
    st.randoms(use_true_random=False),
)
def test_rows_of_all_languages_are_read_together(
    lengths: list[list[int]], length: int, random: object
) -> None:
    shards = [make_shard(part, 1_000 * index + 10) for index, part in enumerate(lengths)]
    blocks = open_blocks(shards, length)
    rows = [
        (language, block)
        for language, num_blocks in enumerate(blocks.num_blocks.values())
        for block in range(num_blocks)
    ]
    random.shuffle(rows)  # type: ignore[attr-defined]
    expected = [read_slowly(shard, length) for shard in shards]
    for part in (rows, rows[:3]):
        assert read(blocks, part, length) == [expected[language][block] for language, block in part]


def test_blocks_hold_whole_sentences_between_their_special_tokens() -> None:
    blocks = open_blocks([make_shard([3, 2, 4, 1])], 9)
    assert read(blocks, [(0, 0), (0, 1)], 9) == [
        [0, 10, 11, 12, 2, 13, 14, 2],
        [0, 15, 16, 17, 18, 2, 19, 2],
    ]
    assert blocks.padding_share == pytest.approx(2 / 18)


def test_a_sentence_longer_than_a_block_is_cut_and_keeps_its_end() -> None:
    blocks = open_blocks([make_shard([20, 5, 2, 2])], 8)
    assert read(blocks, [(0, 0), (0, 1), (0, 2)], 8) == [
        [0, 10, 11, 12, 13, 14, 15, 2],
        [0, 30, 31, 32, 33, 34, 2],
        [0, 35, 36, 2, 37, 38, 2],
    ]


def test_a_length_without_room_for_a_token_is_refused() -> None:
    with pytest.raises(MetaXLMError, match="length is 2"):
        open_blocks([make_shard([3])], 2)


def test_bert_names_its_boundaries_differently(encoder: object) -> None:
    tokenizer: PreTrainedTokenizerBase = BertTokenizerFast.from_pretrained(encoder)
    blocks = Blocks({"en": make_shard([2])}, tokenizer, 6)
    output = np.zeros((1, 6), np.int32)
    blocks.read(np.array([0]), np.array([0]), output)
    assert tokenizer.convert_ids_to_tokens(output[0])[::3] == ["[CLS]", "[SEP]"]
