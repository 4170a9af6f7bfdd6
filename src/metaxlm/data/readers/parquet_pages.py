"""The pages of a parquet file: how much memory a column takes, before it is read.

The footer of a parquet file tells sizes that nothing checks. A column of a few kilobytes can unpack
to gigabytes: in a compressed page, through a dictionary whose long value is repeated in millions of
rows, or as a run of equal numbers. The headers of the pages are what decides, since the decoder
allocates what they say and refuses data that differs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
from pyarrow.parquet import ParquetFile

from metaxlm.errors import MetaXLMError
from metaxlm.reading import MAX_RECORD_BYTES, open_file, reading

MAX_EXPANSION = 50
"""How many times its size in the file a large page, or a whole table, may have in memory."""
LARGE_BYTES = 2 * MAX_RECORD_BYTES
"""What may always be held, however small the file is."""

_BUFFER_BYTES = 1 << 20
_DICTIONARY_PAGE = 2
_MAX_HEADER_BYTES = 1 << 20
_MAX_DEPTH = 8


@dataclass(frozen=True)
class Page:
    """The header of one page."""

    is_dictionary: bool
    num_bytes: int
    """Uncompressed."""
    packed_bytes: int
    num_values: int


def open_parquet(path: Path, read_dictionary: Sequence[str] = ()) -> ParquetFile:
    """Open a file so that it streams; some columns may be read as dictionaries."""
    with reading_parquet(path):
        open_file(path).close()  # refuses what is missing, or no file
        return ParquetFile(
            path,
            read_dictionary=list(read_dictionary),
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )


def reading_parquet(path: Path) -> Any:
    """Turn what arrow raises on damaged files into one line."""
    kinds = (pyarrow.ArrowException, ValueError, OverflowError, NotImplementedError, KeyError)
    return reading(path, *kinds, fix="damaged or cut short: fetch or write it again")


def list_pages(path: Path, file: ParquetFile, group: int, columns: Sequence[str]) -> list[Page]:
    """Return the pages of some columns of a row group; one that unpacks too far is an error."""
    found: list[Page] = []
    with reading_parquet(path), open_file(path) as raw:
        row_group = file.metadata.row_group(group)
        for index in range(row_group.num_columns):
            chunk = row_group.column(index)
            if chunk.path_in_schema.split(".")[0] not in columns:
                continue
            for page in _read_pages(raw, chunk):
                if page.num_bytes > max(LARGE_BYTES, MAX_EXPANSION * page.packed_bytes) or (
                    page.is_dictionary and page.num_bytes > MAX_RECORD_BYTES
                ):
                    raise MetaXLMError(
                        f"{path}: a page of column {chunk.path_in_schema!r} in row group {group} "
                        f"unpacks from {page.packed_bytes:,} to {page.num_bytes:,} bytes; fetch "
                        "or write it again"
                    )
                found.append(page)
    return found


def check_table(path: Path, file: ParquetFile, columns: Sequence[str]) -> None:
    """Refuse columns that, read whole, take much more memory than the file has bytes."""
    groups = range(file.metadata.num_row_groups)
    pages = [page for group in groups for page in list_pages(path, file, group, columns)]
    # A number of at most 8 bytes, and its position in the list.
    needed = sum(page.num_bytes + 12 * page.num_values for page in pages)
    if needed > max(LARGE_BYTES, MAX_EXPANSION * path.stat().st_size):
        raise MetaXLMError(
            f"{path}: its {path.stat().st_size:,} bytes unpack to {needed:,}; write it again"
        )


def _read_pages(file: BinaryIO, chunk: Any) -> Iterator[Page]:
    """Yield the headers of a column chunk's pages, as they follow each other in the file."""
    offsets = (chunk.data_page_offset, chunk.dictionary_page_offset)
    start = min((offset for offset in offsets if offset), default=0)
    stop = start + chunk.total_compressed_size if start else 0
    while start < stop:
        file.seek(start)
        header = _Header(file.read(min(_MAX_HEADER_BYTES, stop - start)))
        try:
            fields = header.read_struct()
            kind, num_bytes, packed_bytes = (fields[number] for number in (1, 2, 3))
            about = [fields[number] for number in (5, 7, 8) if number in fields]
            num_values = about[0][1] if about else 0
        except (IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
            raise ValueError("the header of a page is damaged") from error
        if min(num_bytes, packed_bytes, num_values) < 0:
            raise ValueError("the header of a page has a negative size")
        yield Page(kind == _DICTIONARY_PAGE, num_bytes, packed_bytes, num_values)
        start += header.place + packed_bytes


class _Header:
    """Reads Thrift's compact protocol, in which page headers are written."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a struct by their numbers."""
        if depth > _MAX_DEPTH:
            raise ValueError("the header of a page is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while kind := self._read_byte():
            number = number + (kind >> 4) if kind >> 4 else self._read_number()
            fields[number] = self._read_value(kind & 15, depth)
        return fields

    def _read_value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._read_byte()
        if kind in (4, 5, 6):
            return self._read_number()
        if kind in (7, 8):
            size = 8 if kind == 7 else self._read_varint()
            self.place += size
            return None
        if kind in (9, 10):
            head = self._read_byte()
            size = head >> 4 if head >> 4 < 15 else self._read_varint()
            return [self._read_value(head & 15, depth + 1) for _ in range(min(size, 1000))]
        if kind == 12:
            return self.read_struct(depth + 1)
        raise ValueError("the header of a page has a field of an unknown kind")

    def _read_byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def _read_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._read_byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _read_number(self) -> int:
        value = self._read_varint()
        return (value >> 1) ^ -(value & 1)
