"""Checkpoints that a crash cannot spoil: safetensors and JSON, a manifest of digests last.

A checkpoint is the folder `step-00000200` with `model.safetensors`, `optimizer.safetensors`,
`state.json` and `manifest.json`. It is written under a temporary name, flushed, and renamed.
Loading takes the newest one whose every byte verifies; damaged ones are passed over and said.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.files import atomic_path, read_json, remove, write_json
from metaxlm.manifest import find_damage, write_manifest
from metaxlm.progress import say


@dataclass
class TrainingState:
    """What a run knows beside its tensors; everything else follows from the step."""

    step: int = 0
    """Steps taken."""
    tokens: int = 0
    """Tokens seen, padding not counted."""
    loss_sum: float = 0.0
    """Sum of the losses since the last row of the log."""
    loss_count: int = 0
    """Steps since the last row of the log."""
    seconds: float = 0.0
    """Time spent in training, over all starts."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory."""

    model: dict[str, Tensor]
    moments: dict[str, Tensor]
    state: TrainingState


def save_checkpoint(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint and remove all but the newest `keep`."""
    final = folder / f"step-{checkpoint.state.step:08d}"
    with atomic_path(final) as temporary:
        temporary.mkdir()
        save_file(_contiguous(checkpoint.model), temporary / "model.safetensors")
        save_file(_contiguous(checkpoint.moments), temporary / "optimizer.safetensors")
        write_json(temporary / "state.json", asdict(checkpoint.state))
        write_manifest(temporary, {"step": checkpoint.state.step})
    for old in list_checkpoints(folder)[:-keep]:
        remove(old)
    return final


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def load_newest(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint that verifies, or None when there is none."""
    for path in reversed(list_checkpoints(folder)):
        damage = find_damage(path)
        if not damage:
            return _load(path)
        say(f"passed over a checkpoint: {damage[0]}")
    return None


def _load(path: Path) -> Checkpoint:
    try:
        model = load_file(path / "model.safetensors")
        moments = load_file(path / "optimizer.safetensors")
    except SafetensorError as error:
        raise MetaXLMError(f"{path}: cannot be loaded ({error}); delete it") from error
    return Checkpoint(model, moments, TrainingState(**read_json(path / "state.json")))


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
