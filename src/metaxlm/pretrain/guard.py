"""What goes wrong inside a training: steps that are not finite, and losses that jump.

A step whose loss or gradient is not finite changes nothing, on the device itself (`step.py`). Here
the host looks how many there were in a row, without ever waiting for the device, and gives up after
`max_bad_steps` of them with the samples of those steps written down. A spike is a row of the log
whose loss lies far above the rows before it; it is recorded, and training goes on.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.files import write_json

BAD_STEPS_NAME = "bad_steps.json"
"""Beside the checkpoints: the steps that ended a run, with their blocks."""

NUM_RECENT = 50
"""Rows of the log that a new one is compared with."""
_FEWEST_RECENT = 10
_SPIKE_DEVIATIONS = 6.0
_SMALLEST_DEVIATION = 0.01


@dataclass(frozen=True)
class Spike:
    """A loss far above those before it."""

    loss: float
    mean: float
    deviation: float


def find_spike(loss: float, recent: Sequence[float]) -> Spike | None:
    """Return a spike if the loss exceeds the mean of the recent ones by six deviations.

    Less than a hundredth of the mean never counts as a deviation: late in a training rows differ by
    so little that chance alone would look like a spike. With fewer than ten rows nothing is said.
    """
    if len(recent) < _FEWEST_RECENT:
        return None
    mean = statistics.fmean(recent)
    deviation = max(statistics.stdev(recent), _SMALLEST_DEVIATION * abs(mean))
    if loss <= mean + _SPIKE_DEVIATIONS * deviation:
        return None
    return Spike(loss, mean, deviation)


class LateReader:
    """Reads a number from the device some steps late, so that nobody waits for it.

    On a CPU it is never late.
    """

    def __init__(self, number: Tensor) -> None:
        self._number = number
        self._host = torch.zeros((), dtype=number.dtype, pin_memory=number.is_cuda)
        self._copied: torch.cuda.Event | None = None

    def read(self) -> int:
        """Return the newest value that has arrived, and send for the next."""
        if not self._number.is_cuda:
            return int(self._number)
        if self._copied is not None and not self._copied.query():  # type: ignore[no-untyped-call]
            return 0
        value = int(self._host) if self._copied is not None else 0
        self._host.copy_(self._number, non_blocking=True)
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._copied.record(torch.cuda.current_stream(self._number.device))
        return value


def give_up(
    folder: Path,
    steps: Sequence[int],
    samples: Callable[[int], list[tuple[str, int]]],
    *,
    write: bool = True,
) -> MetaXLMError:
    """Write down the samples of bad steps, counted from 0; return the error that ends the run."""
    path = folder / BAD_STEPS_NAME
    if write:
        write_json(path, [{"step": step, "samples": samples(step)} for step in steps])
    return MetaXLMError(
        f"the loss or the gradient was not finite in {len(steps)} steps in a row, {steps[0]:,} to "
        f"{steps[-1]:,}; nothing was changed by them. Their blocks are in {path}; lower "
        "learning_rate, lengthen warmup_steps, or look at these blocks"
    )
