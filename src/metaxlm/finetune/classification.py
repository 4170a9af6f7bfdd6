"""Labels of texts and pairs of texts: one class, several classes, or a number.

One class: XNLI, PAWS-X, Amazon reviews, custom tasks. Several classes and numbers: custom tasks.
The tokenizer's own template encodes a text or pair, in the RoBERTa family `<s> a </s>` or
`<s> a </s> </s> b </s>`, and the head reads its first token. Long texts are truncated. The three
tasks differ in the loss, the number of outputs and the scores.
"""

# ruff: noqa: ARG002  # the interface has parameters that not every task needs
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, mode
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import rankdata
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.finetune.batches import compute_cross_entropy
from metaxlm.finetune.encoding import MAX_CHARACTERS
from metaxlm.finetune.metrics import Counts, correlate, score_labels
from metaxlm.finetune.readers.texts import LabeledText
from metaxlm.finetune.task import (
    IGNORED,
    Features,
    FeatureSet,
    FinetuneSettings,
    Labels,
    Logits,
    Task,
)
from metaxlm.model.any_encoder import find_output_layer
from metaxlm.model.heads import HeadKind

Texts = Sequence[LabeledText]
Answer = TypeVar("Answer")
Names = tuple[str, ...]

MOST_CONFUSED = 20
"""Classes of the largest confusion matrix."""
SCORE = "score"
"""Name of the only output of a regression."""


@dataclass(kw_only=True, eq=False)
class TextTask(Task[LabeledText, Answer]):
    """Label a text or a pair of texts."""

    kind: ClassVar[HeadKind] = "classification"

    @abstractmethod
    def encode_labels(self, examples: Texts) -> Labels:
        """Return the targets of the head, [examples, width]; `IGNORED` if unknown."""

    def featurize(
        self, examples: Texts, tokenizer: Tokenizer, settings: FinetuneSettings
    ) -> FeatureSet:
        """Encode texts or pairs; truncate the longer side of a pair first."""
        length, is_pair = settings.length, examples[0].second is not None
        assert all((text.second is not None) == is_pair for text in examples), "all pairs, or none"
        sides = [[text.first[:MAX_CHARACTERS] for text in examples]]
        if is_pair:
            sides.append([(text.second or "")[:MAX_CHARACTERS] for text in examples])
        options: dict[str, Any] = {
            "return_token_type_ids": True,
            "return_attention_mask": False,
            "verbose": False,
        }
        encoded = tokenizer(*sides, **options)
        ids, types = encoded["input_ids"], encoded["token_type_ids"]
        long = [k for k, row in enumerate(ids) if len(row) > length]
        for k in long:
            texts = (side[k] for side in sides)
            row = tokenizer(*texts, truncation=True, max_length=length, **options)
            ids[k], types[k] = row["input_ids"], row["token_type_ids"]
        notice = ""
        if long:
            # The tokenizer keeps the truncation, which would affect its next caller.
            tokenizer.backend_tokenizer.no_truncation()
            noun = "pairs" if is_pair else "texts"
            notice = f"{len(long):,} of {len(examples):,} {noun} are longer than {length} tokens"
            notice += "; truncated"
        encoded_rows = zip(ids, self.encode_labels(examples), types, strict=True)
        features = [
            Features(np.array(row, np.int32), label, np.array(kinds, np.int32), example=number)
            for number, (row, label, kinds) in enumerate(encoded_rows)
        ]
        return FeatureSet(features, notice)


@dataclass(kw_only=True, eq=False)
class ClassificationTask(TextTask[str]):
    """Assign one of several classes to a text or a pair of texts."""

    metric: str = "accuracy"
    """`accuracy`, or `macro_f1` or `micro_f1` with accuracy as a second score."""

    def encode_labels(self, examples: Texts) -> Labels:
        """Return the number of each class."""
        numbers = {None: IGNORED} | {label: k for k, label in enumerate(self.labels)}
        return np.array([[numbers[text.label]] for text in examples], dtype=np.int32)

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the mean cross entropy over the labeled examples."""
        return compute_cross_entropy(logits, labels[:, 0])

    def decode(
        self, examples: Texts, features: Sequence[Features], logits: Sequence[Logits]
    ) -> list[str]:
        """Return the most probable class of each example."""
        return [self.labels[int(row.argmax())] for row in logits]

    def tally(self, examples: Texts, predictions: Sequence[str], language: str) -> Counts:
        """Return correct and 1; for F1 also whether each label is both, predicted, gold."""
        gold = [example.label for example in examples]
        pairs = zip(gold, predictions, strict=True)
        right = np.array([label == answer for label, answer in pairs], dtype=np.float64)
        accuracy = np.stack([right, np.ones(len(right))], axis=1)
        if self.metric == "accuracy":
            return accuracy
        labels = np.array(self.labels, dtype=object)
        true, guessed = (np.array(a, dtype=object)[:, None] == labels for a in (gold, predictions))
        return np.concatenate([accuracy, true & guessed, guessed, true], axis=1)

    def summarize(self, totals: Counts) -> dict[str, Counts]:
        """Return accuracy, and the F1 that is the metric before it."""
        scores = {"accuracy": totals[..., 0] / totals[..., 1]}
        if self.metric == "accuracy":
            return scores
        return {self.metric: score_labels(totals[..., 2:])[self.metric], **scores}

    def confuse(self, examples: Texts, predictions: Sequence[str]) -> list[list[int]]:
        """Return how often each class (rows) is predicted as each (columns), if they are few."""
        if not examples or len(self.labels) > MOST_CONFUSED:
            return []
        numbers = {label: k for k, label in enumerate(self.labels)}
        counts = np.zeros((len(numbers), len(numbers)), dtype=np.int64)
        for example, answer in zip(examples, predictions, strict=True):
            counts[numbers[example.label or ""], numbers[answer]] += 1
        return [list(map(int, row)) for row in counts]

    def answer_majority(self, train: Texts, examples: Texts) -> list[str]:
        """Answer with the training set's most frequent class; the first among equals."""
        return [mode(text.label for text in train if text.label)] * len(examples)

    def answer_randomly(
        self, train: Texts, examples: Texts, random: np.random.Generator
    ) -> list[str]:
        """Draw each class with the same probability."""
        return [self.labels[k] for k in random.integers(len(self.labels), size=len(examples))]

    def format_predictions(self, examples: Texts, predictions: Sequence[str]) -> str:
        """Return one label per line."""
        return "".join(f"{label}\n" for label in predictions)


@dataclass(kw_only=True, eq=False)
class MultiLabelTask(TextTask[Names]):
    """Assign any number of classes to a text or a pair of texts."""

    problem: ClassVar[str] = "multi_label_classification"
    metric: str = "micro_f1"
    """`micro_f1` or `macro_f1`; both are reported."""
    separator: str = ","
    """Between the classes of a text, in files and predictions."""

    def split(self, label: str | None) -> Names:
        """Return the classes in a label."""
        names = (name.strip() for name in (label or "").split(self.separator))
        return tuple(name for name in names if name)

    def encode_labels(self, examples: Texts) -> Labels:
        """Return 1 for each class of a text, and 0 for the others."""
        targets = self._mark([self.split(text.label) for text in examples]).astype(np.float32)
        targets[[not text.is_labeled for text in examples]] = IGNORED
        return targets

    def _mark(self, answers: Sequence[Names]) -> Counts:
        marks = [[label in names for label in self.labels] for names in answers]
        return np.array(marks, dtype=np.float64).reshape(len(answers), len(self.labels))

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the mean binary cross entropy over the classes of the labeled examples."""
        loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        return _average(loss, labels)

    def decode(
        self, examples: Texts, features: Sequence[Features], logits: Sequence[Logits]
    ) -> list[Names]:
        """Return the classes with a probability above 0.5."""
        both = [zip(self.labels, row, strict=True) for row in logits]
        return [tuple(label for label, logit in row if logit > 0) for row in both]

    def tally(self, examples: Texts, predictions: Sequence[Names], language: str) -> Counts:
        """Return whether each label is both, predicted, gold."""
        true = self._mark([self.split(example.label) for example in examples])
        guessed = self._mark(predictions)
        return np.concatenate([true * guessed, guessed, true], axis=1)

    def summarize(self, totals: Counts) -> dict[str, Counts]:
        """Return both F1, the metric first."""
        scores = score_labels(totals)
        return {self.metric: scores[self.metric], **scores}

    def answer_majority(self, train: Texts, examples: Texts) -> list[Names]:
        """Answer with the training set's most frequent set of classes."""
        return [mode(self.split(text.label) for text in train)] * len(examples)

    def answer_randomly(
        self, train: Texts, examples: Texts, random: np.random.Generator
    ) -> list[Names]:
        """Draw each class of each text with a probability of one half."""
        size = (len(examples), len(self.labels))
        return self.decode(examples, (), list(random.uniform(-1, 1, size=size)))

    def format_predictions(self, examples: Texts, predictions: Sequence[Names]) -> str:
        """Return the labels of a text per line."""
        return "".join(f"{self.separator.join(names)}\n" for names in predictions)


@dataclass(kw_only=True, eq=False)
class RegressionTask(TextTask[float]):
    """Predict a number for a text or a pair of texts, such as their similarity.

    The head learns numbers of mean 0 and deviation 1; `finish` converts its last layer to the
    numbers of the training files.
    """

    problem: ClassVar[str] = "regression"
    labels: tuple[str, ...] = (SCORE,)
    metric: str = "pearson"
    """`pearson` or `spearman`; both are reported."""
    mean: float = 0.0
    """Mean and deviation of the numbers of the training files."""
    deviation: float = 1.0

    def encode_labels(self, examples: Texts) -> Labels:
        """Return the standardized number."""
        targets = [
            (float(text.label) - self.mean) / self.deviation if text.label else IGNORED
            for text in examples
        ]
        return np.array(targets, dtype=np.float32)[:, None]

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the mean squared error over the labeled examples."""
        return _average((logits - labels).square(), labels)

    def finish(self, model: nn.Module) -> None:
        """Make the model predict the numbers of the training files."""
        layer = find_output_layer(model)
        with torch.no_grad():
            layer.weight.mul_(self.deviation)
            layer.bias.mul_(self.deviation).add_(self.mean)

    def decode(
        self, examples: Texts, features: Sequence[Features], logits: Sequence[Logits]
    ) -> list[float]:
        """Return the numbers."""
        return [float(row[0]) for row in logits]

    def tally(self, examples: Texts, predictions: Sequence[float], language: str) -> Counts:
        """Return the moments of the two correlations: of numbers, and of ranks in this file."""
        gold = np.array([float(example.label or "nan") for example in examples])
        found = np.array(predictions, dtype=np.float64)
        center = gold.mean() if len(gold) else 0.0  # the same for all models
        columns = [np.ones(len(gold))]
        for x, y in ((gold - center, found - center), (rankdata(gold), rankdata(found))):
            columns += [x, y, x * x, y * y, x * y]
        return np.stack(columns, axis=1)

    def summarize(self, totals: Counts) -> dict[str, Counts]:
        """Return both correlations, the metric first; 0 if one side is constant."""
        scores = {
            "pearson": correlate(totals[..., 0], totals[..., 1:6]),
            "spearman": correlate(totals[..., 0], totals[..., 6:]),
        }
        return {self.metric: scores[self.metric], **scores}

    def answer_majority(self, train: Texts, examples: Texts) -> list[float]:
        """Answer with the training set's mean."""
        return [fmean(float(text.label or 0) for text in train)] * len(examples)

    def answer_randomly(
        self, train: Texts, examples: Texts, random: np.random.Generator
    ) -> list[float]:
        """Draw numbers of the training set."""
        numbers = [float(text.label or 0) for text in train]
        return [numbers[k] for k in random.integers(len(numbers), size=len(examples))]

    def format_predictions(self, examples: Texts, predictions: Sequence[float]) -> str:
        """Return one number per line."""
        return "".join(f"{number:.6g}\n" for number in predictions)


def _average(losses: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over the labeled entries; 0 instead of NaN without any."""
    is_known = labels != IGNORED
    return torch.where(is_known, losses, 0.0).sum() / is_known.sum().clamp(min=1)
