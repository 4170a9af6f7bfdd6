"""The second half of a sum over rows: partial sums, one for each tile, become one row.

Kernels that pass over a tensor leave one partial sum for each tile. Adding those up by an atomic
would be simpler, and would add them in another order each time.
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
