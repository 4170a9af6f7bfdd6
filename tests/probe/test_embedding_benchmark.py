"""The benchmark against sentence-transformers runs anywhere and finds the same vectors."""

from __future__ import annotations

import pytest

from tests.benchmark_runs import run_builtin

pytestmark = pytest.mark.slow  # loads all of sentence-transformers, in a process of its own


def test_it_compares_both() -> None:
    pytest.importorskip("sentence_transformers")
    outcome = run_builtin("embedding.py", "--sentences", "100", "--rounds", "1")
    assert outcome.returncode == 0, outcome.stderr
    assert "100 sentences of" in outcome.stdout
    rows = [line.split("│") for line in outcome.stdout.splitlines() if line.startswith("│")]
    names = ["metaxlm", "sentence-transformers, batch 32", "sentence-transformers, batch 128"]
    assert [row[1].strip() for row in rows] == names
    for row in rows:
        assert 0 <= float(row[5].strip(" %")) < 90  # padding
        assert float(row[6]) < 1e-4  # the same vectors
        assert float(row[7].strip(" x")) > 0
