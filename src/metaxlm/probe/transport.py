"""Optimal transport between two sentences: hidden states come in, linked units go out.

The word aligner of the paper's Section 4.4, in the form of XLM-Align: the dot products of the two
sides are a mass to be moved; two Sinkhorn iterations bring its columns and rows into balance; two
units are linked if each is the other's best. Batched over many sentence pairs; padding takes no
part. Shapes: B pairs, S source units, T target units, D hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metaxlm.probe.linking import Decision, Masks, keep_mutual

SMALLEST_MASS = 1e-6
"""What a dot product that is not positive counts as."""


def link_transport(
    source_BSD: Tensor, target_BTD: Tensor, masks: Masks, iterations: int = 2
) -> Decision:
    """Link i and j if j is the best of row i in the plan whose rows sum to 1, and i the best of
    column j in the plan whose columns do."""
    # A row that competes only with the smallest mass has 1 - 1e-7 in its columns: float32 would
    # call those equal, and rounding (so the batch) would decide between them.
    mass_BST = torch.bmm(source_BSD, target_BTD.transpose(1, 2)).double()
    mass_BST = mass_BST.masked_fill(mass_BST <= 0, SMALLEST_MASS)
    by_column_BST, by_row_BST = balance(mass_BST * masks.cross(), iterations)
    return Decision(keep_mutual(by_row_BST, by_column_BST), by_row_BST, by_column_BST)


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
