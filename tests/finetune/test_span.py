"""Question answering as a task: loss, scores, levels, submission, and the answers of real data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from metaxlm.finetune.mlqa import MlqaTask
from metaxlm.finetune.span import SpanTask
from metaxlm.finetune.tydiqa import TydiqaTask
from metaxlm.finetune.xquad import XquadTask
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase, XLMRobertaTokenizer

from metaxlm.finetune import answer_search
from metaxlm.finetune.readers.questions import Answer, Question
from metaxlm.finetune.task import IGNORED, Features, Logits
from metaxlm.randomness import generator

TASK = XquadTask()


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


def test_a_batch_without_labels_has_no_loss() -> None:
    logits = torch.randn(2, 5, 2, requires_grad=True)
    nothing = torch.full((2, 2), IGNORED)
    loss = TASK.compute_loss(logits, nothing, torch.tensor([5, 1]))
    loss.backward()
    assert loss.item() == 0 and logits.grad is not None and (logits.grad == 0).all()


def test_bfloat16_logits_are_summed_in_float32() -> None:
    logits = torch.randn(4, 9, 2).bfloat16()
    labels, lengths = torch.randint(0, 5, (4, 2)), torch.tensor([9, 5, 6, 7])
    loss = TASK.compute_loss(logits, labels, lengths)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, TASK.compute_loss(logits.float(), labels, lengths))


def test_shapes_of_the_loss_do_not_depend_on_values() -> None:
    """Fake tensors have no values: whatever asks for one, as a CUDA graph cannot, fails."""
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
    assert TASK.metric in sums
    assert TASK.tally([], [], "en").shape == (0, 3)


def test_mlqa_scores_by_language_and_others_by_squads_rules() -> None:
    examples, predictions = [ask("das Haus", "Haus")], ["das Haus"]
    assert MlqaTask().score(examples, predictions, "de")["em"] == 1
    assert MlqaTask().score(examples, predictions, "en")["em"] == 0
    for task in (XquadTask(), TydiqaTask()):
        assert task.score(examples, predictions, "de")["em"] == 0
        assert task.score([ask("the cat", "cat")], ["the cat"], "de")["em"] == 1


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


def test_a_question_without_answers_is_unlabeled() -> None:
    assert [TASK.is_labeled(ask("x")), TASK.is_labeled(ask("x", "x"))] == [False, True]


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
    context = " ".join([*lines, "The small house stands on the hill .", *lines])
    answers = ["small house", "The small house stands", "小房子", "cherry-pick"]
    questions = [ask(context, answer) for answer in answers]
    settings = replace(TASK.settings, length=64, stride=24)
    found = TASK.featurize(questions, any_tokenizer, settings)
    assert len(found.features) > 2 * len(questions)
    predictions = TASK.decode(questions, found.features, point_at_answers(found.features))
    assert predictions == answers
    again = TASK.decode(questions, found.features, point_at_answers(found.features))
    assert again == predictions


def make_tokenizer_for(texts: Sequence[str], *, has_words: bool) -> PreTrainedTokenizerBase:
    """An XLM-R tokenizer with a piece for each character of some texts, and for each word."""
    words = {word for text in texts for word in re.findall(r"\w+", text) if len(word) < 20}
    characters = {char for text in texts for char in text if not char.isspace()} | {"▁"}
    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces = dict.fromkeys(sorted(characters), -9.0)
    if has_words:
        pieces |= {f"▁{word}": -3.0 for word in sorted(words)} | dict.fromkeys(sorted(words), -4.0)
    return XLMRobertaTokenizer(vocab=[*special, *pieces.items(), ("<mask>", 0.0)])


PUBLISHED = pytest.mark.parametrize(
    ("task", "archives", "num_files"),
    [
        (XquadTask(), ("squad", "xquad"), 12),
        (MlqaTask(), ("squad", "mlqa"), 8),
        (TydiqaTask(), ("tydiqa",), 10),
    ],
    ids=["xquad", "mlqa", "tydiqa"],
)


@cache
def read_sample(
    published: Callable[[str], Path], task: SpanTask, archives: tuple[str, ...]
) -> list[tuple[str, list[Question]]]:
    """Some questions of each published file, with its language."""
    folder = [published(archive) for archive in archives][-1]
    files = [file for file in task.list_files(folder) if file.split != "train"]
    return [(file.language, task.read(file).items[::40]) for file in files]


@PUBLISHED
def test_published_answers_are_cut_out_to_the_character(
    published: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    task: SpanTask,
    archives: tuple[str, ...],
    num_files: int,
) -> None:
    """With a token for each character and no limits, nothing of an answer is lost."""
    monkeypatch.setattr(answer_search, "MAX_ANSWER_TOKENS", 10_000)
    samples = read_sample(published, task, archives)
    assert len(samples) == num_files
    settings = replace(task.settings, length=20_000)
    for language, examples in samples:
        texts = [text for e in examples for text in (e.context, e.question)]
        tokenizer = make_tokenizer_for(texts, has_words=False)
        found = task.featurize(examples, tokenizer, settings)
        predictions = task.decode(examples, found.features, point_at_answers(found.features))
        assert predictions == [example.answers[0].text.strip() for example in examples]
        assert task.score(examples, predictions, language) == {"f1": 1, "em": 1}


@PUBLISHED
def test_published_answers_are_found_in_windows(
    published: Callable[[str], Path], task: SpanTask, archives: tuple[str, ...], num_files: int
) -> None:
    """With the paper's settings an answer comes back in whole tokens, unless it has over 30."""
    for _, examples in read_sample(published, task, archives):
        texts = [text for e in examples for text in (e.context, e.question)]
        found = task.featurize(examples, make_tokenizer_for(texts, has_words=True), task.settings)
        predictions = task.decode(examples, found.features, point_at_answers(found.features))
        whole: dict[int, str] = {}
        for window in found.features:
            start, end = window.labels.tolist()
            assert len(window.ids) <= 384 and window.offsets is not None
            if start > 0 and end - start < 30:
                place = slice(window.offsets[start, 0], window.offsets[end, 1])
                whole[window.example] = examples[window.example].context[place].strip()
        assert len(whole) > 0.7 * len(examples)
        assert {index: predictions[index] for index in whole} == whole
        for example, prediction in zip(examples, predictions, strict=True):
            assert prediction and prediction in example.context
        for index, text in whole.items():
            assert examples[index].answers[0].text.strip() in text


@PUBLISHED
def test_levels_answer_with_parts_of_the_context(
    published: Callable[[str], Path], task: SpanTask, archives: tuple[str, ...], num_files: int
) -> None:
    samples = read_sample(published, task, archives)
    train = samples[0][1]
    for language, examples in samples:
        for answers in (
            task.answer_majority(train, examples),
            task.answer_randomly(train, examples, generator(0, "chance")),
        ):
            pairs = zip(examples, answers, strict=True)
            assert all(answer and answer in example.context for example, answer in pairs)
            assert task.score(examples, answers, language)["f1"] < 0.35
