"""Check a folder for the data sets of the paper: `metaxlm data check DIR`.

`check_data` opens every file with the reader that finetuning uses. What a reader raises is
reported, never raised. Nothing here imports torch.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, cast

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.data_files import (
    MANY,
    SUBSET,
    DataSet,
    Layout,
    Match,
    find_language,
    list_files,
    match_files,
)
from metaxlm.finetune.data_sets import DATA_SETS
from metaxlm.finetune.task import DataFile, Split

MOST_LINES = 5
"""Broken files and notes of a data set that are listed; the others are counted."""

Status = Literal["complete", "partial", "damaged", "missing"]
_STYLES: dict[Status, str] = {
    "complete": "green", "partial": "yellow", "damaged": "red", "missing": "dim",
}  # fmt: skip
_FEW = 8


@dataclass
class SplitCount:
    """The examples of one split in one place, by language."""

    examples: Counter[str] = field(default_factory=Counter)
    unlabeled: Counter[str] = field(default_factory=Counter)

    @property
    def labeled(self) -> Counter[str]:
        """The examples with labels."""
        return self.examples - self.unlabeled


@dataclass
class Place:
    """A folder in which a data set was found, in one layout."""

    folder: Path
    layout: Layout
    is_read: bool
    usage: str
    """The recipe's key, or, unless `is_read`, how to change the files."""
    splits: dict[str, SplitCount] = field(default_factory=lambda: defaultdict(SplitCount))


@dataclass
class Finding:
    """What was found of one data set."""

    data_set: DataSet
    places: list[Place] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)
    """Errors of the readers, with file and line."""
    damaged: set[tuple[str, str]] = field(default_factory=set)
    """Their splits and languages."""
    notes: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Languages with files that the paper does not use; they are not checked."""

    @property
    def status(self) -> Status:
        """The result; a broken file is worse than a missing one."""
        if self.damages or not self.places:
            return "damaged" if self.damages else "missing"
        return "partial" if self.missing or self.blanked or self.short else "complete"

    @property
    def languages(self) -> set[str]:
        """The languages that the paper uses."""
        return {code for languages in self.data_set.needs.values() for code in languages}

    @property
    def missing(self) -> dict[str, tuple[str, ...]]:
        """The languages of each needed split without a file."""
        present = {*self._count("examples"), *self.damaged}
        return self._select(
            lambda splits, code: not any((s, c) in present for s in splits for c in (code, MANY))
        )

    @property
    def blanked(self) -> dict[str, tuple[str, ...]]:
        """The languages of each needed split that exist only without labels."""
        labeled, blank = self._count("labeled"), self._count("unlabeled")
        return self._select(
            lambda splits, code: (
                any((s, code) in blank for s in splits)
                and not any((s, code) in labeled for s in splits)
            )
        )

    @property
    def short(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Found and expected numbers of examples, where fewer were found."""
        fewer: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        for (split, code), count in self._count("labeled").items():
            sizes = self.data_set.sizes.get(split, {})
            size = sizes.get(code, sizes.get("", 0))
            if count < size and code in self.data_set.needs.get(split, ()):
                fewer[split][code] = (count, size)
        return fewer

    @property
    def reading(self) -> Literal["yes", "no"] | None:
        """Whether metaxlm reads at least one place as it is."""
        is_read = any(place.is_read for place in self.places)
        return ("yes" if is_read else "no") if self.places else None

    def _select(self, applies: Callable[[Sequence[str], str], bool]) -> dict[str, tuple[str, ...]]:
        """Return the languages of each need for which a condition on its splits holds."""
        return {
            need: codes
            for need, languages in self.data_set.needs.items()
            if (codes := tuple(code for code in languages if applies(need.split("|"), code)))
        }

    def _count(self, what: str) -> dict[tuple[str, str], int]:
        """Return the largest count of any place, by split and language."""
        best: Counter[tuple[str, str]] = Counter()
        for place in self.places:
            for name, split in place.splits.items():
                best |= Counter({(name, code): n for code, n in getattr(split, what).items()})
        return best

    def describe(self) -> dict[str, Any]:
        """Return values for JSON."""
        known = self.data_set
        places = [
            {
                "folder": str(place.folder),
                "layout": place.layout.name,
                "reading": "yes" if place.is_read else "no",
                "usage": place.usage,
                "unit": place.layout.unit,
                "splits": {name: vars(split) for name, split in place.splits.items()},
            }
            for place in self.places
        ]
        return {
            **{key: getattr(known, key) for key in ("name", "purpose", "home", "license")},
            **{key: getattr(self, key) for key in ("status", "reading", "missing", "blanked")},
            "layouts": {layout.name: layout.shape for layout in known.layouts if layout.shape},
            "places": places,
            "short": {
                split: {code: {"found": n, "expected": size} for code, (n, size) in codes.items()}
                for split, codes in self.short.items()
            },
            "damages": self.damages,
            "notes": self.notes,
            "others": self.others,
        }


@dataclass(frozen=True)
class Report:
    """What a folder has of every data set, and the folders that could not be searched."""

    folder: Path
    findings: tuple[Finding, ...]
    complaints: tuple[str, ...]

    def describe(self) -> dict[str, Any]:
        """Return values for JSON."""
        return {
            "folder": str(self.folder),
            "data_sets": [finding.describe() for finding in self.findings],
            "complaints": list(self.complaints),
        }


def check_data(folder: Path) -> Report:
    """Search a folder for every data set of the paper, and read the files."""
    paths, complaints = list_files(folder)
    findings = tuple(_check(known, folder.absolute(), paths) for known in DATA_SETS)
    return Report(folder.absolute(), findings, tuple(complaints))


def _check(data_set: DataSet, folder: Path, paths: Sequence[Path]) -> Finding:
    finding = Finding(data_set)
    matches = list(match_files(data_set, paths))
    whole = {(m.root, m.split, m.language) for m in matches if m.variant != SUBSET}
    others = sorted({match.language for match in matches} - finding.languages - {MANY})
    places: dict[tuple[str, Path], Place] = {}
    notices: list[str] = []
    for match in matches:
        has_whole = (match.root, match.split, match.language) in whole
        if match.language in others or (match.variant == SUBSET and has_whole):
            continue
        layout, fix = match.layout, match.layout.fix
        if layout.folder and match.folder != layout.folder:
            fix = f"name the folder {layout.folder}/ instead of {match.folder}/ (a link will do)"
        usage = fix or layout.usage.format(match.root, folder=folder)
        place = Place(match.path.parent, layout, not fix, usage)
        place = places.setdefault((layout.name, match.root), place)
        place.folder = Path(os.path.commonpath([place.folder, match.path.parent]))
        is_plain = match.variant in ("", SUBSET)
        name = match.split if is_plain else f"{match.split} ({match.variant})"
        try:
            notices += _count_file(match, data_set, place.splits[name], finding.languages)
        except MetaXLMError as error:
            finding.damages.append(str(error))
            finding.damaged.add((name, match.language))
    for place in places.values():
        place.splits = {name: split for name, split in place.splits.items() if split.examples}
    finding.places = list(places.values())
    finding.notes = [*_explain(finding, paths), *notices]
    finding.others = others
    if others:
        named = "languages that the paper does not use, not checked"
        finding.notes.append(f"{named}: {' '.join(others)}; `evaluate --languages` uses them")
    return finding


def _count_file(
    match: Match, data_set: DataSet, split: SplitCount, languages: set[str]
) -> tuple[str, ...]:
    language = "" if match.language == MANY else match.language
    file = DataFile(language, cast(Split, match.split), match.path, match.split)
    content = (match.layout.read or data_set.read)(file)
    if isinstance(content.items, range):
        split.examples[language] += len(content.items)
        return content.notices
    codes = repeat(language) if language else map(find_language, content.languages)
    for code, item in zip(codes, content.items, strict=False):
        if code in languages:
            split.examples[code] += 1
            if not getattr(item, "is_labeled", True):
                split.unlabeled[code] += 1
    return content.notices


def _explain(finding: Finding, paths: Sequence[Path]) -> Iterator[str]:
    """Yield notes about missing labels, files that are easily confused, and packed files."""
    data_set = finding.data_set
    if finding.blanked and data_set.advice:
        yield data_set.advice
    for pattern, message in data_set.traps.items():
        hits = [path.name for path in paths if re.search(pattern, path.as_posix())]
        if hits:
            more = f"{len(hits)} files, the first is " if len(hits) > 1 else ""
            yield f"{message} ({more}{hits[0]})"
    for path in paths if finding.status != "complete" else ():
        if re.fullmatch(data_set.archives, path.name):
            yield f"{path} is packed; unpack it"


def render(report: Report) -> RenderableType:
    """Return a paragraph per data set, and a table of all at the end."""
    parts: list[RenderableType] = []
    for finding in report.findings:
        title = Text(finding.data_set.name, "bold")
        title.append(f", {finding.data_set.purpose}: ", "not bold")
        title.append(finding.status, f"not bold {_STYLES[finding.status]}")
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="dim", no_wrap=True, width=8)
        facts.add_column(overflow="fold")
        for label, text in _list_facts(finding, report.folder):
            facts.add_row(label, text)
        parts += [title, Padding(facts, (0, 0, 1, 2))]
    parts.append(_make_table(report.findings))
    parts += [Text(complaint, "red") for complaint in report.complaints]
    counts = Counter(finding.status for finding in report.findings)
    summary = ", ".join(f"{counts[status]} {status}" for status in _STYLES if counts[status])
    parts.append(Text(f"{report.folder}: {summary}", overflow="fold"))
    return Group(*parts)


def _list_facts(finding: Finding, folder: Path) -> Iterator[tuple[str, str]]:
    data_set = finding.data_set
    order = ("train", "dev", "test")
    for place in finding.places:
        name = place.folder.relative_to(folder) if place.folder != folder else folder.name
        yield "found", f"{name}/ (layout: {place.layout.name})"
        ranks = {s: next((k for k, part in enumerate(order) if part in s), 3) for s in place.splits}
        for split in sorted(place.splits, key=lambda s: (ranks[s], s)):
            yield "", _format_split(finding, place, split)
        is_read = "read as it is, with `{}`" if place.is_read else "not read as it is: {}"
        yield "use", is_read.format(place.usage)
    if finding.places or finding.damages:
        for need, codes in finding.missing.items():
            wanted = data_set.needs[need]
            yield "missing", f"{need.replace('|', ' or ')}: {_format_codes(codes, wanted)}"
    for split, fewer in finding.short.items():
        listed = [f"{code} {n:,} of {size:,}" for code, (n, size) in sorted(fewer.items())]
        more = f" and {len(listed) - _FEW} more" if len(listed) > _FEW else ""
        yield "fewer", f"{split}: {', '.join(listed[:_FEW])}{more}"
    damages, notes = finding.damages, finding.notes
    for label, lines, noun in (("damaged", damages, "files"), ("note", notes, "notes")):
        yield from ((label, line) for line in lines[:MOST_LINES])
        if len(lines) > MOST_LINES:
            yield label, f"and {len(lines) - MOST_LINES} more {noun}"
    shapes = [f"{layout.shape} ({layout.name})" for layout in data_set.layouts if layout.shape]
    yield from zip(["layout", *["or"] * (len(shapes) - 1)], shapes, strict=True)
    yield "home", data_set.home
    yield "license", data_set.license


def _format_split(finding: Finding, place: Place, name: str) -> str:
    split = place.splits[name]
    amount = _format_amount(split.examples.total(), place.layout.unit)
    text = f"{name}: {_format_codes(tuple(split.examples), sorted(finding.languages))}, {amount}"
    blank = _format_codes(tuple(split.unlabeled), tuple(split.examples))
    return f"{text}; labels blanked: {blank}" if split.unlabeled else text


def _format_amount(number: int, unit: str) -> str:
    return f"{number / 1e9:,.2f} GB" if unit == "bytes" else f"{number:,} {unit}"


def _format_codes(codes: Sequence[str], wanted: Sequence[str]) -> str:
    """Name languages: all, all but a few, or which."""
    absent = [code for code in wanted if code not in codes]
    if len(wanted) > 1 and not absent and len(codes) == len(wanted):
        return f"all {len(wanted)} languages"
    if len(codes) > _FEW and 0 < len(absent) <= _FEW:
        return f"{len(codes)} languages, all but {' '.join(absent)}"
    listed = " ".join(sorted(codes))
    return listed if len(codes) <= _FEW else f"{len(codes)} languages ({listed})"


def _make_table(findings: Iterable[Finding]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    widths = {"data set": 14, "status": 8, "languages": 9, "examples": 9, "read": 7}
    for name, width in widths.items():
        side: Literal["left", "right"] = "right" if width == 9 else "left"
        table.add_column(name, min_width=width, justify=side, no_wrap=True)
    table.add_column("missing", overflow="fold")
    for finding in findings:
        found: set[str] = set()
        sums: Counter[str] = Counter()
        for place in finding.places:
            for split in place.splits.values():
                found |= set(split.labeled)
                sums[place.layout.unit] += split.labeled.total()
        amounts = [_format_amount(n, unit).removesuffix(" examples") for unit, n in sums.items()]
        table.add_row(
            finding.data_set.name,
            Text(finding.status, _STYLES[finding.status]),
            f"{len(found & finding.languages)} of {len(finding.languages)}"
            + (f" + {len(finding.others)}" if finding.others else ""),
            " + ".join(amounts) or "-",
            finding.reading or "-",
            _summarize_missing(finding),
        )
    return table


def _summarize_missing(finding: Finding) -> str:
    if not finding.places:
        return "the paper's languages" if finding.others else "everything"

    def count(things: Sequence[str], noun: str) -> str:
        return f"{len(things)} {noun}" + "s" * (len(things) != 1)

    parts = [f"{count(finding.damages, 'file')} damaged"] if finding.damages else []
    needs = {need.replace("|", " or "): codes for need, codes in finding.missing.items()}
    needs |= {f"labels of {need}": codes for need, codes in finding.blanked.items()}
    parts += [f"{need} in {count(codes, 'language')}" for need, codes in needs.items()]
    parts += [f"part of {split}" for split in finding.short]
    return ", ".join(parts)
