"""Checkpoints that a crash cannot spoil: safetensors and JSON, a manifest of digests last.

A checkpoint is the folder `step-00000200` with `model.safetensors`, `optimizer.safetensors`,
`state.json` and `manifest.json`. It is written under a temporary name, flushed, and renamed.
Loading takes the newest one whose every byte verifies; damaged ones are passed over and said.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json, write_json
from metaxlm.manifest import atomic_folder, find_damage, write_manifest
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.pretrain.optimizer import MOMENTS
from metaxlm.progress import say


@dataclass
class TrainingState:
    """What a run knows beside its tensors; everything else follows from the step."""

    step: int = 0
    """Steps taken, skipped ones included."""
    tokens: int = 0
    """Tokens seen, padding not counted."""
    loss_sum: float = 0.0
    """Sum of the losses of good steps since the last row of the log."""
    loss_count: int = 0
    """Good steps since the last row of the log."""
    skipped: int = 0
    """Steps that changed nothing because their loss or gradient was not finite."""
    skipped_in_row: int = 0
    """How many of the latest steps in a row were skipped."""
    recent_losses: list[float] = field(default_factory=list)
    """Losses of the latest rows of the log, against which a spike is seen."""
    seconds: float = 0.0
    """Time spent in training, over all starts."""
    log: dict[str, Any] = field(default_factory=dict)
    """Size and digest of the training log up to this step."""

    @property
    def good_steps(self) -> int:
        """Steps that changed the weights: what Adam counts."""
        return self.step - self.skipped


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory."""

    model: dict[str, Tensor]
    moments: dict[str, Tensor]
    state: TrainingState


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, whole or not at all."""
    final = folder / step_name(checkpoint.state.step)
    with atomic_folder(final) as temporary:
        save_file(_contiguous(checkpoint.model), temporary / "model.safetensors")
        save_file(_contiguous(checkpoint.moments), temporary / "optimizer.safetensors")
        write_json(temporary / "state.json", asdict(checkpoint.state))
        write_manifest(temporary, {"step": checkpoint.state.step})
    return final


def step_name(step: int) -> str:
    """Return the name of a step's folder."""
    return f"step-{step:08d}"


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def load_newest(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint that verifies, or None when there is none."""
    for path in reversed(list_checkpoints(folder)):
        damage = find_damage(path)
        if not damage:
            return load_checkpoint(path)
        say(f"passed over a checkpoint: {damage[0]}")
    return None


def check_fit(checkpoint: Checkpoint, model: MaskedLM, folder: Path) -> None:
    """Refuse a checkpoint of another model, or of one that was trained in other parts."""
    moved = {name: p.shape for name, p in model.named_parameters() if p.requires_grad}
    wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
    wanted |= {f"{moment}.{name}": shape for name, shape in moved.items() for moment in MOMENTS}
    found = {name: t.shape for name, t in (checkpoint.model | checkpoint.moments).items()}
    if found != wanted:
        name = min(name for name in wanted | found if wanted.get(name) != found.get(name))
        raise MetaXLMError(
            f"{folder}: its checkpoints are of another model, {name} is "
            f"{_describe(found.get(name))} there and {_describe(wanted.get(name))} here; "
            "choose another folder"
        )


def _describe(shape: torch.Size | None) -> str:
    return "absent" if shape is None else " x ".join(map(str, shape))


def rebuild_model(config: EncoderConfig, checkpoint: Checkpoint) -> MaskedLM:
    """Return the model of a checkpoint, in evaluation mode; it shares the checkpoint's memory."""
    with torch.device("meta"):
        model = MaskedLM(config)
    model.load_state_dict(checkpoint.model, assign=True)
    return model.eval()


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint that was verified."""
    try:
        model = load_file(path / "model.safetensors")
        moments = load_file(path / "optimizer.safetensors")
        state = TrainingState(**read_json(path / "state.json"))
    except (SafetensorError, TypeError) as error:
        raise MetaXLMError(
            f"{path}: whole, but not of this version ({error}); move it away to begin again"
        ) from error
    return Checkpoint(model, moments, state)


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
