"""SQuAD's JSON: what is read, repaired with a notice, or rejected with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.questions import NOWHERE, Answer, Question, read_questions

CONTEXT = "The cat sat on the mat. The cat ran."


def make_entry(**changes: Any) -> dict[str, Any]:
    answers = [{"text": "The cat", "answer_start": 0}]
    return {"id": "q1", "question": "Who?", "answers": answers} | changes


def make_content(*entries: Any, context: Any = CONTEXT) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"paragraphs": [{"context": context, "qas": [*entries]}]}]}


def write(folder: Path, content: Any, indent: int | None = 1, encoding: str = "utf-8") -> Path:
    path = folder / "questions.json"
    path.write_text(json.dumps(content, indent=indent, ensure_ascii=False), encoding=encoding)
    return path


def test_questions_have_their_answers(tmp_path: Path) -> None:
    answers = [{"text": "mat", "answer_start": 19}, {"text": "the mat", "answer_start": 15}]
    content = make_content(make_entry(), make_entry(id="q2", question="Où ?", answers=answers))
    content["data"].append({"paragraphs": [{"context": "我喜欢你。", "qas": [make_entry(id=3)]}]})
    content["data"][1]["paragraphs"][0]["qas"][0]["answers"] = [{"text": "你", "answer_start": 3}]
    examples = read_questions(write(tmp_path, content, encoding="utf-8-sig"), is_training=True)
    assert examples.items == [
        Question("q1", "Who?", CONTEXT, (Answer("The cat", 0),)),
        Question("q2", "Où ?", CONTEXT, (Answer("mat", 19), Answer("the mat", 15))),
        Question("3", "Who?", "我喜欢你。", (Answer("你", 3),)),
    ]
    assert examples.notices == ()


@pytest.mark.parametrize(
    "blanked", [{"answers": [{"text": "", "answer_start": 0}]}, {"answers": []}, {"answers": None}]
)
def test_blanked_answers(tmp_path: Path, blanked: dict[str, Any]) -> None:
    """The first form is what XTREME's script leaves."""
    path = write(tmp_path, make_content(make_entry(**blanked), make_entry(id="q2", **blanked)))
    examples = read_questions(path)
    assert [question.answers for question in examples.items] == [(), ()]
    assert not any(question.is_labeled for question in examples.items)
    with pytest.raises(MetaXLMError, match=r"json:10: .*qas\[0\] \(id 'q1'\): a training question"):
        read_questions(path, is_training=True)


def test_an_answer_elsewhere_is_moved_to_the_nearest_place(tmp_path: Path) -> None:
    starts = [1, 11, 12, 13, 23, 34, 99, -5, -12]
    answers = [{"text": "The cat", "answer_start": start} for start in starts]
    entries = [make_entry(id=f"q{k}", answers=[answer]) for k, answer in enumerate(answers, 1)]
    path = write(tmp_path, make_content(*entries))
    for is_training in (False, True):
        examples = read_questions(path, is_training=is_training)
        starts = [question.answers[0].start for question in examples.items]
        # The two occurrences are at 0 and 24; 12 is as far from both, and the earlier is taken.
        assert starts == [0, 0, 0, 24, 24, 24, 24, 0, 0]
        (notice,) = examples.notices
        assert notice.startswith(f"{path}:10: data[0].paragraphs[0].qas[0] (id 'q1'): the answer")
        assert "'The cat' is not at its answer_start; 9 such answers, moved" in notice


def test_an_answer_outside_its_context_is_compared_but_does_not_train(tmp_path: Path) -> None:
    absent = {"text": "a dog", "answer_start": 4}
    there = {"text": "The cat", "answer_start": 0}
    both, none = make_entry(id="both", answers=[absent, there]), make_entry(answers=[absent])
    path = write(tmp_path, make_content(both, none))
    scored = read_questions(path)
    assert [question.answers for question in scored.items] == [
        (Answer("a dog", NOWHERE), Answer("The cat", 0)),
        (Answer("a dog", NOWHERE),),
    ]
    assert "(id 'both'): the answer 'a dog' is not in its context; 2 such" in scored.notices[0]
    assert "compared" in scored.notices[0]
    trained = read_questions(path, is_training=True)
    (item,) = trained.items
    assert (item.id, item.answers) == ("both", (Answer("The cat", 0),))
    assert "2 such answers, left out of training" in trained.notices[0]
    path = write(tmp_path, make_content(none))
    with pytest.raises(MetaXLMError, match="none of its 1 questions has its answer in its context"):
        read_questions(path, is_training=True)


def test_ids_differ_where_predictions_are_handed_in(tmp_path: Path) -> None:
    path = write(tmp_path, make_content(make_entry(), make_entry(question="Which?")))
    with pytest.raises(MetaXLMError, match=r"qas\[1\] \(id 'q1'\): this id was there before"):
        read_questions(path)
    notice = read_questions(path, is_training=True).notices[0]
    assert "an id that was there before, as have 1 of 2" in notice


def test_errors_have_the_line_if_there_are_lines(tmp_path: Path) -> None:
    content = make_content(make_entry(), make_entry(id="ä2", is_impossible=True, answers=[]))
    path = write(tmp_path, content)
    line = path.read_text(encoding="utf-8").split("\n").index('       "id": "ä2",') + 1
    with pytest.raises(MetaXLMError, match=rf"questions\.json:{line}: data\[0\]\.par"):
        read_questions(path)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    with pytest.raises(MetaXLMError, match=rf"questions\.json:{line}: data\[0\]\.par"):
        read_questions(path)
    with pytest.raises(MetaXLMError, match=r"questions\.json: data\[0\]\.paragraphs\[0\]\.qas"):
        read_questions(write(tmp_path, content, indent=None))
    for text, message in (("", ":1: the file is empty"), ('{"data": [\n}', ":2: not valid JSON")):
        path.write_text(text)
        with pytest.raises(MetaXLMError, match=message):
            read_questions(path)


def _answer(**changes: Any) -> dict[str, Any]:
    return make_content(make_entry(answers=[{"text": "cat", **changes}]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r":1: JSON, but not of SQuAD's form"),
        ({"data": []}, r"has no questions; restore it"),
        ({"data": [1]}, r"data\[0\]: found a whole number where an object with 'paragraphs' bel"),
        ({"data": [{"title": "x"}]}, r"data\[0\]: has no 'paragraphs'; found title"),
        (make_content(make_entry(), context=5), r"'context' is a whole number, not text"),
        (make_content(make_entry(), context=" \n"), r"qas\[0\]: its context is empty; restore it"),
        (make_content({"question": "?"}), r"qas\[0\]: has no 'id'; found question"),
        (make_content(make_entry(id=None)), r"'id' is nothing, not text"),
        (make_content({"id": "q1"}), r"\(id 'q1'\): has no 'question'"),
        (make_content(make_entry(answers={})), r"'answers' is an object, not a list"),
        (make_content(make_entry(answers=["cat"])), r"found text where an object with 'text' bel"),
        (_answer(), r"has no 'answer_start'; found text"),
        (_answer(answer_start=4.0), r"'answer_start' is 4.0, not a whole number"),
        (make_content(make_entry(is_impossible=True)), r"as in SQuAD 2\.0; use version 1\.1, or"),
    ],
)
def test_other_json_is_rejected(tmp_path: Path, content: Any, message: str) -> None:
    path = write(tmp_path, content)
    for is_training in (False, True):
        with pytest.raises(MetaXLMError, match=message) as error:
            read_questions(path, is_training=is_training)
        assert str(error.value).startswith(str(path))
