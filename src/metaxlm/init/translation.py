"""Rows through a dictionary: the +Dict extension of vocabulary matching.

Comes in: words, dictionaries, the source vocabulary. Goes out: for the words that have a
translation the source knows, the source rows and their weights. Section 3.2 of the paper: "first
searching the word translation in the dictionaries, and then applying the mapping strategy". What
the paper leaves open is decided by the recipe: which pieces count as words, how several
translations become one row, and whether a translation of several tokens is used.

A piece is looked up as the word it spells (normalized, lower case, as in MUSE). A translation is
matched as a word start. Translations of one token go before those of several: multi-token
translations matter only for words that have no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metaxlm.errors import MetaXLMError
from metaxlm.init.canonical import Vocabulary
from metaxlm.init.dictionaries import Dictionaries, WordPairs
from metaxlm.init.matching import TRANSLATION_RULES, Finder, normalize_text

OneToMany = Literal["first", "mean", "frequency", "mean_per_language", "order"]

ByLanguage = Mapping[str, Mapping[str, None]]
"""Translations of one word by language, in the dictionary's order, each once."""

# A dictionary is the wrong way round if its words look more like the source language than their
# translations. Of MUSE's 44, RoBERTa knows at least 93 % of the English words as one token and at
# most 60 % of the others (Vietnamese).
_REVERSED_MARGIN = 0.1
_JUDGED_WORDS = 2_000
_FEWEST_JUDGED = 20


class Composed(NamedTuple):
    """The origin of a row that is more than one copy: which rule, which source rows, how much."""

    rule: str
    sources: tuple[int, ...]
    weights: tuple[float, ...]
    entries: tuple[tuple[str, str], ...] = ()
    """The dictionary entries it is made of: language and translation."""


def scale(
    rule: str, weights: Mapping[int, float], entries: Iterable[tuple[str, str]] = ()
) -> Composed:
    """Return an origin whose weights sum to one, each entry once."""
    total = sum(weights.values())
    shares = tuple(weight / total for weight in weights.values())
    return Composed(rule, tuple(weights), shares, tuple(dict.fromkeys(entries)))


class Found(NamedTuple):
    """The translations of one word that the source knows."""

    rule: str
    groups: Mapping[str, Mapping[str, tuple[int, ...]]]
    """Source rows of each translation, by language in alphabetical order."""


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
    _singles: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Translations that were looked for as one token; those not found have no rows."""

    def __post_init__(self) -> None:
        if self.multi_token and self.source.cut is None:
            raise MetaXLMError(
                "matching.multi_token: a plain list of tokens cannot cut a translation into "
                "tokens; give the source tokenizer itself, or set multi_token to false"
            )
        for dictionary in self.dictionaries.by_language.values():
            for pairs in dictionary.files:
                _check_direction(pairs, self.finder, self.rules)

    def find(self, words: Iterable[str]) -> dict[str, Found]:
        """Look words up in all dictionaries; words without a known translation are left out."""
        return self.match(find_translations(words, self.dictionaries))

    def match(self, translations: Mapping[str, ByLanguage]) -> dict[str, Found]:
        """Find the source rows of translations."""
        found = self._keep("dictionary", translations, self._match_single(translations))
        if self.multi_token:
            left = {word: one for word, one in translations.items() if word not in found}
            found |= self._keep("dictionary_tokens", left, self._cut(left))
        return found

    def combine(
        self,
        found: Found,
        shares: Mapping[str, float] | None = None,
        own: tuple[str, int, float] | None = None,
    ) -> Composed:
        """Weigh the rows of several translations; a translation's own tokens share its weight.

        With `shares` each language counts by its share, whatever the number of translations. `own`
        is what the source language itself says: the text, its source row, its share.
        """
        groups = found.groups
        if self.one_to_many == "first" and shares is None:
            # Of the alphabetically first language, so that the order of files decides nothing.
            language = next(iter(groups))
            groups = {language: groups[language]}
        weights: dict[int, float] = {}
        entries = []
        for language, translations in groups.items():
            parts = self._weigh(translations)
            amount = self._weigh_language(parts, None if shares is None else shares[language])
            for text, part in parts.items():
                entries.append((language, text))
                for row in translations[text]:
                    share = amount * part / len(translations[text])
                    weights[row] = weights.get(row, 0.0) + share
        if own is None:
            return scale(found.rule, weights, entries)
        text, row, share = own
        weights[row] = weights.get(row, 0.0) + share
        entries.append((self.dictionaries.source_language, text))
        return scale("dictionary_blend", weights, entries)

    def _weigh(self, translations: Mapping[str, tuple[int, ...]]) -> dict[str, float]:
        """Return how much each translation of one language counts."""
        match self.one_to_many:
            case "first":
                return {next(iter(translations)): 1.0}
            case "order":
                return {text: 1 / place for place, text in enumerate(translations, start=1)}
            case "frequency":
                # A phrase is as frequent as its rarest token.
                return {
                    text: min(float(self.frequencies[row]) for row in rows)
                    for text, rows in translations.items()
                }
            case _:
                return dict.fromkeys(translations, 1.0)

    def _weigh_language(self, parts: Mapping[str, float], share: float | None) -> float:
        """Return what the weights of one language's translations are multiplied by."""
        if share is None and self.one_to_many in ("mean", "frequency"):
            return 1.0
        return (1.0 if share is None else share) / sum(parts.values())

    def _match_single(
        self, translations: Mapping[str, ByLanguage]
    ) -> Mapping[str, tuple[int, ...]]:
        """Match each translation as one token that starts a word."""
        rules = [rule for rule in self.rules if rule in TRANSLATION_RULES]
        for text in _list_distinct(translations):
            if text not in self._singles:
                match = self.finder.find((text, True), rules)
                self._singles[text] = () if match is None else (match[1],)
        return self._singles

    def _cut(self, translations: Mapping[str, ByLanguage]) -> dict[str, tuple[int, ...]]:
        """Cut each translation as the source tokenizer does."""
        texts = _list_distinct(translations)
        assert self.source.cut is not None
        cuts = self.source.cut(texts, True) if texts else []
        return {text: tuple(rows) for text, rows in zip(texts, cuts, strict=True)}

    @staticmethod
    def _keep(
        rule: str,
        translations: Mapping[str, ByLanguage],
        rows_of: Mapping[str, tuple[int, ...]],
    ) -> dict[str, Found]:
        """Keep the translations that have rows."""
        kept = {}
        for word, by_language in translations.items():
            groups = {
                language: matched
                for language, texts in by_language.items()
                if (matched := {text: rows for text in texts if (rows := rows_of[text])})
            }
            if groups:
                kept[word] = Found(rule, groups)
        return kept


def find_translations(
    words: Iterable[str], dictionaries: Dictionaries
) -> dict[str, dict[str, dict[str, None]]]:
    """Look words up in all dictionaries; languages come in alphabetical order."""
    wanted = frozenset(words)
    found: dict[str, dict[str, dict[str, None]]] = {}
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


def _list_distinct(translations: Mapping[str, ByLanguage]) -> list[str]:
    groups = (group for by_language in translations.values() for group in by_language.values())
    return list(dict.fromkeys(text for group in groups for text in group))


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
