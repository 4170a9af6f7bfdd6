"""Mask tokens dynamically on the training device, as fairseq's RoBERTa does.

Of L candidates int(p L + U[0, 1)) are chosen. Every real position is a candidate, including special
tokens unless `exclude_special` is set. Of the chosen tokens, 80 % become `<mask>`, 10 % a token
drawn uniformly from the ordinary vocabulary, and 10 % stay unchanged. With `whole_words`, either
all tokens of a word are chosen or none.

Random numbers are integer hashes of (key, row of the step, column), so masks are the same on every
device and for every split of a step. Shapes are fixed, so masking can be part of a CUDA graph.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.pretrain.distributed import exact_device
from metaxlm.pretrain.optimizer import largest
from metaxlm.recipe import TrainingRecipe
from metaxlm.scripts import UNSPACED, find_script
from metaxlm.vocab.tokens import detect_kind, read_tokens, surface_form

IGNORED = -100  # label of a slot without a prediction
_MASKED_SHARE, _REPLACED_SHARE = 0.8, 0.1
_FIXED_POINT = 40  # fractional bits of the mask rate and of the random number added to p L
_COLUMN = 16  # bits of a column index
_BITS = 31  # bits that select the replacement type of a token, and bits that select the new token
_WORD_BITS = 62 - 2 * _COLUMN  # of a word's random number
_PASSES = 3  # over the words of a row: later ones use the budget left by words that did not fit
_BYTE_SPACE = "Ġ"
# Constants of SplitMix64 (Steele, Lea and Flood 2014) as signed integers.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


@dataclass(frozen=True)
class Masked:
    """A masked micro-batch: model inputs, positions to predict, and labels."""

    ids_BL: Tensor  # int64, model inputs
    positions_M: Tensor  # int64, flat indices of the chosen positions; M depends on the shape only
    labels_M: Tensor  # int64, original tokens there; `IGNORED` for unused slots


class Masking:
    """Masks the tokens of micro-batches."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, recipe: TrainingRecipe, device: torch.device
    ) -> None:
        is_special_V = torch.zeros(len(tokenizer), dtype=torch.bool)
        is_special_V[tokenizer.all_special_ids] = True
        self._largest = largest(recipe.mask_probability)
        self._mask_id = tokenizer.mask_token_id
        device = exact_device(device)
        self._ordinary_ids = (~is_special_V).nonzero().flatten().to(device)
        self._is_special_V = is_special_V.to(device)
        self._exclude_special = recipe.exclude_special
        starts = torch.from_numpy(starts_words(tokenizer)) if recipe.whole_words else None
        self._starts_V = None if starts is None else starts.to(device)

    def most_chosen(self, length: int) -> int:
        """Return the maximum number of positions chosen in a row."""
        return min(int(self._largest * length) + 1, length)

    def __call__(
        self,
        ids_BL: Tensor,
        lengths_B: Tensor,
        rows_B: Tensor,
        key: int | Tensor,
        probability: float | Tensor,
    ) -> Masked:
        """Choose and mask positions; `key` and `probability` may be tensors on the device."""
        device, exact = ids_BL.device, self._is_special_V.device
        if exact != device:
            key = key.to(exact) if isinstance(key, Tensor) else key
            rate = probability.to(exact) if isinstance(probability, Tensor) else probability
            masked = self(ids_BL.to(exact), lengths_B.to(exact), rows_B.to(exact), key, rate)
            return Masked(*(getattr(masked, f.name).to(device) for f in fields(Masked)))
        ids_BL = ids_BL.long()
        num_rows, length = ids_BL.shape
        columns_L = torch.arange(length, device=ids_BL.device)
        candidate_BL = columns_L < lengths_B[:, None]
        if self._exclude_special:
            candidate_BL = candidate_BL & ~self._is_special_V[ids_BL]
        for_count_B, for_choice_B, for_fate_B = open_streams(key, rows_B, 3).unbind(1)
        most = self.most_chosen(length)
        used_B = _count(candidate_BL.sum(1), for_count_B, probability).clamp_max(most)
        if self._starts_V is None:
            columns_BK = _choose_tokens(candidate_BL, for_choice_B, most)
        else:
            first_BL = find_words(ids_BL, self._starts_V, self._is_special_V)
            random_BL = draw(for_choice_B[:, None], first_BL, _WORD_BITS)
            columns_BK, used_B = choose_words(first_BL, candidate_BL, random_BL, used_B, most)
        used_BK = columns_L[:most] < used_B[:, None]
        labels_BK = ids_BL.gather(1, columns_BK)
        hidden_BK = self._hide(labels_BK, draw(for_fate_B[:, None], columns_BK, 2 * _BITS))
        starts_B1 = torch.arange(0, num_rows * length, length, device=ids_BL.device)[:, None]
        return Masked(
            ids_BL.scatter(1, columns_BK, torch.where(used_BK, hidden_BK, labels_BK)),
            (columns_BK + starts_B1).flatten(),
            torch.where(used_BK, labels_BK, IGNORED).flatten(),
        )

    def _hide(self, labels_BK: Tensor, random_BK: Tensor) -> Tensor:
        fate_BK = random_BK >> _BITS
        number_BK = (random_BK & ((1 << _BITS) - 1)) * len(self._ordinary_ids) >> _BITS
        is_kept_BK = fate_BK >= int((_MASKED_SHARE + _REPLACED_SHARE) * (1 << _BITS))
        shown_BK = torch.where(is_kept_BK, labels_BK, self._ordinary_ids[number_BK])
        is_masked_BK = fate_BK < int(_MASKED_SHARE * (1 << _BITS))
        return torch.where(is_masked_BK, self._mask_id, shown_BK)


def _count(num_candidates_B: Tensor, random_B: Tensor, probability: float | Tensor) -> Tensor:
    """Return int(p L + U) in integer arithmetic, because devices round sums differently."""
    if isinstance(probability, Tensor):
        rate: int | Tensor = (probability.double() * (1 << _FIXED_POINT)).round().long()
    else:
        rate = round(probability * (1 << _FIXED_POINT))
    uniform_B = cut_bits(random_B, _FIXED_POINT)
    return (num_candidates_B * rate + uniform_B) >> _FIXED_POINT


def _choose_tokens(candidate_BL: Tensor, stream_B: Tensor, most: int) -> Tensor:
    """Return columns in random order, candidates first."""
    columns_L = torch.arange(candidate_BL.shape[1], device=candidate_BL.device)
    bits = 62 - _COLUMN
    random_BL = draw(stream_B[:, None], columns_L, bits) | (1 << bits)
    # The column breaks ties, so the order is the same on every device.
    order_BL = (random_BL * candidate_BL) << _COLUMN | columns_L
    return torch.topk(order_BL, most, dim=1).values & ((1 << _COLUMN) - 1)


def starts_words(tokenizer: PreTrainedTokenizerBase) -> NDArray[np.bool_]:
    """Return for every token whether it begins a word: after a space mark (`▁`, `Ġ`, no `##`).

    Special tokens and all tokens of scripts written without spaces begin a word.
    """
    kind = detect_kind(tokenizer)
    starts = np.zeros(len(tokenizer), np.bool_)
    for row, token in read_tokens(tokenizer, kind).items():
        form = surface_form(token, kind)
        if form is None:  # bytes that are not valid text begin a word only after a space
            starts[row] = token.startswith(_BYTE_SPACE)
        else:
            starts[row] = form[1] or find_script(form[0]) in UNSPACED
    starts[tokenizer.all_special_ids] = True
    return starts


def find_words(ids_BL: Tensor, starts_V: Tensor, is_special_V: Tensor) -> Tensor:
    """Return the column where the word of each position begins; words end at special tokens."""
    after_special_BL = is_special_V[ids_BL].roll(1, dims=1)
    starts_BL = starts_V[ids_BL] | after_special_BL
    columns_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
    # The first token of a row always begins a word: the maximum starts at 0.
    return torch.cummax(columns_L * starts_BL, dim=1).values


def choose_words(
    first_BL: Tensor, candidate_BL: Tensor, random_BL: Tensor, budget_B: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """Return `most` columns of each row, chosen ones first, and the number of chosen columns.

    Words are taken in the order of their random numbers; one that does not fit is skipped.
    """
    columns_L = torch.arange(first_BL.shape[1], device=first_BL.device)
    word_BL = (candidate_BL.long() << _WORD_BITS | random_BL) << _COLUMN | first_BL
    order_BL = torch.sort(word_BL << _COLUMN | columns_L, dim=1, descending=True).values
    begin_BL, end_BL = _find_edges(order_BL >> _COLUMN)
    size_BL = end_BL - begin_BL
    candidate_BL = order_BL >> (2 * _COLUMN + _WORD_BITS) > 0
    chosen_BL = torch.zeros_like(candidate_BL)
    room_B1 = budget_B[:, None]
    for _ in range(_PASSES):
        open_BL = candidate_BL & ~chosen_BL & (size_BL <= room_B1)
        # Tokens of the open words before this one; all tokens of a word are open or none.
        before_BL = torch.cumsum(open_BL, dim=1) - open_BL.long() - (columns_L - begin_BL)
        chosen_BL |= open_BL & (before_BL + size_BL <= room_B1)
        room_B1 = budget_B[:, None] - chosen_BL.sum(dim=1, keepdim=True)
    mask = (1 << _COLUMN) - 1
    chosen_first_BL = (chosen_BL.long() << _COLUMN | (mask - columns_L)) << _COLUMN
    columns_BK = torch.topk(chosen_first_BL | order_BL & mask, most, dim=1).values & mask
    return columns_BK, budget_B - room_B1[:, 0]


def _find_edges(word_BL: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bounds of the run of equal values around each position."""
    length = word_BL.shape[1]
    places_L = torch.arange(length, device=word_BL.device)
    differs_BL = torch.ones_like(word_BL, dtype=torch.bool)
    differs_BL[:, 1:] = word_BL[:, 1:] != word_BL[:, :-1]
    begin_BL = torch.cummax(places_L * differs_BL, dim=1).values
    # From the right: the number of later positions in the same run.
    ends_BL = differs_BL.roll(-1, dims=1).flip(1)
    last_BL = length - 1 - torch.cummax(places_L * ends_BL, dim=1).values.flip(1)
    return begin_BL, last_BL + 1


def open_streams(key: int | Tensor, counters_B: Tensor, count: int) -> Tensor:
    """Return `count` random streams for each counter [B, count], themselves random numbers."""
    purposes = torch.arange(count, device=counters_B.device)
    return _mix(_mix(counters_B * _GOLDEN + key)[:, None] + purposes)


def draw(streams: Tensor, numbers: Tensor, bits: int) -> Tensor:
    """Return the n-th number of each stream, an integer in [0, 2^bits)."""
    return cut_bits(_mix(streams + numbers * _GOLDEN), bits)


def cut_bits(x: Tensor, bits: int) -> Tensor:
    """Return the highest bits of random numbers as non-negative integers."""
    return _shift(x, 64 - bits)


def _mix(x: Tensor) -> Tensor:
    """Mix the bits of integers (a bijection)."""
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right logically, as for unsigned integers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
