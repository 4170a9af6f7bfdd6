"""Tasks for the tests of executors, and a driver process that runs them.

A task is `(folder, rank, fault)`. It first appends its rank to `executions.txt`, and at its end
writes `RANK.txt`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from metaxlm.data.executors import advance, run_tasks
from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.files import write_text
from metaxlm.recipe import EngineRecipe
from metaxlm.stopping import stoppable

Task = tuple[Path, int, str]
CASES = {"same": {}, "faults": {1: "user error", 2: "noise"}, "waiting": {0: "wait", 1: "wait"}}


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
        known = "with" if "datatrove" in sys.modules else "without"
        print(f"printed by a library, {known} datatrove", flush=True)
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


def start_driver(engine: EngineRecipe, folder: Path, *names: str) -> subprocess.Popen[str]:
    """Run cases one after the other in a process of their own."""
    return subprocess.Popen(
        [sys.executable, "-m", __name__, engine.model_dump_json(), folder, *names],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def drive(engine: EngineRecipe, root: Path, names: Iterable[str]) -> None:
    from tests.data.executor_tasks import perform  # workers cannot import `__main__`

    weights = [4_000, 3_000, 2_000, 1_000]
    with stoppable(""):
        for name in names:
            tasks, work = make_tasks(root / name, range(4), CASES[name]), root / name / "work"
            try:
                run_tasks(perform, tasks, weights, work, engine, name)
            except MetaXLMError as error:
                print(error)
            except Interrupted as stop:
                print(stop)
                sys.exit(75)


if __name__ == "__main__":
    drive(EngineRecipe.model_validate_json(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
