"""Save and load checkpoints that survive crashes.

A checkpoint is the folder `step-00000200` with `model.safetensors`, `optimizer.safetensors`,
`state.json` and `manifest.json` (digests). Tensors are copied to host memory, and a background
thread writes the copy while training continues. Loading uses the newest undamaged checkpoint.
"""

import shutil
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from metaxlm.errors import MetaXLMError, describe_failure
from metaxlm.files import TEMPORARY_PREFIX, read_json, remove, write_json
from metaxlm.manifest import atomic_folder, find_damage, write_manifest
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.model.model_folder import save_file
from metaxlm.pretrain.optimizer import MOMENTS
from metaxlm.progress import say


@dataclass
class TrainingState:
    """The state of a run besides its tensors; everything else follows from the step."""

    step: int = 0  # including skipped ones
    tokens: int = 0  # without padding
    loss_sum: float = 0.0  # of good steps since the last log row
    loss_count: int = 0  # good steps since the last log row
    skipped: int = 0  # steps whose loss or gradient was not finite
    skipped_in_row: int = 0
    recent_losses: list[float] = field(default_factory=list)  # of log rows, for spike detection
    recent_norms: list[float] = field(default_factory=list)  # largest ones of log rows
    largest_norm: float = 0.0  # of good steps since the last log row
    lowest_held_out: float | None = None  # mean over languages
    skipped_batches: int = 0  # step k is trained on batch k + this number
    rewinds: int = 0  # to the checkpoint before, since it was saved
    loss_scale: float | None = None  # of float16
    scale_steps: int = 0  # good steps since the loss scale changed
    seconds: float = 0.0  # over all starts
    log: dict[str, Any] = field(default_factory=dict)  # size and digest of the training log

    @property
    def good_steps(self) -> int:
        """Number of steps that updated the weights, which is Adam's step count."""
        return self.step - self.skipped


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory."""

    model: dict[str, Tensor]
    moments: dict[str, Tensor]
    state: TrainingState


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint atomically."""
    final = folder / step_name(checkpoint.state.step)
    with atomic_folder(final) as temporary:
        for name, found in (("model", checkpoint.model), ("optimizer", checkpoint.moments)):
            tensors = {key: tensor.detach().contiguous() for key, tensor in found.items()}
            save_file(tensors, temporary / f"{name}.safetensors")
        write_json(temporary / "state.json", asdict(checkpoint.state))
        write_manifest(temporary, {"step": checkpoint.state.step})
    return final


def step_name(step: int) -> str:
    """Return the folder name of a step."""
    return f"step-{step:08d}"


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def load_newest(
    folder: Path, is_eligible: Callable[[int], bool] | None = None
) -> Checkpoint | None:
    """Return the newest undamaged checkpoint of an eligible step, or None; log damaged ones."""
    for path in reversed(list_checkpoints(folder)):
        if is_eligible is not None and not is_eligible(int(path.name.rpartition("-")[2])):
            continue
        damage = find_damage(path)
        if not damage:
            return load_checkpoint(path)
        say(f"skipped a damaged checkpoint: {damage[0]}")
    return None


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a verified checkpoint."""
    try:
        model = load_file(path / "model.safetensors")
        moments = load_file(path / "optimizer.safetensors")
        state = TrainingState(**read_json(path / "state.json"))
    except (SafetensorError, TypeError) as error:
        raise MetaXLMError(
            f"{path}: incompatible checkpoint ({error}); move it away to start from scratch"
        ) from error
    return Checkpoint(model, moments, state)


def check_fit(checkpoint: Checkpoint, model: MaskedLM, folder: Path) -> None:
    """Raise an error if a checkpoint has other parameters or other trained parameters."""
    moved = {name: p.shape for name, p in model.named_parameters() if p.requires_grad}
    wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
    wanted |= {f"{moment}.{name}": shape for name, shape in moved.items() for moment in MOMENTS}
    found = {name: t.shape for name, t in (checkpoint.model | checkpoint.moments).items()}
    if found != wanted:
        name = min(name for name in wanted | found if wanted.get(name) != found.get(name))
        raise MetaXLMError(
            f"{folder}: its checkpoints are of another model: {name} is "
            f"{_describe(found.get(name))} there and {_describe(wanted.get(name))} here; "
            "choose another folder"
        )


def require_space(needed_bytes: int, folder: Path, *others: Path) -> None:
    """Raise an error if there is too little free disk space; count existing files as available."""
    files = [path for place in (folder, *others) for path in place.rglob("*") if path.is_file()]
    more = needed_bytes - sum(path.stat().st_size for path in files)
    free = shutil.disk_usage(folder).free
    if more > free:
        raise MetaXLMError(
            f"{folder}: checkpoints need {more:,} bytes ({more / 1e6:,.1f} MB) more, but only "
            f"{free:,} bytes ({free / 1e6:,.1f} MB) are free; free space, lower keep_checkpoints "
            "or keep_steps, or choose another --output"
        )


class CheckpointWriter:
    """Saves the checkpoints of a training run in a background thread, one at a time.

    `publish` receives every checkpoint of the permanent steps before it is written. The newest one
    at a multiple of `every` is kept beside the others. A failed save raises an error at the next
    save or at the end.
    """

    def __init__(
        self,
        folder: Path,
        keep: int,
        permanent: Collection[int] = (),
        publish: Callable[[Checkpoint], None] | None = None,
        newest_step: int = 0,
        every: int = 0,
    ) -> None:
        self._folder, self._keep, self._every = folder, keep, every
        self._permanent = frozenset(permanent)
        self._publish = publish
        self._newest_step = newest_step
        self._buffers: dict[str, Tensor] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._thread.shutdown()
        if kind is None:
            self.wait()

    def save(
        self,
        model: Mapping[str, Tensor],
        moments: Mapping[str, Tensor],
        state: TrainingState,
        *,
        wait: bool = False,
    ) -> None:
        """Save the current values of the tensors; they may change as soon as this returns."""
        self.wait()
        state = replace(state, recent_losses=list(state.recent_losses))
        checkpoint = Checkpoint(self._copy(model), self._copy(moments), state)
        device = next((t.device for t in {**model, **moments}.values() if t.is_cuda), None)
        copied = None
        if device is not None:
            # The copies are in the GPU's queue before any later change of the tensors.
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(torch.cuda.current_stream(device))
        self._pending = self._thread.submit(self._write, checkpoint, copied)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the last save is on disk; raise its error if it failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copy tensors to reused host buffers, which are pinned if the tensors are on a GPU."""
        for name, tensor in tensors.items():
            if name not in self._buffers:
                self._buffers[name] = torch.empty(
                    tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda
                )
            self._buffers[name].copy_(tensor.detach(), non_blocking=tensor.is_cuda)
        return {name: self._buffers[name] for name in tensors}

    def _write(self, checkpoint: Checkpoint, copied: torch.cuda.Event | None) -> None:
        if copied is not None:
            copied.synchronize()
        step = checkpoint.state.step
        try:
            if step in self._permanent and self._publish:
                self._publish(checkpoint)
            save_checkpoint(self._folder, checkpoint)
            self._newest_step = step
            regular = {step // self._every * self._every} if self._every else set()
            remove_old(self._folder, step, self._keep, self._permanent | regular)
        except Exception as error:
            if not isinstance(error, MetaXLMError) and describe_failure(error) is None:
                raise
            place, reason = self._folder / step_name(step), str(error)
            if isinstance(error, OSError):
                place, reason = Path(error.filename or place), error.strerror or reason
            newest = self._newest_step
            what = "saved, but an older one not removed" if newest == step else "not saved"
            resume = f"resume after step {newest:,}" if newest else "start from scratch"
            raise MetaXLMError(
                f"{place}: checkpoint of step {step:,} {what} ({reason}); free disk space or "
                f"repair the disk and run again: training will {resume}"
            ) from error


def remove_old(folder: Path, newest_step: int, keep: int, permanent: Collection[int]) -> None:
    """Remove all but the newest `keep` checkpoints up to a step, and the permanent ones."""
    # Later checkpoints are damaged, or the run would have resumed from them; they do not count.
    names = {step_name(step) for step in permanent}
    upto = [path for path in list_checkpoints(folder) if path.name <= step_name(newest_step)]
    for path in upto[:-keep]:
        if path.name not in names:
            # Rename first: a crash must not leave part of a checkpoint under its final name.
            remove(path.rename(path.with_name(f"{TEMPORARY_PREFIX}removed-{path.name}")))


def _describe(shape: torch.Size | None) -> str:
    return "absent" if shape is None else " x ".join(map(str, shape))
