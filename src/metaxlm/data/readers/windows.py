"""Lines of a file in windows of about a MiB, which is how text and JSONL are read.

Comes in: a split of a text file. Goes out: for each MiB of the uncompressed file, the lines that
start in it. The windows stand at fixed places of the file, so where a split starts changes nothing
in them. A line above 32 MiB is skipped while it streams, and only its place is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from metaxlm.data.documents import Split
from metaxlm.reading import MAX_RECORD_BYTES
from metaxlm.streams import Meter, open_stream

WINDOW_BYTES = 1 << 20
"""Windows start at multiples of this; so do splits."""
MAX_LINE_BYTES = MAX_RECORD_BYTES
"""A longer line is no text: it is skipped."""


@dataclass(frozen=True, slots=True)
class Window:
    """The lines that start in one MiB of the uncompressed file."""

    offset: int
    """Where the first line starts, in bytes of the uncompressed file."""
    stop: int
    """Where the last line ends, and the next window's first line starts."""
    data: bytes
    """Whole lines; all but the file's last end in a newline."""
    too_long: int | None
    """Where the last line starts, if it is above the limit; it is not in `data`."""


def read_windows(split: Split, meter: Meter, lead_bytes: int = 0) -> Iterator[Window]:
    """Yield the windows from a split's start (or `lead_bytes` before it) to the end of the file.

    The caller stops where it has what belongs to the split.
    """
    assert split.start % WINDOW_BYTES == lead_bytes % WINDOW_BYTES == 0
    offset = max(0, split.start - lead_bytes)
    # A line starts at `offset` only if a newline stands before it.
    with open_stream(split.path, meter.add, max(0, offset - 1)) as file:
        if offset:
            offset += _skip_line(file) - 1
        while True:
            window = _read_window(file, offset)
            if window.stop == offset:
                break
            yield window
            offset = window.stop


def _read_window(file: IO[bytes], offset: int) -> Window:
    """Return the window whose first line starts at `offset`; it is empty at the file's end."""
    data = file.read(-(offset + 1) % WINDOW_BYTES)
    data += file.readline(MAX_LINE_BYTES + 2)  # the line that holds the window's last byte
    stop = offset + len(data)
    last = data.rfind(b"\n", 0, -1) + 1
    if len(data) - last - data.endswith(b"\n") <= MAX_LINE_BYTES:
        return Window(offset, stop, data, None)
    if not data.endswith(b"\n"):
        stop += _skip_line(file)
    return Window(offset, stop, data[:last], offset + last)


def _skip_line(file: IO[bytes]) -> int:
    """Read to the end of the line, holding little of it; return how many bytes that were."""
    num_bytes = 0
    while part := file.readline(WINDOW_BYTES):
        num_bytes += len(part)
        if part.endswith(b"\n"):
            break
    return num_bytes
