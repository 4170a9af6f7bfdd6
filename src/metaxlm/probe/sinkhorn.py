"""Entropic optimal transport between two sentences: costs come in, plans and links go out.

Where the paper's aligner (`transport.py`) stops after two iterations on the bare dot products, this
one solves the problem: move a mass spread evenly over the source units onto a mass spread evenly
over the target units as cheaply as possible, at a cost of 1 - cosine, with an entropy that the
temperature weighs (Cuturi 2013). In the log domain, so that no temperature under- or overflows, and
in float64. Shapes: B pairs, S source units, T target units, D hidden.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.probe.linking import Decision, Masks, keep_mutual

CHECK_EVERY = 10
"""Iterations from one look at the error to the next; a look costs one, and waits for the device."""

TIE = 1e-9
"""Shares that differ by less are equal; the cost decides between them."""


def link_sinkhorn(
    source_BSD: Tensor,
    target_BTD: Tensor,
    masks: Masks,
    *,
    temperature: float,
    tolerance: float,
    max_iterations: int,
    threshold: float,
) -> Decision:
    """Link units that are each other's best in the plan and share enough of their mass.

    Two units can share at most all of the smaller one's mass, 1 / max(S, T); `threshold` is the
    least share of that.
    """
    source_BSD, target_BTD = F.normalize(source_BSD, dim=-1), F.normalize(target_BTD, dim=-1)
    cost_BST = 1.0 - torch.bmm(source_BSD, target_BTD.transpose(1, 2)).double()
    plan_BST = solve_plan(cost_BST, masks, temperature, tolerance, max_iterations)
    num_B = torch.maximum(masks.source_BS.sum(dim=1), masks.target_BT.sum(dim=1))
    share_BST = plan_BST * num_B[:, None, None]
    # A side of one unit must share evenly, whatever it costs: then the cheapest is the best.
    worth_BST = (share_BST - TIE * cost_BST).masked_fill(~masks.cross(), -1.0)
    linked_BST = keep_mutual(worth_BST, worth_BST) & (share_BST >= threshold)
    return Decision(linked_BST, share_BST, share_BST)


def solve_plan(
    cost_BST: Tensor, masks: Masks, temperature: float, tolerance: float, max_iterations: int
) -> Tensor:
    """Return the plan between even masses, [B, S, T]; it sums to 1, and is 0 at padding.

    Its rows sum to 1 / S exactly. A pair is done when no column is off its 1 / T by more than the
    tolerance, whatever the others in the batch need, or after `max_iterations`.
    """
    kernel_BST = (-cost_BST / temperature).masked_fill(~masks.cross(), float("-inf"))
    row_mass_BS = _spread_mass(masks.source_BS, cost_BST.dtype)
    column_mass_BT = _spread_mass(masks.target_BT, cost_BST.dtype)
    rows_BS = torch.zeros_like(row_mass_BS)
    columns_BT = torch.zeros_like(column_mass_BT)
    open_A = torch.arange(len(cost_BST), device=cost_BST.device)
    kernel, row_mass, column_mass = kernel_BST, row_mass_BS, column_mass_BT
    rows = rows_BS
    for done in range(1, max_iterations + 1):
        sums = torch.logsumexp(kernel + rows[:, :, None], dim=1)
        columns = (column_mass - sums).masked_fill(column_mass.isinf(), 0.0)
        sums = torch.logsumexp(kernel + columns[:, None, :], dim=2)
        rows = (row_mass - sums).masked_fill(row_mass.isinf(), 0.0)
        if done % CHECK_EVERY and done < max_iterations:
            continue
        rows_BS[open_A], columns_BT[open_A] = rows, columns
        found = torch.logsumexp(kernel + rows[:, :, None], dim=1) + columns
        error_A = (found.exp() - column_mass.exp()).abs().amax(dim=1)
        left = (error_A > tolerance).nonzero().squeeze(1)
        if not len(left):
            break
        open_A, kernel, rows = open_A[left], kernel[left], rows[left]
        row_mass, column_mass = row_mass[left], column_mass[left]
    return (kernel_BST + rows_BS[:, :, None] + columns_BT[:, None, :]).exp()


def _spread_mass(mask_BS: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the logarithm of 1 / S for real units, and of nothing for padding."""
    num_B1 = mask_BS.sum(dim=1, keepdim=True).to(dtype)
    return (-num_B1.log()).expand(mask_BS.shape).masked_fill(~mask_BS, float("-inf"))
