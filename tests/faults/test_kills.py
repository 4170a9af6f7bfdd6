"""A run that is killed with -9 at any moment and started again ends as an undisturbed one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def kill_runs(folder: Path, num_runs: int) -> None:
    command = [sys.executable, "-m", "tests.faults.killed_trainings", str(folder), str(num_runs)]
    settings = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [*command, "20"],
        check=False,
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    endings, reached = found["endings"], found["reached"]
    same = endings.count(found["whole"])
    print(
        f"{len(reached)} kills of {len(endings)} runs, {found['in_a_save']} of them during a save, "
        f"newest checkpoints between step {min(reached)} and {max(reached)}: {same} identical "
        "endings (weights, moments, state, log)"
    )
    assert len(endings) == same == num_runs
    assert len(reached) == num_runs + num_runs // 2
    # The moments were spread over the run, or nothing would have been shown.
    assert len(set(reached)) > num_runs // 5
    assert found["in_a_save"] >= num_runs // 10


def test_a_kill(tmp_path: Path) -> None:
    kill_runs(tmp_path, 1)


@pytest.mark.faults
def test_fifty_kills(tmp_path: Path) -> None:
    kill_runs(tmp_path, 50)
