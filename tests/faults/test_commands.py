"""Commands on a disk where one call fails: one line, and nothing half written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.faults.programs import needs_compiler, run_program


@needs_compiler
@pytest.mark.parametrize(
    ("share", "kind", "num_failures"),
    [
        pytest.param(0.15, "few", 4, marks=pytest.mark.slow),
        pytest.param(1, "all", 240, marks=pytest.mark.faults),
    ],
)
def test_calls_of_commands_fail(tmp_path: Path, share: float, kind: str, num_failures: int) -> None:
    (tmp_path / "commands").mkdir()
    commands = run_program("failing_commands", tmp_path / "commands", share, kind, disk=tmp_path)
    print("| command | calls | failed | one line | complete all the same | wrong | seconds |")
    wrong, total = [], 0
    for name, found in commands.items():
        attempts = found["attempts"]
        ends = Counter(attempt["outcome"] for attempt in attempts)
        problems = [problem for attempt in attempts for problem in attempt["wrong"]]
        counts = [sum(found["calls"].values()), len(attempts), ends["one line"], ends["complete"]]
        seconds = sum(attempt["seconds"] for attempt in attempts)
        print(f"| {name} | {' | '.join(map(str, [*counts, len(problems)]))} | {seconds:.0f} |")
        wrong += [(name, problem) for problem in problems]
        total += len(attempts)
    assert not wrong
    assert total >= num_failures
