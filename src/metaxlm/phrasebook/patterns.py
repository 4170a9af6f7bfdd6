"""The sentence patterns: which slots they have and what may fill them.

In: `data/patterns.yaml`, whose head explains every key. Out: `Pattern`s by id.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.phrasebook.concepts import Concepts, load_concepts
from metaxlm.phrasebook.datafiles import DATA_FOLDER, Entry, read_entries

GENRES = frozenset(["event", "state", "place", "time", "dialogue", "person", "review", "question"])
WHO = frozenset(["name", "kin", "person", "i", "you", "we"])


@dataclass(frozen=True, slots=True)
class Slot:
    """What may fill a slot; see the head of `patterns.yaml`."""

    name: str
    who: tuple[str, ...] = ()
    cls: str = ""
    object_of: str = ""
    place_of: str = ""
    extra: str = ""
    fits: str = ""
    like: str = ""
    takes: str = ""
    when: str = ""
    digits: tuple[int, int] | None = None
    narrowed: str = ""
    optional: float = 1.0
    definiteness: tuple[str, ...] = ("def",)
    number: tuple[str, ...] = ("sg",)
    adjective: float = 0.0
    unsaid: str = ""
    numeral: float = 0.0
    possessor: float = 0.0
    possessive_i: bool = False
    pronoun: bool = False
    gender_of: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pattern:
    """One sentence pattern."""

    id: str
    genre: str
    weight: float
    tense: tuple[str, ...]
    negative: float
    fronted: float
    needs: tuple[str, ...]
    """Optional slots of which at least one must be filled."""
    subject: tuple[str, ...]
    slots: dict[str, Slot]
    where: str


_KEYS = {"is": "cls", "with": "extra", "not": "others"}
_SLOT_KEYS = {field.name for field in fields(Slot)} - {"name", *_KEYS.values()} | set(_KEYS)
_PATTERN_KEYS = {field.name for field in fields(Pattern)} - {"id", "where"}


def _read_slot(name: str, spec: dict[str, Any], where: str, concepts: Concepts) -> Slot:
    unknown = set(spec) - _SLOT_KEYS
    if unknown:
        raise MetaXLMError(f"{where}: slot {name} has unknown keys {sorted(unknown)}")
    values: dict[str, Any] = {_KEYS.get(key, key): value for key, value in spec.items()}
    values["who"] = tuple(str(values.get("who", "")).split())
    if set(values["who"]) - WHO:
        raise MetaXLMError(f"{where}: slot {name}: `who` takes {sorted(WHO)}")
    values["when"] = {True: "time-season-yearly_span-weekly_span", None: ""}.get(
        values.get("when"), values.get("when")
    )
    for key in ("definiteness", "number", "others", "digits"):
        if key in values:
            values[key] = tuple(values[key])
    if values.get("cls") and not concepts.members(values["cls"]):
        raise MetaXLMError(f"{where}: slot {name}: no concept fits {values['cls']!r}")
    values["pronoun"] = bool(values.get("pronoun", False))
    return Slot(name, **values)


def _read_pattern(entry: Entry, concepts: Concepts) -> Pattern:
    spec = entry.value
    unknown = set(spec) - _PATTERN_KEYS
    if unknown:
        raise MetaXLMError(f"{entry.where}: {entry.key} has unknown keys {sorted(unknown)}")
    if spec.get("genre") not in GENRES:
        raise MetaXLMError(f"{entry.where}: {entry.key}: genre must be one of {sorted(GENRES)}")
    slots = {
        name: _read_slot(name, value, entry.where, concepts)
        for name, value in spec["slots"].items()
    }
    default = "agent" if "agent" in slots else "theme" if "theme" in slots else ""
    subject = spec.get("subject", [default] if default else [])
    return Pattern(
        entry.key,
        spec["genre"],
        float(spec.get("weight", 1)),
        tuple(spec.get("tense", ["present"])),
        float(spec.get("negative", 0.0)),
        float(spec.get("fronted", 0.0)),
        tuple(spec.get("needs", ())),
        tuple(subject),
        slots,
        entry.where,
    )


def read_patterns(path: Path, concepts: Concepts) -> dict[str, Pattern]:
    """Read the patterns and check every key and class."""
    return {entry.key: _read_pattern(entry, concepts) for entry in read_entries(path)}


@cache
def load_patterns() -> dict[str, Pattern]:
    """Return the built-in patterns, read once."""
    return read_patterns(DATA_FOLDER / "patterns.yaml", load_concepts())
