"""What the three engines share: which tasks are left, one bar over all of them, how they failed.

Comes in: a `Work` and an executor that can complete ranks. Goes out: all ranks complete, or one
error that tells about those that are not. Whatever a worker does, the bar never passes its end, and
it reaches it when the last task is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loguru import logger

from metaxlm.data.engines.tasks import Outcome, failure_path, log_path, run_task
from metaxlm.errors import MetaXLMError
from metaxlm.progress import Advance, track

if TYPE_CHECKING:
    from datatrove.pipeline.base import PipelineStep

MAX_ATTEMPTS = 3
"""How often a task is started whose worker dies."""

_SHOWN_MESSAGES = 3
_SMALL_BYTES = 10_000_000

# datatrove logs to the terminal, where our bar is; tasks turn it on again for their own log.
logger.disable("datatrove")


@dataclass(frozen=True, slots=True)
class Work:
    """A pipeline, and what is to be done with it."""

    pipeline: tuple[PipelineStep, ...]
    weights: tuple[int, ...]
    """How much work each rank is."""
    work_dir: Path
    title: str
    unit: str


class WorkBar:
    """One bar over the work of all ranks, moved by reports that may come twice or not at all."""

    def __init__(self, weights: Sequence[int], completed: set[int], total_units: int) -> None:
        self._weights = [max(weight, 1) for weight in weights]
        self._total_weight = sum(self._weights)
        self._total_units = total_units
        self._attempt = [0] * len(weights)
        self._shown = [w if rank in completed else 0 for rank, w in enumerate(self._weights)]
        self._sum = sum(self._shown)
        self.units = self._to_units(self._sum)
        self.move: Advance = lambda *_, **__: None

    def advance(self, rank: int, amount: int) -> None:
        """Count what a worker reports; a second attempt only shows where it gets further."""
        self._attempt[rank] += amount
        self._show(rank, min(self._attempt[rank], self._weights[rank]))

    def restart(self, rank: int) -> None:
        """Say that a task begins again."""
        self._attempt[rank] = 0

    def finish(self, rank: int) -> None:
        """Say that a task is complete, however much it reported."""
        self._show(rank, self._weights[rank])

    def note(self, text: str) -> None:
        """Write something at the bar's end."""
        self.move(0, note=text)

    def _show(self, rank: int, amount: int) -> None:
        self._sum += max(amount - self._shown[rank], 0)
        self._shown[rank] = max(amount, self._shown[rank])
        units = self._to_units(self._sum)
        if units > self.units:
            self.move(units - self.units)
            self.units = units

    def _to_units(self, weight: int) -> int:
        return weight * self._total_units // self._total_weight


@contextmanager
def show_work(work: Work, completed: set[int]) -> Iterator[WorkBar]:
    """Show the bar of a work, of which some ranks are already complete."""
    total, unit = sum(work.weights), work.unit
    if unit == "MB":
        small = total < _SMALL_BYTES
        total, unit = round(total / (1e3 if small else 1e6)), "kB" if small else "MB"
    bar = WorkBar(work.weights, completed, max(total, 1))
    with track(work.title, max(total, 1), unit, completed=bar.units) as bar.move:
        yield bar


class Supervised:
    """Beside a datatrove executor: runs what is left of a work, watches it, and reports failures.

    A subclass says in `complete` how its engine runs ranks.
    """

    work: Work
    get_incomplete_ranks: Callable[[], list[int]]

    @property
    def world_size(self) -> int:
        """How many tasks there are, complete or not."""
        return len(self.work.weights)

    def run(self) -> None:
        """Run as datatrove does: from where the pipeline was built."""
        self.supervise()

    def supervise(self) -> None:
        """Complete all ranks, largest first, so that no worker is left alone with a large one."""
        work = self.work
        for name in ("completions", "failures", "logs"):
            (work.work_dir / name).mkdir(parents=True, exist_ok=True)
        ranks = sorted(self.get_incomplete_ranks(), key=lambda rank: (-work.weights[rank], rank))
        if not ranks:
            return
        for rank in ranks:
            failure_path(work.work_dir, rank).unlink(missing_ok=True)
        with show_work(work, set(range(len(work.weights))) - set(ranks)) as bar:
            outcomes = self.complete(ranks, bar)
        _raise_failures(work, outcomes)

    def complete(self, ranks: list[int], bar: WorkBar) -> list[Outcome]:
        """Run the ranks, in this order as far as possible, and tell how each ended."""
        raise NotImplementedError

    def get_distributed_env(self, node_rank: int = -1) -> dict[str, str]:
        """Give datatrove's steps nothing to go by: no task of ours spans machines."""
        del node_rank
        return {}

    def _run_for_rank(self, rank: int, local_rank: int = 0, node_rank: int = -1) -> Any:
        """Run a task in this process; datatrove's own prints logs and users' mistakes in full."""
        del local_rank, node_rank
        return run_task(lambda: self.work.pipeline, rank, self.world_size, self.work.work_dir)


def _raise_failures(work: Work, outcomes: list[Outcome]) -> None:
    """Raise one error for all tasks that are not complete; mistakes of ours come first."""
    bad = sorted((o for o in outcomes if o.status != "completed"), key=lambda o: o.rank)
    total = len(work.weights)
    for outcome in bad:
        if outcome.status == "crashed":
            log = log_path(work.work_dir, outcome.rank)
            error = RuntimeError(f"{work.title}: task {outcome.rank}: {outcome.message}; see {log}")
            error.add_note(outcome.traceback)
            raise error
    if bad:
        messages = list(dict.fromkeys(outcome.message for outcome in bad))
        shown = " | ".join(messages[:_SHOWN_MESSAGES])
        more = f" | and more in {work.work_dir / 'failures'}" * (len(messages) > _SHOWN_MESSAGES)
        raise MetaXLMError(f"{work.title}: {len(bad)} of {total} tasks failed: {shown}{more}")


def describe_death(work: Work, rank: int, how: str) -> Outcome:
    """Make the outcome of a task whose worker died each time it was started."""
    return Outcome(
        rank,
        "failed",
        f"task {rank}: its worker {how}, {MAX_ATTEMPTS} times; lower engine.workers or "
        f"corpus.task_mb if memory is short; see {work.work_dir / 'logs'}",
    )
