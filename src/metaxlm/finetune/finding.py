"""Where the files of a task lie: a data folder and a description come in, files go out.

The descriptions are those of `metaxlm data check` (`data_folder/finetuning_sets.py`), so whatever
it says is read is found here: XTREME's download tree and the releases of the authors, wherever they
lie below the folder. Each split of each language is found once, or it is an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.data_folder.content import MANY
from metaxlm.finetune.data_folder.description import DataSet
from metaxlm.finetune.data_folder.search import SUBSET, Match, list_files, match_files
from metaxlm.finetune.task import DataFile, Split

DERIVED = "derived"
"""Variant of a file whose labels are not the official ones."""

_ORDER = {"": 0, SUBSET: 1, DERIVED: 2}

SPLITS: Mapping[str, Split] = {"train": "train", "dev": "dev", "test": "test"}
"""Splits of a release, and what a task takes them for."""


@dataclass(frozen=True)
class FoundFile:
    """One file of a data set."""

    path: Path
    split: str
    """`train`, `dev`, `test`, or with a domain, such as `books test`."""
    variant: str
    """Empty for the official and whole one, `subset`, `derived`, or another name of the release."""
    language: str
    """Our code; `MANY` for a file with several."""


def find_files(data_dir: Path, data_set: DataSet) -> list[FoundFile]:
    """Find the files of a data set, each split of each language once.

    The whole wins over a subset, and the official file over a derived one; of two that are equally
    good neither is taken silently. Any other variant (`minus-xquad`) is a set of its own.
    """
    paths, _ = list_files(data_dir)
    candidates: dict[tuple[str, str, str], list[Match]] = defaultdict(list)
    for match in match_files(data_set, paths, [path.as_posix() for path in paths]):
        if match.layout.reading == "yes":
            kind = "" if match.variant in _ORDER else match.variant
            candidates[match.split, kind, match.language].append(match)
    return [_choose(matches, data_set.name) for matches in candidates.values()]


def _choose(matches: Sequence[Match], name: str) -> FoundFile:
    """Take the best of the files for one split and language."""
    ranks = [(_ORDER.get(match.variant, 0), match.layout.is_fallback) for match in matches]
    first, *others = (
        match for match, rank in zip(matches, ranks, strict=True) if rank == min(ranks)
    )
    for other in others:
        if other.path.resolve() != first.path.resolve():
            raise MetaXLMError(
                f"{first.path} and {other.path}: both are {name}'s {first.split} set of "
                f"{first.language}; keep one of them below the data folder"
            )
    return FoundFile(first.path, first.split, first.variant, first.language)


def list_data_files(
    files: Iterable[FoundFile],
    splits: Mapping[str, Split] = SPLITS,
    languages: Sequence[str] = (),
) -> list[DataFile]:
    """Turn found files into a task's, by the splits that it uses; other files are left out.

    A file with several languages stands for each of `languages` that has no file of its own.
    Subsets and derived labels are named: `train-subset`, `test-derived`.
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
