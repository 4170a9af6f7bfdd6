"""What a user wants predicted: a file or the standard input comes in, unlabeled examples go out.

Beside the paper's test sets (its Section 4.2) a finetuned model serves files of its user: texts or
pairs of texts, sentences to tag, questions about contexts. Everything but SQuAD's JSON is read line
by line, so that a file may be larger than memory; what is wrong is named with its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

from metaxlm.errors import MetaXLMError
from metaxlm.files import STANDARD, get_standard_input
from metaxlm.finetune.readers.labeled import LabeledText
from metaxlm.finetune.readers.questions import Question, read_questions
from metaxlm.finetune.readers.tagged import TaggedSentence
from metaxlm.model.heads import HeadKind
from metaxlm.reading import MAX_TEXT_BYTES, decode_line, json_loads, open_file, read_lines

InputFormat = Literal["tsv", "jsonl", "conll", "conllu", "text", "squad"]

# The formats of each kind, the one of the standard input first.
FORMATS: dict[HeadKind, tuple[InputFormat, ...]] = {
    "classification": ("tsv", "jsonl"),
    "tagging": ("text", "conll", "conllu"),
    "span": ("jsonl", "squad"),
}
_ENDINGS: dict[str, InputFormat] = {
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "squad",
    ".conll": "conll",
    ".conllu": "conllu",
    ".bio": "conll",
    ".iob": "conll",
}
_NO_WORD = re.compile(r"\d+[-.]\d+$")

Line = tuple[int, str]


@dataclass
class InputLines:
    """The lines of an input, without their ends; counts what was read."""

    name: str
    """What messages call it."""
    file: BinaryIO
    total_bytes: int | None
    """None of the standard input, whose end nobody knows."""
    bytes_read: int = 0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close a file; the standard input is not ours to close."""
        if self.total_bytes is not None:
            self.file.close()

    def __iter__(self) -> Iterator[Line]:
        for number, line in read_lines(self.file, self.name, MAX_TEXT_BYTES):
            self.bytes_read += len(line)
            yield number, decode_line(number, line, self.name)


def open_input(source: str) -> InputLines:
    """Open a file, or the standard input for `-`."""
    if source == STANDARD:
        return InputLines("standard input", get_standard_input(), None)
    path = Path(source)
    return InputLines(source, open_file(path), path.stat().st_size)


def choose_format(source: str, kind: HeadKind, wanted: str | None) -> InputFormat:
    """Return the format that the user names, or the one that the file's name tells."""
    known = FORMATS[kind]
    if wanted is not None:
        for name in known:
            if name == wanted:
                return name
        raise MetaXLMError(
            f"--format {wanted}: this model does {kind}, whose formats are {', '.join(known)}"
        )
    if source == STANDARD:
        return known[0]
    ending = Path(source).suffix.lower()
    if ending == ".txt":
        return "text" if kind == "tagging" else known[0]
    found = _ENDINGS.get(ending)
    if kind == "tagging" and found == "tsv":
        found = "conll"
    if found is None or found not in known:
        raise MetaXLMError(
            f"{source}: its name does not tell its format; this model does {kind}, so say "
            f"--format {' or '.join(known)}"
        )
    return found


def read_inputs(lines: InputLines, kind: HeadKind, layout: InputFormat) -> Iterator[Any]:
    """Yield the examples of an input in order; an input without any is an error."""
    readers: dict[tuple[HeadKind, InputFormat], Callable[[InputLines], Iterator[Any]]] = {
        ("classification", "tsv"): _read_table,
        ("classification", "jsonl"): _read_texts,
        ("tagging", "text"): _read_sentences,
        ("tagging", "conll"): _read_conll,
        ("tagging", "conllu"): _read_conllu,
        ("span", "jsonl"): _read_asked,
        ("span", "squad"): _read_squad,
    }
    is_empty = True
    for example in readers[kind, layout](lines):
        is_empty = False
        yield example
    if is_empty:
        raise MetaXLMError(f"{lines.name}:1: nothing to predict in it")


def _read_table(lines: InputLines) -> Iterator[LabeledText]:
    """Read one text, or two with a tab between them, a line."""
    width = 0
    for number, line in lines:
        fields = line.split("\t")
        width = width or len(fields)
        if len(fields) != width or width > 2:
            expected = "one or two" if width > 2 else f"{width}, as in line 1"
            raise MetaXLMError(
                f"{lines.name}:{number}: found {len(fields)} columns, expected {expected}"
            )
        yield _make_text(fields, f"{lines.name}:{number}")


def _read_texts(lines: InputLines) -> Iterator[LabeledText]:
    """Read objects with `text`, or with `first` and `second`."""
    is_pair: bool | None = None
    for number, values in _read_objects(lines):
        where = f"{lines.name}:{number}"
        has_second = values.get("second") is not None
        is_pair = has_second if is_pair is None else is_pair
        if has_second != is_pair:
            raise MetaXLMError(f"{where}: texts and pairs are mixed; put them into two files")
        names = ("first", "second") if is_pair else ("text" if "text" in values else "first",)
        yield _make_text([_get_text(values, name, where) for name in names], where)


def _make_text(texts: list[str], where: str) -> LabeledText:
    if not all(text.strip() for text in texts):
        raise MetaXLMError(f"{where}: a text is empty; every line must have its text")
    return LabeledText(texts[0], texts[1] if len(texts) > 1 else None, None)


def _read_sentences(lines: InputLines) -> Iterator[TaggedSentence]:
    """Read a sentence a line, with spaces between its words; blank lines mean nothing."""
    for _, line in lines:
        words = tuple(line.split())
        if words:
            yield TaggedSentence(words, None)


def _read_conll(lines: InputLines) -> Iterator[TaggedSentence]:
    """Read a word a line, the first of its columns, and a blank line after each sentence."""
    yield from _group_words(lines, lambda line: line.split("\t" if "\t" in line else None)[0])


def _read_conllu(lines: InputLines) -> Iterator[TaggedSentence]:
    """Read the second column; comments, multiword tokens and empty nodes are no words."""

    def find_word(line: str) -> str | None:
        if line.startswith("#"):
            return None
        fields = line.split("\t")
        return None if _NO_WORD.match(fields[0]) else "".join(fields[1:2])

    yield from _group_words(lines, find_word)


def _group_words(
    lines: InputLines, find_word: Callable[[str], str | None]
) -> Iterator[TaggedSentence]:
    words: list[str] = []
    for number, line in lines:
        if not line.strip() or line.startswith("-DOCSTART-"):
            if words:
                yield TaggedSentence(tuple(words), None)
            words = []
            continue
        word = find_word(line)
        if word is not None and not word.strip():
            raise MetaXLMError(f"{lines.name}:{number}: has no word in its column; restore it")
        words += [] if word is None else [word]
    if words:
        yield TaggedSentence(tuple(words), None)


def _read_asked(lines: InputLines) -> Iterator[Question]:
    """Read objects with `question` and `context`; without an `id` the line's number serves."""
    seen: set[str] = set()
    for number, values in _read_objects(lines):
        where = f"{lines.name}:{number}"
        name = str(values.get("id", number))
        if name in seen:
            raise MetaXLMError(f"{where}: the id {name!r} was there before; give each its own")
        seen.add(name)
        question, context = (_get_text(values, key, where) for key in ("question", "context"))
        if not context.strip():
            raise MetaXLMError(f"{where}: the context is empty; an answer is a part of it")
        yield Question(name, question, context)


def _read_squad(lines: InputLines) -> Iterator[Question]:
    """Read SQuAD's JSON, which is one value and so is read whole."""
    if lines.total_bytes is None:
        raise MetaXLMError("SQuAD's JSON is read from a file; give --input FILE")
    lines.bytes_read = lines.total_bytes
    yield from read_questions(Path(lines.name)).items


def _read_objects(lines: InputLines) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in lines:
        where = f"{lines.name}:{number}"
        values = json_loads(line, where, is_line=True)
        if not isinstance(values, dict):
            raise MetaXLMError(f"{where}: a line must be a JSON object, such as {{...}}")
        yield number, values


def _get_text(values: dict[str, Any], key: str, where: str) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        found = ", ".join(values) or "nothing"
        raise MetaXLMError(f"{where}: has no text {key!r}; found: {found}")
    return value
