"""English sentences as numbered words: contractions in full, and base forms of inflected words.

Shapes: T words of all sentences, S sentences.
"""

import itertools
import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

LOWER, TITLE, UPPER, _START = range(4)  # capitals of a word; `_START`: only at a sentence's start
_WORD = re.compile(r"([^\W_]+(?:['’][^\W_]+)*)")
# In capitals, these are not the common words: US, IT.
_ACRONYMS = frozenset(
    ("AM", "AN", "AS", "AT", "BE", "DO", "HE", "IF", "IN", "IS", "IT", "ME", "MY", "NO", "OF",
     "ON", "OR", "SO", "TO", "UP", "US", "WE")
)  # fmt: skip
_CONTRACTED = {
    "can't": ("can", "not"), "won't": ("will", "not"), "shan't": ("shall", "not"),
    "cannot": ("can", "not"), "ain't": ("is", "not"), "let's": ("let", "us"),
}  # fmt: skip
_ENDINGS = {"'m": "am", "'re": "are", "'ve": "have", "'ll": "will", "'d": "would"}
_AUXILIARIES = frozenset({"do", "does", "did"})  # without a meaning of their own before "not"
# After these words, 's is a verb; elsewhere it is a possessive, which dictionaries lack.
_SUBJECTS = frozenset(
    ("he", "she", "it", "that", "this", "there", "here", "what", "who", "where", "when", "how",
     "why", "everything", "everyone")
)  # fmt: skip
_VOWELS = frozenset("aeiouy")


@cache
def _load_irregular() -> Mapping[str, str]:
    """Return the base forms of irregular verbs, nouns and adjectives."""
    text = resources.files("metaxlm.sentences").joinpath("irregular_forms.tsv").read_text("utf-8")
    rows = (line.split("\t") for line in text.splitlines()[1:])
    return {form: base for base, forms in rows for form in forms.split()}


def expand(word: str) -> tuple[str, ...]:
    """Return the words of a contraction in full; `word` is in lower case, with a plain '."""
    if word in _CONTRACTED:
        return _CONTRACTED[word]
    if "'" not in word:
        return (word,)
    if word.endswith("n't"):
        base = word[:-3]
        return ("not",) if base in _AUXILIARIES else (base, "not")
    base, mark, ending = word.rpartition("'")
    if ending == "s":
        return (base, "is") if base in _SUBJECTS else (base,)
    verb = _ENDINGS.get(mark + ending)
    return (base, verb) if verb and base else (word,)


def list_bases(word: str) -> Iterator[str]:
    """Yield the possible base forms of an inflected word, the likeliest first."""
    if (irregular := _load_irregular().get(word)) is not None:
        yield irregular
    for ending, replacements in (
        ("ies", ("y", "ie")), ("es", ("e", "")), ("s", ("",)),
        ("ied", ("y",)), ("ed", ("e", "")), ("ing", ("", "e")),
        ("iest", ("y",)), ("est", ("e", "")), ("ier", ("y",)), ("er", ("e", "")),
        ("ily", ("y",)), ("ly", ("", "le")),
    ):  # fmt: skip
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < 2 or not _VOWELS.intersection(stem):  # thing
            continue
        if ending == "s" and stem.endswith("s"):  # glass
            continue
        # Stopped, running, bigger.
        if ending in ("ed", "ing", "er", "est") and stem[-1] == stem[-2] not in _VOWELS:
            yield stem[:-1]
        for replacement in replacements:
            if replacement or len(stem) > 2 or stem[-1] in _VOWELS:  # going, but not using
                yield stem + replacement


class SplitSentences:
    """Sentences as numbered words and the separators after them."""

    def __init__(self, sentences: Sequence[str]) -> None:
        token_numbers: dict[str, int] = defaultdict(itertools.count().__next__)
        separator_numbers: dict[str, int] = defaultdict(itertools.count().__next__)
        tokens, separators, counts = array("i"), array("i"), array("i")
        self.leads: list[str] = []  # before the first word
        for sentence in sentences:
            parts = _WORD.split(sentence)
            tokens.extend(map(token_numbers.__getitem__, parts[1::2]))
            separators.extend(map(separator_numbers.__getitem__, parts[2::2]))
            counts.append(len(parts) // 2)
            self.leads.append(parts[0])
        space = separator_numbers[" "]
        self.separators = list(separator_numbers)
        type_numbers: dict[str, int] = defaultdict(itertools.count().__next__)
        read = [_read_token(token) for token in token_numbers]
        sizes = np.array([len(words) for words, _ in read], np.int64)
        types = np.array([type_numbers[word] for words, _ in read for word in words], np.int32)
        cases = np.array(
            [case if not n else LOWER for words, case in read for n in range(len(words))], np.int8
        )
        self.types = list(type_numbers)
        token_numbers_T = np.asarray(tokens, np.int32)
        repeats = sizes[token_numbers_T]
        at = list_ranges((np.cumsum(sizes) - sizes)[token_numbers_T], repeats)
        self.words_T = types[at]
        self.cases_T = cases[at]
        # The words of a contraction have spaces between them.
        self.separators_T = np.full(len(at), space, np.int32)
        self.separators_T[np.cumsum(repeats) - 1] = np.asarray(separators, np.int32)
        ends = np.cumsum(np.asarray(counts, np.int64))
        self.offsets_S = np.append(0, np.append(0, np.cumsum(repeats))[ends])
        has_words = np.diff(self.offsets_S) > 0
        starts = self.offsets_S[:-1][has_words]
        self.names = self._find_names(starts)
        # The capital of the first word belongs to the sentence.
        first = self.cases_T[starts]
        self.starts_with_capital_S = np.zeros(len(sentences), np.bool_)
        self.starts_with_capital_S[has_words] = (first == TITLE) | (first == _START)
        self.cases_T[starts[first == TITLE]] = LOWER
        self.cases_T[self.cases_T == _START] = LOWER

    def _find_names(self, starts: Ints) -> frozenset[str]:
        """Return the words that mostly have a capital within sentences."""
        is_inner_T = np.ones(len(self.words_T), np.bool_)
        is_inner_T[starts] = False
        is_capital_T = is_inner_T & (self.cases_T == TITLE)
        counts, num_capitals = (
            np.bincount(self.words_T[chosen_T], minlength=len(self.types))
            for chosen_T in (is_inner_T, is_capital_T)
        )
        places = np.flatnonzero(num_capitals > counts / 2).tolist()
        return frozenset(self.types[place] for place in places)

    def count_types(self) -> dict[str, int]:
        """Return how often each type of word occurs."""
        counts = np.bincount(self.words_T, minlength=len(self.types))
        return dict(zip(self.types, counts.tolist(), strict=True))


def list_ranges(starts: Ints, counts: Ints) -> Ints:
    """Return start, start + 1, ..., start + count - 1 of each range, one range after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    ranges: Ints = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return ranges


def _read_token(token: str) -> tuple[tuple[str, ...], int]:
    """Return the words of a token in lower case, and the capitals of the first."""
    plain = token.replace("’", "'")
    lower = plain.lower()
    if plain == lower:
        return expand(lower), LOWER
    if plain[0] in "IA" and plain[1:2] in ("", "'"):
        return expand(lower), _START
    if plain in _ACRONYMS or len(plain) == 1:
        return (plain,), LOWER
    if plain.isupper():
        return expand(lower), UPPER
    return expand(lower), TITLE
