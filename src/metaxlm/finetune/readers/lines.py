"""Lines of text files: a path comes in, checked lines go out.

What every reader of the paper's task data (its Section 4) shares: UTF-8 only, line ends of both
kinds, and an error that names file and line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.reading import MAX_TEXT_BYTES, decode_line, decode_text, open_file, read_bytes
from metaxlm.reading import read_lines as read_file_lines


def read_whole(path: Path) -> str:
    """Read a UTF-8 file."""
    return decode_text(read_bytes(path), path)


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 file without their ends; LF and CRLF both end a line.

    Only those two: real test sets have U+2028 and U+0085 inside their sentences.
    """
    with open_file(path) as file:
        lines = [
            decode_line(number, line, path)
            for number, line in read_file_lines(file, path, MAX_TEXT_BYTES)
        ]
    if not lines:
        raise MetaXLMError(f"{path}:1: the file is empty; restore it")
    return lines


def read_sides(path: Path, other_path: Path) -> tuple[list[str], list[str]]:
    """Read two line-parallel files; no line may be empty, and both have equally many."""
    lines, others = read_lines(path), read_lines(other_path)
    if len(lines) != len(others):
        raise MetaXLMError(
            f"{path}:{len(lines)}: has {len(lines)} lines, {other_path.name} has {len(others)}; "
            f"parallel files need equally many"
        )
    for file, content in ((path, lines), (other_path, others)):
        for number, line in enumerate(content, start=1):
            if not line.strip():
                raise MetaXLMError(f"{file}:{number}: the line is empty; every line is a sentence")
    return lines, others


def tell_missing(path: Path, present: Sequence[str]) -> str:
    """Say that a file is missing, and what is there instead."""
    if not path.parent.is_dir():
        return f"{path.parent}: no such folder; unpack the task's data there"
    return f"{path}: no such file; found here: {' '.join(present) or 'nothing'}"


def tell_unknown(label: str, labels: Iterable[str], where: str) -> str:
    """Say that a label is not known, and which are."""
    return f"{where}: unknown label {label!r}; known: {', '.join(labels)}"


def tell_unlabeled(path: Path, numbers: Sequence[int], total: int, noun: str) -> tuple[str, ...]:
    """Return the notice about examples without a label, given by their lines; none if all have."""
    if not numbers:
        return ()
    if len(numbers) == total:
        return (f"{path}: no labels; its {total:,} {noun} are predicted, not scored",)
    return (
        f"{path}:{numbers[0]}: no label, as in {len(numbers):,} of {total:,} {noun}; these are "
        f"predicted, not scored",
    )
