"""Bilingual dictionaries for +Dict: files of word pairs, many languages at once.

Comes in: a folder of dictionaries named by their direction (`en-de.txt` has English words first,
`de-en.txt` German ones), or one such file. Goes out: `Dictionaries`, the pairs of each language in
the files' order, which for MUSE (the lexicons of section 4.1 of the paper) is the order of
frequency. A line is `word translation`; where a tab separates the two, both may be phrases. A word
with several translations stands on several lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_text
from metaxlm.progress import say

_FILE_NAME = re.compile(r"([A-Za-z]{2,8}(?:_[A-Za-z]+)?)-([A-Za-z]{2,8}(?:_[A-Za-z]+)?)\.txt")
# A whole file of this shape need not be taken apart line by line; possessive, so it cannot stall.
_PLAIN_FILE = re.compile(r"(?:\S++[ \t]\S++\n)*+")
# An error message stays readable when ninety languages are wanted.
_MOST_NAMES = 4


@dataclass(frozen=True)
class Dictionary:
    """The word pairs of one language.

    Both columns are kept as text, an entry a line: millions of small strings would take ten times
    the memory.
    """

    language: str
    words: str
    """Words in lower case, as in MUSE; one with several translations stands here several times."""
    translations: str
    """Beside each word a translation into the source language, as the file writes it."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.words.split("\n"), self.translations.split("\n"), strict=True)

    def __len__(self) -> int:
        return self.words.count("\n") + 1


@dataclass(frozen=True)
class BrokenLines:
    """Lines of a file that are no word pair; they are left out."""

    path: Path
    count: int
    first_line: int

    def describe(self) -> str:
        """Say in one line how many there are and where the first is."""
        lines = "line is" if self.count == 1 else "lines are"
        return f"{self.path}:{self.first_line}: {self.count:,} {lines} not a word pair (left out)"


@dataclass(frozen=True)
class Dictionaries:
    """Dictionaries of several languages into one source language."""

    source_language: str
    by_language: Mapping[str, Dictionary]
    """By language code, in alphabetical order."""
    broken: tuple[BrokenLines, ...] = ()
    """What could not be read, file by file."""
    missing: tuple[str, ...] = ()
    """Wanted languages for which there was no dictionary."""


def load_dictionaries(
    path: Path, languages: Sequence[str] | None = None, source_language: str = "en"
) -> Dictionaries:
    """Load the dictionaries of the wanted languages (all when None) from a folder or a file."""
    files = _find_files(path, source_language)
    wanted = sorted(set(files if languages is None else languages) - {source_language})
    if not any(language in files for language in wanted):
        _complain_about_folder(path, wanted, sorted(files), source_language)
    by_language: dict[str, Dictionary] = {}
    broken: list[BrokenLines] = []
    for language in [language for language in wanted if language in files]:
        words: list[str] = []
        translations: list[str] = []
        for file in files[language]:
            pairs = _read_pairs(file, file.name.startswith(f"{source_language}-"))
            words.append(pairs.words)
            translations.append(pairs.translations)
            broken.extend(pairs.broken)
        by_language[language] = Dictionary(language, "\n".join(words), "\n".join(translations))
    for fault in broken:
        say(fault.describe())
    missing = tuple(language for language in wanted if language not in files)
    if missing:
        say(f"{path}: no dictionary for {', '.join(missing)}; their rows match without one")
    return Dictionaries(source_language, by_language, tuple(broken), missing)


def _find_files(path: Path, source_language: str) -> dict[str, list[Path]]:
    """Return the dictionary files by language; those that start from the source come first."""
    if path.is_dir():
        candidates: Iterable[Path] = sorted(path.iterdir())
    elif path.is_file():
        candidates = [path]
    else:
        raise MetaXLMError(
            f"{path}: no such dictionary folder or file; a folder holds files like "
            f"{source_language}-de.txt"
        )
    files: dict[str, list[Path]] = {}
    for file in candidates:
        match = _FILE_NAME.fullmatch(file.name)
        first, second = match.groups() if match else ("", "")
        if first == source_language != second:
            files.setdefault(second, []).insert(0, file)
        elif second == source_language != first:
            files.setdefault(first, []).append(file)
    return files


def _complain_about_folder(
    path: Path, wanted: Sequence[str], found: Sequence[str], source: str
) -> None:
    names = [f"{source}-{language}.txt or {language}-{source}.txt" for language in wanted]
    more = f"; and so on for {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    looked_for = "; ".join(names[:_MOST_NAMES]) or f"{source}-XX.txt or XX-{source}.txt"
    has = f"it has dictionaries for {', '.join(found)}" if found else "it has no dictionary at all"
    raise MetaXLMError(f"{path}: no dictionary; looked for {looked_for}{more}; {has}")


class _Pairs(NamedTuple):
    words: str
    translations: str
    broken: list[BrokenLines]


def _read_pairs(path: Path, from_source: bool) -> _Pairs:
    """Read one file; `from_source` says that the translation stands first."""
    text = read_text(path).removeprefix("\ufeff")
    if not text.endswith("\n"):
        text += "\n"
    broken: list[BrokenLines] = []
    if _PLAIN_FILE.fullmatch(text):
        fields = text.split()
        first, second = fields[0::2], fields[1::2]
    else:
        first, second, broken = _read_lines(path, text)
    if not first:
        found = broken[0].describe() if broken else f"{path}: an empty dictionary"
        raise MetaXLMError(f"{found}; a line is `word translation`")
    words, translations = (second, first) if from_source else (first, second)
    return _Pairs("\n".join(words).lower(), "\n".join(translations), broken)


def _read_lines(path: Path, text: str) -> tuple[list[str], list[str], list[BrokenLines]]:
    """Take a file apart line by line; blank lines are no fault."""
    first, second, broken = [], [], []
    for number, line in enumerate(text.split("\n"), start=1):
        fields = [part.strip() for part in line.split("\t")] if "\t" in line else line.split()
        if len(fields) == 2 and all(fields):
            first.append(" ".join(fields[0].split()))
            second.append(" ".join(fields[1].split()))
        elif line.strip():
            broken.append(number)
    faults = [BrokenLines(path, len(broken), broken[0])] if broken else []
    return first, second, faults
