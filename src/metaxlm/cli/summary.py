"""What a run says at its end."""

from __future__ import annotations

from pathlib import Path

from metaxlm.progress import console, say
from metaxlm.report import summary_table
from metaxlm.report.run_folder import PAPER, read_run


def show_summary(run_dir: Path) -> None:
    """Print the scores of a run and where its report stands."""
    run = read_run(run_dir)
    console.print(summary_table(run.rows))
    say(f"report: {run_dir / 'report' / 'index.html'}")
    if run.has_grid:
        say(f"in the paper's layout: {run_dir / 'report' / PAPER / 'index.html'}")
