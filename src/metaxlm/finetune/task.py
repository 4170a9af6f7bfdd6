"""What a finetuned task is: files, features, a head, a metric, languages, hyperparameters.

The finetuning loop (`finetune.py`) knows only this face; a task of the paper's Section 4.2 is one
small file that fills it in. Data flows: files -> examples -> features (token ids and labels) ->
logits -> predictions, one for each example -> tallies, one for each example -> scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.finetune.encoding import Ids
from metaxlm.model.heads import HeadKind

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")

Logits = npt.NDArray[np.float32]
"""The head's answer to one sequence: [classes], or [tokens, classes] without the padding."""

Tally = npt.NDArray[np.float64]
"""What each example adds to a score, [examples, counts]; a score is a function of the sums."""

Split = Literal["train", "select", "dev", "test"]
"""`select` picks the epoch where it is no dev set of the task itself (SQuAD's, for XQuAD)."""

SelectBy = Literal["source", "all", "last"]
"""What picks the epoch: the dev set of the training language, the mean over the dev sets of all
languages, or nothing, which takes the last."""

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
    stride: int = 128
    """Tokens from the start of a window to that of the next (long contexts of questions only)."""
    warmup: float = 0.1
    """Share of the steps that warm up."""
    select_by: SelectBy = "source"
    """What picks the best epoch."""
    clip: float = 1.0
    """Largest gradient norm."""
    adam_epsilon: float = 1e-8
    """The paper gives none for finetuning; this is what XTREME's scripts use."""


@dataclass(frozen=True)
class DataFile:
    """One file of a task."""

    language: str
    split: Split
    path: Path
    name: str
    """What results call the split: `test`, `dev`, or more exactly, such as `test-derived`."""
    parts: tuple[DataFile, ...] = ()
    """The files that are read as this one, where there are several; `path` is the first one's."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that are read."""
        return tuple(part.path for part in self.parts) or (self.path,)


@dataclass(frozen=True)
class Examples(Generic[Example]):
    """The content of one file."""

    items: list[Example]
    notices: tuple[str, ...] = ()
    """What was left out, repaired or is odd, each with the file; to be said."""


@dataclass(frozen=True)
class Features:
    """One sequence for the model."""

    ids: Ids
    labels: Ids
    """Of the sequence ([1]), of each token, or the tokens at the answer's ends ([2]).

    `IGNORED` where nothing is to be predicted; all of it if the example has no label.
    """
    token_types: Ids | None = None
    """0 and 1 for the two texts of a pair; encoders with one type do not use them."""
    example: int = 0
    """Index of the example that it is a part of."""
    offsets: npt.NDArray[np.int32] | None = None
    """First and last + 1 character of the context for each token, [tokens, 2]; -1 outside it."""


@dataclass(frozen=True)
class FeatureSet:
    """Examples of one file as sequences, in order; a long example may take several."""

    features: list[Features]
    notice: str = ""
    """What was cut or split, to be said; empty if nothing was."""


class Task(ABC, Generic[Example, Prediction]):
    """One finetuned task; attributes are the paper's unless the user's YAML says otherwise."""

    name: str
    title: str
    """What tables call it, such as `XNLI`."""
    kind: ClassVar[HeadKind]
    labels: tuple[str, ...]
    """Classes or tags in the order of the logits; empty for questions."""
    metric: str
    """The score that selects checkpoints and stands in the tables."""
    languages: tuple[str, ...]
    """The paper's test languages."""
    sources: tuple[str, ...]
    """Languages that it is trained in, one at a time."""
    settings: FinetuneSettings
    """The paper's hyperparameters."""
    trains_on: str = ""
    """Name of the training set where tasks share one (`squad`); otherwise the task's own."""
    reading: str = ""
    """What else decides which examples the files give, such as the user's choice of columns."""

    def __init__(
        self,
        *,
        name: str,
        title: str,
        languages: Sequence[str],
        settings: FinetuneSettings,
        labels: Sequence[str] = (),
        sources: Sequence[str] = ("en",),
    ) -> None:
        self.name = name
        self.title = title
        self.labels = tuple(labels)
        self.languages = tuple(languages)
        self.sources = tuple(sources)
        self.settings = settings

    @property
    def training(self) -> str:
        """Name what is trained: the task, or the training set that it shares with others."""
        return self.trains_on or self.name

    @abstractmethod
    def list_files(self, data_dir: Path) -> list[DataFile]:
        """List the files of this task below a folder; at most one for each language and split."""

    @abstractmethod
    def read(self, file: DataFile) -> Examples[Example]:
        """Read one file; a broken one is an error that names file and line."""

    @abstractmethod
    def is_labeled(self, example: Example) -> bool:
        """Say whether the right answer is known; published test sets often have none."""

    @abstractmethod
    def featurize(
        self,
        examples: Sequence[Example],
        tokenizer: PreTrainedTokenizerBase,
        settings: FinetuneSettings,
    ) -> FeatureSet:
        """Turn examples into sequences of at most `settings.length` tokens."""

    @abstractmethod
    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the mean loss over the labels of a batch that are not `IGNORED`.

        Rows of `labels` are `Features.labels`, filled up with `IGNORED`; `lengths_B` are the real
        tokens. Whole rows may be `IGNORED`. Shapes never depend on values, so that the step can be
        recorded as a CUDA graph.
        """

    @abstractmethod
    def decode(
        self,
        examples: Sequence[Example],
        features: Sequence[Features],
        logits: Sequence[Logits],
    ) -> list[Prediction]:
        """Turn the logits of all sequences into one prediction for each example."""

    @abstractmethod
    def tally(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], language: str
    ) -> Tally:
        """Return what each labeled example adds to the scores, [examples, counts]."""

    @abstractmethod
    def summarize(self, totals: Tally) -> dict[str, npt.NDArray[np.float64]]:
        """Return scores by name as fractions, `metric` among them, of sums [..., counts]."""

    def score(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], language: str
    ) -> dict[str, float]:
        """Return scores by name, `metric` among them, as fractions."""
        totals = self.tally(examples, predictions, language).sum(axis=0)
        return {name: float(value) for name, value in self.summarize(totals).items()}

    @abstractmethod
    def answer_majority(
        self, train: Sequence[Example], examples: Sequence[Example]
    ) -> list[Prediction]:
        """Answer everything with what is most frequent in the training set."""

    @abstractmethod
    def answer_randomly(
        self, train: Sequence[Example], examples: Sequence[Example], random: np.random.Generator
    ) -> list[Prediction]:
        """Answer at random, with each possible answer equally probable: the level of chance."""

    @abstractmethod
    def format_predictions(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> str:
        """Return the content of a submission file to XTREME."""

    submission_suffix: ClassVar[str] = ".tsv"
    """Of the submission file: `.tsv`, or `.json` for questions."""
