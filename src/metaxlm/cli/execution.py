"""A recipe's run: by one process, by many that train together, or by many that share the work.

Started with torchrun, the main process runs all stages; the others wait, and take part in the
trainings and the cells. They print nothing, and end with the main process's exit code. With
`--shared` processes know nothing of each other: each takes a stage or a cell that is free (the jobs
of a Slurm array, or one process a GPU). `--collect` makes nothing, and shows what is there so far.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metaxlm.cli.endings import ending_together
from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.files import exclusive_folder, shared_folder
from metaxlm.pretrain.distributed import DistributedContext, choose_device, local_place
from metaxlm.progress import say, set_quiet
from metaxlm.recipe import Recipe
from metaxlm.run.cells import claim, collecting
from metaxlm.run.collection import collect_results
from metaxlm.run.evaluation import report_failures
from metaxlm.run.grid import POLL_S, Grid, list_measured
from metaxlm.run.layout import RunLayout
from metaxlm.run.pipeline import (
    build_grid,
    build_stages,
    check_inputs,
    check_models,
    check_recipe,
    note_recipe,
    select_stages,
    start_run,
)
from metaxlm.run.stage import Stage
from metaxlm.run.user_files import FILE_NAME as INPUTS
from metaxlm.run.user_files import UserFiles
from metaxlm.stopping import deferred_stops

CELLS = "cells"
"""The order to all processes to fill the grid; no stage is called so."""


@dataclass(frozen=True)
class Request:
    """What the user wants of a recipe."""

    recipe: Recipe
    output: Path
    stage: str | None = None
    variants: Sequence[str] = ()
    device: str = "auto"

    @property
    def layout(self) -> RunLayout:
        """Where the run stands."""
        return RunLayout(self.output / self.recipe.name)

    @property
    def measures(self) -> bool:
        """Whether cells are wanted, and not only stages before them."""
        return self.stage in (None, "evaluate", "report")


def execute(request: Request) -> None:
    """Do what is missing of a recipe, or take part in it."""
    world = DistributedContext.join(request.device, request.recipe.execution)
    with ending_together(world):
        work = Work.plan(request, world)
        if world.is_main:
            _lead(work, world)
        else:
            _follow(work, world)


def execute_shared(request: Request) -> None:
    """Do what is missing side by side with other processes: each takes what is free.

    Under torchrun every process has a GPU of its own and trains alone.
    """
    world = DistributedContext.alone(choose_device(request.device, *local_place()))
    work = Work.plan(request, world)
    check_models(request.recipe, work.wanted)
    layout = request.layout
    with shared_folder(layout.root, lambda: start_run(request.recipe, layout)):
        work.remember_inputs()
        work.do_what_is_free()
        with claim([layout.report]) as owner:
            if owner is None:
                work.conclude()
        report_failures(work.grid.evaluations if request.measures else [])


def collect(request: Request) -> None:
    """Put together what is complete and draw the report; also beside a run that is going on."""
    layout = request.layout
    if not layout.recipe.is_file():
        raise MetaXLMError(
            f"{layout.root}: no run to collect from; start it without --collect, or name its "
            f"--output"
        )
    if request.stage is not None:
        raise MetaXLMError(
            f"--collect makes no stage, so --stage {request.stage} has no meaning; leave one out"
        )
    work = Work.plan(request, DistributedContext.alone(choose_device(request.device)))
    cells, missing = work.grid.list_cells(), work.grid.list_missing()
    if len(missing) == len(cells):
        raise MetaXLMError(f"{layout.root}: no cell of this recipe is complete yet")
    if missing:
        by_task = Counter(cell.key.task for cell in missing)
        listed = ", ".join(f"{task} {number}" for task, number in by_task.items())
        say(f"so far {len(cells) - len(missing)} of {len(cells)} cells; to come: {listed}")
    note_recipe(request.recipe, layout)
    work.conclude()


@dataclass(frozen=True)
class Work:
    """The stages that are wanted and the grid behind them."""

    request: Request
    stages: Sequence[Stage]
    """All of the recipe."""
    wanted: Sequence[Stage]
    grid: Grid
    known: UserFiles

    @classmethod
    def plan(cls, request: Request, world: DistributedContext) -> Work:
        """Settle everything that can be settled now, or say what is wrong."""
        recipe, layout = request.recipe, request.layout
        check_recipe(recipe, request.variants)
        known = UserFiles(layout.root)
        stages = build_stages(recipe, layout, world, known)
        check_inputs(recipe, layout, stages)
        variants = request.variants
        if request.measures and not variants:
            variants = list_measured(recipe)
        # The built-in corpus has the tasks' data in it.
        is_built_in = recipe.corpus.source == "phrasebook" and recipe.evaluation.data is None
        also = "corpus" if request.measures and is_built_in else None
        # Other processes take the main one's orders, and need not read every file as well.
        wanted = select_stages(stages, request.stage, variants, also) if world.is_main else []
        grid = build_grid(recipe, layout, stages, request.variants, world.device, known)
        if request.measures and recipe.evaluation.data is not None:
            _ = grid.evaluations  # a missing file must not cost hours of training
        return cls(request, stages, wanted, grid, known)

    def remember_inputs(self) -> None:
        """Remember what the user's files are now, unless another process is doing so."""
        if self.request.measures and self.has_task_data:
            self.grid.list_cells()  # names the files of the tasks
        with claim([self.request.layout.root / INPUTS]) as owner:
            if owner is None:
                self.known.remember()

    def do_what_is_free(self) -> None:
        """Run stages and fill cells that nobody else is at, until all are complete."""
        while True:
            waiting = [stage for stage in self.wanted if not stage.is_complete()]
            if any(map(_run_if_free, waiting)):
                continue
            done = 0
            if self.request.measures and self.has_task_data:
                done = self.grid.work()
                if not waiting and not self.grid.list_missing():
                    return
            elif not waiting:
                return
            if not done:
                time.sleep(POLL_S)

    @property
    def has_task_data(self) -> bool:
        """Whether the data to measure with are there; the built-in corpus makes its own."""
        return self.request.recipe.evaluation.data is not None or self.stages_made("corpus")

    def stages_made(self, name: str) -> bool:
        """Say whether all stages of a name are complete."""
        return all(stage.is_complete() for stage in self.stages if stage.name == name)

    def conclude(self) -> None:
        """Put all results together; draw the report unless less was asked for."""
        if not self.request.measures:
            return
        layout = self.request.layout
        self.remember_inputs()  # the built-in corpus has made its task data by now
        rows = collect_results(self.grid, layout, self.stages)
        if rows and self.request.stage in (None, "report"):
            # Imported here: what draws takes a second to load, and no start should wait for it.
            from metaxlm.cli.summary import show_summary
            from metaxlm.run.publication import report_stage

            with collecting(layout.root):  # a look with --collect may be at it
                report_stage(layout, self.stages).run()
            show_summary(layout.root)


def _run_if_free(stage: Stage) -> bool:
    """Run a stage whose inputs are there, unless another process is at it."""
    if not all(earlier.is_complete() for earlier in stage.needed):
        return False
    with claim([stage.output]) as owner:
        if owner is not None or stage.is_complete():
            return False
        stage.run()
        return True


def _lead(work: Work, world: DistributedContext) -> None:
    layout = work.request.layout
    check_models(work.request.recipe, work.wanted)
    with exclusive_folder(layout.root):
        start_run(work.request.recipe, layout)
        work.remember_inputs()
        for stage in work.wanted:
            world.check_stop()
            stage.run(world.send_order)
        if work.request.measures:
            world.send_order(CELLS)
            if world.size > 1:
                for evaluation in work.grid.evaluations:
                    evaluation.check_stop = world.check_stop
            work.grid.finish()
        world.check_stop()
        work.conclude()
        report_failures(work.grid.evaluations if work.request.measures else [])


def _follow(work: Work, world: DistributedContext) -> None:
    set_quiet(True)
    layout = work.request.layout
    by_title = {stage.title: stage for stage in work.stages if stage.together}
    with deferred_stops() as stop_requested:
        while (title := world.next_order(stop_requested)) is not None:
            if not layout.recipe.is_file():
                raise MetaXLMError(
                    f"{layout.root} is not visible on this node; put --output on a shared file "
                    "system"
                )
            try:
                if title == CELLS:
                    work.grid.finish(stop_requested)
                else:
                    by_title[title].take_part()
            except Interrupted:
                continue  # all processes agreed to stop; rank 0 ends the run after its save
