"""The Ray engine: each task is a Ray task, on a cluster or on one that starts on this machine.

datatrove's own Ray executor runs a process pool inside an actor, which waits forever when one of
its processes is killed. Here a dead worker or node costs only its tasks: they are started again
elsewhere. All machines of a cluster must see the work folder and have this package installed.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from datatrove.executor.base import PipelineExecutor

from metaxlm.data.engines.supervision import (
    MAX_ATTEMPTS,
    Supervised,
    Work,
    WorkBar,
    describe_death,
)
from metaxlm.data.engines.tasks import Outcome, record_failure, run_pickled
from metaxlm.errors import MetaXLMError
from metaxlm.stopping import interruptible

# Nothing about the user's work leaves his machines; and dead workers are our business, not news.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

try:
    import ray
except ImportError as error:
    raise MetaXLMError("`engine: ray` needs Ray; install it with `pip install ray`") from error

_POLL_S = 0.2
_KNOCK_S = 10.0
_OBJECT_STORE_BYTES = 100_000_000  # tasks exchange files, not objects


class RayExecutor(Supervised, PipelineExecutor):  # type: ignore[misc]
    """Runs tasks on a Ray cluster, at most `workers` at once; None leaves that to Ray."""

    def __init__(self, work: Work, workers: int | None, address: str | None) -> None:
        PipelineExecutor.__init__(self, list(work.pipeline), str(work.work_dir))
        self.work = work
        self.workers = workers
        self.address = address

    def complete(self, ranks: list[int], bar: WorkBar) -> list[Outcome]:
        """Submit the ranks, and those again whose worker died, until each has an outcome."""
        with _cluster(self.address, self.workers), interruptible(self.work.title) as check_stop:
            crew = _Submissions(self.work, ranks, bar)
            try:
                crew.run(self.workers or len(ranks), check_stop)
            finally:
                crew.cancel()
        return crew.outcomes


@contextmanager
def _cluster(address: str | None, workers: int | None) -> Iterator[None]:
    """Connect to a cluster, or start one on this machine; one that already is connected stays."""
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        options |= {"num_cpus": workers, "object_store_memory": _OBJECT_STORE_BYTES}
        options |= {"include_dashboard": False}
    try:
        if address not in (None, "auto"):
            _knock(address)
        ray.init(address or "local", **options)
    except (OSError, ValueError, ray.exceptions.AuthenticationError) as error:
        raise MetaXLMError(_explain_refusal(address, error)) from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raise OSError if nobody listens at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()


def _explain_refusal(address: str | None, error: BaseException) -> str:
    """Say why a cluster could not be used; Ray buries a missing token under other errors."""
    cause: BaseException | None = error
    while cause is not None:
        if "AuthenticationError" in f"{type(cause).__name__}: {cause}":
            return (
                f"engine.ray_address {address}: the cluster wants its token; set "
                "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH as on the cluster's head"
            )
        cause = cause.__cause__
    return (
        f"engine.ray_address {address}: no Ray cluster answers there; start one with "
        "`ray start --head`, or leave the key out"
    )


class _Submissions:
    """What Ray works on, what waits, and how those that ended did."""

    def __init__(self, work: Work, ranks: list[int], bar: WorkBar) -> None:
        self.outcomes: list[Outcome] = []
        self._work = work
        self._bar = bar
        self._waiting = deque(ranks)
        self._deaths: Counter[int] = Counter()
        self._running: dict[Any, int] = {}
        self._pipeline = ray.put(pickle.dumps(work.pipeline))
        # Ray can start tasks again itself, but forever if memory is short, and without a word.
        self._function = ray.remote(num_cpus=1, max_retries=0)(run_pickled)

    def run(self, size: int, check_stop: Callable[[], None]) -> None:
        """Keep so many tasks submitted until nothing waits."""
        arguments = len(self._work.weights), self._work.work_dir, sys.path
        while self._waiting or self._running:
            while self._waiting and len(self._running) < size:
                rank = self._waiting.popleft()
                task = self._function.remote(self._pipeline, rank, *arguments)
                self._running[task] = rank
            for task in ray.wait(list(self._running), timeout=_POLL_S)[0]:
                self._hear(task, self._running.pop(task))
            check_stop()

    def cancel(self) -> None:
        """End what still runs, at once."""
        for task in self._running:
            ray.cancel(task, force=True)

    def _hear(self, task: Any, rank: int) -> None:
        try:
            outcome: Outcome = ray.get(task)
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            self._deaths[rank] += 1
            if self._deaths[rank] < MAX_ATTEMPTS:
                self._waiting.appendleft(rank)
                return
            outcome = describe_death(self._work, rank, f"died ({type(error).__name__})")
            record_failure(self._work.work_dir, outcome)
        self.outcomes.append(outcome)
        if outcome.status == "completed":
            self._bar.finish(rank)
