"""Functions that the tests of readers share."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings

from metaxlm.data.documents import Document, Record, Rejection, Split
from metaxlm.data.readers import inputs, lines

thorough = settings(max_examples=100, deadline=None, derandomize=True)
"""For properties of files: no deadline, since a disk may be slow, and the same files every time."""


def read_all(reader: Callable[..., Iterator[Record]], split: Split) -> list[Record]:
    """Read a split to its end; the reported progress must add up to the split's size."""
    told: list[int] = []
    records = list(reader(split, told.append))
    assert sum(told) == split.size
    assert all(step > 0 for step in told)
    return records


@pytest.fixture(scope="class")
def small_windows() -> Iterator[None]:
    """Limits of a few bytes, so that short files cross them in every way."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (lines, inputs):
            patch.setattr(module, "WINDOW_BYTES", 16)
        patch.setattr(lines, "MAX_LINE_BYTES", 40)
        patch.setattr(lines, "MAX_DOCUMENT_LINES", 3)
        yield


@contextmanager
def limited_memory(limit: float) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def whole(path: Path) -> Split:
    return Split(path, size=path.stat().st_size)


def lines_of(records: Iterable[Record]) -> list[str]:
    documents = [record for record in records if isinstance(record, Document)]
    return [line for document in documents for line in document.text.split("\n")]


def rejections_of(records: Iterable[Record]) -> list[Rejection]:
    return [record for record in records if isinstance(record, Rejection)]


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())
