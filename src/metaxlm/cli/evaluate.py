"""`metaxlm evaluate`: finetune and test any encoders on any tasks, and compare them."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from metaxlm.cli.options import Device, Quiet, print_table, split_list
from metaxlm.progress import console, say, set_quiet

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
        Option(help="A run, a variant or checkpoint of it, a folder, or a hub id (repeatable)."),
    ],
    task: Annotated[
        list[str], Option(help="Names, groups (xtreme, amazon) or YAML files, separated by commas.")
    ],
    data: Annotated[Path | None, Option(help="Folder of the data sets; see `data check`.")] = None,
    seeds: Annotated[int, Option(min=1, help="Number of seeds.")] = 1,
    languages: Annotated[str | None, Option(help="Test languages (default: the paper's).")] = None,
    source: Annotated[str | None, Option(help="Training languages (default: the task's).")] = None,
    output: Annotated[Path, Option(help="Folder for all results.")] = Path("evaluation"),
    select: Annotated[
        Literal["source", "all", "last"] | None,
        Option(help="Select the epoch by the source language's dev set or by all; or the last."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="[TASK.]KEY=VALUE",
            help="Set a hyperparameter, such as xnli.epochs=3 (repeatable).",
        ),
    ] = None,
    dictionaries: Annotated[
        Path | None, Option(help="Folder of word lists such as en-de.txt, for --set switch=0.5.")
    ] = None,
    keep_models: Annotated[bool, Option("--keep-models", help="Keep finetuned models.")] = False,
    limit: Annotated[int | None, Option(min=1, help="Use the first N examples of a file.")] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Finetune and test encoders on tasks; write scores, predictions and comparison tables.

    Hyperparameters default to the paper's table 8, seeds to one. Tables also show chance, majority
    and the paper's scores; two or more models are tested against each other on the same examples.
    """
    set_quiet(quiet)
    from metaxlm.analysis.evaluation_tables import CONFUSION, fit_terminal
    from metaxlm.pretrain.distributed import choose_device
    from metaxlm.run.standalone import evaluate_models

    tables = evaluate_models(
        model, task, data, output, choose_device(device), seeds=seeds,
        languages=split_list(languages), sources=split_list(source), select=select,
        settings=settings or (), dictionaries=dictionaries, keep_models=keep_models, limit=limit,
    )  # fmt: skip
    for table in (table for table in tables if not table.name.startswith(CONFUSION)):
        print_table(fit_terminal(table))
        console.print()
    if tables:
        say(f"results, predictions and tables: {output}")
