"""Coverage: which share of a text, and of a vocabulary, a dictionary translates.

The unit of text is the word, or the letter in a language without spaces between words. A word is
covered if the dictionary has it, also as part of a phrase. Numbers and words in other scripts do
not count. Words that are the same in a text of the source language count, but are also given apart.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from metaxlm.analysis.tables import Table, text_table
from metaxlm.data.clean import MIN_SCRIPT_SHARE
from metaxlm.dictionary.making import find_manifest
from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionary, load_dictionaries
from metaxlm.languages import LANGUAGES, language_name
from metaxlm.manifest import read_sealed
from metaxlm.scripts import measure_share
from metaxlm.sentences.translations import (
    MOST_LETTERS,
    Segmenter,
    count_words,
    is_unspaced,
    sample_lines,
    split_token,
)

_SHOWN_LETTERS = 40
_DIRECTION = re.compile(r"[A-Za-z_]+-[A-Za-z_]+\.")  # start of a name such as `en-de.txt`
_SAME_WORDS = 5  # occurrences in the source language's text of a word that needs no translation


@dataclass(frozen=True)
class TextCoverage:
    """The share of a text that a dictionary translates."""

    unit: str
    total: int
    covered: int
    missing: Counter[str]  # without a translation

    @property
    def share(self) -> float:
        """Share of the text that is covered."""
        return self.covered / self.total if self.total else 0.0


def measure_text(dictionary: Dictionary, text: Path | Iterable[str]) -> TextCoverage:
    """Measure the coverage of a sample of a text."""
    language, words = dictionary.language, {word for word, _ in dictionary}
    words |= {word[:-1] for word in words if word.endswith("'")}  # French l' covers the l of l'eau
    measure = _measure_letters if is_unspaced(language) else _measure_words
    return measure(words, sample_lines(text, language), _recognize_script(language))


def _measure_file(dictionary: Dictionary, text: Path) -> TextCoverage:
    found = measure_text(dictionary, text)
    if not found.total:
        raise MetaXLMError(f"{text}: no words; give text of the language")
    return found


def _recognize_script(language: str) -> Callable[[str], bool]:
    """Return a function that tells whether a word is written in a script of a language."""
    known = LANGUAGES.get(language)

    @cache
    def is_own(word: str) -> bool:
        return known is None or measure_share(word, known.scripts) >= MIN_SCRIPT_SHARE

    return is_own


def _measure_words(
    words: Collection[str], lines: Iterator[str], is_own: Callable[[str], bool]
) -> TextCoverage:
    phrases: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for word in words:
        if " " in word:
            parts = tuple(word.split())
            phrases[parts[0]].add(parts)
    lengths = {
        first: sorted({len(one) for one in found}, reverse=True) for first, found in phrases.items()
    }
    total = covered = 0
    missing: Counter[str] = Counter()
    for line in lines:
        tokens = list(filter(is_own, _split_words(line, words)))
        total += len(tokens)
        until = 0  # end of the last phrase
        for place, token in enumerate(tokens):
            for length in lengths.get(token, ()):
                if tuple(tokens[place : place + length]) in phrases[token]:
                    until = max(until, place + length)
                    break
            if token in words or place < until:
                covered += 1
            else:
                missing[token] += 1
    return TextCoverage("words", total, covered, missing)


def _split_words(line: str, words: Collection[str]) -> Iterator[str]:
    for token in line.lower().replace("’", "'").split():
        if "'" in token and (whole := token.strip('.,;:!?"()')) in words:
            yield whole
        elif token.isalpha():
            yield token
        else:
            yield from (word for word in split_token(token) if any(map(str.isalpha, word)))


def _measure_letters(
    words: Collection[str], lines: Iterator[str], is_own: Callable[[str], bool]
) -> TextCoverage:
    segmenter = Segmenter(word for word in words if len(word) <= MOST_LETTERS)
    total = covered = 0
    missing: Counter[str] = Counter()
    for line in lines:
        for part, is_word in segmenter.cut(line.lower()):
            if is_word:
                num_letters = sum(map(str.isalnum, part))
                covered += num_letters
                total += num_letters
                continue
            for run in filter(is_own, _list_runs(part)):
                missing[run] += 1
                total += len(run)
    return TextCoverage("letters", total, covered, missing)


def _list_runs(text: str) -> list[str]:
    """Return the runs of letters in a text."""
    runs = "".join(letter if letter.isalnum() else " " for letter in text).split()
    return [run for run in runs if not run.isdigit()]


@dataclass(frozen=True)
class VocabularyCoverage:
    """How a dictionary and a vocabulary overlap."""

    tokens: int  # that start a word and are written in the script of the language
    translated: int  # of them
    words: int  # single words of the dictionary
    single_tokens: int  # of them


def measure_vocabulary(dictionary: Dictionary, tokenizer: str) -> VocabularyCoverage:
    """Compare the words of a dictionary with the tokens of a tokenizer."""
    from metaxlm.init.vocabulary import read_vocabulary  # imports torch
    from metaxlm.vocab.tokenizer import load_tokenizer

    known = LANGUAGES.get(dictionary.language)
    words = {word for word, _ in dictionary if " " not in word}
    unspaced = is_unspaced(dictionary.language)
    tokens = set()
    for form in read_vocabulary(load_tokenizer(tokenizer)).forms:
        if form is None or not (form[1] or unspaced) or not any(map(str.isalpha, form[0])):
            continue
        if known is None or measure_share(form[0], known.scripts) == 1.0:
            tokens.add(form[0].lower())
    return VocabularyCoverage(len(tokens), len(tokens & words), len(words), len(words & tokens))


def describe_dictionary(
    path: Path, source_language: str, text: Path | None, vocabulary: str | None, most: int
) -> list[Table]:
    """Return tables of a dictionary's size, coverage, sources and most frequent missing words."""
    [dictionary] = load_dictionaries(path, source_language=source_language).by_language.values()
    rows = [_row("entries", len(dictionary))]
    rows.append(_row("words with a translation", len({word for word, _ in dictionary})))
    phrases = sum(" " in word or " " in other for word, other in dictionary)
    rows.append(_row("entries with a phrase", phrases))
    if vocabulary is not None:
        found = measure_vocabulary(dictionary, vocabulary)
        name = "tokens in its script that are words here"
        rows.append(_share(name, found.translated, found.tokens))
        rows.append(_share("words here that are one token", found.single_tokens, found.words))
    missing = []
    if text is not None:
        covered = _measure_file(dictionary, text)
        rows.append(_share(f"{covered.unit} of {text.name}", covered.covered, covered.total))
        counted = covered.missing.most_common(most)
        missing = [(word[:_SHOWN_LETTERS], f"{count:,}") for word, count in counted]
    title = f"{language_name(source_language)}-{language_name(dictionary.language)}"
    tables = [text_table("dictionary", title, ("", "number", "share"), rows)]
    if missing:
        title = "Most frequent without a translation"
        tables.append(text_table("missing", title, ("word", "occurrences"), missing))
    return [*tables, *describe_sources(path)]


def describe_folder(path: Path, source_language: str, text: Path) -> list[Table]:
    """Return a table of what the dictionaries of a folder cover of texts named like sw.txt."""
    found = load_dictionaries(path, source_language=source_language).by_language
    texts = {file.name.partition(".")[0]: file for file in sorted(text.glob("*.txt*"))}
    if not found.keys() & texts.keys():
        raise MetaXLMError(f"{text}: no text of {', '.join(found)}; name files like sw.txt")
    source = texts.get(source_language)
    counts = count_words(source, source_language) if source else {}
    same = {word.lower() for word, count in counts.items() if count >= _SAME_WORDS}
    rows: list[tuple[str, ...]] = []
    shares = []
    for language, dictionary in found.items():
        sizes = f"{len(dictionary):,}", f"{len({word for word, _ in dictionary}):,}"
        if language not in texts:
            rows.append((language, *sizes, "", "", ""))
            continue
        covered = _measure_file(dictionary, texts[language])
        num_same = sum(n for word, n in covered.missing.items() if word in same)
        shares.append((covered.share, num_same / covered.total))
        rows.append((language, *sizes, covered.unit, *(f"{one:.1%}" for one in shares[-1])))
    means = [f"{sum(column) / len(shares):.1%}" for column in zip(*shares, strict=True)]
    name = f"not, but also {language_name(source_language)}"
    headings = ("language", "entries", "words", "unit", "covered", name)
    total = [("mean", "", "", "", *means)]
    return [text_table("coverage", "Coverage of text", headings, rows, totals=total)]


def describe_sources(path: Path) -> list[Table]:
    """Return the table of sources of a dictionary, or of all dictionaries in a folder."""
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    manifests = [one for file in files if (one := find_manifest(file)).is_file()]
    if path.is_dir() and not manifests:
        raise MetaXLMError(f"{path}: no dictionary of `metaxlm dictionary make`; name a file")
    facts = [read_sealed(manifest) for manifest in manifests]
    sources = [
        one | ({"name": f"{fact['language']}: {one['name']}"} if path.is_dir() else {})
        for fact in facts
        for one in fact["sources"]
    ]
    tables = [source_table(sources)] if sources else []
    return [replace(one, notes=()) for one in tables] if path.is_dir() else tables


def describe_origins(dictionary: Dictionary) -> dict[str, Any]:
    """Return the number of entries by source, and what a second round added to them.

    Sources are those of the manifest, or else folders or files.
    """
    sources: Counter[str] = Counter()
    facts: dict[str, Any] = {}
    for pairs in dictionary.files:
        found: dict[str, Any] = {}
        with suppress(MetaXLMError):  # without a manifest, or beside a file of another program
            found = read_sealed(find_manifest(Path(pairs.origin)))
        known = {one["name"]: one["kept"] for one in found.get("sources", ())}
        for name, number in (known or {pairs.origin: len(pairs)}).items():
            sources[_shorten(name)] += number
        facts |= {"growth": found["growth"]} if "growth" in found else {}
    return {"entries": len(dictionary), "sources": dict(sources), **facts}


def _shorten(source: str) -> str:
    """Return the name of a source without folders; files such as `en-de.txt` have their folder's.

    A source through a third language is named after that.
    """
    path = Path(source.partition(": ")[0])
    return path.parent.name if _DIRECTION.match(path.name) and path.parent.name else path.name


def source_table(sources: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table of what each source gave, with the reasons for what was left out."""
    rows, notes = [], []
    for one in sources:
        reasons = one["dropped"]
        counts = (one["entries"], one["kept"], one["only_here"], sum(reasons.values()))
        name = (
            one["name"]
            if len(one["name"]) <= _SHOWN_LETTERS
            else f"…{one['name'][-_SHOWN_LETTERS:]}"
        )
        rows.append((name, *(f"{count:,}" for count in counts)))
        if reasons:
            listed = ", ".join(f"{reason}: {count:,}" for reason, count in reasons.items())
            notes.append(f"Left out of {one['name']}: {listed}.")
    headings = ("source", "read", "kept", "only here", "left out")
    return text_table("sources", "Sources", headings, rows, notes)


def _row(name: str, number: int) -> tuple[str, str, str]:
    return name, f"{number:,}", ""


def _share(name: str, number: int, total: int) -> tuple[str, str, str]:
    return name, f"{number:,} of {total:,}", f"{number / total:.1%}" if total else ""
