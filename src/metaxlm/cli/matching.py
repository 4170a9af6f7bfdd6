"""`metaxlm match`: give an encoder another vocabulary, and look at what every row starts from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from metaxlm.cli.options import LanguageList, Quiet, split_list
from metaxlm.errors import MetaXLMError
from metaxlm.progress import console, say, set_quiet

if TYPE_CHECKING:
    from metaxlm.init.apply import Parts, Preset
    from metaxlm.init.plan import Plan

app = typer.Typer(
    help="Give an encoder another vocabulary, and see what every row starts from.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

_BY_USE = ("precedence=use", "one_to_many=order", "split_words=all", "segments=true")

Ledger = Annotated[
    Path | None,
    typer.Argument(
        help="A ledger, or a folder with one; without it the only one found below here."
    ),
]


@app.callback()
def match_command(
    context: typer.Context,
    source: Annotated[
        str | None, typer.Option("--from", metavar="MODEL", help="The encoder: a folder or hub id.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--to", metavar="TOKENIZER", help="The tokenizer: a folder or hub id."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder to write; it must not exist yet.")
    ] = None,
    dictionary: Annotated[
        list[Path] | None,
        typer.Option("--dictionary", help="Folder or file like en-de.txt; may be repeated."),
    ] = None,
    languages: LanguageList = None,
    source_language: Annotated[
        str, typer.Option("--source-language", help="The language of the encoder.")
    ] = "en",
    corpus: Annotated[
        Path | None,
        typer.Option("--corpus", help="Text to weigh the coverage with: a run, shards, de.txt."),
    ] = None,
    by_use: Annotated[
        bool,
        typer.Option("--by-use", help="The best start we know: weigh languages by the corpus."),
    ] = False,
    initialize: Annotated[
        str,
        typer.Option(
            "--initialize", help="both, body, embeddings, none, or parts like words,head."
        ),
    ] = "both",
    positions: Annotated[
        int | None, typer.Option("--positions", min=1, help="Longest sequence of the new model.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key of `matching` in docs/recipe.md."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Decides what is drawn at random.")] = 1,
    quiet: Quiet = False,
) -> None:
    """Give an encoder the vocabulary of another tokenizer; write a Hugging Face folder."""
    if context.invoked_subcommand is not None:
        return
    set_quiet(quiet)
    if source is None or target is None or output is None:
        raise MetaXLMError(
            "match: needs --from MODEL, --to TOKENIZER and --output DIR; `metaxlm match --help` "
            "tells the rest"
        )
    from metaxlm.cli.options import print_table
    from metaxlm.data.statistics import count_corpus
    from metaxlm.init.coverage_report import coverage_tables, write_coverage
    from metaxlm.init.start import check_output, match
    from metaxlm.recipe.load import load_matching
    from metaxlm.vocab.loading import load_tokenizer

    check_output(output)
    if by_use and corpus is None:
        raise MetaXLMError("match: --by-use needs --corpus, text in which uses can be counted")
    matching = load_matching([*(_BY_USE if by_use else ()), *(settings or ())])
    tokenizer = load_tokenizer(target)
    counts = None if corpus is None else count_corpus(corpus, tokenizer)
    # Dictionaries of languages that the text does not have would only blur the others.
    wanted = split_list(languages) or (None if counts is None else sorted(counts))
    start = match(
        source,
        tokenizer,
        dictionaries=dictionary or matching.dictionaries,
        languages=wanted,
        source_language=source_language,
        matching=matching,
        parts=_read_parts(initialize),
        token_counts=counts,
        max_positions=positions,
        seed=seed,
    )
    start.save(output, lambda folder: write_coverage(folder, start.coverage))
    for table in coverage_tables(start.coverage):
        print_table(table)
    for remark in start.remarks:
        say(f"note: {remark}")
    say(f"model, tokenizer, ledger and coverage: {output}")


@app.command()
def explain(
    token: Annotated[str, typer.Argument(help="A token such as ▁Haus, a word, or a row: #1234.")],
    ledger: Ledger = None,
) -> None:
    """Tell what one token starts from, and what was tried before."""
    from metaxlm.init.coverage_report import story_text
    from metaxlm.init.ledger import load_ledger
    from metaxlm.init.story import explain as explain_row

    path = _find_ledger(ledger)
    plan = load_ledger(path)
    for row in _find_token(plan, token, path):
        console.print(story_text(explain_row(plan, row)), soft_wrap=True)


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(help="A ledger, or a folder with one.")],
    after: Annotated[Path, typer.Argument(help="Another.")],
) -> None:
    """Show which rows of two plans start from something else."""
    from metaxlm.cli.options import print_table
    from metaxlm.init.comparison import compare_plans
    from metaxlm.init.coverage_report import comparison_table
    from metaxlm.init.ledger import load_ledger

    plans = [load_ledger(_find_ledger(path)) for path in (before, after)]
    comparison = compare_plans(*plans)
    if comparison.num_changed or comparison.only_before or comparison.only_after:
        print_table(comparison_table(comparison))
    say(f"{comparison.num_same:,} rows the same, {comparison.num_changed:,} changed")


@app.command()
def show(ledger: Ledger = None) -> None:
    """Print the coverage of a plan by rule, script and dictionary."""
    from metaxlm.cli.options import print_table
    from metaxlm.digests import require_whole
    from metaxlm.files import read_json
    from metaxlm.init.coverage_report import coverage_tables
    from metaxlm.init.ledger import COVERAGE, coverage, load_ledger

    path = _find_ledger(ledger)
    saved = path.with_name(COVERAGE)
    if saved.is_file():
        require_whole(saved)
    found = read_json(saved) if saved.is_file() else coverage(load_ledger(path))
    for table in coverage_tables(found):
        print_table(table)


def _read_parts(text: str) -> Parts:
    """Read a preset, or the names of parts separated by commas."""
    from metaxlm.init.apply import Parts

    names = Parts.preset("both").list_names()
    chosen = split_list(text) or []
    if not set(chosen) <= set(names):
        return Parts.preset(cast("Preset", text))
    return Parts(**dict.fromkeys(chosen, True))


def _find_ledger(path: Path | None) -> Path:
    """Return the ledger that the user means."""
    from metaxlm.init.ledger import LEDGER

    folder = Path() if path is None else path
    if folder.is_file():
        return folder
    if not folder.is_dir():
        raise MetaXLMError(f"{folder}: no such ledger or folder")
    if (folder / LEDGER).is_file():
        return folder / LEDGER
    found = sorted(folder.rglob(LEDGER))
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(str(one.parent) for one in found[:4])
        raise MetaXLMError(f"{folder}: {len(found)} ledgers below it ({shown}); name one of them")
    raise MetaXLMError(f"{folder}: no {LEDGER} in it or below; `metaxlm match` or a run writes one")


def _find_token(plan: Plan, token: str, ledger: Path) -> list[int]:
    """Return the rows of a token, or of the pieces of a word that is no token."""
    from metaxlm.init.story import find_rows

    rows = find_rows(plan, token)
    if rows:
        return rows
    folder = next((f for f in (ledger.parent, ledger.parent / "model") if _has_tokenizer(f)), None)
    if folder is None:
        raise MetaXLMError(
            f"{token}: not a token of {ledger}, and there is no tokenizer beside it to cut a word"
        )
    from metaxlm.init.canonical import read_vocabulary
    from metaxlm.vocab.loading import load_tokenizer

    cut = read_vocabulary(load_tokenizer(str(folder))).cut
    assert cut is not None
    [rows] = cut([token], True)
    if not rows:
        raise MetaXLMError(f"{token}: not a token, and the tokenizer does not know its characters")
    if len(rows) > 1:
        say(f"{token}: not one token but {len(rows)}")
    return list(dict.fromkeys(rows))


def _has_tokenizer(folder: Path) -> bool:
    return (folder / "tokenizer.json").is_file()
