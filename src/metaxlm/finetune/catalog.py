"""The paper's finetuned tasks by name, in the order of its tables (Sections 4.2 and 4.3).

Batch size, learning rate, epochs and weight decay are the paper's. It gives no lengths: those of
tagging, XNLI and PAWS-X are xTune's, and Amazon reviews have that of the other classification
tasks. All tasks train in English, except Amazon reviews: each domain trains in each of its four
languages (the same language is the paper's supervised setting, the others its transfer directions)
and, without a dev set, takes the last epoch.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.classification import ClassificationTask
from metaxlm.finetune.data_sets import (
    AMAZON,
    DOMAINS,
    ENTITIES,
    MLQA,
    NLI_LABELS,
    PANX,
    PARAPHRASE_LABELS,
    PAWSX,
    SQUAD,
    TYDIQA,
    UDPOS,
    UPOS,
    XNLI,
    XQUAD,
    read_squad,
)
from metaxlm.finetune.layout import SPLITS, DataSet, find_files, list_data_files
from metaxlm.finetune.metrics import normalize_mlqa
from metaxlm.finetune.qa import SpanTask
from metaxlm.finetune.readers.lines import Examples
from metaxlm.finetune.readers.questions import Question
from metaxlm.finetune.readers.texts import NEGATIVE, POSITIVE
from metaxlm.finetune.tagging import POS_SCORES, TaggingTask
from metaxlm.finetune.task import AnyTask, DataFile, FinetuneSettings, Split
from metaxlm.languages import TASK_TITLES, task_languages

MINUS_XQUAD = "minus-xquad"
"""Variant of SQuAD's dev set without the paragraphs of XQuAD."""

_SQUAD_SETTINGS = FinetuneSettings(epochs=4, learning_rate=3e-5, length=384)
_AMAZON_LANGUAGES = ("en", *(code for code in task_languages("cls") if code != "en"))


def _describe(name: str, data_set: DataSet, **facts: Any) -> dict[str, Any]:
    """Return what all tasks have: name, title, languages, files and reader."""
    languages = facts.get("languages") or task_languages(name)

    def find(data_dir: Path) -> list[DataFile]:
        return list_data_files(find_files(data_dir, data_set), SPLITS, languages)

    shared = {"languages": languages, "find": find, "reader": data_set.read}
    return {"name": name, "title": TASK_TITLES[name], **shared, **facts}


def _find_reviews(domain: str) -> Callable[[Path], list[DataFile]]:
    splits: dict[str, Split] = {f"{domain} train": "train", f"{domain} test": "test"}
    return lambda data_dir: list_data_files(find_files(data_dir, AMAZON), splits)


def _find_tydiqa(data_dir: Path) -> list[DataFile]:
    """List TyDiQA's files; its dev sets are the test sets, and English dev selects too.

    So does XTREME, and the paper after it: the test sets have no answers.
    """
    splits: dict[str, Split] = {"train": "train", "dev": "test"}
    found = find_files(data_dir, TYDIQA)
    files = [
        replace(file, name=file.name.replace("test", "dev"))
        for file in list_data_files(found, splits, task_languages("tydiqa"))
    ]
    english = [file for file in files if (file.split, file.language) == ("test", "en")]
    return [*files, *(replace(file, split="select") for file in english)]


def _find_with_squad(data_set: DataSet) -> Callable[[Path], list[DataFile]]:
    def find(data_dir: Path) -> list[DataFile]:
        own = list_data_files(find_files(data_dir, data_set), {"dev": "dev", "test": "test"})
        return [*_find_squad(data_dir), *own]

    return find


def _find_squad(data_dir: Path) -> list[DataFile]:
    """List SQuAD's files for training and selection.

    XQuAD and MLQA share them, so that one finetuned model serves both. XQuAD is a translated part
    of SQuAD's dev set: the other 9,380 questions select the epoch, because all of them would select
    on test questions.
    """
    found = find_files(data_dir, SQUAD)
    train = list_data_files(found, {"train": "train"})
    dev = {file.variant == MINUS_XQUAD: file for file in found if file.split == "dev"}
    name = f"dev-{MINUS_XQUAD}"
    if True in dev:
        return [*train, DataFile("en", "select", dev[True].path, name)]
    if not dev:
        return train
    english = [file.path for file in find_files(data_dir, XQUAD) if file.language == "en"]
    if not english:
        return [*train, DataFile("en", "select", dev[False].path, "dev")]
    return [*train, DataFile("en", "select", dev[False].path, name, excluding=english[0])]


def _read_with_squad(file: DataFile) -> Examples[Question]:
    examples = read_squad(file)
    if (file.split, file.name) != ("select", "dev"):
        return examples
    notice = (
        f"{file.path}: xquad.en.json is not below the data folder, so the 1,190 questions of XQuAD "
        f"select too; do not report XQuAD with it"
    )
    return Examples(examples.items, (*examples.notices, notice))


def _describe_squad(name: str, data_set: DataSet) -> dict[str, Any]:
    find = _find_with_squad(data_set)
    facts = {"settings": _SQUAD_SETTINGS, "find": find, "reader": _read_with_squad}
    return _describe(name, data_set, trains_on="squad", **facts)


_XTREME: tuple[AnyTask, ...] = (
    TaggingTask(
        **_describe("udpos", UDPOS, labels=UPOS),
        settings=FinetuneSettings(epochs=10, learning_rate=1e-5),
        scores=POS_SCORES,
    ),
    TaggingTask(
        **_describe("panx", PANX, labels=ENTITIES),
        settings=FinetuneSettings(epochs=10, learning_rate=7e-6, batch_size=8),
    ),
    SpanTask(**_describe_squad("xquad", XQUAD)),
    SpanTask(**_describe_squad("mlqa", MLQA), normalize=normalize_mlqa),
    SpanTask(
        **_describe("tydiqa", TYDIQA, find=_find_tydiqa),
        settings=FinetuneSettings(epochs=40, learning_rate=4e-5, length=384),
    ),
    ClassificationTask(
        **_describe("xnli", XNLI, labels=NLI_LABELS),
        settings=FinetuneSettings(epochs=6, learning_rate=1e-5, weight_decay=0.01, length=256),
    ),
    ClassificationTask(
        **_describe("pawsx", PAWSX, labels=PARAPHRASE_LABELS),
        settings=FinetuneSettings(epochs=10, learning_rate=2e-5, weight_decay=0.01, length=256),
    ),
)
_AMAZON: tuple[AnyTask, ...] = tuple(
    ClassificationTask(
        **_describe(
            f"amazon-{domain}", AMAZON, languages=_AMAZON_LANGUAGES, find=_find_reviews(domain)
        ),
        labels=(NEGATIVE, POSITIVE),
        sources=_AMAZON_LANGUAGES,
        settings=FinetuneSettings(
            epochs=5, learning_rate=2e-5, weight_decay=0.01, length=256, select_by="last"
        ),
    )
    for domain in DOMAINS
)

TASKS: dict[str, AnyTask] = {task.name: task for task in (*_XTREME, *_AMAZON)}
"""The finetuned tasks by name."""

GROUPS: dict[str, tuple[str, ...]] = {
    "xtreme": tuple(task.name for task in _XTREME),
    "amazon": tuple(task.name for task in _AMAZON),
}
"""Names for several tasks."""


def expand_tasks(name: str) -> tuple[str, ...]:
    """Return the tasks of a name: itself, or those of a group."""
    if name in TASKS:
        return (name,)
    if name in GROUPS:
        return GROUPS[name]
    known = [*TASKS, *GROUPS]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    advice = f"; did you mean {near[0]}?" if near else ""
    raise MetaXLMError(f"unknown task {name!r}{advice} (known: {', '.join(known)})")


def find_tasks(text: str) -> list[str]:
    """Return the tasks of a list such as `xnli,amazon`, each once, in the order given."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise MetaXLMError(f"no task in the list; known: {', '.join([*TASKS, *GROUPS])}")
    return list(dict.fromkeys(task for name in names for task in expand_tasks(name)))
