"""The executors, with real processes that are really killed.

Slurm has fake commands that keep a queue in a folder: `sbatch` starts a process group that runs
the script for each element of the array. Ray drivers run in their own processes: Ray warns a lot.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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

from metaxlm.data import executors
from metaxlm.data.executors import run_tasks
from metaxlm.errors import MetaXLMError
from metaxlm.recipe import EngineRecipe, SlurmRecipe

ROOT = Path(__file__).parents[2]
WEIGHTS = [20_000, 60_000, 40_000, 0, 20_000]


def run(
    folder: Path, weights: Sequence[int], faults: Mapping[int, str] | None = None, workers: int = 2
) -> None:
    tasks = make_tasks(folder, range(len(weights)), faults)
    run_tasks(perform, tasks, weights, folder / "work", EngineRecipe(workers=workers), "some work")


def test_the_next_run_does_only_the_missing_tasks(tmp_path: Path, capfd) -> None:
    faults = {0: "noise", 1: "user error", 3: "user error"}
    with pytest.raises(MetaXLMError) as caught:
        run(tmp_path, WEIGHTS, faults, workers=1)
    first, second = (f"page {rank}: cut short; fetch it again" for rank in (1, 3))
    assert str(caught.value) == f"some work: 2 of 5 tasks failed: {first} | {second}"
    assert read_executions(tmp_path) == [1, 2, 0, 4, 3]  # the largest first
    assert capfd.readouterr() == ("", "")
    printed = (tmp_path / "work/workers.log").read_text()
    assert printed == "printed by a library, without datatrove\nand to stderr\n"

    (tmp_path / "fixed").touch()
    run(tmp_path, WEIGHTS, faults)
    assert sorted(read_executions(tmp_path)[5:]) == [1, 3]
    assert len(read_results(tmp_path)) == len(list((tmp_path / "work/completions").iterdir())) == 5
    out, err = capfd.readouterr()
    assert re.fullmatch(r"some work: 140/140 kB, [\d.,]+/s, 0 s left\n", out) and err == ""

    run(tmp_path, WEIGHTS, faults)
    assert len(read_executions(tmp_path)) == 7
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("faults", "kind", "message"),
    [
        ({0: "full disk", 1: "full disk"}, MetaXLMError, "2 of 3 .*output: No space left on"),
        ({0: "user error", 2: "bug"}, KeyError, "rank 2"),
        ({1: "die"}, MetaXLMError, r"some work: a worker process died.*engine\.workers.*are kept"),
    ],
)
def test_errors(
    tmp_path: Path, faults: dict[int, str], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        run(tmp_path, [1] * 3, faults)


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


def test_a_stop_ends_workers_at_once(tmp_path: Path) -> None:
    parent, pids = start_parent(tmp_path)
    os.killpg(parent.pid, signal.SIGINT)  # the workers, too
    out, _ = parent.communicate(timeout=20)
    assert (parent.returncode, out) == (75, "waiting: stopped\n")
    assert not any(map(is_alive, pids))


SBATCH = """
script="${@: -1}" job=$(($(ls "$FAKE_SLURM" | wc -l) + 1))
if grep -q "partition=nowhere" "$script"; then
    echo "sbatch: error: invalid partition specified: nowhere" >&2
    exit 1
fi
if ! grep -q merge_stats "$script"; then
    copy="$FAKE_SLURM/../script-$job"
    cp "$script" "$copy"
    log=$(grep -oP "(?<=--output=).*(?=/)" "$script")
    last=$(grep -oP "(?<=--array=0-)[0-9]+" "$script")
    export SLURM_NODELIST=n1 RUN_OFFSET=0
    elements="for i in {0..$last}; do SLURM_ARRAY_TASK_ID=\\$i bash $copy > $log/\\$i & done; wait"
    setsid bash -c "$elements" < /dev/null > /dev/null 2>&1 &
    echo $! > "$FAKE_SLURM/$job"
fi
echo "Submitted batch job $job"
"""
SQUEUE = """
job="${@: -1}"
stat=/proc/$(cat "$FAKE_SLURM/${job#--jobs=}")/stat
if [ -e "$stat" ] && ! grep -q ") Z" "$stat"; then echo RUNNING; fi
"""
SCANCEL = """
for job in "$FAKE_SLURM"/*; do kill -KILL -- "-$(cat "$job")"; done 2> /dev/null
exit 0
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put fake commands on the PATH; return the folder with a file for each job."""
    pytest.importorskip("datatrove")
    programs = tmp_path / "programs"
    folder = programs / "jobs"
    folder.mkdir(parents=True)
    texts = {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": SCANCEL, "scontrol": "echo n1"}
    for name, text in texts.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    monkeypatch.setattr(executors, "_GRACE_S", 0.5)
    yield folder
    for job in folder.iterdir():  # of a failed test
        with suppress(ProcessLookupError):
            os.killpg(int(job.read_text()), signal.SIGKILL)


def slurm(**settings: object) -> EngineRecipe:
    return EngineRecipe(name="slurm", slurm=SlurmRecipe(**({"partition": "cpu"} | settings)))


@pytest.mark.slow
def test_slurm_repeats_failed_and_lost_tasks(tmp_path: Path, jobs: Path, capfd) -> None:
    options = {"account": "nlp", "qos": "long"}
    engine = slurm(time="01:00:00", memory_gb=7, max_jobs=2, options=options)
    folder, work = tmp_path / "slurm", tmp_path / "work"
    tasks = make_tasks(folder, range(3), {0: "user error", 1: "die"})
    weights = [3_000, 2_000, 1_000]
    with pytest.raises(MetaXLMError) as caught:
        run_tasks(perform, tasks, weights, work, engine, "some work")
    assert str(caught.value) == (
        "some work: 2 of 3 tasks failed: page 0: cut short; fetch it again | a job ended before "
        f"its task (time, memory, setup?); see {work}"
    )
    script = (work / "launch_script.slurm").read_text()
    for line in ("mem-per-cpu=7G", "partition=cpu", "time=01:00:00", "array=0-2%2", "account=nlp"):
        assert f"#SBATCH --{line}\n" in script
    (folder / "fixed").touch()
    run_tasks(perform, tasks, weights, work, engine, "some work")
    out, err = capfd.readouterr()
    assert err == ""
    assert out.splitlines()[-1].startswith("some work: 6/6 kB, ")
    assert sorted(read_executions(folder)) == [0, 0, 1, 1, 2]
    assert len(read_results(folder)) == 3


def test_a_stop_cancels_jobs(tmp_path: Path, jobs: Path) -> None:
    driver = start_driver(slurm(), tmp_path, "waiting")
    pids = read_pids(tmp_path / "waiting", 0, 1)
    driver.send_signal(signal.SIGTERM)
    out, _ = driver.communicate(timeout=20)
    assert (driver.returncode, out.splitlines()[-1]) == (75, "waiting: stopped")
    wait_until(lambda: not any(map(is_alive, pids)))


def test_slurm_that_cannot_work(
    tmp_path: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(message: str, folder: str = "work", **settings: object) -> None:
        with pytest.raises(MetaXLMError, match=message):
            run_tasks(perform, [0], [1], tmp_path / folder, slurm(**settings), "some work")

    check(r"sbatch failed.*launch_script\.slurm", partition="nowhere")
    check(r"engine\.slurm\.partition: missing", partition=None)
    check("needs a folder without spaces", "with a space")
    monkeypatch.setenv("PATH", str(tmp_path))
    check("needs sbatch")
    monkeypatch.setitem(sys.modules, "datatrove.executor.slurm", None)
    check(r"install `metaxlm\[cluster\]`")


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Ray cluster of one node with two cores, and a token that both sides know."""
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    log = tmp_path / "head.log"
    options = [f"--port={port}", "--node-ip-address=127.0.0.1", "--num-cpus=2", "--block"]
    options += ["--include-dashboard=false", "--object-store-memory=100000000"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", *options]
    with log.open("w") as file:
        head = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "Ray runtime started" in log.read_text(), timeout_s=120)
        yield f"127.0.0.1:{port}"
    finally:
        head.terminate()
        head.wait(60)


@pytest.mark.slow
def test_ray_completes_tasks_and_reports_failures(address: str, tmp_path: Path) -> None:
    # One driver runs all cases, because connecting takes seconds.
    engine = EngineRecipe(name="ray", workers=2, ray_address=address)
    driver = start_driver(engine, tmp_path, "same", "faults", "waiting")
    pids = read_pids(tmp_path / "waiting", 0, 1)
    driver.terminate()
    out, _ = driver.communicate(timeout=60)
    assert driver.returncode == 75, out
    same, faults, stopped = out.splitlines()
    assert same.startswith("same: 10/10 kB")
    assert len(read_results(tmp_path / "same")) == 4
    assert faults == "faults: 1 of 4 tasks failed: page 1: cut short; fetch it again"
    assert sorted(read_executions(tmp_path / "faults")) == [0, 1, 2, 3]
    assert stopped == "stopped"
    wait_until(lambda: not any(map(is_alive, pids)))


def test_no_ray_cluster_at_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    engine = EngineRecipe(name="ray", ray_address="127.0.0.1:9")
    out, _ = start_driver(engine, tmp_path, "same").communicate(timeout=120)
    assert out.startswith("engine.ray_address 127.0.0.1:9: cannot connect ("), out
    assert out.endswith("start a cluster with `ray start --head`, or remove the key\n")
