"""The tasks of the paper: finetuned ones by name, sentence retrieval and word alignment."""

from typing import Any

from metaxlm.tasks.task import Task
from metaxlm.tasks.udpos import UdposTask
from metaxlm.tasks.xnli import XnliTask

TASKS: dict[str, Task[Any, Any]] = {task.name: task for task in (UdposTask(), XnliTask())}
"""The finetuned tasks by name."""

__all__ = ["TASKS", "Task"]
