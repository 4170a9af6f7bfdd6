"""Build the lookup table of code switching by dictionary.

Text in the source language may switch into every language with a dictionary, and text in such a
language into the source language. Other pairs would need two ambiguous lookups.

Both sides of a dictionary entry must be single tokens that start a word or, in scripts without
spaces, any tokens. A single character of such a script can be a translation but is never replaced,
because most are parts of words (Chinese `面` is noodles in the dictionary and rarely in a text).
Words are compared in NFKC and lower case, as in vocabulary matching. Of several spellings of a
translation (`haus`, `Haus`, `HAUS`, or with and without the word-start mark), the most frequent one
in its language is used. A word in a less frequent spelling, such as `The` at the start of a
sentence, is replaced by a translation in the same case if there is one.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm.init.dictionaries import Dictionaries
from metaxlm.init.rules import spell_word
from metaxlm.init.vocabulary import read_vocabulary
from metaxlm.pretrain.batches.masking import starts_words
from metaxlm.pretrain.code_switching import SwitchTable, make_switch_table

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class _Words:
    """Tokens that are words in the text of one language."""

    rows_of: Mapping[str, Sequence[int]]  # the spellings of each word, the most frequent first
    texts: Mapping[int, str]  # the text of each token
    short: Set[int]  # single characters of scripts without spaces

    def choose(self, rows: Sequence[int], source: int, is_usual: bool) -> int:
        """Return a spelling: the most frequent one, or the source's case if that is unusual."""
        case = None if is_usual else _find_case(self.texts[source])
        if case is None:
            return rows[0]
        return next((row for row in rows if _find_case(self.texts[row]) == case), rows[0])


def build_switch_table(
    dictionaries: Dictionaries,
    tokenizer: PreTrainedTokenizerBase,
    counts: Mapping[str, Counts] | None = None,
) -> SwitchTable:
    """Find translations of tokens; `counts` has the token counts of each language, in order.

    Without counts, the order of the vocabulary replaces them, because common tokenizers sort their
    tokens by frequency.
    """
    source = dictionaries.source_language
    if counts is None:
        ranks = np.arange(len(tokenizer), 0, -1)
        counts = dict.fromkeys([source, *dictionaries.by_language], ranks)
    words = _list_words(tokenizer, counts)
    translations: dict[str, dict[int, list[list[int]]]] = {name: {} for name in counts}
    for language, dictionary in dictionaries.by_language.items():
        if language not in counts or source not in counts:
            continue
        pairs = [(spell_word(word), spell_word(translation)) for word, translation in dictionary]
        back = [(translation, word) for word, translation in pairs]
        ways = ((language, source, pairs), (source, language, back))
        for here, there, entries in ways:
            for piece, found in _translate(entries, words[here], words[there]).items():
                translations[here].setdefault(piece, []).append(found)
    return make_switch_table(translations, len(tokenizer))


def _translate(
    entries: Sequence[tuple[str, str]], here: _Words, there: _Words
) -> dict[int, list[int]]:
    """Return the tokens of one language with their translations in another, in order."""
    found: dict[int, dict[int, None]] = {}
    for word, translation in entries:
        targets = there.rows_of.get(translation)
        # Many dictionary words are their own translation.
        if targets is None or word not in here.rows_of or word == translation:
            continue
        for place, piece in enumerate(here.rows_of[word]):
            if piece not in here.short:
                target = there.choose(targets, piece, place == 0)
                found.setdefault(piece, {})[target] = None
    return {piece: list(group) for piece, group in found.items()}


def _list_words(
    tokenizer: PreTrainedTokenizerBase, counts: Mapping[str, Counts]
) -> dict[str, _Words]:
    vocabulary = read_vocabulary(tokenizer)
    starts = starts_words(tokenizer)
    forms = {
        row: form
        for row, form in enumerate(vocabulary.forms)
        if form is not None and starts[row] and any(map(str.isalpha, form[0]))
    }
    spelled = {row: spell_word(text) for row, (text, _) in forms.items()}
    # Word starts without the mark are in a script without spaces.
    unspaced = {text for text, is_marked in forms.values() if not is_marked}
    short = {row for row, (text, _) in forms.items() if len(text) == 1 and text in unspaced}
    texts = {row: text for row, (text, _) in forms.items()}
    words = {}
    for language, count in counts.items():
        rows_of: dict[str, list[int]] = {}
        # Sorting is stable: of equally frequent spellings, the lowest row is first.
        for row in sorted((row for row in spelled if count[row]), key=lambda row: -count[row]):
            rows_of.setdefault(spelled[row], []).append(row)
        words[language] = _Words(rows_of, texts, short)
    return words


def _find_case(text: str) -> str | None:
    """Return `lower`, `upper` or `capitalized`; None for letters without case."""
    if text.islower():
        return "lower"
    if text.isupper():
        return "upper" if len(text) > 1 else "capitalized"
    return "capitalized" if text[:1].isupper() else None
