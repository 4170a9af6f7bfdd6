"""Question answering: windows over contexts, loss, scores, and the search for the best answer."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from transformers import ByT5Tokenizer, PreTrainedTokenizerBase, XLMRobertaTokenizer

from metaxlm.errors import MetaXLMError
from metaxlm.finetune import qa
from metaxlm.finetune.catalog import TASKS
from metaxlm.finetune.qa import Window, choose_windows, place_windows
from metaxlm.finetune.readers.questions import NOWHERE, Answer, Question
from metaxlm.finetune.task import IGNORED, Features, FeatureSet, Logits
from metaxlm.randomness import generator
from tests.finetune.conftest import TEXT, make_tokenizer

TASK, MLQA, TYDIQA = TASKS["xquad"], TASKS["mlqa"], TASKS["tydiqa"]
WORD = 4
"""Characters of a context's word, with the space after it."""
CONTEXT = " ".join(f"{k:03d}" for k in range(400))
QUESTION = Question("q", "?", CONTEXT)
LINES = {
    "en": "  We do not believe\tthat the small house sits on the green hill. ",
    "de": "Das kleine Haus steht auf dem grünen Hügel am Fluss, sagt er.",
    "zh": "我喜欢你。小房子在河边的绿色山上。",
    "ar": "البيت الصغير على التل الأخضر قرب النهر، قال.",
    "th": "นี่คือบ้านหลังเล็ก ใกล้แม่น้ำ",
    "hi": "सरकार का प्रस्ताव है कि कानून बदले ।",
}


def ask(context: str, *answers: str, name: str = "q", question: str = "Who is it ?") -> Question:
    return Question(name, question, context, tuple(Answer(a, context.find(a)) for a in answers))


def encode(
    questions: list[Question], tokenizer: PreTrainedTokenizerBase, length: int, stride: int = 8
) -> FeatureSet:
    return TASK.featurize(
        questions, tokenizer, replace(TASK.settings, length=length, stride=stride)
    )


def split(
    questions: list[Question], tokenizer: PreTrainedTokenizerBase, length: int, stride: int = 8
) -> list[Window]:
    windows = encode(questions, tokenizer, length, stride).features
    return [window for window in windows if isinstance(window, Window)]


def read_label(window: Window, context: str) -> str:
    """The text between the labeled tokens."""
    start, end = window.labels
    return context[window.offsets[start, 0] : window.offsets[end, 1]]


@pytest.fixture
def untruncated(any_tokenizer: PreTrainedTokenizerBase) -> Iterator[PreTrainedTokenizerBase]:
    """A tokenizer whose truncation is reset after the test."""
    yield any_tokenizer
    any_tokenizer.backend_tokenizer.no_truncation()


def test_a_short_pair_is_the_tokenizers_own(any_tokenizer: PreTrainedTokenizerBase) -> None:
    questions = [ask(context, question=q) for context in LINES.values() for q in TEXT]
    windows = split(questions, any_tokenizer, 512)
    encoded = any_tokenizer(
        [question.question for question in questions],
        [question.context for question in questions],
        return_token_type_ids=True,
    )
    assert [window.ids.tolist() for window in windows] == encoded["input_ids"]
    types = [window.token_types for window in windows]
    assert [row.tolist() for row in types if row is not None] == encoded["token_type_ids"]
    assert [window.example for window in windows] == list(range(len(questions)))
    assert all(window.ids.dtype == np.int32 for window in windows)


def test_long_contexts_are_split_as_the_tokenizer_does(
    untruncated: PreTrainedTokenizerBase,
) -> None:
    stride = 12
    context = " ".join(LINES.values())
    question = "Is it the hill ?"
    windows = split([ask(context, question=question)], untruncated, 64, stride)
    num_question = len(untruncated(question, add_special_tokens=False)["input_ids"])
    room = 64 - num_question - untruncated.num_special_tokens_to_add(pair=True)
    encoded = untruncated(
        question,
        context,
        truncation="only_second",
        max_length=64,
        stride=room - stride,  # what neighbors share, there
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    assert len(windows) > 3
    assert [window.ids.tolist() for window in windows] == encoded["input_ids"]
    for k, window in enumerate(windows):
        assert window.token_types is not None
        if k == 0 or untruncated.pad_token == "[PAD]":
            # In overflowing windows of others the tokenizer numbers a side that it otherwise
            # does not.
            assert window.token_types.tolist() == encoded["token_type_ids"][k]
        sides = encoded.encodings[k].sequence_ids
        for side, ours, theirs in zip(
            sides, window.offsets.tolist(), encoded["offset_mapping"][k], strict=True
        ):
            if side != 1:
                assert ours == [-1, -1]
            elif not context[slice(*theirs)].strip():
                assert ours[0] == ours[1]
            else:
                # The tokenizer leaves the space before the first word of an overflowing window.
                text, rest = context[slice(*theirs)].strip(), context[theirs[1] : ours[1]]
                assert context[slice(*ours)].strip() == text + rest
                assert all(unicodedata.category(mark)[0] == "M" for mark in rest)


def test_a_token_belongs_to_the_window_with_most_context() -> None:
    # The overlap is 3..7: token 5 has 2 to its right in the first window and 2 to its left in the
    # second; the first is longer. Of equally long ones, the first is taken.
    assert choose_windows([(0, 8), (3, 10)]).tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert choose_windows([(0, 4), (1, 5)]).tolist() == [0, 0, 0, 1, 1]
    random = np.random.default_rng(1)
    for _ in range(15):
        room = int(random.integers(2, 300))
        stride = int(random.integers(room // 3 + 1, room + 1))
        spans = place_windows(int(random.integers(1, 600)), room, stride)
        for token, chosen in enumerate(choose_windows(spans).tolist()):
            rank = [
                (min(token - start, end - 1 - token) + 0.01 * (end - start), -number)
                for number, (start, end) in enumerate(spans)
                if start <= token < end
            ]
            assert chosen == -max(rank)[1]


def test_the_first_answer_with_a_place_trains(tokenizer: PreTrainedTokenizerBase) -> None:
    context = LINES["en"]
    hill, house = (Answer(word, context.index(word)) for word in ("hill", "house"))
    absent = Answer("x", NOWHERE)
    answers = [(hill, house), (absent, house), (absent,), ()]
    questions = [Question("q", "Who?", context, some) for some in answers]
    windows = split(questions, tokenizer, 128, 16)
    assert [read_label(window, context).strip() for window in windows[:2]] == ["hill", "house"]
    assert [window.labels.tolist() for window in windows][2:] == [[IGNORED, IGNORED]] * 2
    notice = encode(questions, tokenizer, 128, 16).notice
    assert notice.startswith("of 4 questions, 1 have no answer among the tokens of their context")


def test_dropped_marks_belong_to_the_letter_before() -> None:
    """BERT's tokenizer drops the vowel signs above นี่; the answer keeps them."""
    tokenizer = make_tokenizer("bert")
    context = "the นี่ house"
    (window,) = split([ask(context, "นี่")], tokenizer, 64)
    assert read_label(window, context) == "นี่"
    # A dropped character that is not a mark belongs to no token.
    context = "the\u0000 house"
    (window,) = split([ask(context, "the")], tokenizer, 64)
    assert read_label(window, context) == "the"


def test_long_questions_are_truncated_with_a_notice(tokenizer: PreTrainedTokenizerBase) -> None:
    question = " ".join(TEXT[:3])
    ids = tokenizer(question, add_special_tokens=False)["input_ids"]
    assert len(ids) > 64
    questions = [ask(LINES["en"], question=question), ask(LINES["en"])]
    found = encode(questions, tokenizer, 384, 128)
    assert found.features[0].ids[1:67].tolist() == [*ids[:64], *[tokenizer.sep_token_id] * 2]
    assert found.notice == "of 2 questions, 1 are truncated to their first 64 tokens"


def test_short_sequences_still_show_every_token(any_tokenizer: PreTrainedTokenizerBase) -> None:
    """Neighbors overlap by half, and at most half of a sequence is the question."""
    context = " ".join(LINES.values())
    question = ask(context, question=" ".join(TEXT))
    found = encode([question], any_tokenizer, 24, 128)
    seen: set[int] = set()
    for window in found.features:
        assert len(window.ids) <= 24 and window.offsets is not None
        seen |= {place for start, end in window.offsets.tolist() for place in range(start, end)}
    assert seen >= {place for place, char in enumerate(context) if not char.isspace()}
    num_context = len(any_tokenizer(context, add_special_tokens=False)["input_ids"])
    assert len(found.features) < num_context / 4, "each window shows at least five new tokens"
    assert "1 have a context longer than 24 tokens" in found.notice


def test_bad_lengths_and_tokenizers_are_rejected(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(MetaXLMError, match="do not fit into length 5; increase it"):
        encode([ask(LINES["en"])], tokenizer, 5, 1)
    with pytest.raises(MetaXLMError, match=r"ByT5Tokenizer has no offsets .* need a fast"):
        encode([ask(LINES["en"])], ByT5Tokenizer(), 64)


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
    """Labels are the ends of the answer, or the first token where it is not."""
    parts = (LINES["de"], *LINES.values(), "We should cherry-pick .", LINES["de"])
    answers = ["small house", "We should", "小房子", "บ้านหลังเล็ก", "प्रस्ताव", "cherry-pick"]
    questions = [ask(" ".join(parts), answer) for answer in answers]
    windows = split(questions, any_tokenizer, 64, 24)
    assert len(windows) > 2 * len(questions)
    assert all(window.labels[1] == 0 for window in windows if window.labels[0] == 0)
    assert TASK.decode(questions, windows, point_at_answers(windows)) == answers


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
        examples = task.read(file).items[::200]
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
def test_the_search_equals_plain_loops(ties: bool) -> None:
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
    assert TASK.decode(questions, windows, logits) == expected
    assert len(set(expected)) > 40


def place(window: Window, *, start: dict[int, float], end: dict[int, float]) -> Logits:
    scores = np.full((len(window.ids), 2), -9, dtype=np.float32)
    for column, values in enumerate((start, end)):
        for token, value in values.items():
            scores[token, column] = value
    return scores


def answer(window: Window, scores: Logits) -> str:
    return TASK.decode([QUESTION], [window], [scores])[0]


def test_a_token_without_characters_does_not_end_an_answer() -> None:
    window = make_window(0, 5)
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
    assert TASK.decode([QUESTION], [window, other], [scores, low]) == ["200"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_infinite_and_nan_logits_still_answer_with_text(value: float) -> None:
    window = make_window(0, 5)
    scores = np.full((len(window.ids), 2), value, dtype=np.float32)
    assert answer(window, scores) == "000"
    scores[5] = 1
    assert answer(window, scores) == ("000" if value == np.inf else "002")
    assert answer(make_window(0, 0), np.zeros((4, 2), dtype=np.float32)) == ""
    assert TASK.decode([QUESTION, QUESTION], [], []) == ["", ""]
