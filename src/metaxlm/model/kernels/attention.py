"""Self-attention of a batch of blocks, with dropout on its weights, forward and backward.

The input is the fused projection [N, 3 * H * K] of blocks stored one after another, padded to one
length or not, with their starts and lengths; the output is [N, H * K], with zeros after the last
block. A query attends to the real tokens of its own block. The weights, [L, L] per head, are never
stored: the backward pass computes them again from the log-sum-exp. Sums have a fixed order, so that
the same input gives the same bits. A bias by relative position may be added to the scores, and
attention may be limited to a window around each query.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from metaxlm.model.kernels.common import is_pair_kept, make_keys, sum_rows, threshold

_LOG2_E = 1.4426950408889634
_TILE = 64  # the largest tile


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
BIAS = Tiles(64, 64, 4, 2)
_BIAS_PARTS = 64  # programs that share the sums of the bias, for each head and diagonal
FAR = tl.constexpr(128)  # the bias is the same from this distance on


@triton.jit
def _is_near(gap, BQ: tl.constexpr, BK: tl.constexpr):
    """Return whether a tile has distances below FAR; `gap` is from its first query to first key."""
    return (gap < FAR + BQ - 1) & (gap > 1 - FAR - BK)


@triton.jit
def _forward(
    QKV, OUT, LSE, ROW_KEYS, COLUMN_KEYS, STARTS, LENGTHS, BIAS, SEED, salt,
    L, P, scale, limit, keep_scale,
    H: tl.constexpr, K: tl.constexpr, DROPOUT: tl.constexpr, BIASED: tl.constexpr,
    WINDOW: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
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
    # With a window, a row may have no key: infinity minus infinity would not be a number.
    peak = tl.full([BQ], -1e30 if WINDOW else float("-inf"), tl.float32)
    total = tl.zeros([BQ], tl.float32)
    mixed = tl.zeros([BQ, K], tl.float32)
    first_query = tl.program_id(0) * BQ
    # A tile beyond the block's rows has nothing to do.
    stop = tl.where(first_query < room, length, 0)
    begin = 0
    if WINDOW:
        begin = tl.maximum(first_query - WINDOW, 0) // BK * BK
        stop = tl.minimum(stop, first_query + BQ + WINDOW)
    table = BIAS + head * 2 * P + P
    for start in range(begin, stop, BK):
        keys = start + columns
        place = keys[None, :] * stride + ks[:, None]
        k = tl.load(base + H * K + place, keys[None, :] < length, 0.0)
        closed = tl.where(keys < length, 0.0, float("-inf"))
        s = tl.dot(q, k) * scale + closed[None, :]
        if BIASED:
            if _is_near(start - first_query, BQ, BK):
                s += tl.load(table + keys[None, :] - queries[:, None])
            else:
                s += tl.load(table + start - first_query)
        if WINDOW:
            gap = keys[None, :] - queries[:, None]
            s = tl.where((gap <= WINDOW) & (gap >= -WINDOW), s, float("-inf"))
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
    if WINDOW:  # padding may have no key; its output is 0
        total = tl.where(total > 0, total, float("inf"))
    out = mixed * (keep_scale / total)[:, None]
    target = OUT + (first + queries[:, None]) * (H * K) + head * K + ks[None, :]
    tl.store(target, out.to(OUT.dtype.element_ty), queries[:, None] < room)
    tl.store(LSE + block_head * L + queries, peak + tl.math.log2(total), queries < room)


@triton.jit
def _backward_queries(
    QKV, OUT, LSE, ROW_KEYS, COLUMN_KEYS, STARTS, LENGTHS, BIAS, D_OUT, D_QKV, DELTA, SUMS, D_FAR,
    L, P, scale, limit, keep_scale,
    H: tl.constexpr, K: tl.constexpr, DROPOUT: tl.constexpr, BIASED: tl.constexpr,
    WINDOW: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
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
    first_query = tl.program_id(0) * BQ
    stop = tl.where(first_query < room, length, 0)
    begin = 0
    if WINDOW:
        begin = tl.maximum(first_query - WINDOW, 0) // BK * BK
        stop = tl.minimum(stop, first_query + BQ + WINDOW)
    table = BIAS + head * 2 * P + P
    before = tl.zeros([BQ], tl.float32)
    after = tl.zeros([BQ], tl.float32)
    for start in range(begin, stop, BK):
        keys = start + columns
        place = keys[None, :] * stride + ks[:, None]
        k = tl.load(base + H * K + place, keys[None, :] < length, 0.0)
        v = tl.load(base + 2 * H * K + place, keys[None, :] < length, 0.0)
        # Keys beyond the length must not count even as zeros: a row whose real scores are all far
        # below zero has a weight for them that overflows.
        closed = tl.where(keys < length, 0.0, float("-inf"))
        s = tl.dot(q, k) * scale + closed[None, :]
        if BIASED:
            is_near = _is_near(start - first_query, BQ, BK)
            if is_near:
                s += tl.load(table + keys[None, :] - queries[:, None])
            else:
                s += tl.load(table + start - first_query)
        if WINDOW:
            gap = keys[None, :] - queries[:, None]
            s = tl.where((gap <= WINDOW) & (gap >= -WINDOW), s, float("-inf"))
        p = tl.math.exp2(s - lse[:, None])
        d_p = tl.dot(d_out, v)
        if DROPOUT:
            column_keys = tl.load(COLUMN_KEYS + keys, keys < L, 0)
            keep = is_pair_kept(row_keys[:, None], column_keys[None, :], limit)
            d_p = tl.where(keep, d_p, 0.0)
        d_s = p * (d_p - delta[:, None])
        if BIASED:  # noqa: SIM102 (one is known at compile time)
            if not is_near:
                sums = tl.sum(d_s, 1)
                before += tl.where(start < first_query, sums, 0.0)
                after += tl.where(start < first_query, 0.0, sums)
        d_q = tl.dot(d_s.to(k.dtype), tl.trans(k), d_q)
    d_q = d_q * (scale / 1.4426950408889634 * keep_scale)
    target = D_QKV + first * stride + head * K
    tl.store(
        target + queries[:, None] * stride + ks[None, :], d_q.to(D_QKV.dtype.element_ty), inside
    )
    tile = block * tl.num_programs(0) + tl.program_id(0)
    tl.store(SUMS + tile * (H * K) + head * K + ks, tl.sum(d_q, 0))
    if BIASED:
        tl.store(D_FAR + (tile * H + head) * 2, tl.sum(before, 0) * keep_scale)
        tl.store(D_FAR + (tile * H + head) * 2 + 1, tl.sum(after, 0) * keep_scale)


@triton.jit
def _backward_keys(
    QKV, LSE, ROW_KEYS, COLUMN_KEYS, STARTS, LENGTHS, BIAS, D_OUT, D_QKV, DELTA, SUMS,
    L, P, scale, limit, keep_scale,
    H: tl.constexpr, K: tl.constexpr, DROPOUT: tl.constexpr, BIASED: tl.constexpr,
    WINDOW: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
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
    first_key = tl.program_id(0) * BK
    # Queries beyond the length are padding: nothing flows back from there.
    stop = tl.where(first_key < length, length, 0)
    begin = 0
    if WINDOW:
        begin = tl.maximum(first_key - WINDOW, 0) // BQ * BQ
        stop = tl.minimum(stop, first_key + BK + WINDOW)
    table = BIAS + head * 2 * P + P
    for start in range(begin, stop, BQ):
        queries = start + rows
        inside = queries[None, :] < length
        q = tl.load(base + queries[None, :] * stride + ks[:, None], inside, 0.0)
        narrow = (first + queries[None, :]) * (H * K) + head * K + ks[:, None]
        d_out = tl.load(D_OUT + narrow, inside, 0.0)
        lse = tl.load(LSE + block_head * L + queries, queries < length, float("inf"))
        delta = tl.load(DELTA + block_head * L + queries, queries < length, 0.0)
        s = tl.dot(k, q) * scale + closed[:, None]
        if BIASED:
            if _is_near(first_key - start, BQ, BK):
                s += tl.load(table + keys[:, None] - queries[None, :])
            else:
                s += tl.load(table + first_key - start)
        if WINDOW:
            gap = keys[:, None] - queries[None, :]
            s = tl.where((gap <= WINDOW) & (gap >= -WINDOW), s, float("-inf"))
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


@triton.jit
def _backward_bias(
    QKV, LSE, ROW_KEYS, COLUMN_KEYS, STARTS, LENGTHS, BIAS, D_OUT, DELTA, SUMS,
    B, L, P, scale, limit, keep_scale,
    H: tl.constexpr, K: tl.constexpr, DROPOUT: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of the scores along a diagonal of tiles, by distance.

    All tiles of a diagonal have the same distances, so that one tile can hold their sum.
    """
    head, diagonal = tl.program_id(1), tl.program_id(2) - tl.num_programs(2) // 2
    stride = 3 * H * K
    rows, columns, ks = tl.arange(0, BQ), tl.arange(0, BK), tl.arange(0, K)
    tiles = tl.cdiv(L, BQ)
    bias = tl.load(BIAS + head * 2 * P + P + diagonal * BK + columns[None, :] - rows[:, None])
    total = tl.zeros([BQ, BK], tl.float32)
    for item in range(tl.program_id(0), B * tiles, tl.num_programs(0)):
        block = item // tiles
        queries = item % tiles * BQ + rows
        keys = (item % tiles + diagonal) * BK + columns
        length = tl.load(LENGTHS + block)
        first = tl.load(STARTS + block).to(tl.int64)
        base = QKV + first * stride + head * K
        is_query = queries < length
        is_key = (keys >= 0) & (keys < length)
        q = tl.load(base + queries[:, None] * stride + ks[None, :], is_query[:, None], 0.0)
        place = keys[None, :] * stride + ks[:, None]
        k = tl.load(base + H * K + place, is_key[None, :], 0.0)
        v = tl.load(base + 2 * H * K + place, is_key[None, :], 0.0)
        narrow = (first + queries[:, None]) * (H * K) + head * K + ks[None, :]
        d_out = tl.load(D_OUT + narrow, is_query[:, None], 0.0)
        traces = (block * H + head) * L + queries
        lse = tl.load(LSE + traces, is_query, float("inf"))
        delta = tl.load(DELTA + traces, is_query, 0.0)
        closed = tl.where(is_key, 0.0, float("-inf"))
        p = tl.math.exp2(tl.dot(q, k) * scale + bias + closed[None, :] - lse[:, None])
        d_p = tl.dot(d_out, v)
        if DROPOUT:
            row_keys = tl.load(ROW_KEYS + traces, is_query, 0)
            column_keys = tl.load(COLUMN_KEYS + keys, is_key, 0)
            keep = is_pair_kept(row_keys[:, None], column_keys[None, :], limit)
            d_p = tl.where(keep, d_p, 0.0)
        total += p * (d_p - delta[:, None])
    # Rotate each row, so that column x has the distances x and x - BK from the diagonal.
    turned = tl.gather(total, (columns[None, :] + rows[:, None]) % BK, 1)
    is_next = columns[None, :] + rows[:, None] < BK
    place = (tl.program_id(0) * H + head) * tl.num_programs(2) + tl.program_id(2)
    target = SUMS + place * 2 * BK + columns
    tl.store(target, tl.sum(tl.where(is_next, 0.0, turned), 0) * keep_scale)
    tl.store(target + BK, tl.sum(tl.where(is_next, turned, 0.0), 0) * keep_scale)


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
    window: int = 0
    """Largest distance between a query and its keys; 0 for all keys."""

    @property
    def room(self) -> int:
        """Length, rounded up to whole tiles."""
        return triton.cdiv(self.length, _TILE) * _TILE

    @property
    def arguments(self) -> tuple[int, int, float, int, float]:
        """Length, room, softmax scale for base 2, hash limit and inverse keep probability."""
        scale = self.head_size**-0.5 * _LOG2_E
        keep_scale = 1.0 / (1.0 - self.dropout)
        return self.length, self.room, scale, threshold(self.dropout), keep_scale

    def pad_bias(self, bias_HW: Tensor) -> Tensor:
        """Return biases for base 2, [H, 2 * room], where tiles may load beyond the length."""
        before, after = self.room - self.length + 1, self.room - self.length
        return F.pad(bias_HW.float() * _LOG2_E, (before, after))

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
    From FAR on it must not change.
    """
    out_ND = shape.make_rows(qkv_N3D, shape.heads * shape.head_size)
    size = shape.blocks * shape.heads, shape.length
    lse = torch.empty(size, dtype=torch.float32, device=qkv_N3D.device)
    row_keys = torch.empty(size, dtype=torch.int32, device=qkv_N3D.device)
    tiles = FORWARD
    scaled = lse if bias_HW is None else shape.pad_bias(bias_HW)
    _forward[shape.grid(tiles.queries)](
        qkv_N3D, out_ND, lse, row_keys, column_keys_L, starts_B1, lengths_B, scaled, seed,
        salt, *shape.arguments,
        H=shape.heads, K=shape.head_size, DROPOUT=shape.dropout > 0, BIASED=bias_HW is not None,
        WINDOW=shape.window, BQ=tiles.queries, BK=tiles.keys, num_warps=tiles.warps,
        num_stages=tiles.stages,
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
    options = sizes | {"BIASED": bias_HW is not None, "WINDOW": shape.window}
    width = shape.heads * shape.head_size
    tiles, grid = QUERIES, shape.grid(QUERIES.queries)
    query_sums = lse.new_empty(shape.blocks * grid[0], width)
    scaled = lse if bias_HW is None else shape.pad_bias(bias_HW)
    d_far = lse.new_empty(shape.blocks * grid[0], shape.heads * 2)
    _backward_queries[grid](
        qkv_N3D, out_ND, lse, *keys, starts_B1, lengths_B, scaled, d_out_ND, d_qkv, delta,
        query_sums, d_far,
        *shape.arguments, **options,
        BQ=tiles.queries, BK=tiles.keys, num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    tiles, grid = KEYS, shape.grid(KEYS.keys)
    key_sums = lse.new_empty(shape.blocks * grid[0], 2 * width)
    _backward_keys[grid](
        qkv_N3D, lse, *keys, starts_B1, lengths_B, scaled, d_out_ND, d_qkv, delta, key_sums,
        *shape.arguments, **options,
        BQ=tiles.queries, BK=tiles.keys, num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    sums = torch.cat([sum_rows(query_sums), sum_rows(key_sums)])
    if bias_HW is None:
        return d_qkv, sums, None
    tiles = BIAS
    assert tiles.queries == tiles.keys == QUERIES.queries == QUERIES.keys, "both find the same near"
    reach = triton.cdiv(FAR.value - 1, tiles.keys)  # diagonals on each side with a distance < FAR
    diagonals = 2 * min(reach, triton.cdiv(shape.length, tiles.keys) - 1) + 1
    near = lse.new_empty(_BIAS_PARTS, shape.heads * diagonals * 2 * tiles.keys)
    _backward_bias[_BIAS_PARTS, shape.heads, diagonals](
        qkv_N3D, lse, *keys, starts_B1, lengths_B, scaled, d_out_ND, delta, near,
        shape.blocks, *shape.arguments, **sizes,
        BQ=tiles.queries, BK=tiles.keys, num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    near_HD2X = sum_rows(near).view(shape.heads, diagonals, 2, tiles.keys)
    d_bias = _join_distances(near_HD2X, shape.length)
    d_bias[:, [0, -1]] += sum_rows(d_far).view(-1, 2)
    return d_qkv, sums, d_bias


def _join_distances(sums_HD2X: Tensor, length: int) -> Tensor:
    """Return the sums by distance, [H, 2 L - 1], from those of the diagonals of tiles."""
    num_heads, diagonals, _, size = sums_HD2X.shape
    wide_HX = sums_HD2X.new_zeros(num_heads, (diagonals + 1) * size)
    for diagonal, sums_H2X in enumerate(sums_HD2X.unbind(1)):
        wide_HX[:, diagonal * size : (diagonal + 2) * size] += sums_H2X.flatten(1)
    reach = (diagonals + 1) // 2 * size  # the column of distance 0
    if reach >= length:
        return wide_HX[:, reach - length + 1 : reach + length].contiguous()
    return F.pad(wide_HX[:, 1:], (length - reach, length - reach))
