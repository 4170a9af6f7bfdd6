"""The local executor, with real processes that are really killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.data.executor_tasks import (
    is_alive,
    make_tasks,
    perform,
    read_executions,
    read_pids,
    read_results,
    start_driver,
    wait_until,
)

from metaxlm.data.executors import run_tasks
from metaxlm.errors import MetaXLMError
from metaxlm.recipe import EngineRecipe

WEIGHTS = [20_000, 60_000, 40_000, 0, 20_000]


def run(
    folder: Path, weights: Sequence[int], faults: Mapping[int, str] | None = None, workers: int = 2
) -> None:
    tasks = make_tasks(folder, range(len(weights)), faults)
    run_tasks(perform, tasks, weights, folder / "work", EngineRecipe(workers=workers), "some work")


def test_all_tasks_run_once_and_the_largest_first(tmp_path: Path, capfd) -> None:
    run(tmp_path / "1", WEIGHTS, workers=1)
    run(tmp_path / "3", WEIGHTS, workers=3)
    assert read_executions(tmp_path / "1") == [1, 2, 0, 4, 3]
    assert sorted(read_executions(tmp_path / "3")) == [0, 1, 2, 3, 4]
    assert read_results(tmp_path / "1") == read_results(tmp_path / "3")
    assert len(list((tmp_path / "1/work/completions").iterdir())) == 5
    out, err = capfd.readouterr()
    assert err == ""
    assert re.fullmatch(r"(some work: 140/140 kB, [\d.,]+/s, 0 s left\n){2}", out)


def test_output_of_libraries_goes_to_a_file(tmp_path: Path, capfd) -> None:
    with pytest.raises(MetaXLMError):
        run(tmp_path, [50_000, 50_000], {0: "noise", 1: "user error"})
    assert capfd.readouterr() == ("", "")
    printed = (tmp_path / "work/workers.log").read_text()
    assert printed == "printed by a library\nand to stderr\n"


def test_the_next_run_does_only_the_missing_tasks(tmp_path: Path, capfd) -> None:
    faults = {1: "user error", 3: "user error"}
    with pytest.raises(MetaXLMError) as caught:
        run(tmp_path, WEIGHTS, faults)
    first, second = (f"page {rank}: cut short; fetch it again" for rank in (1, 3))
    assert str(caught.value) in (
        f"some work: 2 of 5 tasks failed: {first} | {second}",
        f"some work: 2 of 5 tasks failed: {second} | {first}",
    )
    assert sorted(read_executions(tmp_path)) == [0, 1, 2, 3, 4]

    (tmp_path / "fixed").touch()
    capfd.readouterr()
    run(tmp_path, WEIGHTS, faults)
    assert sorted(read_executions(tmp_path)[5:]) == [1, 3]
    assert capfd.readouterr().out.startswith("some work: 140/140 kB, ")

    run(tmp_path, WEIGHTS, faults)
    assert len(read_executions(tmp_path)) == 7
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("faults", "kind", "message"),
    [
        (dict.fromkeys(range(4), "full disk"), MetaXLMError, "4 of 5 .*output: No space left on"),
        ({0: "user error", 2: "bug"}, KeyError, "rank 2"),
        ({1: "die"}, MetaXLMError, r"some work: a worker process died.*engine\.workers.*are kept"),
    ],
)
def test_errors(
    tmp_path: Path, faults: dict[int, str], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        run(tmp_path, [1] * 5, faults)
    (tmp_path / "fixed").touch()
    run(tmp_path, [1] * 5, faults)
    assert len(read_results(tmp_path)) == 5


def start_parent(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a process whose two workers wait; return their ids, too."""
    parent = start_driver(EngineRecipe(workers=2), folder, "waiting")
    return parent, read_pids(folder / "waiting", 0, 1)


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    parent, pids = start_parent(tmp_path)
    assert all(map(is_alive, pids))
    parent.kill()
    parent.communicate()
    wait_until(lambda: not any(map(is_alive, pids)))

    # The next run does the missing tasks, and nothing else.
    folder = tmp_path / "waiting"
    (folder / "go").touch()
    run(folder, [4_000, 3_000, 2_000, 1_000], {0: "wait", 1: "wait"})
    assert sorted(read_executions(folder)) == [0, 0, 1, 1, 2, 3]
    assert read_results(folder) == {f"{rank}.txt": f"result {rank}\n" for rank in range(4)}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_workers_at_once(tmp_path: Path, number: signal.Signals) -> None:
    parent, pids = start_parent(tmp_path)
    os.killpg(parent.pid, number)  # the workers, too
    out, _ = parent.communicate(timeout=20)
    assert (parent.returncode, out) == (75, "waiting: stopped\n")
    assert not any(map(is_alive, pids))


def test_the_local_executor_does_not_import_datatrove() -> None:
    code = (
        "import sys, metaxlm.data.pipeline; print({'datatrove', 'loguru', 'ray'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
