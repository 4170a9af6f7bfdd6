from __future__ import annotations

import json
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaxlm.data.documents import Document, Record, Rejection
from metaxlm.data.readers.inputs import split_input
from metaxlm.data.readers.lines import read_jsonl

from .conftest import ReadAll, rejections_of, thorough, whole, zstd

REASONS = {"invalid_utf8", "invalid_json", "no_text", "nul", "line_too_long", "empty"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jsonl") / "en.jsonl"


def dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


lines = st.one_of(
    st.builds(lambda text: dump({"text": text}), st.text(max_size=30)),
    st.builds(
        lambda text: json.dumps({"text": text}).encode(), st.text("a\ud800\0\n\u2028 ", max_size=4)
    ),
    st.builds(lambda value: dump({"id": value}), st.integers()),
    st.builds(dump, st.lists(st.booleans(), max_size=3)),
    st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"")),
    st.sampled_from([b"", b" \r", b"{", b"x" * 41, b'{"text": 1}', b'{"text": "\xff"}']),
)
files = st.lists(lines, max_size=12).map(b"\n".join)


@pytest.mark.usefixtures("small_windows")
class TestAnyFile:
    @given(files)
    @thorough
    def test_every_line_that_is_not_blank_is_one_record(
        self, path: Path, read_all: ReadAll, data: bytes
    ) -> None:
        path.write_bytes(data)
        records = read_all(read_jsonl, whole(path))
        assert len(records) == sum(bool(line.strip()) for line in data.split(b"\n"))
        assert {record.reason for record in rejections_of(records)} <= REASONS
        for record in records:
            if isinstance(record, Document):
                assert record.text.encode() and "" not in record.text.split("\n")

    @given(files, st.integers(1, 100))
    @thorough
    def test_splits_give_what_the_whole_file_gives(
        self, path: Path, read_all: ReadAll, data: bytes, target: int
    ) -> None:
        path.write_bytes(data)
        splits = split_input(path, "jsonl", target)
        parts = [record for split in splits for record in read_all(read_jsonl, split)]
        assert parts == read_all(read_jsonl, whole(path))


def read_line(path: Path, line: bytes) -> Record:
    path.write_bytes(line)
    (record,) = read_jsonl(whole(path), lambda _: None)
    return record


class TestRecords:
    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (b'{"text": "a\xff"}', "invalid_utf8"),
            (b'{"text": "a"', "invalid_json"),
            (b"text", "invalid_json"),
            (b"[" * 200_000, "invalid_json"),
            (b'{"text": "a", "id": ' + b"1" * 5_000 + b"}", "invalid_json"),
            (b'["text"]', "no_text"),
            (b'{"content": "a"}', "no_text"),
            (b'{"text": ["a"]}', "no_text"),
            (b'{"text": null}', "no_text"),
            (b'{"text": "a\0b"}', "nul"),
            (b'{"text": "a"}\0', "nul"),
            (b'{"text": "a\\u0000b"}', "nul"),
            (b'{"text": " \\n\\ufeff"}', "empty"),
        ],
    )
    def test_what_cannot_be_read_is_rejected_by_its_reason(
        self, path: Path, line: bytes, reason: str
    ) -> None:
        assert read_line(path, line) == Rejection(reason, "en.jsonl, byte 0")

    def test_rejections_say_where(self, path: Path, read_all: ReadAll) -> None:
        path.write_bytes('{"text": "ä"}\n\n{\n[]\n'.encode())
        assert rejections_of(read_all(read_jsonl, whole(path))) == [
            Rejection("invalid_json", "en.jsonl, byte 16"),
            Rejection("no_text", "en.jsonl, byte 18"),
        ]

    @pytest.mark.parametrize(
        ("fields", "name"),
        [
            ({"id": 7, "title": "A\u2028 title", "url": "u"}, "A title"),
            ({"id": 7, "url": "u"}, "7"),
            ({"id": None, "url": "u"}, "u"),
            ({"title": ["a"]}, "en.jsonl, byte 0"),
            ({"title": ""}, "en.jsonl, byte 0"),
            ({}, "en.jsonl, byte 0"),
        ],
    )
    def test_documents_have_a_name(self, path: Path, fields: dict[str, object], name: str) -> None:
        assert read_line(path, dump({"text": "x", **fields})) == Document(name, "x")

    def test_byte_order_marks_windows_lines_and_raw_tabs_do_no_harm(
        self, path: Path, read_all: ReadAll
    ) -> None:
        path.write_bytes(b'\xef\xbb\xbf{"text": "a\tb"}\r\n\r\n\xef\xbb\xbf{"text": "c"}\r\n')
        records = read_all(read_jsonl, whole(path))
        assert [record.text for record in records if isinstance(record, Document)] == ["a b", "c"]

    def test_the_text_may_have_another_key(self, path: Path, read_all: ReadAll) -> None:
        path.write_bytes(b'{"content": "a", "text": "b"}')
        (record,) = read_all(partial(read_jsonl, text_key="content"), whole(path))
        assert isinstance(record, Document) and record.text == "a"


def test_memory_is_flat_also_with_a_line_of_100_mb(tmp_path: Path) -> None:
    path = tmp_path / "en.jsonl.zst"
    block = b"".join(dump({"id": n, "text": "some wörds " * 450}) + b"\n" for n in range(200))
    path.write_bytes(
        zstd(block) * 40 + zstd(b'{"text": "' + b"x" * 100_000_000 + b'"}\n') + zstd(block)
    )
    num_documents, rejections = 0, []
    tracemalloc.start()
    try:
        for record in read_jsonl(whole(path), lambda _: None):
            if isinstance(record, Rejection):
                rejections.append(record)
            else:
                num_documents += 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert num_documents == 8_200
    assert rejections == [Rejection("line_too_long", f"en.jsonl.zst, byte {40 * len(block)}")]
    assert peak < 80e6
