"""Rows through a dictionary: the +Dict extension of vocabulary matching.

Comes in: target rows that no text rule matched, dictionaries, the source vocabulary. Goes out: for
the rows whose word has a translation the source knows, the source rows and their weights. Section
3.2 of the paper: "first searching the word translation in the dictionaries, and then applying the
mapping strategy". What the paper leaves open is decided by the recipe: which pieces count as words,
how several translations become one row, and whether a translation of several tokens is used.

A piece is looked up as the word it spells (normalized, lower case, as in MUSE). A translation is
matched as a word start. Translations of one token go before those of several: a language's
multi-token translations matter only for pieces that have no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metaxlm.errors import MetaXLMError
from metaxlm.initialization.canonical import Vocabulary
from metaxlm.initialization.dictionaries import Dictionaries, WordPairs
from metaxlm.initialization.matching import TRANSLATION_RULES, Finder, normalize_text

OneToMany = Literal["first", "mean", "frequency", "mean_per_language"]

ByLanguage = dict[str, dict[str, None]]
"""Translations of one word by language, in the dictionary's order, each once."""

# A dictionary is the wrong way round if its words look more like the source language than their
# translations. Of MUSE's 44, RoBERTa knows at least 93 % of the English words as one token and at
# most 60 % of the others (Vietnamese).
_REVERSED_MARGIN = 0.1
_JUDGED_WORDS = 2_000
_FEWEST_JUDGED = 20


class Translated(NamedTuple):
    """The origin of a word's rows: which rule, which source rows, how much of each."""

    rule: str
    sources: tuple[int, ...]
    weights: tuple[float, ...]
    entries: tuple[tuple[str, str], ...]
    """The dictionary entries it is made of: language and translation."""


@dataclass(frozen=True)
class Translator:
    """Finds the source rows of words by their translations."""

    dictionaries: Dictionaries
    source: Vocabulary
    finder: Finder
    rules: Sequence[str]
    """The text rules that are on."""
    one_to_many: OneToMany
    multi_token: bool
    frequencies: NDArray[np.float64]
    """How often the source language uses each source row, in any unit."""

    def __post_init__(self) -> None:
        if self.multi_token and self.source.cut is None:
            raise MetaXLMError(
                "matching.multi_token: a plain list of tokens cannot cut a translation into "
                "tokens; give the source tokenizer itself, or set multi_token to false"
            )
        for dictionary in self.dictionaries.by_language.values():
            for pairs in dictionary.files:
                _check_direction(pairs, self.finder, self.rules)

    def translate(self, words: Iterable[str]) -> dict[str, Translated]:
        """Find source rows for words; words without any are left out."""
        found = find_translations(words, self.dictionaries)
        origins = self._combine_all("dictionary", found, self._match_single(found).get)
        if self.multi_token:
            left = {word: entries for word, entries in found.items() if word not in origins}
            pieces = self._cut_translations(left)
            origins |= self._combine_all("dictionary_tokens", left, pieces.get)
        return origins

    def _match_single(self, found: Mapping[str, ByLanguage]) -> dict[str, tuple[int, ...]]:
        """Match each translation as one token that starts a word."""
        rules = [rule for rule in self.rules if rule in TRANSLATION_RULES]
        matches = ((text, self.finder.find((text, True), rules)) for text in _list_distinct(found))
        return {text: (match[1],) for text, match in matches if match is not None}

    def _cut_translations(self, found: Mapping[str, ByLanguage]) -> dict[str, tuple[int, ...]]:
        """Cut each translation as the source tokenizer does."""
        texts = _list_distinct(found)
        assert self.source.cut is not None
        cuts = self.source.cut(texts, True) if texts else []
        return {text: tuple(rows) for text, rows in zip(texts, cuts, strict=True) if rows}

    def _combine_all(
        self,
        rule: str,
        found: Mapping[str, ByLanguage],
        find_rows: Callable[[str], tuple[int, ...] | None],
    ) -> dict[str, Translated]:
        origins = {}
        for word, by_language in found.items():
            groups: dict[str, dict[str, tuple[int, ...]]] = {}
            for language, translations in by_language.items():
                matched = {text: rows for text in translations if (rows := find_rows(text))}
                if matched:
                    groups[language] = matched
            if groups:
                origins[word] = self._combine(rule, groups)
        return origins

    def _combine(self, rule: str, groups: dict[str, dict[str, tuple[int, ...]]]) -> Translated:
        """Weigh the rows of several translations; a translation's own tokens share its weight."""
        if self.one_to_many == "first":
            # Of the alphabetically first language, so that the order of files decides nothing.
            language, translations = next(iter(groups.items()))
            groups = {language: dict([next(iter(translations.items()))])}
        entries = [(language, text) for language, group in groups.items() for text in group]
        rows = [rows for group in groups.values() for rows in group.values()]
        weights: dict[int, float] = {}
        for share, translated in zip(self._share(groups, rows), rows, strict=True):
            for row in translated:
                weights[row] = weights.get(row, 0.0) + share / len(translated)
        return Translated(rule, tuple(weights), tuple(weights.values()), tuple(entries))

    def _share(
        self, groups: Mapping[str, Mapping[str, object]], rows: Sequence[tuple[int, ...]]
    ) -> list[float]:
        """Return how much each translation counts; the shares sum to one."""
        match self.one_to_many:
            case "mean_per_language":
                return [1 / (len(groups) * len(group)) for group in groups.values() for _ in group]
            case "frequency":
                # A phrase is as frequent as its rarest token.
                counts = [min(float(self.frequencies[row]) for row in many) for many in rows]
                return [count / sum(counts) for count in counts]
            case _:
                return [1 / len(rows)] * len(rows)


def find_translations(words: Iterable[str], dictionaries: Dictionaries) -> dict[str, ByLanguage]:
    """Look words up in all dictionaries; languages come in alphabetical order."""
    wanted = frozenset(words)
    found: dict[str, ByLanguage] = {}
    for language in sorted(dictionaries.by_language):
        for word, translation in dictionaries.by_language[language]:
            if word in wanted:
                found.setdefault(word, {}).setdefault(language, {})[translation] = None
    return found


def spell_word(text: str) -> str:
    """Return the word under which a piece stands in a dictionary."""
    return normalize_text(text).lower()


def guess_frequencies(num_rows: int) -> NDArray[np.float64]:
    """Return Zipf's law over the rows.

    The vocabularies of the field are ordered by frequency: byte-level BPE by its merges, BERT's
    WordPiece and SentencePiece by their counts.
    """
    return 1.0 / np.arange(1, num_rows + 1)


def _list_distinct(found: Mapping[str, ByLanguage]) -> list[str]:
    groups = (group for by_language in found.values() for group in by_language.values())
    return list(dict.fromkeys(translation for group in groups for translation in group))


def _check_direction(pairs: WordPairs, finder: Finder, rules: Sequence[str]) -> None:
    """Refuse a dictionary whose columns stand the wrong way round, judged by its first words."""
    rules = [rule for rule in rules if rule in TRANSLATION_RULES]

    def judge(column: str) -> tuple[float, int]:
        texts = list(dict.fromkeys(column.split("\n", _JUDGED_WORDS)[:_JUDGED_WORDS]))
        known = sum(finder.find((text, True), rules) is not None for text in texts)
        return known / len(texts), len(texts)

    words, num_words = judge(pairs.words)
    translations, num_translations = judge(pairs.translations)
    if min(num_words, num_translations) < _FEWEST_JUDGED:
        return
    if words > translations + _REVERSED_MARGIN:
        raise MetaXLMError(
            f"{pairs.origin}: its columns seem to stand the other way round: of its words the "
            f"source vocabulary knows {words:.0%}, of their translations {translations:.0%}; "
            "rename the file after its first column's language, as in en-de.txt for English first"
        )
