"""Which device a run uses."""

from __future__ import annotations

import torch

from metaxlm.errors import MetaXLMError


def choose_device(name: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `cuda:N` into a device that is there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise MetaXLMError(
            f"--device {name}: not a device; use auto, cpu, cuda or cuda:N"
        ) from error
    if device.type not in ("cpu", "cuda"):
        raise MetaXLMError(f"--device {name}: only cpu and cuda are supported")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise MetaXLMError(
            f"--device {name}: found {torch.cuda.device_count()} CUDA devices; use cpu or auto"
        )
    return device
