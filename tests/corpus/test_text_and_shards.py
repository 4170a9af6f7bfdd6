"""Text files in, sentences and shards out; every damage is named."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from metaxlm.corpus.shards import open_shard, token_dtype, write_shard
from metaxlm.corpus.text import (
    find_text,
    read_documents,
    read_sentences,
    split_into_sentences,
    write_documents,
)
from metaxlm.errors import MetaXLMError

TEXT = "One.  Two\tthree.\nFour.\n\n\n \nFünf, привет, 你好。\n"
DOCUMENTS = [["One. Two three.", "Four."], ["Fünf, привет, 你好。"]]


@pytest.mark.parametrize("ending", [".txt", ".txt.gz", ".txt.xz"])
def test_documents_are_read_from_every_format(tmp_path: Path, ending: str) -> None:
    compress = {".txt": bytes, ".txt.gz": gzip.compress, ".txt.xz": lzma.compress}[ending]
    (tmp_path / f"en{ending}").write_bytes(compress(TEXT.encode()))
    assert list(read_documents(find_text(tmp_path, "en"))) == DOCUMENTS


def test_written_documents_read_back(tmp_path: Path) -> None:
    assert write_documents(tmp_path / "en.txt", DOCUMENTS) == 3
    assert list(read_documents(tmp_path / "en.txt")) == DOCUMENTS
    assert list(read_sentences(tmp_path / "en.txt")) == [s for d in DOCUMENTS for s in d]


def test_paragraphs_are_split_into_sentences() -> None:
    split = split_into_sentences([["Dr. Smith came. He sat down."], ["他来了。他走了。"]], "en")
    assert next(split) == ["Dr. Smith came.", "He sat down."]
    assert list(split_into_sentences([["他来了。他走了。"]], "zh")) == [["他来了。", "他走了。"]]


def test_what_is_wrong_with_a_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match=r"no file for language 'en' \(en.txt, "):
        find_text(tmp_path, "en")
    with pytest.raises(MetaXLMError, match="no such folder"):
        find_text(tmp_path / "absent", "en")
    for ending in (".txt", ".txt.gz"):
        (tmp_path / f"de{ending}").write_bytes(b"")
    with pytest.raises(MetaXLMError, match=r"several files .*de.txt, de.txt.gz"):
        find_text(tmp_path, "de")
    (tmp_path / "fr.txt").write_bytes("gut\ncafé\n".encode("latin-1"))
    with pytest.raises(MetaXLMError, match=r"fr.txt:2: not UTF-8"):
        list(read_documents(tmp_path / "fr.txt"))
    (tmp_path / "ru.txt.xz").write_bytes(lzma.compress(TEXT.encode())[:-20])
    with pytest.raises(MetaXLMError, match="damaged or cut short"):
        list(read_documents(tmp_path / "ru.txt.xz"))
    with pytest.raises(MetaXLMError, match="is empty"):
        write_documents(tmp_path / "tr.txt", [])
    assert not (tmp_path / "tr.txt").exists()


def test_shards_hold_the_tokenizers_ids(
    tmp_path: Path, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    lines = ["the cat sees a house.", "", "der alte Mann", "ψ"]
    counts = write_shard(tmp_path / "en", lines, multilingual_tokenizer)
    shard = open_shard(tmp_path / "en")
    assert shard.counts == counts
    assert counts.sentences == 3
    assert counts.unknown == 1
    assert counts.bytes == sum(len(line.encode()) for line in lines)
    kept = [line for line in lines if line]
    for index, line in enumerate(kept):
        expected = multilingual_tokenizer(line, add_special_tokens=False)["input_ids"]
        assert shard.sentence(index).tolist() == expected


def test_ids_take_the_narrowest_type() -> None:
    assert np.dtype(token_dtype(65_536)).itemsize == 2
    assert np.dtype(token_dtype(65_537)).itemsize == 4


def test_a_cut_shard_is_refused(
    tmp_path: Path, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    write_shard(tmp_path / "en", ["the cat"], multilingual_tokenizer)
    path = tmp_path / "en" / "tokens.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MetaXLMError, match=r"tokens.bin: found \d+ bytes, the manifest says"):
        open_shard(tmp_path / "en")
    write_shard(tmp_path / "de", ["", " "], multilingual_tokenizer)
    with pytest.raises(MetaXLMError, match="holds no tokens"):
        open_shard(tmp_path / "de")
