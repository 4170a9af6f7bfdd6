"""Read bilingual dictionaries in any supported format; the content of a file tells which it is.

Wiktextract and FreeDict have modules of their own. Lists have a word and its translation per line,
separated by a tab (GATITOS, WECHSEL's lists of Wiktionary), white space (MUSE) or a comma; a third
column of numbers is a weight. PanLex has one table per language with the column `meaning`, and the
table of the source language beside it, such as `eng.tsv` beside `swh.tsv`.

The name of a file gives the direction (`en-sw.txt`, `freedict-swh-eng.dict.dz`); without one the
source language is expected first. A language identifier checks it.
"""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from metaxlm.data.clean import load_identifier
from metaxlm.data.documents import Split
from metaxlm.data.readers.lines import read_windows
from metaxlm.dictionary.entries import Entries, Entry
from metaxlm.dictionary.freedict import find_dict_files, read_dict, read_tei
from metaxlm.dictionary.wiktextract import read_wiktextract
from metaxlm.errors import MetaXLMError
from metaxlm.files import walk_files
from metaxlm.languages import LANGUAGES, language_name, list_codes
from metaxlm.scripts import measure_share
from metaxlm.streams import COMPRESSIONS, Meter, find_compression, open_stream

Pair = tuple[str, str, float]

_CODE = r"([a-z]{2,3}(?:-[a-z]{4})?)"
_NAMED_DIRECTION = re.compile(rf"(?:^|[-_.]){_CODE}[-_]{_CODE}(?=\.|$)")
_PART = re.compile(r"\.\d+-\d+\.")  # MUSE's training and test words, which the whole file also has
_HEAD_BYTES = 1 << 16
_PANLEX = frozenset({"txt", "meaning"})  # columns
_READ_ENTRIES, _CHECKED_ENTRIES = 5_000, 1_000  # to find the direction
_GROUP, _FEWEST_GROUPS, _WRONG_SHARE = 20, 2, 0.8
_SHOWN = 3  # entries in an error message


def read_entries(path: Path, language: str, source_language: str = "en") -> Entries:
    """Open a dictionary; its entries are read while they are taken.

    Lines that are not entries are counted in `dropped`. A file with exchanged columns is an error.
    """
    dropped: Counter[str] = Counter()
    entries = _read(path, language, source_language, dropped)
    return Entries(str(path), source_language, language, entries, dropped)


def find_direction(path: Path, languages: Sequence[str]) -> tuple[str, str] | None:
    """Return which two of the languages a file is named after, in this order, or None."""
    match = _NAMED_DIRECTION.search(path.name.lower())
    if match is None:
        return None
    found = [
        next((one for one in languages if code in list_codes(one)), None) for code in match.groups()
    ]
    if None not in found and found[0] != found[1]:
        return found[0] or "", found[1] or ""
    if any(found) and all(
        any(code in list_codes(one) for one in LANGUAGES) for code in match.groups()
    ):
        raise MetaXLMError(
            f"{path}: named as a dictionary of {' and '.join(match.groups())}, not of "
            f"{' and '.join(languages)}; leave it out, or rename it if its name is wrong"
        )
    return None


def list_files(path: Path, language: str, source_language: str) -> list[Path]:
    """Return the file, or the files of a folder that are named after the two languages."""
    if not path.is_dir():
        return [path]
    codes = [list_codes(source_language), list_codes(language)]
    found: dict[str, Path] = {}
    for file in walk_files(path):
        match = _NAMED_DIRECTION.search(file.name.lower())
        if match is None or _PART.search(file.name) or file.suffix in (".json", ".parquet"):
            continue
        if any(match[1] in first and match[2] in second for first, second in (codes, codes[::-1])):
            found.setdefault(str(file).removesuffix(".index").removesuffix(".dict.dz"), file)
    if not found:
        raise MetaXLMError(
            f"{path}: no file named like {source_language}-{language}.txt or "
            f"{language}-{source_language}.txt; name the file itself"
        )
    return list(found.values())


def _read(
    path: Path, language: str, source_language: str, dropped: Counter[str]
) -> Iterator[Entry]:
    if dictionary := find_dict_files(path):
        pairs = _read_pairs(path, language, source_language, dropped, dictionary)
        yield from _check_direction(path, pairs, language, source_language)
        return
    with open_stream(path) as stream:
        head = stream.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"{"):
        yield from read_wiktextract(path, language, source_language, dropped)
    elif set(head.split(b"\n", 1)[0].decode("utf-8", "replace").split()) >= _PANLEX:
        yield from _read_panlex(path, language, source_language, dropped)
    else:
        pairs = _read_pairs(path, language, source_language, dropped, head)
        yield from _check_direction(path, pairs, language, source_language)


def _read_pairs(
    path: Path,
    language: str,
    source_language: str,
    dropped: Counter[str],
    content: tuple[Path, Path] | bytes,
) -> Iterator[Entry]:
    """Yield the entries of a file of headwords and translations, whatever its direction is."""
    direction = find_direction(path, (source_language, language))
    is_forward = direction != (language, source_language)
    found: Iterable[tuple[str, str] | Pair]
    if isinstance(content, tuple):
        found = read_dict(*content, language if is_forward else source_language, dropped)
    elif content.startswith(b"<"):
        found = read_tei(path, dropped)
    else:
        found = _read_columns(path, content, dropped)
    for first, second, *weight in found:
        source, target = (first, second) if is_forward else (second, first)
        yield Entry(source, target, *weight)


def _check_direction(
    path: Path, entries: Iterator[Entry], language: str, source_language: str
) -> Iterator[Entry]:
    """Reject a file whose source words read like the target language, and the other way round."""
    first = list(islice(entries, _READ_ENTRIES))
    known = [LANGUAGES[code].scripts for code in (source_language, language) if code in LANGUAGES]
    # Words in a third script, such as the old characters of Vietnamese, tell nothing.
    scripts = tuple(script for one in known for script in one)
    distinct = [
        one
        for one in first
        if one.source.lower() != one.target.lower()
        and (len(known) < 2 or measure_share(one.source + one.target, scripts) == 1.0)
    ]
    distinct = distinct[:: 1 + len(distinct) // _CHECKED_ENTRIES]
    groups = [distinct[start : start + _GROUP] for start in range(0, len(distinct), _GROUP)]
    num_wrong = sum(_is_exchanged(group, known, language, source_language) for group in groups)
    if len(distinct) >= _FEWEST_GROUPS * _GROUP and num_wrong > _WRONG_SHARE * len(groups):
        shown = ", ".join(f"`{one.source}` = `{one.target}`" for one in distinct[:_SHOWN])
        names = language_name(source_language), language_name(language)
        raise MetaXLMError(
            f"{path}: wrong direction: in {num_wrong} of {len(groups)} groups of {_GROUP} entries, "
            f"what should be {names[0]} reads like {names[1]} and the other way round ({shown}); "
            f"rename the file after the language of its first column, as in "
            f"{source_language}-{language}.txt for {names[0]} first"
        )
    return chain(first, entries)


def _is_exchanged(
    group: Sequence[Entry],
    scripts: Sequence[Sequence[str]],
    language: str,
    source_language: str,
) -> bool:
    """Return whether the two columns of a few entries seem to be exchanged."""
    texts = " ".join(one.source for one in group), " ".join(one.target for one in group)
    # Scripts decide where the languages share none.
    if len(scripts) == 2 and not set(scripts[0]) & set(scripts[1]):
        right = measure_share(texts[0], scripts[0]) + measure_share(texts[1], scripts[1])
        return right < measure_share(texts[1], scripts[0]) + measure_share(texts[0], scripts[1])
    points = [dict(load_identifier().rank(text)) for text in texts]
    if source_language not in points[0]:
        return False
    # A language that the identifier does not know is like none of the others.
    others = [language] if language in points[0] else points[0].keys() - {source_language}
    gains = [float(one[source_language] - max(map(one.__getitem__, others))) for one in points]
    return gains[0] < gains[1]


def _read_lines(path: Path, dropped: Counter[str]) -> Iterator[str]:
    for window in read_windows(Split(path), Meter(lambda _: None, 0)):
        dropped["line too long"] += window.too_long is not None
        for number, line in enumerate(window.data.split(b"\n")):
            try:
                text = line.decode("utf-8" if window.offset or number else "utf-8-sig")
            except UnicodeDecodeError:
                dropped["not UTF-8"] += 1
                continue
            if text.strip():
                yield text.rstrip("\r")


def _read_columns(path: Path, head: bytes, dropped: Counter[str]) -> Iterator[Pair]:
    comma = _find_comma(head)
    for line in _read_lines(path, dropped):
        fields = [field.strip() for field in _split_line(line, comma)]
        weight = _read_number(fields[2]) if len(fields) > 2 else 1.0
        has_rest = len(fields) > 2 and weight is None and "\t" not in line
        if len(fields) < 2 or not fields[0] or not fields[1] or has_rest:
            dropped["not two columns"] += 1
            continue
        for part in fields[1].split(";"):
            yield fields[0], part, 1.0 if weight is None else weight


def _split_line(line: str, comma: str | None) -> list[str]:
    if "\t" in line or comma is None:
        return line.split("\t" if "\t" in line else None)
    try:
        return next(csv.reader([line], delimiter=comma))
    except csv.Error:
        return []


def _find_comma(head: bytes) -> str | None:
    """Return the comma or semicolon that separates the columns of nearly every line, or None."""
    lines = head.decode("utf-8", "replace").split("\n")[:-1] or [head.decode("utf-8", "replace")]
    lines = [line for line in lines if line.strip()]
    for comma in (",", ";"):
        if sum(comma in line and "\t" not in line for line in lines) > 0.9 * len(lines):
            return comma
    return None


def _read_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def _read_panlex(
    path: Path, language: str, source_language: str, dropped: Counter[str]
) -> Iterator[Entry]:
    """Yield pairs of expressions that share a meaning, weighted by the number of meanings."""
    target: dict[str, list[str]] = defaultdict(list)
    for code, text, meaning in _read_expressions(path, dropped):
        if code in list_codes(language):
            target[meaning].append(text)
    if not target:
        dropped["no expression of the language"] += 1
    weights: Counter[tuple[str, str]] = Counter()
    for code, text, meaning in _read_expressions(_find_beside(path, source_language), dropped):
        if code in list_codes(source_language):
            weights.update((text, other) for other in target.get(meaning, ()))
    for (source, other), weight in weights.items():
        yield Entry(source, other, float(weight))


def _find_beside(path: Path, language: str) -> Path:
    """Return the table of the source language: a file beside it, or the file itself."""
    endings = dict.fromkeys([find_compression(path) or "", "", *COMPRESSIONS])
    names = (f"{code}.tsv{end}" for code in sorted(list_codes(language)) for end in endings)
    found = next((one for name in names if (one := path.with_name(name)).is_file()), None)
    return found or path


def _read_expressions(path: Path, dropped: Counter[str]) -> Iterator[tuple[str, str, str]]:
    """Yield code, text and meaning of each row of a PanLex table."""
    columns: list[str] | None = None
    for line in _read_lines(path, dropped):
        fields = line.split("\t")
        if columns is None or set(fields) >= _PANLEX:  # tables may be concatenated
            columns = fields
        elif len(fields) != len(columns):
            dropped["not a row of the table"] += 1
        else:
            row = dict(zip(columns, fields, strict=True))
            code = row.get("langvar_uid", path.name.split(".")[0])
            yield code.partition("-")[0], row["txt"], row["meaning"]
