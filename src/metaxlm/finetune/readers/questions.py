"""Questions about texts: a SQuAD JSON file comes in, checked questions go out.

XQuAD, MLQA, TyDiQA-GoldP and SQuAD 1.1 itself (the paper's Section 4.2) share one form:
`{"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers"}]}]}]}`, and an answer
is `{"text", "answer_start"}`. Blanked releases have no answers, or, as XTREME's script leaves them,
one empty text: such questions are read without an answer. In a training file they are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.lines import read_whole
from metaxlm.finetune.task import Examples
from metaxlm.reading import json_loads

NOWHERE = -1
"""Where an answer starts that its context does not have."""


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


@dataclass
class _Place:
    """A question's place in the file, for messages."""

    path: Path
    text: str
    steps: str
    id: str = ""

    def __str__(self) -> str:
        """Return file, line if it can be told, and the steps from the top to the question."""
        line = f":{self._find_line()}" if self._find_line() else ""
        return f"{self.path}{line}: {self.steps}" + (f" (id {self.id!r})" if self.id else "")

    def _find_line(self) -> int:
        """Return the line of the id; 0 if all is in one line or the id stands there twice."""
        spellings = {json.dumps(self.id), json.dumps(self.id, ensure_ascii=False)}
        found = [spelling for spelling in spellings if self.text.count(spelling) == 1]
        if not self.id or not found or "\n" not in self.text.strip():
            return 0
        return self.text.count("\n", 0, self.text.index(found[0])) + 1


@dataclass
class _Finding:
    """Something odd that is repaired and counted: how often, and where first."""

    count: int = 0
    first: str = ""

    def add(self, place: _Place, what: str = "") -> None:
        self.first = self.first or f"{place}{what}"
        self.count += 1


@dataclass
class _Findings:
    unanswered: _Finding = field(default_factory=_Finding)
    absent: _Finding = field(default_factory=_Finding)
    moved: _Finding = field(default_factory=_Finding)
    silent: _Finding = field(default_factory=_Finding)
    repeated: _Finding = field(default_factory=_Finding)


def read_questions(path: Path, *, is_training: bool = False) -> Examples[Question]:
    """Read a file of questions.

    An answer at another place than said is moved to the nearest occurrence. One that its context
    does not have trains nothing, so that in training the question is left out; in evaluation its
    text is compared all the same. All of it is counted in the notices. Ids have to differ, as
    predictions are handed in by id; not so in training: XTREME's script cuts TyDiQA's to a number.
    """
    text = read_whole(path)
    if not text.strip():
        raise MetaXLMError(f"{path}:1: the file is empty; restore it")
    findings = _Findings()
    seen: set[str] = set()
    questions: list[Question] = []
    total = 0
    for place, context, entry in _walk(json_loads(text, str(path)), path, text):
        total += 1
        question = _read_question(entry, context, place, findings, is_training=is_training)
        if question is None:
            continue
        if question.id in seen:
            if not is_training:
                raise MetaXLMError(f"{place}: this id was there before; give each question its own")
            findings.repeated.add(place)
        seen.add(question.id)
        questions.append(question)
    if not questions:
        raise MetaXLMError(f"{path}: {_tell_nothing(total)}")
    return Examples(questions, _tell(findings, path, total, is_training=is_training))


def _walk(content: Any, path: Path, text: str) -> Iterator[tuple[_Place, str, dict[str, Any]]]:
    """Yield each question's entry with its place and context."""
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise MetaXLMError(
            f'{path}:1: JSON, but not of SQuAD\'s form: {{"data": [{{"paragraphs": [...]}}]}}'
        )
    for i, article in enumerate(content["data"]):
        place = _Place(path, text, f"data[{i}]")
        for j, paragraph in enumerate(_get(article, "paragraphs", list, place)):
            place = _Place(path, text, f"data[{i}].paragraphs[{j}]")
            context = _get(paragraph, "context", str, place)
            for k, entry in enumerate(_get(paragraph, "qas", list, place)):
                place = _Place(path, text, f"data[{i}].paragraphs[{j}].qas[{k}]")
                if not context.strip():
                    raise MetaXLMError(f"{place}: its context is empty; restore it")
                yield place, context, entry


_NAMES = {str: "text", list: "a list", int: "a whole number", dict: "an object"}


def _get(entry: Any, key: str, kind: type, place: _Place) -> Any:
    """Return the value of a key, which has to be there and of a kind."""
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
    entry: Any, context: str, place: _Place, findings: _Findings, *, is_training: bool
) -> Question | None:
    """Check one entry; None if it cannot train."""
    kind = int if isinstance(entry, dict) and isinstance(entry.get("id"), int) else str
    place.id = str(_get(entry, "id", kind, place))
    question = _get(entry, "question", str, place)
    if entry.get("is_impossible") is True:
        raise MetaXLMError(
            f"{place}: a question without an answer in its text, as in SQuAD 2.0; use version 1.1, "
            f"or delete the questions that have is_impossible"
        )
    if not question.strip():
        findings.silent.add(place)
    answers = _read_answers(entry, context, place, findings)
    if not answers:
        if is_training:
            raise MetaXLMError(f"{place}: has no answer, and is to train; delete it or add one")
        findings.unanswered.add(place)
    if is_training:
        answers = tuple(answer for answer in answers if answer.start != NOWHERE)
        if not answers:
            return None
    return Question(place.id, question, context, answers)


def _read_answers(
    entry: dict[str, Any], context: str, place: _Place, findings: _Findings
) -> tuple[Answer, ...]:
    """Read the answers with a text, in their order; each place is checked and set right."""
    if entry.get("answers") is None:
        return ()
    answers: list[Answer] = []
    for given in _get(entry, "answers", list, place):
        text = _get(given, "text", str, place)
        if not text.strip():
            continue
        said = _get(given, "answer_start", int, place)
        start = _locate(text, context, said)
        if start == NOWHERE:
            findings.absent.add(place, f": the answer {text!r}")
        elif start != said:
            findings.moved.add(place, f": the answer {text!r}")
        answers.append(Answer(text, start))
    return tuple(answers)


def _locate(text: str, context: str, said: int) -> int:
    """Return where an answer starts: there, or at the nearest occurrence (the earlier of two)."""
    if said >= 0 and context.startswith(text, said):
        return said
    middle = max(said, 0)
    before = context.rfind(text, 0, middle + len(text))
    after = context.find(text, middle)
    found = [start for start in (before, after) if start >= 0]
    return min(found, key=lambda start: (abs(start - said), start), default=NOWHERE)


def _tell_nothing(total: int) -> str:
    if not total:
        return "has no questions; restore it"
    return f"none of its {total:,} questions has its answer in its context; check the file"


def _tell(findings: _Findings, path: Path, total: int, *, is_training: bool) -> tuple[str, ...]:
    """Return what was odd, one line each with the first place and how often."""
    unanswered, absent, moved = findings.unanswered, findings.absent, findings.moved
    fate = "left out of training" if is_training else "their texts are compared all the same"
    notices: list[str] = []
    if unanswered.count == total:
        notices.append(f"{path}: no answers; its {total:,} questions are predicted, not scored")
    elif unanswered.count:
        notices.append(
            f"{unanswered.first}: no answer, as in {unanswered.count:,} of {total:,} questions; "
            f"these are predicted, not scored"
        )
    told = (
        (absent, f"is not in its context; {absent.count:,} such answers, {fate}"),
        (
            moved,
            f"is not where it is said to be; {moved.count:,} such answers, moved to the nearest "
            f"occurrence",
        ),
        (findings.silent, f"is empty, as are {findings.silent.count:,} of {total:,} questions"),
        (
            findings.repeated,
            f"has an id that was there before, as have {findings.repeated.count:,} of {total:,}; "
            f"no harm in training",
        ),
    )
    notices += [f"{finding.first} {text}" for finding, text in told if finding.count]
    return tuple(notices)
