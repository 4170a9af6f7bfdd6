"""Read bilingual dictionaries for +Dict: files of word pairs, one per language pair.

A file is named by its direction: `en-de.txt` has English words first. A line is `word translation`;
separated by a tab, both may be phrases. The order of lines is kept: in MUSE (section 4.1 of the
paper) it is that of frequency. A language without a dictionary is joined through a third one.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.files import walk_files
from metaxlm.progress import say
from metaxlm.reading import MAX_RECORD_BYTES, decode_text
from metaxlm.streams import COMPRESSIONS, open_stream

_CODE = r"[A-Za-z]{2,8}(?:_[A-Za-z]+)?"
_ENDING = rf"\.(?:txt|tsv|dict)(?:{'|'.join(map(re.escape, COMPRESSIONS))})?"
# MUSE also has parts of its files, such as en-de.0-5000.txt.
_FILE_NAME = re.compile(rf"({_CODE})-({_CODE})(?:\.\d+-\d+)?{_ENDING}")
# Text of this shape needs no parsing by line; possessive quantifiers never backtrack.
_PLAIN_FILE = re.compile(r"(?:\S++[ \t]\S++\n)*+")
_MAX_FILE_BYTES = 2 * MAX_RECORD_BYTES
_CHUNK_BYTES = 1 << 20
_MOST_NAMES = 4  # in an error message
_MOST_PIVOTED = 2  # translations per word and step through a third language


@dataclass(frozen=True)
class WordPairs:
    """The pairs of one file, each column as one text: small strings take ten times the memory."""

    origin: str  # the file, or the two files that were joined
    words: str  # one word per line in lower case; a word with several translations is repeated
    translations: str  # one translation into the source language per line, as the file writes it
    written: str = ""  # the words as the file writes them, if some have capitals

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(_split_lines(self.words), _split_lines(self.translations), strict=True)

    def iter_written(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs as the file writes them."""
        words = _split_lines(self.written or self.words)
        return zip(words, _split_lines(self.translations), strict=True)

    def __len__(self) -> int:
        return self.words.count("\n") + 1


@dataclass(frozen=True)
class Dictionary:
    """The word pairs of one language, from all its files."""

    language: str
    files: tuple[WordPairs, ...]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for pairs in self.files:
            yield from pairs

    def __len__(self) -> int:
        return sum(map(len, self.files))


@dataclass(frozen=True)
class Dictionaries:
    """Dictionaries of several languages into one source language."""

    source_language: str
    by_language: Mapping[str, Dictionary]  # by language code, in alphabetical order


def load_dictionaries(
    paths: Path | Sequence[Path],
    languages: Sequence[str] | None = None,
    source_language: str = "en",
) -> Dictionaries:
    """Load the dictionaries of the given languages (default: all) from folders or files."""
    paths = [paths] if isinstance(paths, Path) else list(paths)
    shelf = _Shelf(paths)
    known = shelf.list_languages(source_language)
    wanted = sorted(set(known if languages is None else languages) - {source_language})
    if not set(wanted) & set(known):
        raise _no_dictionary(paths, wanted, known, source_language)
    by_language = {
        language: Dictionary(
            language, shelf.read(language, source_language) or shelf.join(language, source_language)
        )
        for language in wanted
        if language in known
    }
    if missing := [language for language in wanted if language not in known]:
        where = ", ".join(map(str, paths))
        say(f"{where}: no dictionary for {', '.join(missing)}; their words have no translations")
    return Dictionaries(source_language, by_language)


class _Shelf:
    def __init__(self, paths: Sequence[Path]) -> None:
        self._files: dict[tuple[str, str], list[Path]] = {}
        self._read: dict[tuple[Path, bool], WordPairs] = {}
        others = []
        # Sorted by name, so that the order of the arguments does not matter.
        candidates = {file.resolve(): file for path in paths for file in _list_files(path)}
        for file in sorted(candidates.values(), key=lambda file: (file.name, str(file))):
            match = _FILE_NAME.fullmatch(file.name)
            if match and match[1] != match[2]:
                self._files.setdefault((match[1], match[2]), []).append(file)
            elif re.search(_ENDING + r"\Z", file.name):
                others.append(file)
        if others and self._files:
            say(f"{others[0]}: not named like en-de.txt, not read ({len(others)} such files)")

    def list_languages(self, source: str) -> list[str]:
        """Return the languages with a dictionary into the source, directly or by a third one."""
        near = self._neighbors(source)
        far = {code for pivot in near for code in self._neighbors(pivot)}
        return sorted((near | far) - {source})

    def read(self, language: str, source: str) -> tuple[WordPairs, ...]:
        """Read the files of a language and the source; files with the source first go first."""
        forward = [self._read_file(file, True) for file in self._files.get((source, language), [])]
        back = [self._read_file(file, False) for file in self._files.get((language, source), [])]
        return (*forward, *back)

    def join(self, language: str, source: str) -> tuple[WordPairs, ...]:
        """Join two dictionaries through a third language, preferably English."""
        pivots = self._neighbors(source) & self._neighbors(language)
        pivot = "en" if "en" in pivots else min(pivots)
        onward: dict[str, dict[str, None]] = defaultdict(dict)
        for word, translation in Dictionary(pivot, self.read(pivot, source)):
            onward[word][translation] = None
        pairs: dict[tuple[str, str], None] = {}
        num_taken: Counter[str] = Counter()
        for word, middle in Dictionary(language, self.read(language, pivot)):
            found = onward.get(middle.lower())
            if found and num_taken[word] < _MOST_PIVOTED:
                num_taken[word] += 1
                pairs |= dict.fromkeys((word, text) for text in list(found)[:_MOST_PIVOTED])
        if not pairs:
            raise MetaXLMError(
                f"dictionaries: {language}-{pivot} and {pivot}-{source} have no word of "
                f"{pivot} in common; are their languages as named?"
            )
        say(f"{language}: no dictionary into {source}, goes through {pivot} ({len(pairs):,} pairs)")
        words, translations = zip(*pairs, strict=True)
        origin = f"{language}-{pivot} and {pivot}-{source}"
        return (WordPairs(origin, "\n".join(words), "\n".join(translations)),)

    def _neighbors(self, language: str) -> set[str]:
        return {code for pair in self._files if language in pair for code in pair} - {language}

    def _read_file(self, path: Path, from_source: bool) -> WordPairs:
        key = (path, from_source)
        if key not in self._read:
            self._read[key] = _read_pairs(path, from_source)
        return self._read[key]


def _split_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, in chunks to save memory."""
    start = 0
    while start <= len(text):
        stop = text.find("\n", start + _CHUNK_BYTES)
        stop = len(text) if stop < 0 else stop
        yield from text[start:stop].split("\n")
        start = stop + 1


def _list_files(path: Path) -> Iterable[Path]:
    if path.is_dir():
        return walk_files(path)
    if path.is_file():
        return [path]
    raise MetaXLMError(
        f"{path}: no such dictionary folder or file; a folder holds files like en-de.txt"
    )


def _no_dictionary(
    paths: Sequence[Path], wanted: Sequence[str], found: Sequence[str], source: str
) -> MetaXLMError:
    names = [f"{source}-{language}.txt or {language}-{source}.txt" for language in wanted]
    more = f"; and so on for {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    looked_for = "; ".join(names[:_MOST_NAMES]) or f"{source}-XX.txt or XX-{source}.txt"
    has = f"it has dictionaries for {', '.join(found)}" if found else "it has no dictionary at all"
    where = ", ".join(map(str, paths))
    return MetaXLMError(f"{where}: no dictionary; looked for {looked_for}{more}; {has}")


def _read_pairs(path: Path, from_source: bool) -> WordPairs:
    """Read one file; lines that are not word pairs are reported and ignored."""
    columns: tuple[list[str], list[str]] = ([], [])
    num_lines = num_broken = first_broken = 0
    for text in _read_chunks(path):
        if _PLAIN_FILE.fullmatch(text):
            fields = text.split()
            pairs = [fields[0::2], fields[1::2]]
        else:
            *pairs, broken = _read_lines(text, num_lines + 1)
            first_broken = first_broken or next(iter(broken), 0)
            num_broken += len(broken)
        for column, entries in zip(columns, pairs, strict=True):
            if entries:
                column.append("\n".join(entries))
        num_lines += text.count("\n")
    verb = "line is" if num_broken == 1 else "lines are"
    fault = f"{path}:{first_broken}: {num_broken:,} {verb} not a word pair (left out)"
    first, second = columns
    if not first:
        what = fault if num_broken else f"{path}: an empty dictionary"
        raise MetaXLMError(f"{what}; a line is `word translation`")
    if num_broken:
        say(fault)
    words, translations = (second, first) if from_source else (first, second)
    written = "\n".join(words)
    lower = "\n".join(part.lower() for part in words)
    return WordPairs(str(path), lower, "\n".join(translations), "" if written == lower else written)


def _read_chunks(path: Path) -> Iterator[str]:
    """Yield some lines at a time: a small compressed file may have any number of lines."""
    num_bytes = num_lines = 0
    with open_stream(path) as stream:
        while data := stream.read(_CHUNK_BYTES):
            line = stream.readline(_CHUNK_BYTES)
            data += line
            num_bytes += len(data)
            is_cut = len(line) == _CHUNK_BYTES and not line.endswith(b"\n")
            if num_bytes > _MAX_FILE_BYTES or is_cut:
                raise MetaXLMError(
                    f"{path}:{num_lines + 1}: more than {_MAX_FILE_BYTES:,} bytes of text, or a "
                    f"line above {_CHUNK_BYTES:,}; a line is `word translation`, and a large "
                    "dictionary may be several files, such as en-de.0-5000.txt"
                )
            text = decode_text(data, path, first_line=num_lines + 1)
            num_lines += text.count("\n")
            yield text if text.endswith("\n") else f"{text}\n"


def _read_lines(text: str, first_line: int) -> tuple[list[str], list[str], list[int]]:
    first, second, broken = [], [], []
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=first_line):
        fields = [part.strip() for part in line.split("\t")] if "\t" in line else line.split()
        if len(fields) == 2 and all(fields):
            first.append(" ".join(fields[0].split()))
            second.append(" ".join(fields[1].split()))
        elif line.strip():
            broken.append(number)
    return first, second, broken
