"""Dictionary switching: some words of the training text stand there in another language.

Comes in: rows of token ids, the language of each row, a table of translations, the step's key. Goes
out: the same rows, where a share of the words that have a translation are replaced by it, before
anything is masked, so that the model meets and predicts words among words of other languages. This
is not in the paper: it is an idea beyond its +Dict, with the same dictionaries and as many steps.

A word is one piece and so is its translation: lengths never change. A piece is switched only where
it is a whole word of the text, which the piece behind it tells. Random numbers are functions of
(key, row of the step, column), so that the result is one of (seed, step), however the step is cut.
Of their bits, some say whether a word is switched, some into which language (all that have a
translation are equally likely), some to which translation (the n-th counts 1/n).

Shapes: B rows of a piece, L columns, N words that can switch, K that do; G languages of text, V
pieces of the vocabulary; S words of a language that have translations.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm.pretrain.words import starts_words
from metaxlm.vocabulary.token_forms import detect_kind, find_form

Ints = NDArray[np.int64]

_FATE_BITS, _LANGUAGE_BITS, _RANK_BITS = 32, 19, 12
"""How many bits of a random number decide what; 63 in all, and one is left over."""
_AT_ONCE = 4
"""Numbers that Philox gives for each count of its counter."""
_APOSTROPHES = frozenset("'’ʼ`´＇")


@dataclass(frozen=True, eq=False)
class SwitchTable:
    """Translations of pieces, by the language of the text they stand in."""

    languages: tuple[str, ...]
    """Of the text, in the order of the batches'."""
    words_GV: NDArray[np.int32]
    """Which word a piece is in text of a language; -1 where it has no translation."""
    group_offsets_S: Ints
    """Word s has the groups from `[s]` to before `[s + 1]`, one for each language it can go to."""
    offsets: Ints
    """Group g has the translations from `[g]` to before `[g + 1]`, in the dictionary's order."""
    pieces: NDArray[np.int32]
    """The translations, as pieces."""

    def count_pieces(self) -> dict[str, int]:
        """Return how many pieces have a translation in text of each language."""
        counts = (self.words_GV >= 0).sum(axis=1).tolist()
        return dict(zip(self.languages, counts, strict=True))

    def find(self, language: str, piece: int) -> list[list[int]]:
        """Return the translations of a piece, by the language they are in."""
        word = int(self.words_GV[self.languages.index(language), piece])
        if word < 0:
            return []
        groups = range(self.group_offsets_S[word], self.group_offsets_S[word + 1])
        return [self.pieces[self.offsets[g] : self.offsets[g + 1]].tolist() for g in groups]


def make_switch_table(
    translations: Mapping[str, Mapping[int, Sequence[Sequence[int]]]], vocab_size: int
) -> SwitchTable:
    """Lay out translations, which are given by language of the text, piece, and target language."""
    words_GV = np.full((len(translations), vocab_size), -1, np.int32)
    groups: list[Sequence[int]] = []
    group_offsets = [0]
    for index, by_piece in enumerate(translations.values()):
        for piece, by_language in by_piece.items():
            assert by_language and all(by_language), "a word without translations is left out"
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
    """Switches words of rows; any thread may."""

    def __init__(
        self, table: SwitchTable, tokenizer: PreTrainedTokenizerBase, probability: float
    ) -> None:
        self.languages = table.languages
        self._table = table
        self._vocab_size = table.words_GV.shape[1]
        # A byte for each place: every token is looked up here, and few anywhere else.
        self._switches_GV = (table.words_GV >= 0).reshape(-1)
        self._ends_V = ends_words(tokenizer)
        self._threshold = round(probability * (1 << _FATE_BITS))
        self._ranks = _spread_ranks(int(np.diff(table.offsets).max(initial=1)))

    def find_words(self, ids_BL: NDArray[np.int32], languages_B: Ints) -> Ints:
        """Return the places, in all rows one behind the other, of the words that can switch."""
        at_BL = ids_BL + (languages_B * self._vocab_size)[:, None]
        switches_BL = self._switches_GV.take(at_BL)
        switches_BL[:, :-1] &= self._ends_V.take(ids_BL[:, 1:])
        # A row ends with `</s>` or padding; without a piece behind it nothing is sure to be whole.
        switches_BL[:, -1] = False
        return np.flatnonzero(switches_BL)

    def switch(
        self, ids_BL: NDArray[np.int32], languages_B: Ints, first_row: int, key: int
    ) -> None:
        """Switch words in place; the rows are those of a step from `first_row` on."""
        assert ids_BL.flags.c_contiguous, "only a view can be written through"
        place_N = self.find_words(ids_BL, languages_B)
        random_N = _draw(key, first_row, ids_BL.shape).take(place_N)
        chosen_N = random_N >> (_LANGUAGE_BITS + _RANK_BITS) < self._threshold
        place_K = place_N[chosen_N]
        flat = ids_BL.reshape(-1)
        language_K = languages_B[place_K // ids_BL.shape[1]]
        word_K = self._table.words_GV[language_K, flat[place_K]]
        flat[place_K] = self._translate(word_K, random_N[chosen_N])

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
    """Return a random number of 63 bits for every place of some rows."""
    num_rows, length = shape
    counts = -(-length // _AT_ONCE)
    # Counter-based: every row of the step has counts of its own.
    philox = np.random.Philox(key=key, counter=first_row * counts)
    numbers = philox.random_raw(num_rows * counts * _AT_ONCE) >> np.uint64(1)
    random_BL: Ints = numbers.view(np.int64).reshape(num_rows, -1)[:, :length]
    return random_BL


def ends_words(tokenizer: PreTrainedTokenizerBase) -> NDArray[np.bool_]:
    """Say for every piece whether a word that stands before it is complete.

    So it is before another word, a special token and punctuation. An apostrophe is none of it: what
    stands before one is too often a part of a word (`don't`, `l'eau`).
    """
    kind = detect_kind(tokenizer)
    ends = starts_words(tokenizer)
    for token, row in tokenizer.get_vocab().items():
        form = find_form(token, kind)
        if form is not None and form[0]:
            ends[row] |= all(map(_is_punctuation, form[0]))
    return ends


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS" and char not in _APOSTROPHES


def _spread_ranks(most: int) -> NDArray[np.uint8]:
    """Return for a number of translations and some random bits which one is taken.

    Row c spreads the ranks below c in proportion to 1, 1/2, 1/3 and so on.
    """
    middles = (np.arange(1 << _RANK_BITS) + 0.5) / (1 << _RANK_BITS)
    ranks = np.zeros((most + 1, len(middles)), np.min_scalar_type(most))
    for count in range(1, most + 1):
        weights = 1 / np.arange(1, count + 1)
        ranks[count] = np.searchsorted(np.cumsum(weights)[:-1] / weights.sum(), middles)
    return ranks
