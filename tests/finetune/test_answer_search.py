"""The best answer, against the plain loops of the scripts it goes back to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from metaxlm.finetune.answer_search import find_answers
from metaxlm.finetune.windows import Window, cut_windows

from metaxlm.finetune import answer_search
from metaxlm.finetune.readers.questions import Question
from metaxlm.finetune.task import IGNORED, Logits
from tests.finetune.conftest import make_tokenizer

WORD = 4
"""Characters of a context's word, with the space after it."""
CONTEXT = " ".join(f"{k:03d}" for k in range(400))
QUESTION = Question("q", "?", CONTEXT)


def make_window(
    first: int, size: int, *, head: int = 3, starts: set[int] | None = None, example: int = 0
) -> Window:
    """A window whose tokens are words `first` to `first + size` of the context."""
    offsets = np.full((head + size + 1, 2), -1, dtype=np.int32)
    words = np.arange(first, first + size)
    offsets[head : head + size] = np.stack([words * WORD, words * WORD + 3], axis=1)
    may_start = np.zeros(len(offsets), dtype=np.bool_)
    may_start[head : head + size] = [starts is None or int(word) in starts for word in words]
    return Window(
        ids=np.zeros(len(offsets), dtype=np.int32),
        labels=np.full(2, IGNORED, dtype=np.int32),
        example=example,
        offsets=offsets,
        may_start=may_start,
    )


def port_search(windows: list[Window], logits: list[Logits]) -> str:
    """All pairs of 20 starts and 20 ends in order of their logits; the first of the best sum."""
    best: tuple[float, str] | None = None
    for window, scores in zip(windows, logits, strict=True):
        assert window.offsets is not None and window.may_start is not None
        inside = [k for k, (start, end) in enumerate(window.offsets.tolist()) if end > start]
        starts = [k for k in inside if window.may_start[k]]
        starts = sorted(starts, key=lambda k: -scores[k, 0])[:20]
        ends = sorted(inside, key=lambda k: -scores[k, 1])[:20]
        for start in starts:
            for end in ends:
                if not start <= end < start + 30:
                    continue
                total = float(scores[start, 0]) + float(scores[end, 1])
                if best is None or total > best[0]:
                    text = CONTEXT[window.offsets[start, 0] : window.offsets[end, 1]]
                    best = (total, text)
    assert best is not None
    return best[1]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("at_once", [1, 3, 512])
def test_the_search_equals_plain_loops(
    monkeypatch: pytest.MonkeyPatch, ties: bool, at_once: int
) -> None:
    monkeypatch.setattr(answer_search, "_WINDOWS_AT_ONCE", at_once)
    random = np.random.default_rng(ties)
    questions, windows, logits, expected = [], [], [], []
    for example in range(60):
        mine = []
        for number in range(random.integers(1, 4)):
            size = int(random.integers(1, 80))
            starts = set(random.permutation(200)[:120].tolist()) | {40 * number}
            mine.append(make_window(40 * number, size, starts=starts, example=example))
        scores: list[Logits] = []
        for window in mine:
            drawn = random.standard_normal((len(window.ids), 2)) * 3
            scores.append((drawn.round() if ties else drawn).astype(np.float32))
        questions.append(QUESTION)
        windows += mine
        logits += scores
        expected.append(port_search(mine, scores))
    assert find_answers(questions, windows, logits) == expected
    assert len(set(expected)) > 40


def place(window: Window, *, start: dict[int, float], end: dict[int, float]) -> Logits:
    scores = np.full((len(window.ids), 2), -9, dtype=np.float32)
    for column, values in enumerate((start, end)):
        for token, value in values.items():
            scores[token, column] = value
    return scores


def answer(window: Window, scores: npt.NDArray[np.float32]) -> str:
    return find_answers([QUESTION], [window], [scores])[0]


def test_only_tokens_of_the_context_answer() -> None:
    window = make_window(0, 5)
    scores = place(window, start={0: 9, 2: 9, 4: 1, 8: 9}, end={0: 9, 2: 9, 5: 1, 8: 9})
    assert answer(window, scores) == "001 002"


def test_an_answer_has_at_most_thirty_tokens() -> None:
    window = make_window(0, 60)
    longest = place(window, start={3: 5}, end={32: 5})
    assert answer(window, longest).split()[-1] == "029"
    too_long = place(window, start={3: 5}, end={33: 5, 4: 1})
    assert answer(window, too_long) == "000 001"


def test_an_answer_does_not_end_before_it_starts() -> None:
    window = make_window(0, 5)
    assert answer(window, place(window, start={6: 5, 3: 1}, end={4: 5, 6: 0})) == "000 001"


def test_only_twenty_starts_and_ends_are_combined() -> None:
    """The 21st start has the best sum with an end that is too far for the others."""
    window = make_window(0, 100)
    scores = np.full((len(window.ids), 2), -50, dtype=np.float32)
    scores[3:23, 0] = np.arange(20, 0, -1)
    scores[90, 0] = 0.5
    scores[95, 1] = 100
    scores[3:22, 1] = 1
    assert answer(window, scores) == "000"
    scores[22, 0] = 0.25
    assert answer(window, scores) == "087 088 089 090 091 092"


def test_an_answer_starts_where_the_window_shows_most() -> None:
    first, second = make_window(0, 10, starts=set(range(7))), make_window(5, 10, starts={7, 8, 9})
    scores = [place(first, start={11: 9, 4: 1}, end={11: 9, 4: 1}), place(second, start={}, end={})]
    assert find_answers([QUESTION], [first, second], scores) == ["001 002 003 004 005 006 007 008"]


def test_the_best_window_wins_and_the_first_of_equals() -> None:
    windows = [make_window(0, 5), make_window(20, 5), make_window(40, 5)]
    scores = [
        place(w, start={4: value}, end={4: value})
        for w, value in zip(windows, (1, 3, 3), strict=True)
    ]
    assert find_answers([QUESTION], windows, scores) == ["021"]


def test_sums_are_exact() -> None:
    windows = [make_window(0, 5), make_window(20, 5)]
    scores = [
        place(window, start={4: 2.0**24}, end={4: value})
        for window, value in zip(windows, (0.5, 1), strict=True)
    ]
    assert find_answers([QUESTION], windows, scores) == ["021"]


def test_a_token_without_characters_is_no_end_of_an_answer() -> None:
    window = make_window(0, 5)
    assert window.offsets is not None
    window.offsets[[4, 6], 1] = window.offsets[[4, 6], 0]
    assert answer(window, place(window, start={4: 9, 3: 1}, end={6: 9, 5: 1})) == "000 001 002"


def test_where_no_candidates_fit_all_pairs_are_searched() -> None:
    """All good starts stand behind all good ends: other scripts answer `empty` here."""
    window = make_window(0, 100)
    scores = np.zeros((len(window.ids), 2), dtype=np.float32)
    scores[60:90, 0] = 5
    scores[10:40, 1] = 5
    scores[12, 0] = 1
    assert answer(window, scores) == "009"
    # Another window of the same question has a pair: that one answers.
    other = make_window(200, 5)
    low = np.full((len(other.ids), 2), -99, dtype=np.float32)
    assert find_answers([QUESTION], [window, other], [scores, low]) == ["200"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers_still_answer_with_text(value: float) -> None:
    window = make_window(0, 5)
    scores = np.full((len(window.ids), 2), value, dtype=np.float32)
    assert answer(window, scores) == "000"
    scores[5] = 1
    assert answer(window, scores) == ("000" if value == np.inf else "002")


def test_a_question_without_text_or_windows_gets_an_empty_answer() -> None:
    window = make_window(0, 0)
    assert answer(window, np.zeros((4, 2), dtype=np.float32)) == ""
    assert find_answers([QUESTION, QUESTION], [], []) == ["", ""]


def test_white_space_around_an_answer_is_cut_off() -> None:
    context = "We  do not \u00a0 it is not"
    tokenizer = make_tokenizer("unigram")
    question = Question("q", "Who ?", context)
    (window,) = cut_windows([question], tokenizer, length=64, stride=8).features
    assert window.offsets is not None
    assert any(context[a:b] != context[a:b].strip() for a, b in window.offsets.tolist())
    random = np.random.default_rng(0)
    for _ in range(50):
        scores = random.standard_normal((len(window.ids), 2)).astype(np.float32)
        (text,) = find_answers([question], [window], [scores])
        assert text and text == text.strip() and text in context
