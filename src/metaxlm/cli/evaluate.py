"""`metaxlm evaluate`: finetune and test any encoders on any tasks, and compare them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from metaxlm.cli.options import Device, Quiet, print_table, split_list
from metaxlm.errors import MetaXLMError
from metaxlm.progress import console, say, set_quiet

if TYPE_CHECKING:
    from metaxlm.run.evaluate import Evaluation
    from metaxlm.run.task_plans import AnyTask

EXAMPLES = """
\b
Examples:
  metaxlm evaluate --model runs/demo --task udpos,xnli --data runs/demo/corpus/tasks
  metaxlm evaluate --model runs/small --model FacebookAI/xlm-roberta-base \\
      --task xtreme --data xtreme_data --seeds 5
  metaxlm evaluate --model runs/small/variants/xlm/checkpoints/step-00020000 \\
      --task tatoeba,alignment --data eval
  metaxlm evaluate --model bert-base-multilingual-cased --task reviews.yaml --languages de,fr
  metaxlm evaluate --model A --task xnli --data eval --limit 64 --set epochs=1

The same command resumes an interrupted evaluation and runs only missing jobs. Several processes
may share one --output, for example one per task.
"""


def evaluate_command(
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            help="Evaluate this model: a run, a variant or checkpoint of it, an encoder's folder, "
            "or a hub id (repeatable).",
        ),
    ],
    task: Annotated[
        list[str],
        typer.Option(
            "--task",
            help="Evaluate on these tasks, separated by commas: names, xtreme (seven), amazon "
            "(three), tatoeba, alignment, or your own YAML files.",
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder with the data sets, in any layout of `data check`."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of seeds.")] = 1,
    languages: Annotated[
        str | None,
        typer.Option(
            "--languages", help="Test languages (default: the paper's, where data is available)."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", help="Training languages (default: the task's, mostly en)."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", help="Write jobs, predictions, results and tables here.")
    ] = Path("evaluation"),
    select: Annotated[
        Literal["source", "all", "last"] | None,
        typer.Option(
            "--select",
            help="Select the epoch by the source language's dev set or by all dev sets, or use "
            "the last.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[TASK.]KEY=VALUE",
            help="Set a hyperparameter, such as xnli.epochs=3, or epochs=1 for all (repeatable).",
        ),
    ] = None,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the finetuned models.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Use only the first N examples of each file."),
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Finetune and test encoders on tasks; write scores, predictions and comparison tables.

    Hyperparameters default to the paper's. Tables also show chance, majority and the paper's
    scores; two or more models are tested against each other on the same examples.
    """
    set_quiet(quiet)
    from metaxlm.digests import require_whole
    from metaxlm.finetune.registry import TASKS
    from metaxlm.manifest import list_foreign_files
    from metaxlm.pretrain.distributed import choose_device
    from metaxlm.run import task_plans
    from metaxlm.run.evaluate import Evaluation, raise_failures
    from metaxlm.run.fingerprints import FileFingerprints
    from metaxlm.run.jobs import PREDICTIONS, collecting
    from metaxlm.run.models import find_all_models

    for name in ("tables", PREDICTIONS):
        list_foreign_files(output / name)
    chosen = choose_device(device)
    tasks, features = task_plans.choose_tasks(task)
    if data is None:
        if needy := [*features, *(task.name for task in tasks if task.name in TASKS)]:
            raise MetaXLMError(f"evaluate: {', '.join(needy)} need --data DIR with their files")
    elif not data.is_dir():
        raise MetaXLMError(f"--data {data}: no such folder")
    else:
        require_whole(data)  # it may be part of a run
    codes, sources = split_list(languages), split_list(source)
    values = task_plans.read_overrides(settings or [], [task.name for task in tasks], select)
    overrides = task_plans.TaskOverrides(
        None if codes is None else tuple(codes), None if sources is None else tuple(sources), values
    )
    folder = data or Path()
    plans = [task_plans.plan_task(task, folder, overrides) for task in tasks]
    measured = [task_plans.plan_features(name, folder, overrides) for name in features]
    task_plans.check_languages([*plans, *measured], codes)
    plan = task_plans.EvaluationPlan(tuple(plans), tuple(measured), seeds, limit=limit)
    files = FileFingerprints(output)
    evaluation = Evaluation(find_all_models(model), plan, output, chosen, files, keep_models)
    evaluation.check_models()
    num_complete = len(evaluation.jobs) - len(evaluation.list_missing())
    with collecting(output):
        files.save()
    if num_complete:
        say(f"{num_complete} jobs are already complete")
    evaluation.run()
    _show_results(evaluation, tasks)
    raise_failures([evaluation])


def _show_results(evaluation: Evaluation, own: Sequence[AnyTask]) -> None:
    """Collect all jobs of the output folder; write and print the tables."""
    from metaxlm.analysis.evaluation import fit_terminal, make_tables, write_evaluation
    from metaxlm.analysis.results import FEATURES, write_results
    from metaxlm.analysis.results import FILE_NAME as RESULTS
    from metaxlm.analysis.stats import COMPARISONS
    from metaxlm.finetune.registry import TASKS
    from metaxlm.run.compare import compare_models, link_predictions, make_rows
    from metaxlm.run.jobs import collecting, keep_current, list_jobs

    output = evaluation.output
    tasks: dict[str, Any] = {**TASKS, **{task.name: task for task in own}}
    with collecting(output):
        found, problems = list_jobs(output)
        jobs, notes = keep_current(found, evaluation.jobs.values())
        for line in [*problems, *notes]:
            say(line)
        if not jobs:
            say("no job is complete yet")
            return
        rows = [row for job in jobs for row in make_rows(job, output.name, job.key.model)]
        write_results(output / RESULTS, rows)
        link_predictions(output, jobs)
        given = [model.name for model in evaluation.models]
        names = list(dict.fromkeys([*given, *(job.key.model for job in jobs)]))
        tests, more = compare_models(jobs, tasks, names, output / COMPARISONS)
        records = [job.record for job in jobs]
        tables = make_tables(records, rows, tests, names, [*FEATURES, *tasks], [*notes, *more])
        write_evaluation(output / "tables", tables, rows, names)
    for table in tables:
        print_table(fit_terminal(table))
        console.print()
    say(f"results, predictions and tables: {output}")
