"""Extractive question answering (XQuAD, MLQA, TyDiQA-GoldP, custom tasks).

The best answer is found as in the scripts of XTREME and xTune: in each window the 20 best starts
and ends are combined, an answer has at most 30 tokens, and the highest sum of logits wins; among
equal sums the earlier window, then the higher logit, then the earlier token. Unlike there, the 20
best are chosen among the tokens that may start or end an answer, and if no two of them fit
together, all pairs are searched. Shapes: B batch, L length, W windows, N candidates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.files import dump_json
from metaxlm.finetune.batches import compute_cross_entropy
from metaxlm.finetune.metrics import normalize_squad, score_answer
from metaxlm.finetune.qa_windows import Window, make_windows
from metaxlm.finetune.readers.questions import Question
from metaxlm.finetune.task import Features, FeatureSet, FinetuneSettings, Logits, Tally, Task
from metaxlm.model.heads import HeadKind
from metaxlm.scripts import UNSPACED_CHARACTERS

NUM_CANDIDATES = 20
MAX_ANSWER_TOKENS = 30

_WINDOWS_AT_ONCE = 512
_LARGEST = 1e30  # replaces infinite logits, so that sums stay finite; minus this replaces NaN
_UNIT = re.compile(rf"[{UNSPACED_CHARACTERS}]|[^\s{UNSPACED_CHARACTERS}]+")

Scores = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Questions = Sequence[Question]


@dataclass(kw_only=True, eq=False)
class SpanTask(Task[Question, str]):
    """Find the answer to a question in its context."""

    kind: ClassVar[HeadKind] = "span"
    submission_suffix: ClassVar[str] = ".json"
    normalize: Callable[[str, str], str] = lambda text, _: normalize_squad(text)
    """Maps a text in a language to a form that is equal for equal answers."""

    def featurize(
        self, examples: Questions, tokenizer: Tokenizer, settings: FinetuneSettings
    ) -> FeatureSet:
        """Turn questions into windows of at most `settings.length` tokens."""
        return make_windows(examples, tokenizer, length=settings.length, stride=settings.stride)

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the mean cross entropy of start and end over the real tokens."""
        columns_L = torch.arange(logits.shape[1], device=logits.device)
        is_padding_BL = columns_L >= lengths_B[:, None]
        scores_BL2 = logits.float().masked_fill(is_padding_BL[:, :, None], -torch.inf)
        return compute_cross_entropy(scores_BL2, labels)

    def decode(
        self, examples: Questions, features: Sequence[Features], logits: Sequence[Logits]
    ) -> list[str]:
        """Return the best answer over all windows of each question."""
        return find_answers(examples, features, logits)

    def tally(self, examples: Questions, predictions: Sequence[str], language: str) -> Tally:
        """Return F1, exact match and 1 for each question."""
        rows = []
        for example, prediction in zip(examples, predictions, strict=True):
            texts = [answer.text for answer in example.answers]
            score = score_answer(prediction, texts, lambda text: self.normalize(text, language))
            rows.append((*score, 1.0))
        return np.array(rows, dtype=np.float64).reshape(-1, 3)

    def summarize(self, totals: Tally) -> dict[str, Tally]:
        """Return the means of F1 and exact match."""
        return {"f1": totals[..., 0] / totals[..., 2], "em": totals[..., 1] / totals[..., 2]}

    def answer_majority(self, train: Questions, examples: Questions) -> list[str]:
        """Answer with the start of the context, as long as the median training answer."""
        length = int(np.median(_measure_answers(train)))
        return [_extract(example.context, 0, length) for example in examples]

    def answer_randomly(
        self, train: Questions, examples: Questions, random: np.random.Generator
    ) -> list[str]:
        """Answer with a random part of the context, as long as a random training answer."""
        lengths = random.choice(_measure_answers(train), size=len(examples))
        places = random.random(len(examples))
        answers: list[str] = []
        for example, length, place in zip(examples, lengths.tolist(), places.tolist(), strict=True):
            num_places = max(len(_find_units(example.context)) - length + 1, 1)
            answers.append(_extract(example.context, int(place * num_places), length))
        return answers

    def format_predictions(self, examples: Questions, predictions: Sequence[str]) -> str:
        """Return a JSON object of answers by question id."""
        ids = (example.id for example in examples)
        return dump_json(dict(zip(ids, predictions, strict=True)))


@lru_cache(maxsize=256)
def _find_units(text: str) -> tuple[tuple[int, int], ...]:
    """Return first and last + 1 character of each word, or character of an unspaced script."""
    return tuple(unit.span() for unit in _UNIT.finditer(text))


def _measure_answers(train: Questions) -> npt.NDArray[np.int64]:
    """Return the lengths of the training answers in words or characters; 1 without any."""
    lengths = [len(_UNIT.findall(answer.text)) for item in train for answer in item.answers[:1]]
    return np.array(lengths or [1], dtype=np.int64)


def _extract(context: str, first: int, length: int) -> str:
    """Return words (or characters) of a context, with the text between them."""
    units = _find_units(context)[first : first + length]
    return context[units[0][0] : units[-1][1]] if units else ""


def find_answers(
    questions: Questions, features: Sequence[Features], logits: Sequence[Logits]
) -> list[str]:
    """Return the best answer of each question, stripped; empty if no token may start one."""
    windows = cast(Sequence[Window], features)
    answers = [""] * len(questions)
    found = _search_windows(range(len(windows)), windows, logits, _WINDOWS_AT_ONCE, NUM_CANDIDATES)
    rest = [number for number, window in enumerate(windows) if window.example not in found]
    longest = max((len(windows[number].ids) for number in rest), default=1)
    found |= _search_windows(rest, windows, logits, 1, longest)
    for example, (number, start, end) in found.items():
        offsets = windows[number].offsets
        answers[example] = questions[example].context[offsets[start, 0] : offsets[end, 1]].strip()
    return answers


def _search_windows(
    numbers: Sequence[int],
    windows: Sequence[Window],
    logits: Sequence[Logits],
    at_once: int,
    num_candidates: int,
) -> dict[int, tuple[int, int, int]]:
    """Return window, start and end of the best answer by example, where a pair fits."""
    scores: dict[int, float] = {}
    found: dict[int, tuple[int, int, int]] = {}
    for first in range(0, len(numbers), at_once):
        some = numbers[first : first + at_once]
        best = _search([windows[n] for n in some], [logits[n] for n in some], num_candidates)
        for number, score, start, end in zip(some, *map(np.ndarray.tolist, best), strict=True):
            example = windows[number].example
            if score > scores.get(example, -np.inf):
                scores[example] = score
                found[example] = (number, start, end)
    return found


def _search(
    windows: Sequence[Window], logits: Sequence[Logits], num_candidates: int
) -> tuple[Scores, Places, Places]:
    """Return score (-inf without an answer), start and end of each window's best answer."""
    starts_WL, ends_WL = _score_tokens(windows, logits)
    places_WN = np.argsort(-starts_WL, axis=1, kind="stable")[:, :num_candidates]
    others_WN = np.argsort(-ends_WL, axis=1, kind="stable")[:, :num_candidates]
    start_scores_WN = np.take_along_axis(starts_WL, places_WN, axis=1)
    end_scores_WN = np.take_along_axis(ends_WL, others_WN, axis=1)
    sums_WNN = start_scores_WN[:, :, None] + end_scores_WN[:, None, :]
    steps_WNN = others_WN[:, None, :] - places_WN[:, :, None]
    sums_WNN[(steps_WNN < 0) | (steps_WNN >= MAX_ANSWER_TOKENS)] = -np.inf
    rows_W = np.arange(len(windows))
    best_W = sums_WNN.reshape(len(windows), -1).argmax(axis=1)
    i_W, j_W = np.divmod(best_W, sums_WNN.shape[2])
    return sums_WNN[rows_W, i_W, j_W], places_WN[rows_W, i_W], others_WN[rows_W, j_W]


def _score_tokens(windows: Sequence[Window], logits: Sequence[Logits]) -> tuple[Scores, Scores]:
    """Pad the logits of starts and ends, [W, L]; -inf for tokens that cannot be one."""
    lengths_W = np.array([len(window.ids) for window in windows])
    is_real_WL = np.arange(lengths_W.max()) < lengths_W[:, None]
    values_N2 = np.concatenate(logits)
    values_N2 = np.nan_to_num(values_N2, nan=-_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)
    starts_WL, ends_WL = np.full((2, *is_real_WL.shape), -np.inf)
    offsets_N2 = np.concatenate([window.offsets for window in windows])
    may_end_N = offsets_N2[:, 1] > offsets_N2[:, 0]
    may_start_N = may_end_N & np.concatenate([window.may_start for window in windows])
    starts_WL[is_real_WL] = np.where(may_start_N, values_N2[:, 0], -np.inf)
    ends_WL[is_real_WL] = np.where(may_end_N, values_N2[:, 1], -np.inf)
    return starts_WL, ends_WL
