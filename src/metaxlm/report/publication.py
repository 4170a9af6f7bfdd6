"""A run to show: what its report is drawn from, in a folder small enough for a repository.

In comes a run folder of any size. Out comes a folder with the results table and the tests between
variants (compressed), recipe, provenance, training logs and coverage, and the report drawn from
just these files, as anybody can draw it again: `metaxlm report FOLDER`. No weights, no predictions.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.experiments.collection import PROVENANCE
from metaxlm.experiments.results import FILE_NAME as RESULTS
from metaxlm.experiments.task_comparison import FILE_NAME as COMPARISONS
from metaxlm.files import PACKED, atomic_path, pack
from metaxlm.report.paper.source import DATA_NOTES
from metaxlm.report.run_folder import COVERAGE, LOG, find_log, read_run
from metaxlm.report.stage import write_report

RECIPE = "recipe.yaml"


def publish(run_dir: Path, folder: Path) -> None:
    """Write the folder, whole or not at all; one of the same run is replaced."""
    run = read_run(run_dir)
    _check_place(run.name, run_dir, folder)
    with atomic_path(folder) as target:
        target.mkdir()
        for name in (RESULTS, COMPARISONS):
            if (run_dir / name).is_file():
                pack(run_dir / name, target / f"{name}{PACKED}")
        for name in (RECIPE, PROVENANCE):
            _copy(run_dir / name, target / name)
        for notes in (run_dir / DATA_NOTES, folder / DATA_NOTES):
            _copy(notes, target / DATA_NOTES)
        for training in ("meta", *(f"variants/{name}" for name in run.variants)):
            if (log := find_log(run_dir / training)) is not None:
                _copy(log, target / training / LOG)
            _copy(run_dir / training / COVERAGE, target / training / COVERAGE)
        write_report(target)


def _check_place(name: str, run_dir: Path, folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier publication of the run."""
    if folder.resolve().is_relative_to(run_dir.resolve()):
        raise MetaXLMError(f"{folder}: lies in the run itself; name a folder elsewhere")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    is_published = (folder / f"{RESULTS}{PACKED}").is_file()
    if not is_published or read_run(folder).name != name:
        raise MetaXLMError(
            f"{folder}: is there already, and is no publication of {name}; name another folder"
        )


def _copy(source: Path, target: Path) -> None:
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
