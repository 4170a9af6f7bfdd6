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
from typing import Self

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from metaxlm.model.kernels.common import is_pair_kept, make_keys, sum_rows, threshold

_LOG2_E = 1.4426950408889634
_TILE = 64  # keys in a tile of biases
_REACH = 3  # tiles between the diagonal and the first one beyond FAR


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
WHOLE = Tiles(32, 128, 4, 1)  # blocks of at most 128 tokens: one pass for all gradients
_BIAS_PARTS = 64  # programs that share the sums of the bias, for each head and diagonal
FAR = 128  # the bias is the same from this distance on


@triton.jit
def _load_bias(BIAS, gap, head, places, TILE: tl.constexpr, REACH: tl.constexpr):
    """Return the biases of a tile, and the one bias of a tile beyond REACH; the other is 0."""
    diagonal = tl.minimum(tl.maximum(gap // TILE, -REACH), REACH)
    tile = BIAS + (head * (2 * REACH + 1) + diagonal + REACH).to(tl.int64) * TILE * TILE
    is_near = (diagonal > -REACH) & (diagonal < REACH)
    far = tl.where(is_near, 0.0, tl.load(tile).to(tl.float32))
    return tl.load(tile + places, is_near, 0.0), far


@triton.jit
def _store_rotated(TARGET, rows, TURNS, places, inside, ROWS: tl.constexpr, K: tl.constexpr):
    """Rotate the gradients of rotated rows back by the angles of their places, and store them."""
    first, second = tl.split(tl.permute(tl.reshape(rows, [ROWS, 2, K // 2]), 0, 2, 1))
    pairs = tl.arange(0, K // 2)[None, :]
    turn = TURNS + places[:, None] * K + pairs
    cos = tl.load(turn, inside[:, None], 0.0)
    sin = tl.load(turn + K // 2, inside[:, None], 0.0)
    kind = TARGET.dtype.element_ty
    tl.store(TARGET + pairs, (first * cos + second * sin).to(kind), inside[:, None])
    tl.store(TARGET + K // 2 + pairs, (second * cos - first * sin).to(kind), inside[:, None])


@triton.jit
def _forward(
    QKV, OUT, LSE, ROW_KEYS, COLUMN_KEYS, STARTS, LENGTHS, BIAS, SEED, salt,
    L, scale, limit, keep_scale,
    H: tl.constexpr, K: tl.constexpr, DROPOUT: tl.constexpr, BIASED: tl.constexpr,
    REACH: tl.constexpr, WINDOW: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
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
    for start in range(begin, stop, BK):
        keys = start + columns
        place = keys[None, :] * stride + ks[:, None]
        k = tl.load(base + H * K + place, keys[None, :] < length, 0.0)
        closed = tl.where(keys < length, 0.0, float("-inf"))
        if BIASED:
            places = tl.arange(0, BQ)[:, None] * BK + columns[None, :]
            near, far = _load_bias(BIAS, start - first_query, head, places, BK, REACH)
            s = tl.dot(q, k) * scale + (closed + far)[None, :] + near
        else:
            s = tl.dot(q, k) * scale + closed[None, :]
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
    QKV, OUT, LSE, ROW_KEYS, COLUMN_KEYS, STARTS, LENGTHS, BIAS, D_OUT, D_QKV, DELTA, SUMS,
    D_FAR, D_S, TURNS, L, scale, limit, keep_scale,
    H: tl.constexpr, K: tl.constexpr, DROPOUT: tl.constexpr, BIASED: tl.constexpr,
    REACH: tl.constexpr, WINDOW: tl.constexpr, ROTARY: tl.constexpr,
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
    first_query = tl.program_id(0) * BQ
    stop = tl.where(first_query < room, length, 0)
    begin = 0
    if WINDOW:
        begin = tl.maximum(first_query - WINDOW, 0) // BK * BK
        stop = tl.minimum(stop, first_query + BQ + WINDOW)
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
        if BIASED:
            places = tl.arange(0, BQ)[:, None] * BK + columns[None, :]
            near, far = _load_bias(BIAS, start - first_query, head, places, BK, REACH)
            s = tl.dot(q, k) * scale + (closed + far)[None, :] + near
        else:
            s = tl.dot(q, k) * scale + closed[None, :]
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
        if BIASED:
            sums = tl.sum(d_s, 1)
            before += tl.where(start <= first_query - REACH * BK, sums, 0.0)
            after += tl.where(start >= first_query + REACH * BK, sums, 0.0)
            diagonal = (start - first_query) // BK + REACH - 1
            is_near = (diagonal >= 0) & (diagonal < 2 * REACH - 1)
            tile = block_head * tl.num_programs(0) + tl.program_id(0)
            place = (tile * (2 * REACH - 1) + diagonal).to(tl.int64) * (BQ * BK)
            place += tl.arange(0, BQ)[:, None] * BK + columns[None, :]
            tl.store(D_S + place, d_s.to(D_S.dtype.element_ty), is_near)
        d_q = tl.dot(d_s.to(k.dtype), tl.trans(k), d_q)
    d_q = d_q * (scale / 1.4426950408889634 * keep_scale)
    target = D_QKV + first * stride + head * K + queries[:, None] * stride
    tile = block * tl.num_programs(0) + tl.program_id(0)
    if ROTARY:
        _store_rotated(target, d_q, TURNS, queries, queries < room, BQ, K)
    else:
        tl.store(target + ks[None, :], d_q.to(D_QKV.dtype.element_ty), inside)
        tl.store(SUMS + tile * (3 * H * K) + head * K + ks, tl.sum(d_q, 0))
    if BIASED:
        tl.store(D_FAR + (tile * H + head) * 2, tl.sum(before, 0) * keep_scale)
        tl.store(D_FAR + (tile * H + head) * 2 + 1, tl.sum(after, 0) * keep_scale)


@triton.jit
def _backward_keys(
    QKV, OUT, LSE, ROW_KEYS, COLUMN_KEYS, STARTS, LENGTHS, BIAS, D_OUT, D_QKV, DELTA, SUMS,
    TURNS, L, scale, limit, keep_scale,
    H: tl.constexpr, K: tl.constexpr, DROPOUT: tl.constexpr, BIASED: tl.constexpr,
    REACH: tl.constexpr, WINDOW: tl.constexpr, ROTARY: tl.constexpr, WHOLE: tl.constexpr,
    BQ: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of keys and values; where one tile has all keys, of queries too."""
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
    if WHOLE:
        begin = 0
        stop = room.to(tl.int32)
    factor = scale / 1.4426950408889634 * keep_scale
    kind = D_QKV.dtype.element_ty
    sum_q = tl.zeros([K], tl.float32)
    for start in range(begin, stop, BQ):
        queries = start + rows
        inside = queries[None, :] < length
        q = tl.load(base + queries[None, :] * stride + ks[:, None], inside, 0.0)
        narrow = (first + queries[None, :]) * (H * K) + head * K + ks[:, None]
        d_out = tl.load(D_OUT + narrow, inside, 0.0)
        lse = tl.load(LSE + block_head * L + queries, queries < length, float("inf"))
        if WHOLE:
            out = tl.load(OUT + narrow, inside, 0.0)
            delta = tl.sum(d_out.to(tl.float32) * out.to(tl.float32), 0) / keep_scale
        else:
            delta = tl.load(DELTA + block_head * L + queries, queries < length, 0.0)
        if BIASED:
            gap = first_key - start // BK * BK
            places = tl.arange(0, BK)[:, None] * BK + (start % BK + rows)[None, :]
            near, far = _load_bias(BIAS, gap, head, places, BK, REACH)
            s = tl.dot(k, q) * scale + (closed + far)[:, None] + near
        else:
            s = tl.dot(k, q) * scale + closed[:, None]
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
        if WHOLE:
            d_q = tl.dot(tl.trans(d_s), k) * factor
            place = D_QKV + first * stride + head * K + queries[:, None] * stride
            if ROTARY:
                _store_rotated(place, d_q, TURNS, queries, queries < room, BQ, K)
            else:
                tl.store(place + ks[None, :], d_q.to(kind), queries[:, None] < room)
                sum_q += tl.sum(d_q, 0)
    d_k = tl.where(real, d_k * factor, 0.0)
    d_v = tl.where(real, d_v * keep_scale, 0.0)
    target = D_QKV + first * stride + head * K + keys[:, None] * stride
    tl.store(target + 2 * H * K + ks[None, :], d_v.to(kind), keys[:, None] < room)
    if ROTARY:
        _store_rotated(target + H * K, d_k, TURNS, keys, keys < room, BK, K)
    else:
        tl.store(target + H * K + ks[None, :], d_k.to(kind), keys[:, None] < room)
        tile = block * tl.num_programs(0) + tl.program_id(0)
        place = SUMS + tile * (3 * H * K) + head * K + ks
        if WHOLE:
            tl.store(place, sum_q)
        tl.store(place + H * K, tl.sum(d_k, 0))
        tl.store(place + 2 * H * K, tl.sum(d_v, 0))


@triton.jit
def _backward_bias(
    D_S, LENGTHS, SUMS, B, L, keep_scale,
    H: tl.constexpr, REACH: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of the scores along a diagonal of tiles, by distance.

    All tiles of a diagonal have the same distances, so that one tile can hold their sum.
    """
    head, diagonal = tl.program_id(1), tl.program_id(2) - tl.num_programs(2) // 2
    rows, columns = tl.arange(0, BQ)[:, None], tl.arange(0, BK)[None, :]
    total = tl.zeros([BQ, BK], tl.float32)
    for block in range(tl.program_id(0), B, tl.num_programs(0)):
        length = tl.load(LENGTHS + block)
        last = tl.minimum(tl.cdiv(length, BQ), tl.cdiv(length, BK) - diagonal)
        for number in range(tl.maximum(-diagonal, 0), last):
            tile = (block * H + head) * tl.cdiv(L, BQ) + number
            place = (tile * (2 * REACH - 1) + diagonal + REACH - 1).to(tl.int64) * (BQ * BK)
            total += tl.load(D_S + place + rows * BK + columns)
    # Rotate each row, so that column x has the distances x and x - BK from the diagonal.
    turned = tl.gather(total, (columns + rows) % BK, 1) * keep_scale
    is_next = columns + rows < BK
    place = (tl.program_id(0) * H + head) * tl.num_programs(2) + tl.program_id(2)
    target = SUMS + place * 2 * BK + tl.arange(0, BK)
    tl.store(target, tl.sum(tl.where(is_next, 0.0, turned), 0))
    tl.store(target + BK, tl.sum(tl.where(is_next, turned, 0.0), 0))


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
class BiasTiles:
    """The biases, for base 2, of the tiles around the diagonal, [H, tiles, 64, 64].

    Beside scores from bfloat16, float16 is exact enough, and takes half the time to load.
    """

    by_query: Tensor
    """A row for each query."""
    by_key: Tensor
    """A row for each key, float32, which is faster there."""

    @classmethod
    def make(cls, bias_HW: Tensor, dtype: torch.dtype) -> Self:
        """Make the tiles of biases by distance (key minus query), from 1 - L to L - 1.

        From FAR on, the bias must not change. `dtype` is the type of the queries.
        """
        places_T = torch.arange(_TILE, device=bias_HW.device)
        first_D = torch.arange(-_REACH, _REACH + 1, device=bias_HW.device) * _TILE
        distances_DTT = first_D[:, None, None] + places_T[None, :] - places_T[:, None]
        far = bias_HW.shape[1] // 2
        columns_DTT = distances_DTT.clamp(-far, far) + far
        kind = torch.float32 if dtype == torch.float32 else torch.float16
        by_query = (bias_HW.float() * _LOG2_E)[:, columns_DTT].to(kind)
        return cls(by_query, by_query.transpose(2, 3).float().contiguous())


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
    bias: BiasTiles | None = None,
) -> tuple[Tensor, Traces]:
    """Return the mixed values [N, D], and what the backward pass needs."""
    out_ND = shape.make_rows(qkv_N3D, shape.heads * shape.head_size)
    size = shape.blocks * shape.heads, shape.length
    lse = torch.empty(size, dtype=torch.float32, device=qkv_N3D.device)
    row_keys = torch.empty(size, dtype=torch.int32, device=qkv_N3D.device)
    tiles = FORWARD
    _forward[shape.grid(tiles.queries)](
        qkv_N3D, out_ND, lse, row_keys, column_keys_L, starts_B1, lengths_B,
        lse if bias is None else bias.by_query, seed,
        salt, *shape.arguments,
        H=shape.heads, K=shape.head_size, DROPOUT=shape.dropout > 0, BIASED=bias is not None,
        REACH=_REACH, WINDOW=shape.window, BQ=tiles.queries, BK=tiles.keys, num_warps=tiles.warps,
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
    bias: BiasTiles | None = None,
    turns_LK: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of the fused projection, [N, 3 D], its sum [3 D], and of the bias.

    The gradient of the bias is by head and distance, [H, 2 L - 1]. Those of the distances that
    share a bias, from FAR on, may be added to the last. With `turns_LK`, the projection was
    rotated; its gradient is rotated back, and there is no sum.
    """
    lse, keys = traces.lse, (traces.row_keys, traces.column_keys_L)
    d_qkv = shape.make_rows(qkv_N3D, qkv_N3D.shape[1])
    delta = torch.empty_like(lse)
    options = {
        "H": shape.heads, "K": shape.head_size, "DROPOUT": shape.dropout > 0, "REACH": _REACH,
        "BIASED": bias is not None, "WINDOW": shape.window, "ROTARY": turns_LK is not None,
    }  # fmt: skip
    assert QUERIES.queries == KEYS.keys, "both write to the same rows of sums"
    is_whole = bias is None and shape.length <= WHOLE.keys
    tiles, grid = QUERIES, shape.grid(WHOLE.keys if is_whole else QUERIES.queries)
    sums = lse.new_empty(shape.blocks * grid[0], 3 * shape.heads * shape.head_size)
    turns = lse if turns_LK is None else turns_LK
    by_query = by_key = d_s = lse
    if bias is not None:
        by_query, by_key = bias.by_query, bias.by_key
        num_tiles = shape.blocks * shape.heads * grid[0] * (2 * _REACH - 1)
        d_s = qkv_N3D.new_empty(num_tiles, tiles.queries * tiles.keys)
    d_far = lse.new_empty(shape.blocks * grid[0], shape.heads * 2)
    if not is_whole:
        _backward_queries[grid](
            qkv_N3D, out_ND, lse, *keys, starts_B1, lengths_B, by_query, d_out_ND, d_qkv, delta,
            sums, d_far, d_s, turns,
            *shape.arguments, **options,
            BQ=tiles.queries, BK=tiles.keys, num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip
    tiles = WHOLE if is_whole else KEYS
    _backward_keys[grid](
        qkv_N3D, out_ND, lse, *keys, starts_B1, lengths_B, by_key, d_out_ND, d_qkv, delta,
        sums, turns, *shape.arguments, **options, WHOLE=is_whole,
        BQ=tiles.queries, BK=tiles.keys, num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    if turns_LK is not None:
        return d_qkv, None, None
    if bias is None:
        return d_qkv, sum_rows(sums), None
    tiles = QUERIES
    diagonals = 2 * min(_REACH - 1, grid[0] - 1) + 1
    near = lse.new_empty(_BIAS_PARTS, shape.heads * diagonals * 2 * tiles.keys)
    _backward_bias[_BIAS_PARTS, shape.heads, diagonals](
        d_s, lengths_B, near, shape.blocks, shape.length, shape.arguments[-1],
        H=shape.heads, REACH=_REACH, BQ=tiles.queries, BK=tiles.keys, num_warps=8,
    )  # fmt: skip
    near_HD2X = sum_rows(near).view(shape.heads, diagonals, 2, tiles.keys)
    d_bias = _join_distances(near_HD2X, shape.length)
    if shape.length > FAR:
        d_bias[:, :: 2 * shape.length - 2] += sum_rows(d_far).view(-1, 2)
    return d_qkv, sum_rows(sums), d_bias


def _join_distances(sums_HD2X: Tensor, length: int) -> Tensor:
    """Return the sums by distance, [H, 2 L - 1], from those of the diagonals of tiles."""
    _, diagonals, _, size = sums_HD2X.shape
    below_HDX, above_HDX = sums_HD2X.unbind(2)
    wide_HX = (F.pad(below_HDX, (0, 0, 0, 1)) + F.pad(above_HDX, (0, 0, 1, 0))).flatten(1)
    reach = (diagonals + 1) // 2 * size  # the column of distance 0
    if reach >= length:
        return wide_HX[:, reach - length + 1 : reach + length].contiguous()
    return F.pad(wide_HX[:, 1:], (length - reach, length - reach))
