"""Nearest neighbors by cosine: an exact search in blocks, and faiss for tens of millions.

The exact answer does not depend on blocks, threads or device: the k keys whose cosine, computed in
float64 and rounded to float32, is highest; ties take the first key. Blocks are multiplied in
float32, and the k + MARGIN best keys of each query are scored again in float64. If another key
could still reach the k-th best within the rounding error of float32, the query is scored in float64
against all keys. Shapes: Q queries, K keys, D dimensions, k neighbors, R rows and C columns of a
block, W candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.progress import track

Device = torch.device | None
Vectors = Tensor | np.ndarray[Any, Any]  # rows [N, D] of any float type; may be memory-mapped

CHUNKS = {"cpu": 2_048, "cuda": 8_192}  # rows and columns of a block
MARGIN = 16  # candidates beyond k that are scored in float64
_ROWS_SETTLED = 1_024
_TINY, _HUGE = 1e-37, 1e37  # norms between which a vector can be scaled in float32
_RESIDENT_SHARE = 0.3  # vectors stay on a GPU if they take at most this share of its free memory
_FAISS_CHUNK = 65_536
_MOST_TRAINED = 262_144  # largest number of keys that train a faiss index


@dataclass(frozen=True)
class Nearest:
    """The nearest keys of each query, the best first; ties in the order of the keys."""

    indices_Qk: Tensor  # indices of the keys, int64, on the CPU
    similarities_Qk: Tensor  # their cosines, float32, on the CPU


@dataclass(frozen=True)
class FaissIndex:
    """The index that faiss builds over the keys."""

    factory: str = "Flat"  # for faiss.index_factory: `Flat` (exact), `IVF4096,Flat`, `HNSW32`
    search: str = ""  # search parameters such as `nprobe=32` or `efSearch=128`


def find_nearest(
    queries_QD: Vectors, keys_KD: Vectors, *, k: int = 1, device: Device = None, title: str = ""
) -> Nearest:
    """Return the k keys of highest cosine of each query (all keys if there are fewer than k).

    The default device is that of the queries. A title shows a progress bar.
    """
    return _search(queries_QD, keys_KD, k, device, title, num_ways=1)[0]


def find_both(
    source_ND: Vectors, target_MD: Vectors, *, k: int = 1, device: Device = None, title: str = ""
) -> tuple[Nearest, Nearest]:
    """Search in both directions; each block is multiplied once."""
    forward, backward = _search(source_ND, target_MD, k, device, title, num_ways=2)
    return forward, backward


@torch.no_grad()
def _search(
    queries: Vectors, keys: Vectors, k: int, device: Device, title: str, num_ways: int
) -> list[Nearest]:
    if device is None:
        device = queries.device if isinstance(queries, Tensor) else torch.device("cpu")
    rows, columns = _open_sides(queries, keys, k, device)
    size = CHUNKS[device.type]
    ways = [_Candidates(rows, columns, k), _Candidates(columns, rows, k)][:num_ways]
    memory = torch.empty(size * size, device=device)  # one block; fresh pages would be slow
    with track(title, len(rows), "queries") if title else nullcontext() as advance, _float32():
        for start in range(0, len(rows), size):
            rows_RD = rows.take(start, start + size)
            for first in range(0, len(columns), size):
                columns_CD = columns.take(first, first + size)
                shape = len(rows_RD), len(columns_CD)
                block_RC = memory[: shape[0] * shape[1]].view(shape)
                torch.mm(rows_RD, columns_CD.T, out=block_RC)
                ways[0].add(block_RC, start, first)
                if num_ways == 2:
                    ways[1].add(block_RC.T.contiguous(), first, start)
            if advance is not None:
                advance(len(rows_RD))
    return [candidates.settle() for candidates in ways]


class _Candidates:
    """The k + MARGIN best keys of each query by float32 products."""

    def __init__(self, queries: _Side, keys: _Side, k: int) -> None:
        self.queries, self.keys, self.k = queries, keys, min(k, len(keys))
        shape = (len(queries), min(k + MARGIN, len(keys)))
        self.scores_QW = torch.full(shape, float("-inf"), device=queries.device)
        self.numbers_QW = torch.zeros(shape, dtype=torch.long, device=queries.device)

    def add(self, block_RC: Tensor, start: int, first: int) -> None:
        rows = slice(start, start + len(block_RC))
        width = self.scores_QW.shape[1]
        found = block_RC.topk(min(width, block_RC.shape[1]))
        scores = torch.cat([self.scores_QW[rows], found.values], dim=1)
        numbers = torch.cat([self.numbers_QW[rows], found.indices + first], dim=1)
        best = scores.topk(width)
        self.scores_QW[rows] = best.values
        self.numbers_QW[rows] = numbers.gather(1, best.indices)

    def settle(self) -> Nearest:
        """Score the candidates in float64."""
        # The sum of |u v| is at most 1, and each addition or rounding has an error of 2**-24.
        bound = 2 * (self.keys.width + 16) * 2.0**-24
        has_others = self.scores_QW.shape[1] < len(self.keys)
        parts = []
        for start in range(0, len(self.queries), _ROWS_SETTLED):
            numbers_RW = self.numbers_QW[start : start + _ROWS_SETTLED]
            rows_RD = self.queries.take_exactly(slice(start, start + len(numbers_RW)))
            found_ND = self.keys.take_exactly(numbers_RW.flatten())
            scores_RW = torch.bmm(
                found_ND.view(*numbers_RW.shape, -1), rows_RD[:, :, None]
            ).squeeze(2)
            best_Rk = _pack(scores_RW, numbers_RW).topk(self.k).values
            if has_others:
                lowest_R = self.scores_QW[start : start + len(numbers_RW), -1] + bound
                unsure = (lowest_R >= _unpack(best_Rk[:, -1])[1]).nonzero().flatten()
                if len(unsure):
                    best_Rk[unsure] = self._score_all(rows_RD[unsure])
            parts.append(best_Rk)
        return Nearest(*(values.cpu() for values in _unpack(torch.cat(parts))))

    def _score_all(self, rows_RD: Tensor) -> Tensor:
        best_Rk = rows_RD.new_empty(len(rows_RD), 0, dtype=torch.long)
        size = CHUNKS[rows_RD.device.type]
        for first in range(0, len(self.keys), size):
            scores_RC = rows_RD @ self.keys.take_exactly(slice(first, first + size)).T
            numbers_C = torch.arange(first, first + scores_RC.shape[1], device=rows_RD.device)
            best_Rk = torch.cat([best_Rk, _pack(scores_RC, numbers_C)], dim=1)
            best_Rk = best_Rk.topk(min(self.k, best_Rk.shape[1])).values
        return best_Rk


class _Side:
    def __init__(self, vectors: Vectors, device: torch.device, name: str) -> None:
        if vectors.ndim != 2:
            shape = tuple(vectors.shape)
            raise MetaXLMError(
                f"{name}: vectors are rows, but the shape is {shape}; choose one layer"
            )
        if "float" not in str(vectors.dtype):
            raise MetaXLMError(f"{name}: vectors are floats, but these are {vectors.dtype}")
        if len(vectors) == 0:
            raise MetaXLMError(f"{name}: no vectors")
        self.vectors, self.device, self.width = vectors, device, int(vectors.shape[1])
        if device.type == "cuda":
            most_bytes = _RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]
            if vectors.nbytes <= most_bytes:
                self.vectors = self._read(slice(None))
        self.inverse_N = torch.empty(len(vectors), dtype=torch.float64, device=device)
        for start in range(0, len(vectors), 4_096):
            rows = slice(start, start + 4_096)
            norm_C = torch.linalg.vector_norm(self._read(rows).double(), dim=1)
            if len(wrong := (~(norm_C < _HUGE)).nonzero()):
                raise MetaXLMError(
                    f"{name}: vector {start + int(wrong[0]) + 1:,} has a value that is not finite "
                    "or too large; embed the texts again"
                )
            self.inverse_N[rows] = 1 / norm_C.clamp_min(_TINY)

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, start: int, end: int) -> Tensor:
        """Return rows as float32 unit vectors."""
        unit_CD = self._read(slice(start, end)).float()
        return unit_CD.mul_(self.inverse_N[start:end, None].float())

    def take_exactly(self, rows: slice | Tensor) -> Tensor:
        """Return rows as float64 unit vectors."""
        return self._read(rows).double().mul_(self.inverse_N[rows, None])

    def _read(self, rows: slice | Tensor) -> Tensor:
        if isinstance(self.vectors, Tensor):
            where = rows.to(self.vectors.device) if isinstance(rows, Tensor) else rows
            return self.vectors[where].to(self.device, copy=isinstance(rows, slice))
        places = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        # A copy: torch warns of read-only memory, such as a mapped file's.
        return torch.from_numpy(np.array(self.vectors[places])).to(self.device)


def _open_sides(
    queries: Vectors, keys: Vectors, k: int, device: torch.device
) -> tuple[_Side, _Side]:
    if k < 1:
        raise MetaXLMError(f"k is {k}; use at least one neighbor")
    sides = _Side(queries, device, "queries"), _Side(keys, device, "keys")
    a, b = (side.width for side in sides)
    if a != b:
        fix = "embed both with one model and layer"
        raise MetaXLMError(f"queries have {a} dimensions and keys {b}; {fix}")
    return sides


def _pack(scores: Tensor, numbers: Tensor) -> Tensor:
    """Combine a float32 score and an index into one integer: higher is better, then earlier."""
    bits = (scores.float() + 0.0).view(torch.int32)  # adding zero makes -0 and 0 equal
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.long() << 32) | (0xFFFFFFFF - numbers)


def _unpack(packed: Tensor) -> tuple[Tensor, Tensor]:
    ordered = (packed >> 32).int()
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return 0xFFFFFFFF - (packed & 0xFFFFFFFF), bits.view(torch.float32)


@contextmanager
def _float32() -> Iterator[None]:
    """Multiply float32 in full precision, whatever precision the user has set for matmuls."""
    torch_backends: Any = torch.backends
    backends = torch_backends.mkldnn.matmul, torch_backends.cuda.matmul
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision


def find_by_faiss(
    queries_QD: Vectors, keys_KD: Vectors, index: FaissIndex, *, k: int = 1, title: str = ""
) -> Nearest:
    """Return k keys of high cosine of each query from a faiss index; faiss decides ties."""
    try:
        faiss: Any = import_module("faiss")
    except ImportError as error:
        raise MetaXLMError(
            "searching by faiss needs faiss; install it with: pip install 'metaxlm[faiss]'"
        ) from error
    queries, keys = _open_sides(queries_QD, keys_KD, k, torch.device("cpu"))
    built = _build_index(faiss, keys, index)
    k = min(k, len(keys))
    found = []
    with track(title or "faiss", len(queries), "queries") as advance:
        for start in range(0, len(queries), _FAISS_CHUNK):
            rows_RD = queries.take(start, start + _FAISS_CHUNK)
            found.append(built.search(rows_RD.numpy(), k))
            advance(len(rows_RD))
    scores_Qk, indices_Qk = (
        torch.from_numpy(np.concatenate(parts)) for parts in zip(*found, strict=True)
    )
    if len(short := (indices_Qk < 0).any(dim=1).nonzero()):
        raise MetaXLMError(
            f"faiss's {index.factory} found fewer than {k} keys for query {int(short[0]) + 1:,}; "
            "search more of the index, as with nprobe=64"
        )
    return Nearest(indices_Qk, scores_Qk)


def _build_index(faiss: Any, keys: _Side, index: FaissIndex) -> Any:
    fault = (
        f"faiss index {index.factory!r}: cannot be built for {keys.width} dimensions; write it as "
        "for faiss.index_factory, such as IVF4096,Flat"
    )
    try:
        built = faiss.index_factory(keys.width, index.factory, faiss.METRIC_INNER_PRODUCT)
        if not built.is_trained:
            fault = (
                f"faiss index {index.factory!r}: {len(keys):,} keys are too few to train it; use "
                "Flat, or fewer cells"
            )
            rows = torch.linspace(0, len(keys) - 1, min(len(keys), _MOST_TRAINED)).long()
            built.train(keys.take_exactly(rows).float().numpy())
        for start in range(0, len(keys), _FAISS_CHUNK):
            built.add(keys.take(start, start + _FAISS_CHUNK).numpy())
        if index.search:
            fault = (
                f"faiss search {index.search!r}: {index.factory} does not have it; write it as "
                "nprobe=32 or efSearch=128"
            )
            faiss.ParameterSpace().set_index_parameters(built, index.search)
    except RuntimeError as error:
        raise MetaXLMError(fault) from error
    return built
