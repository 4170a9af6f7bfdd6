"""The finetuned tasks by name: what a user writes comes in, names of tasks go out.

In the order of the paper's tables (its Sections 4.2 and 4.3). Groups stand for several tasks.
"""

from __future__ import annotations

import difflib
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.amazon import DOMAINS, AmazonTask
from metaxlm.finetune.mlqa import MlqaTask
from metaxlm.finetune.panx import PanxTask
from metaxlm.finetune.pawsx import PawsxTask
from metaxlm.finetune.task import Task
from metaxlm.finetune.tydiqa import TydiqaTask
from metaxlm.finetune.udpos import UdposTask
from metaxlm.finetune.xnli import XnliTask
from metaxlm.finetune.xquad import XquadTask

_XTREME: tuple[Task[Any, Any], ...] = (
    UdposTask(),
    PanxTask(),
    XquadTask(),
    MlqaTask(),
    TydiqaTask(),
    XnliTask(),
    PawsxTask(),
)
_AMAZON = tuple(AmazonTask(domain) for domain in DOMAINS)

TASKS: dict[str, Task[Any, Any]] = {task.name: task for task in (*_XTREME, *_AMAZON)}
"""The finetuned tasks by name."""

GROUPS: dict[str, tuple[str, ...]] = {
    "xtreme": tuple(task.name for task in _XTREME),
    "amazon": tuple(task.name for task in _AMAZON),
}
"""Names that stand for several tasks."""


def expand_tasks(name: str) -> tuple[str, ...]:
    """Return the tasks that one name stands for: itself, or those of a group."""
    if name in TASKS:
        return (name,)
    if name in GROUPS:
        return GROUPS[name]
    known = [*TASKS, *GROUPS]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    advice = f"; did you mean {near[0]}?" if near else ""
    raise MetaXLMError(f"unknown task {name!r}{advice} (known: {', '.join(known)})")


def find_tasks(text: str) -> list[str]:
    """Return the tasks of a list such as `xnli,amazon`, each once, in the order given."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise MetaXLMError(f"no task is named; known: {', '.join([*TASKS, *GROUPS])}")
    return list(dict.fromkeys(task for name in names for task in expand_tasks(name)))
