"""AdamW in one pass over a parameter: clip, moments, weight, and the weight's bfloat16 copy.

The same as torch's fused AdamW, plus the copy for the matrix products of the next step.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _adamw(
    P, G, FIRST, SECOND, COPY, NUMBERS, SKIP, beta1, beta2, eps, decay, SIZE,
    HAS_COPY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    if tl.load(SKIP) != 0.0:
        return
    rate = tl.load(NUMBERS)
    shrink = tl.load(NUMBERS + 1)
    first_correction = tl.load(NUMBERS + 2)
    second_correction = tl.load(NUMBERS + 3)
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < SIZE
    g = tl.load(G + place, inside, 0.0) / shrink
    m = tl.load(FIRST + place, inside, 0.0)
    v = tl.load(SECOND + place, inside, 0.0)
    p = tl.load(P + place, inside, 0.0)
    m = m + (g - m) * (1.0 - beta1)
    v = v * beta2 + g * g * (1.0 - beta2)
    p = p - rate * decay * p
    p = p - rate / first_correction * m / (tl.sqrt(v) / second_correction + eps)
    tl.store(FIRST + place, m, inside)
    tl.store(SECOND + place, v, inside)
    tl.store(P + place, p, inside)
    if HAS_COPY:
        tl.store(COPY + place, p.to(COPY.dtype.element_ty), inside)


def update(
    parameter: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    copy: Tensor | None,
    numbers: Tensor,
    skip: Tensor,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float,
) -> None:
    """Change a parameter, its moments and its copy in place, unless `skip` is not 0.

    `numbers` are on the device: the learning rate, the divisor of gradients, and the bias
    corrections 1 - beta1^t and sqrt(1 - beta2^t).
    """
    size = parameter.numel()
    _adamw[(triton.cdiv(size, _BLOCK),)](
        parameter, gradient, first, second, copy, numbers, skip, *betas, epsilon, weight_decay,
        size, HAS_COPY=copy is not None, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
