"""Read tagged sentences: one word per line in columns, a blank line after each sentence.

UD POS and WikiAnn have XTREME's `word TAB tag`, the word alone in blanked test sets, or mmner's
`xx:word TAB tag`. Custom tasks have columns between tabs or spaces, comments, and CoNLL-U.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.input_lines import Examples, read_lines

NOT_GIVEN = ("", "_")
"""Placeholders for an unknown tag."""

PREFIXES = {"B": "B", "S": "B", "U": "B", "I": "I", "E": "I", "L": "I", "M": "I"}
"""Letters of IOB1, BIO, BIOES, BMES and BILOU, and their equivalent in BIO."""

_NOT_A_WORD = re.compile(r"\d+[-.]\d+$")


@dataclass(frozen=True)
class TaggedSentence:
    """Words and their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    lines: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """The line of each word in its file."""

    @property
    def is_labeled(self) -> bool:
        """Whether the tags are known."""
        return self.tags is not None


@dataclass(frozen=True)
class _Columns:
    separator: str | None
    width: int
    word: int
    tag: int | None
    is_conllu: bool


def read_tagged_sentences(
    path: Path, tags: Collection[str], prefix: str = ""
) -> Examples[TaggedSentence]:
    """Read `word TAB tag` lines, all of a sentence with a tag or none; remove mmner's `prefix`."""
    sentences: list[TaggedSentence] = []
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate((*read_lines(path), ""), start=1):
        if line.strip():
            where, fields = f"{path}:{number}", line.split("\t")
            if len(fields) > 2:
                found = f"found {len(fields)} columns"
                raise MetaXLMError(f"{where}: {found}, expected a word, a tab and a tag")
            word, tag = (*fields, "")[:2]
            if tag.strip() and tag not in tags:
                raise MetaXLMError(f"{where}: unknown label {tag!r}; known: {', '.join(tags)}")
            rows.append((number, [word.removeprefix(prefix), tag.strip()]))
        elif rows:
            sentences.append(_make_sentence(path, rows))
            rows = []
    if not sentences:
        raise MetaXLMError(f"{path}:1: the file has blank lines and nothing else; restore it")
    return Examples(sentences)


def read_conll(path: Path, word: int | None = None, tag: int | None = None) -> list[TaggedSentence]:
    """Read sentences; columns count from 1, or from -1 backwards.

    The defaults are the first column for the word and the last for the tag, in CoNLL-U (`.conllu`)
    the second and the fourth. Without a tag column, or with `_` or nothing in all its places, a
    sentence has no tags. Multiword tokens (`3-4`) and empty nodes (`3.1`) of CoNLL-U are skipped.
    """
    lines = read_lines(path)
    columns = _find_columns(path, lines, word, tag)
    comments = _find_comments(columns, lines)
    sentences: list[TaggedSentence] = []
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate((*lines, ""), start=1):
        if number in comments:
            continue
        if not line.strip() or line.startswith("-DOCSTART-"):
            if rows:
                sentences.append(_make_sentence(path, rows))
            rows = []
            continue
        fields = line.split(columns.separator)
        if len(fields) != columns.width:
            raise MetaXLMError(
                f"{path}:{number}: found {len(fields)} columns, expected {columns.width} as in the "
                f"lines before"
            )
        if not (columns.is_conllu and _NOT_A_WORD.match(fields[0])):
            found = "" if columns.tag is None else fields[columns.tag].strip()
            rows.append((number, [fields[columns.word].strip(), found]))
    if not sentences:
        raise MetaXLMError(f"{path}:1: no words in it; restore the file")
    return sentences


def _make_sentence(path: Path, rows: Sequence[tuple[int, list[str]]]) -> TaggedSentence:
    words, tags = zip(*(fields for _, fields in rows), strict=True)
    is_tagged = any(tag not in NOT_GIVEN for tag in tags)
    for number, (word, tag) in rows:
        if not word:
            raise MetaXLMError(f"{path}:{number}: the word is empty; restore it")
        if is_tagged and tag in NOT_GIVEN:
            raise MetaXLMError(
                f"{path}:{number}: the word {word!r} has no tag, but others in its sentence have; "
                f"tag all of a sentence or none"
            )
    return TaggedSentence(words, tags if is_tagged else None, tuple(number for number, _ in rows))


def _find_columns(path: Path, lines: Sequence[str], word: int | None, tag: int | None) -> _Columns:
    is_conllu = path.suffix.lower() == ".conllu"
    word, tag = word or (2 if is_conllu else 1), tag or (4 if is_conllu else -1)
    filled = [
        (line.startswith("#"), number, line)
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.startswith("-DOCSTART-")
    ]
    if not filled:
        raise MetaXLMError(f"{path}:1: no words in it; restore the file")
    _, number, first = min(filled)  # a line that starts with # may be a comment
    separator = "\t" if "\t" in first else None
    width = len(first.split(separator))
    places = [k - 1 if k > 0 else width + k for k in (word, tag)]
    if not 0 <= places[0] < width:
        raise MetaXLMError(f"{path}:{number}: no column {word} for the word; found {width}")
    has_tags = 0 <= places[1] < width and places[1] != places[0]
    return _Columns(separator, width, places[0], places[1] if has_tags else None, is_conllu)


def _find_comments(columns: _Columns, lines: Sequence[str]) -> set[int]:
    """Return the numbers of comment lines: `#` before a sentence's first word.

    A line of the word `#` has all the columns and, between spaces, a tag that other lines have.
    """
    doubtful: list[tuple[int, str]] = []
    comments: set[int] = set()
    tags: set[str] = set()
    before_words = True
    for number, line in enumerate(lines, start=1):
        fields = line.split(columns.separator)
        is_whole = bool(line.strip()) and len(fields) == columns.width
        tag = fields[columns.tag] if is_whole and columns.tag is not None else ""
        if not (before_words and line.startswith("#")):
            before_words = not line.strip() or line.startswith("-DOCSTART-")
            tags.add(tag)
        elif not is_whole or columns.is_conllu:
            comments.add(number)
        else:
            doubtful.append((number, tag))
            before_words = False
    if columns.separator is None:
        comments |= {number for number, tag in doubtful if tag not in tags}
    return comments


def convert_to_bio(sentence: TaggedSentence, path: Path) -> TaggedSentence:
    """Convert span tags to BIO; an inside tag continues an open span of its type or opens one."""
    converted: list[str] = []
    open_type = ""
    for number, tag in zip(sentence.lines, sentence.tags or (), strict=False):
        prefix, _, span_type = tag.partition("-")
        if tag == "O":
            open_type = ""
            converted.append(tag)
            continue
        if prefix not in PREFIXES or not span_type:
            raise MetaXLMError(
                f"{path}:{number}: the tag {tag!r} is neither O nor a letter and a type, such as "
                f"B-PER; for plain tags set `metric: accuracy`"
            )
        letter = "I" if PREFIXES[prefix] == "I" and span_type == open_type else "B"
        converted.append(f"{letter}-{span_type}")
        open_type = "" if prefix in "ESLU" else span_type
    return TaggedSentence(sentence.words, tuple(converted) or None, sentence.lines)
