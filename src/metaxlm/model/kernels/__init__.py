"""Triton kernels for training on a GPU: operations that torch runs in several passes, in one.

`blocks.py` and `modern_blocks.py` compose them to the parts of the encoders; each other file has
one kernel pair. All are
deterministic: no atomics, sums in a fixed order, dropout from a hash of (seed, position).
"""

from __future__ import annotations

from importlib.util import find_spec

import torch

from metaxlm.model.encoder import EncoderConfig


def is_available(device: torch.device) -> bool:
    """Return whether the kernels run on a device: NVIDIA Ampere or newer, with Triton."""
    return (
        device.type == "cuda"
        and find_spec("triton") is not None
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def fits(config: EncoderConfig) -> bool:
    """Return whether the kernels support an encoder and its attention heads."""
    return not config.settings and config.head_size in (16, 32, 64, 128)
