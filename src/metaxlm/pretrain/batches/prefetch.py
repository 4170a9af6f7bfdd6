"""Prefetch micro-batches in threads.

NumPy and torch release the interpreter lock while they fill arrays, so threads overlap with
training. A micro-batch is a function of its step and index, so the number of threads affects only
the speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from metaxlm.pretrain.batches.source import BatchSource, MicroBatch


class Prefetcher:
    """The micro-batches of one process, step by step; a context manager that owns its threads."""

    def __init__(
        self,
        source: BatchSource,
        first_step: int,
        last_step: int,
        indices: Sequence[int],
        count: int,
        workers: int,
        depth: int = 4,
    ) -> None:
        """Prefetch steps from `first_step` up to, not including, `last_step`."""
        self._source = source
        self._indices = tuple(indices)
        self._count = count
        self._workers = workers
        self._depth = max(depth, workers)
        self._next = first_step
        self._end = last_step
        self._ready: dict[int, Future[list[MicroBatch]]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Prefetcher:
        if self._workers:
            self._pool = ThreadPoolExecutor(self._workers, "prefetch")
            self._read_ahead()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._ready.clear()

    def get(self, step: int) -> list[MicroBatch]:
        """Return the micro-batches of a step; call once per step, in order."""
        if self._pool is None:
            assert not self._workers, "a prefetcher with workers needs a `with` statement"
            return self._make(step)
        assert step in self._ready, f"step {step} was returned already, or is not the next one"
        batches = self._ready.pop(step).result()
        self._read_ahead()
        return batches

    def _read_ahead(self) -> None:
        assert self._pool is not None
        while self._next < self._end and len(self._ready) < self._depth:
            self._ready[self._next] = self._pool.submit(self._make, self._next)
            self._next += 1

    def _make(self, step: int) -> list[MicroBatch]:
        return [self._source.micro_batch(step, index, self._count) for index in self._indices]
