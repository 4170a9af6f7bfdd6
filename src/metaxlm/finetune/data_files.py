"""Find the files of a data set below a folder, by the layouts in which people have it.

`data_sets.py` describes the layouts as patterns over paths. The folder may be XTREME's `download`,
its parent, or any folder of data sets. Each split of each language is found once, or an error names
both files.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any, Literal

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.input_lines import Examples
from metaxlm.finetune.task import DataFile, Split
from metaxlm.languages import LANGUAGES, list_iso3

DEEPEST, MOST_FILES = 6, 300_000
"""Levels of folders and number of files that are searched."""
MANY = "*"
"""Language of a file that has several."""
SUBSET, DERIVED = "subset", "derived"
"""Variants of a file: a part of its split, and labels that are not the official ones."""
SPLITS: Mapping[str, Split] = {"train": "train", "dev": "dev", "test": "test"}
"""Splits of a release, and the splits of a task that use them."""

_ORDER = {"": 0, SUBSET: 1, DERIVED: 2}
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
_ALIASES = {iso3: code for code in LANGUAGES for iso3 in list_iso3(code)} | {"jp": "ja"}
_ALIASES |= {known.name.lower(): code for code, known in LANGUAGES.items()}
_ALIASES |= {known.wiki: code for code, known in reversed(LANGUAGES.items())}

Read = Callable[[DataFile], Examples[Any]]


@dataclass(frozen=True)
class Layout:
    """One arrangement of a data set's files; files of one place may have several patterns."""

    name: str
    shape: str
    """The files, as shown to the user; empty for a further pattern of the layout before."""
    pattern: str
    """Searched in the path, `/` between folders; groups `language`, `split`, `domain`, `variant`
    and `folder`."""
    split: str = ""
    """Split and language, if the pattern has none."""
    language: str = "en"
    usage: str = "evaluation.data: {folder}"
    """The recipe's key; `{}` is the folder `levels` above the file's own, `{folder}` the searched
    one."""
    levels: int = 0
    """Levels from the files of one copy up to their common folder."""
    fix: str = ""
    """How to convert the files, if metaxlm does not read this layout."""
    folder: str = ""
    """The name of the group `folder` that metaxlm reads."""
    is_fallback: bool = False
    """Whether its files are read only if no other layout has the split."""
    unit: Literal["examples", "entries", "articles", "bytes"] = "examples"
    read: Read | None = None
    """Reader, if it is not the data set's."""


@dataclass(frozen=True)
class DataSet:
    """A published data set."""

    name: str
    purpose: str
    home: str
    license: str
    layouts: tuple[Layout, ...]
    needs: Mapping[str, tuple[str, ...]]
    """Languages by split; `a|b` is a need that either split meets."""
    read: Read
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Known numbers of examples by split and language; the key "" is for all other languages."""
    archives: str = r"$^"
    """Names of the packed release."""
    traps: Mapping[str, str] = field(default_factory=dict)
    """Patterns of files that are easily mistaken for it, and a note for the user."""
    advice: str = ""
    """A note about the release, for a copy without labels."""


@dataclass(frozen=True)
class Match:
    """A file that belongs to a data set."""

    path: Path
    layout: Layout
    split: str
    """`train`, `dev`, `test`, or with a domain, such as `books test`."""
    variant: str
    """Empty for the official whole file, `subset`, `derived`, or another name of the release."""
    language: str
    folder: str | None

    @property
    def root(self) -> Path:
        """The folder that the recipe has to name."""
        parents = self.path.parents
        return parents[min(self.layout.levels, len(parents) - 1)]


def find_language(text: str) -> str:
    """Return our code for a code or name in a file name; unknown ones are returned as they are."""
    return text if text in LANGUAGES else _ALIASES.get(text.replace("_", "-"), text)


def list_files(folder: Path) -> tuple[list[Path], list[str]]:
    """List the files below a folder and the problems; follow links, visit each folder once."""
    if not folder.is_dir():
        what = "not a folder" if folder.exists() else "no such folder"
        raise MetaXLMError(f"{folder}: {what}; name the folder that holds the data sets")
    found: list[Path] = []
    errors: list[OSError] = []
    problems: list[str] = []
    seen: set[tuple[int, int]] = set()
    top = folder.absolute()
    for name, folders, files in os.walk(top, followlinks=True, onerror=errors.append):
        current = Path(name)
        status = current.stat()
        is_deep = len(current.parts) - len(top.parts) >= DEEPEST
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        kept = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED)
        folders[:] = [] if is_deep else kept
        found += [current / file for file in sorted(files) if not file.startswith(".")]
        if len(found) > MOST_FILES:
            problems.append(f"{folder}: more than {MOST_FILES:,} files; the others are ignored")
            break
    unread = [f"{error.filename}: cannot be searched ({error.strerror})" for error in errors]
    return found, [*unread, *problems]


def match_files(data_set: DataSet, paths: Sequence[Path]) -> Iterator[Match]:
    """Yield the files that a layout of the data set describes."""
    names = [path.as_posix() for path in paths]
    for layout in data_set.layouts:
        pattern = re.compile(layout.pattern)
        for path, name in zip(paths, names, strict=True):
            if not (found := pattern.search(name)):
                continue
            groups = found.groupdict("")
            split = f"{groups.get('domain', '')} {groups.get('split') or layout.split}".strip()
            variant = groups.get("variant") or (SUBSET if path.stem.endswith(SUBSET) else "")
            language = find_language(groups.get("language") or layout.language)
            yield Match(path, layout, split, variant, language, groups.get("folder"))


def find_files(data_dir: Path, data_set: DataSet) -> list[Match]:
    """Find the files of a data set, each split of each language once.

    The whole file is preferred to a subset, the official one to a derived one; two equally good
    files are an error. Any other variant (`minus-xquad`) is a set of its own.
    """
    paths, _ = list_files(data_dir)
    candidates: dict[tuple[str, str, str], list[Match]] = defaultdict(list)
    for match in match_files(data_set, paths):
        if not match.layout.fix:
            kind = "" if match.variant in _ORDER else match.variant
            candidates[match.split, kind, match.language].append(match)
    chosen: list[Match] = []
    for matches in candidates.values():
        ranks = [(_ORDER.get(match.variant, 0), match.layout.is_fallback) for match in matches]
        first, *others = compress(matches, [rank == min(ranks) for rank in ranks])
        for other in others:
            if other.path.resolve() != first.path.resolve():
                raise MetaXLMError(
                    f"{first.path} and {other.path}: both are {data_set.name}'s {first.split} set "
                    f"of {first.language}; keep one of them below the data folder"
                )
        chosen.append(first)
    return chosen


def list_data_files(
    files: Iterable[Match], splits: Mapping[str, Split] = SPLITS, languages: Sequence[str] = ()
) -> list[DataFile]:
    """Return the files of a task, by the splits that it uses.

    A file with several languages is used for each of `languages` without a file of its own.
    """
    named: dict[tuple[str, str], DataFile] = {}
    for file in sorted(files, key=lambda file: file.language != MANY):
        if file.split not in splits or file.variant not in _ORDER:
            continue
        split = splits[file.split]
        name = f"{split}-{file.variant}" if file.variant else split
        for code in languages if file.language == MANY else (file.language,):
            named[split, code] = DataFile(code, split, file.path, name)
    return [named[key] for key in sorted(named)]
