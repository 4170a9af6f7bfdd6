"""Encoded pairs to linked words: sequences come in, the links of every pair go out.

The middle of the paper's word alignment (Section 4.4) in bulk: pairs of similar length are encoded
and linked together, one span after the other. The links of a span leave the device in one transfer,
and the host reads them while the device computes the next span. Shapes: B pairs, S source units, T
target units, K links.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metaxlm.finetune.batches import plan_batches
from metaxlm.finetune.encoding import IntArray
from metaxlm.finetune.readers import Link
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.align_methods import AlignSettings, link_units
from metaxlm.probe.layers import LayerChoice
from metaxlm.probe.linking import Decision, Masks
from metaxlm.probe.pair_encoding import (
    PairEncoding,
    Units,
    compute_states,
    find_usable,
    index_units,
    make_units,
)

Links = frozenset[Link]
"""Linked words (source, target) of one sentence pair, counted from 0."""

SPAN_BYTES = 2**28
"""Hidden states that separate encodings keep until both sides of their pairs are there."""

LINKED_CELLS = {"cpu": 2**17, "cuda": 2**22}
"""Cells of padded matrices that are linked at a time: what fits a cache, and what fills a GPU."""


@dataclass(frozen=True)
class LinkBatch:
    """Pairs whose matrices are computed together."""

    pairs: IntArray
    decisions: list[Decision]
    """One for each choice of layers."""


@dataclass(frozen=True)
class _Transfer:
    """The links of a span on their way to the host."""

    batches: list[LinkBatch]
    linked_N: Tensor
    arrived: torch.cuda.Event | None


def link_spans(
    model: AnyEncoder,
    encoding: PairEncoding,
    choices: Sequence[LayerChoice],
    device: torch.device,
    settings: AlignSettings,
    batch_tokens: int,
) -> Iterator[list[LinkBatch]]:
    """Encode and link all pairs that have pieces on both sides, longest first."""
    source, target = (make_units(side, settings.words) for side in encoding.sides)
    usable = find_usable(encoding)
    span_tokens = batch_tokens
    if settings.encoding == "separate":
        # Each side has lengths of its own: the more of them, the less padding.
        row_bytes = 4 * model.encoder.config.hidden_size * len(choices)
        span_tokens = max(2 * batch_tokens, SPAN_BYTES // row_bytes)
    lengths_P = encoding.sides[0].lengths_P + encoding.sides[1].lengths_P + 3
    for places in plan_batches(lengths_P[usable].tolist(), span_tokens):
        pairs = usable[places]
        sequences = np.unique(np.concatenate([numbers[pairs] for numbers in encoding.sequences]))
        span = compute_states(model, encoding, sequences, choices, device, batch_tokens)
        batches = []
        for batch in _plan_links(source, target, pairs, LINKED_CELLS[device.type]):
            indices = [
                index_units(
                    units,
                    batch,
                    span.bases_Q[numbers[batch]] + firsts[batch],
                    settings.words,
                    device,
                )
                for units, numbers, firsts in zip(
                    (source, target), encoding.sequences, encoding.places, strict=True
                )
            ]
            masks = Masks(indices[0].mask_BS, indices[1].mask_BS)
            decisions = [
                link_units(indices[0].pick(states_ND), indices[1].pick(states_ND), masks, settings)
                for states_ND in span.states
            ]
            batches.append(LinkBatch(batch, decisions))
        yield batches


def read_spans(
    spans: Iterable[list[LinkBatch]], encoding: PairEncoding, settings: AlignSettings
) -> Iterator[tuple[list[int], list[list[Links]]]]:
    """Turn linked units into linked words; return each span's pairs, and `[choice][pair]`.

    A span is read when the next one is on its way.
    """
    source, target = (make_units(side, settings.words) for side in encoding.sides)
    before: _Transfer | None = None
    for batches in spans:
        transfer = _start_transfer(batches)
        if before is not None:
            yield _read_transfer(before, source, target)
        before = transfer
    if before is not None:
        yield _read_transfer(before, source, target)


def _plan_links(
    source: Units, target: Units, pairs: IntArray, most_cells: int
) -> Iterator[IntArray]:
    """Deal the pairs of a span into batches of similar lengths on both sides."""
    pairs = pairs[np.lexsort((target.lengths_P[pairs], source.lengths_P[pairs]))]
    start = 0
    while start < len(pairs):
        # The last pair of a batch has the most source units; few have more than twice its target.
        heights = source.lengths_P[pairs[start:]]
        widths = np.maximum.accumulate(target.lengths_P[pairs[start:]])
        cells = heights * widths * np.arange(1, len(heights) + 1)
        size = max(1, int(np.searchsorted(cells, most_cells, side="right")))
        yield pairs[start : start + size]
        start += size


def _start_transfer(batches: list[LinkBatch]) -> _Transfer:
    linked_N = torch.cat(
        [decision.linked_BST.flatten() for batch in batches for decision in batch.decisions]
    )
    if linked_N.device.type != "cuda":
        return _Transfer(batches, linked_N, None)
    on_host_N = linked_N.to("cpu", non_blocking=True)
    return _Transfer(batches, on_host_N, torch.cuda.current_stream(linked_N.device).record_event())


def _read_transfer(
    transfer: _Transfer, source: Units, target: Units
) -> tuple[list[int], list[list[Links]]]:
    if transfer.arrived is not None:
        transfer.arrived.synchronize()
    numbers: list[int] = []
    links: list[list[Links]] = [[] for _ in transfer.batches[0].decisions]
    start = 0
    for batch in transfer.batches:
        numbers += batch.pairs.tolist()
        shape = batch.decisions[0].linked_BST.shape
        for found, _ in zip(links, batch.decisions, strict=True):
            linked_BST = transfer.linked_N[start : start + shape.numel()].view(shape)
            start += shape.numel()
            found += _gather_words(linked_BST, batch.pairs, source, target)
    return numbers, links


def _gather_words(linked_BST: Tensor, pairs: IntArray, source: Units, target: Units) -> list[Links]:
    """Link the words of linked units, pair by pair."""
    rows_K, source_K, target_K = linked_BST.numpy().nonzero()
    source_K = source.words_N[source.starts_P[pairs][rows_K] + source_K]
    target_K = target.words_N[target.starts_P[pairs][rows_K] + target_K]
    words = list(zip(source_K.tolist(), target_K.tolist(), strict=True))
    ends = np.searchsorted(rows_K, np.arange(len(pairs)), side="right").tolist()
    return [frozenset(words[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
