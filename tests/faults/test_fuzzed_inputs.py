"""Damaged and hostile files: every reader rejects them in one line, in bounded time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.faults.bombs import BOMBS, MOST_BYTES
from tests.faults.fuzzed_readers import READERS, fuzz, share_out, write_seeds

from metaxlm.progress import set_quiet

SOME = share_out(300)
MANY = 5_200
ROOT = Path(__file__).parents[2]


@pytest.mark.filterwarnings("default")  # libraries warn about what they read
@pytest.mark.parametrize("name", READERS)
def test_some_damaged_inputs_are_read_or_rejected(name: str, tmp_path: Path) -> None:
    set_quiet(True)
    write_seeds(tmp_path, [name])
    outcome = fuzz(tmp_path, name, SOME[name])
    assert outcome.failures == []


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("bombs")
    command = [sys.executable, "-m", "tests.faults.bombs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", BOMBS)
def test_small_files_do_not_fill_the_memory(name: str, bombs: dict[str, Any]) -> None:
    wanted = BOMBS[name][2]
    found = bombs[name]
    if wanted:
        assert found["outcome"].startswith("rejected: ")
        assert wanted in found["outcome"]
    else:
        assert found["outcome"] == "read"
    assert found["peak"] < MOST_BYTES


@pytest.mark.faults
def test_five_thousand_damaged_inputs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.fuzzed_readers"]
    workers = [
        subprocess.Popen(
            [*command, str(tmp_path / str(part)), str(MANY), str(part), "2"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in range(2)
    ]
    outcomes: dict[str, Any] = {}
    for worker in workers:
        out, told = worker.communicate()
        assert worker.returncode == 0, told[-2_000:]
        outcomes |= json.loads(out.splitlines()[-1])
    for name, found in outcomes.items():
        print(f"{name}: {found['mutations']} damaged, {found['read']} read, ", end="")
        print(f"{found['rejected']} rejected, {len(found['failures'])} otherwise")
    assert outcomes.keys() == READERS.keys()
    assert sum(found["mutations"] for found in outcomes.values()) >= 5_000
    assert [failure for found in outcomes.values() for failure in found["failures"]] == []
