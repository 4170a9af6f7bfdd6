"""Classification of texts and pairs of texts (XNLI, PAWS-X, Amazon reviews, custom tasks).

The tokenizer's own template encodes a text or pair, in the RoBERTa family `<s> a </s>` or
`<s> a </s> </s> b </s>`, and the head classifies its first token. Long texts are truncated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.finetune.batches import compute_cross_entropy
from metaxlm.finetune.encoding import encode_texts
from metaxlm.finetune.metrics import find_majority
from metaxlm.finetune.readers.texts import LabeledText
from metaxlm.finetune.task import (
    IGNORED,
    Features,
    FeatureSet,
    FinetuneSettings,
    Logits,
    Tally,
    Task,
)
from metaxlm.model.heads import HeadKind


class ClassificationTask(Task[LabeledText, str]):
    """Assign one of several classes to a text or a pair of texts."""

    kind: ClassVar[HeadKind] = "classification"

    def __init__(self, *, metric: str = "accuracy", **facts: Any) -> None:
        """`metric` is `accuracy`, or `macro_f1` with accuracy as a second score."""
        super().__init__(**facts)
        self.metric = metric

    def featurize(
        self,
        examples: Sequence[LabeledText],
        tokenizer: PreTrainedTokenizerBase,
        settings: FinetuneSettings,
    ) -> FeatureSet:
        """Encode texts or pairs; truncate the longer side of a pair first."""
        is_pair = any(example.second is not None for example in examples)
        seconds = [example.second for example in examples if example.second is not None]
        assert not is_pair or len(seconds) == len(examples), "either all are pairs, or none"
        encoded = encode_texts(
            tokenizer,
            [example.first for example in examples],
            seconds if is_pair else None,
            max_length=settings.length,
        )
        ids = {label: k for k, label in enumerate(self.labels)}
        features = [
            Features(
                sequence,
                np.array([IGNORED if text.label is None else ids[text.label]], dtype=np.int32),
                types,
                example=number,
            )
            for number, (text, sequence, types) in enumerate(
                zip(examples, encoded.ids, encoded.token_types, strict=True)
            )
        ]
        notice = (
            f"{encoded.num_truncated:,} of {len(examples):,} {'pairs' if is_pair else 'texts'} are "
            f"longer than {settings.length} tokens; truncated"
        )
        return FeatureSet(features, notice if encoded.num_truncated else "")

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:  # noqa: ARG002
        """Return the mean cross entropy over the labeled examples."""
        return compute_cross_entropy(logits, labels[:, 0])

    def decode(
        self,
        examples: Sequence[LabeledText],
        features: Sequence[Features],
        logits: Sequence[Logits],
    ) -> list[str]:
        """Return the most probable class of each example."""
        assert len(examples) == len(features) == len(logits)
        return [self.labels[int(row.argmax())] for row in logits]

    def tally(
        self,
        examples: Sequence[LabeledText],
        predictions: Sequence[str],
        language: str,  # noqa: ARG002
    ) -> Tally:
        """Return correct and 1; for macro F1 also whether each label is both, predicted, gold."""
        gold = [example.label for example in examples]
        pairs = zip(gold, predictions, strict=True)
        right = np.array([label == answer for label, answer in pairs], dtype=np.float64)
        accuracy = np.stack([right, np.ones(len(right))], axis=1)
        if self.metric != "macro_f1":
            return accuracy
        labels = np.array(self.labels, dtype=object)
        true, guessed = (np.array(a, dtype=object)[:, None] == labels for a in (gold, predictions))
        return np.concatenate([accuracy, true & guessed, guessed, true], axis=1)

    def summarize(self, totals: Tally) -> dict[str, npt.NDArray[np.float64]]:
        """Return accuracy, and macro F1 as the mean over the labels that are predicted or gold."""
        scores = {"accuracy": totals[..., 0] / totals[..., 1]}
        if self.metric != "macro_f1":
            return scores
        right, guessed, true = np.split(totals[..., 2:], 3, axis=-1)
        is_used = guessed + true > 0
        f1 = np.where(is_used, 2 * right / np.where(is_used, guessed + true, 1.0), 0.0)
        return {"macro_f1": f1.sum(axis=-1) / is_used.sum(axis=-1), **scores}

    def answer_majority(
        self, train: Sequence[LabeledText], examples: Sequence[LabeledText]
    ) -> list[str]:
        """Answer with the training set's most frequent class; the first among equals."""
        label = find_majority(text.label for text in train if text.label is not None)
        return [label] * len(examples)

    def answer_randomly(
        self,
        train: Sequence[LabeledText],  # noqa: ARG002
        examples: Sequence[LabeledText],
        random: np.random.Generator,
    ) -> list[str]:
        """Draw each class with the same probability."""
        return [self.labels[k] for k in random.integers(len(self.labels), size=len(examples))]

    def format_predictions(
        self,
        examples: Sequence[LabeledText],  # noqa: ARG002
        predictions: Sequence[str],
    ) -> str:
        """Return one label per line."""
        return "".join(f"{label}\n" for label in predictions)
