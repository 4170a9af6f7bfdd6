"""The command line. Heavy imports wait until a command needs them, so that help is instant."""

from __future__ import annotations

import errno
import os
import sys
from enum import StrEnum
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from metaxlm import __version__
from metaxlm.cli import matching, trimming
from metaxlm.cli.options import Quiet
from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.progress import console, say, set_quiet

if TYPE_CHECKING:
    from metaxlm.config import Recipe

# Newer typers bring their own click, older ones import it: take the class from where it is used.
_UsageError: type[typer.BadParameter] = next(
    ancestor for ancestor in typer.BadParameter.__mro__ if ancestor.__name__ == "ClickException"
)

# Threads that spin while they wait slow torch down many times when anything else uses the machine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 75
"""The system's code for "try again later": the same command continues."""

app = typer.Typer(
    help="Turn a strong monolingual encoder into a cross-lingual one, and prove what it gained.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

corpus_app = typer.Typer(help="Look at a prepared corpus.", no_args_is_help=True)
data_app = typer.Typer(help="Look at folders of task data.", no_args_is_help=True)
app.add_typer(corpus_app, name="corpus")
app.add_typer(data_app, name="data")
app.add_typer(matching.app, name="match")
app.command("trim")(trimming.trim_command)


class SizeUnitName(StrEnum):
    """What the size of a language counts."""

    BYTES = "bytes"
    CHARACTERS = "characters"
    TOKENS = "tokens"


class StageName(StrEnum):
    """The stages of a run, in order."""

    CORPUS = "corpus"
    VOCABULARY = "vocabulary"
    SHARDS = "shards"
    META = "meta"
    INITIALIZE = "initialize"
    PRETRAIN = "pretrain"
    EVALUATE = "evaluate"
    FINETUNE = "finetune"
    REPORT = "report"


def _complete_variant(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the variants of the recipe that stands on the command line."""
    from metaxlm.recipe_file import load_recipe

    # While an option waits for its value, the parser leaves the arguments before it in `args`.
    words = [context.params.get("recipe"), *context.args]
    try:
        recipe = load_recipe(Path(next(word for word in words if word)))
    except (MetaXLMError, StopIteration):
        return []
    return [name for name in recipe.variants if name.startswith(incomplete)]


Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key; may be repeated."),
]
StageOption = Annotated[
    StageName | None, typer.Option("--stage", help="Run this stage and what it needs, no more.")
]
Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--variant", help="Only this variant; may be repeated.", autocompletion=_complete_variant
    ),
]
Output = Annotated[
    Path, typer.Option("--output", help="Folder in which the run folder NAME is made.")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Answer what stands before any command; the app's help is the text shown."""
    if version:
        typer.echo(f"metaxlm {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def run(
    recipe: Annotated[Path, typer.Argument(help="The experiment, a YAML file.")],
    stage: StageOption = None,
    variant: Variants = None,
    overrides: Overrides = None,
    output: Output = Path("runs"),
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Run a recipe: do what is missing, continue where it stopped, and write the report."""
    from metaxlm.recipe_file import load_recipe

    set_quiet(quiet)
    _execute(load_recipe(recipe, overrides or []), stage, variant or [], output, device)


@app.command()
def demo(
    overrides: Overrides = None,
    output: Output = Path("runs"),
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Run all three phases on the built-in corpus and show what they gained."""
    from metaxlm.recipe_file import load_recipe

    set_quiet(quiet)
    with as_file(files("metaxlm") / "recipes" / "demo.yaml") as path:
        recipe = load_recipe(path, overrides or [])
    _execute(recipe, None, [], output, device)


@app.command()
def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as runs/demo.")],
    quiet: Quiet = False,
) -> None:
    """Draw the report of a run again from its results."""
    from metaxlm.experiments.results import FILE_NAME, read_results
    from metaxlm.files import exclusive_folder
    from metaxlm.report import write_report

    set_quiet(quiet)
    if not (run_dir / "recipe.yaml").is_file():
        raise MetaXLMError(f"{run_dir}: not a run folder, it has no recipe.yaml")
    with exclusive_folder(run_dir):
        _show_summary(read_results(run_dir / FILE_NAME), write_report(run_dir))


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A run, shards, checkpoints, or part of them.")],
    quiet: Quiet = False,
) -> None:
    """Compare every byte with the digests written beside it; name each damaged file."""
    from metaxlm.experiments.verification import verify as verify_folder

    set_quiet(quiet)
    result = verify_folder(folder)
    for path, problem in sorted(result.problems.items()):
        _print_error(f"{path}: {problem}")
    checked = f"{result.files:,} files, {result.bytes / 1e6:,.1f} MB"
    if result.problems:
        _print_error(f"{folder}: {len(result.problems)} damaged or missing of {checked}")
        raise typer.Exit(1)
    say(f"{folder}: {checked}, all as they were written")


@corpus_app.command("stats")
def corpus_stats(
    folder: Annotated[Path, typer.Argument(help="A run, a folder of shards, or prepared text.")],
    alpha: Annotated[
        float, typer.Option(min=0, max=1, help="Exponent of the rebalanced distribution.")
    ] = 0.7,
    unit: Annotated[SizeUnitName, typer.Option(help="What N_i counts.")] = SizeUnitName.BYTES,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the table (md) and the figure (svg, pdf).")
    ] = None,
) -> None:
    """Show size, documents, sentences, tokens and sampling probability of each language."""
    from metaxlm.corpus.statistics import collect_losses, collect_statistics
    from metaxlm.report.corpus_statistics import (
        describe_losses,
        statistics_table,
        write_statistics,
    )

    rows = collect_statistics(folder, alpha, unit.value)
    losses = collect_losses(folder)
    console.print(statistics_table(rows, alpha))
    for line in describe_losses(losses) if losses else ():
        say(line)
    if output is not None:
        write_statistics(output, rows, alpha, losses)
        say(f"table and figure: {output}")


@data_app.command("check")
def data_check(
    folder: Annotated[Path, typer.Argument(help="Folder with the data sets, in any layout.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say for every data set what is there, what is missing, and where its home is."""
    import json

    from metaxlm.tasks.data_folder import check_data, render

    found = check_data(folder)
    if as_json:
        typer.echo(json.dumps(found.describe(), indent=2, ensure_ascii=False))
    else:
        console.print(render(found))


def _execute(
    recipe: Recipe, stage: StageName | None, variants: list[str], output: Path, device: str
) -> None:
    from metaxlm.experiments.layout import RunLayout
    from metaxlm.experiments.pipeline import (
        build_stages,
        check_recipe,
        collect_results,
        select_stages,
        start_run,
    )
    from metaxlm.files import exclusive_folder
    from metaxlm.pretraining.device import choose_device
    from metaxlm.report.stage import report_stage

    check_recipe(recipe, variants)
    layout = RunLayout(output / recipe.name)
    stages = build_stages(recipe, layout, choose_device(device))
    with exclusive_folder(layout.root):
        start_run(recipe, layout)
        for selected in select_stages(stages, stage, variants):
            selected.run()
        rows = collect_results(recipe, layout, stages)
        if rows and stage in (None, StageName.REPORT):
            report_stage(layout, stages).run()
            _show_summary(rows, layout.report / "index.html")


def _show_summary(rows: list[dict[str, Any]], page: Path) -> None:
    from metaxlm.report import summary_table

    console.print(summary_table(rows))
    say(f"report: {page}")


def main() -> None:
    """Run the command line: one line and exit code 2 for a user's mistake, 75 for a stop."""
    try:
        code = app(standalone_mode=False)
    except MetaXLMError as error:
        code = _fail(str(error))
    except _UsageError as error:
        code = _fail(error.format_message())
    except (Interrupted, KeyboardInterrupt, typer.Abort) as error:
        _print_error(f"{str(error) or 'stopped'}; the same command continues")
        code = EXIT_INTERRUPTED
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
            raise
        code = _fail(f"{error.filename or 'output'}: {os.strerror(error.errno or 0)}")
    sys.exit(code)


def _fail(message: str) -> int:
    _print_error(message)
    return EXIT_USER_ERROR


def _print_error(message: str) -> None:
    one_line = " ".join(message.split())
    Console(stderr=True, highlight=False).print(
        f"metaxlm: {one_line}", markup=False, soft_wrap=True
    )
