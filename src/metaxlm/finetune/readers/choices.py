"""Read questions with several choices from tables (Belebele, custom tasks).

A row has a question, its choices, the right one, and mostly a text that the question is about.
Choices have a column each, or a list in one column. The answer is the text of a choice, its number
from 1 or its letter from A. Where it could be both, it is a number, unless all answers of the file
are texts of choices.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.input_lines import Examples
from metaxlm.finetune.readers.texts import AS_JSON, Column, read_rows
from metaxlm.reading import json_loads
from metaxlm.recipe.evaluation_schema import ColumnsRecipe

_FIX = "fill it or delete the row"


@dataclass(frozen=True)
class Choices:
    """A question and its choices."""

    context: str | None
    """The text that the question is about, if there is one."""
    question: str
    choices: tuple[str, ...]
    answer: int | None
    """Number of the right choice, from 1."""

    @property
    def is_labeled(self) -> bool:
        """Whether the right choice is known."""
        return self.answer is not None


def read_choices(
    path: Path, split: str, columns: ColumnsRecipe, partition: Column | None = None
) -> Examples[Choices]:
    """Read questions; only those of a test set may lack the answer.

    A file with a column `partition` is Belebele's training set: a table in the quotes of CSV, read
    where the column has the name of the split. Its rows with an empty cell are left out.
    """
    given = "choices" if columns.choices is None else columns.choices
    is_list, names = not isinstance(given, list), given if isinstance(given, list) else [given]
    firsts = [name for name in (partition, columns.context) if name is not None]
    needed = [*firsts, columns.question or "question", *names]
    optional = ["context"] if columns.context is None else []
    rows = read_rows(
        path,
        [*needed, columns.answer or "answer", *optional],
        len(needed) + (split != "test"),
        {needed[-1]: AS_JSON} if is_list else None,
        is_quoted=partition is not None,
    )
    if partition is not None:
        rows = [row for row in rows if row.cells[0] == split]
    whole = [row for row in rows if partition is None or _is_full(row.cells[: len(needed) + 1])]
    if not whole:
        raise MetaXLMError(f"{path}: no question of the partition {split!r}; add some")
    found: list[tuple[str, Choices, str]] = []
    for row in whole:
        where, cells = f"{path}:{row.line}", row.cells
        context = cells[len(firsts) - 1] if columns.context is not None else cells[-1]
        question, *texts = cells[len(firsts) : len(needed)]
        choices = _parse_list(texts[0] or "", where) if is_list else texts
        answer = (cells[len(needed)] or "").strip()
        if not answer and split != "test":
            raise MetaXLMError(f"{where}: no answer, in a {split} file; {_FIX}")
        found.append((where, _check(context, question or "", choices, where), answer))
    are_texts = all(answer in item.choices for _, item, answer in found if answer)
    items = [
        replace(item, answer=_find_answer(answer, item.choices, are_texts, where))
        for where, item, answer in found
    ]
    num_partial = len(rows) - len(whole)
    notice = f"{path}: {num_partial:,} questions of {split} have an empty cell; left out"
    return Examples(items, (notice,) if num_partial else ())


def _is_full(cells: Sequence[str | None]) -> bool:
    return all(cell and cell.strip() for cell in cells)


def _parse_list(cell: str, where: str) -> list[str]:
    if cell.lstrip().startswith("["):
        found = json_loads(cell, where)
        if isinstance(found, list) and all(isinstance(item, str) for item in found):
            return found
    what = f'the choices are {cell[:40]!r}, expected a list of texts such as ["a", "b"]'
    raise MetaXLMError(f"{where}: {what}, or a column for each (`choices: [first, second]`)")


def _check(
    context: str | None, question: str, choices: Sequence[str | None], where: str
) -> Choices:
    """Return a question without its answer; reject empty texts and less than two choices."""
    for name, text in (("context", context), ("question", question)):
        if text is not None and not text.strip():
            raise MetaXLMError(f"{where}: the {name} is empty; {_FIX}")
    texts = tuple((choice or "").strip() for choice in choices)
    if len(texts) < 2:
        what = f"at least 2 choices are needed, found {len(texts)}"
        raise MetaXLMError(f"{where}: {what}; add some")
    if "" in texts:
        raise MetaXLMError(f"{where}: choice {texts.index('') + 1} is empty; {_FIX}")
    return Choices(context, question, texts, None)


def _find_answer(answer: str, choices: Sequence[str], is_text: bool, where: str) -> int | None:
    """Return the number of the right choice, None without an answer; pandas may write `2.0`."""
    if not answer:
        return None
    number = int(answer.removesuffix(".0")) if re.fullmatch(r"\d{1,9}(\.0)?", answer) else None
    if number is not None and 1 <= number <= len(choices) and not is_text:
        return number
    if answer in choices:
        return choices.index(answer) + 1
    if number is not None:
        what = f"the answer is {number}, but there are {len(choices)} choices"
        raise MetaXLMError(f"{where}: {what}; count them from 1")
    if answer in ascii_uppercase[: len(choices)]:
        return ascii_uppercase.index(answer) + 1
    what = f"the answer {answer!r} is none of the choices ({', '.join(choices)})"
    raise MetaXLMError(f"{where}: {what}; write its number from 1, or its text")
