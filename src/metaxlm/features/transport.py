"""Optimal transport between two sentences: hidden states come in, linked pieces go out.

The word aligner of the paper's Section 4.4, in the form of XLM-Align: the dot products of the two
sides are a mass to be moved; two Sinkhorn iterations bring its columns and rows into balance; a
pair of pieces is linked if each is the other's best. Batched over many sentence pairs; padding
takes no part. Shapes: B pairs, S source pieces, T target pieces, D hidden.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST_MASS = 1e-6
"""What a dot product that is not positive counts as."""


def link_pieces(
    source_BSD: Tensor,
    target_BTD: Tensor,
    source_mask_BS: Tensor,
    target_mask_BT: Tensor,
    iterations: int = 2,
) -> Tensor:
    """Return True where a source and a target piece are linked, [B, S, T].

    Source piece i and target piece j are linked if j is the best of row i in the plan whose rows
    sum to 1, and i the best of column j in the plan whose columns do. The masks are True for real
    pieces; both sides of every pair have at least one.
    """
    mask_BST = source_mask_BS[:, :, None] & target_mask_BT[:, None, :]
    # A row that competes only with the smallest mass has 1 - 1e-7 in its columns: float32 would
    # call those equal, and rounding (so the batch) would decide between them.
    similarity_BST = (source_BSD @ target_BTD.transpose(1, 2)).double()
    mass_BST = similarity_BST.masked_fill(similarity_BST <= 0, SMALLEST_MASS)
    by_column_BST, by_row_BST = balance(mass_BST * mask_BST, iterations)
    best_target_BST = F.one_hot(by_row_BST.argmax(dim=2), mask_BST.shape[2])
    best_source_BST = F.one_hot(by_column_BST.argmax(dim=1), mask_BST.shape[1]).transpose(1, 2)
    return (best_target_BST & best_source_BST).bool() & mask_BST


def balance(mass_BST: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Normalize columns, then rows, so many times; return the last plan of each kind.

    Empty rows and columns (padding) stay empty.
    """
    by_column_BST = by_row_BST = mass_BST
    tiny = torch.finfo(mass_BST.dtype).tiny
    for _ in range(iterations):
        by_column_BST = by_row_BST / by_row_BST.sum(dim=1, keepdim=True).clamp_min(tiny)
        by_row_BST = by_column_BST / by_column_BST.sum(dim=2, keepdim=True).clamp_min(tiny)
    return by_column_BST, by_row_BST
