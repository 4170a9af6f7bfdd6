"""The benchmark of memory runs on a CPU, without limits."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.benchmark_runs import FOLDER


@pytest.mark.slow
def test_settings_are_trained_and_compared() -> None:
    settings = "bfloat16:1:false,bfloat16:4:true"
    done = subprocess.run(
        [
            sys.executable, str(FOLDER / "memory.py"), "--tiny", "--device", "cpu",
            "--limits", "8,none", "--settings", settings,
        ],
        capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cells = [line.split("│")[1:-1] for line in done.stdout.splitlines() if line.startswith("│")]
    rows = [[cell.strip() for cell in line] for line in cells]
    expected = [(count, again) for _ in range(2) for count, again in (("1", "no"), ("4", "yes"))]
    assert [(row[1], row[2]) for row in rows] == expected
    assert [row[3] for row in rows] == ["none", "none", "8 GB", "8 GB"]
    assert rows[0][-1] == "100%" and all(row[-1].endswith("%") for row in rows)
