"""Messages and progress: bars on a terminal, plain lines elsewhere, nothing with `--quiet`."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from metaxlm.errors import naming


class _Terminal(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        with naming("standard error" if self.stderr else "standard output"):
            super().print(*objects, **options)


console = _Terminal(highlight=False)
_PLAIN_INTERVAL_S = 10.0

Advance = Callable[..., None]
"""`advance(amount=1, note="")` moves a bar; the note is shown below it."""


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.1f} {task.fields['unit']}/s")


class _Bars(Progress):
    def get_renderables(self) -> Iterator[RenderableType]:
        for task in self.tasks:
            yield self.make_tasks_table([task])
            if task.fields["note"]:
                yield Text(f"  {task.fields['note']}", no_wrap=True, overflow="ellipsis")


def set_quiet(quiet: bool) -> None:
    """Silence everything but errors (`--quiet`)."""
    console.quiet = quiet


def say(message: str) -> None:
    """Print one line to the user."""
    console.print(message, soft_wrap=True, markup=False)


@contextmanager
def track(title: str, total: int, unit: str, completed: int = 0) -> Iterator[Advance]:
    """Show a bar over `total` units of work, of which `completed` are already done."""
    # FORCE_COLOR, which Jupyter sets for commands, asks for colors, not for bars.
    is_file = "FORCE_COLOR" in os.environ and not console.file.isatty()
    if console.is_terminal and not is_file and not console.quiet:
        title_column = TextColumn("{task.description:<24}")
        columns = (title_column, BarColumn(None), MofNCompleteColumn(), _RateColumn())
        with _Bars(*columns, TimeRemainingColumn(), console=console, expand=True) as bars:
            bar = bars.add_task(title, total=total, completed=completed, note="", unit=unit)

            def advance(amount: int = 1, note: str | None = None) -> None:
                bars.advance(bar, amount)
                if note is not None:
                    bars.update(bar, note=note)

            yield advance
        return

    done, latest_note = completed, ""
    start = last_line = time.monotonic()

    def advance_plain(amount: int = 1, note: str | None = None) -> None:
        nonlocal done, last_line, latest_note
        done += amount
        latest_note = latest_note if note is None else note
        now = time.monotonic()
        if done >= total or now - last_line >= _PLAIN_INTERVAL_S:
            last_line = now
            rate = (done - completed) / max(now - start, 1e-9)
            left = (total - done) / rate if rate > 0 else 0.0
            pace = f"{rate:,.1f}/s, {left:.0f} s left"
            say(f"{title}: {done:,}/{total:,} {unit}, {pace} {latest_note}".rstrip())

    yield advance_plain
