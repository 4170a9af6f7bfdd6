"""Parquet becomes documents: a row each, as in Hugging Face's `wikimedia/wikipedia`.

Comes in: a split of a parquet file, by row groups, with a column `text` and, if there are, `title`,
`id` and `url`. Goes out: a document for each row that has text, and a rejection for each that has
none. Rows are read a few at a time, so memory does not depend on the size of a row group.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow.parquet import ParquetFile

from metaxlm.data.documents import Advance, Record, Rejection, Split
from metaxlm.data.readers.jsonl import NAME_KEYS, make_record
from metaxlm.data.readers.streams import Meter
from metaxlm.errors import MetaXLMError

_TEXT = "text"
_BATCH_ROWS = 64
_BUFFER_BYTES = 1 << 20


def split_parquet(path: Path, target: int) -> list[Split]:
    """Cut a file between row groups into splits of about `target` bytes of the file."""
    with _open(path) as file:
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
    with _open(split.path) as file:
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
    batches = file.iter_batches(_BATCH_ROWS, [group], columns, use_threads=False)
    while True:
        with _clear_errors(path):
            batch = next(batches, None)
        if batch is None:
            break
        yield batch


def _read_rows(batch: Any, row: int, file_name: str) -> Iterator[Record]:
    texts = _as_bytes(batch.column(_TEXT)).to_pylist()
    names = {key: batch.column(key) for key in NAME_KEYS if key in batch.schema.names}
    columns = {key: _as_bytes(column).to_pylist() for key, column in names.items()}
    for index, text in enumerate(texts):
        where = f"{file_name}, row {row + index}"
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


def _open(path: Path) -> ParquetFile:
    """Open a file so that it streams."""
    with _clear_errors(path):
        return ParquetFile(
            path, buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
        )


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    """Say what arrow cannot read."""
    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise MetaXLMError(
            f"{path}: cannot be read as parquet ({reason}); damaged or cut short: fetch it again"
        ) from error
