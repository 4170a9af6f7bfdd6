"""How finetuning moves the weights: settings come in, an optimizer and a learning rate go out.

The paper's appendix gives rate, decay, linear schedule and 10 % warm-up; betas and epsilon, which
it leaves out, are the (0.9, 0.999) and 1e-8 of XTREME's scripts.
"""

from __future__ import annotations

import torch
from torch import nn

from metaxlm.tasks.task import FinetuneSettings


def make_optimizer(
    model: nn.Module, settings: FinetuneSettings, device: torch.device
) -> torch.optim.Optimizer:
    """Return AdamW; biases and LayerNorms (everything with one dimension) do not decay."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=settings.learning_rate,
        betas=(0.9, 0.999),
        eps=settings.adam_epsilon,
        fused=device.type == "cuda",
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every parameter."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def schedule_rate(step: int, total: int, warmup: float) -> float:
    """Return the share of the peak rate at a step from 0: up for `warmup` of all steps, then down.

    The last step of warm-up has the peak rate, and the step after the last one would have zero.
    """
    warmup_steps = int(total * warmup)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return (total - step) / (total - warmup_steps)
