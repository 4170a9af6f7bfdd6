"""Multiple choice: which of several answers to a question is right (Belebele, custom tasks).

Each choice is a pair of texts in the tokenizer's own template: the context, and the question with
the choice after it; or question and choice without a context. The head of classification learns
whether a pair is right or wrong, and the prediction is the choice that is most probably right. A
step of training does not need to have all choices of a question. A long context loses its end;
question and choice are kept.
"""

# ruff: noqa: ARG002  # the interface has parameters that not every task needs
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mode
from typing import ClassVar

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.finetune.batches import compute_cross_entropy
from metaxlm.finetune.encoding import MAX_CHARACTERS
from metaxlm.finetune.metrics import Counts
from metaxlm.finetune.readers.choices import Choices
from metaxlm.finetune.task import (
    IGNORED,
    Features,
    FeatureSet,
    FinetuneSettings,
    Logits,
    Task,
)
from metaxlm.model.heads import HeadKind

Questions = Sequence[Choices]

WRONG, RIGHT = "wrong", "right"
_PAIRS_AT_ONCE = 4_000
"""Pairs that are tokenized together; more take too much memory."""


@dataclass(kw_only=True, eq=False)
class MultipleChoiceTask(Task[Choices, int]):
    """Choose the right answer to a question; a prediction is its number from 1."""

    kind: ClassVar[HeadKind] = "classification"
    labels: tuple[str, ...] = (WRONG, RIGHT)
    """Classes of a pair."""
    metric: str = "accuracy"

    def featurize(
        self, examples: Questions, tokenizer: Tokenizer, settings: FinetuneSettings
    ) -> FeatureSet:
        """Encode a pair for each choice; shorten its context."""
        pairs = list(_list_pairs(examples))
        features: list[Features] = []
        num_cut = 0
        for start in range(0, len(pairs), _PAIRS_AT_ONCE):
            part = pairs[start : start + _PAIRS_AT_ONCE]
            encoded = tokenizer(
                [pair.first[:MAX_CHARACTERS] for pair in part],
                [pair.second[:MAX_CHARACTERS] for pair in part],
                return_token_type_ids=True,
                return_attention_mask=False,
                verbose=False,
            )
            rows = zip(part, encoded["input_ids"], encoded["token_type_ids"], strict=True)
            for k, (pair, ids, types) in enumerate(rows):
                row, kinds = np.array(ids, np.int32), np.array(types, np.int32)
                if len(ids) > settings.length:
                    num_cut += 1
                    dropped = _choose_dropped(encoded.sequence_ids(k), settings.length)
                    row, kinds = np.delete(row, dropped), np.delete(kinds, dropped)
                label = np.array([pair.label], np.int32)
                features.append(Features(row, label, kinds, example=pair.example))
        notice = f"{num_cut:,} of {len(pairs):,} choices with question and context are longer than "
        notice += f"{settings.length} tokens; their contexts are truncated"
        return FeatureSet(features, notice if num_cut else "")

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the mean cross entropy over the labeled pairs."""
        return compute_cross_entropy(logits, labels[:, 0])

    def decode(
        self, examples: Questions, features: Sequence[Features], logits: Sequence[Logits]
    ) -> list[int]:
        """Return the choice that is most probably right; the first among equals."""
        scores: dict[int, list[float]] = defaultdict(list)
        for pair, (wrong, right) in zip(features, logits, strict=True):
            scores[pair.example].append(float(right) - float(wrong))
        return [int(np.argmax(scores[number])) + 1 for number in range(len(examples))]

    def tally(self, examples: Questions, predictions: Sequence[int], language: str) -> Counts:
        """Return correct and 1."""
        both = zip(examples, predictions, strict=True)
        right = [float(example.answer == answer) for example, answer in both]
        return np.array([right, [1.0] * len(right)]).T

    def summarize(self, totals: Counts) -> dict[str, Counts]:
        """Return the accuracy over questions."""
        return {"accuracy": totals[..., 0] / totals[..., 1]}

    def answer_majority(self, train: Questions, examples: Questions) -> list[int]:
        """Answer with the number that is most often right in the training set."""
        return [mode(question.answer for question in train if question.answer)] * len(examples)

    def answer_randomly(
        self, train: Questions, examples: Questions, random: np.random.Generator
    ) -> list[int]:
        """Draw each choice of a question with the same probability."""
        return [1 + int(random.integers(len(question.choices))) for question in examples]

    def format_predictions(self, examples: Questions, predictions: Sequence[int]) -> str:
        """Return one number per line, from 1."""
        return "".join(f"{number}\n" for number in predictions)


@dataclass(frozen=True)
class _Pair:
    first: str
    second: str
    label: int
    example: int


def _list_pairs(examples: Questions) -> Iterator[_Pair]:
    for number, found in enumerate(examples):
        for k, choice in enumerate(found.choices, start=1):
            label = IGNORED if found.answer is None else int(k == found.answer)
            if found.context is None:
                yield _Pair(found.question, choice, label, number)
            else:
                yield _Pair(found.context, f"{found.question} {choice}", label, number)


def _choose_dropped(sides: Sequence[int | None], length: int) -> list[int]:
    """Return the places to drop: the end of the first text, then the start of the second."""
    firsts, seconds = ([k for k, side in enumerate(sides) if side == each] for each in (0, 1))
    return [*reversed(firsts), *seconds][: len(sides) - length]
