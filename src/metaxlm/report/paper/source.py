"""Everything the paper's report is drawn from, read out of one folder.

In comes a run folder, or a published one with the small files only (`publication.py`): results,
comparisons, recipe.yaml, provenance.json, training logs, and data_notes.txt with a sentence a line
on the data. Only the results must be there. Out comes a `PaperSource` with the claims judged
(`experiments/claims/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.experiments.claims import Evidence, Verdict, judge_claims
from metaxlm.experiments.task_comparison import FILE_NAME as COMPARISONS
from metaxlm.experiments.task_comparison import TaskComparison, read_comparisons
from metaxlm.files import read_json, read_text
from metaxlm.report.run_folder import Row, Run, read_run

DATA_NOTES = "data_notes.txt"
META = "meta"
"""Name of the log of meta-pretraining."""


@dataclass(frozen=True)
class PaperSource:
    """What a report shows."""

    name: str
    rows: Sequence[Row]
    """All rows, kept checkpoints among them."""
    comparisons: Sequence[TaskComparison] = ()
    verdicts: Sequence[Verdict] = ()
    provenance: Mapping[str, Any] | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    logs: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    """By variant; meta-pretraining's as `meta`."""
    notes: Sequence[str] = ()
    """Sentences on the data of this run."""


def read_paper_source(run_dir: Path, run: Run | None = None) -> PaperSource:
    """Read a folder, of which the run may be at hand already, and judge the claims."""
    run = run or read_run(run_dir)
    rows = run.all_rows
    comparisons = read_comparisons(run_dir / COMPARISONS)
    return PaperSource(
        name=run.name,
        rows=rows,
        comparisons=comparisons,
        verdicts=judge_claims(Evidence(rows, comparisons)),
        provenance=_read_provenance(run_dir / "provenance.json"),
        recipe=run.recipe,
        logs={**({META: run.meta_log} if run.meta_log else {}), **run.logs},
        notes=_read_notes(run_dir / DATA_NOTES),
    )


def _read_provenance(path: Path) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    found = read_json(path)
    if not isinstance(found, dict):
        raise MetaXLMError(f"{path}: an object is expected, found {type(found).__name__}")
    return found


def _read_notes(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    return tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
