"""Encode sentence pairs in bulk and link their words, for the word alignment of Section 4.4.

Pairs are encoded jointly (`<s> source </s> target </s>`, XLM-Align's way) or each side separately.
All sentences are concatenated in flat arrays, so that the host never loops over pieces. Pairs of
similar length form a span; the links of a span leave the device in one transfer, and the host reads
them while the device computes the next span. Shapes: N entries of all sentences, P sentence pairs,
Q sequences, B batch, L length, S source and T target units, K pieces or links, D hidden.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from metaxlm.finetune.batches import plan_batches
from metaxlm.finetune.encoding import IntArray, Pieces, find_starts, tokenize_flat
from metaxlm.finetune.readers import Link
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.pretrain.distributed import exact_device
from metaxlm.probe.aligners import AlignSettings, Decision, Masks, WordRule, link_units
from metaxlm.probe.pool import LayerChoice, find_deepest, run_ahead

CPU_BATCH_TOKENS = 2_048  # larger activations leave the caches of a CPU: a quarter slower
SPAN_BYTES = 2**28  # hidden states of a span of separate encodings
LINKED_CELLS = {"cpu": 2**17, "cuda": 2**22}  # cells linked at a time: fit a cache, fill a GPU

Words = Sequence[str]  # A sentence in words
Links = frozenset[Link]  # linked words (source, target) of one sentence pair, counted from 0


@dataclass(frozen=True)
class Units:
    """Compared units, pieces or words: first piece in the sentence, number of pieces, word."""

    firsts_N: IntArray
    sizes_N: IntArray
    words_N: IntArray
    lengths_P: IntArray
    starts_P: IntArray


@dataclass(frozen=True)
class PairEncoding:
    """Pairs as sequences for an encoder, and the position of each side in them."""

    ids_N: IntArray
    types_N: IntArray | None  # 1 on the target side of a joint pair, for BERT
    lengths_Q: IntArray
    starts_Q: IntArray
    sides: tuple[Pieces, Pieces]
    units: tuple[Units, Units]  # of both sides
    sequences: tuple[IntArray, IntArray]  # of the source and the target of each pair
    places: tuple[IntArray, IntArray]  # the position of the first piece in these
    num_cut_P: IntArray  # truncated pieces of each pair
    num_bare_P: IntArray  # words of each pair without a piece

    @property
    def usable(self) -> IntArray:
        """The pairs that have pieces on both sides."""
        source, target = self.sides
        return np.flatnonzero((source.lengths_P > 0) & (target.lengths_P > 0))


LinkBatch = tuple[IntArray, list[Decision]]
"""Pairs that are linked together, and a decision for each choice of layers."""


def _spread_ranges(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return the indices of all entries of ranges: start, start + 1, ..., range after range."""
    return np.arange(lengths.sum()) + np.repeat(starts - find_starts(lengths), lengths)


def _cut_pieces(pieces: Pieces, sizes_P: IntArray) -> Pieces:
    lengths_P = np.minimum(pieces.lengths_P, sizes_P)
    kept = _spread_ranges(pieces.starts_P, lengths_P)
    return Pieces(pieces.ids_N[kept], pieces.words_N[kept], lengths_P, find_starts(lengths_P))


def make_units(pieces: Pieces, rule: WordRule) -> Units:
    """Return each piece, or the pieces of each word together."""
    sentences_N = np.repeat(np.arange(len(pieces.lengths_P)), pieces.lengths_P)
    begins_N = np.ones(len(sentences_N), dtype=np.bool_)
    if rule != "any":
        same_word = pieces.words_N[1:] == pieces.words_N[:-1]
        begins_N[1:] = ~same_word | (sentences_N[1:] != sentences_N[:-1])
    first_N = np.flatnonzero(begins_N)
    sentences_N = sentences_N[first_N]
    lengths_P = np.bincount(sentences_N, minlength=len(pieces.lengths_P))
    firsts_N = first_N - pieces.starts_P[sentences_N]
    sizes_N = np.diff(first_N, append=len(begins_N))
    return Units(firsts_N, sizes_N, pieces.words_N[first_N], lengths_P, find_starts(lengths_P))


def encode_pairs(
    model: AnyEncoder, pairs: Sequence[tuple[Words, Words]], settings: AlignSettings
) -> PairEncoding:
    """Tokenize pairs, truncate long ones (the longer side first), and add special tokens."""
    config = model.encoder.config
    is_joint = settings.encoding == "joint"
    whole = [tokenize_flat(model.tokenizer, [pair[side] for pair in pairs]) for side in (0, 1)]
    lengths = [side.lengths_P for side in whole]
    if is_joint:
        rooms = _share_room(lengths[0], lengths[1], config.max_positions - 3)
    else:
        rooms = (np.full(len(pairs), config.max_positions - 2),) * 2
    source, target = (_cut_pieces(side, room) for side, room in zip(whole, rooms, strict=True))
    pairs_P = np.arange(len(pairs))
    ones_P = np.ones_like(pairs_P)
    if is_joint:
        lengths_Q = source.lengths_P + target.lengths_P + 3
        sequences, places = (pairs_P, pairs_P), (ones_P, source.lengths_P + 2)
    else:
        lengths_Q = np.concatenate([source.lengths_P, target.lengths_P]) + 2
        sequences, places = (pairs_P, pairs_P + len(pairs_P)), (ones_P, ones_P)
    starts_Q = find_starts(lengths_Q)
    ids_N = np.full(lengths_Q.sum(), model.tokenizer.sep_token_id, dtype=np.int64)
    ids_N[starts_Q] = model.tokenizer.cls_token_id
    for side, numbers, place_P in zip((source, target), sequences, places, strict=True):
        ids_N[_spread_ranges(starts_Q[numbers] + place_P, side.lengths_P)] = side.ids_N
    types_N = None
    if is_joint and config.num_token_types > 1:
        types_N = np.zeros_like(ids_N)
        types_N[_spread_ranges(starts_Q + places[1], target.lengths_P + 1)] = 1
    num_words_P = np.array([len(a) + len(b) for a, b in pairs], dtype=np.int64)
    return PairEncoding(
        ids_N,
        types_N,
        lengths_Q,
        starts_Q,
        (source, target),
        (make_units(source, settings.words), make_units(target, settings.words)),
        sequences,
        places,
        num_cut_P=sum(lengths) - source.lengths_P - target.lengths_P,
        num_bare_P=num_words_P - sum(make_units(side, "first").lengths_P for side in whole),
    )


def _share_room(source_P: IntArray, target_P: IntArray, room: int) -> tuple[IntArray, IntArray]:
    """Return the numbers of pieces to keep: shorten the longer side first, then both alike."""
    shorter_P = np.minimum(np.minimum(source_P, target_P), room // 2)
    kept_P = np.where(source_P > target_P, room - shorter_P, shorter_P)
    fits_P = source_P + target_P <= room
    kept_P = np.where(fits_P, source_P, kept_P)
    return kept_P, np.where(fits_P, target_P, room - kept_P)


def compute_states(
    model: AnyEncoder,
    encoding: PairEncoding,
    sequences: IntArray,
    choices: Sequence[LayerChoice],
    device: torch.device,
    batch_tokens: int,
) -> tuple[list[Tensor], IntArray]:
    """Return the hidden states of all tokens [N, D] by choice of layers, and the first rows [Q]."""
    deepest = find_deepest(choices)
    if device.type == "cpu":
        batch_tokens = min(batch_tokens, CPU_BATCH_TOKENS)
    parts: list[list[Tensor]] = [[] for _ in choices]
    bases_Q = np.full(len(encoding.lengths_Q), -1, dtype=np.int64)
    num_rows = 0
    for batch in plan_batches(encoding.lengths_Q[sequences].tolist(), batch_tokens):
        rows = sequences[batch]
        lengths_B = encoding.lengths_Q[rows]
        width = int(lengths_B.max())
        bases_Q[rows] = num_rows + np.arange(len(rows)) * width
        num_rows += len(rows) * width
        mask_BL = np.arange(width) < lengths_B[:, None]
        places_BL = np.where(mask_BL, encoding.starts_Q[rows][:, None] + np.arange(width), 0)
        ids_BL = np.where(mask_BL, encoding.ids_N[places_BL], model.encoder.config.pad_id)
        types = None
        if encoding.types_N is not None:
            types = _send(encoding.types_N[places_BL] * mask_BL, device)
        mask = None if mask_BL.all() else _send(mask_BL, device)
        states = model.encoder.hidden_states(_send(ids_BL, device), mask, types, deepest=deepest)
        for part, choice in zip(parts, choices, strict=True):
            part.append(choice.pick(states).flatten(0, 1))
    return [part[0] if len(part) == 1 else torch.cat(part) for part in parts], bases_Q


def index_units(
    units: Units, pairs: IntArray, bases_B: IntArray, rule: WordRule, device: torch.device
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the mask [B, S] of units, and a function from states [N, D] to units' [B, S, D].

    `bases_B` are the rows of the sentences' first pieces. The values at padding are arbitrary.
    """
    lengths_B = units.lengths_P[pairs]
    columns_S = np.arange(lengths_B.max())
    mask_BS = columns_S < lengths_B[:, None]
    places_BS = np.where(mask_BS, units.starts_P[pairs][:, None] + columns_S, 0)
    mask = _send(mask_BS, device)
    if rule != "mean":
        rows_BS = bases_B[:, None] + np.where(mask_BS, units.firsts_N[places_BS], 0)
        rows = _send(rows_BS, device)
        return mask, lambda states_ND: states_ND[rows]
    # The pieces of a sentence are consecutive rows: the means are a matrix product.
    sizes_BS = np.where(mask_BS, units.sizes_N[places_BS], 0)
    ends_BS = np.cumsum(sizes_BS, axis=1)
    columns_K = np.arange(ends_BS.max())
    rows = _send(bases_B[:, None] + np.minimum(columns_K, ends_BS[:, -1:] - 1), device)
    ends_BS1, sizes_BS1 = _send(ends_BS[:, :, None], device), _send(sizes_BS[:, :, None], device)
    columns = torch.arange(len(columns_K), device=device)
    inside_BSK = (columns < ends_BS1) & (columns >= ends_BS1 - sizes_BS1)
    shares_BSK = inside_BSK / sizes_BS1.clamp_min(1)
    return mask, lambda states_ND: torch.bmm(shares_BSK.to(states_ND.dtype), states_ND[rows])


def _send(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to the device without waiting for its computation."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def link_spans(
    model: AnyEncoder,
    encoding: PairEncoding,
    choices: Sequence[LayerChoice],
    device: torch.device,
    settings: AlignSettings,
    batch_tokens: int,
) -> Iterator[list[LinkBatch]]:
    """Encode and link all pairs that have pieces on both sides, longest first."""
    span_tokens = batch_tokens
    if settings.encoding == "separate":
        # Each side has its own lengths: more of them need less padding.
        row_bytes = 4 * model.encoder.config.hidden_size * len(choices)
        span_tokens = max(2 * batch_tokens, SPAN_BYTES // row_bytes)
    linking = exact_device(device)
    lengths_P = encoding.sides[0].lengths_P + encoding.sides[1].lengths_P + 3
    usable = encoding.usable
    for places in plan_batches(lengths_P[usable].tolist(), span_tokens):
        pairs = usable[places]
        sequences = np.unique(np.concatenate([numbers[pairs] for numbers in encoding.sequences]))
        span, bases_Q = compute_states(model, encoding, sequences, choices, device, batch_tokens)
        span = [states_ND.to(linking) for states_ND in span]
        sides = list(zip(encoding.units, encoding.sequences, encoding.places, strict=True))
        batches = []
        for batch in _plan_links(*encoding.units, pairs, LINKED_CELLS[linking.type]):
            (source_mask, source), (target_mask, target) = (
                index_units(side, batch, bases_Q[rows[batch]] + at[batch], settings.words, linking)
                for side, rows, at in sides
            )
            masks = Masks(source_mask, target_mask)
            decisions = [link_units(source(h), target(h), masks, settings) for h in span]
            batches.append((batch, decisions))
        yield batches


def _plan_links(
    source: Units, target: Units, pairs: IntArray, most_cells: int
) -> Iterator[IntArray]:
    pairs = pairs[np.lexsort((target.lengths_P[pairs], source.lengths_P[pairs]))]
    start = 0
    while start < len(pairs):
        # The last pair of a batch has the most source units.
        heights = source.lengths_P[pairs[start:]]
        widths = np.maximum.accumulate(target.lengths_P[pairs[start:]])
        cells = heights * widths * np.arange(1, len(heights) + 1)
        size = max(1, int(np.searchsorted(cells, most_cells, side="right")))
        yield pairs[start : start + size]
        start += size


def read_spans(
    spans: Iterable[list[LinkBatch]], encoding: PairEncoding
) -> Iterator[tuple[list[int], list[list[Links]]]]:
    """Yield the pairs of each span and their links `[choice][pair]`, one span late."""
    source, target = encoding.units
    for batches, linked_N, arrived in run_ahead(map(_fetch_links, spans)):
        if arrived is not None:
            arrived.synchronize()
        links: list[list[Links]] = [[] for _ in batches[0][1]]
        start = 0
        for pairs, decisions in batches:
            shape = decisions[0].linked_BST.shape
            for found in links:
                linked_BST = linked_N[start : start + shape.numel()].view(shape)
                start += shape.numel()
                rows_K, source_K, target_K = linked_BST.numpy().nonzero()
                source_K = source.words_N[source.starts_P[pairs][rows_K] + source_K]
                target_K = target.words_N[target.starts_P[pairs][rows_K] + target_K]
                words = list(zip(source_K.tolist(), target_K.tolist(), strict=True))
                ends = np.searchsorted(rows_K, np.arange(len(pairs)), side="right").tolist()
                found += [frozenset(words[a:b]) for a, b in pairwise([0, *ends])]
        yield np.concatenate([pairs for pairs, _ in batches]).tolist(), links


def _fetch_links(
    batches: list[LinkBatch],
) -> tuple[list[LinkBatch], Tensor, torch.cuda.Event | None]:
    """Start the transfer of the links of a span; the event marks its end."""
    linked_N = torch.cat([one.linked_BST.flatten() for _, all_ in batches for one in all_])
    if linked_N.device.type != "cuda":
        return batches, linked_N, None
    stream = torch.cuda.current_stream(linked_N.device)
    linked_N = linked_N.to("cpu", non_blocking=True)
    return batches, linked_N, stream.record_event()
