"""`metaxlm run`: run a recipe in one process, in processes that train together, or side by side.

Under torchrun, rank 0 runs all stages; the other processes wait and take part in training and
evaluation jobs. They print nothing and exit with rank 0's exit code. With `--shared`, processes are
independent: each takes the next free stage or job (one process per GPU, or a Slurm array).
`--collect` writes the report from finished results. `--dry` lists all work and what is done, runs
the same checks as a real run, and writes nothing to the run folder.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from rich import box
from rich.table import Table

from metaxlm.cli.exit_codes import ending_together
from metaxlm.cli.options import show_summary
from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.files import exclusive_folder, shared_folder, sweep
from metaxlm.pretrain.checkpoint import list_checkpoints
from metaxlm.pretrain.distributed import DistributedContext, choose_device, local_place
from metaxlm.progress import console, say, set_quiet
from metaxlm.recipe import Recipe, name_encoder
from metaxlm.recipe.schema import find_trained
from metaxlm.run.compare import collect_results
from metaxlm.run.evaluation import raise_failures
from metaxlm.run.fingerprints import FILE_NAME as INPUTS
from metaxlm.run.fingerprints import FileFingerprints
from metaxlm.run.grid import POLL_S, Grid, check_recipe, list_evaluated
from metaxlm.run.jobs import EvalJob, claim, collecting
from metaxlm.run.layout import RunLayout
from metaxlm.run.prepare import prepare_corpus
from metaxlm.run.stage import Stage, read_marker
from metaxlm.run.stages import (
    EVALUATION_STAGES,
    build_stages,
    check_inputs,
    check_models,
    select_stages,
    write_recipe,
)
from metaxlm.stopping import check_stop, deferred_stops

_EVALUATE = "jobs"  # order to all processes to run evaluation jobs; no stage has this title
_DIGEST = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")


@dataclass(frozen=True)
class Request:
    """What to run of a recipe."""

    recipe: Recipe
    output: Path
    stage: str | None = None
    variants: Sequence[str] = ()
    device: str = "auto"

    @property
    def layout(self) -> RunLayout:
        """Paths of the run."""
        return RunLayout(self.output / self.recipe.name)

    @property
    def evaluates(self) -> bool:
        """Whether evaluation jobs are requested."""
        return self.stage in EVALUATION_STAGES

    def start(self) -> None:
        """Remove temporary files of a killed run, and save the resolved recipe."""
        sweep(self.layout.root)
        write_recipe(self.recipe, self.layout)


@dataclass(frozen=True)
class Work:
    """The stages and evaluation jobs of a request."""

    request: Request
    stages: Sequence[Stage]  # all stages of the recipe
    selected: Sequence[Stage]  # the requested stages and those they need
    grid: Grid
    files: FileFingerprints

    @classmethod
    def plan(cls, request: Request, world: DistributedContext) -> Self:
        """Plan all stages and jobs, or raise an error before any work."""
        recipe, layout, variants = request.recipe, request.layout, request.variants
        check_recipe(recipe, variants)
        files = FileFingerprints(layout.root)
        stages = build_stages(recipe, layout, world, files)
        check_inputs(recipe, layout, stages)
        # The built-in corpus contains the task data.
        is_built_in = recipe.corpus.source == "phrasebook" and recipe.evaluation.data is None
        also = "corpus" if request.evaluates and is_built_in else None
        trained = variants or (list_evaluated(recipe) if request.evaluates else [])
        # Other processes follow rank 0's orders, and need not check every file.
        selected = select_stages(stages, request.stage, trained, also) if world.is_main else []
        pretrained = {
            stage.variant if stage.name == "pretrain" else name_encoder(stage.variant): stage
            for stage in stages
            if stage.name in ("pretrain", "sentences")
            and stage.variant is not None
            and (not variants or stage.variant in variants)
        }
        check = world.check_stop if world.is_main and world.size > 1 else check_stop
        grid = Grid(recipe, layout, pretrained, world.device, files, check)
        if request.evaluates and recipe.evaluation.data is not None:
            grid.list_jobs()
        return cls(request, stages, selected, grid, files)

    def save_inputs(self) -> None:
        """Store the fingerprints of the user's files, unless another process is doing so."""
        if self.request.evaluates and self.has_task_data():
            self.grid.list_jobs()  # also fingerprints the task data
        with claim([self.request.layout.root / INPUTS]) as owner:
            if owner is None:
                self.files.save()

    def run_free(self) -> None:
        """Run stages and jobs that no other process runs, until all are complete."""
        while True:
            waiting = [stage for stage in self.selected if not stage.is_complete()]
            if any(map(_run_if_free, waiting)):
                continue
            evaluates = self.request.evaluates and self.has_task_data()
            num_made = self.grid.work() if evaluates else 0
            if not waiting and not (evaluates and self.grid.list_missing()):
                return
            if not num_made:
                time.sleep(POLL_S)

    def has_task_data(self) -> bool:
        """Return whether the task data exists; the corpus stage writes that of the demo."""
        return self.request.recipe.evaluation.data is not None or self.has_corpus()

    def has_corpus(self) -> bool:
        """Return whether the corpus is complete."""
        return all(stage.is_complete() for stage in self.stages if stage.name == "corpus")

    def conclude(self) -> None:
        """Collect all results, and write the report if requested."""
        if not self.request.evaluates:
            return
        recipe, layout = self.request.recipe, self.request.layout
        self.save_inputs()  # the task data of the built-in corpus exists now
        with collecting(layout.root):
            rows = collect_results(recipe, layout, self.stages, self.grid.read_jobs())
        if rows and self.request.stage in (None, "report"):
            from metaxlm.run.publish import report_stage  # imports matplotlib

            with collecting(layout.root):  # another process may run with --collect
                report_stage(layout, self.stages).run()
            show_summary(layout.root)


def execute(request: Request) -> None:
    """Run a recipe, or take part in its run."""
    world = DistributedContext.join(request.device, request.recipe.execution)
    with ending_together(world):
        work = Work.plan(request, world)
        if world.is_main:
            _lead(work, world)
        else:
            _follow(work, world)


def execute_shared(request: Request) -> None:
    """Run a recipe side by side with other processes; under torchrun, each has its own GPU."""
    world = DistributedContext.alone(choose_device(request.device, *local_place()))
    work = Work.plan(request, world)
    check_models(request.recipe, work.selected)
    with shared_folder(request.layout.root, request.start):
        work.save_inputs()
        work.run_free()
        with claim([request.layout.report]) as owner:
            if owner is None:
                work.conclude()
        raise_failures(work.grid.evaluations if request.evaluates else [])


def collect(request: Request) -> None:
    """Write results and report from finished jobs, even while the run goes on."""
    layout = request.layout
    if not layout.recipe.is_file():
        fix = "start it without --collect, or name its --output"
        raise MetaXLMError(f"{layout.root}: no run to collect from; {fix}")
    if request.stage is not None:
        raise MetaXLMError(f"--collect runs no stage; leave out --stage {request.stage}")
    work = Work.plan(request, DistributedContext.alone(choose_device(request.device)))
    jobs, missing = work.grid.list_jobs(), work.grid.list_missing()
    if len(missing) == len(jobs):
        raise MetaXLMError(f"{layout.root}: no job of this recipe is complete yet")
    if missing:
        by_task = Counter(job.key.task for job in missing)
        listed = ", ".join(f"{task} {number}" for task, number in by_task.items())
        say(f"{len(jobs) - len(missing)} of {len(jobs)} jobs are complete; missing: {listed}")
    write_recipe(request.recipe, layout)
    work.conclude()


def _run_if_free(stage: Stage) -> bool:
    if not all(earlier.is_complete() for earlier in stage.needed):
        return False
    with claim([stage.output]) as owner:
        if owner is not None or stage.is_complete():
            return False
        stage.run()
        return True


def _lead(work: Work, world: DistributedContext) -> None:
    check_models(work.request.recipe, work.selected)
    with exclusive_folder(work.request.layout.root):
        work.request.start()
        work.save_inputs()
        for stage in work.selected:
            world.check_stop()
            stage.run(world.send_order)
        if work.request.evaluates:
            world.send_order(_EVALUATE)
            work.grid.finish()
        world.check_stop()
        work.conclude()
        raise_failures(work.grid.evaluations if work.request.evaluates else [])


def _follow(work: Work, world: DistributedContext) -> None:
    set_quiet(True)
    layout = work.request.layout
    by_title = {stage.title: stage for stage in work.stages if stage.together}
    with deferred_stops() as stop_requested:
        while (title := world.next_order(stop_requested)) is not None:
            if not layout.recipe.is_file():
                fix = "put --output on a shared file system"
                raise MetaXLMError(f"{layout.root} is not visible on this node; {fix}")
            try:
                if title == _EVALUATE:
                    work.grid.finish(stop_requested)
                else:
                    by_title[title].fill(by_title[title].output)
            except Interrupted:
                continue  # all processes agreed to stop; rank 0 ends the run after its save


def list_work(request: Request) -> None:
    """Print the stages and evaluation jobs of a run with their states; write nothing."""
    if os.environ.get("RANK", "0") != "0":
        return  # rank 0 prints
    work = Work.plan(request, DistributedContext.alone(choose_device(request.device)))
    check_models(request.recipe, work.selected)
    with _task_data(work) as (grid, is_new):
        jobs = _sort_jobs(grid) if request.evaluates else []
    if console.quiet:
        return
    table = Table("work", "jobs", "state", title=request.recipe.name, title_justify="left")
    table.box, table.pad_edge = box.SIMPLE_HEAD, False
    notes = []
    for stage in work.selected:
        state, reason = _describe_stage(stage)
        table.add_row(stage.title, "", state)
        notes += [f"{stage.title}: {reason}"] if reason else []
    table.add_section()
    # Jobs of a new run used data that will be written again.
    rewritten = {True: "again, its data will be written again", False: ""}
    reasons = {
        job.key: rewritten[job.folder.exists()] if is_new else job.find_reason() for job in jobs
    }
    groups: dict[str, list[EvalJob]] = {}
    for job in jobs:
        groups.setdefault(f"{job.key.model} {job.key.task}", []).append(job)
    by_reason: dict[str, list[str]] = {}
    for name, members in groups.items():
        missing = [job for job in members if reasons[job.key] is not None]
        done = len(members) - len(missing)
        state = "again" if all(reasons[job.key] for job in missing) else "to do"
        state = f"{done} of {len(members)} done" if done else state
        table.add_row(name, name_jobs(missing or members), state if missing else "done")
        for why in dict.fromkeys(filter(None, (reasons[job.key] for job in missing))):
            same = [job for job in missing if reasons[job.key] == why]
            by_reason.setdefault(why, []).append(f"{name} {name_jobs(same)}")
    console.print(table)
    for note in [*notes, *(f"{', '.join(names)}: {why}" for why, names in by_reason.items())]:
        say(_DIGEST.sub(r"\1…", note))
    if jobs:
        done = sum(reason is None for reason in reasons.values())
        say(f"{done} of {len(jobs)} evaluation jobs done")


@contextmanager
def _task_data(work: Work) -> Iterator[tuple[Grid, bool]]:
    """Yield a grid with task data, and whether the built-in corpus will be written again.

    Task data of the built-in corpus that does not exist yet is written to a temporary folder.
    """
    recipe, layout = work.request.recipe, work.request.layout
    if recipe.corpus.source != "phrasebook" or work.has_corpus():
        yield work.grid, False
        return
    with TemporaryDirectory(prefix="metaxlm-") as name:
        temporary = RunLayout(Path(name))
        prepare_corpus(recipe, temporary, temporary.corpus)
        data = recipe.evaluation.data or temporary.tasks
        evaluation = recipe.evaluation.model_copy(update={"data": data})
        changed = recipe.model_copy(update={"evaluation": evaluation})
        try:
            yield Grid(changed, layout, work.grid.stages, work.grid.device), True
        except MetaXLMError as error:
            message = str(error).replace(str(temporary.corpus), str(layout.corpus))
            raise MetaXLMError(message) from error


def _sort_jobs(grid: Grid) -> list[EvalJob]:
    """Return all jobs by variant, those of its finished model first."""
    last, recipe = grid.recipe.pretraining.steps, grid.recipe
    variants = [*recipe.variants, *map(name_encoder, recipe.list_encoders())]
    places = {
        model.name: (
            variants.index(find_trained(model.variant)),
            (model.step or 0) % last if last else 0,
        )
        for each in grid.evaluations
        for model in each.models
    }
    return sorted(grid.list_jobs(), key=lambda job: places[job.key.model])


def _describe_stage(stage: Stage) -> tuple[str, str]:
    if stage.is_complete():
        return "done", ""
    if stage.work_dir is not None:
        checkpoints = list_checkpoints(stage.work_dir)
        if checkpoints and read_marker(stage.work_dir).get("fingerprint") == stage.fingerprint:
            return f"at step {int(checkpoints[-1].name.removeprefix('step-')):,}", ""
    reason = stage.find_reason().removeprefix("running").strip()
    return "again" if reason else "to do", reason


def name_jobs(jobs: Sequence[EvalJob]) -> str:
    """Name jobs by source language and seeds, such as `en-0..2 de-0`."""
    seeds: dict[str, list[int]] = {}
    for job in jobs:
        seeds.setdefault(job.key.source, []).append(job.key.seed)
    names = []
    for source, numbers in seeds.items():
        for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
            found = [seed for _, seed in run]
            names.append(f"{source}-{found[0]}" + (f"..{found[-1]}" if len(found) > 1 else ""))
    return " ".join(names)
