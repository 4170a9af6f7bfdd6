"""`metaxlm align`: link the words of translations, on the terminal, in a file, and on a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Option

from metaxlm.cli.embed import LayerOption
from metaxlm.cli.options import Device, ModelOption, Quiet, keep_output_clean
from metaxlm.errors import MetaXLMError
from metaxlm.files import STANDARD, check_file_output, write_text
from metaxlm.progress import console, say, set_quiet

if TYPE_CHECKING:
    from metaxlm.probe.aligners import AlignSettings
    from metaxlm.probe.alignment import LayerAlignment
    from metaxlm.probe.alignment_io import Aligned, SentencePair
    from metaxlm.probe.pair_states import Links

EXAMPLES = """
Pairs are lines `source ||| target`, lines with a tab, or the lines of two parallel
files; words are separated by spaces. Links are one line per pair, `0-0 1-2`
(Pharaoh) or `1-1 2-3` (Talp).

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
LinkFormat = Literal["pharaoh", "talp"]
SHOWN_PAIRS = 10  # number of printed pairs if there is no other output

_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_LINES = ("", " underline", " reverse")  # after all colors, all colors with a line, then reversed


def align_command(
    model: ModelOption,
    joined: Annotated[
        str | None, Option("--input", help="Lines `source ||| target` or TSV; - is stdin.")
    ] = None,
    source: Annotated[str | None, Option(help="Source sentences, one per line.")] = None,
    target: Annotated[str | None, Option(help="Their translations, one per line.")] = None,
    layer: LayerOption = None,
    method: Annotated[str, Option(help="The aligner; see below.")] = "transport",
    encoding: Annotated[
        str, Option(help="joint: both sentences in one sequence; or separate.")
    ] = "joint",
    words: Annotated[
        str, Option(help="Link words by any piece, the first piece, or the mean of the pieces.")
    ] = "any",
    parameters: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="A method's parameter; may be repeated."),
    ] = None,
    split: Annotated[
        Literal["spaces", "characters"],
        Option(help="characters: each Chinese, Japanese or Thai character is a word."),
    ] = "spaces",
    gold: Annotated[str | None, Option(help="Gold links to score against.")] = None,
    gold_format: Annotated[
        Literal["pharaoh", "talp", "naacl"],
        Option(help="naacl: one link per line, `sentence source target S|P`."),
    ] = "pharaoh",
    output: Annotated[str | None, Option(help="File for the links; - is stdout.")] = None,
    layout: Annotated[LinkFormat, Option("--format", help="Output format.")] = "pharaoh",
    show: Annotated[
        int | None, Option(min=0, help="Pairs to print (default: 10 without other output).")
    ] = None,
    page: Annotated[Path | None, Option(help="HTML page with links and neighbors.")] = None,
    page_pairs: Annotated[int, Option(min=1, help="Show the first N pairs on the page.")] = 50,
    searched: Annotated[
        int, Option("--neighbors", min=0, help="Search neighbors among the first N pairs.")
    ] = 500,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Link the words of sentences and translations; print, write, score and draw the links."""
    set_quiet(quiet)
    from metaxlm.finetune.readers.parallel import AlignmentSet
    from metaxlm.pretrain.distributed import choose_device
    from metaxlm.probe.alignment import measure_alignment
    from metaxlm.probe.alignment_io import PairFiles, align_stream, read_gold
    from metaxlm.probe.alignment_page import AlignmentPage, collect_views, render_alignment_page
    from metaxlm.probe.pool import default_layer, every_layer, parse_layers
    from metaxlm.run.models import open_one_model

    default = SHOWN_PAIRS if output is None and gold is None else 0
    num_shown = default if show is None else show
    with keep_output_clean(output):
        sides = [side for side in (source, target) if side is not None]
        if len(sides) != (0 if joined is not None else 2):
            raise MetaXLMError("align: needs either --input, or --source and --target")
        paths = sides if joined is None else [joined]
        files = PairFiles(paths[0], target, split)
        for path in (output, page):
            check_file_output(path, *paths, gold)
        settings = _make_settings(method, encoding, words, parameters or [])
        num_pairs = files.count()
        encoder = open_one_model(model)
        chosen = choose_device(device)
        depth = encoder.encoder.config.num_layers
        layers = default_layer(depth) if layer is None else parse_layers(layer, depth)
        if len(layers) > 1 and (gold is None or output or num_shown):
            why = "several layers are for a table with --gold alone; to print or write links"
            raise MetaXLMError(f"--layer {layer}: {why} choose one (a page has all layers anyway)")
        single = every_layer(depth)
        page_layers = (*single, *(choice for choice in layers if choice not in single))
        notes: tuple[str, ...] = ()
        gold_pairs = None
        if gold is None:
            stream = iter(files)
            # The page needs the first pairs again.
            pairs = [] if page is None else list(islice(stream, max(page_pairs, searched)))
            wanted: Iterator[SentencePair] = chain(pairs, stream)
            if output is None:
                wanted = islice(wanted, max(num_shown, page_pairs if page is not None else 0))
            aligned = align_stream(encoder, wanted, chosen, layer=layers[0], settings=settings)
            count = _deliver(aligned, output, layout, num_shown)
            if page is None and output is None and count < (num_pairs or 0):
                say(f"{files.name}: {count:,} of {num_pairs:,} pairs; --show sets the number")
        else:
            pairs = list(files)
            gold_pairs = read_gold(gold, gold_format, pairs, files.name)
            measured = layers if page is None else page_layers
            alignments = AlignmentSet("gold", "gold", gold_pairs)
            outcome = measure_alignment(
                encoder, alignments, chosen, settings=settings, layers=measured
            )
            found = {scored.choice: scored for scored in outcome.layers}
            tabled = [found[choice] for choice in layers]
            _deliver(zip(pairs, tabled[0].links, strict=True), output, layout, num_shown)
            say(f"{files.name}: {len(pairs):,} pairs, {_describe_method(settings)}")
            console.print(_make_score_table(tabled))
            notes = tuple(f"AER {100 * scored.scores.aer:.1f}" for scored in outcome.layers)
        if page is None:
            return
        searched = min(searched, len(pairs))
        views = collect_views(
            encoder, pairs, chosen, settings=settings, layers=page_layers, count=page_pairs,
            num_searched=searched, gold=gold_pairs,
        )  # fmt: skip
        cut = f"{words}, split at {split}"
        facts = (("Model", model), ("Method", _describe_method(settings)), ("Words", cut))
        content = AlignmentPage(
            name=" and ".join(Path(name).name for name in files.names), facts=facts, views=views,
            shown=page_layers.index(layers[0]), num_layers=depth, num_pairs=num_pairs,
            num_searched=searched, layer_notes=notes,
        )  # fmt: skip
        write_text(page, render_alignment_page(content))
        say(f"page of {len(views):,} pairs: {page}")


def _make_settings(
    method: str, encoding: str, words: str, parameters: Sequence[str]
) -> AlignSettings:
    from metaxlm.probe.aligners import AlignSettings

    defaults = {field.name: field.default for field in fields(AlignSettings)}
    kinds = {key: type(value) for key, value in defaults.items() if isinstance(value, int | float)}
    values: dict[str, Any] = {"method": method, "encoding": encoding, "words": words}
    for text in parameters:
        name, equals, value = (part.strip() for part in text.partition("="))
        if name not in kinds or not equals:
            raise MetaXLMError(f"--set {text}: write NAME=VALUE; names: {', '.join(kinds)}")
        try:
            values[name] = kinds[name](value)
        except ValueError as error:
            kind = "whole number" if kinds[name] is int else "number"
            raise MetaXLMError(f"--set {text}: {value!r} is not a {kind}") from error
    return AlignSettings(**values)


def _describe_method(settings: AlignSettings) -> str:
    changed = [
        f"{field.name} {getattr(settings, field.name):g}"
        for field in fields(settings)
        if isinstance(field.default, int | float) and getattr(settings, field.name) != field.default
    ]
    return ", ".join([settings.method, *changed, f"{settings.encoding} encoding"])


def _deliver(
    aligned: Iterable[Aligned], output: str | None, layout: LinkFormat, num_shown: int
) -> int:
    from metaxlm.probe.alignment_io import write_aligned

    if output is not None:
        aligned = write_aligned(aligned, output, layout)
    count = 0
    for count, (pair, links) in enumerate(aligned, start=1):
        if count <= num_shown:
            print_pair(console, count, pair.source, pair.target, links)
    if output not in (None, STANDARD):
        say(f"{count:,} pairs: {output}")
    return count


def print_pair(
    console: Console, number: int, source: Sequence[str], target: Sequence[str], links: Links
) -> None:
    """Print one pair: two lines with linked words in one color, or a list without colors."""
    lines = [Text(list_pair(number, source, target, links))]
    # A pipe and a dumb terminal have no color system.
    if console.color_system is not None and not console.no_color:
        lines = color_pair(number, source, target, links, console.width)
    for line in lines:
        console.print(line, soft_wrap=True)


def list_pair(number: int, source: Sequence[str], target: Sequence[str], links: Links) -> str:
    """Return the linked words of a pair in one line, in the order of the source."""
    from metaxlm.probe.alignment_page import find_marks

    pairs = [
        "–".join("{0}{2}{1}".format(*find_marks(word), word) for word in (source[i], target[j]))
        for i, j in sorted(links)
    ]
    return f"{number}: {' '.join(pairs) or 'no links'}"


def color_pair(
    number: int, source: Sequence[str], target: Sequence[str], links: Links, width: int
) -> list[Text]:
    """Return the lines of a pair, source above target, linked words in one color."""
    from metaxlm.probe.alignment_page import find_marks, group_words

    label = f"{number} "
    lines: list[Text] = []
    groups = group_words(links, len(source), len(target))
    for words, numbers in zip((source, target), groups, strict=True):
        before, after = find_marks(" ".join(words))
        for places in _break_lines(words, width - len(label)):
            # A terminal orders each line by itself, so each needs its own marks.
            line = Text(label if not lines else " " * len(label))
            line.append(before)
            for place in places:
                line.append(words[place], style=choose_style(numbers[place]))
                line.append(" " if place != places[-1] else after)
            lines.append(line)
    return lines


def choose_style(group: int | None) -> str:
    """Return the style of the words of a group; unlinked words are dim."""
    if group is None:
        return "dim"
    again, place = divmod(group, len(_COLORS))
    return _COLORS[place] + _LINES[again % len(_LINES)]


def _break_lines(words: Sequence[str], width: int) -> list[list[int]]:
    """Return the indices of the words on each line; a Chinese character takes two cells."""
    lines: list[list[int]] = [[]]
    used = 0
    for place, word in enumerate(words):
        size = cell_len(word) + (1 if lines[-1] else 0)
        if lines[-1] and used + size > width:
            lines.append([])
            used, size = 0, cell_len(word)
        lines[-1].append(place)
        used += size
    return lines


def _make_score_table(layers: Sequence[LayerAlignment]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("layer", "AER", "precision", "recall", "F1"):
        table.add_column(heading, justify="right")
    best = min(scored.scores.aer for scored in layers)
    for scored in layers:
        names = ("aer", "precision", "recall", "f1")
        cells = [f"{100 * getattr(scored.scores, name):.1f}" for name in names]
        is_best = len(layers) > 1 and scored.scores.aer == best
        table.add_row(str(scored.choice), *cells, style="bold" if is_best else None)
    return table
