"""Checkpoints that do not hold a training up: copied in memory, written while it goes on.

Comes in: a training's tensors and state at some step. Goes out: its checkpoint on the disk, with
the ones that are too old removed. The tensors are copied to host memory, on a GPU behind the work
that is already in its queue, and one thread writes the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import torch
from safetensors import SafetensorError
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.files import TEMPORARY_PREFIX, remove
from metaxlm.pretrain.checkpoint import (
    Checkpoint,
    TrainingState,
    list_checkpoints,
    save_checkpoint,
    step_name,
)


class CheckpointWriter:
    """Saves the checkpoints of one training in the background, one at a time.

    `publish` gets every checkpoint of the permanent steps before it is written, so that where such
    a checkpoint stands its published form stands too. A save that failed raises at the next save or
    at the end, and names the step that the next start will continue from.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int,
        permanent: Collection[int] = (),
        publish: Callable[[Checkpoint], None] | None = None,
        newest_step: int = 0,
    ) -> None:
        self._folder = folder
        self._keep = keep
        self._permanent = frozenset(permanent)
        self._publish = publish
        self._newest_step = newest_step
        self._host = _HostMemory()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.shutdown()
        if error is None:
            self.wait()

    def save(
        self,
        model: Mapping[str, Tensor],
        moments: Mapping[str, Tensor],
        state: TrainingState,
        *,
        wait: bool = False,
    ) -> None:
        """Save what the tensors hold now; they may change as soon as this returns."""
        self.wait()
        state = replace(state, recent_losses=list(state.recent_losses))
        copies, is_copied = self._host.copy({"model": model, "moments": moments})
        checkpoint = Checkpoint(copies["model"], copies["moments"], state)
        self._pending = self._thread.submit(self._write, checkpoint, is_copied)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the last save is on the disk; raise what went wrong with it."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, checkpoint: Checkpoint, is_copied: Callable[[], None]) -> None:
        is_copied()
        step = checkpoint.state.step
        try:
            if step in self._permanent and self._publish:
                self._publish(checkpoint)
            save_checkpoint(self._folder, checkpoint)
            self._newest_step = step
            remove_old(self._folder, step, self._keep, self._permanent)
        except (OSError, SafetensorError, MetaXLMError) as error:
            raise self._explain(error, step) from error

    def _explain(self, error: Exception, step: int) -> MetaXLMError:
        place, reason = self._folder / step_name(step), str(error)
        if isinstance(error, OSError):
            place, reason = Path(error.filename or place), error.strerror or reason
        newest = self._newest_step
        what = f"checkpoint of step {step:,} not saved"
        if newest == step:
            what = f"checkpoint of step {step:,} saved, but an older one not removed"
        next_start = f"continues after step {newest:,}" if newest else "begins anew"
        return MetaXLMError(
            f"{place}: {what} ({reason}); the next start {next_start}: make the disk good or free "
            "space, and start again"
        )


class _HostMemory:
    """Room for one copy of a training's tensors, pinned where they come from a GPU."""

    def __init__(self) -> None:
        self._room: dict[str, dict[str, Tensor]] = {}

    def copy(
        self, parts: Mapping[str, Mapping[str, Tensor]]
    ) -> tuple[dict[str, dict[str, Tensor]], Callable[[], None]]:
        """Return the copies, and a function that waits until they are whole."""
        device = torch.device("cpu")
        for part, tensors in parts.items():
            room = self._room.setdefault(part, {})
            for name, tensor in tensors.items():
                if name not in room:
                    room[name] = _make_room(tensor)
                room[name].copy_(tensor.detach(), non_blocking=True)
                device = tensor.device if tensor.is_cuda else device
        copies = {part: {name: self._room[part][name] for name in parts[part]} for part in parts}
        if device.type != "cuda":
            return copies, lambda: None
        # The copies stand in the GPU's queue before whatever changes the tensors next.
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(device))
        return copies, event.synchronize


def _make_room(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)


def remove_old(folder: Path, newest_step: int, keep: int, permanent: Collection[int]) -> None:
    """Remove all but the newest `keep` checkpoints up to a step, and the permanent ones.

    Later ones are damaged, or the run would have continued from them, so they do not count.
    """
    names = {step_name(step) for step in permanent}
    upto = [path for path in list_checkpoints(folder) if path.name <= step_name(newest_step)]
    for path in upto[:-keep]:
        if path.name not in names:
            # Renamed first: a crash half way must not leave half a checkpoint under its name.
            remove(path.rename(path.with_name(f"{TEMPORARY_PREFIX}removed-{path.name}")))
