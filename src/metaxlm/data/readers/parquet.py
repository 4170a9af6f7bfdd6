"""Read parquet files such as Hugging Face's `wikimedia/wikipedia`: one document per row.

A file has a column `text` and, optionally, `title`, `id` and `url`. Rows are read a few at a time.
A row above 32 MiB is rejected.

A column of a few kilobytes can unpack to gigabytes: in a compressed page, by a dictionary whose
long value is repeated in millions of rows, or as a run of equal numbers. So the headers of the
pages are checked first. A page that unpacks to many times its size is an error.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
from pyarrow.parquet import ParquetFile

from metaxlm.data.documents import NAME_KEYS, Record, Rejection, Split, make_record
from metaxlm.errors import MetaXLMError
from metaxlm.reading import MAX_RECORD_BYTES, open_file, reading
from metaxlm.streams import Advance, Meter

MAX_EXPANSION = 50  # ratio of memory to file size of a large page, or of a whole table
LARGE_BYTES = 2 * MAX_RECORD_BYTES  # always allowed, however small the file is

_TEXT, _BATCH_ROWS, _BUFFER_BYTES = "text", 64, 1 << 20
_DICTIONARY_PAGE, _MAX_HEADER_BYTES, _MAX_DEPTH = 2, 1 << 20, 8


def split_parquet(path: Path, target: int) -> list[Split]:
    """Split a file between row groups into parts of about `target` bytes."""
    with open_parquet(path) as file, reading_parquet(path):
        sizes = _group_sizes(file)
    splits: list[Split] = []
    start = size = 0
    for group, group_size in enumerate(sizes):
        size += group_size
        if size >= target and group + 1 < len(sizes):
            splits.append(Split(path, start, group + 1, size))
            start, size = group + 1, 0
    rest = path.stat().st_size - sum(split.size for split in splits)
    return [*splits, Split(path, start, len(sizes), rest)]


def read_parquet(split: Split, advance: Advance) -> Iterator[Record]:
    """Yield a record for each row of a split."""
    meter = Meter(advance, split.size)
    with open_parquet(split.path) as file:
        schema = file.schema_arrow
        if _TEXT not in schema.names:
            raise MetaXLMError(
                f"{split.path}: no column {_TEXT!r} among {', '.join(schema.names)}; rename the "
                "column that holds the text"
            )
        if not _is_text(kind := schema.field(_TEXT).type):
            raise MetaXLMError(f"{split.path}: column {_TEXT!r} holds {kind}, not strings")
        sizes = _group_sizes(file)
        num_rows = [file.metadata.row_group(group).num_rows for group in range(len(sizes))]
        stop = len(sizes) if split.stop is None else split.stop
        for group in range(split.start, stop):
            row, done = sum(num_rows[:group]), 0
            for batch in _read_batches(split.path, file, group):
                yield from _read_rows(batch, row, split.path.name)
                row += len(batch)
                read = sizes[group] * len(batch) // num_rows[group]
                meter.add(read)
                done += read
            meter.add(sizes[group] - done)
    meter.finish()


def _read_batches(path: Path, file: ParquetFile, group: int) -> Iterator[Any]:
    columns = [name for name in (_TEXT, *NAME_KEYS) if name in file.schema_arrow.names]
    pages = list_pages(path, file, group, columns)
    row_group = file.metadata.row_group(group)
    chunks = map(row_group.column, range(row_group.num_columns))
    is_delta = any("DELTA_BYTE_ARRAY" in chunk.encodings for chunk in chunks)
    # Many rows may share one long value: of a dictionary, or as a prefix of the next ones.
    shared = max((p.num_bytes for p in pages if p.is_dictionary or is_delta), default=0)
    num_rows = max(1, min(_BATCH_ROWS, LARGE_BYTES // max(1, shared)))
    with reading_parquet(path):
        yield from file.iter_batches(num_rows, [group], columns, use_threads=False)


def _read_rows(batch: Any, row: int, file_name: str) -> Iterator[Record]:
    texts = _as_bytes(batch.column(_TEXT)).to_pylist()
    names = {key: batch.column(key) for key in NAME_KEYS if key in batch.schema.names}
    columns = {key: _as_bytes(column).to_pylist() for key, column in names.items()}
    for index, text in enumerate(texts):
        where = f"{file_name}, row {row + index}"
        if text is not None and len(text) > MAX_RECORD_BYTES:
            yield Rejection("row_too_large", where)
            continue
        named = {key: values[index] for key, values in columns.items()}
        raw = {key: value for key, value in named.items() if isinstance(value, bytes)}
        fields = named | {key: value.decode(errors="replace") for key, value in raw.items()}
        try:
            yield make_record(None if text is None else text.decode(), fields, where)
        except UnicodeDecodeError:
            yield Rejection("invalid_utf8", where)


def _as_bytes(column: Any) -> Any:
    """Return strings as bytes: parquet does not guarantee UTF-8."""
    return column.cast(pyarrow.large_binary()) if _is_text(column.type) else column


def _is_text(kind: Any) -> bool:
    types = pyarrow.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    strings = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_kind(kind) for is_kind in (*strings, types.is_binary, types.is_large_binary))


def _group_sizes(file: ParquetFile) -> list[int]:
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    return [
        sum(group.column(index).total_compressed_size for index in range(group.num_columns))
        for group in groups
    ]


@dataclass(frozen=True)
class Page:
    """The header of a page."""

    is_dictionary: bool
    num_bytes: int  # uncompressed
    packed_bytes: int
    num_values: int


def open_parquet(path: Path, read_dictionary: Sequence[str] = ()) -> ParquetFile:
    """Open a file for streaming; read the given columns as dictionaries."""
    with reading_parquet(path):
        open_file(path).close()  # raises an error if it is missing or not a file
        return ParquetFile(
            path, read_dictionary=list(read_dictionary), buffer_size=_BUFFER_BYTES,
            pre_buffer=False, page_checksum_verification=True,
        )  # fmt: skip


def reading_parquet(path: Path) -> Any:
    """Turn the exceptions of arrow for damaged files into a `MetaXLMError`."""
    kinds = (pyarrow.ArrowException, ValueError, OverflowError, NotImplementedError, KeyError)
    return reading(path, *kinds, fix="damaged or cut short: fetch or write it again")


def list_pages(path: Path, file: ParquetFile, group: int, columns: Sequence[str]) -> list[Page]:
    """Return the pages of some columns of a row group; raise an error if one is too large."""
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
    """Raise an error if whole columns take much more memory than the file has bytes."""
    groups = range(file.metadata.num_row_groups)
    pages = [page for group in groups for page in list_pages(path, file, group, columns)]
    # A number of at most 8 bytes, and its position in the list.
    needed = sum(page.num_bytes + 12 * page.num_values for page in pages)
    if needed > max(LARGE_BYTES, MAX_EXPANSION * path.stat().st_size):
        raise MetaXLMError(
            f"{path}: its {path.stat().st_size:,} bytes unpack to {needed:,}; write it again"
        )


def _read_pages(file: BinaryIO, chunk: Any) -> Iterator[Page]:
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
    """Reads Thrift's compact protocol, the format of page headers."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
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
        while (byte := self._read_byte()) > 127:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _read_number(self) -> int:
        value = self._read_varint()
        return (value >> 1) ^ -(value & 1)
