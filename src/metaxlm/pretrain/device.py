"""Which device a process of a run uses, and what it computes in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from metaxlm.errors import MetaXLMError


def choose_device(name: str, local_rank: int = 0, local_size: int = 1) -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `cuda:N` into a device that is there.

    Of several processes on one machine, each takes the GPU of its number.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise MetaXLMError(
            f"--device {name}: not a device; use auto, cpu, cuda or cuda:N"
        ) from error
    if device.type not in ("cpu", "cuda"):
        raise MetaXLMError(f"--device {name}: only cpu and cuda are supported")
    if device.type == "cuda":
        return _choose_gpu(name, device.index, local_rank, local_size)
    return device


def describe_device(device: torch.device) -> str:
    """Name a device for the user."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"cpu, {threads} thread{'s' if threads > 1 else ''}"


@contextmanager
def own_bfloat16(device: torch.device, enabled: bool = True) -> Iterator[None]:
    """Multiply in bfloat16 with torch's own code where a CPU has no instructions for it.

    The library that torch tries first would fail there: a warning with a trace of C++, and the
    library is switched off for good, so that later results of the process have other bits.
    """
    if not enabled or device.type != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        yield
        return
    # Not flags(): that also sets what only Intel's GPUs have, and warns of it.
    switch = partial(torch.backends.mkldnn.set_flags, _fp32_precision=None)
    before, *_ = switch(False)
    try:
        yield
    finally:
        switch(before)


def _choose_gpu(name: str, index: int | None, local_rank: int, local_size: int) -> torch.device:
    found = torch.cuda.device_count()
    if local_size == 1:
        if (index or 0) >= found:
            raise MetaXLMError(f"--device {name}: found {found} CUDA devices; use cpu or auto")
        return torch.device(name)
    if index is not None:
        raise MetaXLMError(
            f"--device {name}: one GPU for {local_size} processes; use cuda, and each takes its own"
        )
    if local_size > found:
        raise MetaXLMError(
            f"--device {name}: {local_size} processes on this machine, but {found} CUDA devices; "
            f"start {found or 'none'} of them here, or use --device cpu"
        )
    return torch.device("cuda", local_rank)
