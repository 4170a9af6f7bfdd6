"""Sequences to batches: token ids come in, padded tensors of similar lengths go out.

Grouping by length keeps padding, and with it wasted work, small. Evaluation fills a batch up to a
number of tokens. A step of finetuning has the paper's number of examples, drawn at random as a pure
function of (seed, epoch): batches of similar lengths learned less (0.5 to 1.0 points of F1 in short
trainings of a tagger), perhaps because a batch of short sentences has few words. What a random step
can save, it saves within: its examples are packed, or computed in groups of similar length.
Shapes: B batch, L length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from metaxlm.finetune.encoding import Ids
from metaxlm.randomness import generator


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
    """Deal one epoch into random batches of `batch_size`; within a batch the longest come first."""
    order = generator(seed, "finetuning order", epoch).permutation(len(lengths)).tolist()
    return [
        sorted(order[start : start + batch_size], key=lambda i: -lengths[i])
        for start in range(0, len(order), batch_size)
    ]


def split_batch(lengths: Sequence[int], group_cost: int) -> list[int]:
    """Return the sizes of groups to compute a batch in, given its lengths, longest first.

    They are the cheapest: a group costs its padded tokens, and `group_cost` tokens for itself.
    """
    starts = [k for k in range(len(lengths)) if k == 0 or lengths[k] != lengths[k - 1]]
    ends = [*starts[1:], len(lengths)]
    best = [(0, 0)] + [(0, 0)] * len(starts)
    """Cost of the first so many runs of equal lengths, and where their last group starts."""
    for last, end in enumerate(ends):
        best[last + 1] = min(
            (best[first][0] + lengths[starts[first]] * (end - starts[first]) + group_cost, first)
            for first in range(last + 1)
        )
    sizes: list[int] = []
    last = len(starts)
    while last:
        first = best[last][1]
        sizes.append(ends[last - 1] - starts[first])
        last = first
    return sizes[::-1]


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
