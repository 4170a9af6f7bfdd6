"""AdamW, schedules and the loss scale of float16, for pretraining and finetuning.

Weight decay is decoupled and excludes biases and LayerNorms. The learning rate rises linearly in
warm-up and decays linearly to zero. A checkpoint has the moments by parameter name, without pickle.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's state of each parameter
RATE_FACTOR = "rate_factor"  # of a group of parameters, relative to the learning rate
# Of the loss scale, as in torch.amp.GradScaler: it doubles after this many good steps in a row.
_FIRST_SCALE, _LEAST_SCALE, _GROWTH_INTERVAL = 2.0**16, 1.0, 2_000
Scheduled = float | Mapping[int, float]  # a constant, or values at steps, interpolated linearly


def value_at(scheduled: Scheduled, step: int) -> float:
    """Return the value at a step, counted from 0."""
    if not isinstance(scheduled, Mapping):
        return float(scheduled)
    steps = sorted(scheduled)
    return float(np.interp(step, steps, [scheduled[known] for known in steps]))


def largest(scheduled: Scheduled) -> float:
    """Return the largest value over all steps."""
    return float(max(scheduled.values()) if isinstance(scheduled, Mapping) else scheduled)


def learning_rate(step: int, peak: float, num_steps: int, warmup_steps: int) -> float:
    """Return the learning rate of a step, counted from 0."""
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
    body_rate: float = 1.0,
) -> torch.optim.AdamW:
    """Return AdamW over the model's trainable parameters, with and without weight decay.

    The layers of a model with `find_part` are trained with `body_rate` times the learning rate.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    body = {name for name, _ in named if body_rate != 1.0 and model.find_part(name) == "layers"}  # type: ignore[operator]
    groups = [
        {
            "params": [p for n, p in named if (p.ndim > 1) == is_large and (n in body) == is_body],
            "weight_decay": weight_decay if is_large else 0.0,
            RATE_FACTOR: body_rate if is_body else 1.0,
        }
        for is_body in ((False, True) if body else (False,))
        for is_large in (True, False)
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, eps=epsilon, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters, in place if it is a tensor on the device."""
    for group in optimizer.param_groups:
        scaled = rate * group.get(RATE_FACTOR, 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(scaled)
        else:
            group["lr"] = scaled


def export_moments(optimizer: torch.optim.AdamW, model: nn.Module) -> dict[str, Tensor]:
    """Return Adam's moments as `exp_avg.NAME` and `exp_avg_sq.NAME`."""
    return {
        f"{moment}.{name}": optimizer.state[parameter][moment]
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for moment in MOMENTS
    }


class LossScale:
    """The factor of the loss in float16, whose small gradients would be 0 without it.

    It stays on the device. Its rule is that of torch.amp.GradScaler, which cannot clip by the
    divisor of the fused AdamW: halve after an overflow, double after 2,000 steps without one.
    """

    def __init__(self, device: torch.device) -> None:
        self.value = torch.tensor(_FIRST_SCALE, device=device)
        self.good_steps = torch.zeros((), dtype=torch.int64, device=device)  # since it changed

    def is_overflow(self, bad: Tensor, loss: Tensor) -> Tensor:
        """Return whether a lower scale may make a bad step good: not if the loss is not finite."""
        return bad & loss.isfinite() & (self.value > _LEAST_SCALE)

    def update(self, bad: Tensor) -> None:
        """Adapt to a step."""
        self.good_steps.copy_((self.good_steps + 1) * ~bad)
        is_due = self.good_steps >= _GROWTH_INTERVAL
        factor = torch.where(bad, 0.5, torch.where(is_due, 2.0, 1.0))
        self.value.copy_((self.value * factor).clamp_min(_LEAST_SCALE))
        self.good_steps.mul_(~is_due)
