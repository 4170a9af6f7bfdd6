"""Bars on a terminal, plain lines in a log."""

from __future__ import annotations

import io
import re
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
