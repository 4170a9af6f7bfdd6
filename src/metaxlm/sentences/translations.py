"""Translations of English words, weighted by how often a target-language text has them.

Dictionaries list rare and wrong translations beside the usual ones, and some have no order. A
translation is drawn with a weight that falls with its rank in each file. Where the words of a text
in the target language were counted, its weight also grows with its frequency there. Short function
words, which most dictionaries lack, are in `short_words.tsv`.
"""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from metaxlm.init.dictionaries import Dictionary
from metaxlm.languages import LANGUAGES
from metaxlm.reading import decode_line, read_lines
from metaxlm.scripts import UNSPACED
from metaxlm.streams import estimate_size, open_stream

FREQUENCY_POWER = 0.75
RANK_POWER = 1.0
_UNSEEN = 0.1  # occurrences of a translation that the text does not have
_PHRASE_SHARE = 0.05  # occurrences of a phrase, as a share of those of its rarest word
_MOST_WORDS = 3  # of a translation
_MOST_TRANSLATIONS = 12  # of a word
MOST_LETTERS = 8  # of a word in a script without spaces
_SAMPLE_BYTES, _UNSPACED_BYTES = 10_000_000, 3_000_000  # of a sample, spread over a file
# Borrowings are about as frequent as in English; words left over from English are much rarer.
_BORROWED = 0.1
DROPPED, _UNLISTED = "-", "*"  # in the table of short words; an empty cell is also `DROPPED`
_CAPITALIZED_NOUNS = frozenset({"de", "lb"})  # MUSE has them in lower case
_EDGES = " \t!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~«»„“”‘’‚‹›¿¡…—–·•、。「」『』（）！？：；，،؛؟۔।॥"
_NO_TRANSLATION = re.compile(r"/|^\S \S")  # several in one, or the letters of a root
_SENTENCE_START = re.compile(r"(?:^|[.!?…:;»«\"”“„)] +[«\"“„(¿¡—-]*)\w", re.MULTILINE)


Choices = list[tuple[str, float]]
"""Translations with their weights; an empty one means that the word is dropped."""


def is_unspaced(language: str) -> bool:
    """Return whether a language puts no spaces between words."""
    known = LANGUAGES.get(language)
    return known is not None and known.script in UNSPACED


@cache
def load_short_words() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return the translations of short English words and phrases, by language and word."""
    text = resources.files("metaxlm.sentences").joinpath("short_words.tsv").read_text("utf-8")
    header, *rows = (line.split("\t") for line in text.splitlines())
    return {
        language: {
            row[0]: tuple(form.replace("_", " ") for form in (row[column].split() or [DROPPED]))
            for row in rows
            if row[column] != _UNLISTED
        }
        for column, language in enumerate(header)
        if column > 0
    }


def count_words(
    text: Path | Iterable[str], language: str, dictionary: Dictionary | None = None
) -> Counter[str]:
    """Count the words of a text, with their capitals, but sentence starts in lower case.

    In a language without spaces, words are the longest ones of the dictionary and of the short
    words; without a dictionary nothing is counted.
    """
    lines = sample_lines(text, language)
    if is_unspaced(language):
        return _count_unspaced(lines, language, dictionary)
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(_SENTENCE_START.sub(_lower_match, line.replace("’", "'")).split())
    words: Counter[str] = Counter()
    for token, count in counts.items():
        for word in split_token(token):
            words[word] += count
    return words


def split_token(token: str) -> Iterator[str]:
    """Yield the words of a text between spaces, without punctuation: `l'eau` has two."""
    for part in token.replace("'", "' ").split():
        if word := part.strip(_EDGES):
            yield word


def _lower_match(match: re.Match[str]) -> str:
    return match[0].lower()


def sample_lines(text: Path | Iterable[str], language: str) -> Iterator[str]:
    """Yield lines spread over a file, 10 MB at most (3 MB without spaces), or all given lines.

    Lines of a file are in Unicode's form NFC, as in dictionaries.
    """
    if not isinstance(text, Path):
        yield from text
        return
    most = _UNSPACED_BYTES if is_unspaced(language) else _SAMPLE_BYTES
    stride = max(1, -(-estimate_size(text) // most))
    with open_stream(text) as stream:
        for number, line in read_lines(stream, text):
            if number % stride == 0:
                yield unicodedata.normalize("NFC", decode_line(number, line, text))


def _count_unspaced(
    lines: Iterator[str], language: str, dictionary: Dictionary | None
) -> Counter[str]:
    words = {word for word, _ in dictionary or () if len(word) <= MOST_LETTERS}
    words |= {form for forms in load_short_words().get(language, {}).values() for form in forms}
    segmenter = Segmenter(words)
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(text for text, is_word in segmenter.cut(line.lower()) if is_word)
    return counts


class Segmenter:
    """Cuts text without spaces into the longest words of a set, from left to right."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = set(filter(None, words))
        self._longest: dict[str, int] = {}  # by first letter
        for word in self._words:
            self._longest[word[0]] = max(self._longest.get(word[0], 0), len(word))

    def cut(self, line: str) -> Iterator[tuple[str, bool]]:
        """Yield the parts of a line, and whether each is a word."""
        start = gap = 0
        while start < len(line):
            for length in range(self._longest.get(line[start], 0), 0, -1):
                if (word := line[start : start + length]) in self._words:
                    if gap < start:
                        yield line[gap:start], False
                    yield word, True
                    start = gap = start + length
                    break
            else:
                start += 1
        if gap < start:
            yield line[gap:start], False


class Lexicon:
    """The translations of one language, by English word or phrase in lower case.

    `normalize` returns the key of a dictionary's entry, or None for one that is not needed.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        normalize: Callable[[str], str | None],
        counts: Mapping[str, int] | None = None,
        english_counts: Mapping[str, int] | None = None,
        names: Container[str] = (),
    ) -> None:
        self._is_latin = getattr(LANGUAGES.get(dictionary.language), "script", "Latin") == "Latin"
        self._text = _TargetText(counts) if counts else None
        self._has_capitals = dictionary.language in _CAPITALIZED_NOUNS
        self._english = english_counts or {}
        self._names = names
        self._num_english = sum(self._english.values()) or 1
        self._ranked, self._capitals = _rank(dictionary, normalize)
        self._short = load_short_words().get(dictionary.language, {})

    def __iter__(self) -> Iterator[str]:
        # In the order of the files, so that all processes number phrases in the same way.
        return iter(dict.fromkeys([*self._ranked, *self._short]))

    def find(self, english: str) -> Choices:
        """Return the translations of a word or phrase; empty if it has none."""
        if english in self._short:
            return self._weigh_short(self._short[english])
        ranked = self._ranked.get(english)
        if ranked is None:
            return []
        forms = self._remove_english(english, ranked)
        capitals = self._capitals.get(english, {})
        weighed = [
            (self._write(form, capitals.get(form, form)), weight * self._weigh(form))
            for form, weight in forms.items()
        ]
        return sorted(weighed, key=lambda choice: -choice[1])[:_MOST_TRANSLATIONS]

    def find_first(self, word: str, bases: Iterable[str]) -> Choices:
        """Return the translations of a word, or else of its first base form that has some."""
        return self.find(word) or next(filter(None, map(self.find, bases)), [])

    def _weigh_short(self, forms: tuple[str, ...]) -> Choices:
        """Return the listed forms; the share of dropped words follows from the rank."""
        by_rank = {form: 1 / rank for rank, form in enumerate(forms, start=1)}
        dropped = by_rank.pop(DROPPED, 0.0)
        kept = sum(by_rank.values())
        weights = {form: rank**RANK_POWER * self._weigh(form) for form, rank in by_rank.items()}
        scale = kept / (sum(weights.values()) or 1.0)
        choices = [(form, weight * scale) for form, weight in weights.items()]
        return choices + ([("", dropped)] if dropped else [])

    def _weigh(self, form: str) -> float:
        return 1.0 if self._text is None else self._text.weigh(form)

    def _write(self, form: str, otherwise: str) -> str:
        if self._text is None or not self._has_capitals:
            return otherwise
        return self._text.write(form, otherwise)

    def _remove_english(self, english: str, forms: dict[str, float]) -> dict[str, float]:
        """Remove an English word from its own translations, unless it is borrowed.

        A name in the text stays as it is: `Tom` is not a tomcat, but `German` is translated.
        """
        if english not in forms:
            return forms
        others = {form: weight for form, weight in forms.items() if form != english}
        if not self._is_latin:
            return others
        is_name = english in self._names
        if self._text is None:
            return forms if is_name or not others else others
        share = self._english.get(english, 0) / self._num_english
        if self._text.share(english) < _BORROWED * share:
            return others
        return {english: 1.0} if is_name else forms


class _TargetText:
    """How often a text has each word, and with which capitals."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        by_lower: dict[str, int] = defaultdict(int)
        best: dict[str, int] = {}
        self._written: dict[str, str] = {}
        for word, count in counts.items():
            lower = word.lower()
            by_lower[lower] += count
            if count > best.get(lower, 0):
                best[lower] = count
                self._written[lower] = word
        self._counts = dict(by_lower)
        self._total = sum(by_lower.values()) or 1

    def share(self, word: str) -> float:
        return self._counts.get(word, 0) / self._total

    def weigh(self, form: str) -> float:
        lower = form.lower()
        count: float = self._counts.get(lower, 0)
        if not count and " " in lower:
            rarest = min(self._counts.get(word, 0) for word in lower.split())
            count = _PHRASE_SHARE * rarest
        return math.pow(count + _UNSEEN, FREQUENCY_POWER)

    def write(self, form: str, otherwise: str) -> str:
        """Return a word with the capitals that it usually has."""
        return self._written.get(form, otherwise)


def _rank(
    dictionary: Dictionary, normalize: Callable[[str], str | None]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, str]]]:
    """Return weights of the translations by rank, added over the files, and their capitals."""
    ranked: dict[str, dict[str, float]] = defaultdict(dict)
    capitals: dict[str, dict[str, str]] = defaultdict(dict)
    for pairs in dictionary.files:
        num_seen: Counter[str] = Counter()
        for word, english in pairs.iter_written():
            key = normalize(english)
            if key is None:
                continue
            form = word.strip("-–… ")
            if not form or form.count(" ") >= _MOST_WORDS or _NO_TRANSLATION.search(form):
                continue
            num_seen[key] += 1
            lower = form.lower()
            if form != lower:
                capitals[key][lower] = form
            forms = ranked[key]
            forms[lower] = forms.get(lower, 0.0) + num_seen[key] ** -RANK_POWER
    return dict(ranked), dict(capitals)


def normalize_english(text: str) -> str:
    """Return a word or phrase in lower case, its words separated by spaces."""
    return " ".join(text.lower().replace("’", "'").replace("-", " ").split())
