"""Rows made of several source rows, in the order in which the ways are tried.

Comes in: the text matches of section 3.2 of the paper, the recipe's choices, dictionaries, counts.
Goes out: origins for rows that a text match does not fill, or should not fill alone: through
dictionaries (`translation`), through the words they are a part of (`parts`), through the pieces in
them (`segments`), and last the source's own tokens for their text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metaxlm.errors import MetaXLMError
from metaxlm.init.canonical import Vocabulary, cut_all
from metaxlm.init.dictionaries import Dictionaries
from metaxlm.init.matching import TEXT_RULES, UNMATCHED, Finder, Matches
from metaxlm.init.parts import lend_to_parts
from metaxlm.init.segments import Mix, join_segments
from metaxlm.init.shares import (
    OWN_SHARE,
    LanguageShares,
    find_doubtful,
    measure_shares,
)
from metaxlm.init.translation import (
    Composed,
    Translator,
    guess_frequencies,
    scale,
    spell_word,
)
from metaxlm.recipe import MatchingRecipe


@dataclass(frozen=True)
class Counts:
    """How often tokens occur in text; what is not known is None."""

    source: NDArray[np.int64] | None = None
    """Each source row in text of the source language."""
    target: Mapping[str, NDArray[np.int64]] | None = None
    """Each target row in the text of each language."""


def compose_rows(
    target: Vocabulary,
    source: Vocabulary,
    matches: Matches,
    matching: MatchingRecipe,
    dictionaries: Dictionaries | None,
    counts: Counts,
) -> dict[int, Composed]:
    """Find origins beyond the text matches; a row that has one here keeps no text match."""
    composed: dict[int, Composed] = {}
    if dictionaries is not None:
        composed = _translate_rows(target, source, matches, matching, dictionaries, counts)
    if matching.segments:
        single = np.flatnonzero(matches.sources >= 0).tolist()
        mixes: dict[int, Mix] = {row: ((int(matches.sources[row]),), (1.0,)) for row in single}
        mixes |= {row: (one.sources, one.weights) for row, one in composed.items()}
        composed |= join_segments(target, _list_left(target, matches, composed), mixes)
    if matching.filler == "subwords":
        composed |= cut_subwords(target, _list_left(target, matches, composed), source)
    return composed


def _translate_rows(
    target: Vocabulary,
    source: Vocabulary,
    matches: Matches,
    matching: MatchingRecipe,
    dictionaries: Dictionaries,
    counts: Counts,
) -> dict[int, Composed]:
    frequencies = guess_frequencies(len(source))
    if counts.source is not None:
        frequencies = counts.source.astype(np.float64) + 1
    translator = Translator(
        dictionaries,
        source,
        Finder(source),
        [rule for rule in TEXT_RULES if rule in matching.rules],
        matching.one_to_many,
        matching.multi_token,
        frequencies,
    )
    shares = None
    if matching.precedence == "frequency_weighted":
        shares = measure_shares(counts.target, dictionaries.source_language)
    words = _list_words(target, matches, matching, shares)
    found = translator.find(words.values())
    composed = {}
    for row, word in words.items():
        if word in found:
            by_language = None
            if shares is not None:
                by_language = {code: shares.find(code, row) for code in found[word].groups}
            own = None
            if shares is not None and matches.sources[row] >= 0:
                own = (word, int(matches.sources[row]), shares.find_own(row))
            composed[row] = translator.combine(found[word], by_language, own)
    if matching.split_words != "none":
        rows = set(_list_left(target, matches, composed))
        if shares is not None:
            matched = np.flatnonzero(matches.sources >= 0).tolist()
            rows |= find_doubtful(target, matched, composed, shares)
        composed |= lend_to_parts(target, rows, translator, matching.split_words, shares)
    return composed


def _list_words(
    target: Vocabulary,
    matches: Matches,
    matching: MatchingRecipe,
    shares: LanguageShares | None,
) -> dict[int, str]:
    """Return the words to look up, by row."""
    words = {}
    for row, form in enumerate(target.forms):
        if form is None or (matching.pieces == "word_start" and not form[1]):
            continue
        if matches.rules[row] != UNMATCHED:
            is_own = shares is not None and shares.find_own(row) >= OWN_SHARE
            if matching.precedence == "text" or is_own:
                continue
        if word := spell_word(form[0]):
            words[row] = word
    return words


def _list_left(target: Vocabulary, matches: Matches, composed: Iterable[int]) -> list[int]:
    """Return the rows with text that have no origin yet."""
    rows = np.flatnonzero(matches.rules == UNMATCHED).tolist()
    done = set(composed)
    return [row for row in rows if row not in done and target.forms[row] is not None]


def cut_subwords(
    target: Vocabulary, rows: Sequence[int], source: Vocabulary
) -> dict[int, Composed]:
    """Give rows the mean of the source's own tokens for their text, where it has any."""
    if source.cut is None:
        raise MetaXLMError(
            "matching.filler: a plain list of tokens cannot cut a text into subwords; give the "
            "source tokenizer itself, or choose another filler"
        )
    filled = {}
    for starts in (True, False):
        texts = {row: form[0] for row in rows if (form := target.forms[row]) and form[1] is starts}
        texts = {row: text for row, text in texts.items() if text.strip()}
        for row, cut in zip(texts, cut_all(source, list(texts.values()), starts), strict=True):
            weights: dict[int, float] = {}
            for subword in cut:
                weights[subword] = weights.get(subword, 0.0) + 1
            if weights:
                filled[row] = scale("subwords", weights)
    return filled
