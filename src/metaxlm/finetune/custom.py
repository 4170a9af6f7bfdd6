"""Custom tasks: make a `Task` from a YAML file of about ten lines (`docs/own_data.md`).

Labels and numbers of texts and multiple choice are read from TSV, CSV, JSON lines, Hugging Face
datasets on disk, or the folder of a published data set; tagging from CoNLL, questions from SQuAD's
JSON. Labels are those of the training files unless the YAML lists them; span tags of any scheme
become BIO. Errors have the line of the YAML or of the data file.
"""

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.catalog import GROUPS, TASKS
from metaxlm.finetune.classification import ClassificationTask, MultiLabelTask, RegressionTask
from metaxlm.finetune.data_files import SPLITS
from metaxlm.finetune.data_sets import read_squad
from metaxlm.finetune.layouts import TaskLayout, find_layout, list_shards
from metaxlm.finetune.metrics import MLQA_LANGUAGES, normalize_mlqa, normalize_squad
from metaxlm.finetune.multiple_choice import MultipleChoiceTask
from metaxlm.finetune.qa import SpanTask
from metaxlm.finetune.readers.choices import Choices, read_choices
from metaxlm.finetune.readers.conll import PREFIXES, TaggedSentence, convert_to_bio, read_conll
from metaxlm.finetune.readers.input_lines import Examples
from metaxlm.finetune.readers.texts import LabeledText, Row, read_rows, unquote
from metaxlm.finetune.tagging import TaggingTask
from metaxlm.finetune.task import AnyTask, DataFile, FinetuneSettings, SelectBy
from metaxlm.languages import explain_unknown
from metaxlm.progress import say
from metaxlm.recipe.evaluation_schema import ColumnsRecipe, OwnKind, OwnTaskRecipe
from metaxlm.recipe.recipe_file import Lines, load_section

TEXT_KINDS: tuple[OwnKind, ...] = ("classification", "multi_label", "regression")
TABLE_KINDS: tuple[OwnKind, ...] = (*TEXT_KINDS, "multiple_choice")
_TEXTS = FinetuneSettings(epochs=5, learning_rate=2e-5, weight_decay=0.01, length=256)
DEFAULTS: dict[OwnKind, FinetuneSettings] = {
    **dict.fromkeys(TEXT_KINDS, _TEXTS),
    "tagging": FinetuneSettings(epochs=10, learning_rate=2e-5, weight_decay=0.01, length=256),
    "questions": FinetuneSettings(epochs=3, learning_rate=3e-5, weight_decay=0.01, length=384),
    "multiple_choice": FinetuneSettings(
        epochs=3, learning_rate=2e-5, weight_decay=0.01, length=384
    ),
}
METRICS: dict[OwnKind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "micro_f1"),
    "multi_label": ("micro_f1", "macro_f1"),
    "regression": ("pearson", "spearman"),
    "tagging": ("span_f1", "accuracy"),
    "questions": ("f1",),
    "multiple_choice": ("accuracy",),
}
COLUMNS: dict[OwnKind, tuple[str, ...]] = {
    **dict.fromkeys(TEXT_KINDS, ("text", "second", "label")),
    "tagging": ("word", "tag"),
    "questions": (),
    "multiple_choice": ("context", "question", "choices", "answer"),
}
_LIST_LABELS = "If they are classes, list all in the YAML under `labels`"
_USES: dict[str, tuple[OwnKind, ...]] = {
    "labels": ("classification", "multi_label", "tagging"),
    "stride": ("questions",),
    "separator": ("multi_label",),
}
"""Kinds of tasks that use a key."""


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
    published = None
    if recipe.folder is not None:
        published = find_layout(path.parent / recipe.folder, recipe.layout)
        if "kind" not in recipe.model_fields_set:
            recipe = recipe.model_copy(update={"kind": published[1].kind})
    yaml = _Yaml(path, recipe, lines)
    if recipe.name in (*TASKS, *GROUPS, "tatoeba", "alignment", "flores"):
        problem = f"{recipe.name!r} is a built-in task; choose another name"
        raise MetaXLMError(f"{yaml.at('name')}: {problem}")
    for keys, problem in _find_mistakes(recipe):
        raise yaml.reject(*keys, problem=problem)
    if published is not None:
        return _load_published(yaml, *published)
    for key in ("kind", "train"):
        if key not in recipe.model_fields_set or not getattr(recipe, key):
            raise MetaXLMError(f"{path}: key {key!r} is missing, or `folder`")
    if not recipe.dev and not recipe.test:
        raise MetaXLMError(f"{path}: nothing to score; name a file under test or dev")
    for line in explain_unknown([*recipe.train, *recipe.dev, *recipe.test]):
        say(f"{path}: {line}")
    files = _list_files(yaml)
    sources = tuple(file.language for file in files if file.split == "train")
    languages = tuple(dict.fromkeys((*recipe.test, *recipe.dev)))
    facts = _list_facts(yaml, files, sources, languages)
    if recipe.kind == "questions":
        return SpanTask(**facts, reader=read_squad, normalize=_normalize)
    training = [part for f in files if f.split == "train" for part in f.parts or (f,)]
    if recipe.kind == "tagging":
        return _make_tagging(recipe, [file.path for file in training], facts)
    if recipe.kind == "multiple_choice":
        return MultipleChoiceTask(**facts, reader=partial(_read_choices, recipe.columns, None))
    return _make_text_task(recipe, training, facts)


def _load_published(
    yaml: _Yaml, name: str, layout: TaskLayout, files: Sequence[DataFile]
) -> AnyTask:
    """Make a task from a folder: train in English, or in the first language there is."""
    folder = yaml.path.parent / (yaml.recipe.folder or "")
    if yaml.recipe.kind != layout.kind:
        problem = f"{name} is {layout.kind}, found {yaml.recipe.kind}; delete the key"
        raise yaml.reject("kind", problem=problem)
    trained = [file.language for file in files if file.split == "train"]
    if not trained and layout.training is None:
        raise MetaXLMError(f"{folder}: no training file of {name} ({layout.shape})")
    if not trained and layout.training is not None:
        missing = f"{folder}: no {layout.training.shape}"
        say(f"{missing}; only models with a trained task head can be scored (--set epochs=0)")
    source = "en" if "en" in trained or not trained else trained[0]
    languages = tuple(dict.fromkeys(file.language for file in files if file.split != "train"))
    if not languages:
        raise MetaXLMError(f"{folder}: no dev or test file of {name} ({layout.shape})")
    facts = _list_facts(yaml, files, (source,), languages)
    if layout.kind == "multiple_choice":
        return MultipleChoiceTask(**facts, reader=partial(_read_choices, layout.columns, layout))
    training = [file for file in files if (file.split, file.language) == ("train", source)]
    recipe = yaml.recipe.model_copy(update={"columns": layout.columns})
    return _make_text_task(recipe, training, facts, layout)


def _read_choices(
    columns: ColumnsRecipe, layout: TaskLayout | None, file: DataFile
) -> Examples[Choices]:
    if layout is None or layout.training is None or file.split == "test":
        return read_choices(file.path, file.split, columns)
    part = layout.training
    return read_choices(file.path, file.split, part.columns, part.partition)


def _list_facts(
    yaml: _Yaml, files: Sequence[DataFile], sources: tuple[str, ...], languages: tuple[str, ...]
) -> dict[str, Any]:
    """Return what all tasks have."""
    recipe, reading = yaml.recipe, yaml.recipe.columns.model_dump_json(exclude_none=True)
    if recipe.kind in ("multi_label", "regression", "multiple_choice"):
        reading = f"{recipe.kind} {recipe.separator or ','} {reading}"
    return {
        "name": recipe.name,
        "title": recipe.title or recipe.name,
        "languages": languages,
        "sources": sources,
        "settings": _choose_settings(yaml, files, sources),
        "reading": reading,
        "list_files": lambda _: list(files),
    }


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
    for key, kinds in _USES.items():
        if getattr(recipe, key) is not None and kind not in kinds:
            yield (key,), f"{kind} has no use for it; delete it"
    if recipe.folder is None and recipe.layout is not None:
        yield ("layout",), "of which folder? Name it under `folder`"
    for key in ("train", "dev", "test", "columns", "train_together") if recipe.folder else ():
        if key in recipe.model_fields_set:
            yield (key,), "`folder` has all files; delete one of both, or use --source, --languages"
    cells = [value for _, value in recipe.columns if value is not None]
    chosen = [one for value in cells for one in (value if isinstance(value, list) else [value])]
    if 0 in chosen:
        yield ("columns",), "they count from 1, found 0"
    if kind in TABLE_KINDS and len({type(value) for value in chosen}) > 1:
        problem = "give names for files with a header, or numbers for files without, not both"
        yield ("columns",), problem


def _list_files(yaml: _Yaml) -> tuple[DataFile, ...]:
    recipe, files = yaml.recipe, []
    for split in SPLITS.values():
        for language, name in getattr(recipe, split).items():
            path = yaml.path.parent / name
            if not path.exists() or (path.is_dir() and recipe.kind not in TABLE_KINDS):
                problem = f"{path}: no such file; paths start at the folder of the YAML"
                raise yaml.reject(split, language, problem=problem)
            shards = list_shards(path, split) if path.is_dir() else [path]
            parts = tuple(DataFile(language, split, shard, split) for shard in shards)
            whole = DataFile(language, split, shards[0], split, parts)
            files.append(whole if len(parts) > 1 else parts[0])
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
    joined = [DataFile(language, "train", train[0].path, "train", _list_parts(train))]
    dev = [f for f in scored if f.split == "dev" and f.language in recipe.train]
    if dev:
        joined.append(DataFile(language, "select", dev[0].path, "dev", _list_parts(dev)))
    return (*joined, *scored)


def _list_parts(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    return tuple(part for file in files for part in file.parts or (file,))


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
    dev = list(dict.fromkeys(file.language for file in files if file.split == "dev"))
    missing = [source for source in sources if source not in selecting]
    if requested == "last" or (requested is None and not dev):
        if not dev and any(file.split == "train" for file in files):
            say(f"{recipe.name}: no dev file, so the last epoch is taken")
        return "last"
    if not dev:
        raise yaml.reject("select_by", problem=f"{requested}, but there is no dev file")
    if requested == "all" or not missing:
        return requested or "source"
    absent, found = " ".join(missing), " ".join(dev)
    if requested == "source":
        problem = f"source, but dev has no file for {absent}; found: {found}"
        raise yaml.reject("select_by", problem=problem)
    say(f"{recipe.name}: no dev file for {absent}; the mean over {found} chooses the epoch")
    return "all"


def _make_text_task(
    recipe: OwnTaskRecipe,
    training: Sequence[DataFile],
    facts: dict[str, Any],
    layout: TaskLayout | None = None,
) -> AnyTask:
    """Make a task that assigns a class, several classes or a number to texts."""
    kind, separator = recipe.kind, recipe.separator or ","
    separators = separator if kind == "multi_label" else ""

    def split(label: str) -> list[str]:
        names = label.split(separators) if separators else [label]
        return [name.strip() for name in names if name.strip()]

    found: dict[str, str] = {}
    numbers: list[float] = []
    for file in training:
        for row in _read_table(recipe, file, layout, separators):
            where, label = f"{file.path}:{row.line}", row.cells[-1] or ""
            if kind == "regression" and label.strip():
                numbers.append(_parse_number(label, where))
            for name in split(label) if kind != "regression" else ():
                found.setdefault(name, where)
    if kind == "regression":
        if len(set(numbers)) < 2:
            problem = "training needs at least two different numbers; check columns"
            raise MetaXLMError(f"{recipe.name}: {problem}")
        facts |= {"mean": fmean(numbers), "deviation": pstdev(numbers)}
    else:
        if kind == "classification" and recipe.labels is None and layout is None:
            _check_classes(found)
        facts |= {"labels": _choose_labels(recipe, recipe.labels, found)}

    def read(file: DataFile) -> Examples[LabeledText]:
        texts = []
        rows = _read_table(recipe, file, layout, separators)
        # A text may have none of the labels; a test set in which no text has any is blanked.
        is_blank = not any((row.cells[-1] or "").strip() for row in rows)
        keeps_empty = kind == "multi_label" and not (is_blank and file.split == "test")
        for row in rows:
            where = f"{file.path}:{row.line}"
            *sides, cell = row.cells
            if not all(side and side.strip() for side in sides):
                raise MetaXLMError(f"{where}: the text is empty; fill it or delete the row")
            label = (cell or "").strip()
            if label and kind == "regression":
                _parse_number(label, where)
            elif label:
                for name in split(label):
                    _check_label(name, facts["labels"], where)
            is_known = label or (keeps_empty and cell is not None)
            if not is_known and file.split != "test":
                raise MetaXLMError(f"{where}: no label, in a {file.split} file; label the row")
            first, second = (*sides, None)[:2]
            texts.append(LabeledText(first or "", second, label if is_known else None))
        return Examples(texts)

    facts |= {"reader": read, "metric": recipe.metric or METRICS[kind][0]}
    if kind == "regression":
        return RegressionTask(**facts)
    if kind == "multi_label":
        return MultiLabelTask(**facts, separator=separator)
    return ClassificationTask(**facts)


def _check_classes(found: dict[str, str]) -> None:
    """Reject labels of training that look like several labels in one, or like measurements."""
    parts = {label: [part.strip() for part in re.split(r"[,;|]", label)] for label in found}
    counts = Counter(part for one in parts.values() for part in set(one))
    for label, where in found.items():
        if shared := [part for part in parts[label] if len(parts[label]) > 1 and counts[part] > 1]:
            what = f"the label {label!r} looks like several, {shared[0]!r} is a part of others too"
            fix = "for several labels per text, set `kind: multi_label` and `separator`"
            raise MetaXLMError(f"{where}: {what}; {fix}. {_LIST_LABELS}")
    if not all(re.fullmatch(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", label) for label in found):
        return
    if broken := next((label for label in found if float(label) % 1), ""):
        where, count = found[broken], f"{len(found):,} numbers such as {broken}"
        what = f"the labels are {count}; for numbers, set `kind: regression`"
        raise MetaXLMError(f"{where}: {what}. {_LIST_LABELS}")


def _parse_number(label: str, where: str) -> float:
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        what = f"the label {label.strip()!r} is not a finite number, as `kind: regression` needs"
        raise MetaXLMError(f"{where}: {what}")
    return number


def _read_table(
    recipe: OwnTaskRecipe, file: DataFile, layout: TaskLayout | None, separator: str
) -> list[Row]:
    """Return rows of text, second text if the task has one, and label."""
    columns = recipe.columns
    second = [columns.second] if columns.second else []
    requested = [columns.text or "text", *second, columns.label or "label"]
    num_needed = len(requested) - (file.split == "test")
    if layout is None:
        return read_rows(file.path, requested, num_needed, {requested[-1]: separator})
    if layout.partition is not None:
        rows = read_rows(file.path, [layout.partition, *requested], num_needed + 1)
        rows = [Row(row.line, row.cells[1:]) for row in rows if row.cells[0] == file.split]
    else:
        rows = read_rows(file.path, requested, num_needed)
    if not rows:
        raise MetaXLMError(f"{file.path}: no row of the partition {file.split!r}")
    if layout.is_quoted:
        rows = [Row(row.line, (unquote(row.cells[0] or ""), *row.cells[1:])) for row in rows]
    return rows


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
