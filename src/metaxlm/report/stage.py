"""The last stage of a run: draw the report again when a score, a log or the recipe changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from metaxlm.experiments.layout import RunLayout
from metaxlm.experiments.results import FILE_NAME
from metaxlm.experiments.stage import Stage
from metaxlm.files import digest_file
from metaxlm.report.page import fill_report
from metaxlm.report.run_folder import read_run


def report_stage(layout: RunLayout, stages: Sequence[Stage]) -> Stage:
    """Return the stage that fills `report/` from all stages that are finished by now."""

    def fill(folder: Path) -> None:
        fill_report(read_run(layout.root), folder)

    finished = tuple(stage for stage in stages if stage.is_complete())
    inputs = {
        "recipe": digest_file(layout.recipe),
        "results": digest_file(layout.root / FILE_NAME),
    }
    return Stage("report", layout.report, inputs, finished, fill)
