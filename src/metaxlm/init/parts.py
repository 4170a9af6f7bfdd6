"""Rows from the words they are a part of: dictionary words that the target vocabulary cuts.

Comes in: the target vocabulary, rows to fill, a translator. Goes out: for rows that are pieces of
dictionary words, the mean of the words' translations. The paper (section 3.2) does not say what
becomes of words that are several pieces; this carries +Dict to languages whose words are rarely one
piece: Korean syllables, Chinese and Japanese characters, Tamil and Greek stems.

Few and frequent words speak for a piece: of each language the first five, weighted by their place
in the dictionary (MUSE is in the order of frequency) and by how much the language uses the piece.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from metaxlm.errors import MetaXLMError
from metaxlm.init.canonical import Vocabulary, cut_all
from metaxlm.init.dictionaries import Dictionary
from metaxlm.init.shares import LanguageShares
from metaxlm.init.translation import Composed, Found, Translator, scale

_MOST_WORDS = 5
# The n-th word of a dictionary counts 1 / (n + this): the first few hundred about alike.
_RANK_SHIFT = 500


class _Word(NamedTuple):
    """A dictionary word of several pieces."""

    place: int
    rows: tuple[int, ...]
    """The pieces to fill."""
    found: Found


def lend_to_parts(
    target: Vocabulary,
    rows: Collection[int],
    translator: Translator,
    pieces: Literal["first", "all"],
    shares: LanguageShares | None = None,
) -> dict[int, Composed]:
    """Give rows the weighted mean of the translations of the words that have them as a piece."""
    if target.cut is None:
        raise MetaXLMError(
            "matching.split_words: a plain list of tokens cannot cut a dictionary word into "
            "pieces; give the target tokenizer itself, or set split_words to none"
        )
    wanted = frozenset(rows)
    sums: dict[int, dict[int, float]] = {}
    entries: dict[int, list[tuple[str, str]]] = {}
    for language, dictionary in sorted(translator.dictionaries.by_language.items()):
        num_words: Counter[int] = Counter()
        for word in _list_words(target, wanted, translator, dictionary, pieces):
            open_rows = [row for row in word.rows if num_words[row] < _MOST_WORDS]
            if not open_rows:
                continue
            num_words.update(open_rows)
            origin = translator.combine(word.found)
            for row in open_rows:
                share = 1.0 if shares is None else shares.find(language, row)
                weights = sums.setdefault(row, {})
                for source, weight in zip(origin.sources, origin.weights, strict=True):
                    amount = share * weight / (word.place + _RANK_SHIFT)
                    weights[source] = weights.get(source, 0.0) + amount
                entries.setdefault(row, []).extend(origin.entries)
    return {row: scale("dictionary_part", weights, entries[row]) for row, weights in sums.items()}


def _list_words(
    target: Vocabulary,
    wanted: frozenset[int],
    translator: Translator,
    dictionary: Dictionary,
    pieces: Literal["first", "all"],
) -> Iterator[_Word]:
    """Yield the words of one language that have wanted pieces and a translation.

    A word that is one piece has none: that piece is the word's own row, and already translated.
    """
    translations: dict[str, dict[str, None]] = {}
    for word, translation in dictionary:
        translations.setdefault(word, {})[translation] = None
    cut_into: dict[str, tuple[int, tuple[int, ...]]] = {}
    for place, (word, cut) in enumerate(
        zip(translations, cut_all(target, list(translations), True), strict=True)
    ):
        parts = dict.fromkeys(cut[:1] if pieces == "first" else cut)
        lent = tuple(row for row in parts if row in wanted)
        if lent:
            cut_into[word] = (place, lent)
    found = translator.match({w: {dictionary.language: translations[w]} for w in cut_into})
    for word, (place, rows) in cut_into.items():
        if word in found:
            yield _Word(place, rows, found[word])
