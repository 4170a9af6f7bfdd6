"""The Slurm engine: its script is really run, by stand-ins for Slurm's commands.

The stand-ins keep a queue in a folder. `sbatch` starts a process that runs the script with bash for
each element of the array, as many at once as the array allows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.data.engines.pipeline_steps import (
    MakeDocuments,
    Misbehave,
    WriteDocuments,
    is_alive,
    read_executions,
    read_results,
    wait_until,
)

from metaxlm.config import EngineRecipe, SlurmRecipe
from metaxlm.data.engines import run_tasks, slurm
from metaxlm.errors import MetaXLMError

ROOT = Path(__file__).parents[3]

SBATCH = """
import os, re, subprocess, sys
folder = os.environ["FAKE_SLURM"]
if any("--partition=nowhere" in line for line in open(sys.argv[-1])):
    sys.exit("sbatch: error: invalid partition specified: nowhere")
job = str(len(os.listdir(folder)) + 1)
print(*sys.argv[1:-1], file=open(f"{folder}/../sbatch.log", "a"))
queue = subprocess.Popen(
    [sys.executable, f"{folder}/../queue.py", job, *sys.argv[1:]],
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    start_new_session=True,
)
open(f"{folder}/{job}", "w").write(str(queue.pid))
print(f"{job};cluster")
"""
QUEUE = """
import os, re, subprocess, sys
job, *options, script = sys.argv[1:]
options = dict(option.lstrip("-").partition("=")[::2] for option in options)
first, last, limit = re.fullmatch(r"(\\d+)-(\\d+)(?:%(\\d+))?", options["array"]).groups()
log = re.search(r'--output="?([^"\\n]*)', open(script).read())[1]
offset = options["export"].split("RUN_OFFSET=")[1]
running = []
for index in range(int(first), int(last) + 1):
    while len(running) >= int(limit or 2):
        running.pop(0).wait()
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(index), "RUN_OFFSET": offset}
    output = open(log.replace("%A", job).replace("%a", str(index)), "a")
    running.append(
        subprocess.Popen(["bash", script], env=environment, stdout=output, stderr=output)
    )
for process in running:
    process.wait()
"""
SQUEUE = """
import os, sys
folder = os.environ["FAKE_SLURM"]
print("asked", file=open(f"{folder}/../squeue.log", "a"))
for job in next(a for a in sys.argv if a.startswith("--jobs="))[7:].split(","):
    stat = f"/proc/{open(f'{folder}/{job}').read()}/stat"
    if os.path.exists(stat) and open(stat).read().rpartition(")")[2].split()[0] != "Z":
        print("RUNNING")
"""
SCANCEL = """
import os, signal, sys
for job in sys.argv[1:]:
    os.killpg(int(open(os.environ["FAKE_SLURM"] + f"/{job}").read()), signal.SIGKILL)
"""
SCONTROL = "print('MaxArraySize            = 3')"


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stand-ins on the PATH; the folder in which they keep a file for each job."""
    programs = tmp_path / "programs"
    folder = programs / "jobs"
    folder.mkdir(parents=True)
    (programs / "queue.py").write_text(QUEUE)
    texts = {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": SCANCEL, "scontrol": SCONTROL}
    for name, text in texts.items():
        (programs / name).write_text(f"#!{sys.executable}\n{text}")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    monkeypatch.setattr(slurm, "_GRACE_S", 0.5)
    yield folder
    for job in folder.iterdir():  # what a failed test has left
        with suppress(ProcessLookupError):
            os.killpg(int(job.read_text()), signal.SIGKILL)


def engine(**settings: object) -> EngineRecipe:
    return EngineRecipe(name="slurm", slurm=SlurmRecipe(**settings))


def test_arrays_complete_all_tasks(tmp_path: Path, jobs: Path, capfd) -> None:
    folder = tmp_path / "with a space"
    folder.mkdir()
    settings = engine(
        partition="cpu",
        time="01:00:00",
        memory_gb=7,
        max_jobs=2,
        setup=f"export PATH={Path(sys.executable).parent}:$PATH",
        options={"account": "nlp", "qos": "long"},
    )
    pipeline = [MakeDocuments(), WriteDocuments(folder)]
    run_tasks(pipeline, [1_000, 3_000, 2_000, 0], folder / "work", settings, "some work")
    out, err = capfd.readouterr()
    assert err == ""
    assert out.splitlines()[-1].startswith("some work: 6/6 kB, ")
    assert sorted(read_executions(folder)) == [0, 1, 2, 3]

    local = tmp_path / "local"
    local.mkdir()
    pipeline = [MakeDocuments(), WriteDocuments(local)]
    run_tasks(pipeline, [1] * 4, local / "work", EngineRecipe(workers=2), "local")
    assert read_results(folder) == read_results(local)

    # The cluster's arrays have three elements, so there are two; the second waits for the first.
    assert (jobs / "../sbatch.log").read_text().splitlines() == [
        "--parsable --export=ALL,RUN_OFFSET=0 --array=0-2%2",
        "--parsable --export=ALL,RUN_OFFSET=1 --array=0-0%2 --dependency=afterany:1",
    ]
    script = (folder / "work/launch_script.slurm").read_text().splitlines()
    log = folder / "work/logs/slurm/%A_%a.out"
    assert script[0] == "#!/bin/bash"
    assert set(script[1:-4]) == {
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --mem-per-cpu=7G",
        "#SBATCH --nodes=1",
        "#SBATCH --partition=cpu",
        "#SBATCH --job-name=some-work",
        "#SBATCH --time=01:00:00",
        f'#SBATCH --output="{log}"',
        f'#SBATCH --error="{log}"',
        "#SBATCH --array=0-2%2",
        "#SBATCH --open-mode=append",
        "#SBATCH --account=nlp",
        "#SBATCH --qos=long",
        "#SBATCH --requeue",
    }
    assert script[-4:-2] == ["set -e", settings.slurm.setup]
    assert script[-1] == (
        f"exec python -m datatrove.tools.launch_pickled_pipeline '{folder / 'work/executor.pik'}'"
    )


def test_failures_and_lost_tasks_are_told(tmp_path: Path, jobs: Path) -> None:
    faults = {0: "user error", 1: "die"}
    with pytest.raises(MetaXLMError) as caught:
        run_tasks(
            [Misbehave(tmp_path, faults)], [1, 1, 1], tmp_path / "work", engine(), "some work"
        )
    logs = tmp_path / "work/logs/slurm"
    assert str(caught.value) == (
        "some work: 2 of 3 tasks failed: page 0: cut short; fetch it again | jobs of tasks 1 left "
        f"the queue unfinished (engine.slurm.time, memory_gb, setup?); see {logs}"
    )
    assert "page 0: cut short" in "".join(log.read_text() for log in logs.iterdir())
    assert "partition" not in (tmp_path / "work/launch_script.slurm").read_text()

    (tmp_path / "mended").touch()
    run_tasks([Misbehave(tmp_path, faults)], [1, 1, 1], tmp_path / "work", engine(), "some work")
    assert sorted(read_executions(tmp_path)) == [0, 0, 1, 1, 2]


def test_refused_job(tmp_path: Path, jobs: Path) -> None:
    with pytest.raises(MetaXLMError, match=r"sbatch refused .*invalid partition specified"):
        pipeline = [Misbehave(tmp_path, {})]
        run_tasks(pipeline, [1], tmp_path / "work", engine(partition="nowhere"), "some work")


def test_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MetaXLMError, match="needs scontrol; start from a machine"):
        run_tasks([Misbehave(tmp_path, {})], [1], tmp_path / "work", engine(), "some work")


DRIVER = """
import sys
from pathlib import Path
from metaxlm.config import EngineRecipe
from metaxlm.data.engines import run_tasks
from metaxlm.errors import Interrupted
from tests.data.engines.pipeline_steps import WaitForFile

folder = Path(sys.argv[1])
try:
    run_tasks(
        [WaitForFile(folder, {0, 1})], [1, 1], folder / "work", EngineRecipe(name="slurm"), "work"
    )
except Interrupted as stop:
    print(stop)
    sys.exit(75)
"""


def start_driver(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    files = [folder / "pid-0", folder / "pid-1"]
    wait_until(lambda: all(file.exists() for file in files))
    return driver, [int(file.read_text()) for file in files]


def test_stop_cancels_the_jobs(tmp_path: Path, jobs: Path) -> None:
    driver, pids = start_driver(tmp_path)
    driver.send_signal(signal.SIGTERM)
    out, _ = driver.communicate(timeout=10)
    assert (driver.returncode, out) == (75, "work: stopped\n")
    wait_until(lambda: not any(map(is_alive, pids)))


def test_second_start_waits_for_jobs_that_still_run(tmp_path: Path, jobs: Path) -> None:
    driver, pids = start_driver(tmp_path)
    driver.kill()
    driver.communicate()
    assert all(map(is_alive, pids))
    log = jobs / "../squeue.log"
    asked = len(log.read_text())
    second = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)])
    wait_until(lambda: len(log.read_text()) >= asked + 3 * len("asked\n"))
    assert len((jobs / "../sbatch.log").read_text().splitlines()) == 1
    (tmp_path / "go").touch()
    assert second.wait(20) == 0
    assert sorted(read_executions(tmp_path)) == [0, 1]
    assert len(read_results(tmp_path)) == 2
