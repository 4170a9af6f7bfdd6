"""Sentence pairs of the user: one file with both sides or two parallel files come in, words go out.

What word alignment (the paper's Section 4.4) reads beside the gold sets: lines `source ||| target`,
lines with a tab, or line k of one file with line k of another. Everything is read line by line, so
that a file may be larger than memory; pair k is line k, and what is wrong is named with its line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Literal, NoReturn

from metaxlm.errors import MetaXLMError
from metaxlm.files import STANDARD
from metaxlm.finetune.readers import Line
from metaxlm.finetune.readers.lines import open_input
from metaxlm.scripts import find_script

Split = Literal["spaces", "characters"]
"""`spaces`: words stand between white space. `characters`: also, each character of a script that
writes no spaces is a word."""

_BARS = re.compile(r"(?<!\S)\|\|\|(?!\S)")
_UNSPACED = frozenset({"Han", "Kana", "Bopomofo", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"})


@dataclass(frozen=True)
class SentencePair:
    """Two sentences, as they stand in the file and in words."""

    source_text: str
    target_text: str
    source: tuple[str, ...]
    target: tuple[str, ...]


@dataclass(frozen=True)
class PairFiles:
    """Where sentence pairs are: a file with both sides, or one for each; `-` is standard input."""

    source: str
    target: str | None = None
    split: Split = "spaces"

    def __post_init__(self) -> None:
        if self.source == self.target == STANDARD:
            raise MetaXLMError("--source and --target: only one of them can be standard input")

    @property
    def names(self) -> list[str]:
        """What the files are called."""
        paths = [path for path in (self.source, self.target) if path is not None]
        return ["standard input" if path == STANDARD else path for path in paths]

    @property
    def name(self) -> str:
        """What messages call them."""
        return " and ".join(self.names)

    @property
    def can_reread(self) -> bool:
        """Whether the pairs can be read more than once."""
        return STANDARD not in (self.source, self.target)

    def __iter__(self) -> Iterator[SentencePair]:
        sides = self._read_parallel() if self.target is not None else self._read_joined()
        is_empty = True
        for source, target in sides:
            is_empty = False
            yield SentencePair(
                source, target, split_words(source, self.split), split_words(target, self.split)
            )
        if is_empty:
            raise MetaXLMError(f"{self.name}:1: no sentence pair; one stands on each line")

    def chunks(self, size: int) -> Iterator[list[SentencePair]]:
        """Yield the pairs some at a time, so that memory does not grow with the file."""
        pairs = iter(self)
        while chunk := list(islice(pairs, size)):
            yield chunk

    def count(self) -> int | None:
        """Check every line and return how many there are; None where that would use them up.

        A broken line near the end is thus told before hours of work, not after.
        """
        return sum(1 for _ in self) if self.can_reread else None

    def _read_joined(self) -> Iterator[tuple[str, str]]:
        with open_input(self.source) as lines:
            layout = ""
            for number, line in lines:
                where = f"{lines.name}:{number}"
                layout = layout or _find_layout(line, self.source)
                sides = _BARS.split(line) if layout == "bars" else line.split("\t")
                if not line.strip():
                    raise MetaXLMError(f"{where}: the line is empty; every line is a pair")
                if len(sides) != 2:
                    _refuse_columns(len(sides), layout, where)
                for name, side in zip(("source", "target"), sides, strict=True):
                    if not side.strip():
                        raise MetaXLMError(f"{where}: the {name} side is empty; drop such pairs")
                yield sides[0].strip(), sides[1].strip()

    def _read_parallel(self) -> Iterator[tuple[str, str]]:
        assert self.target is not None
        with open_input(self.source) as lines, open_input(self.target) as others:
            names = lines.name, others.name
            remaining = zip_longest(lines, others)
            for line, other in remaining:
                if line is None or other is None:
                    _refuse_lengths(names, line or other, sum(1 for _ in remaining), line is None)
                for name, (number, text) in zip(names, (line, other), strict=True):
                    if not text.strip():
                        raise MetaXLMError(
                            f"{name}:{number}: the line is empty; every line is a sentence"
                        )
                yield line[1].strip(), other[1].strip()


def split_words(text: str, split: Split) -> tuple[str, ...]:
    """Cut a sentence into words: at white space, or also around each unspaced character.

    A character stays with the marks that belong to it, as Thai vowels and tones.
    """
    words = text.split()
    if split == "spaces" or text.isascii():
        return tuple(words)
    return tuple(part for word in words for part in _split_characters(word))


def _split_characters(word: str) -> list[str]:
    parts: list[str] = []
    was_alone = True
    for character in word:
        if parts and unicodedata.category(character).startswith("M"):
            parts[-1] += character
            continue
        is_alone = _stands_alone(character)
        if is_alone or was_alone:
            parts.append(character)
        else:
            parts[-1] += character
        was_alone = is_alone
    return parts


def _stands_alone(character: str) -> bool:
    """Say whether a character is a word of its own; the punctuation of such scripts is wide."""
    if character.isascii():
        return False
    if find_script(character) in _UNSPACED:
        return True
    is_wide = unicodedata.east_asian_width(character) in "WF"
    return is_wide and unicodedata.category(character).startswith(("P", "S"))


def _find_layout(line: str, path: str) -> str:
    """Tell by a file's first line, and its name where that has both, what separates the sides."""
    has_bars, has_tab = bool(_BARS.search(line)), "\t" in line
    if has_bars and has_tab:
        return "tabs" if path.lower().endswith(".tsv") else "bars"
    return "tabs" if has_tab else "bars"


def _refuse_columns(found: int, layout: str, where: str) -> NoReturn:
    separator = "|||" if layout == "bars" else "tab"
    if found > 2:
        raise MetaXLMError(f"{where}: {found} columns with {separator} between; a pair has two")
    raise MetaXLMError(
        f"{where}: no {separator} between two sentences; write `source ||| target` on every line, "
        "or put a tab there on every line"
    )


def _refuse_lengths(
    names: tuple[str, str], first: Line | None, more: int, is_second: bool
) -> NoReturn:
    """Tell which of two files ends first; `first` is the line that has no partner."""
    assert first is not None
    number = first[0]
    short, long = names if is_second else names[::-1]
    raise MetaXLMError(
        f"{short}:{number - 1}: has {number - 1} lines, {long} has {number + more}; parallel files "
        "need equally many"
    )
