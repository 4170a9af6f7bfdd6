"""Dropout whose random numbers cost a CPU less than torch's.

Torch draws 64 random bits for each value and asks whether they are below a probability. Sixteen are
enough to decide, so that one draw serves four values.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_BITS = 16


class Dropout(nn.Dropout):
    """Sets values to zero with a probability, and scales the others so that the mean stays."""

    def forward(self, values: Tensor) -> Tensor:
        """Return the values themselves in evaluation."""
        if not self.training or self.p == 0.0:
            return values
        if values.device.type != "cpu":
            return super().forward(values)
        return values * draw_factors(values, self.p)


def draw_factors(like: Tensor, p: float) -> Tensor:
    """Return 0 with probability `p` (to 1/65,536) and 1 / (1 - p) otherwise, for each value."""
    count = like.numel()
    draws = torch.empty(-(-count * _BITS // 64), dtype=torch.int64).random_(-(2**63), None)
    bits = draws.view(torch.int16)[:count].view(like.shape)
    is_kept = bits >= round(p * 2**_BITS) - 2 ** (_BITS - 1)
    factors: Tensor = is_kept.to(like.dtype).mul_(1.0 / (1.0 - p))
    return factors
