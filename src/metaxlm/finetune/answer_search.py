"""The best answer of each question: logits of all windows come in, texts of the context go out.

As in the scripts that the paper's question answering goes back to (XTREME's and xTune's, after
BERT's): in each window the 20 best starts and the 20 best ends are combined, an answer has at most
30 tokens, and the highest sum of two logits wins over all windows of a question. Of equal sums, the
earlier window wins, then the start and the end with the higher logit, then the earlier token. Other
than there, the 20 best are taken among the tokens that may start or end an answer, so that nothing
is lost to the question, and where no two of them fit together all pairs are searched, instead of
answering "empty". Shapes: W windows, L length, N candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from metaxlm.finetune.readers.questions import Question
from metaxlm.finetune.task import Features, Logits
from metaxlm.finetune.windows import Window

NUM_CANDIDATES = 20
"""Best starts and best ends of a window that are combined."""
MAX_ANSWER_TOKENS = 30
"""No answer is longer."""

_WINDOWS_AT_ONCE = 512
_LARGEST = 1e30
"""Stands for an infinite logit, so that sums stay finite; minus this for one that is no number."""

Scores = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True)
class _Best:
    """The best answer of each window: its score (-inf if it has none) and its two tokens."""

    scores_W: Scores
    starts_W: Places
    ends_W: Places


def find_answers(
    questions: Sequence[Question], windows: Sequence[Features], logits: Sequence[Logits]
) -> list[str]:
    """Return the best answer's text for each question, without white space around it.

    Empty for a context without any text that the tokenizer keeps.
    """
    answers = [""] * len(questions)
    found = _search_windows(range(len(windows)), windows, logits, _WINDOWS_AT_ONCE, NUM_CANDIDATES)
    rest = [number for number, window in enumerate(windows) if window.example not in found]
    longest = max((len(windows[number].ids) for number in rest), default=1)
    found |= _search_windows(rest, windows, logits, 1, longest)
    for example, (number, start, end) in found.items():
        offsets = windows[number].offsets
        assert offsets is not None
        answers[example] = questions[example].context[offsets[start, 0] : offsets[end, 1]].strip()
    return answers


def _search_windows(
    numbers: Sequence[int],
    windows: Sequence[Features],
    logits: Sequence[Logits],
    at_once: int,
    num_candidates: int,
) -> dict[int, tuple[int, int, int]]:
    """Return window, start and end of the best answer, by example; none where no pair fits."""
    scores: dict[int, float] = {}
    found: dict[int, tuple[int, int, int]] = {}
    for first in range(0, len(numbers), at_once):
        some = numbers[first : first + at_once]
        best = _search([windows[n] for n in some], [logits[n] for n in some], num_candidates)
        rows = zip(some, best.scores_W.tolist(), best.starts_W, best.ends_W, strict=True)
        for number, score, start, end in rows:
            example = windows[number].example
            if score > scores.get(example, -np.inf):
                scores[example] = score
                found[example] = (number, int(start), int(end))
    return found


def _search(windows: Sequence[Features], logits: Sequence[Logits], num_candidates: int) -> _Best:
    """Combine the best starts and ends of each window."""
    starts_WL, ends_WL = _score_tokens(windows, logits)
    places_WN = np.argsort(-starts_WL, axis=1, kind="stable")[:, :num_candidates]
    others_WN = np.argsort(-ends_WL, axis=1, kind="stable")[:, :num_candidates]
    start_scores_WN = np.take_along_axis(starts_WL, places_WN, axis=1)
    end_scores_WN = np.take_along_axis(ends_WL, others_WN, axis=1)
    sums_WNN = start_scores_WN[:, :, None] + end_scores_WN[:, None, :]
    steps_WNN = others_WN[:, None, :] - places_WN[:, :, None]
    sums_WNN[(steps_WNN < 0) | (steps_WNN >= MAX_ANSWER_TOKENS)] = -np.inf
    sums = sums_WNN.reshape(len(windows), -1)
    best_W = sums.argmax(axis=1)
    rows_W = np.arange(len(windows))
    start_W, end_W = np.divmod(best_W, sums_WNN.shape[2])
    return _Best(sums[rows_W, best_W], places_WN[rows_W, start_W], others_WN[rows_W, end_W])


def _score_tokens(windows: Sequence[Features], logits: Sequence[Logits]) -> tuple[Scores, Scores]:
    """Pad the logits of starts and ends, [W, L]; -inf for tokens that cannot be one."""
    lengths_W = np.array([len(window.ids) for window in windows])
    is_real_WL = np.arange(lengths_W.max()) < lengths_W[:, None]
    values_N2 = np.concatenate(logits)
    values_N2 = np.nan_to_num(values_N2, nan=-_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)
    may_end, may_start = [], []
    for window in windows:
        assert isinstance(window, Window) and window.offsets is not None
        assert window.may_start is not None
        may_end.append(window.offsets[:, 1] > window.offsets[:, 0])
        may_start.append(may_end[-1] & window.may_start)
    padded: list[Scores] = []
    for column, allowed in ((0, may_start), (1, may_end)):
        scores_WL = np.full(is_real_WL.shape, -np.inf)
        scores_WL[is_real_WL] = np.where(np.concatenate(allowed), values_N2[:, column], -np.inf)
        padded.append(scores_WL)
    return padded[0], padded[1]
