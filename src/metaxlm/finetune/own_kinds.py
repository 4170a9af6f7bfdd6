"""The three kinds of the user's own tasks: what their files hold, and what is learned from them.

Classification reads TSV, CSV or JSON lines, tagging CoNLL, questions SQuAD's JSON. Labels come from
the training files unless the YAML lists them; span tags of any scheme become BIO. A label that
training does not have is an error with file and line wherever it turns up.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.answer_metrics import MLQA_LANGUAGES, normalize_mlqa
from metaxlm.finetune.chunks import score_chunks
from metaxlm.finetune.classification import ClassificationTask
from metaxlm.finetune.readers.conll import PREFIXES, ConllSentence, convert_to_bio, read_conll
from metaxlm.finetune.readers.labeled import LabeledText
from metaxlm.finetune.readers.lines import tell_unlabeled
from metaxlm.finetune.readers.questions import Question
from metaxlm.finetune.readers.tables import Row, read_rows
from metaxlm.finetune.readers.tagged import TaggedSentence
from metaxlm.finetune.span import SpanTask
from metaxlm.finetune.tagging import TaggingTask
from metaxlm.finetune.task import DataFile, Examples, FinetuneSettings, Tally
from metaxlm.progress import say
from metaxlm.recipe.evaluation_schema import OwnTaskRecipe

Files = Sequence[DataFile]


class _OwnFiles:
    """What all kinds share."""

    reading: str
    _recipe: OwnTaskRecipe
    _files: tuple[DataFile, ...]

    def _keep(self, recipe: OwnTaskRecipe, files: Files) -> None:
        self._recipe, self._files = recipe, tuple(files)
        self.reading = recipe.columns.model_dump_json(exclude_none=True)

    def list_files(self, data_dir: Path) -> list[DataFile]:  # noqa: ARG002 - the YAML has paths
        """List the files that the YAML names."""
        return list(self._files)


class OwnClassification(_OwnFiles, ClassificationTask):
    """A label for each text or pair of texts."""

    @classmethod
    def make(
        cls, recipe: OwnTaskRecipe, files: Files, sources: Sequence[str], settings: FinetuneSettings
    ) -> Self:
        """Make the task; its labels are the YAML's, or those of the training files."""
        found = {
            row.cells[-1].strip(): f"{path}:{row.line}"
            for path in _list_training(files)
            for row in reversed(_read_table(recipe, path, num_optional=0))
            if row.cells[-1] is not None and row.cells[-1].strip()
        }
        labels = _choose_labels(recipe, recipe.labels, found)
        task = cls(**_describe(recipe, sources, settings), labels=labels)
        task.metric = recipe.metric or "accuracy"
        task._keep(recipe, files)
        return task

    def read(self, file: DataFile) -> Examples[LabeledText]:
        """Read texts and labels; only test rows may lack the label."""
        return _join([self._read_part(part) for part in file.parts or (file,)])

    def _read_part(self, file: DataFile) -> Examples[LabeledText]:
        texts: list[LabeledText] = []
        unlabeled: list[int] = []
        for row in _read_table(self._recipe, file.path, num_optional=int(file.split == "test")):
            where = f"{file.path}:{row.line}"
            *sides, label = row.cells
            if not all(side and side.strip() for side in sides):
                raise MetaXLMError(f"{where}: the text is empty; fill it or delete the row")
            label = (label or "").strip() or None
            if label is None and file.split != "test":
                raise MetaXLMError(f"{where}: no label, in a {file.split} file; label the row")
            if label is None:
                unlabeled.append(row.line)
            else:
                _check_label(label, self.labels, where)
            first, second = (*sides, None)[:2]
            texts.append(LabeledText(first or "", second, label))
        return Examples(texts, tell_unlabeled(file.path, unlabeled, len(texts), "rows"))

    def tally(
        self, examples: Sequence[LabeledText], predictions: Sequence[str], language: str
    ) -> Tally:
        """Return what accuracy sums up, then for each label whether it is right, said and true."""
        accuracy = super().tally(examples, predictions, language)
        if self.metric != "macro_f1":
            return accuracy
        labels = np.array(self.labels, dtype=object)
        gold = [example.label for example in examples]
        true, said = (np.array(a, dtype=object)[:, None] == labels for a in (gold, predictions))
        return np.concatenate([accuracy, true & said, said, true], axis=1)

    def summarize(self, totals: Tally) -> dict[str, npt.NDArray[np.float64]]:
        """Return accuracy, and F1 as the mean over the labels that are said or true somewhere."""
        if self.metric != "macro_f1":
            return super().summarize(totals)
        num = totals.shape[-1] - 3 * len(self.labels)
        right, said, true = np.split(totals[..., num:], 3, axis=-1)
        is_there = said + true > 0
        f1 = np.where(is_there, 2 * right / np.where(is_there, said + true, 1.0), 0.0)
        mean = f1.sum(axis=-1) / is_there.sum(axis=-1)
        return {"macro_f1": mean, **super().summarize(totals[..., :num])}


class OwnTagging(_OwnFiles, TaggingTask):
    """A tag for each word."""

    @classmethod
    def make(
        cls, recipe: OwnTaskRecipe, files: Files, sources: Sequence[str], settings: FinetuneSettings
    ) -> Self:
        """Make the task; without a metric, it is span F1 if all training tags are of spans."""
        sentences = [
            (path, sentence)
            for path in _list_training(files)
            for sentence in read_conll(path, recipe.columns.word, recipe.columns.tag)
        ]
        tags = {tag for _, sentence in sentences for tag in sentence.tags or ()}
        marks_spans = all(tag == "O" or _find_type(tag) for tag in tags) and tags != {"O"}
        metric = recipe.metric or ("span_f1" if marks_spans else "accuracy")
        if recipe.metric is None:
            say(f"{recipe.name}: scored by {metric}")
        found: dict[str, str] = {}
        for path, sentence in sentences:
            for tag, line in _place_tags(_read_tags(sentence, path, metric), sentence):
                found.setdefault(tag, f"{path}:{line}")
        wanted = recipe.labels
        if metric == "span_f1":
            # A model must be able to continue every span that it can open.
            given = recipe.labels if recipe.labels is not None else found
            types = sorted({_find_type(tag) or tag for tag in given if tag != "O"})
            wanted = ["O", *(f"{letter}-{name}" for name in types for letter in "BI")]
            found = found if recipe.labels is not None else dict.fromkeys(wanted, "")
        labels = _choose_labels(recipe, wanted, found)
        scores = ("span_f1", "precision", "recall") if metric == "span_f1" else ("accuracy",)
        task = cls(**_describe(recipe, sources, settings), labels=labels, scores=scores)
        task._keep(recipe, files)
        return task

    def read(self, file: DataFile) -> Examples[TaggedSentence]:
        """Read words and tags; only test sentences may lack the tags."""
        return _join([self._read_part(part) for part in file.parts or (file,)])

    def _read_part(self, file: DataFile) -> Examples[TaggedSentence]:
        columns = self._recipe.columns
        sentences: list[TaggedSentence] = []
        unlabeled: list[int] = []
        for sentence in read_conll(file.path, columns.word, columns.tag):
            tags = _read_tags(sentence, file.path, self.metric)
            if tags is None and file.split != "test":
                raise MetaXLMError(
                    f"{file.path}:{sentence.lines[0]}: a sentence without tags, in a {file.split} "
                    f"file; tag it"
                )
            if tags is None:
                unlabeled.append(sentence.lines[0])
            for tag, line in _place_tags(tags, sentence):
                _check_label(tag, self.labels, f"{file.path}:{line}")
            sentences.append(TaggedSentence(sentence.words, tags))
        return Examples(
            sentences, tell_unlabeled(file.path, unlabeled, len(sentences), "sentences")
        )

    def summarize(self, totals: Tally) -> dict[str, npt.NDArray[np.float64]]:
        """Return the scores by the names that the YAML has for them."""
        precision, recall, f1 = score_chunks(totals[..., :3])
        scores = {"span_f1": f1, "precision": precision, "recall": recall}
        scores["accuracy"] = totals[..., 3] / totals[..., 4]
        return {name: scores[name] for name in self.scores}


class OwnQuestions(_OwnFiles, SpanTask):
    """The answer to a question, found in its context."""

    @classmethod
    def make(
        cls, recipe: OwnTaskRecipe, files: Files, sources: Sequence[str], settings: FinetuneSettings
    ) -> Self:
        """Make the task; its files are read when they are needed."""
        task = cls(**_describe(recipe, sources, settings))
        task._keep(recipe, files)
        return task

    def read(self, file: DataFile) -> Examples[Question]:
        """Read SQuAD's JSON; only test questions may lack the answer."""
        return _join([super(OwnQuestions, self).read(part) for part in file.parts or (file,)])

    def normalize(self, text: str, language: str) -> str:
        """Make answers alike by MLQA's rules where it has some for the language, else SQuAD's."""
        if language in MLQA_LANGUAGES:
            return normalize_mlqa(text, language)
        return super().normalize(text, language)


OwnTask = OwnClassification | OwnTagging | OwnQuestions


def _describe(
    recipe: OwnTaskRecipe, sources: Sequence[str], settings: FinetuneSettings
) -> dict[str, Any]:
    """Return what all kinds are told."""
    return {
        "name": recipe.name,
        "title": recipe.title or recipe.name,
        "languages": tuple(dict.fromkeys((*recipe.test, *recipe.dev))),
        "sources": tuple(sources),
        "settings": settings,
    }


def _list_training(files: Files) -> list[Path]:
    return [path for file in files if file.split == "train" for path in file.paths]


def _read_table(recipe: OwnTaskRecipe, path: Path, num_optional: int) -> list[Row]:
    """Read the text, the second text if there is one, and the label."""
    columns = recipe.columns
    texts = [columns.text or "text", *([columns.second] if columns.second else [])]
    wanted = [*texts, columns.label or "label"]
    return read_rows(path, wanted, len(wanted) - num_optional)


def _choose_labels(
    recipe: OwnTaskRecipe, wanted: Sequence[str] | None, found: dict[str, str]
) -> tuple[str, ...]:
    """Return the wanted labels, or those found in training; found ones must be wanted."""
    labels = tuple(sorted(found) if wanted is None else dict.fromkeys(wanted))
    for label, where in found.items():
        if label not in labels:
            raise MetaXLMError(
                f"{where}: the label {label!r} is not among the YAML's: {', '.join(labels)}"
                f"{_suggest(label, labels)}"
            )
    if len(labels) < 2:
        only = f"only {labels[0]!r}" if labels else "none"
        raise MetaXLMError(
            f"{recipe.name}: at least two labels are needed, training has {only}; check columns"
        )
    for label in labels:
        if label not in found:
            say(f"{recipe.name}: no training example is labeled {label!r}; it cannot be learned")
    return labels


def _check_label(label: str, labels: Collection[str], where: str) -> None:
    if label not in labels:
        raise MetaXLMError(
            f"{where}: unknown label {label!r}, training does not have it; known: "
            f"{', '.join(labels)}{_suggest(label, labels)}"
        )


def _suggest(label: str, labels: Iterable[str]) -> str:
    lower = {known.lower(): known for known in labels}
    near = difflib.get_close_matches(label.lower(), lower, n=1)
    return f"; did you mean {lower[near[0]]!r}?" if near else ""


def _find_type(tag: str) -> str:
    """Return the type of a span tag such as B-PER; nothing if it is none."""
    prefix, _, name = tag.partition("-")
    return name if prefix in PREFIXES else ""


def _read_tags(sentence: ConllSentence, path: Path, metric: str) -> tuple[str, ...] | None:
    return convert_to_bio(sentence, path) if metric == "span_f1" else sentence.tags


def _place_tags(tags: tuple[str, ...] | None, sentence: ConllSentence) -> Iterable[tuple[str, int]]:
    """Yield tags with their lines; none if there are none."""
    return () if tags is None else zip(tags, sentence.lines, strict=True)


def _join(contents: Sequence[Examples[Any]]) -> Examples[Any]:
    return Examples(
        [item for content in contents for item in content.items],
        tuple(notice for content in contents for notice in content.notices),
    )
