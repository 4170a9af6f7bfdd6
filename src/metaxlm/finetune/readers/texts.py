"""Read labeled texts and pairs of texts: tables, and the XML of product reviews.

Pairs (XNLI, PAWS-X) are XTREME's `first TAB second TAB label`, blanked test sets with two columns,
and releases with a header. Custom tasks have TSV, CSV, JSON lines, and the Arrow and Parquet files
of Hugging Face datasets, whose class names replace the numbers.
"""

import csv
import html
import io
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.input_lines import Examples, read_lines
from metaxlm.reading import json_loads

LABEL_COLUMNS = ("gold_label", "label")
PAIR_COLUMNS = (("premise", "hypothesis"), ("sentence1", "sentence2"))
"""Names of the two texts in headers; otherwise they are the first two columns without a label."""
UNDECIDED = "-"
"""Gold label of MultiNLI and XNLI where the annotators did not agree."""
NEGATIVE, POSITIVE = "negative", "positive"
SENTIMENTS = {1.0: NEGATIVE, 2.0: NEGATIVE, 4.0: POSITIVE, 5.0: POSITIVE}
"""Label by rating; the release has no 3."""
JSON_LINES = (".jsonl", ".ndjson", ".json")
ARROW = (".arrow", ".parquet")
AS_JSON = "[]"
"""Separator that writes a list as JSON."""
Column = str | int
"""A name, or a number from 1 (from -1 backwards)."""

_ITEM = re.compile(r"<item>(.*?)</item>", re.DOTALL)
_LONG_ENTITY = re.compile(r"(?:&amp;|&)#x?[0-9a-fA-F]{9,};?")


@dataclass(frozen=True)
class LabeledText:
    """A text or a pair of texts, and its class, classes or number, as the file has it."""

    first: str
    second: str | None
    label: str | None

    @property
    def is_labeled(self) -> bool:
        """Whether the label is known."""
        return self.label is not None


def read_labeled_pairs(
    path: Path,
    labels: Collection[str],
    synonyms: Mapping[str, str] | None = None,
    language: str = "",
) -> Examples[LabeledText]:
    """Read pairs between tabs; `synonyms` maps other spellings of a label to ours.

    In a table with a column `language`, only its lines are read, or all if it is empty.
    """
    lines = read_lines(path)
    columns = _choose_pair_columns(path, lines[0].split("\t"))
    has_header = isinstance(columns[0], str)
    pairs: list[LabeledText] = []
    languages: list[str | None] = []
    odd: Counter[str] = Counter()
    for row in _read_records(path, lines, columns, 2, is_ragged=has_header):
        first, second, label = (cell or "" for cell in row.cells[:3])
        code = (*row.cells, None)[3]
        if language and code not in (None, language):
            continue
        if not first.strip() or not second.strip():
            raise MetaXLMError(f"{path}:{row.line}: a text is empty; fill it or delete the line")
        label = (synonyms or {}).get(label.strip(), label.strip())
        if label == UNDECIDED and has_header:
            odd["without an agreed label; left out"] += 1
            continue
        if label and label not in labels:
            raise MetaXLMError(
                f"{path}:{row.line}: unknown label {label!r}; known: {', '.join(labels)}"
            )
        odd["with `NS` instead of a text, a known fault of the release"] += "NS" in (first, second)
        is_quoted = '""' in first + second and any(map(_is_quoted, (first, second)))
        odd["in CSV quotes, which are kept"] += is_quoted
        pairs.append(LabeledText(first, second, label or None))
        languages.append(code)
    if not pairs:
        what = f"no line of {language!r}" if language else "no line"
        raise MetaXLMError(f"{path}:1: a header and {what}; restore the file")
    notices = tuple(f"{path}: {count:,} pairs {what}" for what, count in odd.items() if count)
    return Examples(pairs, notices, tuple(code for code in languages if code is not None))


def _is_quoted(text: str) -> bool:
    """Return whether a text is quoted as in CSV: each quote in it is doubled."""
    inner = text[1:-1]
    return text[:1] == text[-1:] == '"' and '""' in inner and '"' not in inner.replace('""', "")


def unquote(text: str) -> str:
    """Return a text without the quotes of CSV."""
    return text[1:-1].replace('""', '"') if _is_quoted(text) else text


def _choose_pair_columns(path: Path, header: Sequence[str]) -> list[Column]:
    """Return the columns of both texts, the label and the language."""
    names = [name.strip() for name in header]
    label = next((name for name in LABEL_COLUMNS if name in names), None)
    named = next((pair for pair in PAIR_COLUMNS if set(pair) <= set(names)), ())
    texts = named or [name for name in names if name not in (*LABEL_COLUMNS, "id", "language")]
    if named or (label is not None and len(texts) >= 2):
        return [*texts[:2], label or LABEL_COLUMNS[0], "language"]
    if len(header) not in (2, 3):
        raise MetaXLMError(
            f"{path}:1: found {len(header)} columns, expected two texts and a label between tabs, "
            f"or a header that names them"
        )
    return [1, 2, 3]


def read_reviews(path: Path) -> Examples[LabeledText]:
    """Read Webis-CLS-10's `<item>`s: the summary and the text after it, labeled by the rating.

    An XML parser would reject a bare `&`; thousands of entities are escaped twice (`&amp;quot;`).
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
    found = re.search(rf"<{name}>(.*?)</{name}>", item, re.DOTALL)
    # A code point never has this many digits, and Python reads at most 4,300.
    text = _LONG_ENTITY.sub("", found[1]) if found else ""
    return html.unescape(html.unescape(text))


@dataclass(frozen=True)
class Row:
    """The requested cells of one row."""

    line: int
    cells: tuple[str | None, ...]
    """In the order of the requested columns; None for a column that the file or the row lacks."""


def read_rows(
    path: Path,
    columns: Sequence[Column],
    num_needed: int,
    separators: Mapping[Column, str] | None = None,
    is_quoted: bool = False,
) -> list[Row]:
    """Read columns of a table; only those after the first `num_needed` may be missing.

    `.jsonl`, `.ndjson` and `.json` have one object per line, `.arrow` and `.parquet` are Hugging
    Face datasets, `.csv` is Python's CSV (quotes may hold line ends), all others have tabs between
    columns and no quotes, unless the table `is_quoted` as CSV is. Names need a header; numbers mean
    that there is none. `separators` by column join the items of lists; in other columns, a list is
    an error.
    """
    separators = separators or {}
    suffix = path.suffix.lower()
    if suffix in ARROW:
        rows = list(_read_arrow(path, columns, num_needed, separators))
    elif suffix in JSON_LINES:
        rows = list(_read_objects(path, read_lines(path), columns, num_needed, separators))
    else:
        lines = read_lines(path)
        rows = list(_read_records(path, lines, columns, num_needed, is_quoted=is_quoted))
    if not rows:
        raise MetaXLMError(f"{path}:1: a header and nothing else; restore the file")
    return rows


def _read_records(
    path: Path,
    lines: Sequence[str],
    columns: Sequence[Column],
    num_needed: int,
    is_ragged: bool = False,
    is_quoted: bool = False,
) -> Iterator[Row]:
    """Yield the rows; wide `is_ragged` tables, such as MultiNLI's, may lack trailing columns."""
    is_csv = path.suffix.lower() == ".csv"
    if is_csv or is_quoted:
        records = _split_csv(path, lines, "," if is_csv else "\t")
    else:
        records = ((number, line.split("\t")) for number, line in enumerate(lines, start=1))
    number, header = next(records)
    named = all(isinstance(column, str) for column in columns)
    width = min_width = len(header)
    places = _find_columns(f"{path}:{number}", header, columns, num_needed)
    if is_ragged and width > 4:
        min_width = max(place for place in places if place is not None) + 1
    if not named:
        yield Row(number, tuple(None if k is None else header[k] for k in places))
    for number, fields in records:
        if not min_width <= len(fields) <= width:
            first = f"the {'header' if named else 'first row'} has {width}"
            raise MetaXLMError(
                f"{path}:{number}: found {len(fields)} columns, {first}; a text must not hold the "
                f"separator"
            )
        yield Row(number, tuple(None if k is None else fields[k] for k in places))


def _split_csv(path: Path, lines: Sequence[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    text = io.StringIO("\n".join(lines), newline="")
    reader = csv.reader(text, delimiter=delimiter, strict=True)
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
    path: Path,
    lines: Sequence[str],
    columns: Sequence[Column],
    num_needed: int,
    separators: Mapping[Column, str],
) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        value = json_loads(line, where, is_line=True)
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise MetaXLMError(f"{where}: found a {kind}, expected one object per line")
        for column in columns[:num_needed]:
            if value.get(str(column)) is None:
                raise MetaXLMError(f"{where}: no key {column!r}; found: {', '.join(value)}")
        yield _read_object(number, value, columns, separators, where)


def _read_object(
    number: int,
    value: Mapping[str, Any],
    columns: Sequence[Column],
    separators: Mapping[Column, str],
    where: str,
) -> Row:
    cells = (_read_cell(value, str(c), separators.get(c, ""), where) for c in columns)
    return Row(number, tuple(cells))


def _read_cell(value: Mapping[str, Any], key: str, separator: str, where: str) -> str | None:
    """Return a cell as text; numbers and truth values are labels as JSON writes them."""
    cell = value.get(key)
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, int | float):
        return json.dumps(cell)
    if not isinstance(cell, list):
        raise MetaXLMError(f"{where}: {key!r} is a {type(cell).__name__}, expected text")
    if not separator:
        hint = "several labels need `kind: multi_label`"
        raise MetaXLMError(f"{where}: {key!r} is a list, expected text; {hint}")
    items = [_read_cell({key: item}, key, "", where) or "" for item in cell]
    if separator == AS_JSON:
        return json.dumps(items)
    for item in items:
        if separator in item or not item.strip():
            what = f"the label {item!r} is empty or has the separator {separator!r}"
            raise MetaXLMError(f"{where}: {what}; set another `separator`")
    return separator.join(items)


def _read_arrow(
    path: Path, columns: Sequence[Column], num_needed: int, separators: Mapping[Column, str]
) -> Iterator[Row]:
    """Yield the rows of a file of a Hugging Face dataset, with the names of classes."""
    import pyarrow  # takes a while, and most tables are text
    from pyarrow import ipc, parquet

    try:
        if path.suffix.lower() == ".parquet":
            table = parquet.read_table(path)
        else:
            with pyarrow.memory_map(str(path)) as source:
                table = ipc.open_stream(source).read_all()
    except (pyarrow.ArrowException, OSError) as error:
        raise MetaXLMError(f"{path}: cannot be read as {path.suffix[1:]} ({error})") from error
    names = [str(column) for column in columns if column in table.column_names]
    for column in columns[:num_needed]:
        if column not in names:
            found = ", ".join(table.column_names)
            raise MetaXLMError(f"{path}: no column {column!r}; found: {found}")
    classes = {name: _find_classes(path, table.schema.metadata, name) for name in names}
    for number, row in enumerate(table.select(names).to_pylist(), start=1):
        where = f"{path}:{number}"
        value = {name: _name_classes(row[name], classes[name], where) for name in names}
        yield _read_object(number, value, columns, separators, where)


def _find_classes(path: Path, metadata: Mapping[bytes, bytes] | None, column: str) -> list[str]:
    """Return the class names of a column, from the file or from dataset_info.json beside it."""
    info = path.with_name("dataset_info.json")
    text = (metadata or {}).get(b"huggingface", b"{}").decode()
    about = json_loads(text, str(path)).get("info") or {}
    if not about.get("features") and info.is_file():
        about = json_loads(info.read_text(encoding="utf-8"), str(info))
    feature = (about.get("features") or {}).get(column) or {}
    feature = feature[0] if isinstance(feature, list) else feature.get("feature", feature)
    return list(feature.get("names") or ())


def _name_classes(value: Any, names: Sequence[str], where: str) -> Any:
    """Return the names of numbered classes; None for -1, which means that the label is missing."""
    if not names or value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return [_name_classes(item, names, where) for item in value]
    if value >= len(names):
        raise MetaXLMError(f"{where}: the class {value}, but there are only {len(names)} names")
    return names[value] if value >= 0 else None
