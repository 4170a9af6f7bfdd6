"""The last stage of a run: draw the report again when a score, a log or the recipe changed.

Every run has a page on the method. One whose recipe has a grid follows the paper's experiments, and
has a second page in the paper's layout beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from metaxlm import __version__
from metaxlm.experiments.layout import RunLayout
from metaxlm.experiments.results import FILE_NAME
from metaxlm.experiments.stage import Stage
from metaxlm.files import atomic_path, digest_file
from metaxlm.manifest import write_manifest
from metaxlm.report.page import fill_report
from metaxlm.report.run_folder import PAPER, read_run


def report_stage(layout: RunLayout, stages: Sequence[Stage]) -> Stage:
    """Return the stage that fills `report/` from all stages that are finished by now."""

    def fill(folder: Path) -> None:
        _fill(layout.root, folder)

    finished = tuple(stage for stage in stages if stage.is_complete())
    inputs = {
        "recipe": digest_file(layout.recipe),
        "results": digest_file(layout.root / FILE_NAME),
    }
    return Stage("report", layout.report, inputs, finished, fill, version=2)


def write_report(run_dir: Path) -> Path:
    """Write the report of a run folder and return its page; an older report is replaced whole."""
    with atomic_path(run_dir / "report") as folder:
        _fill(run_dir, folder)
        write_manifest(folder, {"metaxlm": __version__})
    return run_dir / "report" / "index.html"


def _fill(run_dir: Path, folder: Path) -> None:
    run = read_run(run_dir)
    fill_report(run, folder)
    if run.has_grid:
        # The claims' tests come with torch, which no other page needs.
        from metaxlm.report.paper import read_paper_source, write_paper_report

        write_paper_report(read_paper_source(run_dir, run), folder / PAPER)
