"""How much text there is of each language, and how often each is drawn.

Comes in: a run folder, a folder of shards, or prepared text. Goes out: a row a language, which is
the paper's appendix table of Wikipedia sizes with what else decides a training: documents,
sentences, tokens, tokens a word, unknown tokens, and p_i = N_i^alpha / sum_j N_j^alpha.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from metaxlm.data.places import find_shards, find_texts
from metaxlm.data.text import merge_reasons
from metaxlm.errors import MetaXLMError
from metaxlm.languages import LANGUAGES, rebalance

SizeUnit = Literal["bytes", "characters", "tokens"]

_UNSPACED = frozenset({"Han", "Thai", "Lao", "Khmer", "Myanmar"})
"""Scripts whose words are not separated by spaces, so that they cannot be counted."""


@dataclass(frozen=True)
class LanguageStatistics:
    """One row of the table."""

    language: str
    bytes: int
    documents: int
    sentences: int
    words: int
    characters: int
    tokens: int | None
    """None if the text was not tokenized yet; so are the two below."""
    unknown: int | None
    probability: float
    """Share of the blocks that are drawn from this language."""

    @property
    def tokens_per_word(self) -> float | None:
        """How many pieces a word becomes; None where words cannot be counted."""
        known = LANGUAGES.get(self.language)
        if self.tokens is None or (known and known.script in _UNSPACED):
            return None
        return self.tokens / max(1, self.words)

    @property
    def unknown_rate(self) -> float | None:
        """Share of the tokens that stand for text the vocabulary does not have."""
        return None if self.unknown is None else self.unknown / max(1, self.tokens or 0)


@dataclass(frozen=True)
class Losses:
    """What of the raw text was left out, over all languages."""

    records: int
    rejected: Mapping[str, int]
    dropped: Mapping[str, int]


def collect_statistics(folder: Path, alpha: float, unit: SizeUnit) -> list[LanguageStatistics]:
    """Return the table's rows, largest language first."""
    counts = {path.name: facts["counts"] for path, facts in find_shards(folder).items()} or {
        path.name: facts["counts"]["text"] for path, facts in find_texts(folder).items()
    }
    if not counts:
        raise MetaXLMError(
            f"{folder}: neither shards nor prepared text in it; name a run folder such as "
            "runs/demo, or a folder of shards"
        )
    if unit not in next(iter(counts.values())):
        raise MetaXLMError(f"--unit {unit}: the text in {folder} was not tokenized yet")
    shares = rebalance({language: facts[unit] for language, facts in counts.items()}, alpha)
    rows = [
        LanguageStatistics(
            language,
            **{key: facts[key] for key in ("bytes", "documents", "sentences", "words")},
            characters=facts["characters"],
            tokens=facts.get("tokens"),
            unknown=facts.get("unknown"),
            probability=shares[language],
        )
        for language, facts in counts.items()
    ]
    return sorted(rows, key=lambda row: (-row.bytes, row.language))


def collect_losses(folder: Path) -> Losses | None:
    """Return what corpus preparation left out, or None if the prepared text is not there."""
    counts = [facts["counts"] for facts in find_texts(folder).values()]
    if not counts:
        return None
    return Losses(
        sum(facts["records"] for facts in counts),
        merge_reasons(facts["rejected"] or {} for facts in counts),
        merge_reasons(facts["dropped"] or {} for facts in counts),
    )
