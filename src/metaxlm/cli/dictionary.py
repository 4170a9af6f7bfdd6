"""`metaxlm dictionary`: make a bilingual dictionary, and look at one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from metaxlm.cli import dictionary_induction
from metaxlm.cli.help import App, Group
from metaxlm.cli.options import Quiet, print_table
from metaxlm.errors import MetaXLMError
from metaxlm.progress import say, set_quiet

MAKE_EXAMPLES = """
\b
Examples:
  metaxlm dictionary kaikki.jsonl.gz wiktionary/ freedict-eng-swh.dict.dz --language sw \\
      --text sw.txt.xz --output dictionaries/en-sw.txt
  metaxlm dictionary en-fr.txt fr-ln.tsv --pivot fr --language ln \\
      --output dictionaries/en-ln.txt
"""


class _Group(Group):
    """Runs `make` where no command is named."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in (*self.commands, "--help"):
            args = ["make", *args]
        return super().parse_args(ctx, args)


app = App(
    help="Make a bilingual dictionary from any sources (`make` may be left out), or look at one.",
    cls=_Group,
    no_args_is_help=True,
)

SourceLanguage = Annotated[str, Option(help="Language to translate from.")]


@app.command(epilog=MAKE_EXAMPLES)
def make(
    sources: Annotated[
        list[Path],
        Argument(
            metavar="SOURCE",
            help="Wiktextract JSON lines, FreeDict (.dict.dz or TEI), GATITOS, MUSE, PanLex or any "
            "list of two columns, plain or compressed; or a folder of files like en-sw.txt.",
        ),
    ],
    language: Annotated[str, Option(help="Language to translate into, such as sw.")],
    output: Annotated[Path, Option(help="File to write, named like en-sw.txt.")],
    text: Annotated[
        Path | None, Option(help="Text of the language; its word counts rank translations.")
    ] = None,
    pivot: Annotated[
        str | None, Option(help="Join dictionaries through this third language.")
    ] = None,
    source_language: SourceLanguage = "en",
    quiet: Quiet = False,
) -> None:
    """Merge dictionaries into one file, best translation first."""
    set_quiet(quiet)
    from metaxlm.dictionary.coverage import source_table
    from metaxlm.dictionary.making import find_manifest, make_dictionary

    merged = make_dictionary(
        sources, language, output, source_language=source_language, text=text, pivot=pivot
    )
    print_table(source_table(asdict(one) for one in merged.sources))
    num_words = len(merged.entries) - merged.num_phrases
    say(f"{output}: {num_words:,} entries of words, {merged.num_phrases:,} of phrases")
    say(f"sources and origins: {find_manifest(output)}")


@app.command()
def show(
    dictionary: Annotated[
        Path, Argument(help="File like en-sw.txt, or a folder: show all its files.")
    ],
    vocabulary: Annotated[
        str | None, Option(help="Tokenizer: a folder or hub id; measure its coverage.")
    ] = None,
    text: Annotated[
        Path | None,
        Option(
            help="Text of the language, or a folder of texts like sw.txt; measure its coverage."
        ),
    ] = None,
    most: Annotated[int, Option(min=1, help="Number of missing words to list.")] = 20,
    source_language: SourceLanguage = "en",
) -> None:
    """Print size, coverage and sources of a dictionary, and frequent words that it lacks."""
    from metaxlm.dictionary.coverage import (
        describe_dictionary,
        describe_folder,
        describe_sources,
    )

    if dictionary.is_dir() and vocabulary is not None:
        raise MetaXLMError(f"{dictionary}: a folder; name a file to measure a vocabulary")
    if text is not None and text.is_dir() != dictionary.is_dir():
        raise MetaXLMError(f"--text {text}: give a folder for a folder, and a file for a file")
    if dictionary.is_dir():
        tables = (
            describe_sources(dictionary)
            if text is None
            else describe_folder(dictionary, source_language, text)
        )
    else:
        tables = describe_dictionary(dictionary, source_language, text, vocabulary, most)
    for table in tables:
        print_table(table)


app.command("induce", epilog=dictionary_induction.EXAMPLES)(dictionary_induction.induce_command)
