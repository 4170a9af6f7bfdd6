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
from typing import Literal, NamedTuple

from metaxlm.errors import MetaXLMError
from metaxlm.initialization.canonical import Vocabulary
from metaxlm.initialization.dictionaries import Dictionaries
from metaxlm.initialization.matching import TRANSLATION_RULES, Finder, normalize_text

OneToMany = Literal["first", "mean", "mean_per_language"]

ByLanguage = dict[str, dict[str, None]]
"""Translations of one word by language, in the dictionary's order, each once."""


class Translated(NamedTuple):
    """The origin of a word's rows: which rule, which source rows, how much of each."""

    rule: str
    sources: tuple[int, ...]
    weights: tuple[float, ...]
    languages: tuple[str, ...]


def find_translations(words: Iterable[str], dictionaries: Dictionaries) -> dict[str, ByLanguage]:
    """Look words up in all dictionaries; languages come in alphabetical order."""
    wanted = frozenset(words)
    found: dict[str, ByLanguage] = {}
    for language in sorted(dictionaries.by_language):
        for word, translation in dictionaries.by_language[language]:
            if word in wanted:
                found.setdefault(word, {}).setdefault(language, {})[translation] = None
    return found


def translate_words(
    words: Iterable[str],
    dictionaries: Dictionaries,
    source: Vocabulary,
    rules: Sequence[str],
    one_to_many: OneToMany,
    multi_token: bool,
) -> dict[str, Translated]:
    """Find source rows for words by their translations; words without any are left out."""
    if multi_token and source.cut is None:
        raise MetaXLMError(
            "matching.multi_token: a plain list of tokens cannot cut a translation into tokens; "
            "give the source tokenizer itself, or set multi_token to false"
        )
    found = find_translations(words, dictionaries)
    origins = _combine_all("dictionary", found, _find_single(found, source, rules).get, one_to_many)
    if multi_token:
        left = {word: translations for word, translations in found.items() if word not in origins}
        pieces = _cut_translations(left, source)
        origins |= _combine_all("dictionary_multi_token", left, pieces.get, one_to_many)
    return origins


def spell_word(text: str) -> str:
    """Return the word under which a piece stands in a dictionary."""
    return normalize_text(text).lower()


def _list_distinct(found: Mapping[str, ByLanguage]) -> list[str]:
    groups = (group for by_language in found.values() for group in by_language.values())
    return list(dict.fromkeys(translation for group in groups for translation in group))


def _find_single(
    found: Mapping[str, ByLanguage], source: Vocabulary, rules: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Match each translation as one token that starts a word."""
    finder = Finder(source)
    rules = [rule for rule in rules if rule in TRANSLATION_RULES]
    matches = ((text, finder.find((text, True), rules)) for text in _list_distinct(found))
    return {text: (match[1],) for text, match in matches if match is not None}


def _cut_translations(
    found: Mapping[str, ByLanguage], source: Vocabulary
) -> dict[str, tuple[int, ...]]:
    """Cut each translation as the source tokenizer does."""
    texts = _list_distinct(found)
    assert source.cut is not None
    cuts = source.cut(texts) if texts else []
    return {text: tuple(rows) for text, rows in zip(texts, cuts, strict=True) if rows}


def _combine_all(
    rule: str,
    found: Mapping[str, ByLanguage],
    find_rows: Callable[[str], tuple[int, ...] | None],
    one_to_many: OneToMany,
) -> dict[str, Translated]:
    origins = {}
    for word, by_language in found.items():
        groups: dict[str, list[tuple[int, ...]]] = {}
        for language, translations in by_language.items():
            matched = [rows for text in translations if (rows := find_rows(text)) is not None]
            if matched:
                groups[language] = matched
        if groups:
            origins[word] = _combine(rule, groups, one_to_many)
    return origins


def _combine(
    rule: str, groups: Mapping[str, list[tuple[int, ...]]], one_to_many: OneToMany
) -> Translated:
    """Weigh the rows of several translations; a translation's own tokens share its weight."""
    if one_to_many == "first":
        # Of the alphabetically first language, so that the order of files decides nothing.
        language = next(iter(groups))
        groups = {language: groups[language][:1]}
    num_translations = sum(map(len, groups.values()))
    weights: dict[int, float] = {}
    for translations in groups.values():
        share = len(groups) * len(translations)
        if one_to_many == "mean":
            share = num_translations
        for rows in translations:
            for row in rows:
                weights[row] = weights.get(row, 0.0) + 1.0 / (share * len(rows))
    return Translated(rule, tuple(weights), tuple(weights.values()), tuple(groups))
