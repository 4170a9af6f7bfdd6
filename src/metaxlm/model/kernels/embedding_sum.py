"""Dropout(LayerNorm(word + position + token type)) in one pass, and the tables' gradients.

The gradient of the word rows is a sum over all places of a word. Places are sorted by word and
added in that order, so that the sum has the same bits each time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from metaxlm.model.kernels.common import is_kept, sum_rows, threshold

_PROGRAMS = 1056


@triton.jit
def _forward(
    IDS, PLACES, TYPE_IDS, WORDS, POSITIONS, TYPES, WEIGHT, BIAS, OUT, SUM, MEAN, SCALE, SEED, salt,
    offset, eps, limit, keep_scale,
    D: tl.constexpr, DROPOUT: tl.constexpr, TYPED: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BD)
    inside = columns < D
    word = tl.load(IDS + row).to(tl.int64)
    x = tl.load(WORDS + word * D + columns, inside, 0.0)
    if TYPED:
        TYPES += tl.load(TYPE_IDS + row) * D
    x += tl.load(TYPES + columns, inside, 0.0)
    x += tl.load(POSITIONS + (tl.load(PLACES + row) + offset) * D + columns, inside, 0.0)
    place = row * D + columns
    x = x.to(SUM.dtype.element_ty).to(tl.float32)
    tl.store(SUM + place, x.to(SUM.dtype.element_ty), inside)
    mean = tl.sum(x, 0) / D
    centered = tl.where(inside, x - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centered * centered, 0) / D + eps)
    weight = tl.load(WEIGHT + columns, inside, 0.0)
    out = centered * scale * weight + tl.load(BIAS + columns, inside, 0.0)
    if DROPOUT:
        seed = (tl.load(SEED) + salt).to(tl.uint32)
        out = tl.where(is_kept(seed, place, limit), out * keep_scale, 0.0)
    tl.store(OUT + place, out.to(OUT.dtype.element_ty), inside)
    tl.store(MEAN + row, mean)
    tl.store(SCALE + row, scale)


@triton.jit
def _backward(
    D_OUT, SUM, MEAN, SCALE, WEIGHT, D_SUM, PARTIAL, SEED, salt, N, limit, keep_scale,
    D: tl.constexpr, DROPOUT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    columns = tl.arange(0, BD)
    inside = columns < D
    weight = tl.load(WEIGHT + columns, inside, 0.0)
    d_weight = tl.zeros([BD], tl.float32)
    d_bias = tl.zeros([BD], tl.float32)
    if DROPOUT:
        seed = (tl.load(SEED) + salt).to(tl.uint32)
    width = tl.full([1], D, tl.int64)
    for row in range(program, N, tl.num_programs(0)):
        place = row * width + columns
        d_out = tl.load(D_OUT + place, inside, 0.0).to(tl.float32)
        if DROPOUT:
            d_out = tl.where(is_kept(seed, place, limit), d_out * keep_scale, 0.0)
        x = tl.load(SUM + place, inside, 0.0).to(tl.float32)
        scale = tl.load(SCALE + row)
        normal = tl.where(inside, (x - tl.load(MEAN + row)) * scale, 0.0)
        d_weight += d_out * normal
        d_bias += tl.where(inside, d_out, 0.0)
        d_normal = d_out * weight
        first = tl.sum(d_normal, 0) / D
        second = tl.sum(d_normal * normal, 0) / D
        d_sum = (d_normal - first - normal * second) * scale
        tl.store(D_SUM + place, d_sum, inside)
    place = program * 2 * D + columns
    tl.store(PARTIAL + place, d_weight, inside)
    tl.store(PARTIAL + place + D, d_bias, inside)


@triton.jit
def _sum_positions(D_SUM, OUT, STARTS, B, offset, D: tl.constexpr, BD: tl.constexpr):
    position = tl.program_id(0)
    columns = tl.arange(0, BD)
    inside = columns < D
    total = tl.zeros([BD], tl.float32)
    width = tl.full([1], D, tl.int64)
    for block in range(0, B):
        row = tl.load(STARTS + block) + position
        owned = row < tl.load(STARTS + block + 1)
        total += tl.load(D_SUM + row * width + columns, inside & owned, 0.0)
    tl.store(OUT + (position + offset) * D + columns, total, inside)


@triton.jit
def _add_rows(TABLE, IDS, SEGMENTS, COMPACT, pad, D: tl.constexpr, BD: tl.constexpr):
    place = tl.program_id(0).to(tl.int64)
    word = tl.load(IDS + place).to(tl.int64)
    before = tl.load(IDS + tl.maximum(place - 1, 0)).to(tl.int64)
    if ((place == 0) | (word != before)) & (word != pad):
        columns = tl.arange(0, BD)
        inside = columns < D
        segment = tl.load(SEGMENTS + place)
        row = tl.load(TABLE + word * D + columns, inside, 0.0)
        row += tl.load(COMPACT + segment * D + columns, inside, 0.0)
        tl.store(TABLE + word * D + columns, row, inside)


def embed(
    ids_N: Tensor,
    places_N: Tensor,
    type_ids_N: Tensor | None,
    words_VD: Tensor,
    positions_PD: Tensor,
    types_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor,
    offset: int,
    eps: float,
    dropout: float,
    seed: Tensor,
    salt: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the first hidden states [N, D], and for the backward pass: sums, means, scales.

    `places_N` says which token of its sequence each one is; without `type_ids_N` all have type 0.
    """
    rows, width = len(ids_N), words_VD.shape[1]
    out, total = (torch.empty(rows, width, dtype=dtype, device=ids_N.device) for _ in range(2))
    mean, scale = (torch.empty(rows, dtype=torch.float32, device=ids_N.device) for _ in range(2))
    _forward[(rows,)](
        ids_N, places_N, places_N if type_ids_N is None else type_ids_N, words_VD, positions_PD,
        types_TD, weight_D, bias_D, out, total, mean, scale, seed,
        salt, offset, eps, threshold(dropout), 1.0 / (1.0 - dropout),
        D=width, DROPOUT=dropout > 0, TYPED=type_ids_N is not None,
        BD=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip
    return out, total, mean, scale


def embed_backward(
    d_out_ND: Tensor,
    total_ND: Tensor,
    mean_N: Tensor,
    scale_N: Tensor,
    weight_D: Tensor,
    dropout: float,
    seed: Tensor,
    salt: int,
) -> tuple[Tensor, Tensor]:
    """Return the gradient of each place's sum of rows, and [2, D]: of LayerNorm weight and bias."""
    rows, width = total_ND.shape
    d_total = torch.empty(rows, width, dtype=torch.float32, device=total_ND.device)
    programs = min(_PROGRAMS, rows)
    partial = torch.empty(programs, 2, width, dtype=torch.float32, device=total_ND.device)
    _backward[(programs,)](
        d_out_ND, total_ND, mean_N, scale_N, weight_D, d_total, partial, seed, salt, rows,
        threshold(dropout), 1.0 / (1.0 - dropout),
        D=width, DROPOUT=dropout > 0, BD=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip
    return d_total, sum_rows(partial.flatten(1)).view(2, width)


def sum_positions(
    d_total_ND: Tensor, starts_B1: Tensor, length: int, offset: int, table_rows: int
) -> Tensor:
    """Return the gradient of the position table: the sum over blocks at each place."""
    width = d_total_ND.shape[1]
    out = d_total_ND.new_zeros(table_rows, width)
    _sum_positions[(length,)](
        d_total_ND, out, starts_B1, len(starts_B1) - 1, offset,
        D=width, BD=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip
    return out


def add_word_gradient(table_VD: Tensor, ids_N: Tensor, d_total_ND: Tensor, pad_id: int) -> None:
    """Add each place's gradient to the row of its word, in place; padding gets none."""
    places, width = d_total_ND.shape
    ids_sorted, order = torch.sort(ids_N.int(), stable=True)  # half the passes of int64
    starts = torch.cat([ids_sorted.new_zeros(1), ids_sorted.diff().ne(0).int()])
    segments = starts.cumsum(0)
    compact = torch.ops.aten.embedding_dense_backward(
        d_total_ND.index_select(0, order), segments, places, -1, False
    )
    _add_rows[(places,)](
        table_VD, ids_sorted, segments, compact, pad_id,
        D=width, BD=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip
