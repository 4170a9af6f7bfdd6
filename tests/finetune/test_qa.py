"""Question answering: loss, scores, baselines, and the search for the best answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase, XLMRobertaTokenizer

from metaxlm.finetune import qa
from metaxlm.finetune.catalog import TASKS
from metaxlm.finetune.qa import find_answers
from metaxlm.finetune.qa_windows import Window
from metaxlm.finetune.readers.questions import Answer, Question
from metaxlm.finetune.task import IGNORED, Features, Logits
from metaxlm.randomness import generator

TASK, MLQA, TYDIQA = TASKS["xquad"], TASKS["mlqa"], TASKS["tydiqa"]
WORD = 4
"""Characters of a context's word, with the space after it."""
CONTEXT = " ".join(f"{k:03d}" for k in range(400))
QUESTION = Question("q", "?", CONTEXT)


def ask(context: str, *answers: str, name: str = "q") -> Question:
    return Question(name, "Who?", context, tuple(Answer(a, context.find(a)) for a in answers))


def test_the_loss_is_the_mean_over_ends_without_padding() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 7, 2, requires_grad=True)
    labels = torch.tensor([[1, 3], [0, 0], [IGNORED, IGNORED]])
    lengths = torch.tensor([5, 7, 4], dtype=torch.int32)
    loss = TASK.compute_loss(logits, labels, lengths)
    by_hand = [
        F.cross_entropy(logits[row, : int(lengths[row]), side][None], labels[row, side][None])
        for row in (0, 1)
        for side in (0, 1)
    ]
    torch.testing.assert_close(loss, torch.stack(by_hand).mean())
    loss.backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()
    assert (logits.grad[0, 5:] == 0).all() and (logits.grad[2] == 0).all()
    assert (logits.grad[0, :5] != 0).all()


def test_shapes_of_the_loss_do_not_depend_on_values() -> None:
    """Fake tensors have no values: reading one, which a CUDA graph cannot do, fails."""
    with FakeTensorMode():
        logits = torch.empty(3, 7, 2, requires_grad=True)
        labels, lengths = torch.zeros(3, 2, dtype=torch.int64), torch.zeros(3, dtype=torch.int32)
        loss = TASK.compute_loss(logits, labels, lengths)
        loss.backward()
        assert loss.shape == ()


def test_scores_are_means_over_questions() -> None:
    examples = [ask("the red cat", "red cat", "cat"), ask("a dog", "dog"), ask("x y", "x")]
    predictions = ["The cat", "dogs", "x y"]
    tally = TASK.tally(examples, predictions, "en")
    np.testing.assert_allclose(tally, [[1, 1, 1], [0, 0, 1], [2 / 3, 0, 1]])
    assert TASK.score(examples, predictions, "en") == {
        "f1": pytest.approx(5 / 9),
        "em": pytest.approx(1 / 3),
    }
    sums = TASK.summarize(np.stack([tally[:2].sum(axis=0), tally[2:].sum(axis=0)]))
    np.testing.assert_allclose(sums["f1"], [0.5, 2 / 3])
    np.testing.assert_allclose(sums["em"], [0.5, 0])
    assert TASK.tally([], [], "en").shape == (0, 3)
    # MLQA has rules for each language, the others have SQuAD's.
    examples, predictions = [ask("das Haus", "Haus")], ["das Haus"]
    tasks = ((MLQA, "de"), (MLQA, "en"), (TASK, "de"), (TYDIQA, "de"))
    assert [t.score(examples, predictions, code)["em"] for t, code in tasks] == [1, 0, 0, 0]


def test_majority_answers_with_the_start_of_the_context() -> None:
    long = "a b c d e f g h i"
    train = [ask(long, "a"), ask(long, "b c"), ask(long, long, "a")]
    contexts = ["  One two, three.", "我喜欢你。", "word", "ก ข ค"]
    answers = TASK.answer_majority(train, [ask(context) for context in contexts])
    assert answers == ["One two,", "我喜", "word", "ก ข"]
    assert TASK.answer_majority([ask("a b")], [ask("one two")]) == ["one"]


def test_chance_draws_places_evenly_and_lengths_from_training() -> None:
    train = [ask("a b c", "a"), ask("a b c", "b c"), ask("a b c", "a b")]
    examples = [ask("0 1 2 3")] * 6_000 + [ask("我你"), ask("")]
    answers = TASK.answer_randomly(train, examples, generator(0, "chance"))
    assert answers[-1] == "" and answers[-2] in ("我", "你", "我你")
    counts = {text: answers[:6_000].count(text) for text in set(answers[:6_000])}
    # One word in a third of the draws, at 4 places; two words in two thirds, at 3 places.
    expected = {**dict.fromkeys("0123", 500), **dict.fromkeys(("0 1", "1 2", "2 3"), 4_000 / 3)}
    assert counts.keys() == expected.keys()
    for text, count in counts.items():
        assert abs(count - expected[text]) < 4 * expected[text] ** 0.5
    again = TASK.answer_randomly(train, examples, generator(0, "chance"))
    assert again == answers
    assert TASK.answer_randomly(train, examples, generator(1, "chance")) != answers


def test_a_submission_has_answers_by_id() -> None:
    examples = [ask("x", "x", name="b-1"), ask("y", name="a-2")]
    text = TASK.format_predictions(examples, ['我喜欢 "你"', ""])
    assert json.loads(text) == {"b-1": '我喜欢 "你"', "a-2": ""}
    assert list(json.loads(text)) == ["b-1", "a-2"] and "我" in text and text.endswith("\n")
    assert TASK.submission_suffix == ".json"


def point_at_answers(features: Sequence[Features]) -> list[Logits]:
    """Logits of a perfect model."""
    logits = []
    for window in features:
        scores = np.zeros((len(window.ids), 2), dtype=np.float32)
        if window.labels[0] != IGNORED:
            scores[window.labels, [0, 1]] = 10
        logits.append(scores)
    return logits


def test_perfect_logits_give_the_answer_back(any_tokenizer: PreTrainedTokenizerBase) -> None:
    lines = ["We do not believe that we should cherry-pick .", "我喜欢你。小房子在河边的绿色山上。"]
    context = " ".join([*lines, "The small house sits on the hill .", *lines])
    answers = ["small house", "The small house sits", "小房子", "cherry-pick"]
    questions = [ask(context, answer) for answer in answers]
    settings = replace(TASK.settings, length=64, stride=24)
    found = TASK.featurize(questions, any_tokenizer, settings)
    assert len(found.features) > 2 * len(questions)
    predictions = TASK.decode(questions, found.features, point_at_answers(found.features))
    assert predictions == answers
    again = TASK.decode(questions, found.features, point_at_answers(found.features))
    assert again == predictions


def make_character_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerBase:
    """An XLM-R tokenizer with a piece for each character of some texts."""
    characters = sorted({char for text in texts for char in text if not char.isspace()} | {"▁"})
    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces = [(char, -9.0) for char in characters]
    return XLMRobertaTokenizer(vocab=[*special, *pieces, ("<mask>", 0.0)])


@pytest.mark.parametrize(
    ("name", "archives", "num_files"),
    [("xquad", "squad xquad", 12), ("mlqa", "squad mlqa", 8), ("tydiqa", "tydiqa", 10)],
)
def test_published_answers_are_exact_to_the_character(
    published: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    archives: str,
    num_files: int,
) -> None:
    """With a token for each character and no limits, nothing of an answer is lost."""
    monkeypatch.setattr(qa, "MAX_ANSWER_TOKENS", 10_000)
    task, folder = TASKS[name], [published(archive) for archive in archives.split()][-1]
    files = [file for file in task.list_files(folder) if file.split != "train"]
    assert len(files) == num_files
    for file in files:
        examples = task.read(file).items[::40]
        texts = [text for e in examples for text in (e.context, e.question)]
        tokenizer = make_character_tokenizer(texts)
        found = task.featurize(examples, tokenizer, replace(task.settings, length=20_000))
        predictions = task.decode(examples, found.features, point_at_answers(found.features))
        assert predictions == [example.answers[0].text.strip() for example in examples]
        assert task.score(examples, predictions, file.language) == {"f1": 1, "em": 1}


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
    monkeypatch.setattr(qa, "_WINDOWS_AT_ONCE", at_once)
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


def test_a_token_without_characters_does_not_end_an_answer() -> None:
    window = make_window(0, 5)
    assert window.offsets is not None
    window.offsets[[4, 6], 1] = window.offsets[[4, 6], 0]
    assert answer(window, place(window, start={4: 9, 3: 1}, end={6: 9, 5: 1})) == "000 001 002"


def test_where_no_candidates_fit_all_pairs_are_searched() -> None:
    """All good starts are after all good ends: other scripts answer `empty` here."""
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
def test_infinite_and_nan_logits_still_answer_with_text(value: float) -> None:
    window = make_window(0, 5)
    scores = np.full((len(window.ids), 2), value, dtype=np.float32)
    assert answer(window, scores) == "000"
    scores[5] = 1
    assert answer(window, scores) == ("000" if value == np.inf else "002")
    assert answer(make_window(0, 0), np.zeros((4, 2), dtype=np.float32)) == ""
    assert find_answers([QUESTION, QUESTION], [], []) == ["", ""]
