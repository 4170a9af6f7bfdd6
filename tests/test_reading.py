"""Limits of what is read, and the one line about what cannot be read."""

from __future__ import annotations

import lzma
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import PreTrainedTokenizerBase as TokenizerBase

from metaxlm import reading
from metaxlm.data.documents import Rejection, Split
from metaxlm.data.readers import parquet
from metaxlm.data.readers.parquet import list_pages, open_parquet
from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json, read_text
from metaxlm.finetune.readers.input_lines import open_input
from metaxlm.probe.pool import find_frame, tokenize_texts
from metaxlm.probe.retrieval_io import open_sentences
from metaxlm.reading import json_loads, parse_yaml, read_lines

parse_json = partial(json_loads, is_line=True)


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_json, "9" * 5_000, "a:3: a number of 5,000 digits"),
        (parse_json, "[" * 100_000, "a:3: JSON that is nested too deeply"),
        (parse_json, r'{"a": "\ud83d"}', r"a:3: \\ud83d is half a character"),
        (parse_json, '{"a": }', r"a:3: not valid JSON \(Expecting value\)"),
        (parse_yaml, "a: " + "[" * 1_000, r"a:3:1: not valid YAML \(nested too deeply\)"),
        (parse_yaml, "a: &a [*a]", "a:3:1: YAML with aliases"),
        (parse_yaml, "a: " + "9" * 5_000, "a:3: a value that YAML cannot read"),
        (parse_yaml, "a: !!bool b", "a:3: a value that YAML cannot read"),
        (parse_yaml, "a: 2024-99-99", "a:3: a value that YAML cannot read"),
        (parse_yaml, "a: \0", "a:3: not valid YAML"),
    ],
)
def test_hostile_text_is_rejected(
    parse: Callable[[str, str], object], text: str, message: str
) -> None:
    with pytest.raises(MetaXLMError, match=f"^{message}"):
        parse(text, "a:3")


def test_a_long_line_is_named_with_its_size(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 10 + b"\r\n" + b"x" * 11)
    with path.open("rb") as file, pytest.raises(MetaXLMError) as caught:
        list(read_lines(file, path, 10))
    assert str(caught.value).startswith(f"{path}:2: the line has more than 10 bytes")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path)])
def test_pipes_and_folders_are_rejected(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "a")
    for read in (read_json, lambda path: open_input(str(path)), list_input):
        with pytest.raises(MetaXLMError, match=rf"^{tmp_path}/a: "):
            read(tmp_path / "a")


def list_input(path: Path) -> None:
    with open_sentences(str(path)) as sentences:
        list(sentences)


def test_files_above_the_limits_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(reading.MAX_DOCUMENT_BYTES + 1)
    with pytest.raises(MetaXLMError, match=r"a\.json: 1,073,741,825 bytes, .* split it"):
        read_json(tmp_path / "a.json")
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]
    (tmp_path / "a.xz").write_bytes(lzma.compress(b"text", filters=filters))
    with pytest.raises(MetaXLMError, match=r"a\.xz: .*Memory usage limit"):
        read_text(tmp_path / "a.xz")


def test_a_long_message_is_shortened() -> None:
    message = str(MetaXLMError(f"a:1: {'x' * 1_000_000}; restore it"))
    assert len(message) < 3_000
    assert message.startswith("a:1: xxx") and message.endswith("xxx; restore it")


def test_page_headers_are_read_as_arrow_writes_them(tmp_path: Path) -> None:
    draw = random.Random(3)
    texts = [draw.randbytes(draw.randrange(40)).hex() for _ in range(5_000)]
    for version in ("1.0", "2.0"):
        path = tmp_path / "de.parquet"
        pq.write_table(
            pa.table({"text": texts}), path, row_group_size=2_000,
            data_page_size=4_000, write_batch_size=100,
            dictionary_pagesize_limit=10_000, data_page_version=version, compression="zstd",
        )  # fmt: skip
        with open_parquet(path) as file:
            for group, num_rows in enumerate((2_000, 2_000, 1_000)):
                chunk = file.metadata.row_group(group).column(0)
                pages = list_pages(path, file, group, ["text"])
                data = [page for page in pages if not page.is_dictionary]
                assert len(pages) - len(data) == 1 and len(data) > 2
                assert sum(page.num_values for page in data) == num_rows
                headers = chunk.total_uncompressed_size - sum(page.num_bytes for page in pages)
                assert 0 < headers < 200 * len(pages)


def test_a_row_above_the_limit_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_RECORD_BYTES", 10)
    path = tmp_path / "de.parquet"
    texts = pa.table({"text": ["short", "x" * 11, "short"]})
    pq.write_table(texts, path, use_dictionary=False)
    records = list(parquet.read_parquet(Split(path, 0, None, 1), lambda _: None))
    assert records[1] == Rejection("row_too_large", "de.parquet, row 1")
    assert len(records) == 3 and not isinstance(records[2], Rejection)


def test_huge_texts_are_cut(
    multilingual_tokenizer: TokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["the cat sees a house. " * 200, "a dog"]
    frame = find_frame(multilingual_tokenizer)
    whole, whole_cut = tokenize_texts(multilingual_tokenizer, texts, frame, 32)
    monkeypatch.setattr("metaxlm.probe.pool.MAX_CHARACTERS", 500)
    ids, cut = tokenize_texts(multilingual_tokenizer, texts, frame, 32)
    assert cut == whole_cut == [0]
    for one, other in zip(ids, whole, strict=True):
        np.testing.assert_array_equal(one, other)
