"""Whatever call on the disk fails, a command ends with one line and leaves nothing half written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.faults.test_saves import ROOT, build_library

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or not sys.platform.startswith("linux"),
    reason="needs a C compiler (cc) and Linux",
)


def fail_calls(folder: Path, num_calls: int, kind: str) -> int:
    """Let calls of each command fail; return how many failed."""
    settings = {"LD_PRELOAD": str(build_library(folder)), "OMP_NUM_THREADS": "1"}
    settings |= {"TOKENIZERS_PARALLELISM": "false"}
    (folder / "commands").mkdir()
    arguments = [str(folder / "commands"), str(num_calls), kind]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.failing_commands", *arguments],
        check=False,
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    commands = json.loads(done.stdout.splitlines()[-1])
    wrong = []
    print("| command | calls | failed | one line | complete all the same | wrong |")
    for name, found in commands.items():
        attempts = found["attempts"]
        assert attempts, name
        ends = Counter(attempt["outcome"] for attempt in attempts)
        bad = [attempt for attempt in attempts if attempt["wrong"]]
        wrong += [(name, attempt) for attempt in bad]
        counts = [sum(found["calls"].values()), len(attempts), ends["one line"], ends["complete"]]
        print(f"| {name} | {' | '.join(map(str, [*counts, len(bad)]))} |")
    assert not wrong
    return sum(len(found["attempts"]) for found in commands.values())


def test_some_calls_of_some_commands_fail(tmp_path: Path) -> None:
    assert fail_calls(tmp_path, 2, "few") == 8


@pytest.mark.faults
def test_calls_of_every_command_fail(tmp_path: Path) -> None:
    assert fail_calls(tmp_path, 11, "all") >= 240
