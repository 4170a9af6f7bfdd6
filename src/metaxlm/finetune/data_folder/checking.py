"""Which data sets a folder holds: the folder comes in, a report on each data set goes out.

Files that a layout describes (`search.py`) are opened and counted; whatever is wrong with one
becomes a line of the report, never an error.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.data_folder.content import MANY, Content, Damage
from metaxlm.finetune.data_folder.description import DataSet, Reading, find_language
from metaxlm.finetune.data_folder.findings import Finding, Place, Report, SplitCount
from metaxlm.finetune.data_folder.finetuning_sets import FINETUNING_SETS
from metaxlm.finetune.data_folder.other_sets import OTHER_SETS
from metaxlm.finetune.data_folder.search import SUBSET, Match, list_files, match_files

DATA_SETS = (*FINETUNING_SETS, *OTHER_SETS)
"""Every data set of the paper."""

MOST_DAMAGES = 5
"""So many damaged files of a data set are named; the others are counted."""

Watch = Callable[[Path], None]
"""Called with each file before it is opened."""


def check_data(folder: Path, watch: Watch | None = None) -> Report:
    """Look for every data set of the paper in a folder, and count what is there."""
    paths, complaints = list_files(folder)
    names = [path.as_posix() for path in paths]
    findings = tuple(
        _check(known, folder.absolute(), paths, names, watch or _ignore) for known in DATA_SETS
    )
    return Report(folder.absolute(), findings, tuple(complaints))


def _ignore(path: Path) -> None:
    """Nobody watches."""


def _check(
    data_set: DataSet, folder: Path, paths: Sequence[Path], names: Sequence[str], watch: Watch
) -> Finding:
    matches = list(_drop_subsets(match_files(data_set, paths, names)))
    wanted = {code for languages in data_set.needs.values() for code in languages}
    others = sorted({match.language for match in matches} - wanted - {MANY})
    places: dict[tuple[str, Path], Place] = {}
    files: dict[tuple[str, Path], list[Path]] = defaultdict(list)
    damages: list[str] = []
    damaged: set[tuple[str, str]] = set()
    remarks: dict[str, list[Path]] = defaultdict(list)
    for match in matches:
        if match.language in others:
            continue
        watch(match.path)
        key = (match.layout.name, match.root)
        place = places.setdefault(key, _make_place(match, folder))
        files[key].append(match.path.parent)
        try:
            counted = match.files.count(match.path)
        except (Damage, MetaXLMError) as error:
            damages.append(str(error))
            damaged.add((_name_split(match), match.language))
            continue
        _add(place.splits.setdefault(_name_split(match), SplitCount()), match, counted, wanted)
        for remark in counted.remarks:
            remarks[remark].append(match.path)
    for key, place in places.items():
        place.folder = Path(os.path.commonpath(files[key]))
    finding = Finding(data_set, tuple(places.values()), tuple(damages), frozenset(damaged))
    notes = [*_explain(finding, paths, names), *_join(remarks)]
    if others:
        notes.append(f"also there, but not among the paper's languages: {' '.join(others)}")
    return Finding(data_set, finding.places, finding.damages, finding.damaged, tuple(notes))


def _drop_subsets(matches: Iterable[Match]) -> Iterable[Match]:
    """Drop files named as a subset where the whole is there as well."""
    kept = list(matches)
    whole = {(match.root, match.split, match.language) for match in kept if match.variant != SUBSET}
    for match in kept:
        is_subset = match.variant == SUBSET
        if not (is_subset and (match.root, match.split, match.language) in whole):
            yield match


def _name_split(match: Match) -> str:
    """Name the split as it is reported; a subset is taken for it, other variants are named."""
    return f"{match.split} ({match.variant})" if match.variant not in ("", SUBSET) else match.split


def _make_place(match: Match, folder: Path) -> Place:
    """Say how metaxlm reads a layout, or what hinders it."""
    layout = match.layout
    reading: Reading = layout.reading
    usage = layout.usage.format(match.root, folder=folder)
    if reading == "yes" and layout.folder and match.folder != layout.folder:
        reading = "no"
        usage = f"name the folder {layout.folder}/ instead of {match.folder}/ (a link will do)"
    return Place(match.path.parent, layout, reading, usage)


def _add(split: SplitCount, match: Match, counted: Content, wanted: set[str]) -> None:
    """Add a file's examples to its split; a file may hold several languages."""
    for counts, sums in (
        (counted.examples, split.examples),
        (counted.unlabeled, split.unlabeled),
    ):
        for name, count in counts.items():
            code = match.language if match.language != MANY else find_language(name)
            if code in wanted:
                sums[code] = sums.get(code, 0) + count


def _explain(finding: Finding, paths: Sequence[Path], names: Sequence[str]) -> Iterable[str]:
    """Yield what a person has to know: blanked labels, look-alikes, packed files."""
    data_set = finding.data_set
    if finding.blanked and data_set.advice:
        yield data_set.advice
    for pattern, message in data_set.traps.items():
        hits = [path for path, name in zip(paths, names, strict=True) if re.search(pattern, name)]
        if hits:
            yield f"{message} ({_count_files(hits)})"
    if finding.status != "complete":
        packed = [path for path in paths if re.fullmatch(data_set.archives, path.name)]
        for path in packed:
            yield f"{path} is packed; unpack it"


def _join(remarks: dict[str, list[Path]]) -> Iterable[str]:
    for remark, paths in remarks.items():
        yield f"{remark} ({_count_files(paths)})"


def _count_files(paths: Sequence[Path]) -> str:
    first = paths[0].name
    return first if len(paths) == 1 else f"{len(paths)} files, the first is {first}"


def count_statuses(report: Report) -> Counter[str]:
    """Count the verdicts."""
    return Counter(finding.status for finding in report.findings)
