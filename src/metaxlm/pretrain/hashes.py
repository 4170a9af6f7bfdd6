"""Random numbers on a device, as hashes of counters.

Comes in: a key and counters, as whole numbers in tensors. Goes out: whole numbers that look random.
There is no state, every device computes the same, and everything can be part of a CUDA graph. The
hash is SplitMix64 (Steele, Lea and Flood 2014) in the wrapping arithmetic of int64.
"""

from __future__ import annotations

import torch
from torch import Tensor

# The algorithm's constants, as signed numbers.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def open_streams(key: int | Tensor, counters_B: Tensor, count: int) -> Tensor:
    """Return `count` unrelated streams of random numbers for each counter [B, count].

    A stream is a random number itself, of which each bit is as good as the others.
    """
    purposes = torch.arange(count, device=counters_B.device)
    return _mix(_mix(counters_B * _GOLDEN + key)[:, None] + purposes)


def draw(streams: Tensor, numbers: Tensor, bits: int) -> Tensor:
    """Return the n-th number of streams: whole, at least 0 and below 2^bits."""
    return cut_bits(_mix(streams + numbers * _GOLDEN), bits)


def cut_bits(x: Tensor, bits: int) -> Tensor:
    """Return the highest bits of random numbers as whole numbers from 0 on."""
    return _shift(x, 64 - bits)


def _mix(x: Tensor) -> Tensor:
    """Scatter the bits of whole numbers, one to one."""
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift to the right with zeros, as for unsigned numbers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
