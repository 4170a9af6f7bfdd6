"""The one training loop of both pretraining phases: masked language modeling.

Comes in: a model, all its batches, a recipe, a folder. Goes out: the model, trained in place, with
checkpoints and `log.jsonl` in the folder. A run that was stopped or killed continues from its
newest checkpoint and ends with the same weights, bit for bit: batches, masks and dropout are
functions of (seed, step), and everything else is in the checkpoint.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.config import TrainingRecipe
from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.files import write_text
from metaxlm.model.encoder import MaskedLM
from metaxlm.pretraining.batches import Batch, BatchSource
from metaxlm.pretraining.checkpoint import (
    Checkpoint,
    TrainingState,
    load_newest,
    save_checkpoint,
)
from metaxlm.pretraining.optimizer import (
    export_moments,
    import_moments,
    learning_rate,
    make_optimizer,
    set_rate,
)
from metaxlm.progress import say, track
from metaxlm.randomness import derive_seed
from metaxlm.stopping import stop_requests

LOG_NAME = "log.jsonl"
"""The training log beside the checkpoints: one row every `log_every` steps."""


def train(
    model: MaskedLM,
    batches: BatchSource,
    recipe: TrainingRecipe,
    folder: Path,
    seed: int,
    device: torch.device,
    title: str,
) -> TrainingState:
    """Train to the recipe's last step, from the newest checkpoint in the folder if there is one."""
    model.to(device).train()
    first, second = recipe.adam_betas
    optimizer = make_optimizer(
        model,
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        betas=(first, second),
        epsilon=recipe.adam_epsilon,
    )
    state = _resume(model, optimizer, folder, title)
    log = _Log(folder / LOG_NAME, state.step)
    bfloat16 = uses_bfloat16(recipe, device)
    start = time.monotonic() - state.seconds

    def save() -> None:
        state.seconds = time.monotonic() - start
        moments = export_moments(optimizer, model)
        checkpoint = Checkpoint(model.state_dict(), moments, state)
        save_checkpoint(folder, checkpoint, recipe.keep_checkpoints)

    with (
        stop_requests() as stop_requested,
        track(title, recipe.steps, "steps", completed=state.step) as advance,
    ):
        while state.step < recipe.steps:
            batch = batches.batch(state.step).to(device)
            # Dropout draws from torch's generator, so each step gets its own seed.
            torch.manual_seed(derive_seed(seed, "dropout", state.step))
            rate = learning_rate(
                state.step, recipe.learning_rate, recipe.steps, recipe.warmup_steps
            )
            loss, norm = _step(model, optimizer, batch, rate, recipe.clip, bfloat16)
            state.step += 1
            state.tokens += batch.num_tokens
            state.loss_sum += loss
            state.loss_count += 1
            advance(note=f"loss {loss:.3f}")
            if state.step % recipe.log_every == 0 or state.step == recipe.steps:
                state.seconds = time.monotonic() - start
                log.write(state, rate, norm)
                state.loss_sum, state.loss_count = 0.0, 0
            stopping = stop_requested()
            is_last = state.step == recipe.steps
            if state.step % recipe.checkpoint_every == 0 or is_last or stopping:
                save()
            if stopping and not is_last:
                raise Interrupted(f"{title}: stopped after step {state.step}")
    return state


def uses_bfloat16(recipe: TrainingRecipe, device: torch.device) -> bool:
    """Say whether matrix products run in bfloat16: asked for, or `auto` on a GPU that has it."""
    if recipe.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return recipe.precision == "bfloat16"


def _step(
    model: MaskedLM,
    optimizer: torch.optim.AdamW,
    batch: Batch,
    rate: float,
    clip: float,
    bfloat16: bool,
) -> tuple[float, float]:
    """Take one optimizer step; return its loss and the gradient's norm before clipping."""
    with torch.autocast(batch.ids_BL.device.type, torch.bfloat16, enabled=bfloat16):
        logits_MV = model(batch.ids_BL, batch.mask_BL, batch.rows_M)
    loss: Tensor = F.cross_entropy(logits_MV.float(), batch.labels_M)
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip if clip > 0 else math.inf)
    value = loss.item()
    if not math.isfinite(value) or not math.isfinite(float(norm)):
        raise MetaXLMError(
            f"the loss is {value} and the gradient's norm {float(norm)}; lower learning_rate, or "
            f"lengthen warmup_steps; blocks of this step: {batch.samples[:4]} ..."
        )
    set_rate(optimizer, rate)
    optimizer.step()
    return value, float(norm)


def _resume(
    model: MaskedLM, optimizer: torch.optim.AdamW, folder: Path, title: str
) -> TrainingState:
    checkpoint = load_newest(folder)
    if checkpoint is None:
        return TrainingState()
    model.load_state_dict(checkpoint.model)
    import_moments(optimizer, model, checkpoint.moments, checkpoint.state.step)
    say(f"{title}: continuing after step {checkpoint.state.step:,}")
    return checkpoint.state


class _Log:
    """`log.jsonl`; rows later than the checkpoint that a run continues from are dropped."""

    def __init__(self, path: Path, step: int) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        write_text(path, "".join(f"{line}\n" for line in lines if _row_step(line) <= step))

    def write(self, state: TrainingState, rate: float, norm: float) -> None:
        row = {
            "step": state.step,
            "loss": state.loss_sum / state.loss_count,
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens": state.tokens,
            "seconds": round(state.seconds, 3),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _row_step(line: str) -> float:
    """Return a log line's step; a line that a crash cut short counts as never written."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError):
        return math.inf
