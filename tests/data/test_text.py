"""Prepared text comes back as it was written, in parts, with counts that a person would make."""

from __future__ import annotations

from pathlib import Path

import pytest

from metaxlm.data.text import (
    CorpusCounts,
    TextCounts,
    list_parts,
    read_counts,
    read_lines,
    read_sentences,
    seal_text,
    write_lines,
)
from metaxlm.errors import MetaXLMError
from metaxlm.manifest import find_damage

DOCUMENTS = [["One. Two three.", "Four."], ["Fünf, привет, 你好。"]]


def test_documents_come_back(tmp_path: Path) -> None:
    counts = write_lines(tmp_path / "00000.txt", DOCUMENTS)
    assert (tmp_path / "00000.txt").read_text() == (
        "One. Two three.\nFour.\n\nFünf, привет, 你好。\n"
    )
    assert list(read_lines(tmp_path / "00000.txt")) == DOCUMENTS
    assert counts == TextCounts(documents=2, sentences=3, words=7, characters=37, bytes=50)


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0b", "\r"])
def test_only_line_feeds_end_lines(tmp_path: Path, mark: str) -> None:
    write_lines(tmp_path / "00000.txt", [[f"a{mark}b", "c"]])
    assert list(read_lines(tmp_path / "00000.txt")) == [[f"a{mark}b", "c"]]


def test_parts_are_read_in_order(tmp_path: Path) -> None:
    for number in (2, 0, 1):
        write_lines(tmp_path / f"{number:05d}.txt", [[f"part {number}"], ["x"]])
    assert [path.name for path in list_parts(tmp_path)] == ["00000.txt", "00001.txt", "00002.txt"]
    assert list(read_sentences(tmp_path)) == ["part 0", "x", "part 1", "x", "part 2", "x"]


def test_a_language_is_sealed_with_its_counts(tmp_path: Path) -> None:
    write_lines(tmp_path / "00000.txt", DOCUMENTS)
    write_lines(tmp_path / "00001.txt", DOCUMENTS[:1])
    seal_text(tmp_path)
    assert find_damage(tmp_path) == []
    assert read_counts(tmp_path).text == TextCounts(3, 5, 11, 57, 70)
    counts = CorpusCounts(TextCounts(1, 2, 3, 4, 5), 9, {"nul": 1}, {"too_long": 2}, {"nul": "x:1"})
    seal_text(tmp_path, counts)
    assert read_counts(tmp_path) == counts


def test_a_missing_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match="no prepared text"):
        list(read_sentences(tmp_path))
