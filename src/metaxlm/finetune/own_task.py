"""A task of the user's own: a YAML of about ten lines comes in, a `Task` like the paper's goes out.

`config/own_task.py` says what the YAML may hold, `docs/own_data.md` is the guide. Whatever can be
wrong with it is told before anything is trained, with the line of the YAML or of the data file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.own_kinds import OwnClassification, OwnQuestions, OwnTagging, OwnTask
from metaxlm.finetune.registry import GROUPS, TASKS
from metaxlm.finetune.task import DataFile, FinetuneSettings, SelectBy, Split
from metaxlm.languages import explain_unknown
from metaxlm.progress import say
from metaxlm.recipe.evaluation_schema import OwnKind, OwnTaskRecipe
from metaxlm.recipe.load import Lines, load_section

DEFAULTS: dict[OwnKind, FinetuneSettings] = {
    "classification": FinetuneSettings(epochs=5, learning_rate=2e-5, weight_decay=0.01, length=256),
    "tagging": FinetuneSettings(epochs=10, learning_rate=2e-5, weight_decay=0.01, length=256),
    "questions": FinetuneSettings(epochs=3, learning_rate=3e-5, weight_decay=0.01, length=384),
}

KINDS: dict[OwnKind, type[OwnClassification] | type[OwnTagging] | type[OwnQuestions]] = {
    "classification": OwnClassification,
    "tagging": OwnTagging,
    "questions": OwnQuestions,
}

ALLOWED: dict[OwnKind, dict[str, tuple[str, ...]]] = {
    "classification": {
        "metric": ("accuracy", "macro_f1"),
        "columns": ("text", "second", "label"),
        "keys": ("labels",),
    },
    "tagging": {
        "metric": ("span_f1", "accuracy"),
        "columns": ("word", "tag"),
        "keys": ("labels",),
    },
    "questions": {"metric": ("f1",), "columns": (), "keys": ("stride",)},
}
"""What the kinds of task can be told; the other keys are for all."""

_JOINED = "+"
"""Between the languages of a model that is trained on several at once."""


@dataclass(frozen=True)
class _Yaml:
    """A checked YAML, and where its keys stand."""

    path: Path
    recipe: OwnTaskRecipe
    lines: Lines

    def at(self, *keys: str) -> str:
        """Return file and line of the innermost of the keys that is there."""
        known = (self.lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self.lines)
        line = next(known, None)
        return f"{self.path}:{line}" if line else str(self.path)


def load_own_task(path: Path) -> OwnTask:
    """Make a task of a YAML file; its training files are read for their labels."""
    recipe, lines = load_section(path, OwnTaskRecipe)
    yaml = _Yaml(path, recipe, lines)
    _check_name(yaml)
    _check_keys(yaml)
    for line in explain_unknown([*recipe.train, *recipe.dev, *recipe.test]):
        say(f"{path}: {line}")
    files = _list_files(yaml)
    sources = tuple(file.language for file in files if file.split == "train")
    settings = _choose_settings(yaml, files, sources)
    return KINDS[recipe.kind].make(recipe, files, sources, settings)


def _check_name(yaml: _Yaml) -> None:
    known = (*TASKS, *GROUPS, "tatoeba", "alignment")
    if yaml.recipe.name in known:
        raise MetaXLMError(
            f"{yaml.at('name')}: {yaml.recipe.name!r} is a task of ours; choose another name"
        )


def _check_keys(yaml: _Yaml) -> None:
    """Refuse what the kind of task has no use for."""
    recipe, kind = yaml.recipe, yaml.recipe.kind
    allowed = ALLOWED[kind]
    if recipe.metric and recipe.metric not in allowed["metric"]:
        raise MetaXLMError(
            f"{yaml.at('metric')}: metric: {kind} is scored by {' or '.join(allowed['metric'])}, "
            f"found {recipe.metric!r}"
        )
    for key in recipe.columns.model_fields_set - set(allowed["columns"]):
        known = ", ".join(allowed["columns"]) or "none; SQuAD's JSON has its own"
        raise MetaXLMError(
            f"{yaml.at('columns', key)}: columns.{key}: {kind} does not read it; known: {known}"
        )
    for key in ("labels", "stride"):
        if getattr(recipe, key) is not None and key not in allowed["keys"]:
            raise MetaXLMError(f"{yaml.at(key)}: {key}: {kind} has no use for it; delete it")
    chosen = [value for _, value in recipe.columns if value is not None]
    if 0 in chosen:
        raise MetaXLMError(f"{yaml.at('columns')}: columns: they count from 1, found 0")
    if kind == "classification" and len({type(value) for value in chosen}) > 1:
        raise MetaXLMError(
            f"{yaml.at('columns')}: columns: give names for files with a header, or numbers for "
            f"files without, not both"
        )
    if not recipe.dev and not recipe.test:
        raise MetaXLMError(f"{yaml.path}: nothing to score; name a file under test or dev")


def _list_files(yaml: _Yaml) -> tuple[DataFile, ...]:
    """List all files; several languages that train together are one file of several parts."""
    recipe = yaml.recipe
    train, dev, test = (
        _find_split(yaml, split, getattr(recipe, split)) for split in ("train", "dev", "test")
    )
    _tell_reused(yaml, train, (*dev, *test))
    if not recipe.train_together or len(train) == 1:
        return (*train, *dev, *test)
    joined = _join(train, "train")
    selecting = [file for file in dev if file.language in recipe.train]
    return (
        joined,
        *([_join(selecting, "select", joined.language)] if selecting else []),
        *dev,
        *test,
    )


def _find_split(yaml: _Yaml, split: Split, paths: Mapping[str, Path]) -> tuple[DataFile, ...]:
    files = []
    for language, path in paths.items():
        whole = yaml.path.parent / path
        if not whole.is_file():
            raise MetaXLMError(
                f"{yaml.at(split, language)}: {split}.{language}: {whole}: no such file; paths "
                f"start at the folder of the YAML"
            )
        files.append(DataFile(language, split, whole, split))
    return tuple(files)


def _tell_reused(yaml: _Yaml, train: Sequence[DataFile], scored: Sequence[DataFile]) -> None:
    trained = {file.path.resolve() for file in train}
    for file in scored:
        if file.path.resolve() in trained:
            say(
                f"{yaml.at(file.split, file.language)}: {file.split}.{file.language}: this file is "
                f"trained on, so its score says nothing about new text"
            )


def _join(files: Sequence[DataFile], split: Split, language: str = "") -> DataFile:
    language = language or _JOINED.join(file.language for file in files)
    return DataFile(language, split, files[0].path, files[0].name, tuple(files))


def _choose_settings(
    yaml: _Yaml, files: Sequence[DataFile], sources: Sequence[str]
) -> FinetuneSettings:
    recipe = yaml.recipe
    names = [field.name for field in fields(FinetuneSettings)]
    given: dict[str, Any] = {
        name: getattr(recipe, name) for name in names if getattr(recipe, name) is not None
    }
    settings = replace(DEFAULTS[recipe.kind], **given)
    if settings.stride >= settings.length and recipe.kind == "questions":
        raise MetaXLMError(
            f"{yaml.at('stride')}: stride: windows of {settings.length} tokens that start every "
            f"{settings.stride} do not overlap; choose less"
        )
    return replace(settings, select_by=_choose_selection(yaml, files, sources))


def _choose_selection(yaml: _Yaml, files: Sequence[DataFile], sources: Sequence[str]) -> SelectBy:
    """Return what picks the epoch: as told, or the best that the dev files allow, which is said."""
    recipe = yaml.recipe
    selecting = {file.language for file in files if file.split in ("dev", "select")}
    missing = [source for source in sources if source not in selecting]
    wanted = recipe.select_by
    if wanted == "last" or (wanted is None and not recipe.dev):
        if not recipe.dev:
            say(f"{recipe.name}: no dev file, so the last epoch is taken")
        return "last"
    if not recipe.dev:
        raise MetaXLMError(f"{yaml.at('select_by')}: select_by: {wanted}, but there is no dev file")
    if wanted == "all" or not missing:
        return wanted or "source"
    if wanted == "source":
        raise MetaXLMError(
            f"{yaml.at('select_by')}: select_by: source, but dev has no file for "
            f"{' '.join(missing)}; found: {' '.join(recipe.dev)}"
        )
    say(
        f"{recipe.name}: no dev file for {' '.join(missing)}; the mean over {' '.join(recipe.dev)} "
        f"picks the epoch"
    )
    return "all"
