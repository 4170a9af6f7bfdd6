"""The loss of masked tokens over a large vocabulary, and its gradient in the logits' own memory.

Logits are the largest tensor of a training step: M x V values, 2.5 GB at the paper's size. They are
read once for the loss, and once more to be replaced by their gradient, whose columns are added up
on the way: that is the gradient of the decoder's bias.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from metaxlm.model.kernels.common import sum_rows

_ROWS, _COLUMNS = 128, 64
"""A tile of the gradient: large enough to keep the memory busy, without a loop."""


@triton.jit
def _loss(LOGITS, LABELS, LOSS, LSE, V, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(LABELS + row)
    base = LOGITS + row * stride
    columns = tl.arange(0, BLOCK)
    peak = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    if label != -100:
        for start in range(0, V, BLOCK):
            place = start + columns
            x = tl.load(base + place, place < V, float("-inf")).to(tl.float32) * 1.4426950408889634
            new_peak = tl.maximum(peak, x)
            # A column that saw nothing yet has no peak to subtract.
            safe = tl.where(new_peak == float("-inf"), 0.0, new_peak)
            total = total * tl.math.exp2(peak - safe) + tl.math.exp2(x - safe)
            peak = new_peak
        top = tl.max(peak, 0)
        lse = top + tl.math.log2(tl.sum(total * tl.math.exp2(peak - top), 0))
        target = tl.load(base + label).to(tl.float32)
        tl.store(LOSS + row, lse * 0.6931471805599453 - target)
        tl.store(LSE + row, lse)
    else:
        tl.store(LOSS + row, 0.0)
        # Above every logit: the row's gradient becomes zero by itself.
        tl.store(LSE + row, float("inf"))


@triton.jit
def _gradient(
    LOGITS, LABELS, LSE, FACTOR, PARTIAL, M, V, stride, BR: tl.constexpr, BC: tl.constexpr
):
    columns = tl.program_id(0) * BC + tl.arange(0, BC)
    rows = tl.program_id(1) * BR + tl.arange(0, BR)
    inside = (rows[:, None] < M) & (columns[None, :] < stride)
    place = rows[:, None].to(tl.int64) * stride + columns[None, :]
    lse = tl.load(LSE + rows, rows < M, float("inf"))
    labels = tl.load(LABELS + rows, rows < M, -100)
    x = tl.load(LOGITS + place, inside, 0.0).to(tl.float32) * 1.4426950408889634
    x = tl.math.exp2(x - lse[:, None])
    x = tl.where(columns[None, :] < V, x, 0.0)
    factor = tl.load(FACTOR).to(tl.float32)
    x = (x - tl.where(columns[None, :] == labels[:, None], 1.0, 0.0)) * factor
    tl.store(LOGITS + place, x.to(LOGITS.dtype.element_ty), inside)
    tl.store(PARTIAL + tl.program_id(1) * stride + columns, tl.sum(x, 0), columns < stride)


def cross_entropy(logits_MV: Tensor, labels_M: Tensor, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Return each row's loss, 0 where the label is ignored, and its log-sum-exp for `gradient`."""
    rows = len(labels_M)
    loss, lse = (torch.empty(rows, dtype=torch.float32, device=logits_MV.device) for _ in range(2))
    _loss[(rows,)](
        logits_MV, labels_M, loss, lse, vocab_size, logits_MV.stride(0), BLOCK=4096, num_warps=8
    )
    return loss, lse


def gradient(
    logits_MV: Tensor, labels_M: Tensor, lse_M: Tensor, factor: Tensor, vocab_size: int
) -> Tensor:
    """Replace logits by the loss's gradient times `factor`; return the sum of its rows, [V]."""
    rows, width = logits_MV.shape
    grid = triton.cdiv(width, _COLUMNS), triton.cdiv(rows, _ROWS)
    partial = torch.empty(grid[1], width, dtype=torch.float32, device=logits_MV.device)
    _gradient[grid](
        logits_MV, labels_M, lse_M, factor, partial, rows, vocab_size, width,
        BR=_ROWS, BC=_COLUMNS, num_warps=4,
    )  # fmt: skip
    return sum_rows(partial)[:vocab_size]
