"""The benchmark of training against sentence-transformers runs anywhere."""

from __future__ import annotations

import pytest

from tests.benchmark_runs import run_builtin

pytestmark = pytest.mark.slow  # loads all of sentence-transformers, in a process of its own


def test_it_compares_both() -> None:
    pytest.importorskip("sentence_transformers")
    sizes = ("--steps", "2", "--warm-up", "1", "--batch", "16")
    outcome = run_builtin("sentences.py", *sizes)
    assert outcome.returncode == 0, outcome.stderr
    rows = [line.split("|") for line in outcome.stdout.splitlines() if line.startswith("| ")]
    assert [row[1].split()[0] for row in rows[1:]] == ["metaxlm", "sentence-transformers"]
    speeds = [float(row[2].replace(",", "")) for row in rows[1:]]
    assert float(rows[1][3]) == pytest.approx(speeds[0] / speeds[1], rel=0.1)
