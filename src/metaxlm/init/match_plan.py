"""The plan: the origin of every embedding of the new vocabulary, as data.

A `Plan` has for each target token exactly one origin: the rule, the source tokens, their weights
and the dictionary entries (section 3.2 of the paper). It can be saved and explained (`ledger.py`)
before a model is initialized from it (`start.py`). It is columnar: token r has the slice
`offsets[r]:offsets[r + 1]` of `sources` and `weights`, and that of `entry_offsets` of the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metaxlm.init.dictionary_rules import (
    OWN_SHARE,
    LanguageShares,
    Translator,
    compose_parts,
    find_doubtful,
    measure_shares,
)
from metaxlm.init.rules import (
    FILLER_RULES,
    RULES,
    TEXT_RULES,
    UNMATCHED,
    Composed,
    Finder,
    Matches,
    cut_subwords,
    join_segments,
    match_vocabulary,
    spell_word,
)
from metaxlm.init.vocabulary import NormalizedVocab, read_vocabulary
from metaxlm.recipe import MatchingRecipe
from metaxlm.scripts import SPECIAL, find_script
from metaxlm.vocab.tokens import Kind

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from metaxlm.init.dictionaries import Dictionaries

FREQUENCY_WEIGHTED = "frequency_weighted"  # `matching.precedence`: by each language's use


@dataclass(frozen=True)
class Counts:
    """Token counts in text; None if unknown."""

    source: NDArray[np.int64] | None = None  # by source token, in text of the source language
    target: Mapping[str, NDArray[np.int64]] | None = None  # by language and target token


class Origin(NamedTuple):
    """The origin of one embedding."""

    token: str
    rule: str
    source_rows: tuple[int, ...]
    source_tokens: tuple[str, ...]
    weights: tuple[float, ...]
    entries: tuple[tuple[str, str], ...]  # dictionary entries: language and translation


@dataclass(frozen=True, eq=False)
class Plan:
    """One origin per target token, in columns."""

    tokens: tuple[str, ...]  # target tokens as the tokenizer writes them
    scripts: tuple[str, ...]
    rules: NDArray[np.uint8]  # indices into `rules.RULES`
    offsets: NDArray[np.int64]  # number of tokens + 1
    sources: NDArray[np.int32]  # source ids
    weights: NDArray[np.float32]  # weights of the source ids; they sum to one per target token
    entry_offsets: NDArray[np.int64]  # number of tokens + 1
    languages: tuple[str, ...]  # languages of the dictionary entries
    translations: tuple[str, ...]  # translations of the dictionary entries
    source_tokens: Mapping[int, str]  # the tokens of the source ids
    source_size: int  # size of the source vocabulary
    kind: Kind = Kind.SENTENCEPIECE  # notation of the target tokens
    recipe: MatchingRecipe = field(default_factory=MatchingRecipe)  # the settings of the plan

    def __post_init__(self) -> None:
        assert len(self.tokens) == len(self.scripts) == len(self.rules)
        assert len(self.offsets) == len(self.entry_offsets) == len(self.rules) + 1
        assert len(self.sources) == len(self.weights) == self.offsets[-1]
        assert len(self.languages) == len(self.translations) == self.entry_offsets[-1]
        assert ((np.diff(self.offsets) == 0) == (self.rules == UNMATCHED)).all()

    def __len__(self) -> int:
        return len(self.tokens)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        pairs = [(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)]
        return all(
            np.array_equal(mine, yours) if isinstance(mine, np.ndarray) else mine == yours
            for mine, yours in pairs
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def is_matched(self) -> NDArray[np.bool_]:
        """Whether a rule matched each token; fillers do not count."""
        fillers = [RULES.index(rule) for rule in FILLER_RULES]
        matched: NDArray[np.bool_] = ~np.isin(self.rules, fillers)
        return matched

    def count_rules(self) -> dict[str, int]:
        """Return the number of tokens per rule, in the order the rules are tried."""
        counts = np.bincount(self.rules, minlength=len(RULES))
        return {rule: int(count) for rule, count in zip(RULES, counts, strict=True)}

    def origin(self, row: int) -> Origin:
        """Return the origin of one embedding."""
        part = slice(self.offsets[row], self.offsets[row + 1])
        entries = slice(self.entry_offsets[row], self.entry_offsets[row + 1])
        rows = tuple(self.sources[part].tolist())
        tokens = tuple(self.source_tokens[source] for source in rows)
        weights = tuple(self.weights[part].tolist())
        found = tuple(zip(self.languages[entries], self.translations[entries], strict=True))
        return Origin(self.tokens[row], RULES[self.rules[row]], rows, tokens, weights, found)


def make_plan(
    target_tokenizer: PreTrainedTokenizerBase | NormalizedVocab,
    source_tokenizer: PreTrainedTokenizerBase | NormalizedVocab,
    matching: MatchingRecipe | None = None,
    dictionaries: Dictionaries | None = None,
    counts: Counts | None = None,
    *,
    extends: bool = False,
) -> Plan:
    """Decide the origin of every embedding of the target vocabulary.

    If the target `extends` the source, the tokens of the source keep their embeddings, and the
    default filler is the mean of the source's subwords.
    """
    matching = matching or MatchingRecipe()
    if extends and "filler" not in matching.model_fields_set:
        matching = matching.model_copy(update={"filler": "subwords"})
    target, source = (
        one if isinstance(one, NormalizedVocab) else read_vocabulary(one)
        for one in (target_tokenizer, source_tokenizer)
    )
    matches = match_vocabulary(target, source, [r for r in TEXT_RULES if r in matching.rules])
    num_kept = len(source) if extends else 0
    matches.sources[:num_kept] = np.arange(num_kept)
    for row in range(num_kept):
        matches.rules[row] = RULES.index("special" if row in target.specials else "direct")
    composed: dict[int, Composed] = {}
    if dictionaries is not None:
        composed = _translate(target, source, matches, matching, dictionaries, counts or Counts())
        composed = {row: one for row, one in composed.items() if row >= num_kept}
    if matching.segments:
        single = np.flatnonzero(matches.sources >= 0).tolist()
        origins = {row: ((int(matches.sources[row]),), (1.0,)) for row in single} | {
            row: (one.sources, one.weights) for row, one in composed.items()
        }
        composed |= join_segments(target, _list_unmatched(target, matches, composed), origins)
    if matching.filler == "subwords":
        composed |= cut_subwords(target, _list_unmatched(target, matches, composed), source)
    # The path of the dictionaries is not part of the plan.
    recipe = matching.model_copy(update={"dictionaries": None})
    return _assemble(target, source, matches, composed, recipe)


def _translate(
    target: NormalizedVocab,
    source: NormalizedVocab,
    matches: Matches,
    matching: MatchingRecipe,
    dictionaries: Dictionaries,
    counts: Counts,
) -> dict[int, Composed]:
    """Compose tokens by dictionary; their text match is dropped or mixed in."""
    # Vocabularies are ordered by frequency: without counts, assume Zipf's law.
    frequencies = 1.0 / np.arange(1, len(source) + 1)
    if counts.source is not None:
        frequencies = counts.source.astype(np.float64) + 1
    rules = [rule for rule in TEXT_RULES if rule in matching.rules]
    choices = matching.one_to_many, matching.multi_token
    translator = Translator(dictionaries, source, Finder(source), rules, *choices, frequencies)
    shares = None
    if matching.precedence == FREQUENCY_WEIGHTED:
        shares = measure_shares(counts.target, dictionaries.source_language)
    words = _list_words(target, matches, matching, shares)
    found = translator.find(words.values())
    composed = {}
    for row, word in words.items():
        if word not in found:
            continue
        by_language = own = None
        if shares is not None:
            by_language = {code: shares.find(code, row) for code in found[word].groups}
            if matches.sources[row] >= 0:
                own = (word, int(matches.sources[row]), shares.find_own(row))
        composed[row] = translator.combine(found[word], by_language, own)
    if matching.split_words != "none":
        rows = set(_list_unmatched(target, matches, composed))
        if shares is not None:
            matched = np.flatnonzero(matches.sources >= 0).tolist()
            rows |= find_doubtful(target, matched, composed, shares)
        composed |= compose_parts(target, rows, translator, matching.split_words, shares)
    return composed


def _list_words(
    target: NormalizedVocab,
    matches: Matches,
    matching: MatchingRecipe,
    shares: LanguageShares | None,
) -> dict[int, str]:
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


def _list_unmatched(
    target: NormalizedVocab, matches: Matches, composed: Iterable[int]
) -> list[int]:
    rows = np.flatnonzero(matches.rules == UNMATCHED).tolist()
    done = set(composed)
    return [row for row in rows if row not in done and target.forms[row] is not None]


def _assemble(
    target: NormalizedVocab,
    source: NormalizedVocab,
    matches: Matches,
    composed: Mapping[int, Composed],
    matching: MatchingRecipe,
) -> Plan:
    rules = matches.rules.copy()
    is_single = matches.sources >= 0
    is_single[list(composed)] = False
    counts = is_single.astype(np.int64)
    entry_counts = np.zeros(len(target), np.int64)
    ordered = sorted(composed.items())
    for row, origin in ordered:
        rules[row] = RULES.index(origin.rule)
        counts[row] = len(origin.sources)
        entry_counts[row] = len(origin.entries)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    sources = np.empty(offsets[-1], np.int32)
    weights = np.ones(offsets[-1], np.float32)
    is_copy = np.repeat(is_single, counts)
    sources[is_copy] = matches.sources[is_single]
    sources[~is_copy] = [row for _, origin in ordered for row in origin.sources]
    weights[~is_copy] = [weight for _, origin in ordered for weight in origin.weights]
    entries = [entry for _, origin in ordered for entry in origin.entries]
    return Plan(
        tokens=target.tokens,
        scripts=tuple(SPECIAL if form is None else find_script(form[0]) for form in target.forms),
        rules=rules,
        offsets=offsets,
        sources=sources,
        weights=weights,
        entry_offsets=np.concatenate([[0], np.cumsum(entry_counts)]),
        languages=tuple(language for language, _ in entries),
        translations=tuple(translation for _, translation in entries),
        source_tokens={row: source.tokens[row] for row in np.unique(sources).tolist()},
        source_size=len(source),
        kind=target.kind,
        recipe=matching,
    )
