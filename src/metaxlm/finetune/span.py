"""Question answering: questions about a text come in, answers cut out of it go out.

What XQuAD, MLQA and TyDiQA-GoldP of the paper's Section 4.2 share, and a user's own SQuAD file: the
windows (`windows.py`), the loss of the answer's two ends, the search for the best answer
(`answer_search.py`), F1 and exact match (`answer_metrics.py`), and two levels to compare with.
Shapes: B batch, L length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.files import dump_json
from metaxlm.finetune.answer_metrics import normalize_squad, score_answer
from metaxlm.finetune.answer_search import find_answers
from metaxlm.finetune.losses import compute_cross_entropy
from metaxlm.finetune.readers.questions import Question, read_questions
from metaxlm.finetune.task import (
    DataFile,
    Examples,
    Features,
    FeatureSet,
    FinetuneSettings,
    Logits,
    Tally,
    Task,
)
from metaxlm.finetune.windows import cut_windows
from metaxlm.model.heads import HeadKind
from metaxlm.scripts import UNSPACED_CHARACTERS

_UNIT = re.compile(rf"[{UNSPACED_CHARACTERS}]|[^\s{UNSPACED_CHARACTERS}]+")


class SpanTask(Task[Question, str]):
    """A task whose answers are cut out of a context; subclasses say where its files are."""

    kind: ClassVar[HeadKind] = "span"
    metric = "f1"
    submission_suffix: ClassVar[str] = ".json"

    def read(self, file: DataFile) -> Examples[Question]:
        """Read a SQuAD JSON file."""
        return read_questions(file.path, is_training=file.split == "train")

    def is_labeled(self, example: Question) -> bool:
        """Say whether an answer is known."""
        return bool(example.answers)

    def featurize(
        self,
        examples: Sequence[Question],
        tokenizer: PreTrainedTokenizerBase,
        settings: FinetuneSettings,
    ) -> FeatureSet:
        """Turn questions into windows of at most `settings.length` tokens."""
        return cut_windows(examples, tokenizer, length=settings.length, stride=settings.stride)

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the mean of the cross entropies of start and end over the real tokens."""
        columns_L = torch.arange(logits.shape[1], device=logits.device)
        is_padding_BL = columns_L >= lengths_B[:, None]
        scores_BL2 = logits.float().masked_fill(is_padding_BL[:, :, None], -torch.inf)
        return compute_cross_entropy(scores_BL2, labels)

    def decode(
        self,
        examples: Sequence[Question],
        features: Sequence[Features],
        logits: Sequence[Logits],
    ) -> list[str]:
        """Return the best answer over all windows of each question."""
        return find_answers(examples, features, logits)

    def normalize(self, text: str, language: str) -> str:  # noqa: ARG002 - for subclasses
        """Make texts alike that count as the same answer: SQuAD's rules in every language."""
        return normalize_squad(text)

    def tally(
        self, examples: Sequence[Question], predictions: Sequence[str], language: str
    ) -> Tally:
        """Return F1, exact match and 1 for each question."""
        rows = [
            score_answer(
                prediction,
                [answer.text for answer in example.answers],
                lambda text: self.normalize(text, language),
            )
            for example, prediction in zip(examples, predictions, strict=True)
        ]
        scores = np.array(rows, dtype=np.float64).reshape(-1, 2)
        return np.column_stack((scores, np.ones(len(rows))))

    def summarize(self, totals: Tally) -> dict[str, npt.NDArray[np.float64]]:
        """Return the means of F1 and exact match."""
        return {"f1": totals[..., 0] / totals[..., 2], "em": totals[..., 1] / totals[..., 2]}

    def answer_majority(self, train: Sequence[Question], examples: Sequence[Question]) -> list[str]:
        """Answer with the start of the context, as long as the median answer in training.

        Lengths are in words, and in characters where a script has no spaces between words.
        """
        length = int(np.median(_measure_answers(train)))
        return [_cut(example.context, 0, length) for example in examples]

    def answer_randomly(
        self, train: Sequence[Question], examples: Sequence[Question], random: np.random.Generator
    ) -> list[str]:
        """Answer with a random part of the context, as long as some answer in training.

        Lengths are in words, and in characters where a script has no spaces between words; each
        place where an answer of the drawn length fits is equally probable.
        """
        lengths = random.choice(_measure_answers(train), size=len(examples))
        places = random.random(len(examples))
        answers: list[str] = []
        for example, length, place in zip(examples, lengths.tolist(), places.tolist(), strict=True):
            num_places = max(len(_find_units(example.context)) - length + 1, 1)
            answers.append(_cut(example.context, int(place * num_places), length))
        return answers

    def format_predictions(self, examples: Sequence[Question], predictions: Sequence[str]) -> str:
        """Return a JSON object of answers by question id."""
        pairs = zip(examples, predictions, strict=True)
        return dump_json({example.id: prediction for example, prediction in pairs})


@lru_cache(maxsize=256)
def _find_units(text: str) -> tuple[tuple[int, int], ...]:
    """Return first and last + 1 character of each word, or character without spaces around it.

    The latest are remembered, as a context has several questions.
    """
    return tuple(unit.span() for unit in _UNIT.finditer(text))


def _measure_answers(train: Sequence[Question]) -> npt.NDArray[np.int64]:
    """Return the lengths of the training answers in words or characters; 1 if there are none."""
    lengths = [len(_UNIT.findall(answer.text)) for item in train for answer in item.answers[:1]]
    return np.array(lengths or [1], dtype=np.int64)


def _cut(context: str, first: int, length: int) -> str:
    """Cut words (or characters) out of a context, with what stands between them."""
    units = _find_units(context)[first : first + length]
    return context[units[0][0] : units[-1][1]] if units else ""
