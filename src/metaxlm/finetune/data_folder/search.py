"""Which files of a folder belong to a data set: paths come in, matches go out.

The one place where descriptions of layouts meet a disk: `checking.py` counts what it finds,
`tasks/finding.py` hands it to the readers. File names are searched a few levels deep, so that the
folder may be XTREME's `download`, its parent, or a folder of data sets of any origin.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.data_folder.description import DataSet, Files, Layout, find_language

DEEPEST = 6
"""Folders below the given one that are searched."""
MOST_FILES = 300_000
"""A folder with more files is no data folder; the search ends there and says so."""

SUBSET = "subset"
"""Variant of a file that has a part of its split."""

_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


@dataclass(frozen=True)
class Match:
    """A file that belongs to a data set."""

    path: Path
    layout: Layout
    files: Files
    split: str
    variant: str
    language: str
    folder: str | None
    """The folder whose name matters to metaxlm, as it is named here."""

    @property
    def root(self) -> Path:
        """The folder that the recipe has to name."""
        parents = self.path.parents
        return parents[min(self.layout.levels, len(parents) - 1)]


def list_files(folder: Path) -> tuple[list[Path], list[str]]:
    """List the files below a folder, links followed, each folder once; and what hindered it."""
    if not folder.is_dir():
        what = "not a folder" if folder.exists() else "no such folder"
        raise MetaXLMError(f"{folder}: {what}; name the folder that holds the data sets")
    found: list[Path] = []
    complaints: list[str] = []
    seen: set[tuple[int, int]] = set()

    def visit(current: Path, depth: int) -> None:
        try:
            status = current.stat()
            if (status.st_dev, status.st_ino) in seen:
                return
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(current) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            complaints.append(f"{current}: cannot be searched ({error.strerror})")
            return
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _SKIPPED or len(found) > MOST_FILES:
                continue
            path = current / entry.name
            if not path.is_dir():  # also of a link that leads to itself
                found.append(path)
            elif depth < DEEPEST:
                visit(path, depth + 1)

    visit(folder.absolute(), 0)
    if len(found) > MOST_FILES:
        complaints.append(f"{folder}: more than {MOST_FILES:,} files; only the first are searched")
    return found, complaints


def match_files(data_set: DataSet, paths: Sequence[Path], names: Sequence[str]) -> Iterator[Match]:
    """Yield the files that a layout describes; `names` are the paths with `/` between folders."""
    for layout in data_set.layouts:
        for files in layout.files:
            pattern = re.compile(files.pattern)
            for path, name in zip(paths, names, strict=True):
                found = pattern.search(name)
                if found is None:
                    continue
                groups = found.groupdict()
                split = groups.get("split") or files.split
                if groups.get("domain"):
                    split = f"{groups['domain']} {split}"
                variant = groups.get("variant") or (SUBSET if path.stem.endswith(SUBSET) else "")
                language = find_language(groups.get("language") or files.language)
                yield Match(path, layout, files, split, variant, language, groups.get("folder"))
