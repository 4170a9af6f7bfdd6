"""The local engine: worker processes on this machine's cores, each fed one task at a time.

datatrove's own local executor maps tasks over a `multiprocess.Pool`, which waits forever for the
result of a worker that was killed (CPython issue 66587; seen with datatrove 0.10.1). Here a dead
worker is noticed at once, and costs only its task: a fresh process starts it again. Workers are new
interpreters, not forks, because forks of a process with torch's or tokenizers' threads can lock up;
and they are not `multiprocessing` processes, which import the main module again and bring a
resource tracker along.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from datatrove.executor.base import PipelineExecutor

from metaxlm.data.engines.supervision import (
    MAX_ATTEMPTS,
    Supervised,
    Work,
    WorkBar,
    describe_death,
)
from metaxlm.data.engines.tasks import Outcome, record_failure
from metaxlm.files import atomic_file
from metaxlm.stopping import interruptible

_POLL_S = 0.1


class LocalExecutor(Supervised, PipelineExecutor):  # type: ignore[misc]
    """Runs tasks in so many worker processes; None means one a core."""

    def __init__(self, work: Work, workers: int | None) -> None:
        PipelineExecutor.__init__(self, list(work.pipeline), str(work.work_dir))
        self.work = work
        self.workers = workers or count_cores()

    def complete(self, ranks: list[int], bar: WorkBar) -> list[Outcome]:
        """Feed the ranks to workers until each has an outcome."""
        pipeline_file = self.work.work_dir / "pipeline.pickle"
        with atomic_file(pipeline_file) as temporary:
            temporary.write_bytes(pickle.dumps(self.work.pipeline))
        crew = _Crew(self.work, pipeline_file, ranks, bar)
        try:
            with interruptible(self.work.title) as check_stop:
                crew.run(self.workers, check_stop)
        finally:
            crew.end()
        return crew.outcomes


def count_cores() -> int:
    """Count the cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Worker:
    """A worker process and the rank it works on."""

    def __init__(self, work: Work, pipeline_file: Path, rank: int) -> None:
        ours, theirs = socket.socketpair()
        self.connection: Connection[Any, Any] = Connection(ours.detach())
        command = [sys.executable, "-P", "-u", "-m", "metaxlm.data.engines.worker"]
        arguments = [theirs.fileno(), os.getpid(), len(work.weights), pipeline_file, work.work_dir]
        # What libraries print themselves goes to a file, not into the bar.
        with theirs, (work.work_dir / "logs" / "workers.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=_worker_environment(),
            )
        self.assign(rank)

    def assign(self, rank: int) -> None:
        """Give the worker its next task."""
        self.rank = rank
        # A worker that has just died is noticed when we listen to it.
        with suppress(OSError):
            self.connection.send(rank)

    def end(self) -> int:
        """End the process at once, which loses nothing but its task; return its exit code."""
        self.process.kill()
        self.connection.close()
        return self.process.wait()


def _worker_environment() -> dict[str, str]:
    """Let workers import what we can import, in the same order."""
    search_path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    return {**os.environ, "PYTHONPATH": search_path}


class _Crew:
    """All workers, the ranks that wait for one, and how those that ended did."""

    def __init__(self, work: Work, pipeline_file: Path, ranks: list[int], bar: WorkBar) -> None:
        self.outcomes: list[Outcome] = []
        self._work = work
        self._pipeline_file = pipeline_file
        self._bar = bar
        self._waiting = deque(ranks)
        self._deaths: Counter[int] = Counter()
        self._workers: dict[Any, _Worker] = {}

    def run(self, size: int, check_stop: Callable[[], None]) -> None:
        """Keep so many workers busy until nothing waits."""
        while self._waiting or self._workers:
            while self._waiting and len(self._workers) < size:
                worker = _Worker(self._work, self._pipeline_file, self._waiting.popleft())
                self._workers[worker.connection] = worker
            for connection in wait(list(self._workers), _POLL_S):
                self._hear(self._workers[connection])
            check_stop()

    def end(self) -> None:
        """End all workers at once."""
        while self._workers:
            self._workers.popitem()[1].end()

    def _hear(self, worker: _Worker) -> None:
        """Take one message of a worker: how much it did, how its task ended, or that it died."""
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            self._replace(worker)
            return
        if isinstance(message, int):
            self._bar.advance(worker.rank, message)
            return
        self._settle(message)
        if self._waiting:
            worker.assign(self._waiting.popleft())
        else:
            self._dismiss(worker)

    def _settle(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.status == "completed":
            self._bar.finish(outcome.rank)

    def _dismiss(self, worker: _Worker) -> int:
        del self._workers[worker.connection]
        return worker.end()

    def _replace(self, worker: _Worker) -> None:
        """Let a fresh worker start the task of one that died, unless that happened too often."""
        code, rank = self._dismiss(worker), worker.rank
        self._deaths[rank] += 1
        if self._deaths[rank] < MAX_ATTEMPTS:
            self._bar.restart(rank)
            self._waiting.appendleft(rank)
            return
        outcome = describe_death(self._work, rank, _describe_exit(code))
        record_failure(self._work.work_dir, outcome)
        self._settle(outcome)


def _describe_exit(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed, as the system does when memory is short"
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
