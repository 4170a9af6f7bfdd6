"""Sequences of a data set on the device: features come in once, padded batches are gathered there.

All token ids lie one after another in one tensor, so that a step needs no more from the host than
the numbers of its sequences. Gathering has fixed shapes and can be a part of a CUDA graph. Shapes:
S sequences, N all tokens, B batch, L length, W labels of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metaxlm.model.encoder import EncoderConfig
from metaxlm.tasks.task import IGNORED, Features


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


class FeatureTable:
    """The sequences of a data set, and one more: a padding token without label."""

    def __init__(
        self, features: Sequence[Features], config: EncoderConfig, device: torch.device
    ) -> None:
        self.filler = len(features)
        """Number of the sequence that fills up a batch and is never predicted."""
        self.lengths = [len(sequence.ids) for sequence in features]
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
