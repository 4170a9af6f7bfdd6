"""Read questions about texts from SQuAD's JSON (also XQuAD's, MLQA's, TyDiQA-GoldP's).

`{"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers"}]}]}]}`, and an answer
is `{"text", "answer_start"}`. Blanked releases have no answers, or, as XTREME's script leaves them,
one empty text: such questions have no answer here. A training file with one is rejected.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.input_lines import Examples
from metaxlm.reading import decode_text, json_loads, read_bytes

NOWHERE = -1
"""Start of an answer that is not in its context."""

_NAMES = {str: "text", list: "a list", int: "a whole number", dict: "an object"}


@dataclass(frozen=True)
class Answer:
    """A gold answer, and the character of the context at which it starts (or `NOWHERE`)."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question about a text; without answers if they are not known."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()

    @property
    def is_labeled(self) -> bool:
        """Whether an answer is known."""
        return bool(self.answers)


@dataclass
class _Place:
    """A question's place in the file, for messages."""

    path: Path
    text: str
    steps: str
    id: str = ""

    def __str__(self) -> str:
        spellings = {json.dumps(self.id), json.dumps(self.id, ensure_ascii=False)}
        found = [spelling for spelling in spellings if self.text.count(spelling) == 1]
        line = ""
        if self.id and found and "\n" in self.text.strip():
            line = f":{self.text.count(chr(10), 0, self.text.index(found[0])) + 1}"
        return f"{self.path}{line}: {self.steps}" + (f" (id {self.id!r})" if self.id else "")


_Oddities = dict[str, list[tuple[_Place, str]]]
"""What was repaired or is odd, by kind: the places, and what to add to them."""


def _describe(odd: _Oddities, total: int, *, is_training: bool) -> tuple[str, ...]:
    """Return one notice per kind, with the first place and the count."""
    fate = "left out of training" if is_training else "their texts are compared all the same"
    texts = {
        "absent": " is not in its context; {:,} such answers, " + fate,
        "moved": " is not at its answer_start; {:,} such answers, moved to the nearest occurrence",
        "silent": f" is empty, as are {{:,}} of {total:,} questions",
        "repeated": f" has an id that was there before, as have {{:,}} of {total:,}; no harm in "
        "training",
    }
    return tuple(
        f"{odd[kind][0][0]}{odd[kind][0][1]}{text.format(len(odd[kind]))}"
        for kind, text in texts.items()
        if kind in odd
    )


def read_questions(path: Path, *, is_training: bool = False) -> Examples[Question]:
    """Read a file of questions.

    An answer that is not at its `answer_start` is moved to the nearest occurrence; one that is not
    in its context does not train. Ids must differ, because predictions are submitted by id, except
    in training: XTREME's script cuts TyDiQA's to a number.
    """
    text = decode_text(read_bytes(path), path)
    if not text.strip():
        raise MetaXLMError(f"{path}:1: the file is empty; restore it")
    odd: _Oddities = defaultdict(list)
    seen: set[str] = set()
    questions: list[Question] = []
    total = 0
    for place, context, entry in _walk(json_loads(text, str(path)), path, text):
        total += 1
        question = _read_question(entry, context, place, odd, is_training=is_training)
        if question is None:
            continue
        if question.id in seen:
            if not is_training:
                raise MetaXLMError(f"{place}: this id was there before; give each question its own")
            odd["repeated"].append((place, ""))
        seen.add(question.id)
        questions.append(question)
    if not total:
        raise MetaXLMError(f"{path}: has no questions; restore it")
    if not questions:
        raise MetaXLMError(
            f"{path}: none of its {total:,} questions has its answer in its context; check the file"
        )
    return Examples(questions, _describe(odd, total, is_training=is_training))


def _walk(content: Any, path: Path, text: str) -> Iterator[tuple[_Place, str, dict[str, Any]]]:
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise MetaXLMError(
            f'{path}:1: JSON, but not of SQuAD\'s form: {{"data": [{{"paragraphs": [...]}}]}}'
        )
    for i, article in enumerate(content["data"]):
        top = _Place(path, text, f"data[{i}]")
        for j, paragraph in enumerate(_get(article, "paragraphs", list, top)):
            middle = _Place(path, text, f"{top.steps}.paragraphs[{j}]")
            context = _get(paragraph, "context", str, middle)
            for k, entry in enumerate(_get(paragraph, "qas", list, middle)):
                place = _Place(path, text, f"{middle.steps}.qas[{k}]")
                if not context.strip():
                    raise MetaXLMError(f"{place}: its context is empty; restore it")
                yield place, context, entry


def _get(entry: Any, key: str, kind: type, place: _Place) -> Any:
    if not isinstance(entry, dict):
        raise MetaXLMError(f"{place}: found {_name(entry)} where an object with {key!r} belongs")
    if key not in entry:
        raise MetaXLMError(f"{place}: has no {key!r}; found {', '.join(entry) or 'nothing'}")
    value = entry[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise MetaXLMError(f"{place}: {key!r} is {_name(value)}, not {_NAMES[kind]}")
    return value


def _name(value: Any) -> str:
    return _NAMES.get(type(value), "nothing" if value is None else json.dumps(value))


def _read_question(
    entry: Any, context: str, place: _Place, odd: _Oddities, *, is_training: bool
) -> Question | None:
    """Check one entry; return None if it cannot train."""
    kind = int if isinstance(entry, dict) and isinstance(entry.get("id"), int) else str
    place.id = str(_get(entry, "id", kind, place))
    question = _get(entry, "question", str, place)
    if entry.get("is_impossible") is True:
        raise MetaXLMError(
            f"{place}: a question without an answer in its text, as in SQuAD 2.0; use version 1.1, "
            f"or delete the questions that have is_impossible"
        )
    if not question.strip():
        odd["silent"].append((place, ""))
    answers = _read_answers(entry, context, place, odd)
    if is_training and not answers:
        raise MetaXLMError(f"{place}: a training question without an answer; delete it or add one")
    if is_training:
        answers = tuple(answer for answer in answers if answer.start != NOWHERE)
    return Question(place.id, question, context, answers) if answers or not is_training else None


def _read_answers(
    entry: dict[str, Any], context: str, place: _Place, odd: _Oddities
) -> tuple[Answer, ...]:
    """Read the answers with a text, in their order; check and correct each start."""
    answers: list[Answer] = []
    absent = entry.get("answers") is None
    for given in () if absent else _get(entry, "answers", list, place):
        text = _get(given, "text", str, place)
        if not text.strip():
            continue
        stated = _get(given, "answer_start", int, place)
        start = _locate(text, context, stated)
        if start == NOWHERE or start != stated:
            kind = "absent" if start == NOWHERE else "moved"
            odd[kind].append((place, f": the answer {text!r}"))
        answers.append(Answer(text, start))
    return tuple(answers)


def _locate(text: str, context: str, stated: int) -> int:
    """Return the start of an answer: as stated, or at the nearest occurrence."""
    if stated >= 0 and context.startswith(text, stated):
        return stated
    middle = max(stated, 0)
    before = context.rfind(text, 0, middle + len(text))
    after = context.find(text, middle)
    found = [start for start in (before, after) if start >= 0]
    return min(found, key=lambda start: (abs(start - stated), start), default=NOWHERE)
