"""One task, as it runs inside a worker of any engine: steps in, completion mark or failure out.

The work folder has, for each rank, `completions/00000` once the task's output is in place,
`failures/00000.txt` if it failed (one line; a traceback follows if it was our mistake),
`logs/task_00000.log`, and datatrove's `stats/00000.json`. A step tells how far it is with
`advance`.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from datatrove.utils.stats import PipelineStats
from loguru import logger

from metaxlm.errors import MetaXLMError
from metaxlm.files import write_text

if TYPE_CHECKING:
    from datatrove.pipeline.base import PipelineStep

THREAD_LIMITS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
"""Environment of a worker: there is one for each core already."""

_REPORT_INTERVAL_S = 0.2
_LOG_FORMAT = "{time:YYYY-MM-DD HH:mm:ss.SSS} | {level: <8} | {name}:{function}:{line} - {message}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended."""

    rank: int
    status: Literal["completed", "failed", "crashed"]
    """`failed` is for the user to mend, `crashed` is a mistake of ours."""
    message: str = ""
    """What happened, in one line."""
    traceback: str = ""
    """Where, if it crashed."""


def completion_path(work_dir: Path, rank: int) -> Path:
    """Return the file whose existence says that the task is complete; datatrove's name for it."""
    return work_dir / "completions" / f"{rank:05d}"


def failure_path(work_dir: Path, rank: int) -> Path:
    """Return the file that tells why the task failed."""
    return work_dir / "failures" / f"{rank:05d}.txt"


def log_path(work_dir: Path, rank: int) -> Path:
    """Return the task's log."""
    return work_dir / "logs" / f"task_{rank:05d}.log"


class _Meter:
    """Adds up what steps report, and passes it on a few times a second."""

    def __init__(self) -> None:
        self.send: Callable[[int], None] | None = None
        self.pending = 0
        self.last_s = 0.0

    def add(self, num_bytes: int) -> None:
        if self.send is None:
            return
        self.pending += num_bytes
        now = time.monotonic()
        if now - self.last_s >= _REPORT_INTERVAL_S:
            self.send(self.pending)
            self.pending, self.last_s = 0, now


_meter = _Meter()


def advance(num_bytes: int) -> None:
    """Tell the engine that the task has done so much more of its weight; cheap, call it often."""
    _meter.add(num_bytes)


@contextmanager
def reporting_to(send: Callable[[int], None]) -> Iterator[None]:
    """Pass what steps report with `advance` to `send`, a few times a second."""
    _meter.send, _meter.pending, _meter.last_s = send, 0, time.monotonic()
    try:
        yield
    finally:
        _meter.send = None


@cache
def _end_with_parent() -> None:
    """End this process when the one that started it is gone; Ray's go on for a minute."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_REPORT_INTERVAL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_pickled(
    pipeline: bytes, rank: int, world_size: int, work_dir: Path, search_path: Sequence[str] = ()
) -> Outcome:
    """Run one task in this process, which only runs tasks, with the steps that were pickled."""
    _end_with_parent()
    for name, value in THREAD_LIMITS.items():
        os.environ.setdefault(name, value)
    sys.path.extend(entry for entry in search_path if entry not in sys.path)
    return run_task(lambda: pickle.loads(pipeline), rank, world_size, work_dir)


def run_task(
    load: Callable[[], Sequence[PipelineStep]], rank: int, world_size: int, work_dir: Path
) -> Outcome:
    """Run one task of `world_size` with the fresh steps that `load` gives, and tell how it ended.

    Only what a person can mend (`MetaXLMError`, `OSError`, lack of memory) is a failure; any other
    exception is a crash. Either way the traceback is in the task's log.
    """
    if completion_path(work_dir, rank).exists():
        return Outcome(rank, "completed")
    try:
        failure_path(work_dir, rank).unlink(missing_ok=True)
        with _task_log(log_path(work_dir, rank)):
            _run_pipeline(load(), rank, world_size, work_dir)
        return Outcome(rank, "completed")
    except MetaXLMError as error:
        outcome = Outcome(rank, "failed", _one_line(str(error)))
    except OSError as error:
        outcome = Outcome(rank, "failed", _describe_os_error(error))
    except MemoryError:
        outcome = Outcome(rank, "failed", "out of memory; lower engine.workers or corpus.task_mb")
    except Exception as error:
        name = f"{type(error).__name__}: {error}"
        outcome = Outcome(rank, "crashed", _one_line(name), traceback.format_exc())
    record_failure(work_dir, outcome)
    return outcome


def _run_pipeline(
    pipeline: Sequence[PipelineStep], rank: int, world_size: int, work_dir: Path
) -> None:
    """Pipe each step's documents into the next, then mark the task as complete."""
    logger.info(f"task {rank} of {world_size}: {' | '.join(map(repr, pipeline))}")
    data = None
    for step in pipeline:
        data = step(data, rank, world_size)
    deque(data or (), maxlen=0)
    write_text(
        work_dir / "stats" / f"{rank:05d}.json", PipelineStats(list(pipeline)).to_json() + "\n"
    )
    path = completion_path(work_dir, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    logger.success(f"task {rank} is complete")


@contextmanager
def _task_log(path: Path) -> Iterator[None]:
    """Send everything that is logged to the task's own file, and nothing to the terminal."""
    logger.remove()
    logger.enable("datatrove")
    path.parent.mkdir(parents=True, exist_ok=True)
    sink = logger.add(path, format=_LOG_FORMAT, level="DEBUG", backtrace=False, diagnose=False)
    try:
        yield
    except Exception as error:
        logger.exception(error)
        raise
    finally:
        logger.remove(sink)


def record_failure(work_dir: Path, outcome: Outcome) -> None:
    """Leave a failed task's message in the work folder; on a full disk it only goes to the user."""
    with suppress(OSError):
        write_text(failure_path(work_dir, outcome.rank), f"{outcome.message}\n{outcome.traceback}")


def read_failure(work_dir: Path, rank: int) -> Outcome | None:
    """Return what `record_failure` left for a rank, if it did."""
    try:
        text = failure_path(work_dir, rank).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    message, _, trace = text.partition("\n")
    return Outcome(rank, "crashed" if trace else "failed", message, trace)


def _describe_os_error(error: OSError) -> str:
    if error.errno is None:
        return _one_line(str(error))
    return f"{error.filename or 'output'}: {os.strerror(error.errno)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
