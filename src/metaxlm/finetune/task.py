"""The task protocol: files, features, a head, a metric, languages, hyperparameters.

`trainer.py` uses only this interface. Data flow: files -> examples -> features
(token ids and labels) -> logits -> one prediction per example -> one tally per example -> scores.
`load_data` reads all files before training, so that a broken file raises at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.encoding import Ids, check_tokenizer
from metaxlm.finetune.readers.input_lines import Examples
from metaxlm.progress import say

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedTokenizerBase as Tokenizer

    from metaxlm.model.encoder import EncoderConfig
    from metaxlm.model.heads import HeadKind


Example = TypeVar("Example")
"""Has a property `is_labeled`: published test sets often have no labels."""
Prediction = TypeVar("Prediction")

Labels = npt.NDArray[np.int32] | npt.NDArray[np.float32]
"""Whole numbers of classes, tags or tokens; or real targets of the outputs."""
Logits = npt.NDArray[np.float32]
"""The head's output for one sequence: [classes], or [tokens, classes] without the padding."""
Tally = npt.NDArray[np.float64]
"""Counts of each example, [examples, counts]; a score is a function of their sums."""
Split = Literal["train", "select", "dev", "test"]
"""`select` chooses the epoch where the task has no dev set of its own (SQuAD's, for XQuAD)."""
SelectBy = Literal["source", "all", "last"]
"""Choose the epoch by the dev set of the training language, by the mean over all, or the last."""

IGNORED = -100
"""Label of a token that is not predicted, as in torch's cross entropy."""


@dataclass(frozen=True)
class FinetuneSettings:
    """Hyperparameters of finetuning; the paper's are in its appendix table."""

    epochs: int
    learning_rate: float
    batch_size: int = 32
    weight_decay: float = 0.0
    """Decoupled; biases and LayerNorms have none."""
    length: int = 128
    """Maximum sequence length, with special tokens."""
    stride: int = 128
    """Tokens from the start of a window to the next (long contexts of questions only)."""
    warmup: float = 0.1
    """Fraction of the steps that warm up."""
    select_by: SelectBy = "source"
    clip: float = 1.0
    """Maximum gradient norm."""
    adam_epsilon: float = 1e-8
    """The paper gives none for finetuning; this is the value of XTREME's scripts."""
    switch: float = 0.0
    """Share of the training words with a dictionary translation to replace by one, drawn again for
    each epoch; not in the paper."""

    def describe(self) -> dict[str, Any]:
        """Return all values, without `switch` if nothing is switched, as before there was one."""
        values = asdict(self)
        return values if self.switch else {k: v for k, v in values.items() if k != "switch"}


@dataclass(frozen=True)
class DataFile:
    """One file of a task."""

    language: str
    split: Split
    path: Path
    name: str
    """The split's name in results, such as `test` or `test-derived`."""
    parts: tuple[DataFile, ...] = ()
    """The files that are read as one, where there are several; `path` is the first one's."""
    excluding: Path | None = None
    """A file whose contexts are left out of this one (XQuAD's, of SQuAD's dev set)."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that are read."""
        whole = (self.path,) if self.excluding is None else (self.path, self.excluding)
        return tuple(part.path for part in self.parts) or whole


@dataclass(frozen=True)
class Features:
    """One sequence for the model."""

    ids: Ids
    labels: Labels
    """Of the sequence ([1]), of each token, or the answer's ends ([2]); `IGNORED` if unknown. Real
    numbers are targets of the sequence's outputs."""
    token_types: Ids | None = None
    """0 and 1 for the two texts of a pair; encoders with one type do not use them."""
    example: int = 0
    offsets: npt.NDArray[np.int32] | None = None
    """First and last + 1 character of the context for each token, [tokens, 2]; -1 outside it."""


@dataclass(frozen=True)
class FeatureSet:
    """The sequences of one file, in order, and a notice about truncated and split examples."""

    features: list[Features]
    notice: str = ""


@dataclass(kw_only=True, eq=False)
class Task(ABC, Generic[Example, Prediction]):
    """One finetuned task."""

    kind: ClassVar[HeadKind]
    problem: ClassVar[str] = "single_label_classification"
    """transformers' `problem_type` of a head that classifies sequences."""
    submission_suffix: ClassVar[str] = ".tsv"
    """Of XTREME's submission file: `.tsv`, or `.json` for questions."""

    name: str
    """The task's name in recipes, folders and results; `title` in tables."""
    title: str
    languages: tuple[str, ...]
    """Test languages."""
    settings: FinetuneSettings
    """Hyperparameters, unless the user overrides them."""
    list_files: Callable[[Path], list[DataFile]]
    """Lists the files below a folder, at most one per language and split."""
    reader: Callable[[DataFile], Examples[Example]]
    labels: tuple[str, ...] = ()
    """Classes or tags in the order of the logits; empty for questions."""
    sources: tuple[str, ...] = ("en",)
    """Training languages, one model each."""
    training: str = ""
    """Name of the training set, which several tasks may share (`squad`); by default the task's."""
    reading: str = ""
    """What else decides which examples the files give, such as a choice of columns."""
    metric: str = "f1"
    """The score that selects checkpoints and is shown in tables."""

    def __post_init__(self) -> None:
        self.training = self.training or self.name

    def read(self, file: DataFile) -> Examples[Example]:
        """Read one file with all its parts; a broken one raises an error with file and line."""
        contents = [self.reader(part) for part in file.parts or (file,)]
        return Examples(
            [item for content in contents for item in content.items],
            tuple(notice for content in contents for notice in content.notices),
        )

    @abstractmethod
    def featurize(
        self, examples: Sequence[Example], tokenizer: Tokenizer, settings: FinetuneSettings
    ) -> FeatureSet:
        """Turn examples into sequences of at most `settings.length` tokens."""

    @abstractmethod
    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the mean loss over the labels of a batch that are not `IGNORED`.

        Rows of `labels` are `Features.labels`, padded with `IGNORED`; `lengths_B` are the real
        tokens. Shapes never depend on values, so that the step can be a CUDA graph.
        """

    def finish(self, model: nn.Module) -> None:
        """Change a trained model so that it predicts in the units of the files."""

    @abstractmethod
    def decode(
        self, examples: Sequence[Example], features: Sequence[Features], logits: Sequence[Logits]
    ) -> list[Prediction]:
        """Turn the logits of all sequences into one prediction per example."""

    @abstractmethod
    def tally(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], language: str
    ) -> Tally:
        """Return the counts of each labeled example, [examples, counts]."""

    @abstractmethod
    def summarize(self, totals: Tally) -> dict[str, npt.NDArray[np.float64]]:
        """Return scores by name as fractions, `metric` among them, from sums [..., counts]."""

    def score(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], language: str
    ) -> dict[str, float]:
        """Return scores by name, `metric` among them, as fractions."""
        totals = self.tally(examples, predictions, language).sum(axis=0)
        return {name: float(value) for name, value in self.summarize(totals).items()}

    def confuse(
        self,
        examples: Sequence[Example],  # noqa: ARG002
        predictions: Sequence[Prediction],  # noqa: ARG002
    ) -> list[list[int]]:
        """Return how often each class is predicted as each; empty if the task does not show it."""
        return []

    @abstractmethod
    def answer_majority(
        self, train: Sequence[Example], examples: Sequence[Example]
    ) -> list[Prediction]:
        """Answer everything with the most frequent answer of the training set."""

    @abstractmethod
    def answer_randomly(
        self, train: Sequence[Example], examples: Sequence[Example], random: np.random.Generator
    ) -> list[Prediction]:
        """Answer at random, each possible answer equally probable."""

    @abstractmethod
    def format_predictions(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> str:
        """Return the content of a submission file to XTREME."""


AnyTask = Task[Any, Any]
Baselines = tuple[dict[str, float], dict[str, float]]
"""Scores by name of the training set's most frequent answer, and of a random one."""


@dataclass(frozen=True)
class Dataset:
    """One file, read and encoded."""

    file: DataFile
    examples: list[Any]
    features: list[Features]
    num_unlabeled: int


@dataclass(frozen=True)
class TaskData:
    """All data of one finetuning."""

    train: Dataset
    selecting: tuple[Dataset, ...]
    """Sets whose mean score chooses the epoch; empty to take the last one."""
    scored: tuple[Dataset, ...]
    """Dev and test sets of the requested languages, in their order."""
    baselines: dict[DataFile, Baselines] = field(default_factory=dict)
    """Of the scored files, computed once for all models."""


def load_data(
    task: AnyTask,
    tokenizer: Tokenizer,
    data_dir: Path,
    *,
    source: str,
    languages: Sequence[str],
    settings: FinetuneSettings,
    config: EncoderConfig,
    limit: int | None = None,
    loaded: dict[DataFile, Dataset] | None = None,
) -> TaskData:
    """Read and encode the first `limit` examples of all files of a task.

    `loaded` has files that were encoded with the same settings; new ones are added to it. With 0
    epochs, training and selecting sets are not needed.
    """
    loaded = {} if loaded is None else loaded
    check_tokenizer(tokenizer, config)
    if not 2 < settings.length <= config.max_positions:
        raise MetaXLMError(
            f"{task.name}: length {settings.length} does not fit the encoder's "
            f"{config.max_positions} positions; choose one from 3 to that"
        )
    files = {(file.split, file.language): file for file in task.list_files(data_dir)}

    def need(splits: Sequence[Split], language: str) -> list[DataFile]:
        found = [files[split, language] for split in splits if (split, language) in files]
        if not found:
            others = sorted({code for split, code in files if split in splits})
            names = " or ".join(split for split in splits if split != "select")
            raise MetaXLMError(
                f"{data_dir}: no {names} file of {task.name} for {language!r}; found here: "
                f"{' '.join(others) or 'nothing'} (`metaxlm data check` shows the layouts)"
            )
        return found

    def load(file: DataFile) -> Dataset:
        if file in loaded:
            return loaded[file]
        content = task.read(file)
        for notice in content.notices:
            say(f"{task.name}: {notice}")
        examples = content.items[:limit]
        num_unlabeled = sum(not example.is_labeled for example in examples)
        if num_unlabeled and file.split != "train":
            what = "no example has" if num_unlabeled == len(examples) else f"{num_unlabeled:,} lack"
            say(f"{task.name}: {file.path}: {what} a label; predicted, not scored")
        encoded = task.featurize(examples, tokenizer, settings)
        if encoded.notice:
            say(f"{task.name} {file.name}-{file.language}: {encoded.notice}")
        loaded[file] = Dataset(file, examples, encoded.features, num_unlabeled)
        return loaded[file]

    has_train = settings.epochs > 0 or ("train", source) in files
    train_file = need(("train",), source)[0] if has_train else None
    scored_files = [file for code in languages for file in need(("dev", "test"), code)]
    for split in sorted({file.split for file in scored_files}):
        missing = [code for code in languages if (split, code) not in files]
        if missing:
            say(f"{task.name}: no {split} file for {' '.join(missing)}; no {split} score there")
    selecting_files: list[DataFile] = []
    select_by = settings.select_by if settings.epochs else "last"
    if select_by == "source":
        selecting_files = need(("select", "dev"), source)[:1]
    elif select_by == "all":
        selecting_files = [file for file in scored_files if file.split == "dev"]
        if not selecting_files:
            what = f"no dev file of {task.name}; one is needed to choose an epoch"
            raise MetaXLMError(f"{data_dir}: {what}")
    none = Dataset(DataFile(source, "train", data_dir, "train"), [], [], 0)
    train = none if train_file is None else load(train_file)
    if train.num_unlabeled:
        raise MetaXLMError(
            f"{train.file.path}: {train.num_unlabeled:,} of {len(train.examples):,} training "
            f"examples have no label; remove or label them"
        )
    selecting = tuple(load(file) for file in selecting_files)
    for data in selecting:
        if data.num_unlabeled == len(data.examples):
            raise MetaXLMError(
                f"{data.file.path}: its labels are blanked out, so it cannot choose an epoch; "
                f"restore them, or take the last epoch (select_by: last)"
            )
    return TaskData(train, selecting, tuple(load(file) for file in scored_files))
