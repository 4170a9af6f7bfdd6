"""The paper's finetuned tasks by name, in the order of its tables (Sections 4.2 and 4.3).

Batch size, learning rate, epochs and weight decay are the paper's; it gives no lengths. All tasks
train in English, except Amazon reviews: each domain trains in each of its four languages (the same
language is the paper's supervised setting) and, without a dev set, takes the last epoch.
"""

import difflib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.finetune import data_sets
from metaxlm.finetune.classification import ClassificationTask
from metaxlm.finetune.data_files import SPLITS, DataSet, find_files, list_data_files
from metaxlm.finetune.metrics import normalize_mlqa
from metaxlm.finetune.qa import SpanTask
from metaxlm.finetune.readers.input_lines import Examples
from metaxlm.finetune.readers.questions import Question
from metaxlm.finetune.readers.texts import NEGATIVE, POSITIVE
from metaxlm.finetune.tagging import POS_SCORES, TaggingTask
from metaxlm.finetune.task import AnyTask, DataFile, FinetuneSettings, Split
from metaxlm.languages import TASK_TITLES, task_languages

MINUS_XQUAD = "minus-xquad"
"""Variant of SQuAD's dev set without the paragraphs of XQuAD."""

_AMAZON_LANGUAGES = ("en", *(code for code in task_languages("cls") if code != "en"))


def _describe(
    name: str, data_set: DataSet, splits: Mapping[str, Split] = SPLITS, **facts: Any
) -> dict[str, Any]:
    """Return what all tasks have: name, title, languages, files and reader."""
    languages = facts.get("languages") or task_languages(name)

    def find(data_dir: Path) -> list[DataFile]:
        return list_data_files(find_files(data_dir, data_set), splits, languages)

    shared = {"languages": languages, "list_files": find, "reader": data_set.read}
    return {"name": name, "title": TASK_TITLES[name], **shared, **facts}


def _find_tydiqa(data_dir: Path) -> list[DataFile]:
    """List TyDiQA's files; as in XTREME, its dev sets are the test sets, and English selects."""
    splits: dict[str, Split] = {"train": "train", "dev": "test"}
    found = find_files(data_dir, data_sets.TYDIQA)
    files = [
        replace(file, name=file.name.replace("test", "dev"))
        for file in list_data_files(found, splits, task_languages("tydiqa"))
    ]
    english = [file for file in files if (file.split, file.language) == ("test", "en")]
    return [*files, *(replace(file, split="select") for file in english)]


def _find_squad(data_dir: Path) -> list[DataFile]:
    """List SQuAD's files for training and selection, which XQuAD and MLQA share.

    XQuAD is a translated part of SQuAD's dev set: only the other 9,380 questions select the epoch.
    """
    found = find_files(data_dir, data_sets.SQUAD)
    train = list_data_files(found, {"train": "train"})
    dev = {file.variant == MINUS_XQUAD: file for file in found if file.split == "dev"}
    name = f"dev-{MINUS_XQUAD}"
    if True in dev:
        return [*train, DataFile("en", "select", dev[True].path, name)]
    if not dev:
        return train
    xquad = find_files(data_dir, data_sets.XQUAD)
    english = next((file.path for file in xquad if file.language == "en"), None)
    name = name if english else "dev"
    return [*train, DataFile("en", "select", dev[False].path, name, excluding=english)]


def _read_with_squad(file: DataFile) -> Examples[Question]:
    examples = data_sets.read_squad(file)
    if (file.split, file.name) != ("select", "dev"):
        return examples
    notice = (
        f"{file.path}: xquad.en.json is not below the data folder, so the 1,190 questions of XQuAD "
        f"select too; do not report XQuAD with it"
    )
    return Examples(examples.items, (*examples.notices, notice))


def _describe_squad(name: str, data_set: DataSet) -> dict[str, Any]:
    def find(data_dir: Path) -> list[DataFile]:
        own = list_data_files(find_files(data_dir, data_set), {"dev": "dev", "test": "test"})
        return [*_find_squad(data_dir), *own]

    facts = _describe(name, data_set, list_files=find, reader=_read_with_squad, training="squad")
    return facts | {"settings": FinetuneSettings(epochs=4, learning_rate=3e-5, length=384)}


_XTREME: tuple[AnyTask, ...] = (
    TaggingTask(
        **_describe("udpos", data_sets.UDPOS, labels=data_sets.UPOS),
        settings=FinetuneSettings(epochs=10, learning_rate=1e-5),
        scores=POS_SCORES,
    ),
    TaggingTask(
        **_describe("panx", data_sets.PANX, labels=data_sets.ENTITIES),
        settings=FinetuneSettings(epochs=10, learning_rate=7e-6, batch_size=8),
    ),
    SpanTask(**_describe_squad("xquad", data_sets.XQUAD)),
    SpanTask(**_describe_squad("mlqa", data_sets.MLQA), normalize=normalize_mlqa),
    SpanTask(
        **_describe("tydiqa", data_sets.TYDIQA, list_files=_find_tydiqa),
        settings=FinetuneSettings(epochs=40, learning_rate=4e-5, length=384),
    ),
    ClassificationTask(
        **_describe("xnli", data_sets.XNLI, labels=data_sets.NLI_LABELS),
        settings=FinetuneSettings(epochs=6, learning_rate=1e-5, weight_decay=0.01, length=256),
    ),
    ClassificationTask(
        **_describe("pawsx", data_sets.PAWSX, labels=data_sets.PARAPHRASE_LABELS),
        settings=FinetuneSettings(epochs=10, learning_rate=2e-5, weight_decay=0.01, length=256),
    ),
)
_AMAZON: tuple[AnyTask, ...] = tuple(
    ClassificationTask(
        **_describe(
            f"amazon-{domain}",
            data_sets.AMAZON,
            {f"{domain} train": "train", f"{domain} test": "test"},
            languages=_AMAZON_LANGUAGES,
        ),
        labels=(NEGATIVE, POSITIVE),
        sources=_AMAZON_LANGUAGES,
        settings=FinetuneSettings(
            epochs=5, learning_rate=2e-5, weight_decay=0.01, length=256, select_by="last"
        ),
    )
    for domain in data_sets.DOMAINS
)

TASKS: dict[str, AnyTask] = {task.name: task for task in (*_XTREME, *_AMAZON)}
GROUPS: dict[str, tuple[str, ...]] = {
    "xtreme": tuple(task.name for task in _XTREME),
    "amazon": tuple(task.name for task in _AMAZON),
}


def find_tasks(text: str) -> list[str]:
    """Return the tasks of a list such as `xnli,amazon`, each once, in the order given."""
    known = [*TASKS, *GROUPS]
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise MetaXLMError(f"no task in the list; known: {', '.join(known)}")
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
            advice = f"; did you mean {near[0]}?" if near else ""
            raise MetaXLMError(f"unknown task {name!r}{advice} (known: {', '.join(known)})")
    return list(dict.fromkeys(task for name in names for task in GROUPS.get(name, (name,))))
