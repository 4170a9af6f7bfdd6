"""JSON lines become documents: an object a line, its text under one key.

Comes in: a split of `XX.jsonl`, plain or compressed. Goes out: a document for each line that holds
an object with text, and a rejection for every other line that is not blank.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from metaxlm.data.documents import Document, Record, Rejection, Split
from metaxlm.data.readers.characters import tidy_document, tidy_lines
from metaxlm.data.readers.windows import read_windows
from metaxlm.reading import has_too_many_values
from metaxlm.streams import Advance, Meter

NAME_KEYS = ("title", "id", "url")
"""The first of these that a record has names its document."""

# Raw tabs and newlines in strings are against the standard, but harmless.
_DECODER = json.JSONDecoder(strict=False)


def read_jsonl(split: Split, advance: Advance, text_key: str = "text") -> Iterator[Record]:
    """Yield a record for each line that starts in a split of a JSONL file."""
    meter = Meter(advance, split.size)
    for window in read_windows(split, meter):
        if split.stop is not None and window.offset >= split.stop:
            break
        offset = window.offset
        for line in window.data.split(b"\n"):
            if line and not line.isspace():
                yield _parse_line(line, text_key, f"{split.path.name}, byte {offset}")
            offset += len(line) + 1
        if window.too_long is not None:
            yield Rejection("line_too_long", f"{split.path.name}, byte {window.too_long}")


def _parse_line(line: bytes, text_key: str, where: str) -> Record:
    if b"\0" in line:
        return Rejection("nul", where)
    if has_too_many_values(line):
        return Rejection("invalid_json", where)
    try:
        # Files that were put together from several may have a byte order mark in the middle.
        value = _DECODER.decode(line.decode().removeprefix("\ufeff"))
    except UnicodeDecodeError:
        return Rejection("invalid_utf8", where)
    except (ValueError, RecursionError):  # numbers of thousands of digits; brackets in brackets
        return Rejection("invalid_json", where)
    if not isinstance(value, dict):
        return Rejection("no_text", where)
    return make_record(value.get(text_key), value, where)


def make_record(text: object, fields: Mapping[str, Any], where: str) -> Record:
    """Return the document of a record that has its text and its other fields, or why there is none.

    Also what parquet's rows go through, so that the same corpus gives the same documents.
    """
    if not isinstance(text, str):
        return Rejection("no_text", where)
    if "\0" in text:
        return Rejection("nul", where)
    tidy = tidy_document(text)
    if not tidy:
        return Rejection("empty", where)
    named = (fields[key] for key in NAME_KEYS if isinstance(fields.get(key), str | int))
    name = tidy_lines(str(next(named, ""))).replace("\n", " ")
    return Document(name or where, tidy)
