"""`metaxlm evaluate`: finetune and test any encoders on any tasks, and put them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metaxlm.cli.options import Device, Quiet, split_list
from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.progress import console, say, set_quiet

if TYPE_CHECKING:
    from metaxlm.analysis.tables import Table
    from metaxlm.run.evaluation import Evaluation
    from metaxlm.run.evaluation_plan import AnyTask, EvaluationPlan
    from metaxlm.run.user_files import UserFiles


class SelectName(StrEnum):
    """What picks the best epoch."""

    SOURCE = "source"
    ALL = "all"
    LAST = "last"


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

The same command continues where it was stopped and does only what is missing. Several
processes may share one --output, for example one for each task.
"""


def evaluate_command(
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            help="A run, one of its variants or checkpoints, an encoder's folder, or a hub id; "
            "may be repeated.",
        ),
    ],
    task: Annotated[
        list[str],
        typer.Option(
            "--task",
            help="Tasks separated by commas: names, xtreme (seven), amazon (three), tatoeba, "
            "alignment, or YAML files of your own.",
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder with the data sets, in any layout `data check` reads."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds.")] = 1,
    languages: Annotated[
        str | None,
        typer.Option("--languages", help="Test languages; without it the paper's that are there."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", help="Training languages; without it the task's, mostly en."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", help="Folder for cells, predictions, results and tables.")
    ] = Path("evaluation"),
    select: Annotated[
        SelectName | None,
        typer.Option(
            "--select",
            help="What picks the epoch: the source language's dev set, all dev sets, or the last.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[TASK.]KEY=VALUE",
            help="A hyperparameter, such as xnli.epochs=3, or epochs=1 for all; may be repeated.",
        ),
    ] = None,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the finetuned models, for `predict`.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="For a quick try: the first N examples of each file."),
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Finetune and test encoders on tasks; write scores, predictions and tables that compare them.

    Without --set, hyperparameters are the paper's. Scores stand beside chance, majority and the
    paper's rows; two or more models are tested against each other on the same examples.
    """
    set_quiet(quiet)
    from metaxlm.manifest import list_foreign_files
    from metaxlm.pretrain.distributed import choose_device
    from metaxlm.run.cells import PREDICTIONS, collecting
    from metaxlm.run.evaluation import Evaluation, report_failures
    from metaxlm.run.models import find_all_models
    from metaxlm.run.user_files import UserFiles

    for name in ("tables", PREDICTIONS):
        list_foreign_files(output / name)
    chosen = choose_device(device)
    known = UserFiles(output)
    plan, tasks = _make_plan(
        task, data, languages, source, select, settings or [], seeds, limit, known
    )
    models = find_all_models(model)
    evaluation = Evaluation(models, plan, output, chosen, keep_models)
    evaluation.check_models()
    evaluation.list_cells()  # names all files
    with collecting(output):
        known.remember()
    evaluation.run()
    if evaluation.num_skipped:
        say(f"{evaluation.num_skipped} cells were complete already")
    show_evaluation(evaluation, tasks)
    report_failures([evaluation])


def _make_plan(
    names: Sequence[str],
    data: Path | None,
    languages: str | None,
    source: str | None,
    select: str | None,
    settings: Sequence[str],
    seeds: int,
    limit: int | None,
    known: UserFiles,
) -> tuple[EvaluationPlan, list[AnyTask]]:
    """Settle everything, or say what is wrong, before anything is opened or trained."""
    from metaxlm.finetune.registry import TASKS
    from metaxlm.run.evaluation_plan import (
        EvaluationPlan,
        Wishes,
        check_languages,
        choose_tasks,
        plan_features,
        plan_task,
        read_overrides,
    )

    tasks, features = choose_tasks(names)
    if data is None:
        if needy := [*features, *(task.name for task in tasks if task.name in TASKS)]:
            raise MetaXLMError(f"evaluate: {', '.join(needy)} need --data DIR, where the files are")
        data = Path()
    elif not data.is_dir():
        raise MetaXLMError(f"--data {data}: no such folder")
    else:
        require_whole(data)  # the built-in corpus has such data
    asked, sources = split_list(languages), split_list(source)
    values = read_overrides(settings, [task.name for task in tasks], select)
    wishes = Wishes(
        None if asked is None else tuple(asked), None if sources is None else tuple(sources), values
    )
    plans = [plan_task(task, data, wishes, known) for task in tasks]
    feature_plans = [plan_features(name, data, wishes, known=known) for name in features]
    check_languages([*plans, *feature_plans], asked)
    return EvaluationPlan(tuple(plans), tuple(feature_plans), seeds, limit=limit), tasks


def show_evaluation(evaluation: Evaluation, own: Sequence[AnyTask]) -> None:
    """Collect all cells of the output folder, whoever made them; write and print the tables."""
    from metaxlm.analysis.results import FEATURES, list_rows, write_results
    from metaxlm.analysis.results import FILE_NAME as RESULTS
    from metaxlm.analysis.score_tables import make_tables, write_evaluation
    from metaxlm.analysis.stats import COMPARISONS
    from metaxlm.finetune.registry import TASKS
    from metaxlm.run.cells import collecting, find_basis, list_cells
    from metaxlm.run.comparison import compare_models, keep_current, link_predictions

    output = evaluation.output
    tasks: dict[str, Any] = {**TASKS, **{task.name: task for task in own}}
    asked = [find_basis(cell.inputs) for cell in evaluation.list_cells()]
    with collecting(output):
        found, problems = list_cells(output)
        cells, notes = keep_current(found, asked)
        for line in [*problems, *notes]:
            say(line)
        if not cells:
            say("nothing is complete yet")
            return
        rows = [
            row
            for cell in cells
            for row in list_rows(
                cell.record,
                output.name,
                cell.key.model,
                cell.record["step"],
                cell.key.seed,
                cell.fingerprint,
                cell.metaxlm,
            )
        ]
        write_results(output / RESULTS, rows)
        link_predictions(output, cells)
        given = [model.name for model in evaluation.models]
        names = list(dict.fromkeys([*given, *(cell.key.model for cell in cells)]))
        tests, more = compare_models(cells, tasks, names, output / COMPARISONS)
        records = [cell.record for cell in cells]
        tables = make_tables(records, rows, tests, names, [*FEATURES, *tasks], [*notes, *more])
        write_evaluation(output / "tables", tables, rows, names)
    for table in tables:
        _print_table(table)
    say(f"results, predictions and tables: {output}")


def _print_table(table: Table) -> None:
    from metaxlm.analysis.score_tables import fit_terminal
    from metaxlm.cli.summary import print_table

    print_table(fit_terminal(table))
    console.print()
