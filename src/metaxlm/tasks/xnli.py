"""Natural language inference (XNLI): sentence pairs come in, accuracy by language goes out.

Trained on English MultiNLI, tested in 15 languages (the paper's Section 4.2 and its XNLI table).
The pair is encoded by the tokenizer's own template, in the RoBERTa family `<s> a </s> </s> b </s>`,
and classified from its first token. Batch 32, learning rate 1e-5, 6 epochs and weight decay 0.01
are the paper's; the length of 256 is xTune's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.heads import ClassificationHead
from metaxlm.tasks.encoding import encode_texts
from metaxlm.tasks.metrics import compute_accuracy, find_majority
from metaxlm.tasks.readers import LabeledPair, find_split, read_labeled_pairs
from metaxlm.tasks.task import Features, FeatureSet, FinetuneSettings, Logits, Split, Task

LABELS = ("entailment", "neutral", "contradiction")
SYNONYMS = {"contradictory": "contradiction"}
"""XNLI's own copy of the training set spells one label differently."""


class XnliTask(Task[LabeledPair, str]):
    """Which of three relations holds between two sentences."""

    name = "xnli"
    metric = "accuracy"
    languages = (
        *("ar", "bg", "de", "el", "en", "es", "fr", "hi"),
        *("ru", "sw", "th", "tr", "ur", "vi", "zh"),
    )
    settings = FinetuneSettings(epochs=6, learning_rate=1e-5, weight_decay=0.01, length=256)

    def read(self, data_dir: Path, split: Split, language: str) -> list[LabeledPair]:
        """Read `xnli/SPLIT-XX.tsv`; English training pairs may also lie in `mnli/*train*.tsv`."""
        if split == "train" and language == "en" and not self.list_languages(data_dir, split):
            for path in sorted((data_dir / "mnli").glob("*train*.tsv")):
                return read_labeled_pairs(path, LABELS, SYNONYMS)
        path = find_split(data_dir, self.name, split, language)
        return read_labeled_pairs(path, LABELS, SYNONYMS)

    def featurize(
        self,
        examples: Sequence[LabeledPair],
        tokenizer: PreTrainedTokenizerBase,
        length: int,
    ) -> FeatureSet:
        """Encode pairs; of one that is too long the longer side is cut first."""
        encoded = encode_texts(
            tokenizer,
            [pair.first for pair in examples],
            [pair.second for pair in examples],
            max_length=length,
        )
        features = [
            Features(ids, np.array([LABELS.index(pair.label)], dtype=np.int32), types)
            for pair, ids, types in zip(examples, encoded.ids, encoded.token_types, strict=True)
        ]
        notice = (
            f"{encoded.num_cut:,} of {len(examples):,} pairs are longer than {length} tokens; cut"
        )
        return FeatureSet(features, notice if encoded.num_cut else "")

    def make_head(self, config: EncoderConfig) -> nn.Module:
        """Classify from the first token."""
        return ClassificationHead(config, len(LABELS))

    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy over the pairs."""
        return F.cross_entropy(logits, labels[:, 0])

    def decode(
        self,
        examples: Sequence[LabeledPair],
        features: Sequence[Features],
        logits: Sequence[Logits],
    ) -> list[str]:
        """Take the most probable label of each pair."""
        assert len(examples) == len(features)
        return [LABELS[int(row.argmax())] for row in logits]

    def score(
        self, examples: Sequence[LabeledPair], predictions: Sequence[str]
    ) -> dict[str, float]:
        """Return accuracy."""
        return {"accuracy": compute_accuracy([pair.label for pair in examples], predictions)}

    def answer_majority(
        self, train: Sequence[LabeledPair], examples: Sequence[LabeledPair]
    ) -> list[str]:
        """Answer the training set's most frequent label."""
        return [find_majority(pair.label for pair in train)] * len(examples)
