"""Nearest neighbors by cosine: an exact search in blocks, and faiss for tens of millions.

The exact answer does not depend on blocks, threads or device: the k keys whose cosine, computed in
float64 and rounded to float32, is highest; ties take the first key.

1. Multiply blocks in the precision that is fastest on the device (TF32 on a GPU, bfloat16 on CPUs
   with AMX, otherwise float32). Keep the maxima of each query over groups of keys.
2. The k-th highest maximum is at most the k-th best cosine plus the rounding error. So only groups
   whose maximum is within twice that error can hold one of the k best keys. Multiply them again in
   float64.

Shapes: Q queries, K keys, D dimensions, k neighbors, R rows and C columns of a block, G groups.
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
from metaxlm.pretrain.distributed import exact_device
from metaxlm.progress import track

Device = torch.device | None
Vectors = Tensor | np.ndarray[Any, Any]  # rows [N, D] of any float type; may be memory-mapped

CHUNKS = {"cpu": 1_024, "cuda": 8_192}  # rows and columns of a block
_ROWS_AT_ONCE = {"cpu": 32_768, "cuda": 262_144}  # rows whose maxima are in memory
_MOST_GROUPS, _SMALLEST_GROUP = 512, 32
_ONE_GROUP = {"cpu": 0, "cuda": 4_096}  # up to this many vectors are one group
_BITS = {"ieee": 23, "tf32": 10, "bf16": 7}  # of the significand
_NUM_TERMS = 3  # numbers of few bits that together represent a float32
_ADDITION_ERROR = {"cpu": 2.0**-24, "cuda": 2.0**-22}  # relative; tensor cores truncate
_TINY, _HUGE = 1e-37, 1e37  # norms between which a vector can be scaled in float32
_RESIDENT_SHARE = 0.3  # vectors stay on a GPU if they take at most this share of its free memory
_PASS = 4_096  # vectors that are measured at once
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
    device = exact_device(device)
    rows, columns = _open_sides(queries, keys, k, device)
    precision = _choose_precision(device)
    factors = _Factors(rows, columns, precision), _Factors(columns, rows, precision, is_second=True)
    error = _bound_error(*factors)
    size = CHUNKS[device.type]
    group_R, group_C = (_choose_group(len(side), size, device) for side in (rows, columns))
    memory = torch.empty(size * size, device=device)  # one block; new pages would be slow
    columns_maxima_GC = _make_maxima(len(rows), group_R, len(columns), device)
    span = max(size, group_R) * max(1, _ROWS_AT_ONCE[device.type] // max(size, group_R))
    found = []
    with track(title, len(rows), "queries") if title else nullcontext() as advance:
        for start in range(0, len(rows), span):
            rows_RD = factors[0].take(start, start + span)
            maxima_GR = _make_maxima(len(columns), group_C, len(rows_RD), device)
            with _multiply_in(precision):
                for first in range(0, len(columns), size):
                    columns_CD = factors[1].take(first, first + size)
                    for low in range(0, len(rows_RD), size):
                        part_RD = rows_RD[low : low + size]
                        block_RC = memory[: len(part_RD) * len(columns_CD)]
                        block_RC = block_RC.view(len(part_RD), len(columns_CD))
                        torch.mm(part_RD, columns_CD.T, out=block_RC)
                        _add_maxima(maxima_GR[:, low : low + size], block_RC.T, first, group_C)
                        if num_ways == 2:
                            maxima_GC = columns_maxima_GC[:, first : first + size]
                            _add_maxima(maxima_GC, block_RC, start + low, group_R)
            found.append(_settle(rows, columns, start, maxima_GR, group_C, k, error))
            if advance is not None:
                advance(len(rows_RD))
    ways = [torch.cat(found)]
    if num_ways == 2:
        ways.append(_settle(columns, rows, 0, columns_maxima_GC, group_R, k, error))
    return [Nearest(*(values.cpu() for values in _unpack(best_Qk))) for best_Qk in ways]


def _choose_group(count: int, size: int, device: torch.device) -> int:
    """Return how many vectors share a maximum: a multiple or a divisor of a block's size."""
    wanted = max(-(-count // _MOST_GROUPS), _SMALLEST_GROUP)
    if count <= _ONE_GROUP[device.type]:
        wanted = max(wanted, count)
    if wanted >= size:
        return size * -(-wanted // size)
    return min(group for group in range(wanted, size + 1) if size % group == 0)


def _make_maxima(count: int, group: int, num_others: int, device: torch.device) -> Tensor:
    shape = -(-count // group), num_others
    return torch.full(shape, float("-inf"), device=device)


def _add_maxima(maxima_GC: Tensor, block_RC: Tensor, first: int, group: int) -> None:
    """Update the maxima of the columns by a block whose first row has this number."""
    size = min(group, len(block_RC))
    whole = len(block_RC) // size * size
    parts = [block_RC[:whole].view(-1, size, block_RC.shape[1]).amax(dim=1)]
    if whole < len(block_RC):
        parts.append(block_RC[whole:].amax(dim=0, keepdim=True))
    number = first // group
    for part_GC in parts:
        place_GC = maxima_GC[number : number + len(part_GC)]
        torch.maximum(place_GC, part_GC, out=place_GC)
        number += len(part_GC)


def _settle(
    rows: _Side, columns: _Side, start: int, maxima_GR: Tensor, group: int, k: int, error: float
) -> Tensor:
    """Return the k best columns of each row as packed integers, [R, k]."""
    size, num_rows, k = CHUNKS[rows.device.type], maxima_GR.shape[1], min(k, len(columns))
    best_Rk = torch.full((num_rows, k), torch.iinfo(torch.int64).min, device=rows.device)
    limit_R = torch.full((num_rows,), float("-inf"), device=rows.device)
    if k <= len(maxima_GR):
        parts = torch.split(maxima_GR, _PASS, dim=1)
        limit_R = torch.cat([_find_highest(part_GR.T, k)[:, -1] for part_GR in parts]) - 2 * error
    is_open_GR = maxima_GR >= limit_R
    counts = is_open_GR.sum(dim=1).tolist()
    chosen_by_group = torch.split(is_open_GR.nonzero()[:, 1], counts)  # one sync for all groups
    for number, chosen in enumerate(chosen_by_group):
        last = min((number + 1) * group, len(columns))
        for first in range(number * group, last, size):
            columns_CD = columns.take_exactly(slice(first, min(first + size, last)))
            for part in torch.split(chosen, size):
                packed_PC = _pack(rows.take_exactly(part + start) @ columns_CD.T, first)
                found_Pk = _find_highest(packed_PC, k)
                best_Rk[part] = _find_highest(torch.cat([best_Rk[part], found_Pk], dim=1), k)
    return best_Rk


def _find_highest(values_RC: Tensor, k: int) -> Tensor:
    if k == 1:  # faster than topk
        return values_RC.amax(dim=1, keepdim=True)
    return values_RC.topk(min(k, values_RC.shape[1])).values


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
        self.mean_D = torch.zeros(self.width, dtype=torch.float64, device=device)
        for start in range(0, len(vectors), _PASS):
            rows = slice(start, start + _PASS)
            raw_CD = self._read(rows).double()
            norm_C = torch.linalg.vector_norm(raw_CD, dim=1)
            if len(wrong := (~(norm_C < _HUGE)).nonzero()):
                raise MetaXLMError(
                    f"{name}: vector {start + int(wrong[0]) + 1:,} has a value that is not finite "
                    "or too large; embed the texts again"
                )
            self.inverse_N[rows] = 1 / norm_C.clamp_min(_TINY)
            self.mean_D += self.inverse_N[rows] @ raw_CD / len(vectors)

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


class _Factors:
    """A side in the precision of the products, and the error of rounding it.

    The vectors of an encoder have a large common part. Rounded to few bits, it would hide their
    differences, so the means m and n are subtracted: u v = (u - m)(v - n) + u n + m (v - n). The
    last two terms are further columns, in parts that few bits hold without loss.
    """

    def __init__(self, side: _Side, other: _Side, precision: str, is_second: bool = False) -> None:
        self.side, self.bits, self.is_second = side, _BITS[precision], is_second
        self.norm, self.lost = 1.0, 0.0  # largest norms of the factors and of their errors
        if self.bits == _BITS["ieee"]:
            return
        self.mean_D = side.mean_D.float()
        self.terms_NT = torch.empty(len(side), _NUM_TERMS, device=side.device)
        norms = []
        for start in range(0, len(side), _PASS):
            rows = slice(start, start + _PASS)
            unit_CD = side.take_exactly(rows)
            shifted_CD = unit_CD - self.mean_D.double()
            rest_C = (shifted_CD if is_second else unit_CD) @ other.mean_D.float().double()
            for term in range(_NUM_TERMS):
                self.terms_NT[rows, term] = _round(rest_C.float(), self.bits)
                rest_C = rest_C - self.terms_NT[rows, term].double()
            lost_CD = shifted_CD - self._shift(start, start + _PASS).double()
            parts = [torch.linalg.vector_norm(part, dim=1).max() for part in (shifted_CD, lost_CD)]
            norms.append(torch.stack(parts))
        self.norm, self.lost = torch.stack(norms).amax(dim=0).tolist()

    def take(self, start: int, end: int) -> Tensor:
        if self.bits == _BITS["ieee"]:
            return self.side.take(start, end)
        terms_CT = self.terms_NT[start:end]
        parts = [torch.ones_like(terms_CT), terms_CT]
        return torch.cat([self._shift(start, end), *parts[:: -1 if self.is_second else 1]], dim=1)

    def _shift(self, start: int, end: int) -> Tensor:
        return _round(self.side.take(start, end).sub_(self.mean_D), self.bits)


def _bound_error(own: _Factors, other: _Factors) -> float:
    """Return the largest difference between a product and the cosine, by Cauchy-Schwarz."""
    adding = _ADDITION_ERROR[own.side.device.type]
    rounding = own.norm * other.lost + own.lost * (other.norm + 2 * other.lost)
    return rounding + 4 * (own.side.width + 2 * _NUM_TERMS + 16) * adding  # the terms sum to <= 4


def _round(values: Tensor, bits: int) -> Tensor:
    """Round float32 to this many bits of the significand."""
    dropped = _BITS["ieee"] - bits
    whole = values.contiguous().view(torch.int32)
    return ((whole + (1 << (dropped - 1))) & -(1 << dropped)).view(torch.float32)


def _choose_precision(device: torch.device) -> str:
    if device.type == "cuda":
        return "tf32"
    has_tiles = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return "bf16" if has_tiles() else "ieee"


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


def _pack(scores_PC: Tensor, first: int) -> Tensor:
    """Combine float32 scores and their columns into integers: higher is better, then earlier."""
    bits_PC = (scores_PC.float() + 0.0).view(torch.int32)  # adding zero makes -0 and 0 equal
    ordered_PC = bits_PC ^ ((bits_PC >> 31) & 0x7FFFFFFF)
    numbers_C = torch.arange(first, first + scores_PC.shape[1], device=scores_PC.device)
    return (ordered_PC.long() << 32) | (0xFFFFFFFF - numbers_C)


def _unpack(packed: Tensor) -> tuple[Tensor, Tensor]:
    ordered = (packed >> 32).int()
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return 0xFFFFFFFF - (packed & 0xFFFFFFFF), bits.view(torch.float32)


@contextmanager
def _multiply_in(precision: str) -> Iterator[None]:
    """Multiply float32 in this precision, whatever precision the user has set for matmuls."""
    torch_backends: Any = torch.backends
    fast = {torch_backends.mkldnn.matmul: "bf16", torch_backends.cuda.matmul: "tf32"}
    before = {backend: backend.fp32_precision for backend in fast}
    try:
        for backend, name in fast.items():
            backend.fp32_precision = name if name == precision else "ieee"
        yield
    finally:
        for backend, name in before.items():
            backend.fp32_precision = name


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
