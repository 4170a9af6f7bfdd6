"""AdamW with the paper's settings, and the linear schedule with warm-up (appendix, Table 7).

Weight decay is decoupled and spares biases and LayerNorms. The learning rate is a pure function of
the step. Moments go in and out by parameter name, so that a checkpoint needs no pickle.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metaxlm.config import TrainingRecipe

_MOMENTS = ("exp_avg", "exp_avg_sq")


def learning_rate(step: int, peak: float, num_steps: int, warmup_steps: int) -> float:
    """Return the rate of a step counted from 0: up to the peak in warm-up, then down to zero."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * max(0.0, (num_steps - step) / max(1, num_steps - warmup_steps))


def make_optimizer(model: nn.Module, recipe: TrainingRecipe) -> torch.optim.AdamW:
    """Return AdamW over the model's trainable parameters, with and without weight decay."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    first, second = recipe.adam_betas
    return torch.optim.AdamW(
        groups,
        lr=recipe.learning_rate,
        betas=(first, second),
        eps=recipe.adam_epsilon,
        fused=True,
    )


def export_moments(optimizer: torch.optim.AdamW, model: nn.Module) -> dict[str, Tensor]:
    """Return Adam's moments as `exp_avg.NAME` and `exp_avg_sq.NAME`."""
    return {
        f"{moment}.{name}": optimizer.state[parameter][moment]
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for moment in _MOMENTS
    }


def import_moments(
    optimizer: torch.optim.AdamW, model: nn.Module, moments: dict[str, Tensor], step: int
) -> None:
    """Put saved moments back, for an optimizer that has taken `step` steps."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            device = parameter.device
            state = {moment: moments[f"{moment}.{name}"].to(device) for moment in _MOMENTS}
            state["step"] = torch.tensor(float(step), device=device)
            optimizer.state[parameter] = state
