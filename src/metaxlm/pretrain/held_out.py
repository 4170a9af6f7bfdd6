"""The loss of each language on blocks that are never trained on.

Comes in: the model being trained, and the fixed held-out blocks of each language. Goes out: the
mean loss per predicted token by language. Masks are the same at every measurement, dropout is off,
and nothing that training depends on is touched: with or without it, the weights are the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metaxlm.config import TrainingRecipe
from metaxlm.pretrain.batches.masking import IGNORED, Masking
from metaxlm.pretrain.batches.source import BatchSource, Piece
from metaxlm.pretrain.device import own_bfloat16
from metaxlm.pretrain.engine import Engine
from metaxlm.pretrain.schedules import largest
from metaxlm.randomness import derive_seed


class HeldOut:
    """Measures the model of a training on its held-out blocks."""

    def __init__(
        self,
        engine: Engine,
        batches: BatchSource,
        masking: Masking,
        recipe: TrainingRecipe,
        seed: int,
    ) -> None:
        self._engine = engine
        self._batches = batches
        self._masking = masking
        self._key = derive_seed(seed, "held-out")
        # One rate whatever the schedule says now, so that measurements can be compared.
        self._probability = largest(recipe.mask_probability)
        self._device = engine.world.device

    def measure(self) -> dict[str, float]:
        """Return each language's loss; languages too small to hold out anything are left out.

        With several processes each measures everything: that is what sharded weights ask for.
        """
        self._engine.model.eval()
        try:
            with torch.no_grad():
                return {
                    language: self._measure(list(pieces))
                    for language in self._batches.languages
                    if (pieces := self._batches.held_out(language))
                }
        finally:
            self._engine.model.train()

    def _measure(self, pieces: list[Piece]) -> float:
        loss = torch.zeros((), dtype=torch.float64, device=self._device)
        count = torch.zeros((), dtype=torch.int64, device=self._device)
        for piece in pieces:
            piece_loss, piece_count = self._add(piece.to(self._device))
            loss += piece_loss
            count += piece_count
        return float(loss / count.clamp_min(1))

    def _add(self, piece: Piece) -> tuple[Tensor, Tensor]:
        masked = self._masking(
            piece.ids_BL, piece.lengths_B, piece.rows_B, self._key, self._probability
        )
        enabled = self._engine.bfloat16
        casting = torch.autocast(self._device.type, torch.bfloat16, enabled)
        with own_bfloat16(self._device, enabled), casting:
            # Without what a teacher prepared: the loss of the masked tokens alone.
            loss, _ = self._engine.objective(masked, piece.lengths_B)
        return loss.double(), (masked.labels_M != IGNORED).sum()
