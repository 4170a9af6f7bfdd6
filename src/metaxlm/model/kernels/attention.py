"""Self-attention of a batch of blocks, with dropout on its weights, forward and backward.

The input is the fused projection [N, 3 * H * K] of blocks stored one after another, padded to one
length or not, with their starts and lengths; the output is [N, H * K], with zeros after the last
block. A query attends to the real tokens of its own block. The weights, [L, L] per head, are never
stored: the backward pass computes them again from the log-sum-exp. Sums have a fixed order, so that
the same input gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from metaxlm.model.kernels.common import is_pair_kept, make_keys, sum_rows, threshold

_LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Tiles:
    """How a kernel cuts its work: queries and keys in a tile, warps, stages of the pipeline."""

    queries: int
    keys: int
    warps: int
    stages: int


# The fastest of those tried on an H200 with heads of 64, at 512 and at 128 tokens.
FORWARD = Tiles(64, 64, 4, 3)
QUERIES = Tiles(64, 64, 4, 3)
KEYS = Tiles(32, 64, 4, 2)


@triton.jit
def _load_bias(BIAS, head, queries, keys, L):
    """Return the biases, for base 2, of a tile of queries and keys."""
    inside = (queries < L) & (keys < L)
    return tl.load(BIAS + head * (2 * L - 1) + L - 1 + keys - queries, inside, 0.0)


@triton.jit
def _forward(
    QKV, OUT, LSE, ROW_KEYS, COLUMN_KEYS, STARTS, LENGTHS, BIAS, SEED, salt,
    L, scale, limit, keep_scale,
    H: tl.constexpr, K: tl.constexpr, DROPOUT: tl.constexpr, BIASED: tl.constexpr,
    BQ: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    block_head = tl.program_id(1)
    block, head = block_head // H, block_head % H
    length = tl.load(LENGTHS + block)
    first = tl.load(STARTS + block).to(tl.int64)
    room = tl.load(STARTS + block + 1) - first
    stride = 3 * H * K
    base = QKV + first * stride + head * K
    queries = tl.program_id(0) * BQ + tl.arange(0, BQ)
    columns = tl.arange(0, BK)
    ks = tl.arange(0, K)
    q = tl.load(base + queries[:, None] * stride + ks[None, :], queries[:, None] < room, 0.0)
    if DROPOUT:
        seed = (tl.load(SEED) + salt).to(tl.uint32)
        row_keys = make_keys(seed, block_head * L + queries)
        tl.store(ROW_KEYS + block_head * L + queries, row_keys, queries < room)
    peak = tl.full([BQ], float("-inf"), tl.float32)
    total = tl.zeros([BQ], tl.float32)
    mixed = tl.zeros([BQ, K], tl.float32)
    # A tile beyond the block's rows has nothing to do.
    stop = tl.where(tl.program_id(0) * BQ < room, length, 0)
    for start in range(0, stop, BK):
        keys = start + columns
        place = keys[None, :] * stride + ks[:, None]
        k = tl.load(base + H * K + place, keys[None, :] < length, 0.0)
        closed = tl.where(keys < length, 0.0, float("-inf"))
        s = tl.dot(q, k) * scale + closed[None, :]
        if BIASED:
            s += _load_bias(BIAS, head, queries[:, None], keys[None, :], L)
        new_peak = tl.maximum(peak, tl.max(s, 1))
        p = tl.math.exp2(s - new_peak[:, None])
        shrink = tl.math.exp2(peak - new_peak)
        total = total * shrink + tl.sum(p, 1)
        if DROPOUT:
            column_keys = tl.load(COLUMN_KEYS + keys, keys < L, 0)
            keep = is_pair_kept(row_keys[:, None], column_keys[None, :], limit)
            p = tl.where(keep, p, 0.0)
        v = tl.load(
            base + 2 * H * K + keys[:, None] * stride + ks[None, :], keys[:, None] < length, 0.0
        )
        mixed = tl.dot(p.to(v.dtype), v, mixed * shrink[:, None])
        peak = new_peak
    out = mixed * (keep_scale / total)[:, None]
    target = OUT + (first + queries[:, None]) * (H * K) + head * K + ks[None, :]
    tl.store(target, out.to(OUT.dtype.element_ty), queries[:, None] < room)
    tl.store(LSE + block_head * L + queries, peak + tl.math.log2(total), queries < room)


@triton.jit
def _backward_queries(
    QKV, OUT, LSE, ROW_KEYS, COLUMN_KEYS, STARTS, LENGTHS, BIAS, D_OUT, D_QKV, DELTA, SUMS, D_BIAS,
    L, scale, limit, keep_scale,
    H: tl.constexpr, K: tl.constexpr, DROPOUT: tl.constexpr, BIASED: tl.constexpr,
    BQ: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    block_head = tl.program_id(1)
    block, head = block_head // H, block_head % H
    length = tl.load(LENGTHS + block)
    first = tl.load(STARTS + block).to(tl.int64)
    room = tl.load(STARTS + block + 1) - first
    stride = 3 * H * K
    base = QKV + first * stride + head * K
    queries = tl.program_id(0) * BQ + tl.arange(0, BQ)
    columns = tl.arange(0, BK)
    ks = tl.arange(0, K)
    inside = queries[:, None] < room
    narrow = (first + queries[:, None]) * (H * K) + head * K + ks[None, :]
    q = tl.load(base + queries[:, None] * stride + ks[None, :], inside, 0.0)
    d_out = tl.load(D_OUT + narrow, inside, 0.0)
    out = tl.load(OUT + narrow, inside, 0.0)
    delta = tl.sum(d_out.to(tl.float32) * out.to(tl.float32), 1) / keep_scale
    lse = tl.load(LSE + block_head * L + queries, queries < room, 0.0)
    tl.store(DELTA + block_head * L + queries, delta, queries < room)
    if DROPOUT:
        row_keys = tl.load(ROW_KEYS + block_head * L + queries, queries < room, 0)
    d_q = tl.zeros([BQ, K], tl.float32)
    if BIASED:
        rows = tl.arange(0, BQ)
        tile_head = (block * tl.num_programs(0) + tl.program_id(0)) * H + head
        d_bias = tile_head * (tl.cdiv(L, BK) + 1) * BK
        above = tl.zeros([BK], tl.float32)
    stop = tl.where(tl.program_id(0) * BQ < room, length, 0)
    for start in range(0, stop, BK):
        keys = start + columns
        place = keys[None, :] * stride + ks[:, None]
        k = tl.load(base + H * K + place, keys[None, :] < length, 0.0)
        v = tl.load(base + 2 * H * K + place, keys[None, :] < length, 0.0)
        # Keys beyond the length must not count even as zeros: a row whose real scores are all far
        # below zero has a weight for them that overflows.
        closed = tl.where(keys < length, 0.0, float("-inf"))
        s = tl.dot(q, k) * scale + closed[None, :]
        if BIASED:
            s += _load_bias(BIAS, head, queries[:, None], keys[None, :], L)
        p = tl.math.exp2(s - lse[:, None])
        d_p = tl.dot(d_out, v)
        if DROPOUT:
            column_keys = tl.load(COLUMN_KEYS + keys, keys < L, 0)
            keep = is_pair_kept(row_keys[:, None], column_keys[None, :], limit)
            d_p = tl.where(keep, d_p, 0.0)
        d_s = p * (d_p - delta[:, None])
        if BIASED:
            # Rotate each row, so that a column has the values of one or two distances.
            turned = tl.gather(d_s, (columns[None, :] + rows[:, None]) % BK, 1)
            is_next = columns[None, :] + rows[:, None] < BK
            below = tl.sum(tl.where(is_next, 0.0, turned), 0)
            tl.store(D_BIAS + d_bias + start + columns, (above + below) * keep_scale)
            above = tl.sum(tl.where(is_next, turned, 0.0), 0)
        d_q = tl.dot(d_s.to(k.dtype), tl.trans(k), d_q)
    if BIASED:
        last = tl.cdiv(stop, BK) * BK
        tl.store(D_BIAS + d_bias + last + columns, above * keep_scale)
    d_q = d_q * (scale / 1.4426950408889634 * keep_scale)
    target = D_QKV + first * stride + head * K
    tl.store(
        target + queries[:, None] * stride + ks[None, :], d_q.to(D_QKV.dtype.element_ty), inside
    )
    tile = block * tl.num_programs(0) + tl.program_id(0)
    tl.store(SUMS + tile * (H * K) + head * K + ks, tl.sum(d_q, 0))


@triton.jit
def _backward_keys(
    QKV, LSE, ROW_KEYS, COLUMN_KEYS, STARTS, LENGTHS, BIAS, D_OUT, D_QKV, DELTA, SUMS,
    L, scale, limit, keep_scale,
    H: tl.constexpr, K: tl.constexpr, DROPOUT: tl.constexpr, BIASED: tl.constexpr,
    BQ: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    block_head = tl.program_id(1)
    block, head = block_head // H, block_head % H
    length = tl.load(LENGTHS + block)
    first = tl.load(STARTS + block).to(tl.int64)
    room = tl.load(STARTS + block + 1) - first
    stride = 3 * H * K
    base = QKV + first * stride + head * K
    keys = tl.program_id(0) * BK + tl.arange(0, BK)
    rows = tl.arange(0, BQ)
    ks = tl.arange(0, K)
    real = keys[:, None] < length
    wide = keys[:, None] * stride + ks[None, :]
    k = tl.load(base + H * K + wide, real, 0.0)
    v = tl.load(base + 2 * H * K + wide, real, 0.0)
    if DROPOUT:
        column_keys = tl.load(COLUMN_KEYS + keys, keys < L, 0)
    closed = tl.where(keys < length, 0.0, float("-inf"))
    d_k = tl.zeros([BK, K], tl.float32)
    d_v = tl.zeros([BK, K], tl.float32)
    # Queries beyond the length are padding: nothing flows back from there.
    stop = tl.where(tl.program_id(0) * BK < length, length, 0)
    for start in range(0, stop, BQ):
        queries = start + rows
        inside = queries[None, :] < length
        q = tl.load(base + queries[None, :] * stride + ks[:, None], inside, 0.0)
        narrow = (first + queries[None, :]) * (H * K) + head * K + ks[:, None]
        d_out = tl.load(D_OUT + narrow, inside, 0.0)
        lse = tl.load(LSE + block_head * L + queries, queries < length, float("inf"))
        delta = tl.load(DELTA + block_head * L + queries, queries < length, 0.0)
        s = tl.dot(k, q) * scale + closed[:, None]
        if BIASED:
            s += _load_bias(BIAS, head, queries[None, :], keys[:, None], L)
        p = tl.math.exp2(s - lse[None, :])
        d_p = tl.dot(v, d_out)
        kept = p
        if DROPOUT:
            row_keys = tl.load(ROW_KEYS + block_head * L + queries, queries < length, 0)
            keep = is_pair_kept(row_keys[None, :], column_keys[:, None], limit)
            kept = tl.where(keep, p, 0.0)
            d_p = tl.where(keep, d_p, 0.0)
        d_v = tl.dot(kept.to(v.dtype), tl.trans(d_out), d_v)
        d_s = (p * (d_p - delta[None, :])).to(k.dtype)
        d_k = tl.dot(d_s, tl.trans(q), d_k)
    d_k = tl.where(real, d_k * (scale / 1.4426950408889634 * keep_scale), 0.0)
    d_v = tl.where(real, d_v * keep_scale, 0.0)
    target = D_QKV + first * stride + head * K + wide
    kind = D_QKV.dtype.element_ty
    tl.store(target + H * K, d_k.to(kind), keys[:, None] < room)
    tl.store(target + 2 * H * K, d_v.to(kind), keys[:, None] < room)
    tile = block * tl.num_programs(0) + tl.program_id(0)
    place = SUMS + tile * (2 * H * K) + head * K + ks
    tl.store(place, tl.sum(d_k, 0))
    tl.store(place + H * K, tl.sum(d_v, 0))


@dataclass(frozen=True)
class Shape:
    """What attention must know beside its tensors."""

    blocks: int
    length: int
    """Of the longest block, padding included."""
    heads: int
    head_size: int
    dropout: float
    is_packed: bool = False
    """Whether there may be rows after the last block."""

    @property
    def arguments(self) -> tuple[int, float, int, float]:
        """Length, softmax scale for base 2, hash limit and inverse keep probability."""
        scale = self.head_size**-0.5 * _LOG2_E
        return self.length, scale, threshold(self.dropout), 1.0 / (1.0 - self.dropout)

    def grid(self, tile: int) -> tuple[int, int]:
        """Programs: tiles of a block, and blocks times heads."""
        return triton.cdiv(self.length, tile), self.blocks * self.heads

    def make_rows(self, like_N: Tensor, width: int) -> Tensor:
        """Return rows to write; those that no block owns are zero."""
        return (like_N.new_zeros if self.is_packed else like_N.new_empty)(len(like_N), width)


@dataclass(frozen=True)
class Traces:
    """What the backward pass needs beside inputs and output."""

    lse: Tensor
    """[B * H, L] the rows' log-sum-exp, base 2."""
    row_keys: Tensor
    """[B * H, L] dropout's keys of the queries."""
    column_keys_L: Tensor
    """Dropout's keys of the keys' places."""


@triton.jit
def _column_keys(SEED, KEYS, L, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    seed = tl.load(SEED).to(tl.uint32)
    tl.store(KEYS + columns, make_keys(seed ^ 0x5BD1E995, columns), columns < L)


def make_column_keys(seed: Tensor, length: int) -> Tensor:
    """Return dropout's keys of the places in a block: one table serves all layers of a pass."""
    keys_L = torch.empty(length, dtype=torch.int32, device=seed.device)
    _column_keys[(1,)](seed, keys_L, length, BLOCK=triton.next_power_of_2(length))
    return keys_L


def attend(
    qkv_N3D: Tensor,
    starts_B1: Tensor,
    lengths_B: Tensor,
    column_keys_L: Tensor,
    seed: Tensor,
    salt: int,
    shape: Shape,
    bias_HW: Tensor | None = None,
) -> tuple[Tensor, Traces]:
    """Return the mixed values [N, D], and what the backward pass needs.

    `bias_HW` is added to the scores, by head and distance (key minus query, from 1 - L to L - 1).
    """
    out_ND = shape.make_rows(qkv_N3D, shape.heads * shape.head_size)
    size = shape.blocks * shape.heads, shape.length
    lse = torch.empty(size, dtype=torch.float32, device=qkv_N3D.device)
    row_keys = torch.empty(size, dtype=torch.int32, device=qkv_N3D.device)
    tiles = FORWARD
    scaled = lse if bias_HW is None else bias_HW.float() * _LOG2_E
    _forward[shape.grid(tiles.queries)](
        qkv_N3D, out_ND, lse, row_keys, column_keys_L, starts_B1, lengths_B, scaled, seed,
        salt, *shape.arguments,
        H=shape.heads, K=shape.head_size, DROPOUT=shape.dropout > 0, BIASED=bias_HW is not None,
        BQ=tiles.queries, BK=tiles.keys, num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return out_ND, Traces(lse, row_keys, column_keys_L)


def attend_backward(
    d_out_ND: Tensor,
    qkv_N3D: Tensor,
    out_ND: Tensor,
    traces: Traces,
    starts_B1: Tensor,
    lengths_B: Tensor,
    shape: Shape,
    bias_HW: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of the fused projection, [N, 3 D], its sum [3 D], and of the bias."""
    lse, keys = traces.lse, (traces.row_keys, traces.column_keys_L)
    d_qkv = shape.make_rows(qkv_N3D, qkv_N3D.shape[1])
    delta = torch.empty_like(lse)
    sizes = {"H": shape.heads, "K": shape.head_size, "DROPOUT": shape.dropout > 0}
    sizes["BIASED"] = bias_HW is not None
    width = shape.heads * shape.head_size
    tiles, grid = QUERIES, shape.grid(QUERIES.queries)
    query_sums = lse.new_empty(shape.blocks * grid[0], width)
    scaled = lse if bias_HW is None else bias_HW.float() * _LOG2_E
    d_bias = lse
    if bias_HW is not None:
        assert tiles.queries == tiles.keys, "a rotated tile is square"
        room = (triton.cdiv(shape.length, tiles.keys) + 1) * tiles.keys
        d_bias = lse.new_zeros(shape.blocks, grid[0] * shape.heads * room)
    _backward_queries[grid](
        qkv_N3D, out_ND, lse, *keys, starts_B1, lengths_B, scaled, d_out_ND, d_qkv, delta,
        query_sums, d_bias,
        *shape.arguments, **sizes,
        BQ=tiles.queries, BK=tiles.keys, num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    tiles, grid = KEYS, shape.grid(KEYS.keys)
    key_sums = lse.new_empty(shape.blocks * grid[0], 2 * width)
    _backward_keys[grid](
        qkv_N3D, lse, *keys, starts_B1, lengths_B, scaled, d_out_ND, d_qkv, delta, key_sums,
        *shape.arguments, **sizes,
        BQ=tiles.queries, BK=tiles.keys, num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    sums = torch.cat([sum_rows(query_sums), sum_rows(key_sums)])
    if bias_HW is None:
        return d_qkv, sums, None
    by_tile = sum_rows(d_bias).view(-1, shape.heads, room)
    return d_qkv, sums, _join_distances(by_tile, shape.length, QUERIES.queries)


def _join_distances(sums_THR: Tensor, length: int, size: int) -> Tensor:
    """Add the sums of all tiles of queries; column x of tile t is the distance x - (t + 1) size."""
    num_tiles, num_heads, room = sums_THR.shape
    wide_HX = sums_THR.new_zeros(num_heads, (num_tiles + 1) * size + room)
    for tile, sums_HR in enumerate(sums_THR):
        first = (num_tiles - tile) * size
        wide_HX[:, first : first + room] += sums_HR
    zero = (num_tiles + 1) * size  # the column of distance 0
    return wide_HX[:, zero - length + 1 : zero + length].contiguous()
