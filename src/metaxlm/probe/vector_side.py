"""One side of a search: vectors of any float type come in, chunks of unit vectors go out.

Part of the retrieval of the paper's Section 4.4. The vectors may be a tensor or an array, also a
memory-mapped one: only the chunk that is asked for is read. A GPU keeps them all if it has the
room. Shapes: N vectors, D dimensions, C of a chunk, T terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError

Vectors = Tensor | np.ndarray[Any, Any]
"""Vectors as rows, [N, D], in float16, bfloat16, float32 or float64."""

FULL, TF32, BFLOAT16 = 23, 10, 7
"""Bits after the point of what is multiplied: float32, and what fast units read of it."""
_NUM_TERMS = 3
_PASS = 4_096
_TINY, _HUGE = 1e-37, 1e37
"""Lengths between which a vector can be scaled in float32; shorter ones stay near zero."""
_RESIDENT_SHARE = 0.3
"""A GPU holds the vectors of a side if they take at most this share of its free memory."""


class VectorSide:
    """Vectors and their lengths; the vectors are read, checked and scaled chunk by chunk."""

    def __init__(self, vectors: Vectors, device: torch.device, name: str) -> None:
        _check_shape(vectors, name)
        self.device, self.name = device, name
        self.vectors = _make_resident(vectors, device)
        self.inverse_N = torch.empty(len(vectors), dtype=torch.float64, device=device)
        self.mean_D = torch.zeros(self.width, dtype=torch.float64, device=device)
        """Of the unit vectors."""
        for start in range(0, len(self), _PASS):
            self._measure(start, min(start + _PASS, len(self)))

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def width(self) -> int:
        """The number of dimensions."""
        return int(self.vectors.shape[1])

    def take(self, start: int, end: int) -> Tensor:
        """Return rows as float32 unit vectors."""
        unit_CD = self.read(slice(start, end)).float()
        return unit_CD.mul_(self.inverse_N[start:end, None].float())

    def take_exactly(self, rows: slice | Tensor) -> Tensor:
        """Return rows as float64 unit vectors."""
        return self.read(rows).double().mul_(self.inverse_N[rows, None])

    def read(self, rows: slice | Tensor) -> Tensor:
        """Return a copy of rows as they are, on the device."""
        if isinstance(self.vectors, Tensor):
            where = rows.to(self.vectors.device) if isinstance(rows, Tensor) else rows
            return self.vectors[where].to(self.device, copy=isinstance(rows, slice))
        where_array = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        # A copy: torch warns of memory that it must not write to, as a mapped file's.
        return torch.from_numpy(np.array(self.vectors[where_array])).to(self.device)

    def _measure(self, start: int, end: int) -> None:
        """Compute the lengths of some vectors; refuse those that have none."""
        raw_CD = self.read(slice(start, end)).double()
        norm_C = torch.linalg.vector_norm(raw_CD, dim=1)
        if not bool((norm_C < _HUGE).all()):
            row = start + int((~(norm_C < _HUGE)).nonzero()[0])
            raise MetaXLMError(
                f"{self.name}: vector {row + 1:,} has a value that is not finite or too large; "
                f"embed the texts again"
            )
        inverse_C = 1 / norm_C.clamp_min(_TINY)
        self.inverse_N[start:end] = inverse_C
        self.mean_D += inverse_C @ raw_CD / len(self)


class ScreenSide:
    """A side in the form in which it is multiplied fast, with a bound on what that loses.

    With few bits a product of vectors that all point one way, as an encoder's do, would lose more
    than the products differ by. So the mean is taken off both sides, u v = (u - m)(v - n) + u n +
    m (v - n), and the two last terms are written into columns of their own, in parts that the few
    bits hold without loss.
    """

    def __init__(self, side: VectorSide, other: VectorSide, bits: int, *, is_first: bool) -> None:
        self.side, self.bits, self.is_first = side, bits, is_first
        self.spread_N = torch.ones(len(side), device=side.device)
        """The lengths of what is multiplied."""
        self.lost_N = torch.zeros(len(side), device=side.device)
        """How far rounding moves it."""
        if bits == FULL:
            return
        self.mean_D = side.mean_D.float()
        self.terms_NT = torch.empty(len(side), _NUM_TERMS, device=side.device)
        for start in range(0, len(side), _PASS):
            end = min(start + _PASS, len(side))
            unit_CD = side.take_exactly(slice(start, end))
            shifted_CD = unit_CD - self.mean_D.double()
            terms_C = (unit_CD if is_first else shifted_CD) @ other.mean_D.float().double()
            self.terms_NT[start:end] = split_number(terms_C, bits)
            lost_CD = shifted_CD - self._shift(start, end).double()
            self.spread_N[start:end] = torch.linalg.vector_norm(shifted_CD, dim=1)
            self.lost_N[start:end] = torch.linalg.vector_norm(lost_CD, dim=1)

    def take(self, start: int, end: int, multiple: int = 1) -> Tensor:
        """Return rows to multiply, the last one repeated up to a multiple of rows."""
        if self.bits == FULL:
            rows_CD = self.side.take(start, end)
        else:
            terms_CT = self.terms_NT[start:end]
            parts = [torch.ones_like(terms_CT), terms_CT]
            rows_CD = torch.cat(
                [self._shift(start, end), *(parts if self.is_first else parts[::-1])], dim=1
            )
        if missing := -len(rows_CD) % multiple:
            rows_CD = torch.cat([rows_CD, rows_CD[-1:].expand(missing, -1)])
        return rows_CD

    def _shift(self, start: int, end: int) -> Tensor:
        return round_bits(self.side.take(start, end).sub_(self.mean_D), self.bits)


def bound_errors(own: ScreenSide, other: ScreenSide, rounding: float) -> Tensor:
    """Return how far a row's products can be from its cosines, by Cauchy and Schwarz, [N].

    `rounding` is the relative error of one addition; what is added up is at most 4 in all.
    """
    spread, lost = float(other.spread_N.max()), float(other.lost_N.max())
    added = 4 * (own.side.width + 2 * _NUM_TERMS + 16) * rounding
    return own.spread_N * lost + own.lost_N * (spread + 2 * lost) + added


def round_bits(values: Tensor, bits: int) -> Tensor:
    """Round float32 to so many bits after the point, which fewer-bit units read without loss."""
    drop = FULL - bits
    whole = values.contiguous().view(torch.int32)
    return ((whole + (1 << (drop - 1))) & -(1 << drop)).view(torch.float32)


def split_number(values_C: Tensor, bits: int) -> Tensor:
    """Write float64 numbers as sums of numbers of so many bits, [C, T]."""
    parts = []
    for _ in range(_NUM_TERMS):
        parts.append(round_bits(values_C.float(), bits))
        values_C = values_C - parts[-1].double()
    return torch.stack(parts, dim=1)


def _check_shape(vectors: Vectors, name: str) -> None:
    if vectors.ndim != 2:
        raise MetaXLMError(
            f"{name}: vectors stand in rows, but the shape is {tuple(vectors.shape)}; choose one "
            f"layer"
        )
    is_float = (
        vectors.is_floating_point()
        if isinstance(vectors, Tensor)
        else np.issubdtype(vectors.dtype, np.floating)
    )
    if not is_float:
        raise MetaXLMError(f"{name}: vectors are floats, but these are {vectors.dtype}")
    if len(vectors) == 0:
        raise MetaXLMError(f"{name}: no vectors")


def _make_resident(vectors: Vectors, device: torch.device) -> Vectors:
    if device.type != "cuda":
        return vectors
    num_bytes = vectors.nbytes
    if num_bytes > _RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]:
        return vectors
    if isinstance(vectors, Tensor):
        return vectors.to(device)
    return torch.from_numpy(np.array(vectors)).to(device)
