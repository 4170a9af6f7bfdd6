"""Read labeled texts and pairs of texts: tables, and the XML of product reviews.

`read_labeled_pairs` reads XNLI and PAWS-X (the paper's Section 4.2): XTREME's `first TAB second TAB
label`, blanked test sets with two columns, and releases with a header. `read_reviews` reads the
Amazon reviews of Section 4.3. `read_rows` reads the TSV, CSV and JSON lines of custom tasks.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.lines import Examples, read_lines
from metaxlm.reading import json_loads

LABEL_COLUMNS = ("gold_label", "label")
PAIR_COLUMNS = (("premise", "hypothesis"), ("sentence1", "sentence2"))
"""Names of the two texts in headers; otherwise they are the first two columns without a label."""

UNDECIDED = "-"
"""Gold label of MultiNLI's and XNLI's tables where the annotators did not agree."""

NEGATIVE, POSITIVE = "negative", "positive"
SENTIMENTS = {1.0: NEGATIVE, 2.0: NEGATIVE, 4.0: POSITIVE, 5.0: POSITIVE}
"""Label by rating; the release has no 3."""

JSON_LINES = (".jsonl", ".ndjson", ".json")
Column = str | int
"""A name, or a number from 1 (from -1 backwards)."""

_ITEM = re.compile(r"<item>(.*?)</item>", re.DOTALL)
_LONG_ENTITY = re.compile(r"(?:&amp;|&)#x?[0-9a-fA-F]{9,};?")
_FIELD = {
    name: re.compile(rf"<{name}>(.*?)</{name}>", re.DOTALL)
    for name in ("summary", "text", "rating")
}


@dataclass(frozen=True)
class LabeledText:
    """A text or a pair of texts, and its class."""

    first: str
    second: str | None
    label: str | None
    """None if unknown."""

    @property
    def is_labeled(self) -> bool:
        """Whether the class is known."""
        return self.label is not None


@dataclass(frozen=True)
class _PairColumns:
    """The columns of the texts and the label."""

    width: int
    first: int
    second: int
    label: int | None
    language: int | None = None
    start: int = 0
    """Lines of header."""

    @property
    def min_width(self) -> int:
        """Columns that a line needs; the wide tables of MultiNLI leave out trailing ones."""
        used = (self.first, self.second, self.label or 0, self.language or 0)
        return max(used) + 1 if self.start and self.width > 4 else self.width


def read_labeled_pairs(
    path: Path,
    labels: Collection[str],
    synonyms: Mapping[str, str] | None = None,
    language: str = "",
) -> Examples[LabeledText]:
    """Read pairs between tabs; `synonyms` maps other spellings of a label to ours.

    A file without a label column is a blanked test set: its labels are None. In a table with a
    column `language`, only the lines of `language` are read, or all of them if it is empty.
    """
    lines = read_lines(path)
    columns = _find_pair_columns(path, lines)
    pairs: list[LabeledText] = []
    languages: list[str] = []
    odd: Counter[str] = Counter()
    for number, line in enumerate(lines[columns.start :], start=columns.start + 1):
        fields = line.split("\t")
        if not columns.min_width <= len(fields) <= columns.width:
            raise MetaXLMError(
                f"{path}:{number}: found {len(fields)} columns, expected {columns.width} between "
                f"tabs"
            )
        code = "" if columns.language is None else fields[columns.language]
        if columns.language is not None and language and code != language:
            continue
        first, second = fields[columns.first], fields[columns.second]
        if not first.strip() or not second.strip():
            raise MetaXLMError(f"{path}:{number}: a text is empty; fill it or delete the line")
        label = "" if columns.label is None else fields[columns.label].strip()
        label = (synonyms or {}).get(label, label)
        if label == UNDECIDED and columns.start:
            odd["without an agreed label; left out"] += 1
            continue
        if label and label not in labels:
            raise MetaXLMError(
                f"{path}:{number}: unknown label {label!r}; known: {', '.join(labels)}"
            )
        odd["with `NS` instead of a text, a known fault of the release"] += "NS" in (first, second)
        odd["in CSV quotes, which are kept"] += '""' in line and any(
            map(_is_quoted, (first, second))
        )
        pairs.append(LabeledText(first, second, label or None))
        languages.append(code)
    if not pairs:
        what = f"no line of {language!r}" if columns.language is not None else "no line"
        raise MetaXLMError(f"{path}:1: a header and {what}; restore the file")
    notices = tuple(f"{path}: {count:,} pairs {what}" for what, count in odd.items() if count)
    return Examples(pairs, notices, () if columns.language is None else tuple(languages))


def _is_quoted(text: str) -> bool:
    """Return whether a text is quoted as in CSV: each quote in it is doubled."""
    inner = text[1:-1]
    return text[:1] == text[-1:] == '"' and '""' in inner and '"' not in inner.replace('""', "")


def _find_pair_columns(path: Path, lines: Sequence[str]) -> _PairColumns:
    header = lines[0].split("\t")
    places = {name.strip(): k for k, name in enumerate(header)}
    label = next((places[name] for name in LABEL_COLUMNS if name in places), None)
    named = next((pair for pair in PAIR_COLUMNS if places.keys() >= set(pair)), ())
    texts = named or [name for name in places if name not in (*LABEL_COLUMNS, "id", "language")]
    if named or (label is not None and len(texts) >= 2):
        first, second = (places[name] for name in texts[:2])
        return _PairColumns(len(header), first, second, label, places.get("language"), start=1)
    if len(header) not in (2, 3):
        raise MetaXLMError(
            f"{path}:1: found {len(header)} columns, expected two texts and a label between tabs, "
            f"or a header that names them"
        )
    return _PairColumns(len(header), 0, 1, 2 if len(header) == 3 else None)


def read_reviews(path: Path) -> Examples[LabeledText]:
    """Read Webis-CLS-10's `<item>`s: the summary and the text after it, labeled by the rating.

    Patterns instead of an XML parser tolerate a bare `&`. Entities are unescaped twice, because the
    release has thousands that were escaped twice (`&amp;quot;`). A missing rating is no label.
    """
    content = "\n".join(read_lines(path))
    reviews: list[LabeledText] = []
    number, place = 1, 0
    for item in _ITEM.finditer(content):
        number += content.count("\n", place, item.start())
        place = item.start()
        where = f"{path}:{number}: item {len(reviews) + 1}"
        if "<item>" in item[1]:
            raise MetaXLMError(f"{where} has no </item>; restore the file")
        text = " ".join(f"{_find_field(item[1], 'summary')} {_find_field(item[1], 'text')}".split())
        if not text:
            raise MetaXLMError(f"{where} has neither summary nor text; fill or delete it")
        rating = _find_field(item[1], "rating").strip()
        try:
            label = SENTIMENTS[float(rating)] if rating else None
        except (KeyError, ValueError) as error:
            raise MetaXLMError(
                f"{where} has the rating {rating!r}; expected 1 or 2 (negative), 4 or 5 (positive)"
            ) from error
        reviews.append(LabeledText(text, None, label))
    num_opened = content.count("<item>")
    if not num_opened:
        raise MetaXLMError(f"{path}:1: no <item> in it; a Webis-CLS-10 file of reviews is needed")
    if num_opened != len(reviews) or not content.rstrip().endswith("</items>"):
        last = content.count("\n") + 1
        raise MetaXLMError(
            f"{path}:{last}: {num_opened:,} reviews begin and {len(reviews):,} end, and the last "
            f"line has to be </items>; the file is cut short, restore it"
        )
    return Examples(reviews)


def _find_field(item: str, name: str) -> str:
    found = _FIELD[name].search(item)
    # A code point never has this many digits, and Python reads at most 4,300.
    text = _LONG_ENTITY.sub("", found[1]) if found else ""
    return html.unescape(html.unescape(text))


@dataclass(frozen=True)
class Row:
    """The requested cells of one row."""

    line: int
    """The row's first line."""
    cells: tuple[str | None, ...]
    """In the order of the requested columns; None for a column that the file or the row lacks."""


def read_rows(path: Path, columns: Sequence[Column], num_needed: int) -> list[Row]:
    """Read columns of a table; only those after the first `num_needed` may be missing.

    `.jsonl`, `.ndjson` and `.json` have one object per line, `.csv` is Python's CSV (quotes may
    hold line ends), all others have tabs between columns and no quotes. Names need a header;
    numbers mean that there is none.
    """
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
    is_csv = path.suffix.lower() == ".csv"
    records = (
        _split_csv(path, lines)
        if is_csv
        else ((number, line.split("\t")) for number, line in enumerate(lines, start=1))
    )
    number, header = next(records)
    named = all(isinstance(column, str) for column in columns)
    places = _find_columns(f"{path}:{number}", header, columns, num_needed)
    if not named:
        yield Row(number, tuple(None if k is None else header[k] for k in places))
    for number, fields in records:
        if len(fields) != len(header):
            first = "the header has" if named else "the first row has"
            raise MetaXLMError(
                f"{path}:{number}: found {len(fields)} columns, {first} {len(header)}; a text must "
                f"not hold the separator"
            )
        yield Row(number, tuple(None if k is None else fields[k] for k in places))


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
    """Return the place of each column; None for a missing one that is not needed."""
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
                f"{where}: found a {type(value).__name__}, expected one object per line"
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
