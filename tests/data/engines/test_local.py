"""The local engine with real processes, which are really killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from datatrove.pipeline.base import PipelineStep
from tests.data.engines.pipeline_steps import (
    MakeDocuments,
    Misbehave,
    WaitForFile,
    WriteDocuments,
    is_alive,
    read_executions,
    read_results,
    wait_until,
)

from metaxlm.config import EngineRecipe
from metaxlm.data.engines import run_tasks
from metaxlm.errors import Interrupted, MetaXLMError

WEIGHTS = [20_000, 60_000, 40_000, 0, 20_000]


def run(
    pipeline: Sequence[PipelineStep], weights: Sequence[int], work_dir: Path, workers: int = 2
) -> None:
    run_tasks(pipeline, weights, work_dir, EngineRecipe(workers=workers), "some work")


def test_any_number_of_workers_gives_the_same_files(tmp_path: Path, capfd) -> None:
    results = []
    for workers in (1, 2, 3):
        folder = tmp_path / str(workers)
        folder.mkdir()
        run([MakeDocuments(), WriteDocuments(folder)], WEIGHTS, folder / "work", workers)
        results.append(read_results(folder))
        assert sorted(read_executions(folder)) == [0, 1, 2, 3, 4]
        assert len(list((folder / "work/completions").iterdir())) == 5
    assert results[0] == results[1] == results[2]
    assert sorted(results[0]) == [f"{rank}.txt" for rank in range(5)]
    # Each task had fresh steps: all count their documents from one.
    assert all(text.startswith(b"1 ") for text in results[0].values())
    out, err = capfd.readouterr()
    assert err == ""
    assert re.fullmatch(r"(some work: 140/140 kB, [\d.,]+/s, 0 s left\n){3}", out)


def test_largest_tasks_start_first(tmp_path: Path) -> None:
    run([MakeDocuments(1), WriteDocuments(tmp_path)], WEIGHTS, tmp_path / "work", workers=1)
    assert read_executions(tmp_path) == [1, 2, 0, 4, 3]


def test_logs_and_prints_go_to_files(tmp_path: Path, capfd) -> None:
    faults = {0: "noise", 1: "user error"}
    with pytest.raises(MetaXLMError):
        run([MakeDocuments(1), Misbehave(tmp_path, faults)], [1, 1], tmp_path / "work")
    assert capfd.readouterr() == ("", "")
    printed = (tmp_path / "work/logs/workers.log").read_text()
    assert printed == "printed by a library\nand to stderr\n"
    assert "task 0 is complete" in (tmp_path / "work/logs/task_00000.log").read_text()
    assert "in _misbehave" in (tmp_path / "work/logs/task_00001.log").read_text()


def test_no_task_is_no_work(tmp_path: Path, capfd) -> None:
    run([MakeDocuments(), WriteDocuments(tmp_path)], [], tmp_path / "work")
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_completed_ranks_are_skipped_and_shown_as_done(tmp_path: Path, capfd) -> None:
    faults = {1: "user error", 3: "user error"}
    pipeline = [Misbehave(tmp_path, faults)]
    with pytest.raises(MetaXLMError) as caught:
        run(pipeline, WEIGHTS, tmp_path / "work")
    assert str(caught.value) == (
        "some work: 2 of 5 tasks failed: page 1: cut short; fetch it again | "
        "page 3: cut short; fetch it again"
    )
    failures = tmp_path / "work/failures"
    assert sorted(path.name for path in failures.iterdir()) == ["00001.txt", "00003.txt"]
    assert (failures / "00001.txt").read_text() == "page 1: cut short; fetch it again\n"
    assert sorted(read_executions(tmp_path)) == [0, 1, 2, 3, 4]

    (tmp_path / "mended").touch()
    capfd.readouterr()
    run(pipeline, WEIGHTS, tmp_path / "work")
    assert sorted(read_executions(tmp_path)[5:]) == [1, 3]
    assert list(failures.iterdir()) == []
    # 80 of 140 kB were done before: the rate is of this start's 60 only.
    out = capfd.readouterr().out
    assert out.startswith("some work: 140/140 kB, ")

    run(pipeline, WEIGHTS, tmp_path / "work")
    assert len(read_executions(tmp_path)) == 7
    assert capfd.readouterr().out == ""


def test_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError) as caught:
        run([Misbehave(tmp_path, dict.fromkeys(range(4), "full disk"))], [1] * 5, tmp_path / "work")
    assert str(caught.value) == ("some work: 4 of 5 tasks failed: output: No space left on device")


def test_unexpected_exception_names_the_log(tmp_path: Path) -> None:
    faults = {0: "user error", 2: "bug"}
    with pytest.raises(RuntimeError, match="KeyError: 'rank 2'") as caught:
        run([Misbehave(tmp_path, faults)], [1, 1, 1, 1], tmp_path / "work")
    log = tmp_path / "work/logs/task_00002.log"
    assert str(caught.value).endswith(f"; see {log}")
    assert "in _misbehave" in caught.value.__notes__[0]
    assert "in _misbehave" in log.read_text()
    assert sorted(read_results(tmp_path)) == ["1.txt", "3.txt"]


def test_killed_worker_costs_only_its_task(tmp_path: Path) -> None:
    run([Misbehave(tmp_path, {1: "die once"})], [1] * 6, tmp_path / "work")
    assert Counter(read_executions(tmp_path)) == {0: 1, 1: 2, 2: 1, 3: 1, 4: 1, 5: 1}
    assert len(read_results(tmp_path)) == 6


def test_worker_killed_from_outside(tmp_path: Path) -> None:
    step = WaitForFile(tmp_path, {0})
    thread = threading.Thread(target=run, args=([step], [9, 1, 1], tmp_path / "work"))
    thread.start()
    wait_until((tmp_path / "pid-0").exists)
    os.kill(int((tmp_path / "pid-0").read_text()), signal.SIGKILL)
    wait_until(lambda: read_executions(tmp_path).count(0) == 2)
    (tmp_path / "go").touch()
    thread.join(20)
    assert not thread.is_alive()
    assert Counter(read_executions(tmp_path)) == {0: 2, 1: 1, 2: 1}
    assert len(read_results(tmp_path)) == 3


@pytest.mark.parametrize(
    ("fault", "words"), [("die", "was killed"), ("exit", "ended with exit code 3")]
)
def test_task_that_always_dies_is_given_up(tmp_path: Path, fault: str, words: str) -> None:
    with pytest.raises(MetaXLMError) as caught:
        run([Misbehave(tmp_path, {1: fault})], [1] * 4, tmp_path / "work")
    message = str(caught.value)
    assert message.startswith(f"some work: 1 of 4 tasks failed: task 1: its worker {words}")
    assert "3 times" in message
    assert Counter(read_executions(tmp_path)) == {0: 1, 1: 3, 2: 1, 3: 1}
    assert "3 times" in (tmp_path / "work/failures/00001.txt").read_text()


SCRIPT = """
import sys
from pathlib import Path
from metaxlm.config import EngineRecipe
from metaxlm.data.engines import run_tasks
from metaxlm.errors import Interrupted
from tests.data.engines.pipeline_steps import WaitForFile

folder = Path(sys.argv[1])
step = WaitForFile(folder, {1, 2}, holding_gil="holding" in sys.argv)
try:
    run_tasks([step], [9, 5, 5, 1], folder / "work", EngineRecipe(workers=2), "some work")
except Interrupted as stop:
    print(stop)
    sys.exit(75)
"""


def start_parent(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a process whose two workers complete rank 0, then wait in 1 and 2; return all pids."""
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), *arguments],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    files = [folder / "pid-1", folder / "pid-2"]
    wait_until(lambda: all(file.exists() for file in files))
    return parent, [int(file.read_text()) for file in files]


@pytest.mark.parametrize("arguments", [[], ["holding"]])
def test_no_worker_survives_a_killed_parent(tmp_path: Path, arguments: list[str]) -> None:
    parent, pids = start_parent(tmp_path, *arguments)
    assert all(map(is_alive, pids))
    parent.kill()
    parent.communicate()
    wait_until(lambda: not any(map(is_alive, pids)), timeout_s=2)
    assert sorted(read_executions(tmp_path)) == [0, 1, 2]

    # A second start does what is missing, and nothing else.
    (tmp_path / "go").touch()
    run([WaitForFile(tmp_path, {1, 2})], [9, 5, 5, 1], tmp_path / "work")
    assert sorted(read_executions(tmp_path)[3:]) == [1, 2, 3]
    assert read_results(tmp_path) == {f"{r}.txt": b"%d of 4\n" % r for r in range(4)}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop_ends_workers_at_once(tmp_path: Path, number: signal.Signals) -> None:
    parent, pids = start_parent(tmp_path)
    parent.send_signal(number)
    out, _ = parent.communicate(timeout=2)
    assert (parent.returncode, out) == (75, "some work: stopped\n")
    assert not any(map(is_alive, pids))


def test_interrupt_in_this_process(tmp_path: Path) -> None:
    def interrupt() -> None:
        wait_until((tmp_path / "pid-0").exists)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    threading.Thread(target=interrupt).start()
    with pytest.raises(Interrupted):
        run([WaitForFile(tmp_path, {0})], [1], tmp_path / "work")
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
