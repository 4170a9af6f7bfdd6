"""Classification of texts and pairs of texts: examples come in, accuracy goes out.

What XNLI, PAWS-X and Amazon reviews (the paper's Sections 4.2 and 4.3) and a user's own task share.
A text or pair is encoded by the tokenizer's own template, in the RoBERTa family `<s> a </s>` or
`<s> a </s> </s> b </s>`, and classified from its first token; what is too long is cut and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.finetune.encoding import encode_texts
from metaxlm.finetune.losses import compute_cross_entropy
from metaxlm.finetune.metrics import find_majority
from metaxlm.finetune.readers.labeled import LabeledText
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
    """Which of a few classes a text or a pair of texts has; a subclass gives the files."""

    kind: ClassVar[HeadKind] = "classification"
    metric = "accuracy"

    def is_labeled(self, example: LabeledText) -> bool:
        """Say whether the class is known."""
        return example.label is not None

    def featurize(
        self,
        examples: Sequence[LabeledText],
        tokenizer: PreTrainedTokenizerBase,
        settings: FinetuneSettings,
    ) -> FeatureSet:
        """Encode texts or pairs; of a pair that is too long the longer side is cut first."""
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
            f"{encoded.num_cut:,} of {len(examples):,} {'pairs' if is_pair else 'texts'} are "
            f"longer than {settings.length} tokens; cut"
        )
        return FeatureSet(features, notice if encoded.num_cut else "")

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:  # noqa: ARG002
        """Return the mean cross entropy over the labeled examples."""
        return compute_cross_entropy(logits, labels[:, 0])

    def decode(
        self,
        examples: Sequence[LabeledText],
        features: Sequence[Features],
        logits: Sequence[Logits],
    ) -> list[str]:
        """Take the most probable class of each example."""
        assert len(examples) == len(features) == len(logits)
        return [self.labels[int(row.argmax())] for row in logits]

    def tally(
        self,
        examples: Sequence[LabeledText],
        predictions: Sequence[str],
        language: str,  # noqa: ARG002
    ) -> Tally:
        """Return for each example whether it is right, and 1."""
        right = [
            example.label == answer for example, answer in zip(examples, predictions, strict=True)
        ]
        return np.stack([np.array(right, dtype=np.float64), np.ones(len(right))], axis=1)

    def summarize(self, totals: Tally) -> dict[str, npt.NDArray[np.float64]]:
        """Return accuracy."""
        return {"accuracy": totals[..., 0] / totals[..., 1]}

    def answer_majority(
        self, train: Sequence[LabeledText], examples: Sequence[LabeledText]
    ) -> list[str]:
        """Answer the training set's most frequent class; of equally frequent ones the first."""
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
        """Return XTREME's form: a label a line."""
        return "".join(f"{label}\n" for label in predictions)
