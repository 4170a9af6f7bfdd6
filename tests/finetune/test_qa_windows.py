"""Windows over contexts, against the tokenizer's own pairs and its own overflow."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import numpy as np
import pytest
from transformers import ByT5Tokenizer, PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.qa_windows import Window, choose_windows, make_windows, place_windows
from metaxlm.finetune.readers.questions import NOWHERE, Answer, Question
from metaxlm.finetune.task import IGNORED
from tests.finetune.conftest import TEXT, make_tokenizer

LINES = {
    "en": "  We do not believe\tthat the small house sits on the green hill. ",
    "de": "Das kleine Haus steht auf dem grünen Hügel am Fluss, sagt er.",
    "zh": "我喜欢你。小房子在河边的绿色山上。",
    "ar": "البيت الصغير على التل الأخضر قرب النهر، قال.",
    "th": "นี่คือบ้านหลังเล็ก ใกล้แม่น้ำ",
    "hi": "सरकार का प्रस्ताव है कि कानून बदले ।",
}


def ask(context: str, answer: str = "", question: str = "Who is it ?") -> Question:
    answers = (Answer(answer, context.index(answer)),) if answer else ()
    return Question("q", question, context, answers)


def split(
    questions: list[Question], tokenizer: PreTrainedTokenizerBase, length: int, stride: int = 8
) -> list[Window]:
    windows = make_windows(questions, tokenizer, length=length, stride=stride).features
    assert all(isinstance(window, Window) for window in windows)
    return [window for window in windows if isinstance(window, Window)]


def read_label(window: Window, context: str) -> str:
    """The text between the labeled tokens."""
    assert window.offsets is not None
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


@pytest.mark.parametrize("stride", [5, 12, 20])
def test_long_contexts_are_split_as_the_tokenizer_does(
    untruncated: PreTrainedTokenizerBase, stride: int
) -> None:
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
        assert window.token_types is not None and window.offsets is not None
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
    for _ in range(50):
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


@pytest.mark.parametrize("language", ["en", "zh", "th", "hi"])
def test_labels_are_the_ends_of_the_answer(
    any_tokenizer: PreTrainedTokenizerBase, language: str
) -> None:
    answers = {"en": "small house", "zh": "小房子", "th": "บ้านหลังเล็ก", "hi": "प्रस्ताव"}
    context = f"{LINES['de']} {LINES['de']} {LINES[language]}"
    question = ask(context, answers[language])
    windows = split([question], any_tokenizer, 60, 20)
    here = [window for window in windows if window.labels[0] > 0]
    assert len(windows) > len(here) > 0
    for window in windows:
        if window.labels[0] > 0:
            assert read_label(window, context).strip() == answers[language]
        else:
            assert window.labels.tolist() == [0, 0]


def test_the_first_answer_with_a_place_trains(tokenizer: PreTrainedTokenizerBase) -> None:
    context = LINES["en"]
    hill, house = (Answer(word, context.index(word)) for word in ("hill", "house"))
    absent = Answer("x", NOWHERE)
    answers = [(hill, house), (absent, house), (absent,), ()]
    questions = [Question("q", "Who?", context, some) for some in answers]
    windows = split(questions, tokenizer, 128, 16)
    assert [read_label(window, context).strip() for window in windows[:2]] == ["hill", "house"]
    assert [window.labels.tolist() for window in windows][2:] == [[IGNORED, IGNORED]] * 2
    notice = make_windows(questions, tokenizer, length=128, stride=16).notice
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
    found = make_windows(questions, tokenizer, length=384, stride=128)
    assert found.features[0].ids[1:67].tolist() == [*ids[:64], *[tokenizer.sep_token_id] * 2]
    assert found.notice == "of 2 questions, 1 are truncated to their first 64 tokens"


def test_short_sequences_still_show_every_token(any_tokenizer: PreTrainedTokenizerBase) -> None:
    """Neighbors overlap by half, and at most half of a sequence is the question."""
    context = " ".join(LINES.values())
    question = ask(context, question=" ".join(TEXT))
    found = make_windows([question], any_tokenizer, length=24, stride=128)
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
        make_windows([ask(LINES["en"])], tokenizer, length=5, stride=1)
    with pytest.raises(MetaXLMError, match=r"ByT5Tokenizer has no offsets .* need a fast"):
        make_windows([ask(LINES["en"])], ByT5Tokenizer(), length=64, stride=8)
