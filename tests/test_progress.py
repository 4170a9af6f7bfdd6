"""Bars on a terminal, plain lines in a log."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time

import pytest
from rich.console import Console

from metaxlm import progress

NOTE = "loss 5.123, 540,000 tokens/s, 46 % of the peak, rate 9.90e-05"


def test_a_terminal_of_80_columns_shows_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(progress, "console", console)
    with progress.track("pretraining metaxlm+dict", 200_000, "steps", completed=199_990) as advance:
        for _ in range(10):
            time.sleep(0.01)
            advance(note=NOTE)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.getvalue()).replace("\r", "\n")
    *_, bar, note = [line for line in text.splitlines() if line.strip()]
    for part in ("pretraining metaxlm+dict", "200000/200000", "steps/s", "0:00:00"):
        assert part in bar
    assert max(len(bar), len(note)) <= 80
    assert note.strip() == NOTE


def test_a_pipe_gets_lines_even_if_colors_are_forced() -> None:
    code = """
from metaxlm.progress import track
with track("work", 2, "steps") as advance:
    advance(2)
"""
    environment = os.environ | {"FORCE_COLOR": "1", "TERM": "xterm-color"}  # as in Jupyter
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=True)
    [line] = done.stdout.splitlines()
    assert line.startswith("work: 2/2 steps")
