"""Where corpus work runs: on this machine's cores, on Slurm, or on Ray, with the same result.

Comes in: a pipeline of datatrove steps and the weight of each task. Goes out: whatever the steps
write, and a mark in `completions/` of the work folder for each task that is complete, so that a
second start only does what is missing. The paper prepares Wikipedia in 94 languages (section 4.1);
here a language is a few tasks, and a task is one call of the pipeline with its rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

# Workers import this package before anything else: what only the parent needs is imported below.
if TYPE_CHECKING:
    from datatrove.pipeline.base import PipelineStep

    from metaxlm.config import EngineRecipe
    from metaxlm.data.engines.supervision import Supervised, Work

__all__ = ["run_tasks"]


def run_tasks(
    pipeline: Sequence[PipelineStep],
    weights: Sequence[int],
    work_dir: Path,
    engine: EngineRecipe,
    title: str,
    unit: str = "MB",
) -> None:
    """Run the pipeline once for each weight, as ranks 0, 1, ...; return when all are complete.

    A weight says how much work its task is: in bytes if the unit is `MB`, in units otherwise. Steps
    are pickled, so that each task gets fresh ones; their classes live in importable modules. Tasks
    that fail with a `MetaXLMError` or an `OSError` do not keep the others from running; afterwards
    one `MetaXLMError` tells what happened. Ctrl-C and SIGTERM raise `Interrupted`.
    """
    from metaxlm.data.engines.supervision import Work

    if weights:
        work = Work(tuple(pipeline), tuple(weights), work_dir.absolute(), title, unit)
        _choose_executor(work, engine).supervise()


def _choose_executor(work: Work, engine: EngineRecipe) -> Supervised:
    if engine.name == "ray":
        from metaxlm.data.engines.ray import RayExecutor

        return RayExecutor(work, engine.workers, engine.ray_address)
    if engine.name == "slurm":
        from metaxlm.data.engines.slurm import SlurmExecutor

        return SlurmExecutor(work, engine.slurm)
    from metaxlm.data.engines.local import LocalExecutor

    return LocalExecutor(work, engine.workers)
