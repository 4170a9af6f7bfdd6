"""What was found of a data set: places with counts, what is missing, and a verdict.

The results of `checking.py`, as plain values; `rendering.py` shows them, and `describe` gives the
form for JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from metaxlm.finetune.data_folder.content import MANY
from metaxlm.finetune.data_folder.description import ALL, DataSet, Layout, Reading

Status = Literal["complete", "partial", "damaged", "missing"]


@dataclass
class SplitCount:
    """The examples of one split in one place, by language."""

    examples: dict[str, int] = field(default_factory=dict)
    """All examples; of a dump its bytes."""
    unlabeled: dict[str, int] = field(default_factory=dict)
    """Of these, the ones whose labels are blanked out."""

    @property
    def labeled(self) -> dict[str, int]:
        """The examples that can be used."""
        left = {code: n - self.unlabeled.get(code, 0) for code, n in self.examples.items()}
        return {code: n for code, n in left.items() if n}


@dataclass
class Place:
    """A folder in which a data set was found, in one layout."""

    folder: Path
    layout: Layout
    reading: Reading
    usage: str
    """The recipe's key, or what to do so that metaxlm can read it."""
    splits: dict[str, SplitCount] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """All that was found of one data set."""

    data_set: DataSet
    places: tuple[Place, ...]
    damages: tuple[str, ...] = ()
    """What is wrong with which file, with file and line."""
    damaged: frozenset[tuple[str, str]] = frozenset()
    """Splits and languages of the damaged files."""
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """The verdict; a damaged file weighs more than a missing one."""
        if self.damages:
            return "damaged"
        if not self.places:
            return "missing"
        return "partial" if self.missing or self.blanked or self.short else "complete"

    @property
    def missing(self) -> dict[str, tuple[str, ...]]:
        """The languages of each needed split that have no file."""
        wanted = {}
        for need, languages in self.data_set.needs.items():
            present = {code for split in need.split("|") for code in self._present(split)}
            absent = tuple(code for code in languages if not present & {code, MANY})
            if absent:
                wanted[need] = absent
        return wanted

    @property
    def blanked(self) -> dict[str, tuple[str, ...]]:
        """The languages of each needed split that are there, but only without their labels."""
        blank = {}
        for need, languages in self.data_set.needs.items():
            labeled = {code for split in need.split("|") for code in self._count(split)}
            gone = {
                code
                for place in self.places
                for split in need.split("|")
                for code in _split(place, split).unlabeled
            }
            hidden = tuple(code for code in languages if code in gone - labeled)
            if hidden:
                blank[need] = hidden
        return blank

    @property
    def short(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Found and expected numbers of examples, where fewer were found."""
        fewer: dict[str, dict[str, tuple[int, int]]] = {}
        for split, sizes in self.data_set.sizes.items():
            for code, count in self._count(split).items():
                size = sizes.get(code, sizes.get(ALL, 0))
                if count < size and code in self.data_set.needs.get(split, ()):
                    fewer.setdefault(split, {})[code] = (count, size)
        return fewer

    @property
    def reading(self) -> Reading | None:
        """The best of the places: whether metaxlm can read at least one as it is."""
        order: tuple[Reading, ...] = ("yes", "no")
        return next((r for r in order if any(place.reading == r for place in self.places)), None)

    def _present(self, split: str) -> set[str]:
        found = {code for place in self.places for code in _split(place, split).examples}
        return found | {code for name, code in self.damaged if name == split}

    def _count(self, split: str) -> dict[str, int]:
        """The largest number of labeled examples of each language."""
        best: dict[str, int] = {}
        for place in self.places:
            for code, count in _split(place, split).labeled.items():
                best[code] = max(count, best.get(code, 0))
        return best

    def describe(self) -> dict[str, Any]:
        """Return all of it as values for JSON."""
        return {
            "name": self.data_set.name,
            "purpose": self.data_set.purpose,
            "status": self.status,
            "reading": self.reading,
            "home": self.data_set.home,
            "license": self.data_set.license,
            "layouts": {layout.name: layout.shape for layout in self.data_set.layouts},
            "places": [_describe_place(place) for place in self.places],
            "missing": {need: list(codes) for need, codes in self.missing.items()},
            "blanked": {need: list(codes) for need, codes in self.blanked.items()},
            "short": {
                split: {code: {"found": n, "expected": size} for code, (n, size) in codes.items()}
                for split, codes in self.short.items()
            },
            "damages": list(self.damages),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Report:
    """What a folder holds."""

    folder: Path
    findings: tuple[Finding, ...]
    complaints: tuple[str, ...] = ()
    """Folders that could not be searched."""

    def describe(self) -> dict[str, Any]:
        """Return all of it as values for JSON."""
        return {
            "folder": str(self.folder),
            "data_sets": [finding.describe() for finding in self.findings],
            "complaints": list(self.complaints),
        }


def _split(place: Place, split: str) -> SplitCount:
    return place.splits.get(split, SplitCount())


def _describe_place(place: Place) -> dict[str, Any]:
    counts: Mapping[str, SplitCount] = place.splits
    return {
        "folder": str(place.folder),
        "layout": place.layout.name,
        "reading": place.reading,
        "usage": place.usage,
        "unit": place.layout.unit,
        "splits": {
            name: {"examples": dict(split.examples), "unlabeled": dict(split.unlabeled)}
            for name, split in counts.items()
        },
    }
