"""Sequences to batches: token ids come in, padded tensors of similar lengths go out.

Grouping by length keeps padding, and with it wasted work, to a few percent. Evaluation fills a
batch up to a number of tokens; finetuning keeps the paper's number of examples a step and shuffles
as a pure function of (seed, epoch), so that a run can be repeated bit for bit. Shapes: B batch, L
length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from metaxlm.randomness import generator
from metaxlm.tasks.encoding import Ids

SORTED_BATCHES = 50
"""Finetuning sorts by length within so many batches: little padding, and still well mixed."""


@dataclass(frozen=True)
class Inputs:
    """What an encoder takes, padded and on its device."""

    ids_BL: Tensor
    mask_BL: Tensor | None
    token_types_BL: Tensor | None = None

    def __iter__(self) -> Iterator[Tensor | None]:
        return iter((self.ids_BL, self.mask_BL, self.token_types_BL))


def plan_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Group indices by length, longest first, so that a padded batch has at most `max_tokens`.

    The longest first: if the device has too little memory, that shows at once. A sequence longer
    than `max_tokens` is a batch of its own.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def shuffle_batches(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int
) -> list[list[int]]:
    """Deal one epoch into batches of `batch_size`, similar lengths together, in random order."""
    random = generator(seed, "finetuning order", epoch)
    order = random.permutation(len(lengths))
    pool = SORTED_BATCHES * batch_size
    batches: list[list[int]] = []
    for start in range(0, len(order), pool):
        near = sorted(order[start : start + pool].tolist(), key=lambda i: lengths[i])
        batches += [near[k : k + batch_size] for k in range(0, len(near), batch_size)]
    return [batches[k] for k in random.permutation(len(batches))]


def pad_rows(rows: Sequence[Sequence[int] | Ids], value: int) -> Tensor:
    """Stack rows of different lengths into one int64 tensor, filled up with `value`."""
    table = np.full((len(rows), max(map(len, rows))), value, dtype=np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return torch.from_numpy(table)


def collate_inputs(
    ids: Sequence[Sequence[int] | Ids],
    pad_id: int,
    device: torch.device,
    token_types: Sequence[Sequence[int] | Ids] | None = None,
) -> Inputs:
    """Pad a batch; without any padding there is no mask, which is the faster path."""
    lengths = torch.tensor([len(row) for row in ids])
    ids_BL = pad_rows(ids, pad_id)
    mask_BL = torch.arange(ids_BL.shape[1]) < lengths[:, None]
    return Inputs(
        ids_BL.to(device),
        None if mask_BL.all() else mask_BL.to(device),
        None if token_types is None else pad_rows(token_types, 0).to(device),
    )


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Turn dropout and gradients off, and put the module back into its mode afterwards."""
    was_training = module.training
    module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        module.train(was_training)
