"""A task's data, read and encoded: a folder comes in, training, selecting and judged sets go out.

Everything is read before anything is trained, so that a broken file shows at once, and once for
all seeds and all models that share a tokenizer. What is missing, unlabeled, cut or split is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.encoding import check_tokenizer
from metaxlm.finetune.task import DataFile, Features, FinetuneSettings, Split, Task
from metaxlm.model.encoder import EncoderConfig
from metaxlm.progress import say


@dataclass(frozen=True)
class Dataset:
    """One file, read and encoded."""

    file: DataFile
    examples: list[Any]
    features: list[Features]
    num_unlabeled: int

    @property
    def is_labeled(self) -> bool:
        """Whether at least one right answer is known."""
        return self.num_unlabeled < len(self.examples)


@dataclass(frozen=True)
class Levels:
    """Scores by name of answering without a model."""

    majority: dict[str, float]
    chance: dict[str, float]


@dataclass(frozen=True)
class TaskData:
    """All that one finetuning reads."""

    train: Dataset
    selecting: tuple[Dataset, ...]
    """Sets whose mean score picks the epoch; empty where the last one is taken."""
    judged: tuple[Dataset, ...]
    """Dev and test sets of the wanted languages, in their order."""
    levels: dict[DataFile, Levels] = field(default_factory=dict)
    """Levels of judged files that were needed so far: they are the same for every model."""


def load_data(
    task: Task[Any, Any],
    tokenizer: PreTrainedTokenizerBase,
    data_dir: Path,
    *,
    source: str,
    languages: Sequence[str],
    settings: FinetuneSettings,
    config: EncoderConfig,
    limit: int | None = None,
    loaded: dict[DataFile, Dataset] | None = None,
) -> TaskData:
    """Read and encode everything; a language needs a dev or a test file, which one is said.

    `limit` takes the first so many examples of each file, for a quick try. `loaded` has the files
    that were encoded before, with the same tokenizer and settings, and gets what is new.
    """
    loaded = {} if loaded is None else loaded
    check_tokenizer(tokenizer, config)
    if not 2 < settings.length <= config.max_positions:
        raise MetaXLMError(
            f"{task.name}: length {settings.length} does not fit the encoder's "
            f"{config.max_positions} positions; choose one from 3 to that"
        )
    files = {(file.split, file.language): file for file in task.list_files(data_dir)}

    def load(file: DataFile) -> Dataset:
        if file not in loaded:
            loaded[file] = _load(task, tokenizer, file, settings, limit)
        return loaded[file]

    train_file = _need(task, data_dir, files, ("train",), source)
    judged_files = _find_judged(task, data_dir, files, languages)
    selecting_files = _find_selecting(task, data_dir, files, judged_files, source, settings)
    train = load(train_file)
    if train.num_unlabeled:
        raise MetaXLMError(
            f"{train_file.path}: {train.num_unlabeled:,} of {len(train.examples):,} training "
            f"examples have no label; remove or label them"
        )
    selecting = tuple(load(file) for file in selecting_files)
    for data in selecting:
        if not data.is_labeled:
            raise MetaXLMError(
                f"{data.file.path}: its labels are blanked out, so it cannot pick an epoch; "
                f"restore them, or take the last epoch (select_by: last)"
            )
    return TaskData(train, selecting, tuple(load(file) for file in judged_files))


def _need(
    task: Task[Any, Any],
    data_dir: Path,
    files: dict[tuple[Split, str], DataFile],
    splits: Sequence[Split],
    language: str,
) -> DataFile:
    """Return the first file of these splits in a language, or say what is there."""
    for split in splits:
        if (split, language) in files:
            return files[split, language]
    there = sorted({code for split, code in files if split in splits})
    raise MetaXLMError(
        f"{data_dir}: no {splits[-1]} file of {task.name} for {language!r}; found here: "
        f"{' '.join(there) or 'nothing'} (`metaxlm data check` shows the layouts)"
    )


def _find_judged(
    task: Task[Any, Any],
    data_dir: Path,
    files: dict[tuple[Split, str], DataFile],
    languages: Sequence[str],
) -> list[DataFile]:
    """List the dev and test files of the languages, and say what is not there."""
    splits: tuple[Split, Split] = ("dev", "test")
    judged: list[DataFile] = []
    for language in languages:
        here = [files[split, language] for split in splits if (split, language) in files]
        if not here:
            either = sorted({code for split, code in files if split in splits})
            raise MetaXLMError(
                f"{data_dir}: no dev or test file of {task.name} for {language!r}; found here: "
                f"{' '.join(either) or 'nothing'}"
            )
        judged += here
    present = {file.split for file in judged}
    for split in splits:
        missing = [language for language in languages if (split, language) not in files]
        if missing and split in present:
            say(f"{task.name}: no {split} file for {' '.join(missing)}; no {split} score there")
    return judged


def _find_selecting(
    task: Task[Any, Any],
    data_dir: Path,
    files: dict[tuple[Split, str], DataFile],
    judged: Sequence[DataFile],
    source: str,
    settings: FinetuneSettings,
) -> list[DataFile]:
    if settings.select_by == "last":
        return []
    if settings.select_by == "source":
        return [_need(task, data_dir, files, ("select", "dev"), source)]
    selecting = [file for file in judged if file.split == "dev"]
    if not selecting:
        raise MetaXLMError(
            f"{data_dir}: no dev file of {task.name}; one is needed to pick an epoch"
        )
    return selecting


def _load(
    task: Task[Any, Any],
    tokenizer: PreTrainedTokenizerBase,
    file: DataFile,
    settings: FinetuneSettings,
    limit: int | None,
) -> Dataset:
    content = task.read(file)
    for notice in content.notices:
        say(f"{task.name}: {notice}")
    examples = content.items[:limit]
    num_unlabeled = sum(not task.is_labeled(example) for example in examples)
    if num_unlabeled and file.split != "train":
        what = "no example has" if num_unlabeled == len(examples) else f"{num_unlabeled:,} lack"
        say(f"{task.name}: {file.path}: {what} a label; predicted, not scored")
    encoded = task.featurize(examples, tokenizer, settings)
    if encoded.notice:
        say(f"{task.name} {file.name}-{file.language}: {encoded.notice}")
    return Dataset(file, examples, encoded.features, num_unlabeled)
