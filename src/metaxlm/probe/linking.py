"""Links between two sentences by their similarities: matrices come in, linked units go out.

The aligners that others have published, to compare the paper's with (its Section 4.4): the three of
SimAlign (Jalili Sabet et al. 2020), which are the argmax of both directions, its repetition on what
is still free (itermax) and maximum weight matching, and the softmax threshold of awesome-align (Dou
and Neubig 2021). Batched over many sentence pairs; padding takes no part and no pair sees another.
A unit is a piece or a word. Shapes: B pairs, S source units, T target units, D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

FEWEST_UNITS = 3
"""SimAlign repeats the argmax only if both sides have so many units."""


@dataclass(frozen=True)
class Decision:
    """Linked units, and what decided: for each pair of units a number in [0, 1] from each side."""

    linked_BST: Tensor
    forward_BST: Tensor
    backward_BST: Tensor

    def weigh(self) -> Tensor:
        """Return the smaller of both sides' numbers, [B, S, T], because a link needs both."""
        if self.forward_BST is self.backward_BST:
            return self.forward_BST
        return torch.minimum(self.forward_BST, self.backward_BST)


@dataclass(frozen=True)
class Masks:
    """True for the real units of both sides; each side of every pair has at least one."""

    source_BS: Tensor
    target_BT: Tensor

    def cross(self) -> Tensor:
        """Return True where both units are real, [B, S, T]."""
        return self.source_BS[:, :, None] & self.target_BT[:, None, :]


def compare_units(
    source_BSD: Tensor, target_BTD: Tensor, masks: Masks, distortion: float = 0.0
) -> Tensor:
    """Return cosines moved into [0, 1], [B, S, T]; -1 at padding, which so never is the best.

    `distortion` takes that share from units at opposite ends of their sentences, and less (by the
    square of the distance) from those nearer to each other.
    """
    source_BSD, target_BTD = F.normalize(source_BSD, dim=-1), F.normalize(target_BTD, dim=-1)
    similarity_BST = (torch.bmm(source_BSD, target_BTD.transpose(1, 2)) + 1) / 2
    if distortion:
        places_BS1 = _place_units(masks.source_BS)[:, :, None]
        places_B1T = _place_units(masks.target_BT)[:, None, :]
        kept_BST = 1 - (places_BS1 - places_B1T) ** 2 * distortion
        single_B = (masks.source_BS.sum(dim=1) < 2) | (masks.target_BT.sum(dim=1) < 2)
        similarity_BST = similarity_BST * kept_BST.masked_fill(single_B[:, None, None], 1.0)
    return similarity_BST.masked_fill(~masks.cross(), -1.0)


def _place_units(mask_BS: Tensor) -> Tensor:
    """Return where each unit stands in its sentence, from 0 to 1."""
    last_B1 = (mask_BS.sum(dim=1, keepdim=True) - 1).clamp_min(1)
    return torch.arange(mask_BS.shape[1], device=mask_BS.device, dtype=torch.float64) / last_B1


def keep_mutual(by_row_BST: Tensor, by_column_BST: Tensor) -> Tensor:
    """Return True where j is the best of row i, and i the best of column j; of equals the first.

    Padding must be worse than anything real; so it is the best of nothing real.
    """
    best_target_BS, best_source_BT = by_row_BST.argmax(dim=2), by_column_BST.argmax(dim=1)
    back_BS = best_source_BT.gather(1, best_target_BS)
    rows_S = torch.arange(by_row_BST.shape[1], device=by_row_BST.device)
    mutual_BS = back_BS == rows_S
    linked_BST = torch.zeros_like(by_row_BST, dtype=torch.bool)
    return linked_BST.scatter_(2, best_target_BS[:, :, None], mutual_BS[:, :, None])


def link_argmax(similarity_BST: Tensor) -> Decision:
    """Link units that are each other's most similar."""
    linked_BST = keep_mutual(similarity_BST, similarity_BST)
    return _decide(linked_BST, similarity_BST)


def link_itermax(similarity_BST: Tensor, masks: Masks, alpha: float, passes: int) -> Decision:
    """Link the most similar, then so many more times those that are so among what is left.

    In a later pass two free units count 2 alpha (at most 1) of their similarity, a free and a
    linked one alpha, and two linked ones nothing.
    """
    exact_BST = similarity_BST.double()  # 0.9 times a float32 would round equals into being
    linked_BST = keep_mutual(exact_BST, exact_BST)
    num_B = torch.minimum(masks.source_BS.sum(dim=1), masks.target_BT.sum(dim=1))
    for _ in range(passes - 1):
        free_BS = masks.source_BS & ~linked_BST.any(dim=2)
        free_BT = masks.target_BT & ~linked_BST.any(dim=1)
        num_free_BST = free_BS[:, :, None].double() + free_BT[:, None, :]
        damped_BST = exact_BST * (alpha * num_free_BST).clamp_max(1.0)
        damped_BST = damped_BST.masked_fill(~masks.cross(), -1.0)
        goes_on_B = (num_B >= FEWEST_UNITS) & free_BS.any(dim=1) & free_BT.any(dim=1)
        new_BST = keep_mutual(damped_BST, damped_BST) & (num_free_BST > 0)
        linked_BST = linked_BST | (new_BST & goes_on_B[:, None, None])
    return _decide(linked_BST, similarity_BST)


def link_match(similarity_BST: Tensor, masks: Masks) -> Decision:
    """Link each unit of the shorter side to another one, with the largest sum of similarities.

    On the host, pair by pair.
    """
    from scipy.optimize import linear_sum_assignment  # half a second that other methods save

    similarity = similarity_BST.cpu().double().numpy()
    num_sources = masks.source_BS.sum(dim=1).tolist()
    num_targets = masks.target_BT.sum(dim=1).tolist()
    linked = np.zeros(similarity.shape, dtype=np.bool_)
    for k, (num_source, num_target) in enumerate(zip(num_sources, num_targets, strict=True)):
        found = linear_sum_assignment(similarity[k, :num_source, :num_target], maximize=True)
        linked[k][found] = True
    return _decide(torch.from_numpy(linked).to(similarity_BST.device), similarity_BST)


def link_softmax(
    source_BSD: Tensor, target_BTD: Tensor, masks: Masks, threshold: float
) -> Decision:
    """Link units whose probability is above the threshold in both directions.

    The probabilities are the softmax of the dot products, over the target units of a source unit
    and the other way round.
    """
    products_BST = torch.bmm(source_BSD, target_BTD.transpose(1, 2))
    padding_BST = ~masks.cross()
    products_BST = products_BST.masked_fill(padding_BST, torch.finfo(products_BST.dtype).min)
    forward_BST = products_BST.softmax(dim=2).masked_fill(padding_BST, 0.0)
    backward_BST = products_BST.softmax(dim=1).masked_fill(padding_BST, 0.0)
    linked_BST = (forward_BST > threshold) & (backward_BST > threshold)
    return Decision(linked_BST & masks.cross(), forward_BST, backward_BST)


def _decide(linked_BST: Tensor, similarity_BST: Tensor) -> Decision:
    return Decision(linked_BST, similarity_BST, similarity_BST)
