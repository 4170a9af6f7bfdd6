"""The readers of text and JSON lines against Python's own view of characters and lines."""

from __future__ import annotations

import gzip
import json
import re
import sys
import unicodedata
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metaxlm.data.documents import Document, Record, Rejection, tidy_document, tidy_lines
from metaxlm.data.readers.inputs import split_input
from metaxlm.data.readers.lines import MAX_DOCUMENT_LINES, read_jsonl, read_text

from .conftest import limited_memory, lines_of, read_all, rejections_of, thorough, whole, zstd


def is_removed(character: str) -> bool:
    is_control = unicodedata.category(character) == "Cc" and not character.isspace()
    return is_control or character == "\ufeff"


def tidy_one(line: str) -> str:
    """Tidy a line with Python's own functions."""
    return " ".join("".join(c for c in line if not is_removed(c)).split())


def test_every_character_of_unicode_is_kept_or_goes_as_it_should() -> None:
    surrogates = range(0xD800, 0xE000)
    characters = [chr(code) for code in range(sys.maxunicode + 1) if code not in surrogates]
    characters.remove("\n")
    tidy = tidy_lines("".join(f"a{character}b\n" for character in characters)).split("\n")
    changed = {c: tidy_one(f"a{c}b") for c in characters if c.isspace() or is_removed(c)}
    assert tidy == [changed.get(character, f"a{character}b") for character in characters]


lines = st.lists(st.text("ab \t\xa0\x01\ufeff\u3000é\u200c", max_size=8), max_size=6)


@given(lines)
@thorough
def test_lines_are_tidy_and_none_is_empty(lines: list[str]) -> None:
    assert tidy_lines("\n".join(lines)) == "\n".join(filter(None, map(tidy_one, lines)))


def test_ends_of_lines_and_half_characters() -> None:
    text = "a\r\nb\rc\x0bd\x0ce\x85f\u2028g\u2029 h  \n\n\ni\tj\ud800k"
    assert tidy_document(text) == "a\nb\nc\nd\ne\nf\ng\nh\ni j\ufffdk"
    assert tidy_lines("\ufeffa\x0cb\u2028c\r\nd") == "a b c\nd"


MAX_LINE = 40  # of the fixture `small_windows`

READABLE = [b"a", b"b b\r", b"  c\x01  c", "é ü".encode(), b"thirteen byte", b"x" * 17]
BLANK = [b"", b"", b" \t", b"\xc2\xa0\r", "\ufeff\u3000".encode()]
UNREADABLE = [b"\xff", b"ok\xc3", b"n\0", b"\0\xff"]
LONG = [b"y" * MAX_LINE, b"z" * (MAX_LINE + 1), b"w" * 90, b" " * 60]

line = st.sampled_from([*READABLE, *BLANK, *UNREADABLE, *LONG])
files = st.builds(
    lambda lines, end: b"\n".join(lines) + end,
    st.lists(line, max_size=30),
    st.sampled_from([b"", b"\n"]),
)


REASONS = {"invalid_utf8", "invalid_json", "no_text", "nul", "line_too_long", "empty"}


def dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


json_lines = st.one_of(
    st.builds(lambda text: dump({"text": text}), st.text(max_size=30)),
    st.builds(
        lambda text: json.dumps({"text": text}).encode(), st.text("a\ud800\0\n\u2028 ", max_size=4)
    ),
    st.builds(lambda value: dump({"id": value}), st.integers()),
    st.builds(dump, st.lists(st.booleans(), max_size=3)),
    st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"")),
    st.sampled_from([b"", b" \r", b"{", b"x" * 41, b'{"text": 1}', b'{"text": "\xff"}']),
)
json_files = st.lists(json_lines, max_size=12).map(b"\n".join)


def find_fault(line: bytes) -> str:
    """Return the reason to reject a line, or nothing."""
    if len(line) > MAX_LINE:
        return "line_too_long"
    if b"\0" in line:
        return "nul"
    try:
        line.decode()
    except UnicodeDecodeError:
        return "invalid_utf8"
    return ""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("text") / "en.txt"


@pytest.fixture(scope="module")
def jsonl(path: Path) -> Path:
    return path.with_suffix(".jsonl")


@pytest.mark.usefixtures("small_windows")
class TestAnyFile:
    @given(files, st.integers(1, 100))
    @thorough
    @example(b"a\n\n" + b"w" * 40 + b"\na\n\nb\n", 32)  # a line that hides a whole window
    @example(b"x\n\nno blank line from here\n" + b"word\n" * 20, 16)
    def test_every_line_is_accepted_or_rejected(self, path: Path, data: bytes, target: int) -> None:
        path.write_bytes(data)
        records = read_all(read_text, whole(path))
        accepted, rejected, blocks, block, offset = [], [], [], "", 0
        for line in data.split(b"\n"):
            tidy = ""
            if reason := find_fault(line):
                rejected.append(Rejection(reason, f"en.txt, byte {offset}"))
            elif tidy := tidy_one(line.decode()):
                accepted.append(tidy)
            block = f"{block}{tidy}\n" if tidy else ""
            blocks.append(block)
            offset += len(line) + 1
        assert lines_of(records) == accepted
        assert rejections_of(records) == rejected
        for record in records:  # no document crosses a blank or rejected line
            if isinstance(record, Document):
                assert record.text.count("\n") < 3
                assert any(f"{record.text}\n" in block for block in blocks)
                place = re.fullmatch(r"en\.txt, byte (\d+)(?:, part (\d+))?", record.name)
                assert place is not None
                if place[2] in (None, "1"):
                    line, *_ = data[int(place[1]) :].split(b"\n", 1)
                    assert tidy_one(line.decode()) == record.text.split("\n")[0]
        splits = split_input(path, "text", target)
        assert sum(split.size for split in splits) == len(data)
        assert [r for split in splits for r in read_all(read_text, split)] == records

    @given(json_files, st.integers(1, 100))
    @thorough
    def test_every_json_line_is_one_record(self, jsonl: Path, data: bytes, target: int) -> None:
        jsonl.write_bytes(data)
        records = read_all(read_jsonl, whole(jsonl))
        assert len(records) == sum(bool(line.strip()) for line in data.split(b"\n"))
        assert {record.reason for record in rejections_of(records)} <= REASONS
        for record in records:
            if isinstance(record, Document):
                assert record.text.encode() and "" not in record.text.split("\n")
        splits = split_input(jsonl, "jsonl", target)
        assert [r for split in splits for r in read_all(read_jsonl, split)] == records


def test_blank_lines_separate_documents(path: Path) -> None:
    text = "\ufeff\n Erster  Satz.\r\nZweiter.\r\n\r\n\u3000\nÜber\tuns.\n\n\n"
    path.write_bytes(text.encode())
    assert read_all(read_text, whole(path)) == [
        Document("en.txt, byte 4", "Erster Satz.\nZweiter."),
        Document("en.txt, byte 36", "Über uns."),
    ]


def test_sentences_without_blank_lines_are_cut(path: Path) -> None:
    lines = [f"Sentence number {number}." for number in range(2_500)]
    path.write_text("\n".join(lines))
    first, second, third = read_all(read_text, whole(path))
    assert lines_of([first, second, third]) == lines
    assert len(lines_of([first])) == len(lines_of([second])) == MAX_DOCUMENT_LINES
    assert isinstance(third, Document) and third.name == "en.txt, byte 0, part 3"


def test_a_book_on_few_lines_is_cut_at_a_megabyte(path: Path) -> None:
    line = "word " * 20_000
    path.write_text("\n".join([line] * 50))  # 5 MB
    records = read_all(read_text, whole(path))
    assert lines_of(records) == [line.strip()] * 50
    assert max(len(record.text) for record in records if isinstance(record, Document)) < 1.2e6


def test_memory_is_flat(tmp_path: Path) -> None:
    path = tmp_path / "en.txt.gz"
    block = "".join(
        f"A línes with some words, number {n}.\n{'' if n % 200 else chr(10)}" for n in range(26_000)
    )
    path.write_bytes(gzip.compress(block.encode(), 1) * 24)
    with limited_memory(16e6):
        records = read_text(whole(path), lambda _: None)
        num_lines = sum(len(lines_of([record])) for record in records)
    assert num_lines == 24 * 26_000


def read_line(path: Path, line: bytes) -> Record:
    path.write_bytes(line)
    (record,) = read_jsonl(whole(path), lambda _: None)
    return record


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
def test_reasons_of_rejections(jsonl: Path, line: bytes, reason: str) -> None:
    assert read_line(jsonl, line) == Rejection(reason, "en.jsonl, byte 0")


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
def test_documents_have_a_name(jsonl: Path, fields: dict[str, object], name: str) -> None:
    assert read_line(jsonl, dump({"text": "x", **fields})) == Document(name, "x")


def test_marks_tabs_places_and_another_key(jsonl: Path) -> None:
    lines = ['\ufeff{"content": "ä\tb", "text": "x"}\r', "", "{", '\ufeff{"content": "c"}']
    jsonl.write_bytes("\n".join(lines).encode())
    assert read_all(partial(read_jsonl, text_key="content"), whole(jsonl)) == [
        Document("en.jsonl, byte 0", "ä b"),
        Rejection("invalid_json", "en.jsonl, byte 38"),
        Document("en.jsonl, byte 40", "c"),
    ]


def test_memory_is_flat_also_with_a_line_of_100_mb(tmp_path: Path) -> None:
    path = tmp_path / "en.jsonl.zst"
    block = b"".join(dump({"id": n, "text": "some wörds " * 450}) + b"\n" for n in range(200))
    path.write_bytes(
        zstd(block) * 10 + zstd(b'{"text": "' + b"x" * 100_000_000 + b'"}\n') + zstd(block)
    )
    num_documents, rejections = 0, []
    with limited_memory(80e6):
        for record in read_jsonl(whole(path), lambda _: None):
            if isinstance(record, Rejection):
                rejections.append(record)
            else:
                num_documents += 1
    assert num_documents == 2_200
    assert rejections == [Rejection("line_too_long", f"en.jsonl.zst, byte {10 * len(block)}")]
