"""Rotary positions: rotate queries and keys of the fused projection in place.

The gradients are rotated back where attention stores them.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _rotate(QKV, PLACES, TURNS, H: tl.constexpr, K: tl.constexpr, BH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    half: tl.constexpr = K // 2
    heads = tl.arange(0, BH)[:, None]  # those of the queries, then those of the keys
    pairs = tl.arange(0, half)[None, :]
    turn = TURNS + tl.load(PLACES + row) * K + pairs
    cos, sin = tl.load(turn), tl.load(turn + half)
    place = QKV + row * (3 * H * K) + heads * K + pairs
    inside = heads < 2 * H
    first = tl.load(place, inside, 0.0).to(tl.float32)
    second = tl.load(place + half, inside, 0.0).to(tl.float32)
    kind = QKV.dtype.element_ty
    tl.store(place, (first * cos - second * sin).to(kind), inside)
    tl.store(place + half, (second * cos + first * sin).to(kind), inside)


def rotate(qkv_N3D: Tensor, places_N: Tensor, turns_LK: Tensor, heads: int) -> None:
    """Rotate queries and keys in place by the angles of each row's place in its block.

    `turns_LK` is that of `encoder.make_turns`.
    """
    size = turns_LK.shape[1]
    _rotate[(len(qkv_N3D),)](
        qkv_N3D, places_N, turns_LK,
        H=heads, K=size, BH=triton.next_power_of_2(2 * heads), num_warps=2,
    )  # fmt: skip
