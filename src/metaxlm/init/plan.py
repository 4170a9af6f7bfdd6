"""The plan: where every row of the new embedding comes from, as data.

Comes in: the tokenizers of both phases, the matching part of the recipe, dictionaries. Goes out: a
`Plan` that names for each row of the cross-lingual vocabulary exactly one origin: the rule, the
source rows, their weights, the dictionary entries. Nothing is copied yet: a plan can be counted,
saved (`ledger.py`), explained (`story.py`), compared (`comparison.py`) and read before a model is
made of it (`apply.py`). Together this is the vocabulary matching of section 3.2 of the paper.

Rows have no, one or many source rows, so the plan is columnar: row r owns the slice
`offsets[r]:offsets[r + 1]` of `sources` and `weights`, and `entry_offsets` likewise cuts
`languages` and `translations`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metaxlm.init.canonical import Vocabulary, read_vocabulary
from metaxlm.init.composition import Counts, compose_rows
from metaxlm.init.matching import (
    FILLER_RULES,
    RULES,
    TEXT_RULES,
    UNMATCHED,
    Matches,
    match_vocabulary,
)
from metaxlm.init.translation import Composed
from metaxlm.recipe import MatchingRecipe
from metaxlm.scripts import SPECIAL, find_script
from metaxlm.vocab.token_forms import Kind

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from metaxlm.init.dictionaries import Dictionaries


class Origin(NamedTuple):
    """The story of one row."""

    token: str
    rule: str
    source_rows: tuple[int, ...]
    source_tokens: tuple[str, ...]
    weights: tuple[float, ...]
    entries: tuple[tuple[str, str], ...]
    """Dictionary entries: language and translation."""

    @property
    def languages(self) -> tuple[str, ...]:
        """Return the languages of the dictionaries it came through."""
        return tuple(dict.fromkeys(language for language, _ in self.entries))


@dataclass(frozen=True, eq=False)
class Plan:
    """One origin for every target row, in columns."""

    tokens: tuple[str, ...]
    """Target tokens as their tokenizer writes them."""
    scripts: tuple[str, ...]
    """Script of each target token."""
    rules: NDArray[np.uint8]
    """Places in `matching.RULES`."""
    offsets: NDArray[np.int64]
    """One more than there are rows."""
    sources: NDArray[np.int32]
    """Source rows."""
    weights: NDArray[np.float32]
    """Beside each source row its weight; those of one target row sum to one."""
    entry_offsets: NDArray[np.int64]
    """One more than there are rows."""
    languages: tuple[str, ...]
    """Languages of the dictionary entries."""
    translations: tuple[str, ...]
    """Beside each language the translation that was used."""
    source_tokens: Mapping[int, str]
    """The tokens of all source rows that occur."""
    source_size: int
    """Rows of the source vocabulary."""
    kind: Kind = Kind.SENTENCEPIECE
    """How the target writes its tokens."""
    recipe: MatchingRecipe = field(default_factory=MatchingRecipe)
    """The choices the plan was made with."""

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
        """Whether a rule matched each row; fillers do not count."""
        fillers = [RULES.index(rule) for rule in FILLER_RULES]
        matched: NDArray[np.bool_] = ~np.isin(self.rules, fillers)
        return matched

    def count_rules(self) -> dict[str, int]:
        """Return how many rows each rule filled, in the order the rules are tried."""
        counts = np.bincount(self.rules, minlength=len(RULES))
        return {rule: int(count) for rule, count in zip(RULES, counts, strict=True)}

    def origin(self, row: int) -> Origin:
        """Return the origin of one row."""
        part = slice(self.offsets[row], self.offsets[row + 1])
        entries = slice(self.entry_offsets[row], self.entry_offsets[row + 1])
        rows = tuple(self.sources[part].tolist())
        return Origin(
            self.tokens[row],
            RULES[self.rules[row]],
            rows,
            tuple(self.source_tokens[source] for source in rows),
            tuple(self.weights[part].tolist()),
            tuple(zip(self.languages[entries], self.translations[entries], strict=True)),
        )


def make_plan(
    target_tokenizer: PreTrainedTokenizerBase | Vocabulary,
    source_tokenizer: PreTrainedTokenizerBase | Vocabulary,
    matching: MatchingRecipe | None = None,
    dictionaries: Dictionaries | None = None,
    counts: Counts | None = None,
) -> Plan:
    """Decide for every row of the target vocabulary where it comes from."""
    matching = matching or MatchingRecipe()
    target, source = _read(target_tokenizer), _read(source_tokenizer)
    rules = [rule for rule in TEXT_RULES if rule in matching.rules]
    matches = match_vocabulary(target, source, rules)
    composed = compose_rows(target, source, matches, matching, dictionaries, counts or Counts())
    # Where the dictionaries lay is no property of the plan, and means nothing to its readers.
    return _assemble(
        target, source, matches, composed, matching.model_copy(update={"dictionaries": None})
    )


def _read(tokenizer: PreTrainedTokenizerBase | Vocabulary) -> Vocabulary:
    return tokenizer if isinstance(tokenizer, Vocabulary) else read_vocabulary(tokenizer)


def _assemble(
    target: Vocabulary,
    source: Vocabulary,
    matches: Matches,
    composed: Mapping[int, Composed],
    matching: MatchingRecipe,
) -> Plan:
    """Lay single matches and composed rows out in columns."""
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
