"""Read the lines of UTF-8 text files; errors name file and line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Generic, Self, TypeVar

from metaxlm.errors import MetaXLMError
from metaxlm.files import STANDARD, get_standard_input
from metaxlm.reading import MAX_TEXT_BYTES, decode_line, open_file
from metaxlm.reading import read_lines as read_file_lines

Example = TypeVar("Example")

_LFS_POINTER = "version https://git-lfs"


@dataclass(frozen=True)
class Examples(Generic[Example]):
    """The content of one file."""

    items: list[Example]
    notices: tuple[str, ...] = ()
    """What was left out or repaired, with the file; the caller logs it."""
    languages: tuple[str, ...] = ()
    """The language of each item, where the file has several."""


@dataclass
class InputLines:
    """The lines of an input without their ends; counts the bytes read."""

    name: str
    file: BinaryIO
    total_bytes: int | None
    """None for standard input, whose size is unknown."""
    bytes_read: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.total_bytes is not None:
            self.file.close()

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for number, line in read_file_lines(self.file, self.name, MAX_TEXT_BYTES):
            self.bytes_read += len(line)
            yield number, decode_line(number, line, self.name)


def open_input(source: str) -> InputLines:
    """Open a file, or standard input for `-`."""
    if source == STANDARD:
        return InputLines("standard input", get_standard_input(), None)
    path = Path(source)
    return InputLines(source, open_file(path), path.stat().st_size)


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 file without their ends; only LF and CRLF end a line."""
    with open_input(str(path)) as file:
        lines = [line for _, line in file]
    if not lines:
        raise MetaXLMError(f"{path}:1: the file is empty; restore it")
    if lines[0].startswith(_LFS_POINTER):
        raise MetaXLMError(f"{path}:1: a Git LFS pointer, not the data; run `git lfs pull`")
    return lines


def read_sides(path: Path, other_path: Path) -> tuple[list[str], list[str]]:
    """Read two line-parallel files of equal length without empty lines."""
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


def split_at_spaces(text: str) -> tuple[str, ...]:
    """Split pre-tokenized text at ASCII spaces and tabs; other white space, as U+3000, stays."""
    return tuple(word for word in text.replace("\t", " ").split(" ") if word)


def describe_missing(path: Path, present: Sequence[str]) -> str:
    """Return the error for a missing file, with what exists instead."""
    if not path.parent.is_dir():
        return f"{path.parent}: no such folder; unpack the task's data there"
    return f"{path}: no such file; found here: {' '.join(present) or 'nothing'}"
