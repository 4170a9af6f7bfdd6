"""Tasks for the tests of executors, which workers import from here.

A task is `(folder, rank, fault)`. It appends its rank to `executions.txt` first, and writes
`RANK.txt` at its end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from metaxlm.data.executors import advance
from metaxlm.errors import MetaXLMError
from metaxlm.files import write_text

Task = tuple[Path, int, str]


def make_tasks(
    folder: Path, ranks: Iterable[int], faults: Mapping[int, str] | None = None
) -> list[Task]:
    folder.mkdir(exist_ok=True)
    return [(folder, rank, (faults or {}).get(rank, "")) for rank in ranks]


def perform(task: Task) -> None:
    folder, rank, fault = task
    with (folder / "executions.txt").open("a") as file:
        file.write(f"{rank}\n")
    if fault and not (folder / "fixed").exists():
        _misbehave(folder, rank, fault)
    advance(20_000)
    write_text(folder / f"{rank}.txt", f"result {rank}\n")


def _misbehave(folder: Path, rank: int, fault: str) -> None:
    if fault == "user error":
        raise MetaXLMError(f"page {rank}:\ncut short; fetch it again")
    if fault == "full disk":
        with open("/dev/full", "w") as file:  # noqa: PTH123
            file.write("x")
    if fault == "bug":
        raise KeyError(f"rank {rank}")
    if fault == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "noise":
        print("printed by a library", flush=True)
        print("and to stderr", file=sys.stderr, flush=True)
    if fault == "wait":
        write_text(folder / f"pid-{rank}", str(os.getpid()))
        # Not forever: a failed test does not write the file.
        wait_until((folder / "go").exists, timeout_s=60)


def read_executions(folder: Path) -> list[int]:
    """Return the ranks in the order in which they started."""
    path = folder / "executions.txt"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def read_results(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("[0-9]*.txt")}


def read_pids(folder: Path, *ranks: int) -> list[int]:
    """Wait for tasks with the fault `wait`; return the ids of their processes."""
    files = [folder / f"pid-{rank}" for rank in ranks]
    wait_until(lambda: all(file.exists() for file in files), timeout_s=180)
    return [int(file.read_text()) for file in files]


def wait_until(predicate: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not predicate():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
