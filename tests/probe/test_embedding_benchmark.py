"""The benchmark against sentence-transformers runs anywhere, and says what it lacks."""

from __future__ import annotations

import importlib.util

import pytest

from tests.benchmark_runs import run_builtin

pytestmark = pytest.mark.slow  # loads all of sentence-transformers, in a process of its own
HAS_PEER = importlib.util.find_spec("sentence_transformers") is not None


@pytest.mark.skipif(HAS_PEER, reason="sentence-transformers is installed")
def test_without_the_peer_it_says_what_to_install() -> None:
    outcome = run_builtin("embedding.py")
    assert outcome.returncode == 1
    assert outcome.stderr == "the peer is not installed: pip install sentence-transformers\n"


@pytest.mark.skipif(not HAS_PEER, reason="sentence-transformers is not installed")
def test_it_compares_both() -> None:
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
