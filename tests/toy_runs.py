"""Runs of a recipe `toy.yaml` in a folder, in this process or in one of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metaxlm.cli import main


def command(folder: Path, *more: str, recipe: str = "toy.yaml") -> list[str]:
    """Return the command line, with the name of the module first."""
    output = str(folder / "runs")
    return [
        "metaxlm", "run", str(folder / recipe), "--output", output, "--device", "cpu", *more,
    ]  # fmt: skip


def run(folder: Path, *more: str, recipe: str = "toy.yaml") -> int:
    """Run it here; return the exit code."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", command(folder, *more, recipe=recipe))
        main()
    return int(ended.value.code or 0)


def start(folder: Path, *more: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start it in a process of its own, with one thread as here."""
    return subprocess.Popen(
        [sys.executable, "-m", *command(folder, *more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )
