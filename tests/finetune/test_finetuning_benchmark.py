"""The benchmark against transformers' Trainer runs anywhere."""

from __future__ import annotations

import pytest

from tests.benchmark_runs import run_builtin

pytestmark = pytest.mark.slow  # loads all of transformers' Trainer, in a process of its own
SMALL = ("--examples", "64", "--scored", "20", "--seeds", "1", "--epochs", "1")


@pytest.mark.parametrize("task", ["xnli", "udpos"])
def test_it_compares_both_loops(task: str) -> None:
    pytest.importorskip("accelerate")
    outcome = run_builtin("finetuning.py", "--tasks", task, *SMALL)
    assert outcome.returncode == 0, outcome.stderr
    assert "64 training sequences" in outcome.stdout
    rows = [line.split("│") for line in outcome.stdout.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == ["metaxlm", "Trainer", "Trainer by length"]
    for row in rows:
        assert 0 <= float(row[2]) <= 100
        assert float(row[5]) > 0
