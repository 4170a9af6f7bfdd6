"""Files aligned in bulk: sentence pairs of any number come in, a line of links for each goes out.

The word alignment of the paper's Section 4.4 for files of the user. Pairs are taken some thousand
at a time, so that memory does not grow with the file, and links are written in the order of the
input, whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import torch

from metaxlm.files import open_output
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.align_methods import AlignSettings
from metaxlm.probe.alignment import align_words
from metaxlm.probe.layers import LayerChoice
from metaxlm.probe.link_files import LinkFormat, format_links
from metaxlm.probe.link_spans import Links
from metaxlm.probe.pair_files import PairFiles, SentencePair

CHUNK = 16_384
"""Pairs that are in memory at a time."""

_USUAL = AlignSettings()

Aligned = tuple[SentencePair, Links]


def align_file(
    model: AnyEncoder,
    files: PairFiles,
    target: str,
    device: torch.device | None = None,
    *,
    layer: LayerChoice,
    settings: AlignSettings = _USUAL,
    layout: LinkFormat = "pharaoh",
) -> int:
    """Align the pairs of a file into a file of links; return how many. `-` is standard output.

    Every line of the input is checked before the first is aligned, unless it is standard input.
    """
    files.count()
    aligned = align_stream(model, files, device, layer=layer, settings=settings)
    return sum(1 for _ in write_aligned(aligned, target, layout))


def align_stream(
    model: AnyEncoder,
    pairs: Iterable[SentencePair],
    device: torch.device | None = None,
    *,
    layer: LayerChoice,
    settings: AlignSettings = _USUAL,
    batch_tokens: int = 8_192,
) -> Iterator[Aligned]:
    """Yield each pair with its links, in order, from a stream that may never fit in memory."""
    stream = iter(pairs)
    first = 1
    while chunk := list(islice(stream, CHUNK)):
        (links,) = align_words(
            model,
            [(pair.source, pair.target) for pair in chunk],
            device,
            settings=settings,
            layers=[layer],
            batch_tokens=batch_tokens,
            title="align" if first == 1 else f"align from pair {first:,}",
            first_number=first,
        )
        yield from zip(chunk, links, strict=True)
        first += len(chunk)


def write_aligned(
    aligned: Iterable[Aligned], target: str, layout: LinkFormat = "pharaoh"
) -> Iterator[Aligned]:
    """Write the links of each pair as it passes; the file is there when the last one has."""
    with open_output(target) as file:
        for pair, links in aligned:
            file.write(format_links(links, layout) + "\n")
            yield pair, links
