"""Whole words for masking: where they begin, and which are chosen.

Comes in: the token ids of rows, and how many tokens each row may hide. Goes out: columns, in which
either all tokens of a word stand or none. A word begins where the tokenizer writes a space (`▁`,
`Ġ`, no `##`), and after a special token; in scripts that are written without spaces, where a "word"
would be a clause, every piece is a word. All shapes are fixed, as `masking` needs them.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.scripts import find_script
from metaxlm.vocabulary.token_forms import detect_kind, find_form

_UNSPACED = {"Han", "Kana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"}
_BYTE_SPACE = "Ġ"
_PASSES = 3
"""Times that a row looks for words: later ones fill what a word that did not fit left."""
_COLUMN = 16
"""Bits of a column."""
WORD_BITS = 62 - 2 * _COLUMN
"""Bits of a word's random number."""


def starts_words(tokenizer: PreTrainedTokenizerBase) -> NDArray[np.bool_]:
    """Say for every token whether it begins a word; special tokens are words of their own."""
    kind = detect_kind(tokenizer)
    starts = np.zeros(len(tokenizer), np.bool_)
    for token, row in tokenizer.get_vocab().items():
        form = find_form(token, kind)
        # Bytes that are no text on their own begin a word only behind a space.
        starts[row] = (
            token.startswith(_BYTE_SPACE)
            if form is None
            else form[1] or find_script(form[0]) in _UNSPACED
        )
    starts[tokenizer.all_special_ids] = True
    return starts


def find_words(ids_BL: Tensor, starts_V: Tensor, is_special_V: Tensor) -> Tensor:
    """Return for each position the column where its word begins."""
    after_special_BL = is_special_V[ids_BL].roll(1, dims=1)
    starts_BL = starts_V[ids_BL] | after_special_BL
    columns_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
    # A row's first token begins a word in any case: nothing is larger than 0 before it.
    return torch.cummax(columns_L * starts_BL, dim=1).values


def choose_words(
    first_BL: Tensor, candidate_BL: Tensor, random_BL: Tensor, budget_B: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """Return `most` columns of each row, the chosen ones first, and how many are chosen.

    Words come in the order of their random number until the budget is spent, which is at most
    `most`; a word that does not fit any more makes room for the next one.
    """
    columns_L = torch.arange(first_BL.shape[1], device=first_BL.device)
    word_BL = (candidate_BL.long() << WORD_BITS | random_BL) << _COLUMN | first_BL
    order_BL = torch.sort(word_BL << _COLUMN | columns_L, dim=1, descending=True).values
    begin_BL, end_BL = _find_edges(order_BL >> _COLUMN)
    size_BL = end_BL - begin_BL
    candidate_BL = order_BL >> (2 * _COLUMN + WORD_BITS) > 0
    chosen_BL = torch.zeros_like(candidate_BL)
    room_B1 = budget_B[:, None]
    for _ in range(_PASSES):
        open_BL = candidate_BL & ~chosen_BL & (size_BL <= room_B1)
        # What the open words before this one need: it is open or not with all its tokens.
        before_BL = torch.cumsum(open_BL, dim=1) - open_BL.long() - (columns_L - begin_BL)
        chosen_BL |= open_BL & (before_BL + size_BL <= room_B1)
        room_B1 = budget_B[:, None] - chosen_BL.sum(dim=1, keepdim=True)
    mask = (1 << _COLUMN) - 1
    chosen_first_BL = (chosen_BL.long() << _COLUMN | (mask - columns_L)) << _COLUMN
    columns_BK = torch.topk(chosen_first_BL | order_BL & mask, most, dim=1).values & mask
    return columns_BK, budget_B - room_B1[:, 0]


def _find_edges(word_BL: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each position where the stretch of equal values around it begins and ends."""
    length = word_BL.shape[1]
    places_L = torch.arange(length, device=word_BL.device)
    differs_BL = torch.ones_like(word_BL, dtype=torch.bool)
    differs_BL[:, 1:] = word_BL[:, 1:] != word_BL[:, :-1]
    begin_BL = torch.cummax(places_L * differs_BL, dim=1).values
    # From the right: how many places behind this one still belong to the stretch.
    ends_BL = differs_BL.roll(-1, dims=1).flip(1)
    last_BL = length - 1 - torch.cummax(places_L * ends_BL, dim=1).values.flip(1)
    return begin_BL, last_BL + 1
