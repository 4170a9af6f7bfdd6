"""What a finetuning leaves: scores come in, its cell's content and what is said of it go out.

`cells.py` stores the content; `evaluation.py` decides what is finetuned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from metaxlm.analysis.results import has_learned
from metaxlm.finetune.evaluate import FileScores
from metaxlm.finetune.train import Finetuned
from metaxlm.progress import say
from metaxlm.run.cells import Cell, CellContent
from metaxlm.run.evaluation_plan import TaskPlan


def make_content(
    about: dict[str, Any],
    plan: TaskPlan,
    source: str,
    trained: Finetuned,
    scores: Sequence[FileScores],
) -> CellContent:
    """Put together what is stored of a finetuning on one task."""
    task = plan.task
    record = {
        **about,
        "task": task.name,
        "title": task.title,
        "kind": task.kind,
        "metric": task.metric,
        "source": source,
        "trained_in_each": len(task.sources) > 1,
        "settings": asdict(plan.settings),
        "best_epoch": trained.best_epoch,
        "epochs": [asdict(epoch) for epoch in trained.epochs],
        "files": [_describe_file(found) for found in scores],
    }
    places = [(f"{found.file.split}-{found.file.language}", found) for found in scores]
    return CellContent(
        record,
        {place: found.tally for place, found in places if found.num_examples},
        {f"{place}{task.submission_suffix}": found.submission for place, found in places},
    )


def _describe_file(found: FileScores) -> dict[str, Any]:
    return {
        "language": found.file.language,
        "split": found.file.split,
        "name": found.file.name,
        "path": str(found.file.path),
        "num_examples": found.num_examples,
        "num_unlabeled": found.num_unlabeled,
        "values": found.values,
        "majority": found.majority,
        "chance": found.chance,
    }


def tell(cell: Cell, record: Mapping[str, Any]) -> None:
    """Say the mean over languages of what was just measured, and whether it learned at all."""
    _warn_of_failure(cell, record)
    metric = record["metric"]
    for split in ("test", "dev"):
        values = [
            file["values"][metric]
            for file in record["files"]
            if file["split"] == split and file["values"]
        ]
        if values:
            mean = f"{100 * sum(values) / len(values):.1f}"
            say(f"{cell.key.title}: {metric} {mean}, mean over {len(values)} {split} files")
            return
    say(f"{cell.key.title}: no file has labels; predictions are written, nothing is scored")


def _warn_of_failure(cell: Cell, record: Mapping[str, Any]) -> None:
    """Say at once when a model gives one answer to everything, in its training language too."""
    metric = record["metric"]
    for file in record["files"]:
        if file["language"] != record["source"] or metric not in file["values"]:
            continue
        levels = [file[level][metric] for level in ("majority", "chance") if metric in file[level]]
        if not has_learned(value := file["values"][metric], *levels):
            say(
                f"{cell.key.title}: learned nothing: {metric} {100 * value:.1f} in "
                f"{record['source']} itself, where the most frequent answer or guessing has "
                f"{100 * max(levels, default=0.0):.1f}; if other seeds do learn, this one "
                "collapsed: a lower learning_rate or more warmup helps"
            )
            return
