"""Rewrite English sentences word by word with dictionaries: training pairs without parallel text.

All sentences are split once into numbered words and separators. A batch is then rewritten with
arrays: each word, or the longest phrase that the dictionary has, draws one of its translations;
words of some sentences move by a few places; and the strings are joined at the end. Punctuation
stays in its place.

Shapes: N pairs; T words of a batch; U units, which are types of words and then phrases; G
languages; S sentences.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries
from metaxlm.randomness import derive_seed
from metaxlm.sentences.english import (
    LOWER,
    UPPER,
    SplitSentences,
    list_bases,
    list_ranges,
)
from metaxlm.sentences.pairs import Floats, Ints, Pairs, choose, uniform
from metaxlm.sentences.spelling import (
    capitalize,
    contract,
    contracts,
    convert_separator,
    raise_case,
)
from metaxlm.sentences.translations import Choices, Lexicon, is_unspaced, normalize_english

MIN_COVERAGE = 0.1
"""Smallest share of the running words that dictionaries must translate."""
_COVERAGE_SENTENCES = 20_000
_MOST_PHRASE_WORDS = 4
# Counters of the random numbers of a pair; those of its words follow.
_ANCHOR, _LANGUAGE, _UNCHANGED, _SHUFFLED, _FIRST_WORD = range(5)
_DRAWS_PER_WORD = 3

Objects = NDArray[np.object_]


@dataclass(frozen=True)
class Rewriting:
    """How sentences are rewritten."""

    replaced: float = 0.9  # share of the words with a translation that are replaced
    unchanged: float = 0.15  # share of the sentences that stay English
    shuffled: float = 0.5  # share of the sentences with local noise in the word order
    reach: int = 3  # places that a word of these moves at most
    phrases: bool = True  # whether phrases of the dictionary are replaced as one


class _Table:
    """Translations of units by language."""

    def __init__(self, choices_GU: Iterator[Sequence[Choices]]) -> None:
        forms: list[str] = []
        weights, sizes = array("d"), array("i")
        groups = []
        for choices_U in choices_GU:
            has_choices = np.array([bool(choices) for choices in choices_U])
            groups.append(np.where(has_choices, np.cumsum(has_choices) - 1 + len(sizes), -1))
            for choices in filter(None, choices_U):
                sizes.append(len(choices))
                for form, weight in choices:
                    forms.append(form)
                    weights.append(weight)
        self.groups_GU = np.stack(groups).astype(np.int32)  # group of translations, or -1
        self.forms: Objects = np.array(forms, object)
        self.is_dropped = np.array([not form for form in forms], np.bool_)
        self._starts = np.cumsum(sizes, dtype=np.int64) - np.asarray(sizes, np.int64)
        group = np.repeat(np.arange(len(sizes)), sizes)
        totals = np.bincount(group, weights, minlength=len(sizes))
        sums = np.cumsum(np.asarray(weights) / totals[group])
        # Shares below a translation's, within its group; above the last one is nothing.
        self._steps = sums - np.arange(len(sizes))[group]
        self._steps[self._starts[1:] - 1] = self._steps[-1:] = 1.0

    def draw(self, groups: NDArray[np.int32], random: Floats) -> Ints:
        """Return a translation of each group."""
        drawn = self._starts[groups]
        # Translations are sorted by weight, so few steps are needed.
        left = np.flatnonzero(random >= self._steps[drawn])
        while len(left):
            drawn[left] += 1
            left = left[random[left] >= self._steps[drawn[left]]]
        return drawn


class _Phrases:
    """A trie of phrases over numbered words, as sorted arrays."""

    def __init__(self, phrases: Sequence[Sequence[int]], num_types: int) -> None:
        self._num_types = num_types
        states: dict[tuple[int, ...], int] = {}
        edges: dict[int, int] = {}
        self._first = np.full(num_types, -1, np.int64)
        final: dict[int, int] = {}
        for number, words in enumerate(phrases):
            prefix: tuple[int, ...] = ()
            for word in words:
                before = states.get(prefix, -1)
                prefix = (*prefix, word)
                state = states.setdefault(prefix, len(states))
                if before < 0:
                    self._first[word] = state
                else:
                    edges[before * num_types + word] = state
            final[states[prefix]] = number
        order = sorted(edges)
        self._codes = np.array(order, np.int64)
        self._next = np.array([edges[code] for code in order], np.int64)
        self._final = np.full(len(states) + 1, -1, np.int64)
        self._final[list(final)] = list(final.values())

    def find(self, words_T: NDArray[np.int32], left_T: Ints) -> tuple[Ints, Ints, Ints]:
        """Return start, number of words and number of all phrases; `left_T` words may follow."""
        place = np.flatnonzero((self._first[words_T] >= 0) & (left_T > 0))
        state = self._first[words_T[place]]
        found = []
        for length in range(2, _MOST_PHRASE_WORDS + 1):
            if not len(place) or not len(self._codes):
                break
            code = state * self._num_types + words_T[place + length - 1]
            at = np.minimum(np.searchsorted(self._codes, code), len(self._codes) - 1)
            matches = self._codes[at] == code
            place, state = place[matches], self._next[at[matches]]
            number = self._final[state]
            ends = number >= 0
            found.append((place[ends], np.full(ends.sum(), length), number[ends]))
            goes_on = left_T[place] >= length
            place, state = place[goes_on], state[goes_on]
        if not found:
            empty = np.empty(0, np.int64)
            return empty, empty, empty
        starts, lengths, numbers = map(np.concatenate, zip(*found, strict=True))
        return starts, lengths, numbers


def _make_tables(
    split: SplitSentences,
    dictionaries: Dictionaries,
    word_counts: Mapping[str, Mapping[str, int]],
    has_phrases: bool,
) -> tuple[_Table, _Phrases]:
    """Look up the words and phrases of the sentences in all languages."""
    english_counts = split.count_types()
    numbers = {word: number for number, word in enumerate(split.types)}
    bases = [list(list_bases(word)) for word in split.types]
    known = numbers.keys() | {base for some in bases for base in some}

    @cache
    def normalize(english: str) -> str | None:
        words = normalize_english(english).split()
        if len(words) == 1:
            return words[0] if words[0] in known else None
        is_phrase = has_phrases and len(words) <= _MOST_PHRASE_WORDS and numbers.keys() >= {*words}
        return " ".join(words) if is_phrase else None

    phrases: dict[tuple[int, ...], int] = {}
    found: list[tuple[list[Choices], dict[int, Choices]]] = []
    for language, dictionary in dictionaries.by_language.items():
        counts = word_counts.get(language)
        lexicon = Lexicon(dictionary, normalize, counts, english_counts, split.names)
        of_words = list(map(lexicon.find_first, split.types, bases))
        of_phrases = {}
        for english in lexicon:
            if " " in english and normalize(english):
                key = tuple(numbers[word] for word in english.split())
                of_phrases[phrases.setdefault(key, len(phrases))] = lexicon.find(english)
        found.append((of_words, of_phrases))
    num_phrases = len(phrases)
    table = _Table(
        [*of_words, *(of_phrases.get(number, []) for number in range(num_phrases))]
        for of_words, of_phrases in found
    )
    return table, _Phrases(list(phrases), len(split.types))


class DictionaryPairs:
    """English sentences, rewritten into a random language."""

    def __init__(
        self,
        sentences: Sequence[str],
        dictionaries: Dictionaries,
        seed: int,
        settings: Rewriting | None = None,
        word_counts: Mapping[str, Mapping[str, int]] | None = None,
        language_weights: Mapping[str, float] | None = None,
    ) -> None:
        assert len(sentences) > 0
        self._sentences = sentences
        self._settings = settings or Rewriting()
        self._source = dictionaries.source_language
        self._targets = tuple(dictionaries.by_language)
        weights = language_weights or dict.fromkeys(self._targets, 1.0)
        self._weights = [weights.get(code, 0.0) for code in self._targets]
        self._key = derive_seed(seed, "dictionary pairs")
        self._split = split = SplitSentences(sentences)
        has_phrases = self._settings.phrases
        self._table, self._phrases = _make_tables(
            split, dictionaries, word_counts or {}, has_phrases
        )
        shown = ["I" if word == "i" else word for word in split.types]
        self._types: Objects = np.array(shown, object)
        self._is_space = np.array([text == " " for text in split.separators])
        self._is_joint = np.array([text in (" ", "-") for text in split.separators])
        self._separators: Objects = np.array(
            [
                [convert_separator(text, code) for text in split.separators]
                for code in self._targets
            ],
            object,
        )
        self._is_unspaced = np.array([is_unspaced(code) for code in self._targets])

    @property
    def anchors(self) -> Sequence[str]:
        """The English sentences."""
        return self._sentences

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the texts."""
        drawn = [code for code, w in zip(self._targets, self._weights, strict=True) if w > 0]
        kept = [self._source] if self._settings.unchanged > 0 else []
        return tuple(sorted([*drawn, *kept]))

    def draw(self, numbers: Ints) -> Pairs:
        """Return the pairs with these numbers."""
        anchors = (uniform(self._key, numbers, _ANCHOR) * len(self._sentences)).astype(np.int64)
        languages = choose(self._weights, uniform(self._key, numbers, _LANGUAGE))
        is_kept = uniform(self._key, numbers, _UNCHANGED) < self._settings.unchanged
        texts = [self._sentences[anchor] for anchor in anchors.tolist()]
        rows = np.flatnonzero(~is_kept)
        # Language by language, so that memory is read near where it was read before.
        rows = rows[np.argsort(languages[rows], kind="stable")]
        rewritten = self.rewrite(anchors[rows], languages[rows], numbers[rows])
        for row, text in zip(rows.tolist(), rewritten, strict=True):
            texts[row] = text
        names = [
            self._source if kept else self._targets[language]
            for kept, language in zip(is_kept.tolist(), languages.tolist(), strict=True)
        ]
        return Pairs(texts, names, anchors)

    def rewrite(self, anchors: Ints, languages: Ints, numbers: Ints) -> list[str]:
        """Rewrite sentences into languages, each given by its index."""
        split, settings = self._split, self._settings
        starts = split.offsets_S[anchors]
        counts = split.offsets_S[anchors + 1] - starts
        at = list_ranges(starts, counts)
        row_T = np.repeat(np.arange(len(anchors)), counts)
        slot_T = at - starts[row_T]
        counter_T = _FIRST_WORD + _DRAWS_PER_WORD * slot_T
        number_T, language_T = numbers[row_T], languages[row_T]
        words_T = split.words_T[at]
        separators_T = split.separators_T[at]
        groups_T = self._table.groups_GU[language_T, words_T]
        random_T = uniform(self._key, number_T, counter_T)
        groups_T[random_T >= settings.replaced] = -1
        if settings.phrases:
            kept = self._join_phrases(words_T, groups_T, separators_T, language_T, random_T, counts)
            row_T, number_T, language_T = row_T[kept], number_T[kept], language_T[kept]
            words_T, separators_T = words_T[kept], separators_T[kept]
            groups_T, counter_T, at = groups_T[kept], counter_T[kept], at[kept]
        is_replaced = groups_T >= 0
        places = np.flatnonzero(is_replaced)
        random = uniform(self._key, number_T[places], counter_T[places] + 1)
        drawn = self._table.draw(groups_T[places], random)
        forms_T = self._types[words_T]
        forms_T[places] = self._table.forms[drawn]
        is_dropped = np.zeros(len(forms_T), np.bool_)
        is_dropped[places] = self._table.is_dropped[drawn]
        self._raise_cases(forms_T, split.cases_T[at], language_T)
        # Words change places, separators do not.
        is_shuffled = uniform(self._key, numbers, _SHUFFLED) < settings.shuffled
        noise = uniform(self._key, number_T, counter_T + 2) * (settings.reach * is_shuffled[row_T])
        first = np.searchsorted(row_T, np.arange(len(anchors) + 1))
        rank = np.arange(len(row_T)) - first[row_T]
        longest = int(counts.max(initial=0)) + settings.reach + 1
        order = np.argsort(row_T * longest + rank + noise, kind="stable")
        joints_T = self._join(
            separators_T, is_replaced[order], is_dropped[order], row_T, language_T
        )
        parts = np.empty(2 * len(forms_T), object)
        parts[0::2], parts[1::2] = forms_T[order], joints_T
        return self._write(parts.tolist(), (2 * first).tolist(), anchors, languages)

    def _join_phrases(
        self,
        words_T: NDArray[np.int32],
        groups_T: NDArray[np.int32],
        separators_T: NDArray[np.int32],
        language_T: Ints,
        random_T: Floats,
        counts: Ints,
    ) -> NDArray[np.bool_]:
        """Give phrases to their first words, and return which words are left."""
        num_words = len(words_T)
        # Words that may follow in one phrase: up to the next punctuation.
        breaks = ~self._is_joint[separators_T]
        breaks[np.cumsum(counts)[counts > 0] - 1] = True
        next_break = np.where(breaks, np.arange(num_words), num_words)
        next_break = np.minimum.accumulate(next_break[::-1])[::-1]
        left_T = next_break - np.arange(num_words)
        starts, lengths, phrases = self._phrases.find(words_T, left_T)
        groups = self._table.groups_GU[language_T[starts], len(self._types) + phrases]
        known = (groups >= 0) & (random_T[starts] < self._settings.replaced)
        starts, lengths, groups = starts[known], lengths[known], groups[known]
        order = np.lexsort((-lengths, starts))
        kept = np.ones(num_words, np.bool_)
        free = 0
        for start, length, group in zip(
            starts[order].tolist(), lengths[order].tolist(), groups[order].tolist(), strict=True
        ):
            if start >= free:
                free = start + length
                kept[start + 1 : free] = False
                groups_T[start] = group
                separators_T[start] = separators_T[free - 1]
        return kept

    def _raise_cases(self, forms_T: Objects, cases_T: NDArray[np.int8], language_T: Ints) -> None:
        for place in np.flatnonzero(cases_T != LOWER).tolist():
            language = self._targets[language_T[place]]
            change = raise_case if cases_T[place] == UPPER else capitalize
            forms_T[place] = change(forms_T[place], language)

    def _join(
        self,
        separators_T: NDArray[np.int32],
        is_replaced: NDArray[np.bool_],
        is_dropped: NDArray[np.bool_],
        row_T: Ints,
        language_T: Ints,
    ) -> Objects:
        """Return the text after each word."""
        joints_T: Objects = self._separators[language_T, separators_T]
        is_space = self._is_space[separators_T]
        # Two words left in English keep their space in languages without spaces.
        follows = np.append(is_replaced[1:], False)
        joints_T[is_space & self._is_unspaced[language_T] & (is_replaced | follows)] = ""
        joints_T[is_dropped & is_space] = ""
        # A dropped word before punctuation takes the space before it along.
        before = np.flatnonzero(is_dropped & ~is_space) - 1
        before = before[before >= 0]
        joints_T[before[is_space[before] & (row_T[before] == row_T[before + 1])]] = ""
        return joints_T

    def _write(
        self, parts: list[str], bounds: list[int], anchors: Ints, languages: Ints
    ) -> list[str]:
        texts = []
        split = self._split
        has_capital = split.starts_with_capital_S[anchors].tolist()
        for row, (anchor, number) in enumerate(
            zip(anchors.tolist(), languages.tolist(), strict=True)
        ):
            language = self._targets[number]
            text = split.leads[anchor] + "".join(parts[bounds[row] : bounds[row + 1]])
            if contracts(language):
                text = contract(text, language)
            texts.append(capitalize(text, language) if has_capital[row] else text)
        return texts


def check_coverage(sentences: Sequence[str], dictionaries: Dictionaries) -> dict[str, float]:
    """Return the share of running words that the dictionary of each language translates.

    Less than a tenth in some language is an error: its texts would mostly be English.
    """
    counts = SplitSentences(sentences[:_COVERAGE_SENTENCES]).count_types()
    total = sum(counts.values())
    if not total:
        raise MetaXLMError("the English text has no words; give one sentence per line")
    shares = {}
    for language, dictionary in dictionaries.by_language.items():
        known = {english.lower() for _, english in dictionary}
        found = (
            count
            for word, count in counts.items()
            if word in known or any(base in known for base in list_bases(word))
        )
        shares[language] = sum(found) / total
    worst = min(shares, key=lambda language: shares[language])
    if shares[worst] < MIN_COVERAGE:
        raise MetaXLMError(
            f"{dictionaries.by_language[worst].files[0].origin}: translates {shares[worst]:.1%} of "
            f"the words of the English text into {worst}, less than {MIN_COVERAGE:.0%}; give a "
            "larger dictionary, leave the language out, or check the order of its columns"
        )
    return shares
