"""Log a training run: `log.jsonl`, trackers, and the note of the progress bar.

`log.jsonl` has one JSON line per log row; the same numbers go to the trackers of the recipe. A
resumed run drops the rows after its checkpoint and writes them again, so its log equals that of an
uninterrupted run except for times. A tracker that fails is closed, and training continues.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from metaxlm.errors import MetaXLMError
from metaxlm.files import dump_json, read_text, write_text
from metaxlm.pretrain import guard
from metaxlm.pretrain.checkpoint import TrainingState
from metaxlm.progress import say

LOG_NAME = "log.jsonl"
_SHOWN_LANGUAGES = 12


class TrainingLog:
    """The log of a training run; with `path` None, as in processes other than rank 0, silent."""

    def __init__(
        self,
        path: Path | None,
        state: TrainingState,
        title: str,
        *,
        trackers: Trackers | None = None,
        peak_flops: float | None = None,
    ) -> None:
        self.note = ""  # for the progress bar
        self._path, self._title = path, title
        self._trackers, self._peak = trackers, peak_flops
        self._reported: set[str] = set()  # signs of trouble; each is printed once
        self._open(state)

    def _open(self, state: TrainingState) -> None:
        self._start = time.monotonic() - state.seconds
        self._window = (state.tokens, state.seconds, state.step)
        kept = "" if self._path is None else _drop_later_rows(self._path, state)
        self._digest = hashlib.sha256(kept.encode())
        self._bytes = len(kept.encode())
        state.log = self._describe()

    def rewind(self, state: TrainingState, spike: guard.Spike, from_step: int) -> None:
        """Drop the rows after a state that training returns to, and write why."""
        self._open(state)
        facts = {**spike, "from": from_step, "to": state.step, "rewinds": state.rewinds}
        # Not a row of the state's own step, which a run that resumes there has not written yet.
        self._write(state.step + 1, {"spike": facts}, {})
        if self._path is not None:
            say(
                f"{self._title}: {guard.describe(spike)} before step {from_step:,}; training "
                f"returns to step {state.step:,} and skips {from_step - state.step:,} batches"
            )

    @property
    def seconds(self) -> float:
        """Training time over all starts."""
        return time.monotonic() - self._start

    def write_row(
        self,
        state: TrainingState,
        rate: float,
        norm: float,
        numbers: Mapping[str, float],
        step_flops: float,
    ) -> guard.Spike | None:
        """Write the row of a step with its numbers and the mean loss since the last row.

        Return a jump of the loss or of the gradient norm, if there is one.
        """
        state.seconds = self.seconds
        loss = state.loss_sum / state.loss_count if state.loss_count else None
        tokens, seconds, step = self._window
        self._window = (state.tokens, state.seconds, state.step)
        elapsed = max(state.seconds - seconds, 1e-9)
        speed = (state.tokens - tokens) / elapsed
        flops = (state.step - step) * step_flops
        share = None if self._peak is None else flops / elapsed / self._peak
        if share is not None and share > 1:
            share = None  # the peak was measured while other processes used the device
        row = {
            "loss": loss,
            "learning_rate": rate,
            "gradient_norm": norm if math.isfinite(norm) else None,
            **numbers,
            "tokens": state.tokens,
            "skipped": state.skipped,
            "tokens_per_second": round(speed, 1),
            "peak_share": None if share is None else round(share, 4),
            "seconds": round(state.seconds, 3),
        }
        self._write(state.step, row, row)
        shown = "loss -" if loss is None else f"loss {loss:.3f}"
        peak = "" if share is None else f", {share:.1%} of peak"
        self.note = f"{shown}, {speed:,.0f} tokens/s{peak}, rate {rate:.2e}"
        return None if loss is None else self._check(state, loss)

    def write_held_out(
        self, state: TrainingState, losses: Mapping[str, float], *, is_falling: bool
    ) -> None:
        """Write the held-out loss of each language; warn if it rises while the rate falls."""
        finite = {name: loss if math.isfinite(loss) else None for name, loss in losses.items()}
        tracked = {f"held_out/{language}": loss for language, loss in finite.items()}
        self._write(state.step, {"held_out": finite}, tracked)
        if not losses:
            return
        if self._path is not None:
            shown = describe_losses(losses)
            say(f"{self._title}: held-out loss after step {state.step:,}: {shown}")
        mean = sum(losses.values()) / len(losses)
        if math.isfinite(mean):
            rise = guard.find_rise(mean, state.lowest_held_out, is_falling=is_falling)
            lowest = mean if state.lowest_held_out is None else state.lowest_held_out
            state.lowest_held_out = min(mean, lowest)
            if rise is not None:
                self._warn(state.step, rise)

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Exclude the enclosed work from the tokens per second."""
        start = time.monotonic()
        yield
        tokens, seconds, step = self._window
        self._window = (tokens, seconds + time.monotonic() - start, step)

    def flush(self) -> dict[str, Any]:
        """Flush all rows to disk, as before every checkpoint; return size and digest."""
        if self._path is not None and self._path.exists():
            with self._path.open("rb") as file:
                os.fsync(file.fileno())
        return self._describe()

    def _describe(self) -> dict[str, Any]:
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}

    def _check(self, state: TrainingState, loss: float) -> guard.Spike | None:
        norm = state.largest_norm
        jump = guard.find_spike(loss, state.recent_losses)
        steep = guard.find_steep(norm, state.recent_norms)
        state.recent_losses = guard.remember(loss, state.recent_losses)
        state.recent_norms = guard.remember(norm, state.recent_norms)
        for spike in filter(None, (jump, steep)):
            self._warn(state.step, spike)
        return jump or steep

    def _warn(self, step: int, spike: guard.Spike) -> None:
        self._write(step, {"spike": spike}, {"spike": next(iter(spike.values()))})
        kind = next(iter(spike))
        if self._path is not None and kind not in self._reported:
            self._reported.add(kind)
            say(
                f"{self._title}: {guard.describe(spike)} (step {step:,}); "
                f"later cases are reported in {LOG_NAME} only"
            )

    def _write(self, step: int, row: Mapping[str, Any], tracked: Mapping[str, Any]) -> None:
        if self._path is None:
            return
        line = (json.dumps({"step": step, **row}) + "\n").encode()
        self._digest.update(line)
        self._bytes += len(line)
        try:
            with self._path.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise MetaXLMError(
                f"{self._path}: cannot be written ({error.strerror}); free disk space or repair "
                "the disk and run again: training will resume from its newest checkpoint"
            ) from error
        if self._trackers is not None:
            self._trackers.log(step, tracked)


def _drop_later_rows(path: Path, state: TrainingState) -> str:
    lines = path.read_text("utf-8", errors="replace").splitlines() if path.exists() else []
    kept = "".join(f"{line}\n" for line in lines if _row_step(line) <= state.step)
    digest = hashlib.sha256(kept.encode()).hexdigest()
    if path.exists() and digest != state.log.get("sha256", digest):
        raise MetaXLMError(
            f"{path}: its rows up to step {state.step:,} do not match the digest in the "
            "checkpoint; move it away and run again: training continues with a new log"
        )
    write_text(path, kept)
    return kept


def _row_step(line: str) -> float:
    """Return the step of a log line; infinity for a line truncated by a crash."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def describe_losses(losses: Mapping[str, float]) -> str:
    """Format the mean loss and the losses by language, best first; shorten long lists."""
    mean = sum(losses.values()) / len(losses)
    ordered = sorted(losses.items(), key=lambda item: item[1])
    shown = [f"{language} {loss:.2f}" for language, loss in ordered]
    if len(shown) > _SHOWN_LANGUAGES:
        half = _SHOWN_LANGUAGES // 2
        shown = [*shown[:half], "...", *shown[-half:]]
    return f"{mean:.3f} ({', '.join(shown)})"


class _Tracker(Protocol):
    def log(self, step: int, values: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class Trackers:
    """All trackers of a training run."""

    def __init__(self, trackers: Mapping[str, _Tracker]) -> None:
        self._trackers = dict(trackers)

    @property
    def names(self) -> list[str]:
        """Names of the open trackers."""
        return list(self._trackers)

    def log(self, step: int, values: Mapping[str, float | None]) -> None:
        """Send the numbers of a step to every tracker, without those that are None."""
        numbers = {name: float(value) for name, value in values.items() if value is not None}
        self._each(lambda tracker: tracker.log(step, numbers))

    def close(self) -> None:
        """Write buffered numbers and finish."""
        self._each(lambda tracker: tracker.close())
        self._trackers.clear()

    def _each(self, act: Callable[[_Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                act(tracker)
            except Exception as error:  # an error of a service must not end a run
                del self._trackers[name]
                reason = " ".join(str(error).split()) or type(error).__name__
                say(f"{name}: closed after an error, training continues ({reason})")


def open_trackers(
    names: Sequence[str], folder: Path, title: str, recipe: Mapping[str, Any]
) -> Trackers:
    """Open the trackers of a recipe; TensorBoard is optional, another missing one is an error."""
    trackers: dict[str, _Tracker] = {}
    for name in names:
        try:
            importlib.import_module("torch.utils.tensorboard" if name == "tensorboard" else name)
        except ImportError as error:
            if name == "tensorboard":
                continue
            raise MetaXLMError(
                f"execution.trackers: {name} is not installed; "
                f"pip install 'metaxlm[{name}]', or leave it out"
            ) from error
        trackers[name] = _TRACKERS[name](folder, title, recipe)
    return Trackers(trackers)


class _TensorBoard:
    """Event files in `folder/tensorboard`; a resumed run purges the steps that it repeats."""

    def __init__(self, folder: Path, title: str, recipe: Mapping[str, Any]) -> None:
        self._folder = folder / "tensorboard"
        self._text = f"{title}\n\n```json\n{dump_json(dict(recipe))}```"
        self._writer: Any = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            is_new = not self._folder.exists()
            self._writer = SummaryWriter(self._folder, purge_step=step)
            if is_new:
                self._writer.add_text("recipe", self._text, step)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Service:
    """A run of a service whose steps must increase, also after a resume."""

    _run: Any
    _last: int  # step that the service has

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if step > self._last:
            self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class _Wandb(_Service):
    """A run of Weights & Biases; WANDB_MODE=offline keeps it on disk without network access."""

    def __init__(self, folder: Path, title: str, recipe: Mapping[str, Any]) -> None:
        import wandb

        try:
            self._run = wandb.init(
                project=recipe.get("name", "metaxlm"), name=title, dir=folder, id=_identify(folder),
                resume="allow", config=dict(recipe), settings=wandb.Settings(silent=True),
            )  # fmt: skip
        except wandb.errors.Error as error:
            reason = " ".join(str(error).split())
            raise MetaXLMError(
                f"execution.trackers: wandb cannot start ({reason}); "
                "run `wandb login`, or set WANDB_MODE=offline"
            ) from error
        self._last = self._run.step - 1 if self._run.resumed else -1


class _Trackio(_Service):
    """A run in trackio's own folder (TRACKIO_DIR), displayed by `trackio show`."""

    def __init__(self, folder: Path, title: str, recipe: Mapping[str, Any]) -> None:
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        project, name = recipe.get("name", "metaxlm"), f"{title} {_identify(folder)}"
        last = SQLiteStorage.get_max_step_for_run(project, name)
        self._last = -1 if last is None else int(last)
        self._run = trackio.init(
            project=project, name=name, config=dict(recipe), resume="allow", embed=False
        )


_TRACKERS: dict[str, Callable[[Path, str, Mapping[str, Any]], _Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _Wandb,
    "trackio": _Trackio,
}


def _identify(folder: Path) -> str:
    """Return the id of a training run on a service, which is stored in its folder."""
    path = folder / "board_id"
    if not path.is_file():
        write_text(path, secrets.token_hex(6))
    return read_text(path).strip()
