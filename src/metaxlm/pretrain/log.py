"""What a training tells about itself: `log.jsonl`, the boards, the note at the progress bar.

Comes in: numbers at the steps where a row is due. Goes out: one JSON line each, in the order of the
steps, also on the boards that the recipe names. A run that continues drops the rows after its
checkpoint and writes them again, so that its log equals that of an undisturbed run except in times.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.files import write_text
from metaxlm.pretrain.checkpoint import TrainingState
from metaxlm.pretrain.guard import NUM_RECENT, find_spike
from metaxlm.pretrain.trackers import Trackers
from metaxlm.progress import say

LOG_NAME = "log.jsonl"
"""The training log beside the checkpoints: one row every `log_every` steps."""
_SHOWN_LANGUAGES = 12


class TrainingLog:
    """The log of one training; in other processes than the main one (`path` None) it is silent."""

    def __init__(
        self,
        path: Path | None,
        state: TrainingState,
        title: str,
        *,
        trackers: Trackers | None = None,
        peak_flops: float | None = None,
    ) -> None:
        self.note = ""
        """What the progress bar shows beside the steps."""
        self._path = path
        self._title = title
        self._trackers = trackers
        self._peak = peak_flops
        self._start = time.monotonic() - state.seconds
        self._window = (state.tokens, state.seconds, state.step)
        self._said_spike = False
        kept = "" if path is None else _drop_later_rows(path, state)
        self._digest = hashlib.sha256(kept.encode())
        self._bytes = len(kept.encode())
        state.log = self._describe()

    @property
    def seconds(self) -> float:
        """Time spent in training, over all starts."""
        return time.monotonic() - self._start

    def write_row(
        self,
        state: TrainingState,
        *,
        rate: float,
        norm: float,
        probability: float,
        step_flops: float,
    ) -> None:
        """Write the row of a step, and of the steps since the last row."""
        state.seconds = self.seconds
        loss = state.loss_sum / state.loss_count if state.loss_count else None
        speed, share = self._measure_pace(state, step_flops)
        row = {
            "loss": loss,
            "learning_rate": rate,
            "gradient_norm": norm if math.isfinite(norm) else None,
            "mask_probability": probability,
            "tokens": state.tokens,
            "skipped": state.skipped,
            "tokens_per_second": round(speed, 1),
            "peak_share": None if share is None else round(share, 4),
            "seconds": round(state.seconds, 3),
        }
        self._write(state.step, row, row)
        shown = [f"loss {loss:.3f}" if loss is not None else "loss -", f"{speed:,.0f} tokens/s"]
        shown += [] if share is None else [f"{share:.1%} of peak"]
        self.note = ", ".join([*shown, f"rate {rate:.2e}"])
        if loss is not None:
            self._look_for_spike(state, loss)

    def write_held_out(self, step: int, losses: Mapping[str, float]) -> None:
        """Write each language's loss on its held-out blocks."""
        finite = {name: loss if math.isfinite(loss) else None for name, loss in losses.items()}
        board = {f"held_out/{language}": loss for language, loss in finite.items()}
        self._write(step, {"held_out": finite}, board)
        if self._path is not None and losses:
            say(f"{self._title}: held-out loss after step {step:,}: {describe_losses(losses)}")

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Leave what happens inside out of the tokens per second."""
        start = time.monotonic()
        yield
        tokens, seconds, step = self._window
        self._window = (tokens, seconds + time.monotonic() - start, step)

    def flush(self) -> dict[str, Any]:
        """Bring all rows to the disk, as they are before any checkpoint; return size and digest."""
        if self._path is not None and self._path.exists():
            with self._path.open("rb") as file:
                os.fsync(file.fileno())
        return self._describe()

    def _describe(self) -> dict[str, Any]:
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}

    def _measure_pace(self, state: TrainingState, step_flops: float) -> tuple[float, float | None]:
        tokens, seconds, step = self._window
        self._window = (state.tokens, state.seconds, state.step)
        elapsed = max(state.seconds - seconds, 1e-9)
        speed = (state.tokens - tokens) / elapsed
        if self._peak is None:
            return speed, None
        return speed, (state.step - step) * step_flops / elapsed / self._peak

    def _look_for_spike(self, state: TrainingState, loss: float) -> None:
        spike = find_spike(loss, state.recent_losses)
        state.recent_losses = [*state.recent_losses, loss][-NUM_RECENT:]
        if spike is None:
            return
        self._write(state.step, {"spike": asdict(spike)}, {"spike": loss})
        if not self._said_spike:
            self._said_spike = True
            say(
                f"{self._title}: the loss jumped to {spike.loss:.3f} at step {state.step:,}, from "
                f"about {spike.mean:.3f}; later jumps stand in {LOG_NAME} only"
            )

    def _write(self, step: int, row: Mapping[str, Any], board: Mapping[str, float | None]) -> None:
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
                f"{self._path}: cannot be written ({error.strerror}); make the disk good or free "
                "space, and start again: training continues from its newest checkpoint"
            ) from error
        if self._trackers is not None:
            self._trackers.log(step, board)


def _drop_later_rows(path: Path, state: TrainingState) -> str:
    """Keep the rows up to a checkpoint and return them; refuse those that are not as written."""
    lines = path.read_text("utf-8", errors="replace").splitlines() if path.exists() else []
    kept = "".join(f"{line}\n" for line in lines if _row_step(line) <= state.step)
    digest = hashlib.sha256(kept.encode()).hexdigest()
    if path.exists() and digest != state.log.get("sha256", digest):
        raise MetaXLMError(
            f"{path}: changed, its rows up to step {state.step:,} do not fit the digest in the "
            "checkpoint; move it away and run again: training continues, with a new log"
        )
    write_text(path, kept)
    return kept


def _row_step(line: str) -> float:
    """Return a log line's step; a line that a crash cut short counts as never written."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def describe_losses(losses: Mapping[str, float]) -> str:
    """Tell the mean loss and those of the languages, best first; of many, both ends."""
    mean = sum(losses.values()) / len(losses)
    ordered = sorted(losses.items(), key=lambda item: item[1])
    shown = [f"{language} {loss:.2f}" for language, loss in ordered]
    if len(shown) > _SHOWN_LANGUAGES:
        half = _SHOWN_LANGUAGES // 2
        shown = [*shown[:half], "...", *shown[-half:]]
    return f"{mean:.3f} ({', '.join(shown)})"
