"""Dictionary-based code switching: replace some words of the training text with translations.

A share of the words that have a translation are replaced before masking. This is not in the paper:
it extends +Dict, with the same dictionaries and the same number of steps. A word and its
translation are one token each, so lengths do not change. Random numbers are functions of (key, row
of the step, column). Their bits decide whether a word is switched, into which language (uniformly
among those with a translation), and to which translation (the n-th has weight 1/n).

Shapes: B rows of a micro-batch, L columns, N words that can switch, K that do; G languages of text,
V tokens of the vocabulary; S words with translations.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm.pretrain.batches.masking import starts_words
from metaxlm.vocab.tokens import detect_kind, read_tokens, surface_form

Ints = NDArray[np.int64]

_FATE_BITS, _LANGUAGE_BITS, _RANK_BITS = 32, 19, 12  # of the random number, for each decision
_AT_ONCE = 4  # numbers that Philox returns per counter value
_APOSTROPHES = frozenset("'’ʼ`´＇")


@dataclass(frozen=True, eq=False)
class SwitchTable:
    """Translations of tokens, by the language of the text."""

    languages: tuple[str, ...]  # of the text, in the order of the batches
    words_GV: NDArray[np.int32]  # word number of a token in text of a language, or -1
    group_offsets_S: Ints  # word s has the groups [s] to [s + 1], one for each target language
    offsets: Ints  # group g has the translations [g] to [g + 1], in dictionary order
    pieces: NDArray[np.int32]  # the translations, as token ids

    def count_pieces(self) -> dict[str, int]:
        """Return the number of tokens with a translation in text of each language."""
        counts = (self.words_GV >= 0).sum(axis=1).tolist()
        return dict(zip(self.languages, counts, strict=True))

    def find(self, language: str, piece: int) -> list[list[int]]:
        """Return the translations of a token, grouped by target language."""
        word = int(self.words_GV[self.languages.index(language), piece])
        if word < 0:
            return []
        groups = range(self.group_offsets_S[word], self.group_offsets_S[word + 1])
        return [self.pieces[self.offsets[g] : self.offsets[g + 1]].tolist() for g in groups]


def make_switch_table(
    translations: Mapping[str, Mapping[int, Sequence[Sequence[int]]]], vocab_size: int
) -> SwitchTable:
    """Make a table of translations by language of the text, token, and target language."""
    words_GV = np.full((len(translations), vocab_size), -1, np.int32)
    groups: list[Sequence[int]] = []
    group_offsets = [0]
    for index, by_piece in enumerate(translations.values()):
        for piece, by_language in by_piece.items():
            assert by_language and all(by_language), "words without translations must be left out"
            words_GV[index, piece] = len(group_offsets) - 1
            groups += by_language
            group_offsets.append(len(groups))
    return SwitchTable(
        languages=tuple(translations),
        words_GV=words_GV,
        group_offsets_S=np.array(group_offsets, np.int64),
        offsets=np.cumsum([0, *map(len, groups)], dtype=np.int64),
        pieces=np.array([piece for group in groups for piece in group], np.int32),
    )


class Switching:
    """Replaces words of rows with translations; thread-safe."""

    def __init__(
        self, table: SwitchTable, tokenizer: PreTrainedTokenizerBase, probability: float
    ) -> None:
        self.languages = table.languages
        self._table = table
        self._vocab_size = table.words_GV.shape[1]
        # One byte per entry: every token is looked up here, and few in the larger tables.
        self._switches_GV = (table.words_GV >= 0).reshape(-1)
        self._ends_V = ends_words(tokenizer)
        self._threshold = round(probability * (1 << _FATE_BITS))
        self._ranks = _spread_ranks(int(np.diff(table.offsets).max(initial=1)))

    def find_words(self, ids_BL: NDArray[np.int32], languages_B: Ints) -> Ints:
        """Return the flat positions of the words that can switch."""
        at_BL = ids_BL + (languages_B * self._vocab_size)[:, None]
        switches_BL = self._switches_GV.take(at_BL)
        switches_BL[:, :-1] &= self._ends_V.take(ids_BL[:, 1:])
        # A token without a next token may not be a whole word; a row ends with `</s>` or padding.
        switches_BL[:, -1] = False
        return np.flatnonzero(switches_BL)

    def switch(
        self, ids_BL: NDArray[np.int32], languages_B: Ints, first_row: int, key: int
    ) -> None:
        """Switch words in place; `first_row` is the row number within the step."""
        assert ids_BL.flags.c_contiguous, "the flat view must share memory"
        place_N = self.find_words(ids_BL, languages_B)
        random_N = _draw(key, first_row, ids_BL.shape).take(place_N)
        chosen_N = random_N >> (_LANGUAGE_BITS + _RANK_BITS) < self._threshold
        place_K = place_N[chosen_N]
        flat = ids_BL.reshape(-1)
        language_K = languages_B[place_K // ids_BL.shape[1]]
        word_K = self._table.words_GV[language_K, flat[place_K]]
        flat[place_K] = self._translate(word_K, random_N[chosen_N])

    def list_translations(self, language: str) -> NDArray[np.int32]:
        """Return the tokens that words in text of a language may become."""
        table = self._table
        words_V = table.words_GV[table.languages.index(language)]
        words_N = words_V[words_V >= 0]
        if not len(words_N):
            return table.pieces[:0]
        # The words of a language are numbered one after another.
        groups = table.group_offsets_S[[words_N.min(), words_N.max() + 1]]
        first, last = table.offsets[groups]
        return table.pieces[first:last]

    def _translate(self, word_K: NDArray[np.int32], random_K: Ints) -> NDArray[np.int32]:
        """Draw a translation for each word: first the language, then the rank."""
        table = self._table
        first_K = table.group_offsets_S[word_K]
        num_groups_K = table.group_offsets_S[word_K + 1] - first_K
        language_K = random_K >> _RANK_BITS & ((1 << _LANGUAGE_BITS) - 1)
        group_K = first_K + (language_K * num_groups_K >> _LANGUAGE_BITS)
        begin_K = table.offsets[group_K]
        size_K = table.offsets[group_K + 1] - begin_K
        rank_K = self._ranks[size_K, random_K & ((1 << _RANK_BITS) - 1)]
        translated: NDArray[np.int32] = table.pieces[begin_K + rank_K]
        return translated


def _draw(key: int, first_row: int, shape: tuple[int, ...]) -> Ints:
    """Return a random number of 63 bits for every position."""
    num_rows, length = shape
    counts = -(-length // _AT_ONCE)
    # Counter-based: every row of the step has its own counter values.
    philox = np.random.Philox(key=key, counter=first_row * counts)
    numbers = philox.random_raw(num_rows * counts * _AT_ONCE) >> np.uint64(1)
    random_BL: Ints = numbers.view(np.int64).reshape(num_rows, -1)[:, :length]
    return random_BL


def ends_words(tokenizer: PreTrainedTokenizerBase) -> NDArray[np.bool_]:
    """Return for every token whether a word before it is complete (`don` before `'t` is not)."""
    kind = detect_kind(tokenizer)
    ends = starts_words(tokenizer)
    for row, token in read_tokens(tokenizer, kind).items():
        form = surface_form(token, kind)
        if form is not None and form[0]:
            ends[row] |= all(map(_is_punctuation, form[0]))
    return ends


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS" and char not in _APOSTROPHES


def _spread_ranks(most: int) -> NDArray[np.uint8]:
    """Return a table whose row c distributes the ranks below c in proportion to 1, 1/2, 1/3..."""
    middles = (np.arange(1 << _RANK_BITS) + 0.5) / (1 << _RANK_BITS)
    ranks = np.zeros((most + 1, len(middles)), np.min_scalar_type(most))
    for count in range(1, most + 1):
        weights = 1 / np.arange(1, count + 1)
        ranks[count] = np.searchsorted(np.cumsum(weights)[:-1] / weights.sum(), middles)
    return ranks
