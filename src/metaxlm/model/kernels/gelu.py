"""Exact GELU, plain or gated, and its gradient; plain also that of the bias before it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from metaxlm.model.kernels.common import is_kept, sum_rows, threshold

_ROWS, _COLUMNS = 64, 64
"""A tile of the backward pass: large enough to keep the memory busy, without a loop."""


@triton.jit
def _normal(x):
    """Return the normal distribution's share below x, within 1e-7, and exp(-x^2 / 2).

    The share is Abramowitz and Stegun's 7.1.26: both need the same exponential, and the library's
    erf alone would take longer than reading and writing the values.
    """
    power = tl.math.exp2(x * x * -0.7213475204444817)
    t = 1.0 / (1.0 + 0.3275911 * 0.7071067811865476 * tl.abs(x))
    tail = 1.061405429 * t - 1.453152027
    tail = tail * t + 1.421413741
    tail = tail * t - 0.284496736
    tail = (tail * t + 0.254829592) * t * power * 0.5
    return tl.where(x < 0, tail, 1.0 - tail), power


@triton.jit
def _gelu(X, OUT, SIZE, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < SIZE
    x = tl.load(X + place, inside, 0.0).to(tl.float32)
    share, _ = _normal(x)
    tl.store(OUT + place, (x * share).to(OUT.dtype.element_ty), inside)


@triton.jit
def _gelu_backward(D_OUT, X, D_X, PARTIAL, N, WIDTH, BR: tl.constexpr, BC: tl.constexpr):
    columns = tl.program_id(0) * BC + tl.arange(0, BC)
    rows = tl.program_id(1) * BR + tl.arange(0, BR)
    inside = (rows[:, None] < N) & (columns[None, :] < WIDTH)
    place = rows[:, None].to(tl.int64) * WIDTH + columns[None, :]
    d_out = tl.load(D_OUT + place, inside, 0.0).to(tl.float32)
    x = tl.load(X + place, inside, 0.0).to(tl.float32)
    share, power = _normal(x)
    d_x = d_out * (share + x * power * 0.3989422804014327)
    tl.store(D_X + place, d_x.to(D_X.dtype.element_ty), inside)
    tl.store(PARTIAL + tl.program_id(1) * WIDTH + columns, tl.sum(d_x, 0), columns < WIDTH)


@triton.jit
def _gated(
    X, OUT, SEED, salt, N, WIDTH, limit, keep_scale,
    DROPOUT: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(0) * BC + tl.arange(0, BC)
    rows = (tl.program_id(1) * BR + tl.arange(0, BR))[:, None].to(tl.int64)
    inside = (rows < N) & (columns[None, :] < WIDTH)
    place = rows * WIDTH + columns[None, :]
    wide = place + rows * WIDTH
    x = tl.load(X + wide, inside, 0.0).to(tl.float32)
    share, _ = _normal(x)
    out = x * share * tl.load(X + wide + WIDTH, inside, 0.0).to(tl.float32)
    if DROPOUT:
        seed = (tl.load(SEED) + salt).to(tl.uint32)
        out = tl.where(is_kept(seed, place, limit), out * keep_scale, 0.0)
    tl.store(OUT + place, out.to(OUT.dtype.element_ty), inside)


@triton.jit
def _gated_backward(
    D_OUT, X, D_X, SEED, salt, N, WIDTH, limit, keep_scale,
    DROPOUT: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(0) * BC + tl.arange(0, BC)
    rows = (tl.program_id(1) * BR + tl.arange(0, BR))[:, None].to(tl.int64)
    inside = (rows < N) & (columns[None, :] < WIDTH)
    place = rows * WIDTH + columns[None, :]
    wide = place + rows * WIDTH
    d_out = tl.load(D_OUT + place, inside, 0.0).to(tl.float32)
    if DROPOUT:
        seed = (tl.load(SEED) + salt).to(tl.uint32)
        d_out = tl.where(is_kept(seed, place, limit), d_out * keep_scale, 0.0)
    x = tl.load(X + wide, inside, 0.0).to(tl.float32)
    gate = tl.load(X + wide + WIDTH, inside, 0.0).to(tl.float32)
    share, power = _normal(x)
    kind = D_X.dtype.element_ty
    d_x = d_out * gate * (share + x * power * 0.3989422804014327)
    tl.store(D_X + wide, d_x.to(kind), inside)
    tl.store(D_X + wide + WIDTH, (d_out * x * share).to(kind), inside)


def gelu(x_NF: Tensor) -> Tensor:
    """Return x times the normal distribution's share below x."""
    out = torch.empty_like(x_NF)
    block = 8192
    _gelu[(triton.cdiv(x_NF.numel(), block),)](x_NF, out, x_NF.numel(), BLOCK=block, num_warps=8)
    return out


def gelu_backward(d_out_NF: Tensor, x_NF: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of x, and its sum over rows, the gradient of the bias before it."""
    rows, width = x_NF.shape
    d_x = torch.empty_like(x_NF)
    grid = triton.cdiv(width, _COLUMNS), triton.cdiv(rows, _ROWS)
    partial = torch.empty(grid[1], width, dtype=torch.float32, device=x_NF.device)
    _gelu_backward[grid](
        d_out_NF, x_NF, d_x, partial, rows, width, BR=_ROWS, BC=_COLUMNS, num_warps=4
    )
    return d_x, sum_rows(partial)


def gated_gelu(x_NF2: Tensor, dropout: float, seed: Tensor, salt: int) -> Tensor:
    """Return dropout(gelu(a) * b), [N, F], of the two halves a and b of each row."""
    rows, width = len(x_NF2), x_NF2.shape[1] // 2
    out = x_NF2.new_empty(rows, width)
    _gated[triton.cdiv(width, _COLUMNS), triton.cdiv(rows, _ROWS)](
        x_NF2, out, seed, salt, rows, width, threshold(dropout), 1.0 / (1.0 - dropout),
        DROPOUT=dropout > 0, BR=_ROWS, BC=_COLUMNS, num_warps=4,
    )  # fmt: skip
    return out


def gated_gelu_backward(
    d_out_NF: Tensor, x_NF2: Tensor, dropout: float, seed: Tensor, salt: int
) -> Tensor:
    """Return the gradient of both halves, [N, 2 F]."""
    rows, width = d_out_NF.shape
    d_x = torch.empty_like(x_NF2)
    _gated_backward[triton.cdiv(width, _COLUMNS), triton.cdiv(rows, _ROWS)](
        d_out_NF, x_NF2, d_x, seed, salt, rows, width, threshold(dropout), 1.0 / (1.0 - dropout),
        DROPOUT=dropout > 0, BR=_ROWS, BC=_COLUMNS, num_warps=4,
    )  # fmt: skip
    return d_x
