"""The last good checkpoint loads, whichever call of a save fails or kills the process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.faults.programs import needs_compiler, run_program


@needs_compiler
@pytest.mark.parametrize("every", [120, pytest.param(1, marks=pytest.mark.faults)])
def test_calls_of_a_save_fail(tmp_path: Path, every: int) -> None:
    found = run_program("failing_saves", tmp_path / "run", every, disk=tmp_path)
    kinds = Counter(found["calls"])
    left = {name: Counter(steps) for name, steps in found["left"].items()}
    tried = len(range(0, len(found["calls"]), every))
    print(
        f"a save makes {kinds['w']} writes, {kinds['f']} fsyncs, {kinds['r']} renames, "
        f"{kinds['u']} removals; {tried} of them failed once and killed once; then loaded, by "
        f"step: {dict(left['fail'])} after failures, {dict(left['die'])} after kills"
    )
    assert not found["wrong"]
    # Weights, moments, state, manifest and five exported files, each flushed, and their folders.
    assert kinds["w"] >= 9 and kinds["f"] >= 13 and kinds["r"] >= 4
    assert [counts.total() for counts in left.values()] == [tried, tried]
