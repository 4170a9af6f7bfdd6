"""Tables on the terminal, and what a run prints at its end."""

from __future__ import annotations

from pathlib import Path

from metaxlm.analysis.results import load_results
from metaxlm.analysis.scores import Results
from metaxlm.analysis.tables import Table, drop_deviations, render_terminal
from metaxlm.progress import console, say


def print_table(table: Table) -> None:
    """Print a table."""
    console.print(render_terminal(table))


def show_summary(run_dir: Path, results: Results | None = None) -> None:
    """Print the headline numbers of a run and the path of its report."""
    from metaxlm.analysis.score_tables import make_summary_table

    results = results or Results(load_results(run_dir))
    print_table(drop_deviations(make_summary_table(results)))
    say(f"report: {run_dir / 'report' / 'index.html'}")
