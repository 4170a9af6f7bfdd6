"""What a data file holds: a path comes in, counts of examples by language and oddities go out.

One function per format of the data sets of the paper's Section 4: tagged words, labeled pairs,
SQuAD's JSON, review XML, parallel lines, gold alignments, dictionaries, parquet, dumps. They read
just enough to count: large files are streamed, dumps are only measured. What is wrong with a file
is raised as `Damage`, with file and line; labels that are blanked out and other known traps of the
published releases are no damage, they are reported.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from metaxlm.reading import (
    MAX_TEXT_BYTES,
    decode_line,
    decode_text,
    json_loads,
    open_file,
    read_bytes,
    reading,
)
from metaxlm.reading import read_lines as read_file_lines

MANY = "*"
"""Stands for the language of a file that has several."""

_LARGEST_TASK_FILE = 4 << 30
_POINTER = b"version https://git-lfs"
_LARGEST_AT_ONCE = 256 << 20
_BLOCK = 1 << 20
_DICTIONARY_SAMPLE = 1_000
_FEWEST_SORTED = 20  # fewer lines may be in alphabetical order by chance

UD_TAGS = frozenset(
    (
        *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
        *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
    )
)
NER_TAGS = frozenset(("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"))
NLI_LABELS = frozenset(["entailment", "neutral", "contradiction", "contradictory"])
PARAPHRASE_LABELS = frozenset("01")


class Damage(Exception):
    """A file that cannot be what its name says; the message names file and line."""


@dataclass
class Content:
    """What one file holds."""

    examples: dict[str, int] = field(default_factory=dict)
    """Examples by language; `MANY` if the file does not name its language."""
    unlabeled: dict[str, int] = field(default_factory=dict)
    """Of the examples, those whose labels are blanked out."""
    remarks: list[str] = field(default_factory=list)
    """Known traps that were seen, without the file's name: equal ones of many files are joined."""


def check_size(path: Path) -> int:
    """Return the size of a file that can be opened and is neither empty nor a stand-in."""
    with open_file(path) as file, reading(path):
        size = path.stat().st_size
        start = file.read(len(_POINTER))
    if not size:
        raise Damage(f"{path}:1: the file is empty")
    if start == _POINTER:
        raise Damage(f"{path}:1: a Git LFS pointer, not the data; run `git lfs pull`")
    return size


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines of a UTF-8 file; LF and CRLF end a line."""
    if check_size(path) > _LARGEST_TASK_FILE:
        raise Damage(f"{path}: larger than 4 GiB, so it is not what its name says")
    with open_file(path) as file:
        for number, line in read_file_lines(file, path, MAX_TEXT_BYTES):
            # Only at the file's start is it a byte order mark; WikiAnn has it as a word.
            yield number, decode_line(number, line, path).rstrip("\r\n")


def count_tagged(path: Path, tags: Collection[str], column: int = 1, width: int = 2) -> Content:
    """Count sentences of `word TAB tag` lines, separated by blank ones.

    CoNLL-U has its tag in another of more columns, and comments.
    """
    quick = _count_well_formed(path, tags, column, width)
    if quick is not None:
        return quick
    sentences = unlabeled = 0
    first_seen: dict[str, int] = {}
    has_tag: bool | None = None
    for number, line in read_lines(path):
        if not line.strip():
            has_tag = None
            continue
        if width > 2 and line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) not in (1, width) or not fields[0]:
            raise Damage(f"{path}:{number}: found {len(fields)} columns, expected {width}")
        tag = fields[column] if len(fields) > 1 else ""
        if has_tag is None:
            sentences += 1
            unlabeled += not tag
        elif has_tag != bool(tag):
            raise Damage(f"{path}:{number}: some words of this sentence have a tag, others none")
        has_tag = bool(tag)
        if tag:
            first_seen.setdefault(tag, number)
    if not sentences:
        raise Damage(f"{path}:1: no sentence in it")
    _check_labels(path, first_seen, tags)
    return Content({MANY: sentences}, {MANY: unlabeled} if unlabeled else {})


def _count_well_formed(
    path: Path, tags: Collection[str], column: int, width: int
) -> Content | None:
    """Count the sentences of a file in which every line is right; None if one is not.

    One pattern over the whole file takes a tenth of the time of looking at each line.
    """
    if check_size(path) > _LARGEST_AT_ONCE:
        return None
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    sentences = len(re.findall(rb"(?:\A(?:\r?\n)*+|\n\r?\n)(?=[^\r\n])", data))
    if not sentences or b"\0" in data:
        return None
    if b"\t" not in data:
        return Content({MANY: sentences}, {MANY: sentences})
    known = b"|".join(tag.encode() for tag in sorted(tags))
    word = rb"[^\t\r\n]++\t(?:[^\t\r\n]*+\t){%d}(?:%s)(?:\t[^\t\r\n]*+){%d}"
    line = word % (column - 1, known, width - column - 1)
    if width > 2:
        line += rb"|#[^\r\n]*+"
    pattern = rb"(?:(?:%s)?+(?:\r?\n|\Z))*+" % line
    return Content({MANY: sentences}) if re.fullmatch(pattern, data) else None


def count_conllu(path: Path) -> Content:
    """Count the sentences of a CoNLL-U file; `_` tags the parts of fused words."""
    return count_tagged(path, UD_TAGS | {"_"}, column=3, width=10)


def count_pairs(path: Path, labels: Collection[str]) -> Content:
    """Count pairs between tabs; a header may name a label and a language column.

    The wide tables of MultiNLI and XNLI leave out trailing columns, and mark pairs on which the
    annotators did not agree with a dash.
    """
    lines = read_lines(path)
    first = next(lines)
    header = first[1].split("\t")
    named = {name: column for column, name in enumerate(header)}
    label = named.get("gold_label", named.get("label"))
    if label is None:
        lines = itertools.chain([first], lines)
        if len(header) not in (2, 3):
            raise Damage(f"{path}:1: found {len(header)} columns, expected 3 between tabs")
    language = named.get("language") if label is not None else None
    is_wide = len(header) > 4
    counts: Counter[str] = Counter()
    unlabeled: Counter[str] = Counter()
    first_seen: dict[str, int] = {}
    quoted = placeholders = 0
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) != len(header) and not (is_wide and len(fields) > max(2, label or 0)):
            raise Damage(f"{path}:{number}: found {len(fields)} columns, expected {len(header)}")
        if label is None and not (fields[0].strip() and fields[1].strip()):
            raise Damage(f"{path}:{number}: a text is empty")
        name = "".join(fields[2:]) if label is None else fields[label]
        code = MANY if language is None else fields[language]
        counts[code] += 1
        if name.strip():
            first_seen.setdefault(name, number)
        else:
            unlabeled[code] += 1
        quoted += '""' in line and any(_is_quoted(text) for text in fields)
        placeholders += "NS" in fields
    if not counts:
        raise Damage(f"{path}:1: a header and nothing else")
    _check_labels(path, first_seen, {*labels, "-"} if label is not None else labels)
    content = Content(dict(counts), dict(unlabeled))
    if quoted:
        content.remarks.append("texts in CSV quotes, which metaxlm's reader keeps")
    if placeholders:
        content.remarks.append("`NS` instead of a text, a known fault of the release")
    return content


def _is_quoted(text: str) -> bool:
    """Whether a text is quoted as in CSV: each quote in it is doubled."""
    inner = text[1:-1]
    return text[:1] == text[-1:] == '"' and '""' in inner and '"' not in inner.replace('""', "")


def _check_labels(path: Path, first_seen: dict[str, int], labels: Collection[str]) -> None:
    for name, number in first_seen.items():
        if name not in labels:
            raise Damage(f"{path}:{number}: unknown label {name[:40]!r}")


def count_questions(path: Path) -> Content:
    """Count the questions of a file in SQuAD's format; ids such as `arabic-1` name languages."""
    check_size(path)
    document = json_loads(decode_text(read_bytes(path), path), str(path))
    try:
        questions = [
            (str(question["id"]), [answer["text"] for answer in question["answers"]])
            for article in document["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    except (KeyError, TypeError, IndexError) as error:
        raise Damage(f"{path}:1: JSON, but not in SQuAD's format ({error!r})") from error
    if not questions:
        raise Damage(f"{path}:1: no question in it")
    blank = sum(not any(texts) for _, texts in questions)
    named = all(re.match("[a-z]{4,}-", name) for name, _ in questions)
    languages = Counter(name.split("-")[0] if named else MANY for name, _ in questions)
    content = Content(dict(languages))
    if blank == len(questions):
        content.unlabeled = dict(languages)
    elif blank:
        content.remarks.append("questions without an answer, as SQuAD 2.0 has them")
    return content


def count_reviews(path: Path) -> Content:
    """Count the `<item>`s of a Webis-CLS-10 file; a rating of 3 says neither good nor bad."""
    items = ratings = number = 0
    text = ""
    for number, text in read_lines(path):
        items += text.count("<item>")
        found = re.findall(r"<rating>\s*([^<\s]*)", text)
        ratings += len(found)
        for rating in found:
            if not re.fullmatch(r"[1245](?:\.0*)?", rating):
                raise Damage(f"{path}:{number}: rating {rating[:40]!r}, expected 1, 2, 4 or 5")
    if not items:
        raise Damage(f"{path}:1: no <item> in it")
    if not text.rstrip().endswith("</items>"):
        raise Damage(f"{path}:{number}: does not end with </items>; it is cut short")
    if ratings > items:
        raise Damage(f"{path}:{number}: {items:,} reviews, but {ratings:,} ratings")
    return Content({MANY: items}, {MANY: items - ratings} if ratings < items else {})


def count_parallel(path: Path) -> Content:
    """Count the lines of a Tatoeba file and of the English one beside it; they must agree.

    English lines in alphabetical order are XTREME's, which hides the pairs by sorting them.
    """
    english = path.with_suffix(".eng" if "-eng." in path.name else ".en")
    if not english.exists():
        raise Damage(f"{path}: {english.name} is not beside it")
    lines, others = _read_sentences(path), _read_sentences(english)
    number = len(lines)
    if len(others) != number:
        raise Damage(f"{path}:{number}: {number:,} lines, but {english.name} has {len(others):,}")
    if number < _FEWEST_SORTED or others != sorted(others):
        return Content({MANY: number})
    trap = "sorted English lines, as in XTREME: line k does not translate line k"
    return Content({MANY: number}, {MANY: number}, [trap])


def _read_sentences(path: Path) -> list[str]:
    lines = []
    for number, line in read_lines(path):
        if not line.strip():
            raise Damage(f"{path}:{number}: the line is empty; every line is a sentence")
        lines.append(line)
    return lines


def count_aligned(path: Path) -> Content:
    """Count the sentences of a gold alignment folder by its `test.XX`, the others beside it."""
    links = path.with_name("alignv2.txt")
    for other in (path.with_name("test.en"), links):
        if not other.exists():
            raise Damage(f"{path}: {other.name} is not beside it")
    number = len(_read_sentences(path))
    english = len(_read_sentences(path.with_name("test.en")))
    sentences: set[str] = set()
    line = 0
    for line, text in read_lines(links):
        fields = text.split()
        if len(fields) not in (3, 4) or not fields[0].isdigit():
            raise Damage(f"{links}:{line}: expected `sentence source target [S|P]`")
        sentences.add(fields[0])
    if not number == english == len(sentences):
        raise Damage(
            f"{links}:{line}: links of {len(sentences):,} sentences, but {path.name} has "
            f"{number:,} lines and test.en {english:,}"
        )
    return Content({MANY: number})


def count_entries(path: Path) -> Content:
    """Count the lines of a dictionary; only the first ones are looked at."""
    check_size(path)
    with open_file(path) as file:
        lines = read_file_lines(file, path, MAX_TEXT_BYTES)
        for number, line in itertools.islice(lines, _DICTIONARY_SAMPLE):
            try:
                fields = line.decode("utf-8").split("\t" if b"\t" in line else None)
            except UnicodeDecodeError as error:
                raise Damage(f"{path}:{number}: not UTF-8") from error
            if fields and len(fields) != 2:
                raise Damage(f"{path}:{number}: not a word and its translation")
        file.seek(0)
        entries, block = 0, b""
        for block in iter(lambda: file.read(_BLOCK), b""):
            entries += block.count(b"\n")
    return Content({MANY: entries + (not block.endswith(b"\n"))})


def count_rows(path: Path) -> Content:
    """Count the rows of a parquet file by its footer."""
    # Imported here: it takes a while, and few folders have parquet files.
    from metaxlm.data.readers.parquet import open_parquet, reading_parquet

    check_size(path)
    with reading_parquet(path), open_parquet(path) as file:
        names, rows = file.schema_arrow.names, file.metadata.num_rows
    if "text" not in names:
        raise Damage(f"{path}: no column `text`; it has {', '.join(names)}")
    return Content({MANY: rows})


def measure_dump(path: Path) -> Content:
    """Return a dump's bytes; whether it is compressed as its name says is looked at."""
    size = check_size(path)
    magic = {".bz2": b"BZh", ".gz": b"\x1f\x8b"}.get(path.suffix, b"<")
    with path.open("rb") as file:
        if not file.read(8).lstrip(b"\xef\xbb\xbf").startswith(magic):
            raise Damage(f"{path}: does not start as a {path.suffix} file does")
    return Content({MANY: size})
