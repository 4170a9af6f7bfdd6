from __future__ import annotations

import random

import numpy as np
import ot
import pytest
import torch
from torch import Tensor

from metaxlm.probe.aligners import Masks
from metaxlm.probe.aligners import link_sinkhorn, solve_plan

SIZES = [(1, 1), (1, 5), (4, 1), (3, 7), (9, 4), (6, 6), (2, 8)]


def mask_sizes(sizes: list[tuple[int, int]]) -> Masks:
    lengths = [torch.tensor(side) for side in zip(*sizes, strict=True)]
    return Masks(*(torch.arange(int(n.max())) < n[:, None] for n in lengths))


def draw_costs(sizes: list[tuple[int, int]], seed: int = 0) -> Tensor:
    """Costs between 0 and 2 as of cosines; padding holds what must not matter."""
    generator = torch.Generator().manual_seed(seed)
    height, width = (max(side) for side in zip(*sizes, strict=True))
    costs = torch.full((len(sizes), height, width), -9.0, dtype=torch.float64)
    for k, (s, t) in enumerate(sizes):
        costs[k, :s, :t] = 2 * torch.rand(s, t, generator=generator, dtype=torch.float64)
    return costs


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.05])
def test_equals_pot(temperature: float) -> None:
    costs = draw_costs(SIZES)
    plans = solve_plan(costs, mask_sizes(SIZES), temperature, 1e-9, 5_000)
    for k, (s, t) in enumerate(SIZES):
        expected = ot.sinkhorn(
            np.full(s, 1 / s),
            np.full(t, 1 / t),
            costs[k, :s, :t].numpy(),
            temperature,
            method="sinkhorn_log",
            numItermax=5_000,
            stopThr=1e-10,
        )
        np.testing.assert_allclose(plans[k, :s, :t].numpy(), expected, atol=1e-6, rtol=0)
        assert plans[k].sum() == pytest.approx(1.0)
        assert plans[k, s:].abs().sum() == plans[k, :, t:].abs().sum() == 0


def test_a_pair_does_not_see_the_others() -> None:
    """To the last bit: a pair that is done stays as it is while harder ones go on."""
    draw = random.Random(0)
    sizes = [(draw.randint(1, 9), draw.randint(1, 9)) for _ in range(60)]
    costs, masks = draw_costs(sizes), mask_sizes(sizes)
    together = solve_plan(costs, masks, 0.05, 1e-8, 500)
    for k in range(len(sizes)):
        alone = solve_plan(
            costs[k : k + 1],
            Masks(masks.source_BS[k : k + 1], masks.target_BT[k : k + 1]),
            0.05,
            1e-8,
            500,
        )
        assert torch.equal(together[k], alone[0])


def test_stops_at_the_tolerance_or_the_iterations() -> None:
    costs, masks = draw_costs([(6, 6)]), mask_sizes([(6, 6)])

    def column_error(tolerance: float, iterations: int) -> float:
        plan = solve_plan(costs, masks, 0.1, tolerance, iterations)
        assert (plan.sum(dim=2) - 1 / 6).abs().max() < 1e-12
        return float((plan.sum(dim=1) - 1 / 6).abs().max())

    assert 1e-9 < column_error(1e-4, 10_000) <= 1e-4
    assert column_error(1e-12, 10_000) <= 1e-12
    assert column_error(1e-12, 3) > 1e-3


def test_links_are_mutual_and_share_enough() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = [size for size in SIZES if min(size) > 1] * 3
    masks = mask_sizes(sizes)
    source, target = (
        torch.randn(*mask.shape, 8, generator=generator)
        for mask in (masks.source_BS, masks.target_BT)
    )
    settings = {"temperature": 0.1, "tolerance": 1e-9, "max_iterations": 1_000}
    all_links = link_sinkhorn(source, target, masks, threshold=0.0, **settings)
    some = link_sinkhorn(source, target, masks, threshold=0.9, **settings)
    num_dropped = 0
    for k, (s, t) in enumerate(sizes):
        a, b = source[k, :s].double().numpy(), target[k, :t].double().numpy()
        a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
        plan = ot.sinkhorn(
            np.full(s, 1 / s), np.full(t, 1 / t), 1 - a @ b.T, 0.1, "sinkhorn_log", 9_999, 1e-12
        )
        mutual = {
            (i, j)
            for i in range(s)
            for j in range(t)
            if plan[i].argmax() == j and plan[:, j].argmax() == i
        }
        # The most that two units can move is the mass of the smaller one.
        heavy = {(i, j) for i, j in mutual if plan[i, j] >= 0.9 * min(1 / s, 1 / t)}
        assert {tuple(link) for link in all_links.linked_BST[k].nonzero().tolist()} == mutual
        assert {tuple(link) for link in some.linked_BST[k].nonzero().tolist()} == heavy
        num_dropped += len(mutual) - len(heavy)
        np.testing.assert_allclose(all_links.weigh()[k, :s, :t], plan * max(s, t), atol=1e-5)
    assert num_dropped > 0
    assert all_links.weigh().max() <= 1 + 1e-9


def test_a_side_of_one_unit_takes_the_cheapest() -> None:
    """The plan leaves no choice there; rounding must not decide."""
    draw = torch.Generator().manual_seed(0)
    source, target = (torch.randn(50, n, 8, generator=draw) for n in (1, 6))
    masks = mask_sizes([(1, 6)] * 50)
    decision = link_sinkhorn(
        source, target, masks, temperature=0.1, tolerance=1e-7, max_iterations=100, threshold=0.0
    )
    cosines = torch.cosine_similarity(source, target, dim=2)
    expected = [[k, 0, int(cosines[k].argmax())] for k in range(50)]
    assert decision.linked_BST.nonzero().tolist() == expected
