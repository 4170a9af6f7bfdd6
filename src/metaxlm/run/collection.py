"""What a run has found so far, put together: scores, tests between variants, and where it is from.

Complete cells and stages come in. `results.jsonl` (every score is a row), `comparisons.json` (every
two variants on the same examples) and `provenance.json` (fingerprints, digests of weights, time,
steps, tokens, losses of finetuning) go out; these small files are all that the reports need.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from metaxlm import __version__
from metaxlm.analysis.results import FILE_NAME as RESULTS
from metaxlm.analysis.results import Result, list_rows, read_rows, write_results
from metaxlm.analysis.run_folder import PROVENANCE
from metaxlm.analysis.stats import COMPARISONS
from metaxlm.digests import CARD, require_whole, write_listed
from metaxlm.files import digest_value, dump_json
from metaxlm.finetune.catalog import TASKS
from metaxlm.manifest import MARKER, read_sealed
from metaxlm.model.card import model_card
from metaxlm.model.model_folder import WEIGHTS
from metaxlm.run.cells import StoredCell, collecting
from metaxlm.run.comparison import compare_models
from metaxlm.run.grid import Grid
from metaxlm.run.layout import RunLayout
from metaxlm.run.stage import Stage
from metaxlm.run.training import TRAINING_LOG


def collect_results(grid: Grid, layout: RunLayout, stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """Join all that is complete and renew the model cards; return the rows."""
    with collecting(layout.root):
        cells = grid.read_cells()
        rows = _list_rows(grid.recipe.name, cells)
        if not rows:
            return []
        write_results(layout.root / RESULTS, rows)
        last = grid.recipe.pretraining.steps
        finals = [cell for cell in cells if cell.record["step"] == last]
        names = list(dict.fromkeys([*grid.recipe.variants, *(cell.key.model for cell in finals)]))
        compare_models(finals, TASKS, names, layout.root / COMPARISONS, with_layers=True)
        finished = [stage for stage in stages if stage.was_made()]
        values = grid.recipe.model_dump(mode="json")
        known = [_describe_stage(stage) for stage in finished]
        known += _describe_others(layout, {stage.variant for stage in stages})
        write_listed(layout.root, PROVENANCE, dump_json(_describe(values, known, cells)))
        plain = [asdict(row) for row in rows]
        for stage in finished:
            if stage.name == "pretrain" and stage.variant is not None:
                card = model_card(values, stage.variant, plain)
                write_listed(stage.output, CARD, card)
        return plain


def _list_rows(run: str, cells: Sequence[StoredCell]) -> list[Result]:
    return [
        row
        for cell in cells
        for row in list_rows(
            cell.record,
            run,
            cell.record["variant"],
            cell.record["step"],
            cell.key.seed,
            cell.fingerprint,
            cell.metaxlm,
        )
    ]


def _describe(
    recipe: Mapping[str, Any], stages: Sequence[Mapping[str, Any]], cells: Sequence[StoredCell]
) -> dict[str, Any]:
    made = [
        {
            **asdict(cell.key),
            "origin": cell.fingerprint,
            "metaxlm": cell.metaxlm,
            **_pick(cell.record, "seconds", "device"),
            **_list_losses(cell.record),
        }
        for cell in cells
    ]
    return {
        "recipe": recipe["name"],
        "digest": digest_value(recipe),
        "metaxlm": __version__,
        "torch": torch.__version__,
        "stages": list(stages),
        "cells": made,
    }


def _list_losses(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training loss of each epoch, which tells whether a finetuning came to its end."""
    epochs = record.get("epochs")
    return {"losses": [round(epoch["loss"], 4) for epoch in epochs]} if epochs else {}


def _describe_stage(stage: Stage) -> dict[str, Any]:
    return {"title": stage.title, "variant": stage.variant, **_read_marker(stage.output)}


def _describe_others(layout: RunLayout, known: Container[str | None]) -> list[dict[str, Any]]:
    """Describe the trainings of variants that other recipes of the same run folder have."""
    return [
        {"title": f"pretrain {name}", "variant": name, **_read_marker(path.parent)}
        for path in sorted(layout.root.glob(f"variants/*/model/{MARKER}"))
        if (name := path.parent.parent.name) not in known
    ]


def _read_marker(folder: Path) -> dict[str, Any]:
    marker = read_sealed(folder / MARKER)
    facts = _pick(marker, "fingerprint", "seconds", "device") | _read_log(folder)
    if WEIGHTS in marker["files"]:
        facts["weights"] = marker["files"][WEIGHTS]["sha256"]
    return facts


def _read_log(folder: Path) -> dict[str, Any]:
    """Return how many steps and tokens a training took, as its log tells."""
    path = folder / TRAINING_LOG
    if path.is_file():
        require_whole(path)
    rows = [row for row in read_rows(path) if "tokens" in row] if path.is_file() else []
    last = max(rows, key=lambda row: int(row["step"]), default={})
    return {"steps": last.get("step"), "tokens": last.get("tokens")}


def _pick(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: values.get(name) for name in names}
