"""Batches that are ready when the device asks for them.

Comes in: a source of pieces, the steps to come, which pieces of each step this process computes.
Goes out: these pieces, step by step. Threads read ahead by a few steps; the arrays are filled by
NumPy and torch, which let other threads run meanwhile. A piece is a function of its step and index,
so that the number of threads changes nothing but the speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from metaxlm.pretrain.batches.source import BatchSource, Piece


class Feed:
    """The pieces of one process, prefetched; a context manager that ends its own threads."""

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
        """Prepare steps from `first_step` up to, not including, `last_step`."""
        self._source = source
        self._indices = tuple(indices)
        self._count = count
        self._workers = workers
        self._depth = max(depth, workers)
        self._next = first_step
        self._end = last_step
        self._ready: dict[int, Future[list[Piece]]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Feed:
        if self._workers:
            self._pool = ThreadPoolExecutor(self._workers, "feed")
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

    def get(self, step: int) -> list[Piece]:
        """Return the pieces of a step; steps are asked for in order, each once."""
        if self._pool is None:
            assert not self._workers, "a feed with workers is used in a `with` statement"
            return self._make(step)
        assert step in self._ready, f"step {step} was given already, or is not the next one"
        pieces = self._ready.pop(step).result()
        self._read_ahead()
        return pieces

    def _read_ahead(self) -> None:
        assert self._pool is not None
        while self._next < self._end and len(self._ready) < self._depth:
            self._ready[self._next] = self._pool.submit(self._make, self._next)
            self._next += 1

    def _make(self, step: int) -> list[Piece]:
        return [self._source.piece(step, index, self._count) for index in self._indices]
