"""What the tests of readers share: reading a split to its end, and windows small enough to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings

from metaxlm.data.documents import Document, Reader, Record, Rejection, Split
from metaxlm.data.readers import inputs, lines

ReadAll = Callable[[Reader, Split], list[Record]]

thorough = settings(max_examples=200, deadline=None, derandomize=True)
"""For properties of files: no deadline, since a disk may be slow, and the same files every time."""


@pytest.fixture(scope="session")
def read_all() -> ReadAll:
    """Read a split to its end; the progress told must add up to the split's size."""

    def read(reader: Reader, split: Split) -> list[Record]:
        told: list[int] = []
        records = list(reader(split, told.append))
        assert sum(told) == split.size
        assert all(step > 0 for step in told)
        return records

    return read


@pytest.fixture(scope="class")
def small_windows() -> Iterator[None]:
    """Limits of a few bytes, so that short files cross them in every way."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (lines, inputs):
            patch.setattr(module, "WINDOW_BYTES", 16)
        patch.setattr(lines, "MAX_LINE_BYTES", 40)
        patch.setattr(lines, "MAX_DOCUMENT_LINES", 3)
        yield


def whole(path: Path) -> Split:
    """The whole file as one split."""
    return Split(path, size=path.stat().st_size)


def lines_of(records: Iterable[Record]) -> list[str]:
    """The lines of all documents."""
    documents = [record for record in records if isinstance(record, Document)]
    return [line for document in documents for line in document.text.split("\n")]


def rejections_of(records: Iterable[Record]) -> list[Rejection]:
    """The rejections alone."""
    return [record for record in records if isinstance(record, Rejection)]


def zstd(data: bytes) -> bytes:
    """One zstd frame."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())
