"""A run killed with SIGKILL at any moment and started again ends like an undisturbed one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.programs import run_program


@pytest.mark.parametrize("num_runs", [1, pytest.param(50, marks=pytest.mark.faults)])
def test_killed_runs_end_like_undisturbed_ones(tmp_path: Path, num_runs: int) -> None:
    found = run_program("killed_trainings", tmp_path, num_runs, 20)
    endings, reached = found["endings"], found["reached"]
    same = endings.count(found["whole"])
    print(
        f"{len(reached)} kills of {len(endings)} runs, {found['in_a_save']} of them during a save, "
        f"newest checkpoints between step {min(reached)} and {max(reached)}: {same} identical "
        "results (weights, moments, state, log)"
    )
    assert len(endings) == same == num_runs
    assert len(reached) == num_runs + num_runs // 2
    # The kills are spread over the run.
    assert len(set(reached)) > num_runs // 5
    assert found["in_a_save"] >= num_runs // 10
