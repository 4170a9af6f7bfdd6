"""Options and output that several commands share."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from metaxlm.errors import MetaXLMError
from metaxlm.progress import console, say

if TYPE_CHECKING:
    from metaxlm.analysis.scores import Results
    from metaxlm.analysis.tables import Table

Quiet = Annotated[bool, Option("--quiet", "-q", help="Print errors only.")]
Overrides = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Override a recipe key (repeatable)."),
]
Output = Annotated[Path, Option("--output", help="Parent folder of the run folder NAME.")]
Device = Annotated[str, Option("--device", help="Use auto, cpu, mps, cuda or cuda:N.")]
LanguageList = Annotated[
    str | None,
    Option("--languages", help="Use these languages, separated by commas (default: all)."),
]
RecipeFile = Annotated[Path, Argument(help="YAML file of the recipe.")]
RunFolder = Annotated[Path, Argument(metavar="RUN", help="Run folder, such as runs/demo.")]
ModelOption = Annotated[
    str, Option("--model", help="A variant or checkpoint of a run, a folder or a hub id.")
]


def split_list(text: str | None) -> list[str] | None:
    """Split values separated by commas; return None for None."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def parse_languages(text: str | None, *places: Path | None) -> list[str] | None:
    """Split language codes; reject one that neither the table nor a file name in a place has."""
    from metaxlm.finetune.readers.parallel import OTHER_LANGUAGES
    from metaxlm.languages import LANGUAGES, suggest_code

    codes = split_list(text)
    if unknown := [one for one in codes or () if one not in {*LANGUAGES, *OTHER_LANGUAGES}]:
        files = (file for place in places if place for file in (place, *place.rglob("*")))
        named = {part for file in files for part in re.split(r"[-._]", file.name)}
        for code in (code for code in unknown if code not in named):
            meant = suggest_code(code)
            advice = f"did you mean {meant}?" if meant else "docs/languages.md lists the codes"
            raise MetaXLMError(f"--languages {code}: no such language; {advice}")
    return codes


@contextmanager
def keep_output_clean(target: str | None) -> Iterator[None]:
    """Print messages to standard error while results are written to standard output (`-`).

    Results are UTF-8 in every locale, as in a file.
    """
    if target != "-":
        yield
        return
    stream = sys.stdout
    if stream is None:
        raise MetaXLMError("standard output: closed; name a file with --output")
    before, encoding = console.stderr, stream.encoding
    console.stderr = True
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="strict")
    try:
        yield
    finally:
        console.stderr = before
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def print_table(table: Table) -> None:
    """Print a table; in a file or a pipe it is as wide as its numbers need."""
    from metaxlm.analysis.tables import render_terminal

    rendered = render_terminal(table, wraps=console.is_terminal)
    width = console.width
    if not console.is_terminal:
        unlimited = console.options.update(width=10_000)
        needed = console.measure(rendered, options=unlimited).minimum + len(rendered.columns)
        console.width = max(width, needed)
    try:
        console.print(rendered)
    finally:
        console.width = width


def show_summary(run_dir: Path, results: Results | None = None) -> None:
    """Print the headline numbers of a run and the path of its report."""
    from metaxlm.analysis.results import load_results
    from metaxlm.analysis.score_tables import make_summary_table
    from metaxlm.analysis.scores import Results
    from metaxlm.analysis.tables import drop_deviations

    results = results or Results(load_results(run_dir))
    print_table(drop_deviations(make_summary_table(results)))
    say(f"report: {run_dir / 'report' / 'index.html'}")
