from __future__ import annotations

import gzip
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metaxlm.data.documents import Document, Rejection
from metaxlm.data.readers.inputs import split_input
from metaxlm.data.readers.lines import MAX_DOCUMENT_LINES, read_text

from .conftest import ReadAll, lines_of, rejections_of, thorough, whole, zstd
from .test_characters import tidy_one

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


def judge(line: bytes) -> str:
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


@pytest.mark.usefixtures("small_windows")
class TestAnyFile:
    @given(files)
    @thorough
    def test_accepted_and_rejected_lines_are_the_input(
        self, path: Path, read_all: ReadAll, data: bytes
    ) -> None:
        path.write_bytes(data)
        records = read_all(read_text, whole(path))
        accepted, rejected, offset = [], [], 0
        for line in data.split(b"\n"):
            if reason := judge(line):
                rejected.append(Rejection(reason, f"en.txt, byte {offset}"))
            elif tidy := tidy_one(line.decode()):
                accepted.append(tidy)
            offset += len(line) + 1
        assert lines_of(records) == accepted
        assert rejections_of(records) == rejected

    @given(files, st.integers(1, 100))
    @thorough
    @example(b"a\n\n" + b"w" * 40 + b"\na\n\nb\n", 32)  # a line that hides a whole window
    @example(b"x\n\nno blank line from here\n" + b"word\n" * 20, 16)
    def test_splits_give_what_the_whole_file_gives(
        self, path: Path, read_all: ReadAll, data: bytes, target: int
    ) -> None:
        path.write_bytes(data)
        splits = split_input(path, "text", target)
        assert sum(split.size for split in splits) == len(data)
        parts = [record for split in splits for record in read_all(read_text, split)]
        assert parts == read_all(read_text, whole(path))

    @given(files)
    @thorough
    def test_no_document_crosses_a_blank_or_rejected_line(
        self, path: Path, read_all: ReadAll, data: bytes
    ) -> None:
        path.write_bytes(data)
        blocks, block = [], ""
        for line in data.split(b"\n"):
            tidy = "" if judge(line) else tidy_one(line.decode())
            block = f"{block}{tidy}\n" if tidy else ""
            blocks.append(block)
        for record in read_all(read_text, whole(path)):
            if isinstance(record, Document):
                assert record.text.count("\n") < 3
                assert any(f"{record.text}\n" in block for block in blocks)
                place = re.fullmatch(r"en\.txt, byte (\d+)(?:, part (\d+))?", record.name)
                assert place is not None
                if place[2] in (None, "1"):
                    line, *_ = data[int(place[1]) :].split(b"\n", 1)
                    assert tidy_one(line.decode()) == record.text.split("\n")[0]


class TestDocuments:
    def test_blank_lines_separate_documents(self, path: Path, read_all: ReadAll) -> None:
        text = "\ufeff\n Erster  Satz.\r\nZweiter.\r\n\r\n\u3000\nÜber\tuns.\n\n\n"
        path.write_bytes(text.encode())
        assert read_all(read_text, whole(path)) == [
            Document("en.txt, byte 4", "Erster Satz.\nZweiter."),
            Document("en.txt, byte 36", "Über uns."),
        ]

    def test_sentences_without_blank_lines_are_cut(self, path: Path, read_all: ReadAll) -> None:
        lines = [f"Sentence number {number}." for number in range(2_500)]
        path.write_text("\n".join(lines))
        first, second, third = read_all(read_text, whole(path))
        assert lines_of([first, second, third]) == lines
        assert len(lines_of([first])) == len(lines_of([second])) == MAX_DOCUMENT_LINES
        assert isinstance(third, Document) and third.name == "en.txt, byte 0, part 3"

    def test_a_book_on_few_lines_is_cut_at_a_megabyte(self, path: Path, read_all: ReadAll) -> None:
        line = "word " * 20_000
        path.write_text("\n".join([line] * 50))  # 5 MB
        records = read_all(read_text, whole(path))
        assert lines_of(records) == [line.strip()] * 50
        assert max(len(record.text) for record in records if isinstance(record, Document)) < 1.2e6


class TestFaultsAndMemory:
    @pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
    def test_memory_is_flat(self, tmp_path: Path, ending: str) -> None:
        path = tmp_path / f"en.txt{ending}"
        block = "".join(
            f"A línes with some words, number {n}.\n{'' if n % 200 else chr(10)}"
            for n in range(26_000)
        )
        compress = {"": bytes, ".gz": lambda data: gzip.compress(data, 1), ".zst": zstd}[ending]
        path.write_bytes(compress(block.encode()) * 64)
        num_lines = 0
        tracemalloc.start()
        try:
            for record in read_text(whole(path), lambda _: None):
                assert isinstance(record, Document)
                num_lines += record.text.count("\n") + 1
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert num_lines == 64 * 26_000
        assert peak < 16e6
