"""A model in shards, one in each process: torch's FSDP2, and the way in and out of it.

Only several processes import this: it costs half a second that a single one need not wait.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from metaxlm.model.encoder import Layer


def shard(objective: nn.Module) -> None:
    """Split a model over all processes, layer by layer; its parameters are replaced."""
    for module in objective.modules():
        if isinstance(module, Layer):
            fully_shard(module)
    fully_shard(objective)
    objective.register_forward_hook(_release)


def _release(objective: nn.Module, *_: object) -> None:
    """Take apart what a forward without a backward has gathered, as checkpoints expect it."""
    if isinstance(objective, FSDPModule) and not torch.is_grad_enabled():
        objective.reshard()


def add_gradients(objective: nn.Module, now: bool) -> None:
    """Say whether the next backward adds the gradients of all processes, if these are sharded."""
    if isinstance(objective, FSDPModule):
        objective.set_requires_gradient_sync(now)


def is_sharded(tensor: Tensor) -> bool:
    """Say whether a process holds only a part of a tensor."""
    return isinstance(tensor, DTensor)


def take_part(tensor: Tensor) -> Tensor:
    """Return what this process holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gather(tensor: Tensor) -> Tensor:
    """Return a whole tensor; all processes must ask together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def scatter(whole: Tensor, like: Tensor) -> Tensor:
    """Return this process's shard of the main one's tensor; all processes must ask together."""
    assert isinstance(like, DTensor)
    return distribute_tensor(whole, like.device_mesh, like.placements)
