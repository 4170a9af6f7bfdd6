"""What a finetuned task is: a reader, features, a head, a metric, languages, hyperparameters.

The finetuning loop (`finetune.py`) knows only this face; a task of the paper's Section 4.2 is one
small file that fills it in. Data flows: files -> examples -> features (token ids and labels) ->
logits -> predictions, one for each example -> scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from metaxlm.model.encoder import EncoderConfig
from metaxlm.tasks.encoding import Ids
from metaxlm.tasks.readers import list_split

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")

Logits = npt.NDArray[np.float32]
"""The head's answer to one sequence: [classes], or [tokens, classes] without the padding."""

Split = Literal["train", "dev", "test"]

IGNORED = -100
"""Label of a token that is not predicted, as torch's cross entropy has it."""


@dataclass(frozen=True)
class FinetuneSettings:
    """Hyperparameters of finetuning; each task brings the paper's (its appendix table)."""

    epochs: int
    """Passes over the training examples."""
    learning_rate: float
    """Peak of the linear schedule."""
    batch_size: int = 32
    """Sequences in a step."""
    weight_decay: float = 0.0
    """Decoupled weight decay; biases and LayerNorms are left out."""
    length: int = 128
    """Longest sequence, special tokens included."""
    warmup: float = 0.1
    """Share of the steps that warm up."""
    select_by: Literal["source", "all"] = "source"
    """Which dev set picks the best epoch: the training language's, or the mean of all languages."""
    clip: float = 1.0
    """Largest gradient norm."""
    adam_epsilon: float = 1e-8
    """The paper gives none for finetuning; this is what XTREME's scripts use."""


@dataclass(frozen=True)
class Features:
    """One sequence for the model."""

    ids: Ids
    labels: Ids
    """One for the sequence (classification) or one for each token (tagging)."""
    token_types: Ids | None = None
    """0 and 1 for the two texts of a pair; encoders with one type do not use them."""


@dataclass(frozen=True)
class FeatureSet:
    """Examples of one file as sequences, in order; a long example may take several."""

    features: list[Features]
    notice: str = ""
    """What was cut or split, to be said; empty if nothing was."""


class Task(ABC, Generic[Example, Prediction]):
    """One finetuned task."""

    name: ClassVar[str]
    metric: ClassVar[str]
    """The score that selects checkpoints and stands in the tables."""
    languages: ClassVar[tuple[str, ...]]
    """The paper's test languages."""
    settings: ClassVar[FinetuneSettings]
    """The paper's hyperparameters."""

    @abstractmethod
    def read(self, data_dir: Path, split: Split, language: str) -> list[Example]:
        """Read the examples of one file; a missing or broken one is a clear error."""

    def list_languages(self, data_dir: Path, split: Split) -> list[str]:
        """List the languages that have a file for this split."""
        return list_split(data_dir, self.name, split)

    @abstractmethod
    def featurize(
        self,
        examples: Sequence[Example],
        tokenizer: PreTrainedTokenizerBase,
        length: int,
    ) -> FeatureSet:
        """Turn examples into sequences of at most `length` tokens."""

    @abstractmethod
    def make_head(self, config: EncoderConfig) -> nn.Module:
        """Create a fresh head from torch's global generator."""

    @abstractmethod
    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch; `labels` are padded with `IGNORED`."""

    @abstractmethod
    def decode(
        self,
        examples: Sequence[Example],
        features: Sequence[Features],
        logits: Sequence[Logits],
    ) -> list[Prediction]:
        """Turn the logits of all sequences into one prediction for each example."""

    @abstractmethod
    def score(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Return scores by name, `metric` among them, as fractions."""

    @abstractmethod
    def answer_majority(
        self, train: Sequence[Example], examples: Sequence[Example]
    ) -> list[Prediction]:
        """Answer everything with the most frequent label of the training set."""
