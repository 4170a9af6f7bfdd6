"""What readers give: documents, and records they had to reject.

A reader yields, for a split of an input file, one `Document` for each record it could read and one
`Rejection` for each it could not, so that accepted and rejected records always add up to the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from metaxlm.streams import Advance


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its name and its text, a paragraph a line."""

    name: str
    """Title, id, or file and line; for a person who looks for it."""
    text: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """One record that did not become a document."""

    reason: str
    """Why, as a short key under which it is counted: `invalid_utf8`, `redirect`, ..."""
    where: str
    """File and line, page or row."""


Record = Document | Rejection


@dataclass(frozen=True, slots=True)
class Split:
    """A part of an input file that one task reads.

    `start` and `stop` are bytes of text, JSONL and multistream bz2 files, row groups of parquet
    files, and 0 and None for files that only read from the beginning. A record belongs to the split
    in which it starts.
    """

    path: Path
    start: int = 0
    stop: int | None = None
    size: int = 0
    """Bytes of the file that the split covers: how much work it is."""


Reader = Callable[[Split, Advance], Iterator[Record]]
"""Reads one split; `advance` adds up to the split's `size`."""
