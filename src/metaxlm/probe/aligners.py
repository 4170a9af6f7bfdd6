"""Six word aligners: link the units of two sentences by their hidden states.

`transport` is the aligner of the paper's Section 4.4; the others are for comparison. All are
batched over sentence pairs: padding is ignored, and no pair affects another. A unit is a subword
piece or a word. Shapes: B pairs, S source units, T target units, D hidden.
"""

from dataclasses import dataclass
from sys import float_info
from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.errors import MetaXLMError

Method = Literal["transport", "sinkhorn", "argmax", "itermax", "match", "softmax"]
Encoding = Literal["joint", "separate"]
WordRule = Literal["any", "first", "mean"]

SMALLEST_MASS = 1e-6  # replaces dot products that are not positive in `transport`
FEWEST_UNITS = 3  # SimAlign repeats the argmax only if both sides have as many units
CHECK_EVERY = 10  # iterations of `sinkhorn` between two error checks; a check waits for the device
TIE = 1e-9  # shares that differ by less are equal; the cost decides between them


@dataclass(frozen=True)
class AlignSettings:
    """An aligner and its parameters; the defaults are those of each author.

    The paper names XLM-Align's aligner and no settings: joint encoding and two iterations are from
    XLM-Align.
    """

    method: Method = "transport"
    """`transport`: the paper's; `sinkhorn`: entropic transport; `argmax`, `itermax`, `match`:
    SimAlign's; `softmax`: awesome-align's."""
    encoding: Encoding = "joint"
    """`joint`: one sequence `<s> source </s> target </s>`; `separate`: one sequence per side."""
    words: WordRule = "any"
    """`any`: linked pieces link their words; `first`: compare first pieces only; `mean`: compare
    words as means of their pieces."""
    iterations: int = 2  # `transport`: number of Sinkhorn iterations
    temperature: float = 0.1  # `sinkhorn`: weight of the entropy; small values are sharp and slow
    tolerance: float = 1e-7  # `sinkhorn`: largest error of a column's mass
    max_iterations: int = 1_000  # `sinkhorn`: largest number of iterations
    share: float = 0.0  # `sinkhorn`: smallest share of their mass that linked units exchange
    distortion: float = 0.0
    """`argmax`, `itermax`, `match`: penalty for units at opposite ends of their sentences."""
    alpha: float = 0.9  # `itermax`: factor of similarities to linked units in later passes
    passes: int = 2  # `itermax`: number of passes
    threshold: float = 1e-3  # `softmax`: smallest probability in both directions

    def __post_init__(self) -> None:
        for name, kind in (("method", Method), ("encoding", Encoding), ("words", WordRule)):
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise MetaXLMError(f"alignment: {name} is {getattr(self, name)!r}; known: {known}")
        for names, low, high, hint in (
            (("iterations", "max_iterations", "passes"), 1, np.inf, "1 or more"),
            (("temperature", "tolerance"), float_info.min, float_info.max, "a positive number"),
            (("share", "distortion", "alpha", "threshold"), 0, 1, "0 to 1"),
        ):
            for name in names:
                if not low <= getattr(self, name) <= high:
                    raise MetaXLMError(f"alignment: {name} is {getattr(self, name)}; use {hint}")


PAPER = AlignSettings()  # the aligner of the paper's Section 4.4


@dataclass(frozen=True)
class Decision:
    """Linked units, and the scores in [0, 1] in each direction that decided on them."""

    linked_BST: Tensor
    forward_BST: Tensor
    backward_BST: Tensor

    def weigh(self) -> Tensor:
        """Return the smaller score of both directions, [B, S, T], because a link needs both."""
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


def link_units(
    source_BSD: Tensor, target_BTD: Tensor, masks: Masks, settings: AlignSettings
) -> Decision:
    """Link the units of both sides with the aligner of the settings."""
    links = {"transport": _link_transport, "softmax": _link_softmax, "sinkhorn": _link_sinkhorn}
    if settings.method not in ("transport", "softmax"):  # they compare dot products, not cosines
        source_BSD, target_BTD = F.normalize(source_BSD, dim=-1), F.normalize(target_BTD, dim=-1)
    products_BST = torch.bmm(source_BSD, target_BTD.transpose(1, 2))
    return links.get(settings.method, _link_similar)(products_BST, masks, settings)


def _keep_mutual(by_row_BST: Tensor, by_column_BST: Tensor) -> Tensor:
    """Return True at mutual argmaxes; ties take the first. Padding must score lowest."""
    best_target_BS, best_source_BT = by_row_BST.argmax(dim=2), by_column_BST.argmax(dim=1)
    back_BS = best_source_BT.gather(1, best_target_BS)
    mutual_BS = back_BS == torch.arange(by_row_BST.shape[1], device=by_row_BST.device)
    linked_BST = torch.zeros_like(by_row_BST, dtype=torch.bool)
    return linked_BST.scatter_(2, best_target_BS[:, :, None], mutual_BS[:, :, None])


def _link_transport(products_BST: Tensor, masks: Masks, settings: AlignSettings) -> Decision:
    """Align as XLM-Align does: mutual argmax after Sinkhorn iterations on the dot products."""
    # In float64: a row whose products are all the smallest mass has 1 - 1e-7 in its columns, which
    # float32 would round to ties that depend on the batch.
    mass_BST = products_BST.double()
    mass_BST = mass_BST.masked_fill(mass_BST <= 0, SMALLEST_MASS)
    by_column_BST = by_row_BST = mass_BST * masks.cross()
    tiny = torch.finfo(mass_BST.dtype).tiny
    for _ in range(settings.iterations):
        by_column_BST = by_row_BST / by_row_BST.sum(dim=1, keepdim=True).clamp_min(tiny)
        by_row_BST = by_column_BST / by_column_BST.sum(dim=2, keepdim=True).clamp_min(tiny)
    return Decision(_keep_mutual(by_row_BST, by_column_BST), by_row_BST, by_column_BST)


def _link_sinkhorn(cosines_BST: Tensor, masks: Masks, settings: AlignSettings) -> Decision:
    cost_BST = 1.0 - cosines_BST.double()
    limits = settings.temperature, settings.tolerance, settings.max_iterations
    plan_BST = solve_plan(cost_BST, masks, *limits)
    # Two units exchange at most the mass of the lighter one, 1 / max(S, T).
    num_B = torch.maximum(masks.source_BS.sum(dim=1), masks.target_BT.sum(dim=1))
    share_BST = plan_BST * num_B[:, None, None]
    # A side of one unit must share evenly, whatever it costs: then the cheapest is the best.
    worth_BST = (share_BST - TIE * cost_BST).masked_fill(~masks.cross(), -1.0)
    linked_BST = _keep_mutual(worth_BST, worth_BST) & (share_BST >= settings.share)
    return Decision(linked_BST, share_BST, share_BST)


def solve_plan(
    cost_BST: Tensor, masks: Masks, temperature: float, tolerance: float, max_iterations: int
) -> Tensor:
    """Return the entropic transport plan (Cuturi 2013) between uniform masses, [B, S, T].

    Each pair stops when no column differs from 1 / T by more than the tolerance. Computed in the
    log domain, so that no temperature under- or overflows.
    """
    kernel_BST = (-cost_BST / temperature).masked_fill(~masks.cross(), float("-inf"))
    row_mass, column_mass = (
        (-mask.sum(dim=1, keepdim=True).to(cost_BST.dtype).log())
        .expand(mask.shape)
        .masked_fill(~mask, float("-inf"))
        for mask in (masks.source_BS, masks.target_BT)
    )
    rows_BS, columns_BT = torch.zeros_like(row_mass), torch.zeros_like(column_mass)
    open_A = torch.arange(len(cost_BST), device=cost_BST.device)
    kernel, rows = kernel_BST, rows_BS
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


def _link_similar(cosines_BST: Tensor, masks: Masks, settings: AlignSettings) -> Decision:
    """Link by SimAlign's similarities: cosines mapped to [0, 1], and -1 at padding."""
    similarity_BST = (cosines_BST + 1) / 2
    if settings.distortion:
        places_BS, places_BT = (
            torch.arange(mask.shape[1], device=mask.device, dtype=torch.float64)
            / (mask.sum(dim=1, keepdim=True) - 1).clamp_min(1)
            for mask in (masks.source_BS, masks.target_BT)
        )
        kept_BST = 1 - (places_BS[:, :, None] - places_BT[:, None, :]) ** 2 * settings.distortion
        single_B = (masks.source_BS.sum(dim=1) < 2) | (masks.target_BT.sum(dim=1) < 2)
        similarity_BST = similarity_BST * kept_BST.masked_fill(single_B[:, None, None], 1.0)
    similarity_BST = similarity_BST.masked_fill(~masks.cross(), -1.0)
    if settings.method == "match":
        linked_BST = _link_match(similarity_BST, masks)
    elif settings.method == "itermax":
        linked_BST = _link_itermax(similarity_BST, masks, settings)
    else:
        linked_BST = _keep_mutual(similarity_BST, similarity_BST)
    return Decision(linked_BST, similarity_BST, similarity_BST)


def _link_itermax(similarity_BST: Tensor, masks: Masks, settings: AlignSettings) -> Tensor:
    """Repeat the mutual argmax, with a factor of alpha per free unit, at most 1 (SimAlign)."""
    exact_BST = similarity_BST.double()  # in float32 the factor alpha would create ties
    linked_BST = _keep_mutual(exact_BST, exact_BST)
    num_B = torch.minimum(masks.source_BS.sum(dim=1), masks.target_BT.sum(dim=1))
    for _ in range(settings.passes - 1):
        free_BS = masks.source_BS & ~linked_BST.any(dim=2)
        free_BT = masks.target_BT & ~linked_BST.any(dim=1)
        num_free_BST = free_BS[:, :, None].double() + free_BT[:, None, :]
        damped_BST = exact_BST * (settings.alpha * num_free_BST).clamp_max(1.0)
        damped_BST = damped_BST.masked_fill(~masks.cross(), -1.0)
        goes_on_B = (num_B >= FEWEST_UNITS) & free_BS.any(dim=1) & free_BT.any(dim=1)
        new_BST = _keep_mutual(damped_BST, damped_BST) & (num_free_BST > 0)
        linked_BST = linked_BST | (new_BST & goes_on_B[:, None, None])
    return linked_BST


def _link_match(similarity_BST: Tensor, masks: Masks) -> Tensor:
    from scipy.optimize import linear_sum_assignment  # slow to import, and only used here

    similarity = similarity_BST.cpu().double().numpy()
    linked = np.zeros(similarity.shape, dtype=np.bool_)
    sizes = [mask.sum(dim=1).tolist() for mask in (masks.source_BS, masks.target_BT)]
    for k, (num_source, num_target) in enumerate(zip(*sizes, strict=True)):
        found = linear_sum_assignment(similarity[k, :num_source, :num_target], maximize=True)
        linked[k][found] = True
    return torch.from_numpy(linked).to(similarity_BST.device)


def _link_softmax(products_BST: Tensor, masks: Masks, settings: AlignSettings) -> Decision:
    padding_BST = ~masks.cross()
    products_BST = products_BST.masked_fill(padding_BST, torch.finfo(products_BST.dtype).min)
    forward_BST, backward_BST = (
        products_BST.softmax(dim=dim).masked_fill(padding_BST, 0.0) for dim in (2, 1)
    )
    linked_BST = (forward_BST > settings.threshold) & (backward_BST > settings.threshold)
    return Decision(linked_BST & ~padding_BST, forward_BST, backward_BST)
