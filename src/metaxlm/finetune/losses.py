"""The loss of a batch in which not everything is labeled: logits come in, a mean goes out."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from metaxlm.finetune.task import IGNORED


def compute_cross_entropy(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """Return the mean over what is labeled; 0, and not a NaN, if nothing is."""
    total = F.cross_entropy(logits_NC, labels_N, ignore_index=IGNORED, reduction="sum")
    return total / (labels_N != IGNORED).sum().clamp(min=1)
