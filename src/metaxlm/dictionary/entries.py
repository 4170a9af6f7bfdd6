"""Entries of a bilingual dictionary, as every reader and every method of induction returns them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Entry:
    """A word or phrase and one translation of it."""

    source: str
    target: str
    weight: float = 1.0  # larger is better within one source of entries; 1.0 if unknown


@dataclass
class Entries:
    """The entries of one source, such as a file; they may be a generator, which is read once."""

    name: str  # where they are from, such as `kaikki.jsonl.gz`
    source_language: str
    target_language: str
    entries: Iterable[Entry]
    dropped: Counter[str] = field(default_factory=Counter)
    """Lines or records that gave no entry, by reason; complete after `entries` were read."""
    is_kept: bool = False  # whether to keep all entries as they are
