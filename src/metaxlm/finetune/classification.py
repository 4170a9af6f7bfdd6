"""Classification of texts and pairs of texts (XNLI, PAWS-X, Amazon reviews, custom tasks).

The tokenizer's own template encodes a text or pair, in the RoBERTa family `<s> a </s>` or
`<s> a </s> </s> b </s>`, and the head classifies its first token. Long texts are truncated.
"""

# ruff: noqa: ARG002  # the interface has parameters that not every task needs
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mode
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.finetune.batches import compute_cross_entropy
from metaxlm.finetune.encoding import MAX_CHARACTERS
from metaxlm.finetune.metrics import Counts
from metaxlm.finetune.readers.texts import LabeledText
from metaxlm.finetune.task import IGNORED, Features, FeatureSet, FinetuneSettings, Logits, Task
from metaxlm.model.heads import HeadKind

Texts = Sequence[LabeledText]


@dataclass(kw_only=True, eq=False)
class ClassificationTask(Task[LabeledText, str]):
    """Assign one of several classes to a text or a pair of texts."""

    kind: ClassVar[HeadKind] = "classification"
    metric: str = "accuracy"
    """`accuracy`, or `macro_f1` with accuracy as a second score."""

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
        numbers = {None: IGNORED} | {label: k for k, label in enumerate(self.labels)}
        labels = np.array([[numbers[text.label]] for text in examples], dtype=np.int32)
        encoded_rows = zip(ids, labels, types, strict=True)
        features = [
            Features(np.array(row, np.int32), label, np.array(kinds, np.int32), example=number)
            for number, (row, label, kinds) in enumerate(encoded_rows)
        ]
        return FeatureSet(features, notice)

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the mean cross entropy over the labeled examples."""
        return compute_cross_entropy(logits, labels[:, 0])

    def decode(
        self, examples: Texts, features: Sequence[Features], logits: Sequence[Logits]
    ) -> list[str]:
        """Return the most probable class of each example."""
        return [self.labels[int(row.argmax())] for row in logits]

    def tally(self, examples: Texts, predictions: Sequence[str], language: str) -> Counts:
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

    def summarize(self, totals: Counts) -> dict[str, Counts]:
        """Return accuracy, and macro F1 as the mean over the labels that are predicted or gold."""
        scores = {"accuracy": totals[..., 0] / totals[..., 1]}
        if self.metric != "macro_f1":
            return scores
        right, guessed, true = np.split(totals[..., 2:], 3, axis=-1)
        is_used = guessed + true > 0
        f1 = np.where(is_used, 2 * right / np.where(is_used, guessed + true, 1.0), 0.0)
        return {"macro_f1": f1.sum(axis=-1) / is_used.sum(axis=-1), **scores}

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
