"""Exact nearest neighbors by cosine: two sets of vectors come in, the best of each row goes out.

The search behind the paper's Tatoeba experiment (Section 4.4) for sets of any size. The matrix of
similarities never exists as a whole, and each of its blocks is multiplied once for both directions:

1. *Screen.* Blocks are multiplied fast (float32; TF32 on a GPU). Of each block only maxima stay: of
   every row over each group of columns, and of every column over each group of rows.
2. *Settle.* The k-th highest maximum of a row is, up to the error of the screening, at most the
   k-th best similarity. So its k best columns lie in groups whose maximum comes within twice that
   error. Those few groups are multiplied again, in float64.

So the answer is a fixed one, whatever the chunks, the threads and the device: the k keys whose
cosine, computed in float64 and rounded to float32, is highest; of equal ones the first.
Shapes: Q queries, K keys, D dimensions, k neighbors, G groups, R rows and C columns of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.probe.vector_side import (
    BFLOAT16,
    FULL,
    TF32,
    ScreenSide,
    Vectors,
    VectorSide,
    bound_errors,
)
from metaxlm.progress import Advance, track

CHUNKS = {"cpu": 1_024, "cuda": 8_192}
"""Rows and columns of a block: one that stays in a core's cache, and one that fills a GPU."""

_ROWS_AT_ONCE = {"cpu": 32_768, "cuda": 262_144}
"""So many rows are screened, then settled; all columns are read again for the next."""
_MOST_GROUPS, _SMALLEST_GROUP = 512, 32
"""More groups: more maxima to hold, less to multiply again."""
_ONE_GROUP = {"cpu": 0, "cuda": 4_096}
"""So few vectors are one group: starting many small products would take longer than a large one."""
_ROUNDING = {"cpu": 2.0**-24, "cuda": 2.0**-22}
"""Relative error of an addition: float32's, and a bound on that of tensor cores, which truncate."""
_LOWEST = torch.iinfo(torch.int64).min


@dataclass(frozen=True)
class Nearest:
    """The nearest keys of each query, the best first; of equal ones the first comes first."""

    indices_Qk: Tensor
    """Numbers of the keys, int64, on the CPU."""
    similarities_Qk: Tensor
    """Their cosines, float32, on the CPU."""


@torch.no_grad()
def find_nearest(
    queries_QD: Vectors,
    keys_KD: Vectors,
    *,
    k: int = 1,
    device: torch.device | None = None,
    query_chunk: int | None = None,
    key_chunk: int | None = None,
    title: str = "",
) -> Nearest:
    """Return the k keys of highest cosine of each query (all keys if there are fewer than k).

    The device is that of the queries, or the CPU for an array. A vector of zeros has the cosine 0
    with all others. A title shows a bar.
    """
    search = _Search(queries_QD, keys_KD, k, device, query_chunk, key_chunk)
    return search.run(None, title)


@torch.no_grad()
def find_both(
    source_ND: Vectors,
    target_MD: Vectors,
    *,
    k: int = 1,
    device: torch.device | None = None,
    query_chunk: int | None = None,
    key_chunk: int | None = None,
    title: str = "",
) -> tuple[Nearest, Nearest]:
    """Return the nearest targets of each source and the nearest sources of each target.

    Each block of the matrix is multiplied once for both, so this takes as long as one direction.
    """
    search = _Search(source_ND, target_MD, k, device, query_chunk, key_chunk)
    maxima_GM = _make_maxima(len(search.rows), search.row_group, search.columns)
    forward = search.run(maxima_GM, title)
    backward = search.settle(search.fast_columns, search.fast_rows, 0, maxima_GM, search.row_group)
    return forward, backward


class _Search:
    """Both sides, the sizes of blocks and groups, and the error of the screening."""

    def __init__(
        self,
        queries: Vectors,
        keys: Vectors,
        k: int,
        device: torch.device | None,
        row_chunk: int | None,
        column_chunk: int | None,
    ) -> None:
        if k < 1:
            raise MetaXLMError(f"k is {k}; ask for at least one neighbor")
        if device is None:
            device = queries.device if isinstance(queries, Tensor) else torch.device("cpu")
        self.k, self.device = k, device
        self.rows = VectorSide(queries, device, "queries")
        self.columns = VectorSide(keys, device, "keys")
        if self.rows.width != self.columns.width:
            raise MetaXLMError(
                f"queries have {self.rows.width} dimensions and keys {self.columns.width}; "
                f"embed both with one model and layer"
            )
        self.row_chunk = row_chunk or CHUNKS[device.type]
        self.column_chunk = column_chunk or CHUNKS[device.type]
        self.row_group = _choose_group(len(self.rows), self.row_chunk, device)
        self.column_group = _choose_group(len(self.columns), self.column_chunk, device)
        bits = choose_bits(device)
        self.fast_rows = ScreenSide(self.rows, self.columns, bits, is_first=True)
        self.fast_columns = ScreenSide(self.columns, self.rows, bits, is_first=False)
        self.block = torch.empty(0, device=device)

    def run(self, column_maxima_GK: Tensor | None, title: str) -> Nearest:
        """Find the nearest columns of all rows; gather the columns' maxima on the way."""
        found: list[Nearest] = []
        # Whole chunks and whole groups (one is a multiple of the other) are screened at once.
        unit = max(self.row_chunk, self.row_group)
        step = unit * max(1, _ROWS_AT_ONCE[self.device.type] // unit)
        with _show(title, len(self.rows)) as advance:
            for start in range(0, len(self.rows), step):
                end = min(start + step, len(self.rows))
                with _screening_precision(self.fast_rows.bits):
                    maxima_GR = self._screen(start, end, column_maxima_GK)
                group = self.column_group
                rows, columns = self.fast_rows, self.fast_columns
                found.append(self.settle(rows, columns, start, maxima_GR, group))
                advance(end - start)
        indices = torch.cat([part.indices_Qk for part in found])
        return Nearest(indices, torch.cat([part.similarities_Qk for part in found]))

    def _screen(self, start: int, end: int, column_maxima_GK: Tensor | None) -> Tensor:
        """Return the maxima of some rows over the groups of columns, [G, R]."""
        rows_RD = self.fast_rows.take(start, end, min(self.row_group, self.row_chunk))
        row_maxima_GR = _make_maxima(len(self.columns), self.column_group, rows_RD)
        for first in range(0, len(self.columns), self.column_chunk):
            last = min(first + self.column_chunk, len(self.columns))
            columns_CD = self.fast_columns.take(
                first, last, min(self.column_group, self.column_chunk)
            )
            for low in range(0, len(rows_RD), self.row_chunk):
                high = min(low + self.row_chunk, len(rows_RD))
                block_RC = self._multiply(rows_RD[low:high], columns_CD)
                _gather_maxima(block_RC.T, row_maxima_GR[:, low:high], first, self.column_group)
                if column_maxima_GK is not None:
                    maxima_GC = column_maxima_GK[:, first:last]
                    block_RC = block_RC[:, : last - first]
                    _gather_maxima(block_RC, maxima_GC, start + low, self.row_group)
        return row_maxima_GR[:, : end - start]

    def _multiply(self, rows_RD: Tensor, columns_CD: Tensor) -> Tensor:
        """Multiply into memory that is used again: new pages would cost more than the maxima."""
        shape = (len(rows_RD), len(columns_CD))
        if self.block.numel() < shape[0] * shape[1]:
            self.block = torch.empty(shape[0] * shape[1], device=self.device)
        block_RC = self.block[: shape[0] * shape[1]].view(shape)
        return torch.mm(rows_RD, columns_CD.T, out=block_RC)

    def settle(
        self, fast: ScreenSide, fast_other: ScreenSide, start: int, maxima_GR: Tensor, group: int
    ) -> Nearest:
        """Multiply the groups that may hold a row's nearest columns again, exactly."""
        rows, columns, num_rows = fast.side, fast_other.side, maxima_GR.shape[1]
        errors_N = bound_errors(fast, fast_other, _ROUNDING[self.device.type])
        limit_R = _find_kth(maxima_GR, self.k) - 2 * errors_N[start : start + num_rows]
        size = (num_rows, min(self.k, len(columns)))
        best_Rk = torch.full(size, _LOWEST, device=self.device)
        for number, maxima_R in enumerate(maxima_GR):
            chosen = (maxima_R >= limit_R).nonzero().flatten()
            last = min((number + 1) * group, len(columns))
            for first in range(number * group, last, self.column_chunk):
                columns_CD = columns.take_exactly(
                    slice(first, min(first + self.column_chunk, last))
                )
                for part in torch.split(chosen, self.row_chunk):
                    scores_PC = rows.take_exactly(part + start) @ columns_CD.T
                    keys_PC = _pack(scores_PC.float(), first)
                    best_Rk[part] = _keep_best(best_Rk[part], keys_PC)
        return Nearest(*(values.cpu() for values in _unpack(best_Rk)))


def choose_bits(device: torch.device) -> int:
    """Return how precisely a device screens: as it multiplies fastest."""
    if device.type == "cuda":
        return TF32
    has_tiles = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return BFLOAT16 if has_tiles() else FULL


def _choose_group(count: int, chunk: int, device: torch.device) -> int:
    """Return how many vectors share a maximum: a multiple or a divisor of a chunk."""
    wanted = max(-(-count // _MOST_GROUPS), _SMALLEST_GROUP)
    if count <= _ONE_GROUP[device.type]:
        wanted = max(wanted, count)
    if wanted >= chunk:
        return chunk * -(-wanted // chunk)
    return min(size for size in range(wanted, chunk + 1) if chunk % size == 0)


def _make_maxima(count: int, group: int, others: VectorSide | Tensor) -> Tensor:
    """Return room for the maxima of the others over all groups of so many vectors."""
    shape = (-(-count // group), len(others))
    return torch.full(shape, float("-inf"), device=others.device)


def _gather_maxima(block_RC: Tensor, maxima_GC: Tensor, first: int, group: int) -> None:
    """Enter the maxima of the columns over groups of the rows, of which the first has a number."""
    number, size = first // group, min(group, len(block_RC))
    parts_GC = block_RC.reshape(-1, size, block_RC.shape[1]).amax(dim=1)
    place_GC = maxima_GC[number : number + len(parts_GC)]
    torch.maximum(place_GC, parts_GC, out=place_GC)


def _find_kth(maxima_GR: Tensor, k: int) -> Tensor:
    """Return the k-th highest maximum of each row; with fewer groups than k there is none."""
    if k == 1:
        return maxima_GR.amax(dim=0)
    if k > len(maxima_GR):
        return maxima_GR.new_full((maxima_GR.shape[1],), float("-inf"))
    parts = torch.split(maxima_GR, 4_096, dim=1)
    return torch.cat([part_GC.T.contiguous().topk(k).values[:, -1] for part_GC in parts])


def _pack(scores_PC: Tensor, first: int) -> Tensor:
    """Put a score and the number of its column into one integer: higher is better or earlier."""
    bits_PC = (scores_PC + 0.0).view(torch.int32)  # adding zero makes -0 and 0 equal
    ordered_PC = bits_PC ^ ((bits_PC >> 31) & 0x7FFFFFFF)
    numbers_C = torch.arange(first, first + scores_PC.shape[1], device=scores_PC.device)
    return (ordered_PC.long() << 32) | (0xFFFFFFFF - numbers_C)


def _unpack(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numbers and the scores again."""
    ordered = (packed >> 32).int()
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return 0xFFFFFFFF - (packed & 0xFFFFFFFF), bits.view(torch.float32)


def _keep_best(best_Pk: Tensor, keys_PC: Tensor) -> Tensor:
    k = best_Pk.shape[1]
    if k == 1:
        return torch.maximum(best_Pk, keys_PC.amax(dim=1, keepdim=True))
    found_Pk = keys_PC.topk(min(k, keys_PC.shape[1])).values
    return torch.cat([best_Pk, found_Pk], dim=1).topk(k).values


@contextmanager
def _screening_precision(bits: int) -> Iterator[None]:
    """Let float32 be multiplied as precisely as is reckoned with, whatever the user's setting."""
    backends: Any = torch.backends
    wanted = {
        backends.mkldnn.matmul: "bf16" if bits == BFLOAT16 else "ieee",
        backends.cuda.matmul: "tf32" if bits == TF32 else "ieee",
    }
    before = {backend: backend.fp32_precision for backend in wanted}
    try:
        for backend, precision in wanted.items():
            backend.fp32_precision = precision
        yield
    finally:
        for backend, precision in before.items():
            backend.fp32_precision = precision


@contextmanager
def _show(title: str, total: int) -> Iterator[Advance]:
    if title:
        with track(title, total, "queries") as advance:
            yield advance
    else:
        yield lambda *_: None
