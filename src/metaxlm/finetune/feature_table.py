"""Sequences of a data set on the device: features come in once, padded batches are gathered there.

All token ids lie one after another in one tensor, so that a step needs no more from the host than
the numbers of its sequences. Gathering has fixed shapes and can be a part of a CUDA graph. Shapes:
S sequences, N tokens one after another, B batch, L length, W labels of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.finetune.task import IGNORED, Features
from metaxlm.model.encoder import EncoderConfig


@dataclass(frozen=True)
class Batch:
    """What a task model takes, padded and on its device."""

    ids_BL: Tensor
    lengths_B: Tensor
    token_types_BL: Tensor | None
    labels_BW: Tensor

    def mask(self) -> Tensor:
        """Return True for real tokens, [B, L]."""
        columns_L = torch.arange(self.ids_BL.shape[1], device=self.ids_BL.device)
        return columns_L < self.lengths_B[:, None]


@dataclass(frozen=True)
class Packed:
    """What the fused kernels take: sequences one after another without padding."""

    ids_N: Tensor
    """After the last sequence padding follows, which belongs to none."""
    token_types_N: Tensor | None
    lengths_B: Tensor
    starts_B1: Tensor
    """The first token of each sequence, and the one after the last."""
    labels_BW: Tensor
    """Tags are [1, N], as the tokens."""
    longest: int
    """No sequence is longer."""


@dataclass(frozen=True)
class _Column:
    """Values of all sequences, one after another."""

    values_N: Tensor
    starts_S: Tensor
    lengths_S: Tensor
    filler: int

    @classmethod
    def make(cls, rows: Sequence[np.ndarray], filler: int, device: torch.device) -> _Column:
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        starts = np.concatenate([[0], lengths.cumsum()[:-1]])
        tensors = (torch.from_numpy(a) for a in (np.concatenate(rows), starts, lengths))
        values_N, starts_S, lengths_S = (tensor.to(device) for tensor in tensors)
        return cls(values_N, starts_S, lengths_S, filler)

    def gather(self, rows_B: Tensor, width: int) -> Tensor:
        columns_W = torch.arange(width, device=rows_B.device)
        places_BW = self.starts_S[rows_B][:, None] + columns_W
        values_BW = self.values_N[places_BW.clamp_max(len(self.values_N) - 1)].long()
        is_real_BW = columns_W < self.lengths_S[rows_B][:, None]
        return torch.where(is_real_BW, values_BW, self.filler)

    def take(self, rows_N: Tensor, places_N: Tensor, is_real_N: Tensor) -> Tensor:
        """Return one value for each token, given its sequence and its place in it."""
        where_N = torch.where(is_real_N, self.starts_S[rows_N] + places_N, 0)
        return torch.where(is_real_N, self.values_N[where_N].long(), self.filler)


class FeatureTable:
    """The sequences of a data set, and one more: a padding token without label."""

    def __init__(
        self, features: Sequence[Features], config: EncoderConfig, device: torch.device
    ) -> None:
        self.filler = len(features)
        """Number of the sequence that fills up a batch and is never predicted."""
        self.lengths = [len(sequence.ids) for sequence in features]
        self.longest = max(self.lengths)
        width = len(features[0].labels)
        is_tagging = all(len(f.labels) == len(f.ids) for f in features)
        self._width = None if is_tagging else width
        nothing = np.array([IGNORED] * (1 if is_tagging else width), dtype=np.int32)
        pad = np.array([config.pad_id], dtype=np.int32)
        self._ids = _Column.make([*(f.ids for f in features), pad], config.pad_id, device)
        self._labels = _Column.make([*(f.labels for f in features), nothing], IGNORED, device)
        self._types: _Column | None = None
        types = [f.token_types for f in features if f.token_types is not None]
        if config.num_token_types > 1 and types:
            assert len(types) == len(features), "either all sequences have token types, or none"
            zero = np.zeros(1, dtype=np.int32)
            self._types = _Column.make([*types, zero], 0, device)

    def gather(self, rows_B: Tensor, length: int) -> Batch:
        """Return sequences by number, padded to `length`."""
        return Batch(
            self._ids.gather(rows_B, length),
            self._ids.lengths_S[rows_B].int(),
            None if self._types is None else self._types.gather(rows_B, length),
            self._labels.gather(rows_B, length if self._width is None else self._width),
        )

    def pack(self, rows_B: Tensor, total: int) -> Packed:
        """Return sequences by number, one after another, filled up to `total` tokens."""
        lengths_B = self._ids.lengths_S[rows_B]
        starts_B1 = F.pad(lengths_B.cumsum(0), (1, 0))
        numbers_N = torch.arange(total, device=rows_B.device)
        sequence_N = torch.searchsorted(starts_B1[1:], numbers_N, right=True)
        is_real_N = sequence_N < len(rows_B)
        places_N = numbers_N - starts_B1[sequence_N]
        rows_N = rows_B[sequence_N.clamp_max(len(rows_B) - 1)]
        where = rows_N, places_N, is_real_N
        if self._width is None:
            labels_BW = self._labels.take(*where).unsqueeze(0)
        else:
            labels_BW = self._labels.gather(rows_B, self._width)
        return Packed(
            self._ids.take(*where),
            None if self._types is None else self._types.take(*where),
            lengths_B.int(),
            starts_B1.int(),
            labels_BW,
            self.longest,
        )
