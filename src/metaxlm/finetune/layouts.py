"""Find the files of own tasks in folders: published data sets, and Hugging Face datasets on disk.

SIB-200 (topics), Taxi1500 (topics of verses) and MASSIVE (intents) are classification with a file
per language, named by codes such as `deu_Latn` or `de-DE`. Belebele is multiple choice: a test file
per language, and an English training set. A folder of `datasets`' `save_to_disk` is read without
that package. FLORES+ and FLORES-200 are parallel sentences for retrieval.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json
from metaxlm.finetune.data_files import SPLITS, list_files
from metaxlm.finetune.readers.input_lines import read_lines
from metaxlm.finetune.readers.parallel import ParallelSentences
from metaxlm.finetune.readers.texts import read_rows
from metaxlm.finetune.task import DataFile, Split
from metaxlm.languages import find_code
from metaxlm.recipe.evaluation_schema import ColumnsRecipe, LayoutName, OwnKind

_CODE = r"(?P<language>[a-z]{3}(?:_[A-Z][a-z]{3})?)"
_CODE_AND_SCRIPT = r"(?P<language>[a-z]{3}_[A-Za-z][a-z]{3})"
_SPLIT = r"(?P<split>train|dev|test)"
_SPLIT_NAMES = {"train": ("train",), "dev": ("validation", "dev", "valid"), "test": ("test",)}
"""Names of our splits in a Hugging Face dataset."""
_FLORES = re.compile(rf"/(?P<split>devtest|dev)/{_CODE}\.(?:jsonl|devtest|dev)$")


@dataclass(frozen=True)
class TaskLayout:
    """The files of a published data set."""

    patterns: tuple[str, ...]
    """Of paths, with groups `language` (without it, English) and `split`."""
    columns: ColumnsRecipe
    kind: OwnKind = "classification"
    splits: tuple[str, ...] = tuple(SPLITS)
    """Splits in a file whose pattern has no group `split`."""
    partition: str | None = None
    """Column with the name of the split."""
    is_quoted: bool = False
    """Whether texts with quotes are written as in CSV."""
    shape: str = ""
    """The files, as shown to the user."""
    training: "TaskLayout | None" = None
    """Layout of the training and dev sets, where it is another one."""


LAYOUTS: dict[LayoutName, TaskLayout] = {
    "sib200": TaskLayout(
        (rf"/{_CODE}/{_SPLIT}\.tsv$",),
        ColumnsRecipe(text="text", label="category"),
        is_quoted=True,
        shape="annotated/deu_Latn/{train,dev,test}.tsv",
    ),
    "taxi1500": TaskLayout(
        (rf"/{_CODE}_{_SPLIT}\.tsv$", rf"/{_SPLIT}/{_CODE}\.tsv$"),
        ColumnsRecipe(text=3, label=2),
        shape="deu_{train,dev,test}.tsv or {train,dev,test}/deu.tsv",
    ),
    "massive": TaskLayout(
        (r"/(?P<language>[a-z]{2}-[A-Z]{2})\.jsonl$",),
        ColumnsRecipe(text="utt", label="intent"),
        partition="partition",
        shape="de-DE.jsonl",
    ),
    "belebele": TaskLayout(
        (rf"/{_CODE_AND_SCRIPT}(?:/test-[\d-]+(?:of-\d+)?)?\.(?:jsonl|csv|parquet)$",),
        ColumnsRecipe(
            context="flores_passage",
            question="question",
            choices=[f"mc_answer{k}" for k in range(1, 5)],
            answer="correct_answer_num",
        ),
        kind="multiple_choice",
        splits=("test",),
        shape="deu_Latn.jsonl",
        training=TaskLayout(
            (r"/belebele_training_set\.tsv$",),
            ColumnsRecipe(
                context="passage",
                question="question",
                choices=[f"answer{k}" for k in range(1, 5)],
                answer="correct_answer_num",
            ),
            splits=("train", "dev"),
            partition="split",
            shape="belebele_training_set.tsv",
        ),
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
        name = groups.get("language", "en")
        code = find_code(name)
        # Two variants of a language: the second keeps its own name.
        code = code if taken.setdefault(code, name) == name else name
        splits = [groups["split"]] if "split" in groups else layout.splits
        for split in (SPLITS[each] for each in splits):
            if other := files.get((code, split)):
                what = f"both are the {split} set of {code}"
                raise MetaXLMError(f"{other.path} and {path}: {what}; name a folder with one")
            files[code, split] = DataFile(code, split, path, split)
    more = _match(layout.training, paths) if layout.training is not None and files else []
    return [*more, *files.values()]


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


def list_flores(data_dir: Path) -> list[str]:
    """List the languages of FLORES+ or FLORES-200 that have the sentences of English."""
    return [code for code in find_flores(data_dir) if code != "en"]


def read_flores(data_dir: Path, language: str) -> ParallelSentences:
    """Read `devtest`, or `dev` without it: `deu_Latn.jsonl` or `deu_Latn.devtest`, and English."""
    files = find_flores(data_dir)
    if language not in files:
        found = " ".join(files) or "nothing"
        raise MetaXLMError(f"{data_dir}: no file of FLORES for {language!r}; found here: {found}")
    foreign, english = _read_sentences(files[language]), _read_sentences(files["en"])
    if foreign.keys() != english.keys():
        numbers = f"{len(foreign):,} and {len(english):,}"
        what = f"have other sentences ({numbers}); restore them"
        raise MetaXLMError(f"{files[language]} and {files['en'].name}: {what}")
    return ParallelSentences(
        language, tuple(foreign.values()), tuple(english[number] for number in foreign)
    )


def find_flores(data_dir: Path) -> dict[str, Path]:
    """Return the files of FLORES by language, of the test set if English has it."""
    splits: dict[str, dict[str, Path]] = {"devtest": {}, "dev": {}}
    for path in list_files(data_dir)[0]:
        if match := _FLORES.search(path.as_posix()):
            files, name = splits[match["split"]], match["language"]
            code = find_code(name)
            files.setdefault(name if code in files else code, path)
    return next((files for files in splits.values() if "en" in files), {})


def _read_sentences(path: Path) -> dict[str, str]:
    """Return sentences by id in FLORES+, or by line in FLORES-200."""
    if path.suffix == ".jsonl":
        rows = read_rows(path, ["text", "id"], 2)
        found = {row.cells[1] or "": row.cells[0] or "" for row in rows}
    else:
        found = {str(number): line for number, line in enumerate(read_lines(path))}
    for number, text in found.items():
        if not text.strip():
            raise MetaXLMError(f"{path}: the sentence {number} is empty; restore the file")
    return found
