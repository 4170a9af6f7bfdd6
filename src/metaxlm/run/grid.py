"""The grid: which models are measured on what, as cells that any number of processes fill.

Comes in: a recipe (its variants, kept steps, `evaluation.grid`) and a run folder. Goes out: one
cell for each model, task, training language and seed (`cells.py`), made by whoever is free. A
model's cells wait until its pretraining is complete; a killed process loses the cell it was at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_value
from metaxlm.finetune.catalog import TASKS
from metaxlm.manifest import MARKER, read_sealed
from metaxlm.pretrain.checkpoint import step_name
from metaxlm.pretrain.loop import STEPS
from metaxlm.progress import say
from metaxlm.recipe import FinetuneRecipe, GridRecipe, Recipe
from metaxlm.run.cells import Cell, StoredCell, find_basis, list_cells
from metaxlm.run.comparison import keep_current
from metaxlm.run.evaluation import Evaluation
from metaxlm.run.evaluation_plan import (
    EvaluationPlan,
    FeaturePlan,
    TaskPlan,
    Wishes,
    choose_tasks,
    plan_features,
    plan_task,
)
from metaxlm.run.features import ALIGNMENT, RETRIEVAL
from metaxlm.run.layout import RunLayout
from metaxlm.run.models import NamedModel
from metaxlm.run.stage import Stage
from metaxlm.run.user_files import UserFiles

POLL_S = 2.0
"""Seconds between two looks at what other processes have finished."""


@dataclass
class Grid:
    """All cells of a run."""

    recipe: Recipe
    layout: RunLayout
    pretrained: Mapping[str, Stage]
    """The pretraining of each variant that is measured."""
    device: torch.device
    known: UserFiles = field(default_factory=UserFiles)

    @property
    def data_dir(self) -> Path:
        """Where the task data stand; the built-in corpus makes its own."""
        return self.recipe.evaluation.data or self.layout.tasks

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """Settle every block, or say what is missing; needs the task data, not the models."""
        evaluations = [
            Evaluation(
                self._find_models(block),
                plan,
                self.layout.root,
                self.device,
                is_ready=lambda model: self._stage_of(model).is_complete(),
            )
            for block in list_blocks(self.recipe)
            for plan in self._plan(block)
            if self._find_models(block)
        ]
        _check_agreement(evaluations)
        return evaluations

    def work(self, should_stop: Callable[[], bool] = lambda: False) -> int:
        """Make what is missing, free, and whose model is there; return how many cells that was."""
        before = sum(evaluation.num_made for evaluation in self.evaluations)
        parts = [part for evaluation in self.evaluations for part in evaluation.list_parts()]
        # Processes begin at different parts, so that few read the same data at the same time.
        first = find_worker_number() * len(parts) // _NUM_STARTS % max(1, len(parts))
        for part in [*parts[first:], *parts[:first]]:
            if should_stop():
                break
            part()
        return sum(evaluation.num_made for evaluation in self.evaluations) - before

    def finish(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Work until every cell is there, also those that other processes were making."""
        while self.list_missing() and not should_stop():
            if not self.work(should_stop):
                time.sleep(POLL_S)

    def list_missing(self) -> list[Cell]:
        """Return the cells that are still to be made, each once."""
        found = {
            cell.folder: cell
            for evaluation in self.evaluations
            for cell in evaluation.list_missing()
        }
        return list(found.values())

    def list_cells(self) -> list[Cell]:
        """Return all cells of the recipe, made or not, each once."""
        cells = (cell for evaluation in self.evaluations for cell in evaluation.list_cells())
        return list({cell.folder: cell for cell in cells}.values())

    def read_cells(self) -> list[StoredCell]:
        """Return the complete cells of this recipe, and those of others that share the run folder.

        A cell counts only if it measured the model that stands there now.
        """
        wanted = {cell.folder: cell for cell in self.list_cells()}
        found, problems = list_cells(self.layout.root)
        current = [
            cell
            for cell in found
            if (asked := wanted.get(cell.folder)) is None
            or asked.is_made_as(cell.fingerprint, cell.metaxlm)
            if cell.inputs["model"] == self._read_fingerprint(cell.record)
        ]
        kept, notes = keep_current(current, (find_basis(cell.inputs) for cell in self.list_cells()))
        for line in [*problems, *notes]:
            say(line)
        place = {name: number for number, name in enumerate(self.recipe.variants)}
        last = len(place)
        kept.sort(key=lambda cell: place.get(cell.record["variant"], last))
        return kept

    def _read_fingerprint(self, record: Mapping[str, Any]) -> str:
        """Return what a cell's model is called now, or nothing if it is no model of this run."""
        marker = self.layout.variant(str(record["variant"])) / "model" / MARKER
        if not marker.is_file():
            return ""
        return fingerprint_model(read_sealed(marker)["fingerprint"], record["step"])

    def _stage_of(self, model: NamedModel) -> Stage:
        assert model.variant is not None
        return self.pretrained[model.variant]

    def _find_models(self, block: GridRecipe) -> list[NamedModel]:
        """Return the models of a block; the fingerprint tells them before they are trained."""
        wanted = self.recipe.variants if block.variants is None else block.variants
        training = self.recipe.pretraining
        steps = training.list_kept() if block.steps == "kept" else []
        return [
            self._describe(variant, step, is_last=step == training.steps)
            for variant in wanted
            if variant in self.pretrained
            for step in [*steps, training.steps]
        ]

    def _describe(self, variant: str, step: int, is_last: bool) -> NamedModel:
        place = self.layout.variant(variant)
        fingerprint = fingerprint_model(self.pretrained[variant].fingerprint, step)
        if is_last:
            return NamedModel(variant, place / "model", step, variant, fingerprint)
        folder = place / STEPS / step_name(step)
        return NamedModel(f"{variant}-step-{step}", folder, step, variant, fingerprint)

    @cached_property
    def _planned(self) -> dict[tuple[str, str], TaskPlan]:
        """Tasks that a block has asked for: others that do the same need not be told again."""
        return {}

    def _plan(self, block: GridRecipe) -> list[EvaluationPlan]:
        """Settle a block: one plan for each number of seeds that its tasks ask for."""
        tasks, features = choose_tasks(block.tasks)
        by_seeds: dict[int, list[TaskPlan]] = {}
        for task in tasks:
            wishes = self.recipe.evaluation.finetune.get(task.name, FinetuneRecipe())
            wanted = _make_wishes(block, task.name, wishes)
            key = (task.name, repr(wanted))
            if key not in self._planned:
                self._planned[key] = plan_task(task, self.data_dir, wanted, self.known)
            by_seeds.setdefault(block.seeds or wishes.seeds, []).append(self._planned[key])
        measured = tuple(self._plan_feature(name, block) for name in features)
        seed = self.recipe.seed
        plans = [EvaluationPlan((), measured, seed=seed)] if measured else []
        return plans + [
            EvaluationPlan(tuple(found), num_seeds=num_seeds, seed=seed)
            for num_seeds, found in by_seeds.items()
        ]

    def _plan_feature(self, name: str, block: GridRecipe) -> FeaturePlan:
        measures = self.recipe.evaluation
        settings = {RETRIEVAL: measures.retrieval, ALIGNMENT: measures.alignment}[name]
        return plan_features(name, self.data_dir, _make_wishes(block), settings, self.known)


_NUM_STARTS = 8
"""Places in the list of parts where processes begin."""


def fingerprint_model(pretraining: str, step: int) -> str:
    """Identify the model after a step of a pretraining, which need not be done yet."""
    return digest_value([pretraining, step])


def find_worker_number() -> int:
    """Return this process's number among those that were started together; 0 if it is alone."""
    for name in ("RANK", "SLURM_ARRAY_TASK_ID", "SLURM_PROCID"):
        if (number := os.environ.get(name, "")).isdecimal():
            return int(number)
    return 0


def list_blocks(recipe: Recipe) -> Sequence[GridRecipe]:
    """Return the recipe's blocks; without any, everything that it measures on every variant."""
    measures = recipe.evaluation
    if measures.grid:
        return measures.grid
    tasks = [
        *([RETRIEVAL] if measures.retrieval else []),
        *([ALIGNMENT] if measures.alignment else []),
        *measures.finetune,
    ]
    if not tasks:
        return []
    sources = [recipe.source_language]
    return [GridRecipe(tasks=tasks, languages=recipe.languages, sources=sources)]


def list_measured(recipe: Recipe) -> list[str]:
    """Return the variants that some block names, in the recipe's order."""
    blocks = list_blocks(recipe)
    named = {name for block in blocks for name in block.variants or recipe.variants}
    return [name for name in recipe.variants if name in named or not blocks]


def check_grid(recipe: Recipe) -> None:
    """Refuse names of tasks that nobody knows."""
    for name in recipe.evaluation.finetune:
        if name not in TASKS:
            known = ", ".join(TASKS)
            raise MetaXLMError(f"evaluation.finetune.{name}: unknown task; known: {known}")
    for block in list_blocks(recipe):
        choose_tasks(block.tasks)


def _check_agreement(evaluations: Sequence[Evaluation]) -> None:
    """Refuse two blocks that want the same cell in different ways."""
    found: dict[Path, str] = {}
    for cell in (cell for evaluation in evaluations for cell in evaluation.list_cells()):
        if found.setdefault(cell.folder, cell.fingerprint) != cell.fingerprint:
            raise MetaXLMError(
                f"evaluation.grid: two blocks name {cell.key.title} with other languages or "
                f"settings; let one of them have it"
            )


def _make_wishes(block: GridRecipe, task: str = "", given: FinetuneRecipe | None = None) -> Wishes:
    values = {} if given is None else {k: v for k, v in given if k != "seeds" and v is not None}
    return Wishes(
        None if block.languages is None else tuple(block.languages),
        None if block.sources is None else tuple(block.sources),
        {task: values},
    )
