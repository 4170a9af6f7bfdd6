"""Parquet becomes documents: a row each, as in Hugging Face's `wikimedia/wikipedia`.

Comes in: a split of a parquet file, by row groups, with a column `text` and, if there are, `title`,
`id` and `url`. Goes out: a document for each row that has text, and a rejection for each that has
none. Rows are read a few at a time, so memory does not depend on the size of a row group. A row
above 32 MiB is rejected; a page that unpacks to many times its size is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow.parquet import ParquetFile

from metaxlm.data.documents import Record, Rejection, Split
from metaxlm.data.readers.jsonl import NAME_KEYS, make_record
from metaxlm.data.readers.parquet_pages import (
    LARGE_BYTES,
    list_pages,
    open_parquet,
    reading_parquet,
)
from metaxlm.errors import MetaXLMError
from metaxlm.reading import MAX_RECORD_BYTES
from metaxlm.streams import Advance, Meter

_TEXT = "text"
_BATCH_ROWS = 64


def split_parquet(path: Path, target: int) -> list[Split]:
    """Cut a file between row groups into splits of about `target` bytes of the file."""
    with open_parquet(path) as file, reading_parquet(path):
        sizes = _group_sizes(file)
    num_bytes = path.stat().st_size
    splits: list[Split] = []
    start = size = 0
    for group, group_size in enumerate(sizes):
        size += group_size
        if size >= target and group + 1 < len(sizes):
            splits.append(Split(path, start, group + 1, size))
            start, size = group + 1, 0
    rest = num_bytes - sum(split.size for split in splits)
    return [*splits, Split(path, start, len(sizes), rest)]


def read_parquet(split: Split, advance: Advance) -> Iterator[Record]:
    """Yield a record for each row of a split's row groups."""
    meter = Meter(advance, split.size)
    with open_parquet(split.path) as file:
        _check_columns(split.path, file.schema_arrow)
        sizes = _group_sizes(file)
        num_rows = [file.metadata.row_group(group).num_rows for group in range(len(sizes))]
        stop = len(sizes) if split.stop is None else split.stop
        for group in range(split.start, stop):
            row = sum(num_rows[:group])
            done = 0
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
    is_delta = _has_delta(file, group)
    # Many rows may share one long value: of a dictionary, or as a prefix of the next ones.
    shared = max((p.num_bytes for p in pages if p.is_dictionary or is_delta), default=0)
    num_rows = max(1, min(_BATCH_ROWS, LARGE_BYTES // max(1, shared)))
    with reading_parquet(path):
        batches = file.iter_batches(num_rows, [group], columns, use_threads=False)
    while True:
        with reading_parquet(path):
            batch = next(batches, None)
        if batch is None:
            break
        yield batch


def _has_delta(file: ParquetFile, group: int) -> bool:
    row_group = file.metadata.row_group(group)
    columns = range(row_group.num_columns)
    return any("DELTA_BYTE_ARRAY" in row_group.column(index).encodings for index in columns)


def _read_rows(batch: Any, row: int, file_name: str) -> Iterator[Record]:
    texts = _as_bytes(batch.column(_TEXT)).to_pylist()
    names = {key: batch.column(key) for key in NAME_KEYS if key in batch.schema.names}
    columns = {key: _as_bytes(column).to_pylist() for key, column in names.items()}
    for index, text in enumerate(texts):
        where = f"{file_name}, row {row + index}"
        if text is not None and len(text) > MAX_RECORD_BYTES:
            yield Rejection("row_too_large", where)
            continue
        fields = {key: _decode_name(values[index]) for key, values in columns.items()}
        try:
            yield make_record(None if text is None else text.decode(), fields, where)
        except UnicodeDecodeError:
            yield Rejection("invalid_utf8", where)


def _as_bytes(column: Any) -> Any:
    """Return strings as bytes: parquet does not promise that they are UTF-8."""
    return column.cast(pyarrow.large_binary()) if _is_text(column.type) else column


def _decode_name(value: object) -> object:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _is_text(kind: Any) -> bool:
    types = pyarrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    strings = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_kind(kind) for is_kind in (*strings, types.is_binary, types.is_large_binary))


def _check_columns(path: Path, schema: Any) -> None:
    if _TEXT not in schema.names:
        raise MetaXLMError(
            f"{path}: no column {_TEXT!r} among {', '.join(schema.names)}; rename the column that "
            "holds the text"
        )
    kind = schema.field(_TEXT).type
    if not _is_text(kind):
        raise MetaXLMError(f"{path}: column {_TEXT!r} holds {kind}, not strings")


def _group_sizes(file: ParquetFile) -> list[int]:
    """Return the bytes of each row group in the file, that is compressed."""
    sizes = []
    for index in range(file.num_row_groups):
        group = file.metadata.row_group(index)
        columns = range(group.num_columns)
        sizes.append(sum(group.column(column).total_compressed_size for column in columns))
    return sizes
