"""A recipe's run, by one process or by many that torchrun started.

The main process runs all stages; the others wait, and take part in the trainings only. They print
nothing, and end with the main process's exit code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from metaxlm.cli.endings import ending_together
from metaxlm.config import Recipe
from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.experiments.layout import RunLayout
from metaxlm.experiments.pipeline import (
    build_stages,
    check_recipe,
    collect_results,
    select_stages,
    start_run,
)
from metaxlm.experiments.stage import Stage
from metaxlm.files import exclusive_folder
from metaxlm.pretraining.distributed import World
from metaxlm.pretraining.ranks import Ranks
from metaxlm.progress import console, say, set_quiet
from metaxlm.report import summary_table
from metaxlm.report.stage import report_stage
from metaxlm.stopping import stop_requests


def execute(
    recipe: Recipe, stage: str | None, variants: Sequence[str], output: Path, device: str
) -> None:
    """Do what is missing of a recipe, or take part in it."""
    layout = RunLayout(output / recipe.name)
    world = World.join(device, recipe.execution)
    with ending_together(world), _interruptible():
        check_recipe(recipe, variants)
        stages = build_stages(recipe, layout, world)
        if world.is_main:
            _lead(recipe, layout, stages, stage, variants, world.ranks)
        elif world.ranks is not None:
            _follow(layout, stages, world.ranks)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Say in our words that somebody stopped the run; typer has an exit code of its own for it."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted("stopped") from error


def show_summary(rows: list[dict[str, Any]], page: Path) -> None:
    """Print the scores of a run and where its report stands."""
    console.print(summary_table(rows))
    say(f"report: {page}")


def _lead(
    recipe: Recipe,
    layout: RunLayout,
    stages: Sequence[Stage],
    stage: str | None,
    variants: Sequence[str],
    ranks: Ranks | None,
) -> None:
    with exclusive_folder(layout.root):
        start_run(recipe, layout)
        for selected in select_stages(stages, stage, variants):
            if ranks is not None:
                ranks.check_stop()
            selected.run(None if ranks is None else ranks.order)
        rows = collect_results(recipe, layout, stages)
        if rows and stage in (None, "report"):
            report_stage(layout, stages).run()
            show_summary(rows, layout.report / "index.html")


def _follow(layout: RunLayout, stages: Sequence[Stage], ranks: Ranks) -> None:
    set_quiet(True)
    by_title = {stage.title: stage for stage in stages if stage.together}
    with stop_requests() as stop_requested:
        ranks.stop_requested = stop_requested
        while (title := ranks.next_order()) is not None:
            if not layout.recipe.is_file():
                raise MetaXLMError(
                    f"{layout.root}: not seen from here; put --output where all processes see it"
                )
            try:
                by_title[title].take_part()
            except Interrupted:
                continue  # all agreed on it, and the main process ends the run when it has saved
