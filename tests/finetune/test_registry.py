from __future__ import annotations

import pytest
from metaxlm.finetune.registry import GROUPS, TASKS, find_tasks

from metaxlm.errors import MetaXLMError


def test_the_paper_s_tasks_in_its_order() -> None:
    assert list(TASKS) == [
        *("udpos", "panx", "xquad", "mlqa", "tydiqa", "xnli", "pawsx"),
        *("amazon-books", "amazon-dvd", "amazon-music"),
    ]
    assert all(task.name == name for name, task in TASKS.items())
    languages = [len(TASKS[name].languages) for name in GROUPS["xtreme"]]
    assert languages == [33, 40, 11, 7, 9, 15, 7]
    assert all(task.metric and task.title for task in TASKS.values())


def test_lists_and_groups() -> None:
    assert find_tasks("xnli") == ["xnli"]
    assert find_tasks(" amazon , xnli,amazon-dvd,") == [
        *("amazon-books", "amazon-dvd", "amazon-music", "xnli"),
    ]
    assert find_tasks("xtreme,amazon") == list(TASKS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("xnli,paws-x", r"^unknown task 'paws-x'; did you mean pawsx\? \(known: udpos, panx,.*"),
        ("XNLI", r"^unknown task 'XNLI'; did you mean xnli\?"),
        ("squad?", r"^unknown task 'squad\?'; did you mean xquad\?"),
        ("zzz", r"^unknown task 'zzz' \(known: .*amazon-music, xtreme, amazon\)$"),
        (" , ", r"^no task is named; known: udpos, .*, amazon$"),
    ],
)
def test_unknown_tasks(text: str, message: str) -> None:
    with pytest.raises(MetaXLMError, match=message):
        find_tasks(text)
