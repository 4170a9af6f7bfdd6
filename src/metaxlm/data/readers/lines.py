"""Read text and JSONL files, plain or compressed, in windows of about a MiB.

Windows start at fixed positions of the uncompressed file, so any splits of a file give the same
records as the whole file. A line above 32 MiB is skipped while it streams.

In text files, blank lines separate documents. A document that fills a whole window is cut there,
and none has more than 1,000 lines. A line that cannot be read ends its document. A window shows
alone whether it ends inside a document, so a split starts with the window before it.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from metaxlm.data.documents import (
    BLANK_LINES,
    Document,
    Record,
    Rejection,
    Split,
    make_record,
    tidy_lines,
)
from metaxlm.reading import MAX_RECORD_BYTES, has_too_many_values
from metaxlm.streams import Advance, Meter, open_stream

MAX_LINE_BYTES = MAX_RECORD_BYTES  # longer lines are skipped
WINDOW_BYTES = 1 << 20  # windows and splits start at multiples of this
MAX_DOCUMENT_LINES = 1_000  # longer documents are cut
# Raw tabs and newlines in strings violate the standard, but are harmless.
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class Window:
    """The lines that start in one MiB of the uncompressed file."""

    offset: int  # start of the first line
    stop: int  # end of the last line
    data: bytes  # whole lines; all but the file's last end in a newline
    too_long: int | None  # start of the last line if it is above the limit; it is not in `data`


def read_windows(split: Split, meter: Meter, lead_bytes: int = 0) -> Iterator[Window]:
    """Yield windows from `lead_bytes` before a split to the end of the file; the caller stops."""
    assert split.start % WINDOW_BYTES == lead_bytes % WINDOW_BYTES == 0
    offset = max(0, split.start - lead_bytes)
    # A line starts at `offset` only after a newline.
    with open_stream(split.path, meter.add, max(0, offset - 1)) as file:
        if offset:
            offset += _skip_line(file) - 1
        while (window := _read_window(file, offset)).stop > offset:
            yield window
            offset = window.stop


def _read_window(file: IO[bytes], offset: int) -> Window:
    """Return the window whose first line starts at `offset`; it is empty at the end of the file."""
    data = file.read(-(offset + 1) % WINDOW_BYTES)
    data += file.readline(MAX_LINE_BYTES + 2)  # the line with the last byte of the window
    stop = offset + len(data)
    last = data.rfind(b"\n", 0, -1) + 1
    if len(data) - last - data.endswith(b"\n") <= MAX_LINE_BYTES:
        return Window(offset, stop, data, None)
    if not data.endswith(b"\n"):
        stop += _skip_line(file)
    return Window(offset, stop, data[:last], offset + last)


def _skip_line(file: IO[bytes]) -> int:
    """Read to the end of the line in flat memory; return the number of bytes."""
    num_bytes, part = 0, b""
    while not part.endswith(b"\n") and (part := file.readline(WINDOW_BYTES)):
        num_bytes += len(part)
    return num_bytes


def read_jsonl(split: Split, advance: Advance, text_key: str = "text") -> Iterator[Record]:
    """Yield a record for each nonblank line that starts in a split of a JSONL file."""
    for window in read_windows(split, Meter(advance, split.size)):
        if split.stop is not None and window.offset >= split.stop:
            break
        offset = window.offset
        for line in window.data.split(b"\n"):
            if line and not line.isspace():
                yield _parse_json(line, text_key, f"{split.path.name}, byte {offset}")
            offset += len(line) + 1
        if window.too_long is not None:
            yield Rejection("line_too_long", f"{split.path.name}, byte {window.too_long}")


def _parse_json(line: bytes, text_key: str, where: str) -> Record:
    if b"\0" in line:
        return Rejection("nul", where)
    if has_too_many_values(line):
        return Rejection("invalid_json", where)
    try:
        # Concatenated files may have a byte order mark in the middle.
        value = _DECODER.decode(line.decode().removeprefix("\ufeff"))
    except UnicodeDecodeError:
        return Rejection("invalid_utf8", where)
    except (ValueError, RecursionError):  # numbers of thousands of digits, deep nesting
        return Rejection("invalid_json", where)
    if not isinstance(value, dict):
        return Rejection("no_text", where)
    return make_record(value.get(text_key), value, where)


@dataclass(frozen=True, slots=True)
class _Section:
    offset: int
    text: str

    def documents(self, file_name: str) -> Iterator[Document]:
        text = tidy_lines(self.text)
        name = f"{file_name}, byte {self.offset}"
        if text.count("\n") < MAX_DOCUMENT_LINES:
            if text:
                yield Document(name, text)
            return
        lines = text.split("\n")
        for part, start in enumerate(range(0, len(lines), MAX_DOCUMENT_LINES), 1):
            chosen = lines[start : start + MAX_DOCUMENT_LINES]
            yield Document(f"{name}, part {part}", "\n".join(chosen))


def read_text(split: Split, advance: Advance) -> Iterator[Record]:
    """Yield the documents that start in a split of a text file, and the rejected lines."""
    name = split.path.name
    stop = math.inf if split.stop is None else split.stop
    carried: _Section | None = None
    for window in read_windows(split, Meter(advance, split.size), lead_bytes=WINDOW_BYTES):
        if window.offset >= stop and carried is None:
            return
        (first, *others), rejections = _parse_window(window, name)
        if carried is not None:
            first = _Section(carried.offset, carried.text + first.text)
        carried = others.pop() if others and others[-1].text else None
        for section in (first, *others):
            if split.start <= section.offset < stop:
                yield from section.documents(name)
        if window.offset >= stop:
            return
        if window.offset >= split.start:
            yield from rejections
    if carried is not None and carried.offset >= split.start:
        yield from carried.documents(name)


def _parse_window(window: Window, file_name: str) -> tuple[list[_Section], list[Rejection]]:
    """Return the sections, of which the first and the last may continue, and unreadable lines."""
    rejections: list[Rejection] = []
    text = _decode(window.data)
    if text is None:
        lines = window.data.split(b"\n")
        offset = window.offset
        for index, line in enumerate(lines):
            if _decode(line) is None:
                reason = "nul" if b"\0" in line else "invalid_utf8"
                rejections.append(Rejection(reason, f"{file_name}, byte {offset}"))
                lines[index] = b" " * len(line)
            offset += len(line) + 1
        text = b"\n".join(lines).decode()
    sections = _split_sections(text, window.offset)
    if window.too_long is not None:
        rejections.append(Rejection("line_too_long", f"{file_name}, byte {window.too_long}"))
    # A line that covers the whole next window, as every skipped line does, ends the document.
    if window.stop // WINDOW_BYTES > window.offset // WINDOW_BYTES + 1:
        sections.append(_Section(window.stop, ""))
    return sections, rejections


def _decode(data: bytes) -> str | None:
    """Return text without NUL characters; None if it cannot be read."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _split_sections(text: str, offset: int) -> list[_Section]:
    # With a newline at both ends, all blank lines match.
    text = f"\n{text}" if text.endswith("\n") else f"\n{text}\n"
    sections, position, offset = [], 0, offset - 1
    for match in BLANK_LINES.finditer(text):
        section = text[position : match.start() + 1]
        sections.append(_Section(offset, section))
        offset += len(section.encode()) + len(match[0].encode()) - 1
        position = match.end()
    sections.append(_Section(offset, text[position:]))
    sections[0] = _Section(offset=sections[0].offset + 1, text=sections[0].text[1:])
    return sections
