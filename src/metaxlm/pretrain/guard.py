"""Notice a training run that goes wrong, by numbers that its log reads from the device anyway.

Three signs: the loss of a log row is far above those before it; the largest gradient norm since the
last row is five times the running median of such norms; the held-out loss is above its lowest value
while the learning rate falls. A run with `rewind` then goes back to its last checkpoint and skips
the batches since then; a rising held-out loss only warns, because the harm may be older.
"""

import statistics
from collections.abc import Sequence

NORM_FACTOR = 5.0
SMALLEST_RISE = 0.01  # of the lowest held-out loss
MOST_REWINDS = 3  # to the same checkpoint; then training continues with a warning
_NUM_RECENT, _FEWEST_RECENT = 50, 10  # log rows that a new row is compared with
_SPIKE_DEVIATIONS, _SMALLEST_DEVIATION = 6.0, 0.01

Spike = dict[str, float]


def remember(value: float, recent: Sequence[float]) -> list[float]:
    """Return the recent values with a new one."""
    return [*recent, value][-_NUM_RECENT:]


def find_spike(loss: float, recent: Sequence[float]) -> Spike | None:
    """Return loss, mean and deviation if the loss is six deviations above recent losses."""
    if len(recent) < _FEWEST_RECENT:
        return None
    mean = statistics.fmean(recent)
    # Late in training, losses differ so little that noise would look like a spike.
    deviation = max(statistics.stdev(recent), _SMALLEST_DEVIATION * abs(mean))
    if loss <= mean + _SPIKE_DEVIATIONS * deviation:
        return None
    return {"loss": loss, "mean": mean, "deviation": deviation}


def find_steep(norm: float, recent: Sequence[float]) -> Spike | None:
    """Return norm and median if a gradient norm is five times the median of recent ones."""
    if len(recent) < _FEWEST_RECENT or norm <= NORM_FACTOR * (median := statistics.median(recent)):
        return None
    return {"gradient_norm": norm, "median": median}


def find_rise(loss: float, lowest: float | None, *, is_falling: bool) -> Spike | None:
    """Return held-out loss and lowest one if it rises while the learning rate falls."""
    if lowest is None or not is_falling or loss <= lowest * (1 + SMALLEST_RISE):
        return None
    return {"held_out": loss, "lowest": lowest}


def describe(spike: Spike) -> str:
    """Write what happened, for a warning."""
    if "gradient_norm" in spike:
        norm, median = spike["gradient_norm"], spike["median"]
        return f"a gradient norm was {norm:.1f}, usually {median:.1f}"
    if "held_out" in spike:
        loss, lowest = spike["held_out"], spike["lowest"]
        return f"the held-out loss rose to {loss:.3f}, from {lowest:.3f}, while the rate falls"
    return f"the loss jumped to {spike['loss']:.3f}, from about {spike['mean']:.3f}"
