"""Sentence pairs to hidden states: words come in, the states of pieces or words go out.

The joint encoding of the paper's Section 4.4 (`<s> source </s> target </s>`) and the separate one
of other aligners. All sentences of a call lie in flat arrays, one after the other, so that no step
on the host goes through pieces one by one. Shapes: N entries of all sentences, P sentence pairs, Q
sequences, B batch, L length, S units, K pieces of a sentence, W words of all, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from metaxlm.finetune.batches import plan_batches
from metaxlm.finetune.encoding import IntArray, Pieces, find_starts, tokenize_flat
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.align_methods import Encoding, WordRule
from metaxlm.probe.layers import LayerChoice, find_deepest

CPU_BATCH_TOKENS = 2_048
"""Most tokens in a batch on a CPU: the activations of larger ones leave its caches, which costs a
quarter of the speed."""

Words = Sequence[str]
"""A sentence in words."""


@dataclass(frozen=True)
class Units:
    """What is compared, pieces or words: the first piece in its sentence, how many, which word."""

    firsts_N: IntArray
    sizes_N: IntArray
    words_N: IntArray
    lengths_P: IntArray
    starts_P: IntArray


@dataclass(frozen=True)
class PairEncoding:
    """Pairs as sequences for an encoder, and where in them each side's pieces start."""

    ids_N: IntArray
    types_N: IntArray | None
    """1 on the target side of a joint pair, for encoders that know token types (BERT)."""
    lengths_Q: IntArray
    starts_Q: IntArray
    sides: tuple[Pieces, Pieces]
    sequences: tuple[IntArray, IntArray]
    """For each pair the sequence that holds the source, and the one that holds the target."""
    places: tuple[IntArray, IntArray]
    """For each pair where in these the first piece stands."""
    num_cut_P: IntArray
    """Pieces that each pair lost at its end because it was too long."""
    num_bare_P: IntArray
    """Words of each pair that become no piece."""


@dataclass(frozen=True)
class SpanStates:
    """Hidden states of some sequences, token after token; one tensor for each choice of layers."""

    states: list[Tensor]
    bases_Q: IntArray
    """Row of the first token of each sequence; -1 for those that are not there."""


@dataclass(frozen=True)
class UnitIndex:
    """Where the units of some sentences stand among the rows of a span's states."""

    mask_BS: Tensor
    rows_BS: Tensor
    """Rows of the units or, with `shares`, of all their pieces."""
    shares_BSK: Tensor | None
    """What each piece contributes to each unit."""

    def pick(self, states_ND: Tensor) -> Tensor:
        """Return the states of the units, [B, S, D]; at padding stands something."""
        picked_BSD = states_ND[self.rows_BS]
        if self.shares_BSK is None:
            return picked_BSD
        return torch.bmm(self.shares_BSK.to(picked_BSD.dtype), picked_BSD)


def spread_ranges(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return the places of all entries of ranges: start, start + 1, ..., range after range."""
    return np.arange(lengths.sum()) + np.repeat(starts - find_starts(lengths), lengths)


def cut_pieces(pieces: Pieces, sizes_P: IntArray) -> Pieces:
    """Keep the first so many pieces of each sentence."""
    lengths_P = np.minimum(pieces.lengths_P, sizes_P)
    kept = spread_ranges(pieces.starts_P, lengths_P)
    return Pieces(pieces.ids_N[kept], pieces.words_N[kept], lengths_P, find_starts(lengths_P))


def make_units(pieces: Pieces, rule: WordRule) -> Units:
    """Return each piece, or the pieces of each word together."""
    sentences_N = np.repeat(np.arange(len(pieces.lengths_P)), pieces.lengths_P)
    begins_N = np.ones(len(sentences_N), dtype=np.bool_)
    if rule != "any":
        same_word = pieces.words_N[1:] == pieces.words_N[:-1]
        begins_N[1:] = ~same_word | (sentences_N[1:] != sentences_N[:-1])
    first_N = np.flatnonzero(begins_N)
    sizes_N = np.diff(first_N, append=len(begins_N))
    lengths_P = np.bincount(sentences_N[first_N], minlength=len(pieces.lengths_P))
    return Units(
        first_N - pieces.starts_P[sentences_N[first_N]],
        sizes_N,
        pieces.words_N[first_N],
        lengths_P,
        find_starts(lengths_P),
    )


def count_words(pieces: Pieces) -> IntArray:
    """Return how many words of each sentence have a piece."""
    return make_units(pieces, "first").lengths_P


def encode_pairs(
    model: AnyEncoder, pairs: Sequence[tuple[Words, Words]], encoding: Encoding
) -> PairEncoding:
    """Tokenize pairs, cut what does not fit, and put the special tokens around them.

    Of a joint pair the longer side is cut first.
    """
    sentences = [source for source, _ in pairs], [target for _, target in pairs]
    whole = tuple(tokenize_flat(model.tokenizer, side) for side in sentences)
    num_words_P = np.array([len(a) + len(b) for a, b in pairs], dtype=np.int64)
    positions = model.encoder.config.max_positions
    if encoding == "joint":
        source, target = _cut_longer(whole[0], whole[1], positions - 3)
    else:
        room_P = np.full(len(pairs), positions - 2)
        source, target = cut_pieces(whole[0], room_P), cut_pieces(whole[1], room_P)
    losses = (
        sum(side.lengths_P for side in whole) - source.lengths_P - target.lengths_P,
        num_words_P - count_words(whole[0]) - count_words(whole[1]),
    )
    if encoding == "joint":
        return _join_pairs(model, source, target, *losses)
    return _separate_pairs(model, source, target, *losses)


def _cut_longer(source: Pieces, target: Pieces, room: int) -> tuple[Pieces, Pieces]:
    """Shorten the longer side of each pair until both fit, then both alike."""
    shorter_P = np.minimum(np.minimum(source.lengths_P, target.lengths_P), room // 2)
    is_longer_P = source.lengths_P > target.lengths_P
    source_room_P = np.where(is_longer_P, room - shorter_P, shorter_P)
    fits_P = source.lengths_P + target.lengths_P <= room
    source_room_P = np.where(fits_P, source.lengths_P, source_room_P)
    target_room_P = np.where(fits_P, target.lengths_P, room - source_room_P)
    return cut_pieces(source, source_room_P), cut_pieces(target, target_room_P)


def _join_pairs(
    model: AnyEncoder, source: Pieces, target: Pieces, num_cut_P: IntArray, num_bare_P: IntArray
) -> PairEncoding:
    lengths_P = source.lengths_P + target.lengths_P + 3
    starts_P = find_starts(lengths_P)
    places = np.ones_like(lengths_P), source.lengths_P + 2
    ids_N = np.full(lengths_P.sum(), model.tokenizer.sep_token_id, dtype=np.int64)
    ids_N[starts_P] = model.tokenizer.cls_token_id
    for side, place_P in zip((source, target), places, strict=True):
        ids_N[spread_ranges(starts_P + place_P, side.lengths_P)] = side.ids_N
    types_N = None
    if model.encoder.config.num_token_types > 1:
        types_N = np.zeros_like(ids_N)
        types_N[spread_ranges(starts_P + places[1], target.lengths_P + 1)] = 1
    pairs_P = np.arange(len(lengths_P))
    return PairEncoding(
        ids_N,
        types_N,
        lengths_P,
        starts_P,
        sides=(source, target),
        sequences=(pairs_P, pairs_P),
        places=places,
        num_cut_P=num_cut_P,
        num_bare_P=num_bare_P,
    )


def _separate_pairs(
    model: AnyEncoder, source: Pieces, target: Pieces, num_cut_P: IntArray, num_bare_P: IntArray
) -> PairEncoding:
    pieces_Q = np.concatenate([source.lengths_P, target.lengths_P])
    lengths_Q = pieces_Q + 2
    starts_Q = find_starts(lengths_Q)
    ids_N = np.full(lengths_Q.sum(), model.tokenizer.sep_token_id, dtype=np.int64)
    ids_N[starts_Q] = model.tokenizer.cls_token_id
    ids_N[spread_ranges(starts_Q + 1, pieces_Q)] = np.concatenate([source.ids_N, target.ids_N])
    pairs_P = np.arange(len(source.lengths_P))
    return PairEncoding(
        ids_N,
        None,
        lengths_Q,
        starts_Q,
        sides=(source, target),
        sequences=(pairs_P, pairs_P + len(pairs_P)),
        places=(np.ones_like(pairs_P), np.ones_like(pairs_P)),
        num_cut_P=num_cut_P,
        num_bare_P=num_bare_P,
    )


def find_usable(encoding: PairEncoding) -> IntArray:
    """Return the pairs that have pieces on both sides."""
    source, target = encoding.sides
    return np.flatnonzero((source.lengths_P > 0) & (target.lengths_P > 0))


def compute_states(
    model: AnyEncoder,
    encoding: PairEncoding,
    sequences: IntArray,
    choices: Sequence[LayerChoice],
    device: torch.device,
    batch_tokens: int,
) -> SpanStates:
    """Run the encoder over some sequences, in batches of similar lengths."""
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
        places_BL = encoding.starts_Q[rows][:, None] + np.arange(width)
        mask_BL = np.arange(width) < lengths_B[:, None]
        places_BL = np.where(mask_BL, places_BL, 0)
        ids_BL = np.where(mask_BL, encoding.ids_N[places_BL], model.encoder.config.pad_id)
        types = None
        if encoding.types_N is not None:
            types = send(encoding.types_N[places_BL] * mask_BL, device)
        mask = None if mask_BL.all() else send(mask_BL, device)
        states = model.encoder.hidden_states(send(ids_BL, device), mask, types, deepest=deepest)
        for part, choice in zip(parts, choices, strict=True):
            part.append(choice.pick(states).flatten(0, 1))
    return SpanStates([p[0] if len(p) == 1 else torch.cat(p) for p in parts], bases_Q)


def index_units(
    units: Units, pairs: IntArray, bases_B: IntArray, rule: WordRule, device: torch.device
) -> UnitIndex:
    """Say where in a span's rows the units of some sentences stand, padded to the longest.

    `bases_B` are the rows of their first pieces.
    """
    lengths_B = units.lengths_P[pairs]
    columns_S = np.arange(lengths_B.max())
    mask_BS = columns_S < lengths_B[:, None]
    places_BS = np.where(mask_BS, units.starts_P[pairs][:, None] + columns_S, 0)
    mask = send(mask_BS, device)
    if rule != "mean":
        # Padding points to some real row: nothing reads what stands there.
        rows_BS = bases_B[:, None] + np.where(mask_BS, units.firsts_N[places_BS], 0)
        return UnitIndex(mask, send(rows_BS, device), None)
    # The pieces of a sentence's words lie one after the other: the means are a matrix product.
    sizes_BS = np.where(mask_BS, units.sizes_N[places_BS], 0)
    ends_BS = np.cumsum(sizes_BS, axis=1)
    columns_K = np.arange(ends_BS.max())
    rows_BK = bases_B[:, None] + np.minimum(columns_K, ends_BS[:, -1:] - 1)
    ends_BS1, sizes_BS1 = send(ends_BS[:, :, None], device), send(sizes_BS[:, :, None], device)
    columns = torch.arange(len(columns_K), device=device)
    inside_BSK = (columns < ends_BS1) & (columns >= ends_BS1 - sizes_BS1)
    return UnitIndex(mask, send(rows_BK, device), inside_BSK / sizes_BS1.clamp_min(1))


def send(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to the device without waiting for what the device is doing."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
