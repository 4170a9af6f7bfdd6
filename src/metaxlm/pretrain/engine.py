"""What stands on the device during a training: model, optimizer, step, totals.

Comes in: the pieces of a step. Goes out: a trained model, and at the steps where somebody asks, its
numbers and its tensors. The loop knows the device only through here, and waits for it only in
`read` and `collect`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metaxlm.config import ExecutionRecipe, TrainingRecipe
from metaxlm.model.encoder import MaskedLM
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import Piece
from metaxlm.pretrain.checkpoint import Checkpoint, TrainingState
from metaxlm.pretrain.distributed import World
from metaxlm.pretrain.guard import LateReader
from metaxlm.pretrain.objective import Objective, Teacher
from metaxlm.pretrain.optimizer import make_optimizer
from metaxlm.pretrain.step import TrainingStep


class Engine:
    """A model with everything that trains it, in one process or in a share of many."""

    def __init__(
        self,
        model: MaskedLM,
        masking: Masking,
        recipe: TrainingRecipe,
        execution: ExecutionRecipe,
        world: World,
        teacher: Teacher | None = None,
    ) -> None:
        self.model = model.to(world.device).train()
        self.world = world
        self.bfloat16 = uses_bfloat16(recipe, world.device)
        objective = Objective(model, teacher, kernels=execution.kernels)
        self.objective = world.wrap(objective, execution.sharding)
        # Afterwards, because sharding replaces the parameters.
        self._optimizer = make_optimizer(
            model,
            learning_rate=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            betas=(recipe.adam_betas[0], recipe.adam_betas[1]),
            epsilon=recipe.adam_epsilon,
        )
        self._step = TrainingStep(
            self.objective,
            self._optimizer,
            masking,
            world,
            clip=recipe.clip,
            bfloat16=self.bfloat16,
        )
        self._bad_in_row = LateReader(self._step.totals.bad_in_row)
        self._new_tokens = 0

    def take_step(
        self, pieces: Sequence[Piece], rate: float, probability: float, mask_key: int
    ) -> None:
        """Hand a step to the device; it need not be done when this returns."""
        self._step(pieces, rate, probability, mask_key)
        self._new_tokens += sum(piece.num_tokens for piece in pieces)

    def count_bad_steps(self) -> int:
        """Return how many steps in a row were bad, as of a few steps ago; this never waits."""
        return self._bad_in_row.read()

    def read(self, state: TrainingState) -> float:
        """Bring a state up to date; return the last gradient's norm. All processes ask together."""
        new_tokens = torch.tensor(self._new_tokens, device=self.world.device)
        state.tokens += int(self.world.sum(new_tokens))
        self._new_tokens = 0
        totals = self._step.totals
        numbers = (totals.loss, totals.steps, totals.bad, totals.bad_in_row, totals.norm)
        loss, count, bad, bad_in_row, norm = torch.stack([n.double() for n in numbers]).tolist()
        state.loss_sum, state.loss_count = loss, int(count)
        state.skipped, state.skipped_in_row = int(bad), int(bad_in_row)
        return float(norm)

    def begin_mean(self, state: TrainingState) -> None:
        """Begin a new mean of losses, after a row of the log."""
        self._step.totals.reset()
        state.loss_sum, state.loss_count = 0.0, 0

    def collect(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the whole weights and moments in the main process. All processes ask together."""
        return self.world.full_state(self.model, self._optimizer)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint; only the main process needs its tensors."""
        state, totals = checkpoint.state, self._step.totals
        self.world.load_state(
            self.model, self._optimizer, checkpoint.model, checkpoint.moments, state.good_steps
        )
        totals.loss.fill_(state.loss_sum)
        totals.steps.fill_(state.loss_count)
        totals.bad.fill_(state.skipped)
        totals.bad_in_row.fill_(state.skipped_in_row)


def uses_bfloat16(recipe: TrainingRecipe, device: torch.device) -> bool:
    """Say whether matrix products run in bfloat16: asked for, or `auto` on a GPU that has it."""
    if recipe.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return recipe.precision == "bfloat16"
