"""`metaxlm run --dry`: list all work of a recipe, what is done, and how long the rest takes.

Take the same request as `metaxlm run`. Print one line for each stage, one line for the cells of
each model and task, and what the times are based on. Write nothing to the run folder; a built-in
corpus that does not exist yet is written to the system's temporary folder. Refuse what a run would
refuse, with the same message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.cli.dry_run_text import Item, PlannedCell, show_work
from metaxlm.cli.execution import Request, Work
from metaxlm.cli.planning import Training, list_trainings
from metaxlm.errors import MetaXLMError
from metaxlm.experiments.cells import Cell
from metaxlm.experiments.estimates import (
    NOTHING,
    UNKNOWN,
    CellClock,
    Estimate,
    Preparation,
    count_bytes,
    estimate_training,
)
from metaxlm.experiments.evaluation import Evaluation
from metaxlm.experiments.evaluation_plan import TaskPlan, group_tasks
from metaxlm.experiments.grid import Grid
from metaxlm.experiments.layout import RunLayout
from metaxlm.experiments.past_runs import count_text, read_past
from metaxlm.experiments.pipeline import check_models
from metaxlm.experiments.preparation import MULTILINGUAL, load_vocabulary, prepare_corpus
from metaxlm.experiments.stage import Stage
from metaxlm.experiments.workload import Counter, make_stand_in
from metaxlm.manifest import MARKER, read_sealed
from metaxlm.pretrain.checkpoint import list_checkpoints
from metaxlm.pretrain.device import choose_device
from metaxlm.pretrain.distributed import World
from metaxlm.pretrain.measure import DoesNotFit, measure_step
from metaxlm.progress import console, set_quiet
from metaxlm.vocabulary.loading import load_tokenizer


def list_work(request: Request) -> None:
    """Print what a run would do; write nothing."""
    if os.environ.get("RANK", "0") != "0":
        return  # of the processes that torchrun starts, one speaks
    device = choose_device(request.device)
    work = Work.plan(request, World.alone(device))
    check_models(request.recipe, work.wanted)
    with _settle(work) as settled:
        clock = _Clock(work, settled, device)
        evaluations = settled.grid.evaluations if request.measures else []
        if console.quiet:
            return
        stages = [clock.describe_stage(stage) for stage in work.wanted]
        cells = clock.list_cells(evaluations)
        show_work(request.recipe.name, device, stages, cells, clock.problems)


@dataclass(frozen=True)
class _Settled:
    """The grid with data to count, and how much text there is."""

    grid: Grid
    text_bytes: int
    """Prepared text; 0 if unknown."""
    seconds: float | None = None
    """How long the built-in corpus took, if it was written to a temporary folder."""


@contextmanager
def _settle(work: Work) -> Iterator[_Settled]:
    """Find the data; write a built-in corpus that does not exist yet to a temporary folder."""
    recipe, layout = work.request.recipe, work.request.layout
    if recipe.corpus.source != "phrasebook" or work.stages_made("corpus"):
        size = count_text(layout, recipe.languages)
        yield _Settled(work.grid, size or _count_raw(work))
        return
    with TemporaryDirectory(prefix="metaxlm-") as name:
        there, start = RunLayout(Path(name)), monotonic()
        prepare_corpus(recipe, there, there.corpus)
        seconds = monotonic() - start
        data = recipe.evaluation.data or there.corpus / "tasks"
        evaluation = recipe.evaluation.model_copy(update={"data": data})
        changed = recipe.model_copy(update={"evaluation": evaluation})
        grid = Grid(changed, layout, work.grid.pretrained, work.grid.device)
        try:
            yield _Settled(grid, count_text(there, recipe.languages), seconds)
        except MetaXLMError as error:
            message = str(error).replace(str(there.corpus), str(layout.corpus))
            raise MetaXLMError(message) from error


@contextmanager
def _silence() -> Iterator[None]:
    was_quiet = console.quiet
    set_quiet(True)
    try:
        yield
    finally:
        set_quiet(was_quiet)


def _count_raw(work: Work) -> int:
    """Return the bytes of the files that the corpus is made from."""
    corpus = next(stage for stage in work.stages if stage.name == "corpus")
    return count_bytes(corpus.inputs["files"])


class _Clock:
    """States and times of all work."""

    def __init__(self, work: Work, settled: _Settled, device: torch.device) -> None:
        recipe = work.request.recipe
        self._work, self._settled, self._device = work, settled, device
        self._trainings = {training.name: training for training in list_trainings(recipe)}
        self._config = self._trainings[next(iter(recipe.variants))].config
        self._past = read_past(work.request.output)
        self._measured: dict[tuple[object, ...], float | None] = {}
        self.problems: list[str] = []

    def describe_stage(self, stage: Stage) -> Item:
        """Return a stage's line."""
        if stage.is_complete():
            return Item(stage.title, "done", NOTHING)
        reason = stage.find_reason().removeprefix("running").strip()
        if stage.together:
            name = stage.variant or stage.name
            return self._describe_training(stage, self._trainings[name], reason)
        recipe = self._work.request.recipe
        preparation = Preparation(
            recipe,
            self._past,
            _count_raw(self._work),
            self._settled.text_bytes,
            self._settled.seconds,
        )
        estimate = preparation.estimate(stage.name, stage.variant, self._config)
        return Item(stage.title, "again" if reason else "to do", estimate, reason)

    def _describe_training(self, stage: Stage, training: Training, reason: str) -> Item:
        done = _find_progress(stage)
        state = f"at step {done:,}" if done else "again" if reason else "to do"
        estimate = self._estimate_training(training, max(0, training.recipe.steps - done))
        return Item(stage.title, state, estimate, "" if done else reason, shared=True)

    def _estimate_training(self, training: Training, steps: int) -> Estimate:
        if not steps:
            return NOTHING
        # A frozen body saves FLOPs; measured by itself it would only add noise.
        moving = replace(training, frozen_body=False)
        if moving.shape not in self._measured:
            self._measured[moving.shape] = self._measure(moving)
        seconds = self._measured[moving.shape]
        if seconds is None:
            return UNKNOWN
        recipe = self._work.request.recipe
        num_languages = 1 if training.name == "meta" else len(recipe.languages)
        return estimate_training(
            training.config,
            training.recipe,
            seconds,
            steps,
            num_languages,
            frozen_body=training.frozen_body,
        )

    def _measure(self, training: Training) -> float | None:
        with console.status(f"measuring steps of {training.name} ..."):
            try:
                return measure_step(training.config, training.recipe, self._device).seconds
            except DoesNotFit as error:
                self.problems.append(f"{training.name}: not measured, {error}")
                return None

    def list_cells(self, evaluations: Sequence[Evaluation]) -> list[PlannedCell]:
        """Return all cells in the order of models and tasks, each once."""
        clock = CellClock(
            self._work.request.recipe,
            self._work.request.layout.root,
            self._past,
            Counter(self._find_tokenizer()),
            self._config,
            self._device,
        )
        found: dict[Path, PlannedCell] = {}
        # What readers leave out is said when a run reads it; here it would hide the table.
        with console.status("counting examples, measuring steps ..."), _silence():
            for evaluation in evaluations:
                for cell in self._walk(evaluation, clock):
                    found.setdefault(cell.cell.folder, cell)
        models = {model.name: model for evaluation in evaluations for model in evaluation.models}
        last, variants = clock.recipe.pretraining.steps, list(clock.recipe.variants)

        def find_place(cell: PlannedCell) -> tuple[int, int]:
            """Sort by variant; its finished model goes first."""
            model = models[cell.cell.key.model]
            step = model.step or 0
            return variants.index(model.variant or ""), 0 if step == last else step

        return sorted(found.values(), key=find_place)

    def _walk(self, evaluation: Evaluation, clock: CellClock) -> Iterator[PlannedCell]:
        for feature in evaluation.plan.features:
            for model in evaluation.models:
                cell = evaluation.find_feature_cell(model, feature)
                reason = self._find_reason(cell)
                estimate = NOTHING if reason is None else clock.estimate_feature(feature)
                yield PlannedCell(cell, reason, estimate)
        seeds = range(evaluation.plan.num_seeds)
        for group in group_tasks(evaluation.plan.tasks):
            known: dict[tuple[str, ...], list[Estimate]] = {}
            for source in group[0].sources:
                for model in evaluation.models:
                    for seed in seeds:
                        cells = [evaluation.find_cell(model, p, source, seed) for p in group]
                        yield from self._plan_group(group, cells, clock, known)

    def _plan_group(
        self,
        group: Sequence[TaskPlan],
        cells: Sequence[Cell],
        clock: CellClock,
        known: dict[tuple[str, ...], list[Estimate]],
    ) -> Iterator[PlannedCell]:
        """Yield the cells that one training makes; those that are missing share its time."""
        reasons = [self._find_reason(cell) for cell in cells]
        missing = [plan for plan, reason in zip(group, reasons, strict=True) if reason is not None]
        source = cells[0].key.source
        key = (source, *(plan.task.name for plan in missing))
        if key not in known:
            known[key] = clock.estimate_group(missing, source)
        times = iter(known[key])
        for cell, reason in zip(cells, reasons, strict=True):
            yield PlannedCell(cell, reason, NOTHING if reason is None else next(times))

    def _find_reason(self, cell: Cell) -> str | None:
        if self._settled.seconds is None:
            return cell.find_reason()
        # Existing cells were measured on data that will be written again.
        return "again, its data are made anew" if cell.folder.exists() else ""

    def _find_tokenizer(self) -> PreTrainedTokenizerBase:
        recipe, layout = self._work.request.recipe, self._work.request.layout
        if self._work.stages_made("vocabulary"):
            return load_vocabulary(layout, MULTILINGUAL)
        if recipe.vocabulary.model is not None:
            return load_tokenizer(recipe.vocabulary.model)
        return make_stand_in()


def _find_progress(stage: Stage) -> int:
    """Return the step from which an interrupted training goes on; 0 if it begins."""
    if stage.work_dir is None:
        return 0
    try:
        if read_sealed(stage.work_dir / MARKER).get("fingerprint") != stage.fingerprint:
            return 0
    except MetaXLMError:
        return 0
    checkpoints = list_checkpoints(stage.work_dir)
    return int(checkpoints[-1].name.removeprefix("step-")) if checkpoints else 0
