"""Sums over rows in a fixed order, and dropout without a stored mask, for the other kernels.

Kernels that pass over a tensor leave one partial sum for each tile. Adding those up by an atomic
would be simpler, and would add them in another order each time. For dropout, a hash of the seed and
the position decides: forward and backward compute the same hash, so a step is bit-identical when it
is repeated.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _sum_rows(PARTIAL, OUT, ROWS, WIDTH, BR: tl.constexpr, BC: tl.constexpr):
    columns = tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros([BR, BC], tl.float32)
    for start in range(0, ROWS, BR):
        rows = start + tl.arange(0, BR)
        inside = (rows[:, None] < ROWS) & (columns[None, :] < WIDTH)
        total += tl.load(PARTIAL + rows[:, None] * WIDTH + columns[None, :], inside, 0.0)
    tl.store(OUT + columns, tl.sum(total, 0), columns < WIDTH)


def sum_rows(partial_RW: Tensor) -> Tensor:
    """Return the sum of float32 rows, in a fixed order."""
    rows, width = partial_RW.shape
    out = torch.empty(width, dtype=torch.float32, device=partial_RW.device)
    _sum_rows[(triton.cdiv(width, 16),)](partial_RW, out, rows, width, BR=256, BC=16, num_warps=4)
    return out


def threshold(probability: float) -> int:
    """Return the hash value, as a signed 32-bit number, below which a value is dropped."""
    return round(probability * 2**32) - 2**31


@triton.jit
def hash32(x):
    """Mix 32 bits so that every input bit moves every output bit."""
    x = x.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def is_kept(seed, place, limit):
    """Return whether to keep each position of a tensor."""
    mixed = hash32(hash32(place) ^ seed.to(tl.uint32))
    return mixed.to(tl.int32, bitcast=True) >= limit


@triton.jit
def is_pair_kept(row_keys, column_keys, limit):
    """Return whether to keep each pair of a row and a column; the keys are odd hashes.

    This is one multiplication in attention's inner loop: the product of a random number and an odd
    random number is uniform, and pairs differ in one of the two.
    """
    return (row_keys * column_keys).to(tl.int32, bitcast=True) >= limit


@triton.jit
def make_keys(seed, numbers):
    """Return odd hashes of rows or columns for `is_pair_kept`."""
    return (hash32(hash32(numbers) ^ seed) | 1).to(tl.int32, bitcast=True)
