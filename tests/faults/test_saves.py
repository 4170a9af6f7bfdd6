"""Whatever call of a save fails, and wherever it dies, the last good checkpoint loads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("faulty_disk.c")

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or not sys.platform.startswith("linux"),
    reason="needs a C compiler (cc) and Linux",
)


def build_library(folder: Path) -> Path:
    """Compile the library that lets calls fail."""
    library = folder / "faulty_disk.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def fail_calls(folder: Path, every: int) -> None:
    settings = {"LD_PRELOAD": str(build_library(folder)), "OMP_NUM_THREADS": "1"}
    settings |= {"TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.failing_saves", str(folder / "run"), str(every)],
        check=False,
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
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
    for name in ("fail", "die"):
        assert sum(left[name].values()) == tried


def test_some_calls_of_a_save_fail(tmp_path: Path) -> None:
    fail_calls(tmp_path, 10)


@pytest.mark.faults
def test_every_call_of_a_save_fails(tmp_path: Path) -> None:
    fail_calls(tmp_path, 1)
