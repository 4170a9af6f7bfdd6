"""LayerNorm(residual + dropout(x)) in one pass, and its gradient in one pass.

The backward pass also sums columns: the gradients of the weight and bias of the LayerNorm, and of
the bias of the linear layer before it. Layers with LayerNorm before their parts go on with the sum
as well; then its gradient is added.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from metaxlm.model.kernels.common import is_kept, sum_rows, threshold

_PROGRAMS = 1056
"""Programs of a backward pass, each with partial sums: eight for each processor of an H100."""


@triton.jit
def _forward(
    X, RESIDUAL, WEIGHT, BIAS, OUT, SUM, MEAN, SCALE, SEED, salt, eps, limit, keep_scale,
    D: tl.constexpr, DROPOUT: tl.constexpr, BIASED: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BD)
    inside = columns < D
    place = row * D + columns
    x = tl.load(X + place, inside, 0.0).to(tl.float32)
    if DROPOUT:
        seed = (tl.load(SEED) + salt).to(tl.uint32)
        x = tl.where(is_kept(seed, place, limit), x * keep_scale, 0.0)
    x += tl.load(RESIDUAL + place, inside, 0.0).to(tl.float32)
    # What is saved is rounded; normalizing the rounded value keeps both passes in step.
    x = x.to(SUM.dtype.element_ty).to(tl.float32)
    tl.store(SUM + place, x.to(SUM.dtype.element_ty), inside)
    mean = tl.sum(x, 0) / D
    centered = tl.where(inside, x - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centered * centered, 0) / D + eps)
    weight = tl.load(WEIGHT + columns, inside, 0.0)
    normal = centered * scale * weight
    if BIASED:
        normal += tl.load(BIAS + columns, inside, 0.0)
    tl.store(OUT + place, normal.to(OUT.dtype.element_ty), inside)
    tl.store(MEAN + row, mean)
    tl.store(SCALE + row, scale)


@triton.jit
def _backward(
    D_OUT, D_REST, SUM, MEAN, SCALE, WEIGHT, D_SUM, D_X, PARTIAL, SEED, salt, N, limit, keep_scale,
    D: tl.constexpr, DROPOUT: tl.constexpr, RESTS: tl.constexpr, TWICE: tl.constexpr,
    BD: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    columns = tl.arange(0, BD)
    inside = columns < D
    weight = tl.load(WEIGHT + columns, inside, 0.0)
    d_weight = tl.zeros([BD], tl.float32)
    d_bias = tl.zeros([BD], tl.float32)
    d_linear = tl.zeros([BD], tl.float32)
    if DROPOUT:
        seed = (tl.load(SEED) + salt).to(tl.uint32)
    width = tl.full([1], D, tl.int64)
    for row in tl.range(program, N, tl.num_programs(0), num_stages=3):
        place = row * width + columns
        d_out = tl.load(D_OUT + place, inside, 0.0).to(tl.float32)
        x = tl.load(SUM + place, inside, 0.0).to(tl.float32)
        scale = tl.load(SCALE + row)
        normal = tl.where(inside, (x - tl.load(MEAN + row)) * scale, 0.0)
        d_weight += d_out * normal
        d_bias += d_out
        d_normal = d_out * weight
        first = tl.sum(d_normal, 0) / D
        second = tl.sum(d_normal * normal, 0) / D
        d_sum = (d_normal - first - normal * second) * scale
        if RESTS:
            d_sum += tl.load(D_REST + place, inside, 0.0).to(tl.float32)
        tl.store(D_SUM + place, d_sum.to(D_SUM.dtype.element_ty), inside)
        if DROPOUT:
            d_sum = tl.where(is_kept(seed, place, limit), d_sum * keep_scale, 0.0)
        if TWICE:
            tl.store(D_X + place, d_sum.to(D_X.dtype.element_ty), inside)
        d_linear += tl.where(inside, d_sum, 0.0)
    place = program * 3 * D + columns
    tl.store(PARTIAL + place, d_weight, inside)
    tl.store(PARTIAL + place + D, d_bias, inside)
    tl.store(PARTIAL + place + 2 * D, d_linear, inside)


def add_and_normalize(
    x_ND: Tensor,
    residual_ND: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    eps: float,
    dropout: float,
    seed: Tensor,
    salt: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the normalized sum, and for the backward pass: the sum, row means, row scales.

    The sum has the type of the residual, the normalized one that of x.
    """
    rows, width = x_ND.shape
    out, total = torch.empty_like(x_ND), torch.empty_like(residual_ND)
    mean, scale = (torch.empty(rows, dtype=torch.float32, device=x_ND.device) for _ in range(2))
    _forward[(rows,)](
        x_ND, residual_ND, weight_D, weight_D if bias_D is None else bias_D, out, total, mean,
        scale, seed, salt, eps, threshold(dropout), 1.0 / (1.0 - dropout),
        D=width, DROPOUT=dropout > 0, BIASED=bias_D is not None, BD=triton.next_power_of_2(width),
        num_warps=1,
    )  # fmt: skip
    return out, total, mean, scale


def add_and_normalize_backward(
    d_out_ND: Tensor,
    total_ND: Tensor,
    mean_N: Tensor,
    scale_N: Tensor,
    weight_D: Tensor,
    dropout: float,
    seed: Tensor,
    salt: int,
    d_rest_ND: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of residual and x, and the column sums [3, D].

    The column sums are the gradients of the LayerNorm's weight and bias and of x summed over rows.
    `d_rest_ND` is the gradient of the sum from where else it is used.
    """
    rows, width = total_ND.shape
    d_total = torch.empty_like(total_ND)
    is_twice = dropout > 0 or d_out_ND.dtype != total_ND.dtype
    d_x = torch.empty_like(d_out_ND) if is_twice else d_total
    programs = min(_PROGRAMS, rows)
    partial = torch.empty(programs, 3, width, dtype=torch.float32, device=total_ND.device)
    _backward[(programs,)](
        d_out_ND, d_out_ND if d_rest_ND is None else d_rest_ND, total_ND, mean_N, scale_N, weight_D,
        d_total, d_x, partial, seed, salt, rows, threshold(dropout), 1.0 / (1.0 - dropout),
        D=width, DROPOUT=dropout > 0, RESTS=d_rest_ND is not None, TWICE=is_twice,
        BD=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip
    return d_total, d_x, sum_rows(partial.flatten(1)).view(3, width)
