"""AdamW and the linear schedule with warm-up, for pretraining and finetuning alike.

Weight decay is decoupled and spares biases and LayerNorms. The learning rate is a pure function of
the step. Moments go in and out by parameter name, so that a checkpoint needs no pickle. The paper's
settings (its appendix tables) come from the recipe.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

MOMENTS = ("exp_avg", "exp_avg_sq")
"""What Adam remembers of each parameter."""


def learning_rate(step: int, peak: float, num_steps: int, warmup_steps: int) -> float:
    """Return the rate of a step counted from 0: up to the peak in warm-up, then down to zero."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * max(0.0, (num_steps - step) / max(1, num_steps - warmup_steps))


def make_optimizer(
    model: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float],
    epsilon: float,
) -> torch.optim.AdamW:
    """Return AdamW over the model's trainable parameters, with and without weight decay."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, eps=epsilon, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every parameter; in place where it lies on the device."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def export_moments(optimizer: torch.optim.AdamW, model: nn.Module) -> dict[str, Tensor]:
    """Return Adam's moments as `exp_avg.NAME` and `exp_avg_sq.NAME`."""
    return {
        f"{moment}.{name}": optimizer.state[parameter][moment]
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for moment in MOMENTS
    }


def import_moments(
    optimizer: torch.optim.AdamW, model: nn.Module, moments: dict[str, Tensor], step: int
) -> None:
    """Put saved moments back, for an optimizer that has taken `step` steps."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            device = parameter.device
            state = {moment: moments[f"{moment}.{name}"].to(device) for moment in MOMENTS}
            state["step"] = torch.tensor(float(step), device=device)
            optimizer.state[parameter] = state
