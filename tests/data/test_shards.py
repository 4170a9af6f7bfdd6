"""Shards hold the tokenizer's ids, whatever the parts they were made from; damage is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.conftest import sentences
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.data import shards
from metaxlm.data.shards import ShardWriter, open_shard, write_shard
from metaxlm.errors import MetaXLMError
from metaxlm.manifest import find_damage

LINES = ["the cat sees a house.", "my sister", "", "der alte Mann", "ψ"]


def test_shards_hold_the_tokenizers_ids(tmp_path: Path, tokenizer: Tokenizer) -> None:
    counts = write_shard(tmp_path / "en", LINES, tokenizer)
    shard = open_shard(tmp_path / "en")
    assert shard.counts == counts
    assert (counts.documents, counts.sentences, counts.words, counts.unknown) == (2, 4, 11, 1)
    assert counts.bytes == sum(len(line.encode()) for line in LINES)
    assert counts.characters == sum(map(len, LINES))
    assert counts.tokens == len(shard.tokens)
    frequencies = shard.count_tokens(len(tokenizer))
    assert frequencies.tolist() == np.bincount(shard.tokens, minlength=110).tolist()
    for index, line in enumerate(line for line in LINES if line):
        expected = tokenizer(line, add_special_tokens=False)["input_ids"]
        assert shard.sentence(index).tolist() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["en"]


def test_sentences_without_a_token_are_left_out(tmp_path: Path, tokenizer: Tokenizer) -> None:
    lines = ["the cat", "\u200b", "a dog"]  # a zero-width space is normalized away
    assert write_shard(tmp_path / "en", lines, tokenizer).sentences == 2
    offsets = open_shard(tmp_path / "en").offsets
    assert len(offsets) == 3
    assert (np.diff(offsets.astype(np.int64)) > 0).all()


@pytest.mark.parametrize("batch", [1, 50, 10_000])
def test_parts_and_batches_do_not_matter(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    lines = [line for sentence in sentences("en") for line in (sentence, "the cat", "")]
    whole = write_shard(tmp_path / "whole", lines, tokenizer)
    monkeypatch.setattr(shards, "_BATCH_CHARACTERS", batch)
    writer = ShardWriter(tokenizer.backend_tokenizer)
    parts = []
    for number, start in enumerate(range(0, len(lines), 60)):
        parts.append(tmp_path / f"part{number}")
        writer.write_part(parts[-1], lines[start : start + 60])
    assert writer.join(tmp_path / "joined", parts) == whole
    for name in ("tokens.bin", "offsets.bin", "manifest.json"):
        assert (tmp_path / "joined" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_damage_is_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    write_shard(tmp_path / "en", ["the cat"], tokenizer)
    path = tmp_path / "en" / "tokens.bin"
    whole = path.read_bytes()
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert find_damage(tmp_path / "en") == [f"{path}: changed, its digest does not fit"]
    with pytest.raises(MetaXLMError, match=r"tokens.bin: changed, its digest does not fit"):
        open_shard(tmp_path / "en")
    path.write_bytes(whole[:-1])
    with pytest.raises(MetaXLMError, match=r"tokens.bin: \d+ bytes, should be \d+; delete"):
        open_shard(tmp_path / "en")
    write_shard(tmp_path / "de", ["", ""], tokenizer)
    with pytest.raises(MetaXLMError, match="no tokens in the shard"):
        open_shard(tmp_path / "de")


def test_a_text_that_breaks_off_leaves_nothing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def lines() -> object:
        yield "the cat"
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        write_shard(tmp_path / "en", lines(), tokenizer)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
