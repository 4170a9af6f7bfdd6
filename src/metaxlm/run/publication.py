"""Publish a run: copy what its report is drawn from into a folder small enough for a repository.

The folder has the results and the tests between variants (compressed), recipe, provenance, training
logs and coverage, and the report drawn from these files; `metaxlm report FOLDER` draws it again. It
has no weights and no predictions.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from metaxlm.analysis.report import fill_report, write_report
from metaxlm.analysis.results import FILE_NAME as RESULTS
from metaxlm.analysis.results import dump_lines
from metaxlm.analysis.run_folder import (
    COVERAGE,
    DATA_NOTES,
    LOG,
    PROVENANCE,
    RECIPE,
    find_log,
    read_run,
)
from metaxlm.analysis.stats import COMPARISONS
from metaxlm.errors import MetaXLMError
from metaxlm.files import (
    PACKED,
    check_output,
    digest_file,
    dump_json,
    pack,
    read_text,
    write_json,
    write_text,
)
from metaxlm.manifest import atomic_folder, list_foreign_files
from metaxlm.recipe.load import save_values
from metaxlm.run.addition import Addition, add_run
from metaxlm.run.layout import RunLayout
from metaxlm.run.stage import Stage


def report_stage(layout: RunLayout, stages: Sequence[Stage]) -> Stage:
    """Return the last stage of a run: draw the report when a score or the recipe changed."""

    def fill(folder: Path) -> None:
        fill_report(read_run(layout.root), folder)

    finished = tuple(stage for stage in stages if stage.is_complete())
    inputs = {
        "recipe": digest_file(layout.recipe),
        "results": digest_file(layout.root / RESULTS),
    }
    return Stage("report", layout.report, inputs, finished, fill, version=3)


def publish(run_dir: Path, folder: Path) -> None:
    """Write the folder, whole or not at all; one of the same run is replaced."""
    run = read_run(run_dir)
    _check_place(run.name, run_dir, folder)
    with atomic_folder(folder) as target:
        for name in (RESULTS, COMPARISONS):
            if (run_dir / name).is_file():
                pack(read_text(run_dir / name), target / f"{name}{PACKED}")
        for name in (RECIPE, PROVENANCE):
            _copy(run_dir / name, target / name)
        _copy_trainings(run_dir, target, run.variants)
        for notes in (run_dir / DATA_NOTES, folder / DATA_NOTES):
            _copy(notes, target / DATA_NOTES)
        write_report(target)


def publish_more(run_dir: Path, folder: Path) -> Addition:
    """Let the folder have the run's cells that it lacks as well; what it has stays."""
    run = read_run(run_dir)
    _check_place(run.name, run_dir, folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        raise MetaXLMError(f"{folder}: nothing is published there yet; leave out --add")
    addition = add_run(folder, run_dir)
    if not addition.num_added:
        raise MetaXLMError(f"{run_dir}: has no cell that {folder} lacks; nothing was changed")
    with atomic_folder(folder) as target:
        for name, content in (
            (RESULTS, dump_lines(addition.rows)),
            (COMPARISONS, dump_json(addition.comparisons)),
        ):
            pack(content, target / f"{name}{PACKED}")
        write_text(target / RECIPE, save_values(addition.recipe))
        write_json(target / PROVENANCE, addition.provenance)
        for source in (run_dir, folder):  # the published one last, so that it stays
            _copy_trainings(source, target, [*addition.recipe["variants"]])
            _copy(source / DATA_NOTES, target / DATA_NOTES)
        write_report(target)
    return addition


def _copy_trainings(source: Path, target: Path, variants: Iterable[str]) -> None:
    """Copy what tells how models were made."""
    for training in ("meta", *(f"variants/{name}" for name in variants)):
        if (log := find_log(source / training)) is not None:
            _copy(log, target / training / LOG)
        _copy(source / training / COVERAGE, target / training / COVERAGE)


def _check_place(name: str, run_dir: Path, folder: Path) -> None:
    """Reject a folder that holds anything but an earlier publication of the run."""
    check_output(folder, [run_dir])
    if folder.resolve().is_relative_to(run_dir.resolve()):
        raise MetaXLMError(f"{folder}: is inside the run; name a folder elsewhere")
    list_foreign_files(folder)
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
