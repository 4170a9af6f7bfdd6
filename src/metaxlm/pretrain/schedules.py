"""Values that change during training: the mask rate, and the exponent of language sampling.

Comes in: a recipe's number, or `{step: number}`. Goes out: the value at a step, on straight lines
between the given steps and flat outside of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Scheduled = float | Mapping[int, float]
"""One value for the whole training, or values at steps."""


def value_at(scheduled: Scheduled, step: int) -> float:
    """Return the value at a step, counted from 0."""
    if not isinstance(scheduled, Mapping):
        return float(scheduled)
    steps = sorted(scheduled)
    return float(np.interp(step, steps, [scheduled[known] for known in steps]))


def largest(scheduled: Scheduled) -> float:
    """Return the largest value that any step has."""
    return float(max(scheduled.values()) if isinstance(scheduled, Mapping) else scheduled)
