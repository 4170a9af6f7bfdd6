"""A quantity measured with several seeds: means and differences are taken within each seed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

Series = dict[int, float]
"""A value for each seed."""


def average_series(many: Sequence[Series]) -> Series:
    """Average several quantities within each seed, over the seeds that all of them have.

    Without a common seed (half-finished runs) the means are averaged into one value, as seed 0.
    """
    if not many or not all(many):
        return {}
    shared = [seed for seed in many[0] if all(seed in series for series in many)]
    if not shared:
        return {0: statistics.fmean(find_mean(series) for series in many)}
    return {seed: statistics.fmean(series[seed] for series in many) for seed in shared}


def subtract_series(left: Series, right: Series) -> Series:
    """Subtract seed by seed, over the seeds both have; without a common one, the means."""
    if not left or not right:
        return {}
    if shared := {seed: left[seed] - right[seed] for seed in left if seed in right}:
        return shared
    return {0: find_mean(left) - find_mean(right)}


def find_mean(series: Series) -> float:
    """Return the mean over seeds."""
    return statistics.fmean(series.values())
