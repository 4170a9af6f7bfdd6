"""The finetuned tasks by name."""

from __future__ import annotations

from typing import Any

from metaxlm.tasks.task import Task
from metaxlm.tasks.udpos import UdposTask
from metaxlm.tasks.xnli import XnliTask

TASKS: dict[str, Task[Any, Any]] = {task.name: task for task in (UdposTask(), XnliTask())}
"""The finetuned tasks by name."""
