"""What a piece of a step costs: its masked tokens, and what a teacher adds.

Comes in: a masked piece on the model's device. Goes out: the sum of its losses, for the step to
divide by the number of predictions in all pieces, and the teacher's term, which is divided already.
It is a module because that is what DDP and FSDP wrap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from metaxlm.model.encoder import MaskedLM
from metaxlm.model.fused import fits, is_available
from metaxlm.pretrain.batches.masking import Masked
from metaxlm.pretrain.batches.source import Extra


class Teacher(Protocol):
    """Adds a loss of its own, such as distillation."""

    def loss(self, model: MaskedLM, hidden_BLD: Tensor, masked: Masked, extra: Extra) -> Tensor:
        """Return the weighted term of a piece; the terms of a step's pieces are added."""
        ...


class Objective(nn.Module):
    """A model with the loss that it is trained on."""

    def __init__(
        self, model: MaskedLM, teacher: Teacher | None = None, *, kernels: str = "auto"
    ) -> None:
        super().__init__()
        self.model = model
        self.teacher = teacher
        self.copies: Mapping[Tensor, Tensor] = {}
        """Weights in bfloat16, kept by who updates them; without, they are cast where needed."""
        self._kernels = kernels

    def uses_fused_kernels(self, device: torch.device) -> bool:
        """Say whether the fused kernels compute it: on a GPU that has them, in bfloat16."""
        wanted = self._kernels == "auto" and torch.is_autocast_enabled()
        return wanted and is_available(device) and fits(self.model.config)

    def forward(
        self,
        masked: Masked,
        lengths_B: Tensor,
        extra: Extra | None = None,
        seed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the sum of the masked tokens' losses, and the teacher's term (0 without one).

        Dropout of the fused kernels follows from `seed`, that of torch from torch's generator.
        """
        if self.uses_fused_kernels(lengths_B.device):
            is_taught = self.teacher is not None and extra is not None
            hidden_BLD, loss = self._compute_fused(masked, lengths_B, seed, is_taught)
        else:
            columns_L = torch.arange(masked.ids_BL.shape[1], device=lengths_B.device)
            hidden_BLD = self.model.encoder(masked.ids_BL, columns_L < lengths_B[:, None])
            loss = self.model.loss_sum(hidden_BLD, masked.rows_M, masked.labels_M)
        if self.teacher is None or extra is None:
            return loss, torch.zeros((), device=loss.device)
        return loss, self.teacher.loss(self.model, hidden_BLD, masked, extra)

    def _compute_fused(
        self, masked: Masked, lengths_B: Tensor, seed: Tensor | None, is_taught: bool
    ) -> tuple[Tensor, Tensor]:
        from metaxlm.model.kernels.blocks import Blocks, TiedGradient

        if seed is None:
            assert not self.model.training, "dropout needs a seed"
            seed = torch.zeros(1, dtype=torch.int64, device=lengths_B.device)
        tied = TiedGradient(is_used=not is_taught)
        length = masked.ids_BL.shape[1]
        blocks = Blocks(lengths_B, length, seed, copies=self.copies, tied=tied)
        hidden_BLD = self.model.encoder.encode_blocks(masked.ids_BL, blocks)
        return hidden_BLD, self.model.loss_sum(hidden_BLD, masked.rows_M, masked.labels_M, blocks)
