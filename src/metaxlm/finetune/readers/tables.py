"""Tables of the user's own: TSV, CSV or JSON lines come in, the wanted cells of each row go out.

The name decides: `.jsonl`, `.ndjson` and `.json` are an object a line, `.csv` is Python's CSV
(quotes may hold line ends), everything else has tabs between its columns and knows no quotes.
Columns are told by name, which needs a header, or by number, which means that there is none.
Classification of the user's own data (`docs/own_data.md`) reads all its files here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.lines import read_lines
from metaxlm.reading import json_loads

Column = str | int
"""A name, or a number from 1 (from -1 backwards)."""

JSON_LINES = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class Row:
    """The wanted cells of one row."""

    line: int
    """Where it begins."""
    cells: tuple[str | None, ...]
    """In the order of the wanted columns; None for a column that the file or the row lacks."""


def read_rows(path: Path, columns: Sequence[Column], num_needed: int) -> list[Row]:
    """Read the given columns of a table; only those after the first `num_needed` may be missing."""
    lines = read_lines(path)
    if path.suffix.lower() in JSON_LINES:
        rows = list(_read_objects(path, lines, columns, num_needed))
    else:
        rows = list(_read_records(path, lines, columns, num_needed))
    if not rows:
        raise MetaXLMError(f"{path}:1: a header and nothing else; restore the file")
    return rows


def _read_records(
    path: Path, lines: Sequence[str], columns: Sequence[Column], num_needed: int
) -> Iterator[Row]:
    records = _split_csv(path, lines) if path.suffix.lower() == ".csv" else _split_tabs(lines)
    number, header = next(records)
    named = all(isinstance(column, str) for column in columns)
    width = len(header)
    places = _find_columns(f"{path}:{number}", header, columns, num_needed)
    if not named:
        yield Row(number, tuple(None if k is None else header[k] for k in places))
    for number, fields in records:
        if len(fields) != width:
            first = "the header has" if named else "the first row has"
            raise MetaXLMError(
                f"{path}:{number}: found {len(fields)} columns, {first} {width}; a text must not "
                f"hold the separator"
            )
        yield Row(number, tuple(None if k is None else fields[k] for k in places))


def _split_tabs(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, start=1):
        yield number, line.split("\t")


def _split_csv(path: Path, lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO("\n".join(lines), newline=""), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise MetaXLMError(f"{path}:{start}: not valid CSV ({error})") from error
        if fields:
            yield start, fields


def _find_columns(
    where: str, header: Sequence[str], columns: Sequence[Column], num_needed: int
) -> list[int | None]:
    """Return where the columns stand; None for one that may be missing and is."""
    names = [name.strip() for name in header]
    places: list[int | None] = []
    for rank, column in enumerate(columns):
        if isinstance(column, str):
            place = names.index(column) if column in names else None
            if names.count(column) > 1:
                raise MetaXLMError(f"{where}: the header has {column!r} twice; rename one")
        else:
            place = column - 1 if column > 0 else len(names) + column
            place = place if 0 <= place < len(names) else None
        if place is None and rank < num_needed:
            found = ", ".join(names) if isinstance(column, str) else f"{len(names)} columns"
            raise MetaXLMError(f"{where}: no column {column!r}; found: {found}")
        places.append(place)
    return places


def _read_objects(
    path: Path, lines: Sequence[str], columns: Sequence[Column], num_needed: int
) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        value = json_loads(line, where, is_line=True)
        if not isinstance(value, dict):
            raise MetaXLMError(
                f"{where}: found a {type(value).__name__}, expected an object a line"
            )
        for column in columns[:num_needed]:
            if value.get(str(column)) is None:
                raise MetaXLMError(f"{where}: no key {column!r}; found: {', '.join(value)}")
        yield Row(number, tuple(_read_cell(value, str(c), where) for c in columns))


def _read_cell(value: dict[str, Any], key: str, where: str) -> str | None:
    """Return a cell as text; whole numbers and truth values are labels as JSON writes them."""
    cell = value.get(key)
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int):
        return str(cell)
    raise MetaXLMError(f"{where}: {key!r} is a {type(cell).__name__}, expected text")
