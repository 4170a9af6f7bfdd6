"""`metaxlm evaluate` when it is stopped, killed, or started twice at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.evaluations import job_times, model_options, read_rows, run


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "metaxlm", "evaluate", *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def check_continuation(arguments: Sequence[str | Path], folder: Path) -> None:
    """Check that no job runs twice, and that scores equal those of an undisturbed evaluation."""
    output, undisturbed = folder / "out", folder / "undisturbed"
    before = job_times(output)
    assert run(*arguments, "--seeds", str(len(before) + 1)) == 0
    after = job_times(output)
    assert len(after) == len(before) + 1
    assert {place: after[place] for place in before} == before
    assert run(*arguments, "--seeds", "2", "--output", undisturbed) == 0
    for seed in (0, 1):
        mine, other = (
            json.loads((root / f"cells/one/udpos/en-{seed}/cell.json").read_text("utf-8"))
            for root in (output, undisturbed)
        )
        assert mine["files"] == other["files"]


def wait_for(path: Path) -> None:
    until = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_killed_evaluation_resumes(small: list[str | Path], tmp_path: Path) -> None:
    arguments = [*small, "--task", "udpos", "--set", "epochs=3"]
    process = start(*arguments, "--seeds", "2000")
    wait_for(tmp_path / "out/cells/one/udpos/en-1/manifest.json")
    assert process.poll() is None
    process.kill()
    process.communicate()
    check_continuation(arguments, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_evaluation_resumes(
    small: list[str | Path],
    tmp_path: Path,
    number: signal.Signals,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*small, "--task", "udpos", "--set", "epochs=3"]

    def stop() -> None:
        wait_for(tmp_path / "out/cells/one/udpos/en-1/manifest.json")
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=stop)
    before = signal.getsignal(signal.SIGTERM)
    thread.start()
    assert run(*arguments, "--seeds", "2000") == 75
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    assert capsys.readouterr().err == "metaxlm: stopped; the same command continues\n"
    assert not list((tmp_path / "out").rglob(".tmp-*"))
    check_continuation(arguments, tmp_path)


def test_two_processes_share_a_folder(
    small: list[str | Path], models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both have the same jobs: each job runs once, and both processes succeed."""
    arguments = [*small, *model_options(models, ["two"]), "--task", "xnli,udpos"]
    arguments += ["--set", "epochs=8", "--seeds", "4"]
    process = start(*arguments)
    wait_for(tmp_path / "out/cells/one/xnli/en-0/manifest.json")
    assert run(*arguments) == 0
    shown = process.communicate(timeout=300)[0]
    assert process.returncode == 0, shown
    both = [shown, capsys.readouterr().out]
    output = tmp_path / "out"
    assert len(job_times(output)) == 16
    made = [[line for line in text.splitlines() if "test files" in line] for text in both]
    assert all(made)
    assert len(made[0] + made[1]) == len({*made[0], *made[1]}) == 16
    found = {(r["variant"], r["task"], r["seed"]) for r in read_rows(output) if r["variant"]}
    assert len(found) == 16
    assert (output / "tables" / "tests.md").is_file()
