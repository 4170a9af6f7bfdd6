"""Training pairs of a sentence encoder: a text for the student, and a sentence for the teacher.

A pair is a function of (seed, number): nothing has a state, so a resumed run and any number of
processes draw the same pairs. Random numbers are integer hashes of (key, number, counter).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from metaxlm.randomness import derive_seed

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_GOLDEN, _MIX_1, _MIX_2 = (
    np.uint64(value) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


@dataclass(frozen=True)
class Pairs:
    """Some training pairs."""

    texts: list[str]  # for the student
    languages: list[str]  # of the texts
    anchors: Ints  # for the teacher: indices into the source's `anchors`


class PairSource(Protocol):
    """Draws training pairs; thread-safe and without state."""

    @property
    def anchors(self) -> Sequence[str]:
        """The sentences in the teacher's language."""

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the texts."""

    def draw(self, numbers: Ints) -> Pairs:
        """Return the pairs with these numbers; a pair is a function of (seed, number)."""


def uniform(key: int, numbers: Ints, counters: Ints | int = 0) -> Floats:
    """Return random numbers in [0, 1), each a function of (key, number, counter); splitmix64."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant
        state = _mix(numbers.astype(np.uint64) * _GOLDEN + np.uint64(key))
        state = _mix(state + np.asarray(counters, np.int64).astype(np.uint64) * _GOLDEN)
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed


def choose(weights: Sequence[float], random: Floats) -> Ints:
    """Return indices drawn by weight, one for each random number in [0, 1)."""
    steps = np.cumsum(np.asarray(weights, np.float64))
    assert steps[-1] > 0, "some weight must be above 0"
    return np.searchsorted(steps[:-1] / steps[-1], random, side="right")


class ParallelPairs:
    """Rows of parallel text: each language is drawn equally often, then one of its rows."""

    def __init__(
        self, texts: Sequence[str], anchors: Sequence[str], languages: Sequence[str], seed: int
    ) -> None:
        assert len(texts) == len(anchors) == len(languages) > 0
        self._texts = list(texts)
        # Equal sentences share an index: the loss does not contrast equal anchors.
        index = {sentence: row for row, sentence in enumerate(dict.fromkeys(anchors))}
        self._anchors = list(index)
        self._anchor_of_row = np.array([index[sentence] for sentence in anchors], np.int64)
        self._languages = tuple(sorted(set(languages)))
        known = {language: number for number, language in enumerate(self._languages)}
        language_of_row = np.array([known[language] for language in languages], np.int64)
        self._rows = np.argsort(language_of_row, kind="stable")
        self._counts = np.bincount(language_of_row, minlength=len(known))
        self._starts = np.cumsum(self._counts) - self._counts
        self._key = derive_seed(seed, "parallel pairs")

    @property
    def anchors(self) -> Sequence[str]:
        """The distinct sentences in the teacher's language."""
        return self._anchors

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the texts."""
        return self._languages

    def count_rows(self) -> dict[str, int]:
        """Return the number of rows in each language."""
        return dict(zip(self._languages, self._counts.tolist(), strict=True))

    def list_rows(self, language: str) -> list[tuple[str, str]]:
        """Return the rows of a language: a sentence of the teacher, and its translation."""
        if language not in self._languages:
            return []
        number = self._languages.index(language)
        start, count = self._starts[number], self._counts[number]
        rows = self._rows[start : start + count].tolist()
        return [(self._anchors[self._anchor_of_row[row]], self._texts[row]) for row in rows]

    def draw(self, numbers: Ints) -> Pairs:
        """Return the pairs with these numbers."""
        language = (uniform(self._key, numbers, 0) * len(self._languages)).astype(np.int64)
        place = (uniform(self._key, numbers, 1) * self._counts[language]).astype(np.int64)
        rows = self._rows[self._starts[language] + place]
        return Pairs(
            texts=[self._texts[row] for row in rows.tolist()],
            languages=[self._languages[number] for number in language.tolist()],
            anchors=self._anchor_of_row[rows],
        )


class MixedPairs:
    """Several sources; the source of each number is drawn by weight."""

    def __init__(
        self,
        sources: Mapping[PairSource, float] | Sequence[tuple[PairSource, float]],
        seed: int,
    ) -> None:
        items = list(sources.items() if isinstance(sources, Mapping) else sources)
        assert items, "at least one source"
        assert all(weight >= 0 for _, weight in items), "weights are not negative"
        self._sources = [source for source, _ in items]
        self._weights = [weight for _, weight in items]
        sizes = [len(source.anchors) for source in self._sources]
        self._offsets = np.cumsum([0, *sizes[:-1]], dtype=np.int64)
        self._anchors = [sentence for source in self._sources for sentence in source.anchors]
        self._key = derive_seed(seed, "mixed pairs")

    @property
    def anchors(self) -> Sequence[str]:
        """The anchors of all sources, one source after the other."""
        return self._anchors

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of all sources."""
        return tuple(sorted({code for source in self._sources for code in source.languages}))

    def draw(self, numbers: Ints) -> Pairs:
        """Return the pairs with these numbers."""
        which = choose(self._weights, uniform(self._key, numbers))
        texts, languages = [""] * len(numbers), [""] * len(numbers)
        anchors = np.empty(len(numbers), np.int64)
        for number, source in enumerate(self._sources):
            places = np.flatnonzero(which == number)
            if not len(places):
                continue
            pairs = source.draw(numbers[places])
            anchors[places] = pairs.anchors + self._offsets[number]
            for place, text, language in zip(
                places.tolist(), pairs.texts, pairs.languages, strict=True
            ):
                texts[place], languages[place] = text, language
        return Pairs(texts, languages, anchors)
