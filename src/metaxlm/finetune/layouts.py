"""Find the files of own tasks in folders: published data sets, and Hugging Face datasets on disk.

SIB-200 (topics), Taxi1500 (topics of verses) and MASSIVE (intents) are classification with a file
per language, named by codes such as `deu_Latn` or `de-DE`. A folder of `datasets`' `save_to_disk`
is read without that package.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json
from metaxlm.finetune.data_files import SPLITS, list_files
from metaxlm.finetune.readers.texts import Column
from metaxlm.finetune.task import DataFile, Split
from metaxlm.languages import find_code
from metaxlm.recipe.evaluation_schema import LayoutName

_CODE = r"(?P<language>[a-z]{3}(?:_[A-Z][a-z]{3})?)"
_SPLIT = r"(?P<split>train|dev|test)"
_SPLIT_NAMES = {"train": ("train",), "dev": ("validation", "dev", "valid"), "test": ("test",)}
"""Names of our splits in a Hugging Face dataset."""


@dataclass(frozen=True)
class TaskLayout:
    """The files of a published data set."""

    patterns: tuple[str, ...]
    """Of paths, with groups `language` and `split`; without a split, a file has all of them."""
    text: Column
    label: Column
    partition: Column | None = None
    """Column with the name of the split."""
    is_quoted: bool = False
    """Whether texts with quotes are written as in CSV."""
    shape: str = ""
    """The files, as shown to the user."""


LAYOUTS: dict[LayoutName, TaskLayout] = {
    "sib200": TaskLayout(
        (rf"/{_CODE}/{_SPLIT}\.tsv$",),
        text="text",
        label="category",
        is_quoted=True,
        shape="annotated/deu_Latn/{train,dev,test}.tsv",
    ),
    "taxi1500": TaskLayout(
        (rf"/{_CODE}_{_SPLIT}\.tsv$", rf"/{_SPLIT}/{_CODE}\.tsv$"),
        text=3,
        label=2,
        shape="deu_{train,dev,test}.tsv or {train,dev,test}/deu.tsv",
    ),
    "massive": TaskLayout(
        (r"/(?P<language>[a-z]{2}-[A-Z]{2})\.jsonl$",),
        text="utt",
        label="intent",
        partition="partition",
        shape="de-DE.jsonl",
    ),
}


def find_layout(
    folder: Path, name: LayoutName | None
) -> tuple[LayoutName, TaskLayout, list[DataFile]]:
    """Return the layout of a folder, the only one with files if it has no name, and its files."""
    paths, _ = list_files(folder)
    names = LAYOUTS if name is None else (name,)
    found = {each: files for each in names if (files := _match(LAYOUTS[each], paths))}
    if len(found) != 1:
        what = " and ".join(found) or "nothing"
        known = "; ".join(f"{each}: {LAYOUTS[each].shape}" for each in names)
        raise MetaXLMError(f"{folder}: expected the files of one layout, found {what} ({known})")
    ((chosen, files),) = found.items()
    return chosen, LAYOUTS[chosen], files


def _match(layout: TaskLayout, paths: Sequence[Path]) -> list[DataFile]:
    files: dict[tuple[str, Split], DataFile] = {}
    taken: dict[str, str] = {}
    for path in paths:
        matches = (re.search(pattern, path.as_posix()) for pattern in layout.patterns)
        if (match := next(filter(None, matches), None)) is None:
            continue
        groups = match.groupdict()
        name = groups["language"]
        code = find_code(name)
        # Two variants of a language: the second keeps its own name.
        code = code if taken.setdefault(code, name) == name else name
        splits = [groups["split"]] if "split" in groups else SPLITS
        for split in (SPLITS[each] for each in splits):
            if other := files.get((code, split)):
                what = f"both are the {split} set of {code}"
                raise MetaXLMError(f"{other.path} and {path}: {what}; name a folder with one")
            files[code, split] = DataFile(code, split, path, split)
    return list(files.values())


def list_shards(folder: Path, split: Split) -> list[Path]:
    """Return the Arrow files of a saved `Dataset`, or of a split of a saved `DatasetDict`."""
    splits = folder / "dataset_dict.json"
    if splits.is_file():
        present = dict(read_json(splits)).get("splits", [])
        name = next((name for name in _SPLIT_NAMES[split] if name in present), None)
        if name is None:
            found = f"found: {', '.join(present)}"
            raise MetaXLMError(f"{folder}: no split {split}; {found}; name the folder of one")
        folder = folder / name
    state = folder / "state.json"
    if not state.is_file():
        what = "has neither dataset_dict.json nor state.json of `datasets`' save_to_disk"
        raise MetaXLMError(f"{folder}: {what}; name a file")
    names = [entry["filename"] for entry in dict(read_json(state)).get("_data_files") or ()]
    for name in names:
        if not (folder / name).is_file():
            raise MetaXLMError(f"{folder / name}: no such file, but {state.name} names it")
    if not names:
        raise MetaXLMError(f"{state}: names no data file; save the dataset again")
    return [folder / name for name in names]
