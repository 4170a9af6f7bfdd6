"""Documents and rejected records, and the characters of raw text.

`tidy_lines` and `tidy_document` normalize white space and remove control characters. Letters and
marks stay as they are, also zero-width ones (Persian, Hindi and Khmer need them); Unicode
normalization is left to the tokenizer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME_KEYS = ("title", "id", "url")  # the first one that a record has names its document

_BREAKS = "\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_SPACES = "\t\x1f\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"
_REMOVED = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufeff"
_BREAK = re.compile(f"[{_BREAKS}]")
_SPACE = re.compile(f"[{_SPACES}]")
_REMOVE = re.compile(f"[{_REMOVED}]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ODD = re.compile(f"[{_BREAKS}{_SPACES}{_REMOVED}\ud800-\udfff]")
_ASCII_ODD = bytes(code for code in (*range(32), 127) if code != ord("\n"))
_SEVERAL_SPACES = re.compile("  +")
_SEVERAL_BREAKS = re.compile("\n\n+")
# Patterns that start with the newline are found at memory speed.
_SPACE_AT_LINE_END = re.compile("\n(?<= \n)")
_SPACE_OR_BREAK_AFTER_BREAK = re.compile("\n[ \n]")

BLANK_LINES = re.compile(f"\n(?:[ {_SPACES}{_BREAKS}{_REMOVED}]*+\n)++")
"""The end of a line, and all following lines without a visible character."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document with one paragraph per line."""

    name: str  # title, id, or file and line
    text: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record that did not become a document."""

    reason: str  # a key under which it is counted: `invalid_utf8`, `redirect`, ...
    where: str  # file and line, page or row


Record = Document | Rejection


@dataclass(frozen=True, slots=True)
class Split:
    """A part of an input file that one task reads; a record belongs to the split of its start.

    `start` and `stop` are bytes of text, JSONL and multistream bz2 files, row groups of parquet
    files, and 0 and None for files that can only be read from the beginning.
    """

    path: Path
    start: int = 0
    stop: int | None = None
    size: int = 0  # bytes of the file that the split covers


def make_record(text: object, fields: Mapping[str, Any], where: str) -> Record:
    """Return the document of a JSON object or a parquet row, or the rejection."""
    if not isinstance(text, str) or "\0" in text:
        return Rejection("nul" if isinstance(text, str) else "no_text", where)
    tidy = tidy_document(text)
    if not tidy:
        return Rejection("empty", where)
    named = (fields[key] for key in NAME_KEYS if isinstance(fields.get(key), str | int))
    name = tidy_lines(str(next(named, ""))).replace("\n", " ")
    return Document(name or where, tidy)


def tidy_lines(text: str, separator: str = " ") -> str:
    r"""Return tidy lines without empty ones; only `\n` ends a line."""
    if _has_odd(text):
        text = _SPACE.sub(" ", _BREAK.sub(separator, _REMOVE.sub("", text)))
        # Only escapes in JSON can produce half a character, which has no UTF-8.
        text = _SURROGATE.sub("\ufffd", text)
    if "  " in text:
        text = _SEVERAL_SPACES.sub(" ", text)
    if _SPACE_AT_LINE_END.search(text):
        text = text.replace(" \n", "\n")
    if _SPACE_OR_BREAK_AFTER_BREAK.search(text):
        text = _SEVERAL_BREAKS.sub("\n", text.replace("\n ", "\n"))
    return text.strip(" \n")


def tidy_document(text: str) -> str:
    """Return tidy lines without empty ones; every line separator of Unicode ends a line."""
    return tidy_lines(text, "\n")


def _has_odd(text: str) -> bool:
    """Return whether a character must change; the pattern alone would be slow."""
    if text.isascii():
        data = text.encode()
        return len(data.translate(None, _ASCII_ODD)) < len(data)
    # No odd character is printable, nor are some that stay, such as joiners.
    return not text.replace("\n", "").isprintable() and _ODD.search(text) is not None
