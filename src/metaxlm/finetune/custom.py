"""Custom tasks: make a `Task` from a YAML file of about ten lines (`docs/own_data.md`).

Classification reads TSV, CSV or JSON lines, tagging CoNLL, questions SQuAD's JSON. Labels are those
of the training files unless the YAML lists them; span tags of any scheme become BIO. Errors have
the line of the YAML or of the data file.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.catalog import GROUPS, TASKS
from metaxlm.finetune.classification import ClassificationTask
from metaxlm.finetune.data_files import SPLITS
from metaxlm.finetune.data_sets import read_squad
from metaxlm.finetune.metrics import MLQA_LANGUAGES, normalize_mlqa, normalize_squad
from metaxlm.finetune.qa import SpanTask
from metaxlm.finetune.readers.conll import PREFIXES, TaggedSentence, convert_to_bio, read_conll
from metaxlm.finetune.readers.input_lines import Examples
from metaxlm.finetune.readers.texts import LabeledText, Row, read_rows
from metaxlm.finetune.tagging import TaggingTask
from metaxlm.finetune.task import AnyTask, DataFile, FinetuneSettings, SelectBy
from metaxlm.languages import explain_unknown
from metaxlm.progress import say
from metaxlm.recipe.evaluation_schema import OwnKind, OwnTaskRecipe
from metaxlm.recipe.recipe_file import Lines, load_section

DEFAULTS: dict[OwnKind, FinetuneSettings] = {
    "classification": FinetuneSettings(epochs=5, learning_rate=2e-5, weight_decay=0.01, length=256),
    "tagging": FinetuneSettings(epochs=10, learning_rate=2e-5, weight_decay=0.01, length=256),
    "questions": FinetuneSettings(epochs=3, learning_rate=3e-5, weight_decay=0.01, length=384),
}
METRICS: dict[OwnKind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1"),
    "tagging": ("span_f1", "accuracy"),
    "questions": ("f1",),
}
COLUMNS: dict[OwnKind, tuple[str, ...]] = {
    "classification": ("text", "second", "label"),
    "tagging": ("word", "tag"),
    "questions": (),
}
_LIST_LABELS = "If it is right, list all labels in the YAML under `labels`"


@dataclass(frozen=True)
class _Yaml:
    path: Path
    recipe: OwnTaskRecipe
    lines: Lines

    def at(self, *keys: str) -> str:
        """Return file and line of the innermost of the keys that exists."""
        known = (self.lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self.lines)
        line = next(known, None)
        return f"{self.path}:{line}" if line else str(self.path)

    def reject(self, *keys: str, problem: str) -> MetaXLMError:
        """Return an error about a key, with its line."""
        return MetaXLMError(f"{self.at(*keys)}: {'.'.join(keys)}: {problem}")


def load_custom_task(path: Path) -> AnyTask:
    """Make a task from a YAML file; reads its training files for their labels."""
    recipe, lines = load_section(path, OwnTaskRecipe)
    yaml = _Yaml(path, recipe, lines)
    if recipe.name in (*TASKS, *GROUPS, "tatoeba", "alignment"):
        problem = f"{recipe.name!r} is a built-in task; choose another name"
        raise MetaXLMError(f"{yaml.at('name')}: {problem}")
    for keys, problem in _find_mistakes(recipe):
        raise yaml.reject(*keys, problem=problem)
    if not recipe.dev and not recipe.test:
        raise MetaXLMError(f"{path}: nothing to score; name a file under test or dev")
    for line in explain_unknown([*recipe.train, *recipe.dev, *recipe.test]):
        say(f"{path}: {line}")
    files = _list_files(yaml)
    sources = tuple(file.language for file in files if file.split == "train")
    facts: dict[str, Any] = {
        "name": recipe.name,
        "title": recipe.title or recipe.name,
        "languages": tuple(dict.fromkeys((*recipe.test, *recipe.dev))),
        "sources": sources,
        "settings": _choose_settings(yaml, files, sources),
        "reading": recipe.columns.model_dump_json(exclude_none=True),
        "list_files": lambda _: list(files),
    }
    if recipe.kind == "questions":
        return SpanTask(**facts, reader=read_squad, normalize=_normalize)
    training = [path for file in files if file.split == "train" for path in file.paths]
    make = _make_tagging if recipe.kind == "tagging" else _make_classification
    return make(recipe, training, facts)


def _normalize(text: str, language: str) -> str:
    # MLQA's rules for the languages that it has, SQuAD's for all others.
    is_known = language in MLQA_LANGUAGES
    return normalize_mlqa(text, language) if is_known else normalize_squad(text)


def _find_mistakes(recipe: OwnTaskRecipe) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the keys that the kind of task does not allow, with the problem."""
    kind = recipe.kind
    if recipe.metric and recipe.metric not in METRICS[kind]:
        known = " or ".join(METRICS[kind])
        yield ("metric",), f"{kind} is scored by {known}, found {recipe.metric!r}"
    for key in recipe.columns.model_fields_set - set(COLUMNS[kind]):
        known = ", ".join(COLUMNS[kind]) or "none; SQuAD's JSON has its own"
        yield ("columns", key), f"{kind} does not read it; known: {known}"
    for key, is_used in (("labels", kind != "questions"), ("stride", kind == "questions")):
        if getattr(recipe, key) is not None and not is_used:
            yield (key,), f"{kind} has no use for it; delete it"
    chosen = [value for _, value in recipe.columns if value is not None]
    if 0 in chosen:
        yield ("columns",), "they count from 1, found 0"
    if kind == "classification" and len({type(value) for value in chosen}) > 1:
        problem = "give names for files with a header, or numbers for files without, not both"
        yield ("columns",), problem


def _list_files(yaml: _Yaml) -> tuple[DataFile, ...]:
    recipe, files = yaml.recipe, []
    for split in SPLITS.values():
        for language, name in getattr(recipe, split).items():
            path = yaml.path.parent / name
            if not path.is_file():
                problem = f"{path}: no such file; paths start at the folder of the YAML"
                raise yaml.reject(split, language, problem=problem)
            files.append(DataFile(language, split, path, split))
    train = tuple(file for file in files if file.split == "train")
    trained = {file.path.resolve() for file in train}
    scored = files[len(train) :]
    for file in scored:
        if file.path.resolve() in trained:
            say(
                f"{yaml.at(file.split, file.language)}: {file.split}.{file.language}: a training "
                f"file too, so its score does not measure generalization"
            )
    if not recipe.train_together or len(train) == 1:
        return tuple(files)
    language = "+".join(file.language for file in train)
    joined = [DataFile(language, "train", train[0].path, "train", train)]
    dev = tuple(f for f in scored if f.split == "dev" and f.language in recipe.train)
    if dev:
        joined.append(DataFile(language, "select", dev[0].path, "dev", dev))
    return (*joined, *scored)


def _choose_settings(
    yaml: _Yaml, files: Sequence[DataFile], sources: Sequence[str]
) -> FinetuneSettings:
    names = {field.name for field in fields(FinetuneSettings)}
    given = yaml.recipe.model_dump(include=names, exclude_none=True)
    settings = replace(DEFAULTS[yaml.recipe.kind], **given)
    if settings.stride >= settings.length and yaml.recipe.kind == "questions":
        windows = f"windows of {settings.length} tokens that start every {settings.stride}"
        raise yaml.reject("stride", problem=f"{windows} do not overlap; choose less")
    return replace(settings, select_by=_choose_selection(yaml, files, sources))


def _choose_selection(yaml: _Yaml, files: Sequence[DataFile], sources: Sequence[str]) -> SelectBy:
    """Return how to choose the epoch: as requested, or the best that the dev files allow."""
    recipe, requested = yaml.recipe, yaml.recipe.select_by
    selecting = {file.language for file in files if file.split in ("dev", "select")}
    missing = [source for source in sources if source not in selecting]
    if requested == "last" or (requested is None and not recipe.dev):
        if not recipe.dev:
            say(f"{recipe.name}: no dev file, so the last epoch is taken")
        return "last"
    if not recipe.dev:
        raise yaml.reject("select_by", problem=f"{requested}, but there is no dev file")
    if requested == "all" or not missing:
        return requested or "source"
    absent, found = " ".join(missing), " ".join(recipe.dev)
    if requested == "source":
        problem = f"source, but dev has no file for {absent}; found: {found}"
        raise yaml.reject("select_by", problem=problem)
    say(f"{recipe.name}: no dev file for {absent}; the mean over {found} chooses the epoch")
    return "all"


def _make_classification(
    recipe: OwnTaskRecipe, training: Sequence[Path], facts: dict[str, Any]
) -> AnyTask:
    found: dict[str, str] = {}
    for path in training:
        for row in _read_table(recipe, path, num_optional=0):
            label = (row.cells[-1] or "").strip()
            if label:
                found.setdefault(label, f"{path}:{row.line}")
    if recipe.labels is None:
        _check_classes(found)
    labels = _choose_labels(recipe, recipe.labels, found)

    def read(file: DataFile) -> Examples[LabeledText]:
        texts = []
        for row in _read_table(recipe, file.path, num_optional=int(file.split == "test")):
            where = f"{file.path}:{row.line}"
            *sides, label = row.cells
            if not all(side and side.strip() for side in sides):
                raise MetaXLMError(f"{where}: the text is empty; fill it or delete the row")
            label = (label or "").strip() or None
            if label is not None:
                _check_label(label, labels, where)
            elif file.split != "test":
                raise MetaXLMError(f"{where}: no label, in a {file.split} file; label the row")
            first, second = (*sides, None)[:2]
            texts.append(LabeledText(first or "", second, label))
        return Examples(texts)

    metric = recipe.metric or "accuracy"
    return ClassificationTask(**facts, reader=read, labels=labels, metric=metric)


def _check_classes(found: dict[str, str]) -> None:
    """Reject labels of training that look like several labels in one, or like measurements."""
    parts = {label: [part.strip() for part in re.split(r"[,;|]", label)] for label in found}
    counts = Counter(part for one in parts.values() for part in set(one))
    for label, where in found.items():
        if shared := [part for part in parts[label] if len(parts[label]) > 1 and counts[part] > 1]:
            what = f"the label {label!r} looks like several, {shared[0]!r} is a part of others too"
            raise MetaXLMError(f"{where}: {what}; a text has one label. {_LIST_LABELS}")
    if not all(re.fullmatch(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", label) for label in found):
        return
    if broken := next((label for label in found if float(label) % 1), ""):
        where, count = found[broken], f"{len(found):,} numbers such as {broken}"
        what = f"the labels are {count}; a label is a class, and regression is not supported"
        raise MetaXLMError(f"{where}: {what}. {_LIST_LABELS}")


def _read_table(recipe: OwnTaskRecipe, path: Path, num_optional: int) -> list[Row]:
    columns = recipe.columns
    second = [columns.second] if columns.second else []
    requested = [columns.text or "text", *second, columns.label or "label"]
    return read_rows(path, requested, len(requested) - num_optional)


def _make_tagging(
    recipe: OwnTaskRecipe, training: Sequence[Path], facts: dict[str, Any]
) -> AnyTask:
    read_file = partial(read_conll, word=recipe.columns.word, tag=recipe.columns.tag)
    sentences = [(path, sentence) for path in training for sentence in read_file(path)]
    tags = {tag for _, sentence in sentences for tag in sentence.tags or ()}
    marks_spans = all(tag == "O" or _find_type(tag) for tag in tags) and tags != {"O"}
    metric = recipe.metric or ("span_f1" if marks_spans else "accuracy")
    if recipe.metric is None:
        say(f"{recipe.name}: scored by {metric}")

    def convert(sentence: TaggedSentence, path: Path) -> TaggedSentence:
        return convert_to_bio(sentence, path) if metric == "span_f1" else sentence

    found: dict[str, str] = {}
    for path, sentence in sentences:
        for line, tag in zip(sentence.lines, convert(sentence, path).tags or (), strict=False):
            found.setdefault(tag, f"{path}:{line}")
    requested = recipe.labels
    if metric == "span_f1":
        # A model must be able to continue every span that it can open.
        given = found if requested is None else requested
        types = sorted({_find_type(tag) or tag for tag in given if tag != "O"})
        requested = ["O", *(f"{letter}-{name}" for name in types for letter in "BI")]
        found = dict.fromkeys(requested, "") if recipe.labels is None else found
    labels = _choose_labels(recipe, requested, found)

    def read(file: DataFile) -> Examples[TaggedSentence]:
        converted = [convert(sentence, file.path) for sentence in read_file(file.path)]
        for sentence in converted:
            if not sentence.is_labeled and file.split != "test":
                where = f"{file.path}:{sentence.lines[0]}"
                raise MetaXLMError(
                    f"{where}: a sentence without tags, in a {file.split} file; tag it"
                )
            for line, tag in zip(sentence.lines, sentence.tags or (), strict=False):
                _check_label(tag, labels, f"{file.path}:{line}")
        return Examples(converted)

    scores = ("span_f1", "precision", "recall") if metric == "span_f1" else ("accuracy",)
    return TaggingTask(**facts, reader=read, labels=labels, scores=scores)


def _find_type(tag: str) -> str:
    prefix, _, name = tag.partition("-")
    return name if prefix in PREFIXES else ""


def _choose_labels(
    recipe: OwnTaskRecipe, requested: Sequence[str] | None, found: dict[str, str]
) -> tuple[str, ...]:
    """Return the requested labels, which must include those of training, or those of training."""
    labels = tuple(sorted(found) if requested is None else dict.fromkeys(requested))
    for label, where in found.items():
        if label not in labels:
            known = _list_labels(label, labels)
            raise MetaXLMError(f"{where}: the label {label!r} is not among the YAML's: {known}")
    if len(labels) < 2:
        only = f"only {labels[0]!r}" if labels else "none"
        raise MetaXLMError(
            f"{recipe.name}: at least two labels are needed, training has {only}; check columns"
        )
    for label in labels:
        if label not in found:
            say(f"{recipe.name}: no training example has the label {label!r}; it is not learned")
    return labels


def _check_label(label: str, labels: Sequence[str], where: str) -> None:
    if label not in labels:
        unknown = f"unknown label {label!r}, training does not have it"
        raise MetaXLMError(f"{where}: {unknown}; known: {_list_labels(label, labels)}")


def _list_labels(label: str, labels: Sequence[str]) -> str:
    """Return the known labels, and the one that an unknown one resembles."""
    lower = {known.lower(): known for known in labels}
    near = difflib.get_close_matches(label.lower(), lower, n=1)
    return ", ".join(labels) + (f"; did you mean {lower[near[0]]!r}?" if near else "")
