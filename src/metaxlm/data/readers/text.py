"""Plain text becomes documents: a paragraph or sentence a line, blank lines between documents.

Comes in: a split of `XX.txt`, plain or compressed. Goes out: documents, and a rejection for each
line that cannot be read; a record is a line that is not blank. Memory stays flat whatever the file:
a document that fills a whole MiB of the file is cut there, and none has more than 1,000 lines, so a
file of one sentence a line without any blank line works too. A line that cannot be read ends its
document, since what follows does not continue it.

Whether a window of the file ends inside a document can be told from that window alone: it does if a
blank line stands in it and text after that. This is why a split can start at any window, with one
look at the window before, and still give the same documents as the file read whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from metaxlm.data.documents import Document, Record, Rejection, Split
from metaxlm.data.readers.characters import BLANK_LINES, tidy_lines
from metaxlm.data.readers.windows import WINDOW_BYTES, Window, read_windows
from metaxlm.streams import Advance, Meter

MAX_DOCUMENT_LINES = 1_000
"""A document with more lines is cut."""


@dataclass(frozen=True, slots=True)
class _Section:
    """Lines between blank lines, and where the first of them starts."""

    offset: int
    text: str


def read_text(split: Split, advance: Advance) -> Iterator[Record]:
    """Yield the documents that start in a split of a text file, and the lines it rejects."""
    meter = Meter(advance, split.size)
    carried: _Section | None = None
    for window in read_windows(split, meter, lead_bytes=WINDOW_BYTES):
        is_past = split.stop is not None and window.offset >= split.stop
        if is_past and carried is None:
            break
        (first, *others), rejections = _parse_window(window, split.path.name)
        if carried is not None:
            first = _Section(carried.offset, carried.text + first.text)
        carried = others.pop() if others else None
        if carried is not None and not carried.text:
            carried = None
        if first.offset >= split.start:
            yield from _cut(first, split.path.name)
        if is_past:
            break
        if window.offset >= split.start:
            yield from rejections
            for section in others:
                yield from _cut(section, split.path.name)
    else:
        if carried is not None and carried.offset >= split.start:
            yield from _cut(carried, split.path.name)


def _cut(section: _Section, file_name: str) -> Iterator[Document]:
    """Yield a section as one document, or as several of at most `MAX_DOCUMENT_LINES`."""
    text = tidy_lines(section.text)
    name = f"{file_name}, byte {section.offset}"
    if text.count("\n") < MAX_DOCUMENT_LINES:
        if text:
            yield Document(name, text)
        return
    lines = text.split("\n")
    for part, start in enumerate(range(0, len(lines), MAX_DOCUMENT_LINES), 1):
        yield Document(f"{name}, part {part}", "\n".join(lines[start : start + MAX_DOCUMENT_LINES]))


def _parse_window(window: Window, file_name: str) -> tuple[list[_Section], list[Rejection]]:
    """Return what stands between blank lines, and the lines that cannot be read.

    The first section continues what came before the window; the last goes on after it, and is empty
    if it does not.
    """
    try:
        text = window.data.decode()
        is_readable = "\0" not in text
    except UnicodeDecodeError:
        is_readable = False
    rejections: list[Rejection] = []
    if not is_readable:
        data, rejections = _blank_out(window, file_name)
        text = data.decode()
    sections = _split_sections(text, window.offset)
    if window.too_long is not None:
        rejections.append(Rejection("line_too_long", f"{file_name}, byte {window.too_long}"))
    # A line that covers all of the next window hides from it what the document before was; so does
    # every line that is too long.
    if _covers_next(window):
        sections.append(_Section(window.stop, ""))
    return sections, rejections


def _covers_next(window: Window) -> bool:
    return window.stop // WINDOW_BYTES > window.offset // WINDOW_BYTES + 1


def _split_sections(text: str, offset: int) -> list[_Section]:
    """Cut at blank lines; the first and the last section may be empty."""
    # With a newline on both ends, every blank line looks the same.
    text = f"\n{text}" if text.endswith("\n") else f"\n{text}\n"
    offset -= 1
    sections = []
    position = 0
    for match in BLANK_LINES.finditer(text):
        section = text[position : match.start() + 1]
        sections.append(_Section(offset, section))
        offset += len(section.encode()) + len(match[0].encode()) - 1
        position = match.end()
    sections.append(_Section(offset, text[position:]))
    sections[0] = _Section(offset=sections[0].offset + 1, text=sections[0].text[1:])
    return sections


def _blank_out(window: Window, file_name: str) -> tuple[bytes, list[Rejection]]:
    """Return the lines with spaces, byte for byte, in place of those that cannot be read."""
    lines = window.data.split(b"\n")
    rejections = []
    offset = window.offset
    for index, line in enumerate(lines):
        if reason := _find_fault(line):
            rejections.append(Rejection(reason, f"{file_name}, byte {offset}"))
            lines[index] = b" " * len(line)
        offset += len(line) + 1
    return b"\n".join(lines), rejections


def _find_fault(line: bytes) -> str | None:
    """Return why a line cannot be read, if it cannot."""
    if b"\0" in line:
        return "nul"
    try:
        line.decode()
    except UnicodeDecodeError:
        return "invalid_utf8"
    return None
