"""AdamW for the fused path: large weights in one pass each, with the copies that products read.

Torch's AdamW keeps the moments, so that checkpoints do not differ, and updates what is small:
biases and LayerNorms, all at once.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metaxlm.model.encoder import Encoder
from metaxlm.model.kernels.adamw import update
from metaxlm.model.kernels.blocks import pad_rows


class FusedUpdate:
    """Updates a model's weights and holds bfloat16 copies of those that matrix products read."""

    def __init__(
        self, encoder: Encoder, optimizer: torch.optim.AdamW, *, copies_words: bool
    ) -> None:
        self._optimizer = optimizer
        words = encoder.embeddings.words.weight
        self.copies: dict[Tensor, Tensor] = {}
        if copies_words:  # only the head of masked language modeling multiplies with them
            self.copies[words] = pad_rows(words.detach(), torch.bfloat16)
        for name, weight in encoder.layers.named_parameters():
            if weight.ndim > 1 and name.endswith("weight"):
                self.copies[weight] = weight.detach().to(torch.bfloat16)
        self._large = [
            (parameter, group)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.ndim > 1
        ]
        taken = [state["step"] for state in optimizer.state.values()]
        self._time = taken[0].clone() if taken else torch.zeros((), device=words.device)
        for parameter, _ in self._large:
            state = optimizer.state[parameter]
            if not state:
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["step"] = self._time  # one count for all

    @torch.no_grad()
    def step(self, shrink: Tensor, skip: Tensor) -> None:
        """Take a step with gradients divided by `shrink`, or none at all if `skip` is 1."""
        group = self._large[0][1]
        time = self._time.double() + 1
        first, second = (-torch.expm1(time * math.log(beta)) for beta in group["betas"])
        numbers = torch.stack([group["lr"].double(), shrink.double(), first, second.sqrt()]).float()
        for parameter, group in self._large:
            state = self._optimizer.state[parameter]
            update(
                parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"],
                self.copies.get(parameter), numbers, skip,
                group["betas"], group["eps"], group["weight_decay"],
            )  # fmt: skip
            parameter.grad = None  # nothing left here for torch to do
        self._time += 1 - skip
        self._optimizer.grad_scale = shrink  # type: ignore[attr-defined]
        self._optimizer.found_inf = skip  # type: ignore[attr-defined]
        self._optimizer.step()
