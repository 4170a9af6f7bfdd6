"""Embeddings through bilingual dictionaries: the +Dict extension of vocabulary matching.

Section 3.2 of the paper: "first searching the word translation in the dictionaries, and then
applying the mapping strategy". It can mean all words, or those without a match yet
(`matching.precedence`), and leaves the rest open, which the recipe decides. A token is looked up as
the word it spells (normalized, lower case, as in MUSE). A translation is matched as a word start.
Translations of several tokens are used only for words without another.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries, WordPairs
from metaxlm.init.rules import TRANSLATION_RULES, Composed, Finder, scale
from metaxlm.init.vocabulary import NormalizedVocab
from metaxlm.scripts import UNSPACED, find_script

OneToMany = Literal["first", "mean", "frequency", "mean_per_language", "order"]
ByLanguage = Mapping[str, Mapping[str, None]]  # translations of a word, each once, in order

OWN_SHARE = 0.2  # from this share of the source language on, a token keeps its text match alone
DOUBTFUL_SHARE = 0.03  # below this share, the same spelling is likely a false friend

_LEAST_SHARE = 1e-4  # shares are never zero: a language counts where no other has the token
# A dictionary is reversed if its words look more like the source language than its translations.
# RoBERTa has at least 93 % of the English words of MUSE's 44 dictionaries as one token, and at most
# 60 % of the other words (Vietnamese).
_REVERSED_MARGIN = 0.1
_CHECKED_WORDS, _FEWEST_CHECKED = 2_000, 20
# Words per language and token in `compose_parts`; the n-th word of a dictionary counts 1 / (n +
# _RANK_SHIFT), so that the first few hundred count about the same.
_MOST_WORDS = 5
_RANK_SHIFT = 500


@dataclass(frozen=True)
class LanguageShares:
    """Relative frequency of each target token by language, all languages taken as equally large."""

    source_language: str
    languages: tuple[str, ...]
    shares_LV: NDArray[np.float64]  # sums to one over the languages for each token that occurs

    def find(self, language: str, row: int) -> float:
        """Return the share of one language, which is never zero."""
        if language not in self.languages:
            return _LEAST_SHARE
        return float(self.shares_LV[self.languages.index(language), row]) + _LEAST_SHARE

    def find_own(self, row: int) -> float:
        """Return the share of the source language."""
        return self.find(self.source_language, row)


def measure_shares(
    counts: Mapping[str, NDArray[np.int64]] | None, source_language: str
) -> LanguageShares:
    """Turn token counts by language into shares."""
    if counts is None or source_language not in counts or not counts[source_language].any():
        found = "no text was counted" if counts is None else f"counted: {', '.join(counts)}"
        raise MetaXLMError(
            f"matching.precedence: `frequency_weighted` needs text of the source language "
            f"{source_language} and of the others in the target's tokens ({found}); name a corpus, "
            "or choose `text`"
        )
    languages = tuple(sorted(language for language in counts if counts[language].any()))
    relative_LV = np.stack([counts[language] / counts[language].sum() for language in languages])
    total_V = relative_LV.sum(axis=0)
    shares_LV = np.divide(relative_LV, total_V, out=np.zeros_like(relative_LV), where=total_V > 0)
    return LanguageShares(source_language, languages, shares_LV)


def find_doubtful(
    target: NormalizedVocab,
    text_matches: Iterable[int],
    translated: Iterable[int],
    shares: LanguageShares,
) -> set[int]:
    """Return tokens for which the words that contain them are the better origin.

    They have letters and are rare in the source language. They have only a text match (Turkish
    `lar`), or continue a word in a script with spaces, where an equal word is a coincidence.
    """
    translated = set(translated)
    doubtful = set()
    for row in translated.union(text_matches):
        form = target.forms[row]
        has_letters = form is not None and any(map(str.isalpha, form[0]))
        if form is None or not has_letters or shares.find_own(row) >= DOUBTFUL_SHARE:
            continue
        # In scripts without spaces, a token inside a text may be a whole word.
        is_inside = not form[1] and find_script(form[0]) not in UNSPACED
        if is_inside or row not in translated:
            doubtful.add(row)
    return doubtful


class Found(NamedTuple):
    """The translations of one word that the source vocabulary has."""

    rule: str
    groups: Mapping[str, Mapping[str, tuple[int, ...]]]  # source ids by language and translation


@dataclass(frozen=True)
class Translator:
    """Finds the source tokens of words by their translations."""

    dictionaries: Dictionaries
    source: NormalizedVocab
    finder: Finder
    rules: Sequence[str]  # the enabled text rules
    one_to_many: OneToMany
    multi_token: bool
    frequencies: NDArray[np.float64]  # of each source token in the source language, in any unit
    _singles: dict[str, tuple[int, ...]] = field(default_factory=dict)  # cache of matched texts

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
        """Look words up in all dictionaries; omit words without a known translation."""
        wanted = frozenset(words)
        translations: dict[str, dict[str, dict[str, None]]] = {}
        for language, dictionary in sorted(self.dictionaries.by_language.items()):
            for word, translation in dictionary:
                if word in wanted:
                    known = translations.setdefault(word, {}).setdefault(language, {})
                    known[translation] = None
        return self.match(translations)

    def match(self, translations: Mapping[str, ByLanguage]) -> dict[str, Found]:
        """Find the source tokens of translations: of one token, else of several."""
        rules = [rule for rule in self.rules if rule in TRANSLATION_RULES]
        for text in _list_distinct(translations):
            if text not in self._singles:
                match = self.finder.find((text, True), rules)
                self._singles[text] = () if match is None else (match[1],)
        found = _keep_known("dictionary", translations, self._singles)
        if self.multi_token:
            assert self.source.cut is not None
            left = {word: one for word, one in translations.items() if word not in found}
            texts = _list_distinct(left)
            cuts = self.source.cut(texts, True) if texts else []
            rows_of = {text: tuple(rows) for text, rows in zip(texts, cuts, strict=True)}
            found |= _keep_known("dictionary_tokens", left, rows_of)
        return found

    def combine(
        self,
        found: Found,
        shares: Mapping[str, float] | None = None,
        own: tuple[str, int, float] | None = None,
    ) -> Composed:
        """Average the tokens of all translations, by language with the weights `shares`.

        `own` adds the text match of the source language: text, source id, share.
        """
        groups = found.groups
        if self.one_to_many == "first" and shares is None:
            # Of the alphabetically first language, so that the order of files does not matter.
            language = next(iter(groups))
            groups = {language: groups[language]}
        weights: dict[int, float] = defaultdict(float)
        entries = []
        for language, translations in groups.items():
            parts = self._weigh(translations)
            if shares is None and self.one_to_many in ("mean", "frequency"):
                amount = 1.0
            else:
                amount = (1.0 if shares is None else shares[language]) / sum(parts.values())
            for text, part in parts.items():
                entries.append((language, text))
                for row in translations[text]:
                    weights[row] += amount * part / len(translations[text])
        if own is None:
            return scale(found.rule, weights, entries)
        text, row, share = own
        weights[row] += share
        entries.append((self.dictionaries.source_language, text))
        return scale("dictionary_blend", weights, entries)

    def _weigh(self, translations: Mapping[str, tuple[int, ...]]) -> dict[str, float]:
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


def _keep_known(
    rule: str, translations: Mapping[str, ByLanguage], rows_of: Mapping[str, tuple[int, ...]]
) -> dict[str, Found]:
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


def _list_distinct(translations: Mapping[str, ByLanguage]) -> list[str]:
    groups = (group for by_language in translations.values() for group in by_language.values())
    return list(dict.fromkeys(text for group in groups for text in group))


def _check_direction(pairs: WordPairs, finder: Finder, rules: Sequence[str]) -> None:
    """Reject a dictionary with exchanged columns, decided by its first words."""
    rules = [rule for rule in rules if rule in TRANSLATION_RULES]

    def measure(column: str) -> tuple[float, int]:
        texts = list(dict.fromkeys(column.split("\n", _CHECKED_WORDS)[:_CHECKED_WORDS]))
        known = sum(finder.find((text, True), rules) is not None for text in texts)
        return known / len(texts), len(texts)

    words, num_words = measure(pairs.words)
    translations, num_translations = measure(pairs.translations)
    is_enough = min(num_words, num_translations) >= _FEWEST_CHECKED
    if is_enough and words > translations + _REVERSED_MARGIN:
        raise MetaXLMError(
            f"{pairs.origin}: its columns seem to be exchanged: the source vocabulary has "
            f"{words:.0%} of its words and {translations:.0%} of their translations; rename the "
            "file after the language of its first column, as in en-de.txt for English first"
        )


def compose_parts(
    target: NormalizedVocab,
    rows: Collection[int],
    translator: Translator,
    pieces: Literal["first", "all"],
    shares: LanguageShares | None = None,
) -> dict[int, Composed]:
    """Compose tokens of the translations of dictionary words that are tokenized into them.

    This extends the paper's +Dict to languages whose words are rarely one token. Each language
    contributes its first five words per token, weighted by their rank and its share.
    """
    if target.cut is None:
        raise MetaXLMError(
            "matching.split_words: a plain list of tokens cannot cut a dictionary word into "
            "pieces; give the target tokenizer itself, or set split_words to none"
        )
    wanted = frozenset(rows)
    sums: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    entries: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for language, dictionary in sorted(translator.dictionaries.by_language.items()):
        translations: dict[str, dict[str, None]] = defaultdict(dict)
        for word, translation in dictionary:
            translations[word][translation] = None
        # A word of one token is not here: that token is translated already.
        parts_of: dict[str, tuple[int, list[int]]] = {}
        cuts = target.cut_all(list(translations), True)
        for place, (word, cut) in enumerate(zip(translations, cuts, strict=True)):
            parts = dict.fromkeys(cut[:1] if pieces == "first" else cut)
            if chosen := [row for row in parts if row in wanted]:
                parts_of[word] = (place, chosen)
        found = translator.match({word: {language: translations[word]} for word in parts_of})
        num_words: Counter[int] = Counter()
        for word, (place, parts_of_word) in parts_of.items():
            open_rows = [row for row in parts_of_word if num_words[row] < _MOST_WORDS]
            if word not in found or not open_rows:
                continue
            num_words.update(open_rows)
            origin = translator.combine(found[word])
            for row in open_rows:
                share = 1.0 if shares is None else shares.find(language, row)
                for source, weight in zip(origin.sources, origin.weights, strict=True):
                    sums[row][source] += share * weight / (place + _RANK_SHIFT)
                entries[row] += origin.entries
    return {row: scale("dictionary_part", weights, entries[row]) for row, weights in sums.items()}
