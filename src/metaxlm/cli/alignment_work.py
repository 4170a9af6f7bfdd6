"""The work of `metaxlm align`: what the user asked comes in; links, scores and a page go out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import Any

from metaxlm.cli.alignment_text import make_score_table, print_pair
from metaxlm.cli.options import keep_output_clean, open_one_model
from metaxlm.errors import MetaXLMError
from metaxlm.files import STANDARD, check_file_output, write_text
from metaxlm.finetune.readers import AlignedPair, AlignmentSet
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.pretrain.distributed import choose_device
from metaxlm.probe.align_files import Aligned, align_stream, write_aligned
from metaxlm.probe.align_methods import AlignSettings
from metaxlm.probe.alignment import measure_alignment
from metaxlm.probe.alignment_page import AlignmentPage, render_alignment_page
from metaxlm.probe.layers import LayerChoice, every_layer, parse_layers
from metaxlm.probe.link_files import GoldFormat, LinkFormat, read_gold
from metaxlm.probe.pair_files import PairFiles, SentencePair, Split
from metaxlm.probe.pair_views import collect_views
from metaxlm.progress import console, say

SHOWN_PAIRS = 10
"""Printed when nothing else is asked for."""


@dataclass(frozen=True)
class AlignRequest:
    """The command's options, as they were given."""

    model: str
    joined: str | None
    source: str | None
    target: str | None
    split: Split
    layer: str | None
    method: str
    encoding: str
    words: str
    parameters: tuple[str, ...]
    gold: str | None
    gold_format: GoldFormat
    output: str | None
    layout: LinkFormat
    show: int | None
    page: Path | None
    page_pairs: int
    num_searched: int
    device: str

    @property
    def num_shown(self) -> int:
        """How many pairs to print."""
        if self.show is not None:
            return self.show
        return 0 if self.output is not None or self.gold is not None else SHOWN_PAIRS


@dataclass(frozen=True)
class _Opened:
    """What the options stand for."""

    model: AnyEncoder
    files: PairFiles
    num_pairs: int | None
    settings: AlignSettings
    layers: tuple[LayerChoice, ...]

    @property
    def depth(self) -> int:
        """The number of the last layer."""
        return self.model.encoder.config.num_layers

    @property
    def page_layers(self) -> tuple[LayerChoice, ...]:
        """Every layer, and what else was asked for."""
        single = every_layer(self.depth)
        return (*single, *(choice for choice in self.layers if choice not in single))


def run_alignment(request: AlignRequest) -> None:
    """Align, and print, write, score and draw what was asked for."""
    with keep_output_clean(request.output):
        files = _choose_files(request)
        settings = _make_settings(request)
        num_pairs = files.count()
        model = open_one_model(request.model)
        layers = _choose_layers(request, model)
        opened = _Opened(model, files, num_pairs, settings, layers)
        if request.gold is None:
            _align(request, opened)
        else:
            _score(request, opened, request.gold)


def _choose_files(request: AlignRequest) -> PairFiles:
    sides = [side for side in (request.source, request.target) if side is not None]
    if len(sides) != (0 if request.joined is not None else 2):
        raise MetaXLMError("align: needs either --input, or --source and --target")
    paths = sides if request.joined is None else [request.joined]
    files = PairFiles(paths[0], request.target, request.split)
    for path in (request.output, request.page):
        check_file_output(path, *paths, request.gold)
    return files


def _make_settings(request: AlignRequest) -> AlignSettings:
    """Return the method with its parameters, each in the type it has."""
    kinds = {
        field.name: type(field.default)
        for field in fields(AlignSettings)
        if isinstance(field.default, int | float)
    }
    values: dict[str, Any] = {
        "method": request.method,
        "encoding": request.encoding,
        "words": request.words,
    }
    for text in request.parameters:
        name, equals, value = (part.strip() for part in text.partition("="))
        if name not in kinds or not equals:
            raise MetaXLMError(f"--set {text}: write NAME=VALUE; names: {', '.join(kinds)}")
        try:
            values[name] = kinds[name](value)
        except ValueError as error:
            kind = "whole number" if kinds[name] is int else "number"
            raise MetaXLMError(f"--set {text}: {value!r} is no {kind}") from error
    return AlignSettings(**values)


def _choose_layers(request: AlignRequest, model: AnyEncoder) -> tuple[LayerChoice, ...]:
    """Read the user's layers, or take the one two thirds up, where words are best aligned."""
    depth = model.encoder.config.num_layers
    if request.layer is None:
        choice = LayerChoice((round(depth * 2 / 3),))
        say(f"layer {choice} of {depth}, two thirds of the depth; --layer chooses another")
        return (choice,)
    choices = parse_layers(request.layer, depth)
    if len(choices) > 1 and (request.gold is None or request.output or request.num_shown):
        raise MetaXLMError(
            f"--layer {request.layer}: several layers are for a table with --gold alone; to print "
            "or write links choose one (a page has all layers anyway)"
        )
    return choices


def _align(request: AlignRequest, opened: _Opened) -> None:
    """Stream the pairs through; the first ones stay for the page."""
    pairs = iter(opened.files)
    head: list[SentencePair] = []
    if request.page is not None:
        head = list(islice(pairs, max(request.page_pairs, request.num_searched)))
    stream: Iterator[SentencePair] = chain(head, pairs)
    if request.output is None:
        num_drawn = request.page_pairs if request.page is not None else 0
        stream = islice(stream, max(request.num_shown, num_drawn))
    aligned = align_stream(
        opened.model,
        stream,
        choose_device(request.device),
        layer=opened.layers[0],
        settings=opened.settings,
    )
    count = _deliver(request, aligned)
    if request.page is None and request.output is None and count < (opened.num_pairs or 0):
        say(f"{opened.files.name}: {count:,} of {opened.num_pairs:,} pairs; --show sets how many")
    if request.page is not None:
        _draw(request, opened, head, None, ())


def _deliver(request: AlignRequest, aligned: Iterable[Aligned]) -> int:
    """Write links and print the first pairs; return how many pairs there were."""
    if request.output is not None:
        aligned = write_aligned(aligned, request.output, request.layout)
    count = 0
    for count, (pair, links) in enumerate(aligned, start=1):
        if count <= request.num_shown:
            print_pair(console, count, pair.source, pair.target, links)
    if request.output not in (None, STANDARD):
        say(f"{count:,} pairs: {request.output}")
    return count


def _score(request: AlignRequest, opened: _Opened, path: str) -> None:
    """Align a whole gold set, and tell how good the links are."""
    pairs = list(opened.files)
    gold = read_gold(path, request.gold_format, pairs, opened.files.name)
    layers = opened.layers if request.page is None else opened.page_layers
    outcome = measure_alignment(
        opened.model,
        AlignmentSet("gold", "gold", gold),
        choose_device(request.device),
        settings=opened.settings,
        layers=layers,
    )
    found = {layer.choice: layer for layer in outcome.layers}
    asked = [found[choice] for choice in opened.layers]
    _deliver(request, zip(pairs, asked[0].links, strict=True))
    say(f"{opened.files.name}: {len(pairs):,} pairs, {_describe_method(opened.settings)}")
    console.print(make_score_table(asked))
    if request.page is not None:
        notes = tuple(f"AER {100 * found[choice].scores.aer:.1f}" for choice in layers)
        _draw(request, opened, pairs, gold, notes)


def _draw(
    request: AlignRequest,
    opened: _Opened,
    pairs: Sequence[SentencePair],
    gold: Sequence[AlignedPair] | None,
    notes: tuple[str, ...],
) -> None:
    """Write the page of the first pairs."""
    assert request.page is not None
    num_searched = min(request.num_searched, len(pairs))
    views = collect_views(
        opened.model,
        pairs,
        choose_device(request.device),
        settings=opened.settings,
        layers=opened.page_layers,
        count=request.page_pairs,
        num_searched=num_searched,
        gold=gold,
    )
    page = AlignmentPage(
        name=" and ".join(Path(name).name for name in opened.files.names),
        facts=(
            ("Model", request.model),
            ("Method", _describe_method(opened.settings)),
            ("Words", f"{opened.settings.words}, split at {request.split}"),
        ),
        views=views,
        shown=opened.page_layers.index(opened.layers[0]),
        num_layers=opened.depth,
        num_pairs=opened.num_pairs,
        num_searched=num_searched,
        layer_notes=notes,
    )
    write_text(request.page, render_alignment_page(page))
    say(f"page of {len(views):,} pairs: {request.page}")


def _describe_method(settings: AlignSettings) -> str:
    """Name a method, and each parameter that is not as usual."""
    usual = AlignSettings(settings.method, settings.encoding, settings.words)
    changed = [
        f"{field.name} {getattr(settings, field.name):g}"
        for field in fields(settings)
        if getattr(settings, field.name) != getattr(usual, field.name)
    ]
    return ", ".join([settings.method, *changed, f"{settings.encoding} encoding"])
