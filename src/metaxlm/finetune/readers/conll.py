"""CoNLL files of the user's own: columns with a word a line come in, tagged sentences go out.

Blank lines end sentences; columns stand between tabs or, where there are none, between spaces. The
tag is the last column and the word the first unless the user says otherwise; in CoNLL-U (`.conllu`)
they are the fourth and the second, and lines of multiword tokens (`3-4`) and of empty nodes (`3.1`)
are no words. Tagging of the user's own data (`docs/own_data.md`) reads all its files here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.lines import read_lines

NOT_GIVEN = ("", "_")
"""What stands for a tag that is not known."""

PREFIXES = {"B": "B", "S": "B", "U": "B", "I": "I", "E": "I", "L": "I", "M": "I"}
"""Letters of IOB1, BIO, BIOES, BMES and BILOU, and what they are in BIO."""

_NO_WORD = re.compile(r"\d+[-.]\d+$")


@dataclass(frozen=True)
class ConllSentence:
    """Words and tags, and the line of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    lines: tuple[int, ...]


@dataclass(frozen=True)
class _Layout:
    """How the columns of one file stand."""

    path: Path
    separator: str | None
    width: int
    word: int
    tag: int | None
    is_conllu: bool


def read_conll(path: Path, word: int | None = None, tag: int | None = None) -> list[ConllSentence]:
    """Read sentences; columns count from 1, or from -1 backwards.

    A file that lacks the tag column, or a sentence with `_` or nothing in all its places, has no
    tags.
    """
    lines = read_lines(path)
    layout = _find_layout(path, lines, word, tag)
    sentences: list[ConllSentence] = []
    rows: list[tuple[int, list[str]]] = []
    comments = _find_comments(layout, lines)
    for number, line in enumerate((*lines, ""), start=1):
        if number in comments:
            continue
        if not line.strip() or line.startswith("-DOCSTART-"):
            if rows:
                sentences.append(_make_sentence(layout, rows))
            rows = []
            continue
        fields = line.split(layout.separator)
        if len(fields) != layout.width:
            raise MetaXLMError(
                f"{path}:{number}: found {len(fields)} columns, expected {layout.width} as in the "
                f"lines before"
            )
        if not (layout.is_conllu and _NO_WORD.match(fields[0])):
            rows.append((number, fields))
    if not sentences:
        raise MetaXLMError(f"{path}:1: no words in it; restore the file")
    return sentences


def _find_layout(path: Path, lines: Sequence[str], word: int | None, tag: int | None) -> _Layout:
    is_conllu = path.suffix.lower() == ".conllu"
    word, tag = word or (2 if is_conllu else 1), tag or (4 if is_conllu else -1)
    filled = [
        (line.startswith("#"), number, line)
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.startswith("-DOCSTART-")
    ]
    if not filled:
        raise MetaXLMError(f"{path}:1: no words in it; restore the file")
    _, number, first = min(filled)  # what starts with # may be a comment
    separator = "\t" if "\t" in first else None
    width = len(first.split(separator))
    places = [k - 1 if k > 0 else width + k for k in (word, tag)]
    if not 0 <= places[0] < width:
        raise MetaXLMError(f"{path}:{number}: no column {word} for the word; found {width}")
    has_tags = 0 <= places[1] < width and places[1] != places[0]
    return _Layout(path, separator, width, places[0], places[1] if has_tags else None, is_conllu)


def _find_comments(layout: _Layout, lines: Sequence[str]) -> set[int]:
    """Return the lines of comments: `#` before a sentence's first word.

    But the word may be `#` itself. Then the line has all the columns and, where these stand between
    spaces, a tag that other lines have.
    """
    doubtful: list[tuple[int, str]] = []
    comments: set[int] = set()
    tags: set[str] = set()
    before_words = True
    for number, line in enumerate(lines, start=1):
        fields = line.split(layout.separator)
        is_whole = bool(line.strip()) and len(fields) == layout.width
        tag = fields[layout.tag] if is_whole and layout.tag is not None else ""
        if not (before_words and line.startswith("#")):
            before_words = not line.strip() or line.startswith("-DOCSTART-")
            tags.add(tag)
        elif not is_whole or layout.is_conllu:
            comments.add(number)
        else:
            doubtful.append((number, tag))
            before_words = False
    if layout.separator is None:
        comments |= {number for number, tag in doubtful if tag not in tags}
    return comments


def _make_sentence(layout: _Layout, rows: Sequence[tuple[int, list[str]]]) -> ConllSentence:
    words = [fields[layout.word].strip() for _, fields in rows]
    tags = ["" if layout.tag is None else fields[layout.tag].strip() for _, fields in rows]
    given = [tag not in NOT_GIVEN for tag in tags]
    for (number, _), word, is_given in zip(rows, words, given, strict=True):
        if not word:
            raise MetaXLMError(f"{layout.path}:{number}: the word is empty; restore it")
        if any(given) and not is_given:
            raise MetaXLMError(
                f"{layout.path}:{number}: the word {word!r} has no tag, but others in its sentence "
                f"have; tag all of a sentence or none"
            )
    lines = tuple(number for number, _ in rows)
    return ConllSentence(tuple(words), tuple(tags) if any(given) else None, lines)


def convert_to_bio(sentence: ConllSentence, path: Path) -> tuple[str, ...] | None:
    """Return span tags in BIO; IOB1, BIO, BIOES, BMES and BILOU are all read by the same rule.

    What continues a span continues one of its own type that has not ended, and otherwise opens one.
    """
    if sentence.tags is None:
        return None
    converted: list[str] = []
    open_type = ""
    for number, tag in zip(sentence.lines, sentence.tags, strict=True):
        prefix, dash, span_type = tag.partition("-")
        if tag == "O":
            open_type = ""
            converted.append(tag)
            continue
        if prefix not in PREFIXES or not dash or not span_type:
            raise MetaXLMError(
                f"{path}:{number}: the tag {tag!r} is neither O nor a letter and a type, such as "
                f"B-PER; for plain tags say `metric: accuracy`"
            )
        letter = "I" if PREFIXES[prefix] == "I" and span_type == open_type else "B"
        converted.append(f"{letter}-{span_type}")
        open_type = "" if prefix in "ESLU" else span_type
    return tuple(converted)
