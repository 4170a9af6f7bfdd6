"""Evaluate any models on any tasks in one folder, for `metaxlm evaluate` and `metaxlm.evaluate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from metaxlm.analysis.evaluation_tables import make_tables, write_evaluation
from metaxlm.analysis.results import FEATURES, MORE_FEATURES, write_results
from metaxlm.analysis.results import FILE_NAME as RESULTS
from metaxlm.analysis.stats import COMPARISONS
from metaxlm.analysis.tables import Table
from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.finetune.catalog import TASKS
from metaxlm.finetune.task import AnyTask
from metaxlm.manifest import list_foreign_files
from metaxlm.progress import say
from metaxlm.run import task_plans
from metaxlm.run.compare import compare_models, link_predictions, make_rows
from metaxlm.run.evaluation import Evaluation, raise_failures
from metaxlm.run.fingerprints import FileFingerprints
from metaxlm.run.jobs import PREDICTIONS, collecting, keep_current, list_jobs
from metaxlm.run.models import find_all_models


def evaluate_models(
    models: Sequence[str],
    tasks: Sequence[str],
    data: Path | None,
    output: Path,
    device: torch.device,
    *,
    seeds: int = 1,
    languages: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    select: Literal["source", "all", "last"] | None = None,
    settings: Sequence[str] = (),
    keep_models: bool = False,
    limit: int | None = None,
    dictionaries: Path | None = None,
) -> list[Table]:
    """Run the missing jobs, write results and tables into the folder, and return the tables.

    Models are paths or hub ids, tasks are names or YAML files, and `settings` are hyperparameters
    such as `xnli.epochs=3`. The other arguments are those of `metaxlm evaluate`.
    """
    for name in ("tables", PREDICTIONS):
        list_foreign_files(output / name)
    chosen, features = task_plans.choose_tasks(tasks)
    if data is None:
        if needy := [*features, *(task.name for task in chosen if task.name in TASKS)]:
            raise MetaXLMError(f"evaluate: {', '.join(needy)} need --data DIR with their files")
    elif not data.is_dir():
        raise MetaXLMError(f"--data {data}: no such folder")
    else:
        require_whole(data)  # it may be part of a run
    values = task_plans.read_overrides(settings, [task.name for task in chosen], select)
    overrides = task_plans.TaskOverrides(languages, sources, values)
    folder = data or Path()
    plans = [task_plans.plan_task(task, folder, overrides) for task in chosen]
    measured = [task_plans.plan_features(name, folder, overrides) for name in features]
    task_plans.check_languages([*plans, *measured], languages)
    switching = [plan.name for plan in plans if plan.settings.switch]
    if switching and dictionaries is None:
        raise MetaXLMError(f"{switching[0]}: switch needs --dictionaries DIR with word lists")
    if dictionaries is not None and not switching:
        raise MetaXLMError("--dictionaries has no effect without a share; add --set switch=0.5")
    if dictionaries is not None and not dictionaries.is_dir():
        raise MetaXLMError(f"--dictionaries {dictionaries}: no such folder")
    plan = task_plans.EvaluationPlan(
        tuple(plans), tuple(measured), seeds, limit=limit, dictionaries=dictionaries
    )
    files = FileFingerprints(output)
    evaluation = Evaluation(find_all_models(models), plan, output, device, files, keep_models)
    evaluation.check_models()
    num_complete = len(evaluation.jobs) - len(evaluation.list_missing())
    with collecting(output):
        files.save()
    if num_complete:
        say(f"{num_complete} jobs are already complete")
    evaluation.run()
    tables = _write_tables(evaluation, chosen)
    raise_failures([evaluation])
    return tables


def _write_tables(evaluation: Evaluation, own: Sequence[AnyTask]) -> list[Table]:
    output = evaluation.output
    tasks: dict[str, Any] = {**TASKS, **{task.name: task for task in own}}
    with collecting(output):
        found, problems = list_jobs(output)
        jobs, notes = keep_current(found, evaluation.jobs.values())
        for line in [*problems, *notes]:
            say(line)
        if not jobs:
            say("no job is complete yet")
            return []
        rows = [row for job in jobs for row in make_rows(job, output.name, job.key.model)]
        write_results(output / RESULTS, rows)
        link_predictions(output, jobs)
        given = [model.name for model in evaluation.models]
        names = list(dict.fromkeys([*given, *(job.key.model for job in jobs)]))
        tests, more = compare_models(jobs, tasks, names, output / COMPARISONS)
        records = [job.record for job in jobs]
        order = [*FEATURES, *MORE_FEATURES, *tasks]
        tables = make_tables(records, rows, tests, names, order, [*notes, *more])
        write_evaluation(output / "tables", tables, rows, names)
    return tables
