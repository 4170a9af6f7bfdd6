"""Forward passes of a task model: a batch comes in, float32 logits go out.

Two ways. An encoder of ours takes sequences packed one after another: no token is padding but the
few that round the total on a GPU, where the fused kernels run. Any other encoder takes padded
batches, as plain torch and in bfloat16 on a GPU. Shapes: B batch, L length, N tokens, C classes, D
hidden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from metaxlm.finetune.feature_table import Batch, Packed
from metaxlm.finetune.task import Logits
from metaxlm.model import kernels
from metaxlm.model.encoder import Encoder
from metaxlm.model.heads import ClassificationHead, SpanHead, TaskModel

_STEPS = 16
"""Totals between a power of two and the next: few different ones, 3 % of them filled up."""
_SMALLEST = 64
"""Totals are multiples of this."""


def round_total(total: int, device: torch.device) -> int:
    """Return the number of tokens that are computed for packed sequences with `total`."""
    if device.type == "cpu":
        return total
    multiple = max(_SMALLEST, (1 << (total.bit_length() - 1)) // _STEPS)
    return -(-total // multiple) * multiple


def takes_packed(model: nn.Module, device: torch.device) -> bool:
    """Say whether a model takes packed sequences: an encoder of ours, where its kernels run."""
    if not isinstance(model, TaskModel) or not isinstance(model.encoder, Encoder):
        return False
    return device.type == "cpu" or runs_fused(model.encoder, device)


def runs_fused(encoder: Encoder, device: torch.device) -> bool:
    """Say whether the fused kernels compute an encoder on a device."""
    return kernels.is_available(device) and kernels.fits(encoder.config.head_size)


def compute_logits(model: nn.Module, batch: Batch, is_even: bool) -> Tensor:
    """Return a padded batch's logits; without padding (`is_even`) there is no mask to read."""
    with _autocast(batch.ids_BL.device):
        mask_BL = None if is_even else batch.mask()
        logits: Tensor = model(batch.ids_BL, mask_BL, batch.token_types_BL)
    return logits.float()


def compute_packed(
    model: nn.Module,
    packed: Packed,
    seed: Tensor | None = None,
    copies: Mapping[Tensor, Tensor] | None = None,
) -> Tensor:
    """Return packed sequences' logits.

    They are [B, C] of classes, [B, L, 2] of answers' ends, and [1, N, C] of tags. For the fused
    kernels, `seed` decides dropout, and `copies` are weights that are there in bfloat16 already.
    """
    assert isinstance(model, TaskModel)
    device = packed.ids_N.device
    with _autocast(device):
        if device.type == "cpu":
            lengths = packed.lengths_B.tolist()
            hidden_ND = model.encoder.encode_packed(packed.ids_N, lengths, packed.token_types_N)
        else:
            hidden_ND = _encode_fused(model.encoder, packed, seed, copies or {})
        firsts_B = packed.starts_B1[:-1]
        if isinstance(model.head, ClassificationHead):
            classes_BC: Tensor = model.head(hidden_ND.index_select(0, firsts_B).unsqueeze(1))
            return classes_BC.float()
        logits_1NC = model.head(hidden_ND.unsqueeze(0)).float()
        if not isinstance(model.head, SpanHead):
            tags_1NC: Tensor = logits_1NC
            return tags_1NC
        columns_L = torch.arange(packed.longest, device=device)
        # Beyond a sequence's end stand tokens of another one, which the loss leaves out.
        places_BL = (firsts_B[:, None] + columns_L).clamp_max(len(hidden_ND) - 1)
        ends_BL2: Tensor = logits_1NC[0].index_select(0, places_BL.flatten())
        return ends_BL2.view(*places_BL.shape, -1)


def _encode_fused(
    encoder: Encoder, packed: Packed, seed: Tensor | None, copies: Mapping[Tensor, Tensor]
) -> Tensor:
    from metaxlm.model.kernels.blocks import Blocks, TiedGradient

    if seed is None:
        seed = torch.zeros(1, dtype=torch.int64, device=packed.ids_N.device)
    blocks = Blocks(
        packed.lengths_B,
        packed.longest,
        seed,
        copies=copies,
        tied=TiedGradient(is_used=False),
        packed_starts_B1=packed.starts_B1,
    )
    return encoder.encode_blocks(packed.ids_N, blocks, packed.token_types_N)


def split_logits(logits: Tensor, lengths: Sequence[int]) -> list[Logits]:
    """Return each sequence's logits, [C] or [its length, C], of either pass."""
    values = logits.cpu().numpy()
    if values.ndim == 2:
        return list(values)
    if len(values) == 1 and len(lengths) > 1:
        ends = np.cumsum(lengths)
        return np.split(values[0, : ends[-1]], ends[:-1])
    return [row[:length] for row, length in zip(values, lengths, strict=True)]


def _autocast(device: torch.device) -> torch.autocast:
    # A graph must cast weights in each replay, not find them in a cache from before.
    return torch.autocast(device.type, torch.bfloat16, device.type == "cuda", cache_enabled=False)
