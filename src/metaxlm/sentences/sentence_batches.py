"""Batches of a sentence encoder: texts as token ids, and the anchors that they belong to.

The texts of a micro-batch are tokenized, sorted by length and stored one after another without
padding, so that a step computes real tokens only. On a GPU the total is rounded up: steps have few
distinct shapes, each of which is one CUDA graph. Pairs are drawn and tokenized in other processes,
because rewriting text in Python is slower than a training step on a GPU.

Shapes: B texts of a micro-batch, N their tokens, A anchors, E extra negatives.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.data.encode import SentenceEncoder
from metaxlm.data.executors import end_with_parent
from metaxlm.finetune.batches import round_total
from metaxlm.pretrain.batches.source import BatchSource, MicroBatch
from metaxlm.probe.pool import find_frame
from metaxlm.randomness import derive_seed, generator
from metaxlm.sentences.pairs import PairSource

Ints = NDArray[np.int64]

MOST_WORKERS = 12
_MOST_CHARACTERS = 24  # of a token: longer texts are cut before they are tokenized
# Windows cannot fork, and system libraries of macOS fail in a fork.
_CAN_FORK = hasattr(os, "fork") and sys.platform != "darwin"
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


@dataclass(frozen=True)
class SentenceBatch:
    """Texts of a step for the student, and the rows of their anchors in the teacher's table."""

    ids_N: Tensor  # int32, longest text first; the end may be padding
    lengths_B: Tensor  # int32
    starts_B1: Tensor  # int32, the first token of each text, and the one after the last
    anchors_B: Tensor  # int64
    extra_E: Tensor  # int64, anchors of other sentences that are negatives of all texts
    sizes: tuple[int, ...]  # the lengths on the host
    dropout_seed: int
    longest: int  # most tokens that a text of the run may have
    blocks: MicroBatch | None = None  # of the masked language modeling term

    @property
    def num_tokens(self) -> int:
        """The number of real tokens."""
        return sum(self.sizes) + (0 if self.blocks is None else self.blocks.num_tokens)

    def tensors(self) -> list[Tensor]:
        """Return all tensors that differ between two batches of the same shape."""
        own = [self.ids_N, self.lengths_B, self.starts_B1, self.anchors_B, self.extra_E]
        blocks = self.blocks
        return own if blocks is None else [*own, blocks.ids_BL, blocks.lengths_B, blocks.rows_B]

    def to(self, device: torch.device) -> Self:
        """Return a copy on a device; the copies may still be in progress on return."""
        if device.type == "cpu":
            return self
        names = ("ids_N", "lengths_B", "starts_B1", "anchors_B", "extra_E")
        moved: Any = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        blocks = None if self.blocks is None else self.blocks.to(device)
        return replace(self, **moved, blocks=blocks)


class _Rows(NamedTuple):
    ids_N: NDArray[np.int32]
    lengths_B: NDArray[np.int32]
    anchors_B: Ints


class SentenceSource:
    """All batches of a training run; a context manager that ends its processes."""

    def __init__(
        self,
        pairs: PairSource,
        rows_A: Ints,
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int,
        max_length: int,
        seed: int,
        device: torch.device,
        num_negatives: int = 0,
        blocks: BatchSource | None = None,
        workers: int = 0,
    ) -> None:
        """`rows_A` has the row of each anchor in the table of the teacher's vectors."""
        self._reader = _Reader(pairs, rows_A, tokenizer, batch_size, max_length)
        self._batch_size, self._max_length = batch_size, max_length
        self._seed, self._device = seed, device
        self._num_rows, self._num_negatives = int(rows_A.max()) + 1, num_negatives
        self._blocks = blocks
        self._pin = device.type == "cuda"
        self._pool = _start_processes(self._reader, workers) if workers else None
        self._read: Callable[[int, int, int], _Rows] = self._reader.read
        if self._pool is not None:
            self._read = self._read_elsewhere

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def micro_batch(self, step: int, index: int = 0, count: int = 1) -> SentenceBatch:
        """Return one of `count` equal micro-batches of a step; steps and indices start at 0."""
        rows = self._read(step, index, count)
        total = round_total(len(rows.ids_N), self._device)
        ids_N = self._hold(np.pad(rows.ids_N, (0, total - len(rows.ids_N))))
        starts_B1 = np.concatenate([[0], np.cumsum(rows.lengths_B)]).astype(np.int32)
        blocks = None if self._blocks is None else self._blocks.micro_batch(step, index, count)
        return SentenceBatch(
            ids_N,
            self._hold(rows.lengths_B),
            self._hold(starts_B1),
            self._hold(rows.anchors_B),
            self._hold(self._draw_negatives(step)),
            tuple(rows.lengths_B.tolist()),
            derive_seed(self._seed, "sentence dropout", step, index, count),
            self._max_length,
            blocks,
        )

    def samples(self, step: int) -> list[tuple[str, str]]:
        """Return the (language, text) of each row of a step, over all processes."""
        return self._reader.samples(step)

    def mask_key(self, step: int) -> int:
        """Return the random key of the masks of a step."""
        return derive_seed(self._seed, "sentence masks", step)

    def _draw_negatives(self, step: int) -> Ints:
        random = generator(self._seed, "negatives", step)
        return random.integers(self._num_rows, size=self._num_negatives)

    def _hold(self, array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor.pin_memory() if self._pin else tensor

    def _read_elsewhere(self, step: int, index: int, count: int) -> _Rows:
        assert self._pool is not None
        return self._pool.submit(_read_here, step, index, count).result()


class _Reader:
    """Draws and tokenizes the pairs of a step; has no state."""

    def __init__(
        self,
        pairs: PairSource,
        rows_A: Ints,
        tokenizer: PreTrainedTokenizerBase,
        batch_size: int,
        max_length: int,
    ) -> None:
        self._pairs, self._rows_A = pairs, rows_A
        self._batch_size, self._max_length = batch_size, max_length
        self._encoder = SentenceEncoder(tokenizer.backend_tokenizer)
        frame, ids = find_frame(tokenizer), np.array(tokenizer("a")["input_ids"], np.int32)
        self._before, self._after = ids[: frame.before], ids[len(ids) - frame.after :]

    def read(self, step: int, index: int, count: int) -> _Rows:
        """Return the rows of a micro-batch, the longest text first."""
        size, rest = divmod(self._batch_size, count)
        assert not rest and 0 <= index < count, f"micro-batch {index} of {count}"
        first = step * self._batch_size + index * size
        drawn = self._pairs.draw(np.arange(first, first + size, dtype=np.int64))
        ids = self.tokenize(drawn.texts)
        lengths_B = np.array([len(row) for row in ids], np.int32)
        order = np.argsort(-lengths_B, kind="stable")
        ids_N = np.concatenate([ids[row] for row in order.tolist()])
        return _Rows(ids_N, lengths_B[order], self._rows_A[drawn.anchors[order]])

    def tokenize(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the token ids of texts with special tokens, cut to the longest length."""
        most = self._max_length - len(self._before) - len(self._after)
        cut = (text[: most * _MOST_CHARACTERS] for text in texts)
        encoded = self._encoder.encode([" ".join(text.split()) for text in cut])
        rows = np.split(encoded.ids.astype(np.int32), np.cumsum(encoded.lengths)[:-1])
        return [np.concatenate([self._before, row[:most], self._after]) for row in rows]

    def samples(self, step: int) -> list[tuple[str, str]]:
        first = step * self._batch_size
        drawn = self._pairs.draw(np.arange(first, first + self._batch_size, dtype=np.int64))
        return list(zip(drawn.languages, drawn.texts, strict=True))


def count_workers(device: torch.device, num_local: int = 1) -> int:
    """Return the number of processes that prepare batches: none on a CPU, which computes, too."""
    if device.type == "cpu":
        return 0
    return max(1, min(MOST_WORKERS, (os.cpu_count() or 1) // num_local - 1))


_READERS: list[_Reader] = []  # of a worker process: its only one


def _read_here(step: int, index: int, count: int) -> _Rows:
    return _READERS[0].read(step, index, count)


def _start_processes(reader: _Reader, workers: int) -> ProcessPoolExecutor:
    """Start processes that read batches; on Linux, they share the texts without a copy."""
    context = multiprocessing.get_context("fork" if _CAN_FORK else "spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(reader,))
    with warnings.catch_warnings():
        # Forked processes use neither torch nor a lock of another thread.
        warnings.simplefilter("ignore", DeprecationWarning)
        pool.submit(os.getpid).result()
    return pool


def _begin(reader: _Reader) -> None:
    _READERS.append(reader)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a process for each core
    for number in (signal.SIGINT, signal.SIGTERM):  # the process that trains stops them
        signal.signal(number, signal.SIG_IGN)
    if not _CAN_FORK:  # end with the process that trains, if it is killed
        end_with_parent()
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
