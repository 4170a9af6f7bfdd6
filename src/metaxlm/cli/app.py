"""All commands. Heavy imports are inside the commands, so that `--help` is fast."""

import os
import sys
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer
from typer import Argument, Option

from metaxlm import __version__
from metaxlm.cli import (
    align,
    dictionary,
    doctor,
    embed,
    evaluate,
    evaluate_sentences,
    exit_codes,
    matching,
    plan,
    push,
    retrieve,
    sentences_command,
    view,
)
from metaxlm.cli.help import App, Group
from metaxlm.cli.options import (
    Device,
    Output,
    Overrides,
    Quiet,
    RecipeFile,
    RunFolder,
    print_table,
    show_summary,
)
from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.files import restore_replaced
from metaxlm.progress import console, say, set_quiet
from metaxlm.stopping import check_stop

# Spinning threads slow torch down many times when other processes use the machine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Our message names a process that died; torch would add its stack traces.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


class _Root(Group):
    panels: ClassVar = {
        "Experiments": ("demo", "run", "plan", "doctor", "report", "view", "publish", "verify"),
        "Make encoders": (
            "match", "vocabulary", "trim", "dictionary", "sentences", "export", "push",
        ),
        "Use and measure encoders": (
            "evaluate", "evaluate-sentences", "embed", "retrieve", "mine", "align",
        ),
        "Inspect data": ("corpus", "data"),
    }  # fmt: skip


app = App(
    help="Turn a strong monolingual encoder into a cross-lingual one, and measure the gain.",
    cls=_Root,
    pretty_exceptions_enable=False,
)
corpus_app = App(help="Inspect a prepared corpus.", no_args_is_help=True)
data_app = App(help="Inspect folders of task data.", no_args_is_help=True)
app.add_typer(corpus_app, name="corpus")
app.add_typer(data_app, name="data")
app.add_typer(matching.app, name="match")
app.add_typer(dictionary.app, name="dictionary")
app.command("vocabulary")(matching.vocabulary_command)
app.command("trim")(matching.trim_command)
app.command("evaluate", epilog=evaluate.EXAMPLES)(evaluate.evaluate_command)
app.command("evaluate-sentences", epilog=evaluate_sentences.EXAMPLES)(
    evaluate_sentences.evaluate_sentences_command
)
app.command("embed", epilog=embed.EXAMPLES)(embed.embed_command)
app.command("export")(embed.export_command)
app.command("sentences", epilog=sentences_command.EXAMPLES)(sentences_command.sentences_command)
app.command("retrieve", epilog=retrieve.RETRIEVE_EXAMPLES)(retrieve.retrieve_command)
app.command("mine", epilog=retrieve.MINE_EXAMPLES)(retrieve.mine_command)
app.command("align", epilog=align.EXAMPLES)(align.align_command)
app.command("plan")(plan.plan_command)
app.command("push", epilog=push.EXAMPLES)(push.push_command)
app.command("doctor")(doctor.doctor_command)
app.command("view")(view.view_command)

StageName = Literal[
    "corpus", "vocabulary", "shards", "meta", "grow", "initialize", "pretrain", "sentences",
    "evaluate", "report",
]  # fmt: skip


def _complete_variant(context: typer.Context, incomplete: str) -> list[str]:
    from metaxlm.recipe.recipe_file import load_recipe

    # While an option waits for its value, the parser leaves the arguments before it in `args`.
    words = [context.params.get("recipe"), *context.args]
    try:
        recipe = load_recipe(Path(next(word for word in words if word)))
    except (MetaXLMError, StopIteration):
        return []
    return [name for name in recipe.variants if name.startswith(incomplete)]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"metaxlm {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def run(
    recipe: RecipeFile,
    stage: Annotated[StageName | None, Option(help="Run this stage and those it needs.")] = None,
    variant: Annotated[
        list[str] | None,
        Option(help="Run only this variant (repeatable).", autocompletion=_complete_variant),
    ] = None,
    overrides: Overrides = None,
    output: Output = Path("runs"),
    device: Device = "auto",
    shared: Annotated[
        bool,
        Option(
            "--shared",
            help="Share the work with other --shared processes (one per GPU, or a Slurm array).",
        ),
    ] = False,
    collect: Annotated[
        bool, Option("--collect", help="Only write the report from finished results.")
    ] = False,
    dry: Annotated[bool, Option("--dry", help="List all work and states; write nothing.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run a recipe: do missing work, resume interrupted work, and write the report."""
    from metaxlm.recipe.recipe_file import check_recipe_file, load_recipe

    set_quiet(quiet)
    loaded = load_recipe(recipe, overrides or [])
    if not dry:
        check_recipe_file(recipe, output / loaded.name / "recipe.yaml")
    # Imported here: errors in a recipe are reported before torch is loaded.
    from metaxlm.cli import run as runs

    request = runs.Request(loaded, output, stage, variant or [], device)
    if dry:
        runs.list_work(request)
    elif collect:
        runs.collect(request)
    elif shared:
        runs.execute_shared(request)
    else:
        runs.execute(request)


@app.command()
def demo(
    overrides: Overrides = None,
    output: Output = Path("runs"),
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Run all three phases on the built-in corpus and print the results."""
    from metaxlm.cli.run import Request, execute
    from metaxlm.recipe.recipe_file import load_recipe

    set_quiet(quiet)
    with as_file(files("metaxlm") / "recipes" / "demo.yaml") as path:
        recipe = load_recipe(path, overrides or [])
    execute(Request(recipe, output, device=device))


def _check_run(folder: Path) -> None:
    restore_replaced(folder)
    if not (folder / "recipe.yaml").is_file():
        raise MetaXLMError(f"{folder}: not a run folder, it has no recipe.yaml")


@app.command()
def report(run_dir: RunFolder, quiet: Quiet = False) -> None:
    """Write the report of a run again from its results."""
    set_quiet(quiet)
    _check_run(run_dir)
    from metaxlm.analysis.report import write_report
    from metaxlm.analysis.run_folder import read_run
    from metaxlm.files import exclusive_folder

    with exclusive_folder(run_dir):
        run = read_run(run_dir)
        write_report(run_dir, run)
        show_summary(run_dir, run.results)


@app.command()
def publish(
    run_dir: RunFolder,
    folder: Annotated[Path, Argument(metavar="FOLDER", help="Folder of the publication.")],
    add: Annotated[bool, Option("--add", help="Keep published jobs; add missing ones.")] = False,
    tallies: Annotated[
        bool, Option("--tallies", help="Also publish right and wrong by test example.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Copy a run's results, recipe and logs into a small folder, and write its report there."""
    set_quiet(quiet)
    _check_run(run_dir)
    from metaxlm.files import exclusive_folder
    from metaxlm.run import publish as publishing

    with exclusive_folder(run_dir):
        if add:
            added = publishing.publish_more(run_dir, folder, with_tallies=tallies)
            say(added.describe())
        else:
            publishing.publish(run_dir, folder, with_tallies=tallies)
    say(f"published: {folder}; `metaxlm report {folder}` writes its report again")


@app.command()
def verify(
    folder: Annotated[Path, Argument(help="A run, shards, checkpoints, or part of them.")],
    quiet: Quiet = False,
) -> None:
    """Compare every file with its stored digest; name each damaged file."""
    from metaxlm.run.verify import verify as verify_folder

    set_quiet(quiet)
    result = verify_folder(folder)
    for path, problem in sorted(result.problems.items()):
        exit_codes.print_error(f"{path}: {problem}")
    if result.unlisted:
        shown = ", ".join(str(path.relative_to(folder)) for path in result.unlisted[:3])
        more = f" and {len(result.unlisted) - 3} more" if len(result.unlisted) > 3 else ""
        say(f"{folder}: not checked, because they have no stored digest: {shown}{more}")
    checked = f"{result.files:,} files, {result.bytes / 1e6:,.1f} MB"
    if result.problems:
        exit_codes.print_error(f"{folder}: {len(result.problems)} damaged or missing of {checked}")
        raise typer.Exit(1)
    say(f"{folder}: {checked}, all undamaged")


@corpus_app.command("stats")
def corpus_stats(
    folder: Annotated[Path, Argument(help="A run, a folder of shards, or prepared text.")],
    alpha: Annotated[float, Option(min=0, max=1, help="Exponent of the distribution.")] = 0.7,
    unit: Annotated[
        Literal["bytes", "characters", "tokens"], Option(help="Unit of the sizes N_i.")
    ] = "bytes",
    output: Annotated[Path | None, Option(help="Folder for the table and the figure.")] = None,
) -> None:
    """Print size, documents, sentences, tokens and sampling probability of each language."""
    from metaxlm.data import statistics

    rows = statistics.collect_statistics(folder, alpha, unit)
    losses = statistics.describe_losses(folder)
    print_table(statistics.statistics_table(rows, alpha))
    for line in losses:
        say(line)
    if output is not None:
        statistics.write_statistics(output, rows, alpha, losses)
        say(f"table and figure: {output}")


@data_app.command("check")
def data_check(
    folder: Annotated[Path, Argument(help="Folder with the data sets, in any layout.")],
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the data sets in a folder, what is missing or broken, and where to get it."""
    from metaxlm.cli.options import keep_output_clean
    from metaxlm.files import dump_json
    from metaxlm.finetune.check import check_data, render

    with keep_output_clean("-" if as_json else None):
        found = check_data(folder)
    if as_json:
        typer.echo(dump_json(found.describe()), nl=False)
    else:
        console.print(render(found))


def run_command() -> None:
    """Run the command line and exit; `exit_codes` maps exceptions to exit codes."""
    exit_codes.prepare_streams()
    try:
        with exit_codes.explaining_threads():
            code = app(standalone_mode=False)
            check_stop()
        exit_codes.flush_output()
    except (Exception, Interrupted, KeyboardInterrupt, SystemExit) as error:
        code = exit_codes.end(error)
    sys.exit(code)
