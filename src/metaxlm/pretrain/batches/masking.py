"""Dynamic masking, as fairseq's RoBERTa does it, on the device that trains.

Comes in: the rows of a piece and the step's key. Goes out: what the model sees, and what it must
predict where. Of L candidates int(p L + U[0, 1)) are chosen; every real position is a candidate,
special tokens included unless told otherwise. Of the chosen, 80 % become `<mask>`, 10 % a token
drawn uniformly from the ordinary vocabulary, and 10 % stay.

Random numbers are hashes of (key, row of the step, column): whole numbers, so that every device
and every cut of a step gives the same masks. All shapes are fixed and nothing is read back, so that
masking can be part of a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.config import TrainingRecipe
from metaxlm.pretrain.hashes import cut_bits, draw, open_streams
from metaxlm.pretrain.schedules import largest
from metaxlm.pretrain.words import WORD_BITS, choose_words, find_words, starts_words

IGNORED = -100
"""The label of a slot without a prediction."""

_MASKED_SHARE = 0.8
_REPLACED_SHARE = 0.1
_FIXED_POINT = 40
"""Bits behind the point of the mask rate, and of the random number added to p L."""
_COLUMN = 16
"""Bits of a column."""
_BITS = 31
"""Bits that decide what becomes of a chosen token, and as many that decide what replaces it."""


@dataclass(frozen=True)
class Masked:
    """A piece after masking: what the model sees, and what it must predict where."""

    ids_BL: Tensor
    """int64, the input."""
    rows_M: Tensor
    """int64, flat indices of the chosen positions; M is fixed for a shape."""
    labels_M: Tensor
    """int64, the original tokens there; `IGNORED` for slots that are not used."""


class Masking:
    """Hides tokens of pieces."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, recipe: TrainingRecipe, device: torch.device
    ) -> None:
        specials = sorted(tokenizer.all_special_ids)
        is_special_V = torch.zeros(len(tokenizer), dtype=torch.bool)
        is_special_V[specials] = True
        self._largest = largest(recipe.mask_probability)
        self._mask_id = tokenizer.mask_token_id
        self._ordinary_ids = (~is_special_V).nonzero().flatten().to(device)
        self._is_special_V = is_special_V.to(device)
        self._exclude_special = recipe.exclude_special
        self._starts_V = (
            torch.from_numpy(starts_words(tokenizer)).to(device) if recipe.whole_words else None
        )

    def most_chosen(self, length: int) -> int:
        """Return how many positions of a row can be chosen."""
        return min(int(self._largest * length) + 1, length)

    def __call__(
        self,
        ids_BL: Tensor,
        lengths_B: Tensor,
        rows_B: Tensor,
        key: int | Tensor,
        probability: float | Tensor,
    ) -> Masked:
        """Choose positions and hide them; `key` and `probability` may be scalars on the device."""
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
            random_BL = draw(for_choice_B[:, None], first_BL, WORD_BITS)
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
        """Return what stands in the place of chosen tokens."""
        fate_BK = random_BK >> _BITS
        number_BK = (random_BK & ((1 << _BITS) - 1)) * len(self._ordinary_ids) >> _BITS
        is_kept_BK = fate_BK >= int((_MASKED_SHARE + _REPLACED_SHARE) * (1 << _BITS))
        shown_BK = torch.where(is_kept_BK, labels_BK, self._ordinary_ids[number_BK])
        is_masked_BK = fate_BK < int(_MASKED_SHARE * (1 << _BITS))
        return torch.where(is_masked_BK, self._mask_id, shown_BK)


def _count(num_candidates_B: Tensor, random_B: Tensor, probability: float | Tensor) -> Tensor:
    """Return int(p L + U), in whole numbers because devices round sums differently."""
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
    # The column is part of the order: equal numbers cannot fall apart on another device.
    order_BL = (random_BL * candidate_BL) << _COLUMN | columns_L
    return torch.topk(order_BL, most, dim=1).values & ((1 << _COLUMN) - 1)
