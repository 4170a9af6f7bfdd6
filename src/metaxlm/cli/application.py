"""The command line. Heavy imports wait until a command needs them, so that help is instant."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from metaxlm import __version__
from metaxlm.cli import (
    align,
    doctor,
    embed,
    evaluating,
    matching,
    planning,
    retrieve,
)
from metaxlm.cli.endings import (
    end,
    explaining_threads,
    flush_output,
    prepare_streams,
    print_error,
)
from metaxlm.cli.options import Device, Output, Overrides, Quiet
from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.files import restore_replaced
from metaxlm.progress import console, say, set_quiet
from metaxlm.stopping import check_stop

# Threads that spin while they wait slow torch down many times when anything else uses the machine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# When a process of several is gone, our line tells which; torch would add its stack traces.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

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
app.command("trim")(matching.trim_command)
app.command("evaluate", epilog=evaluating.EXAMPLES)(evaluating.evaluate_command)
app.command("embed", epilog=embed.EXAMPLES)(embed.embed_command)
app.command("export")(embed.export_command)
app.command("retrieve", epilog=retrieve.RETRIEVE_EXAMPLES)(retrieve.retrieve_command)
app.command("mine", epilog=retrieve.MINE_EXAMPLES)(retrieve.mine_command)
app.command("align", epilog=align.EXAMPLES)(align.align_command)
app.command("plan")(planning.plan_command)
app.command("doctor")(doctor.doctor_command)


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
    REPORT = "report"


def _complete_variant(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the variants of the recipe that stands on the command line."""
    from metaxlm.recipe.load import load_recipe

    # While an option waits for its value, the parser leaves the arguments before it in `args`.
    words = [context.params.get("recipe"), *context.args]
    try:
        recipe = load_recipe(Path(next(word for word in words if word)))
    except (MetaXLMError, StopIteration):
        return []
    return [name for name in recipe.variants if name.startswith(incomplete)]


StageOption = Annotated[
    StageName | None, typer.Option("--stage", help="Run this stage and what it needs, no more.")
]
Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--variant", help="Only this variant; may be repeated.", autocompletion=_complete_variant
    ),
]


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
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Work side by side with other processes that were started so: each takes a "
            "stage or a cell that is free (one a GPU, or the jobs of a Slurm array).",
        ),
    ] = False,
    collect: Annotated[
        bool,
        typer.Option("--collect", help="Make nothing; draw the report of what is complete so far."),
    ] = False,
    dry: Annotated[
        bool,
        typer.Option("--dry", help="List all stages and jobs and what is done; write nothing."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Run a recipe: do what is missing, continue where it stopped, and write the report."""
    from metaxlm.recipe.load import check_recipe_file, load_recipe

    set_quiet(quiet)
    loaded = load_recipe(recipe, overrides or [])
    if not dry:
        check_recipe_file(recipe, output / loaded.name / "recipe.yaml")
    # A slip in a recipe is told before torch is loaded.
    from metaxlm.cli.execution import Request, execute, execute_shared
    from metaxlm.cli.execution import collect as collect_so_far

    request = Request(loaded, output, stage, variant or [], device)
    if dry:
        from metaxlm.cli.dry_run import list_work

        list_work(request)
    elif collect:
        collect_so_far(request)
    elif shared:
        execute_shared(request)
    else:
        execute(request)


@app.command()
def demo(
    overrides: Overrides = None,
    output: Output = Path("runs"),
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Run all three phases on the built-in corpus and show what they gained."""
    from metaxlm.cli.execution import Request, execute
    from metaxlm.recipe.load import load_recipe

    set_quiet(quiet)
    with as_file(files("metaxlm") / "recipes" / "demo.yaml") as path:
        recipe = load_recipe(path, overrides or [])
    execute(Request(recipe, output, device=device))


def _check_run(folder: Path) -> None:
    restore_replaced(folder)
    if not (folder / "recipe.yaml").is_file():
        raise MetaXLMError(f"{folder}: not a run folder, it has no recipe.yaml")


@app.command()
def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as runs/demo.")],
    quiet: Quiet = False,
) -> None:
    """Draw the report of a run again from its results."""
    set_quiet(quiet)
    _check_run(run_dir)
    from metaxlm.analysis.report import write_report
    from metaxlm.analysis.run_folder import read_run
    from metaxlm.cli.summary import show_summary
    from metaxlm.files import exclusive_folder

    with exclusive_folder(run_dir):
        run = read_run(run_dir)
        write_report(run_dir, run)
        show_summary(run_dir, run.results)


@app.command()
def publish(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as runs/demo.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the copy goes.")],
    add: Annotated[
        bool, typer.Option("--add", help="Keep what is published; add the cells it lacks.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Copy a run's results, recipe and logs into a small folder, and draw its report there."""
    set_quiet(quiet)
    _check_run(run_dir)
    from metaxlm.files import exclusive_folder
    from metaxlm.run.publication import publish as publish_run
    from metaxlm.run.publication import publish_more

    with exclusive_folder(run_dir):
        if add:
            addition = publish_more(run_dir, folder)
            say(addition.describe())
        else:
            publish_run(run_dir, folder)
    say(f"published: {folder}; `metaxlm report {folder}` draws it again")


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A run, shards, checkpoints, or part of them.")],
    quiet: Quiet = False,
) -> None:
    """Compare every byte with the digests written beside it; name each damaged file."""
    from metaxlm.run.verification import verify as verify_folder

    set_quiet(quiet)
    result = verify_folder(folder)
    for path, problem in sorted(result.problems.items()):
        print_error(f"{path}: {problem}")
    if result.unlisted:
        shown = ", ".join(str(path.relative_to(folder)) for path in result.unlisted[:3])
        more = f" and {len(result.unlisted) - 3} more" if len(result.unlisted) > 3 else ""
        say(f"{folder}: not checked, because no digest was written: {shown}{more}")
    checked = f"{result.files:,} files, {result.bytes / 1e6:,.1f} MB"
    if result.problems:
        print_error(f"{folder}: {len(result.problems)} damaged or missing of {checked}")
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
    from metaxlm.cli.summary import print_table
    from metaxlm.data.statistics import collect_losses, collect_statistics
    from metaxlm.data.statistics_report import (
        describe_losses,
        statistics_table,
        write_statistics,
    )

    rows = collect_statistics(folder, alpha, unit.value)
    losses = collect_losses(folder)
    print_table(statistics_table(rows, alpha))
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
    """List the data sets in a folder, what is missing or broken, and where to get it."""
    import json

    from metaxlm.cli.standard_output import keep_output_clean
    from metaxlm.finetune.check import check_data, render

    with keep_output_clean("-" if as_json else None):
        found = check_data(folder)
    if as_json:
        typer.echo(json.dumps(found.describe(), indent=2, ensure_ascii=False))
    else:
        console.print(render(found))


def run_command() -> None:
    """Run the command line; `endings` has the exit codes."""
    prepare_streams()
    try:
        with explaining_threads():
            code = app(standalone_mode=False)
            check_stop()
        flush_output()
    except (Exception, Interrupted, KeyboardInterrupt, SystemExit) as error:
        code = end(error)
    sys.exit(code)
