"""`metaxlm align`: which word translates which, on the terminal, in a file, and on a page."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from metaxlm.cli.options import Device, ModelOption, Quiet
from metaxlm.progress import set_quiet

EXAMPLES = """
Pairs are read as `source ||| target` or with a tab, a pair a line, or from two
files line by line; words stand between spaces. Links are written as `0-0 1-2`
(Pharaoh) or `1-1 2-3` (Talp), a line a pair.

\b
Methods
  transport  the paper's optimal transport (the default)
  sinkhorn   entropic transport: temperature, tolerance, max_iterations, share
  argmax, itermax, match
             SimAlign's three: distortion; itermax also alpha and passes
  softmax    awesome-align's: threshold
\b
Examples:
  metaxlm align --model runs/demo/variants/metaxlm --input pairs.txt
  metaxlm align --model M --source a.de --target a.en --output links.txt
  metaxlm align --model M --input pairs.tsv --gold gold.talp --gold-format talp --layer all
  metaxlm align --model M --input pairs.txt --page page.html
  metaxlm align --model M --input pairs.txt --method sinkhorn --set temperature=0.05
"""


class LinkFormatName(StrEnum):
    """Formats of links that are written."""

    PHARAOH = "pharaoh"
    TALP = "talp"


class GoldFormatName(StrEnum):
    """Formats of gold links."""

    PHARAOH = "pharaoh"
    TALP = "talp"
    NAACL = "naacl"


class SplitName(StrEnum):
    """How sentences are cut into words."""

    SPACES = "spaces"
    CHARACTERS = "characters"


def align_command(
    model: ModelOption,
    joined: Annotated[
        str | None,
        typer.Option("--input", help="Sentence pairs, `source ||| target` or TSV; - is stdin."),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="Or the source sentences alone, one a line,")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="and their translations, one a line.")
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            "--layer", help="As 8, -1, 6..8 (their mean), all; without it two thirds of the depth."
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method", help="transport, sinkhorn, argmax, itermax, match or softmax; see below."
        ),
    ] = "transport",
    encoding: Annotated[
        str, typer.Option("--encoding", help="Both sentences in one sequence: joint or separate.")
    ] = "joint",
    words: Annotated[
        str,
        typer.Option(
            "--words",
            help="any: linked pieces link their words; first: only first pieces count; mean: a "
            "word is the mean of its pieces.",
        ),
    ] = "any",
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A method's parameter; may be repeated."),
    ] = None,
    split: Annotated[
        SplitName,
        typer.Option(
            "--split", help="characters: each Chinese, Japanese or Thai character is a word."
        ),
    ] = SplitName.SPACES,
    gold: Annotated[
        str | None, typer.Option("--gold", help="Right links, to score by; see --gold-format.")
    ] = None,
    gold_format: Annotated[
        GoldFormatName,
        typer.Option("--gold-format", help="naacl is a link a line: `sentence source target S|P`."),
    ] = GoldFormatName.PHARAOH,
    output: Annotated[
        str | None, typer.Option("--output", help="File for the links; - is stdout.")
    ] = None,
    layout: Annotated[
        LinkFormatName, typer.Option("--format", help="Of the output.")
    ] = LinkFormatName.PHARAOH,
    show: Annotated[
        int | None,
        typer.Option("--show", min=0, help="Print so many pairs; 10 if nothing else is asked for."),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="HTML file with matrices, a slider over layers, neighbors."),
    ] = None,
    page_pairs: Annotated[
        int, typer.Option("--page-pairs", min=1, help="The first pairs that the page shows.")
    ] = 50,
    searched: Annotated[
        int,
        typer.Option(
            "--neighbors", min=0, help="The first pairs among which the page's neighbors are found."
        ),
    ] = 500,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Link the words of sentences and translations; print, write, score and draw the links."""
    set_quiet(quiet)
    from metaxlm.cli.alignment_work import AlignRequest, run_alignment

    request = AlignRequest(
        model=model,
        joined=joined,
        source=source,
        target=target,
        split=split.value,
        layer=layer,
        method=method,
        encoding=encoding,
        words=words,
        parameters=tuple(parameters or ()),
        gold=gold,
        gold_format=gold_format.value,
        output=output,
        layout=layout.value,
        show=show,
        page=page,
        page_pairs=page_pairs,
        num_searched=searched,
        device=device,
    )
    run_alignment(request)
