from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.probe.aligners import AlignSettings, Masks, link_units, solve_plan

Matrix = list[list[float]]
Links = set[tuple[int, int]]
SIZES = [(1, 1), (1, 5), (4, 1), (3, 7), (9, 4), (6, 6), (2, 8)]


def multiply(source: Matrix, target: Matrix) -> Matrix:
    return [[sum(a * b for a, b in zip(x, y, strict=True)) for y in target] for x in source]


def find_cosines(source: Matrix, target: Matrix, distortion: float = 0.0) -> Matrix:
    """Similarities as SimAlign defines them, one number at a time."""
    table = [
        [(p / math.hypot(*x) / math.hypot(*y) + 1) / 2 for p, y in zip(row, target, strict=True)]
        for row, x in zip(multiply(source, target), source, strict=True)
    ]
    if len(source) < 2 or len(target) < 2:
        return table
    for i, row in enumerate(table):
        for j in range(len(row)):
            apart = i / (len(source) - 1) - j / (len(target) - 1)
            row[j] *= 1 - distortion * apart**2
    return table


def find_mutual(by_row: Matrix, by_column: Matrix) -> Links:
    rows, columns = range(len(by_row)), range(len(by_row[0]))
    best_column = [max(columns, key=lambda j: by_row[i][j]) for i in rows]
    best_row = [max(rows, key=lambda i: by_column[i][j]) for j in columns]
    return {(i, best_column[i]) for i in rows if best_row[best_column[i]] == i}


def align_step_by_step(source: Matrix, target: Matrix, iterations: int = 2) -> Links:
    """The aligner of XLM-Align as its paper describes it, one pair and one number at a time."""
    plan = [[value if value > 0 else 1e-6 for value in row] for row in multiply(source, target)]
    rows, columns = range(len(source)), range(len(target))
    column_plan = plan
    for _ in range(iterations):
        column_sums = [sum(plan[i][j] for i in rows) for j in columns]
        column_plan = [[plan[i][j] / column_sums[j] for j in columns] for i in rows]
        row_sums = [sum(column_plan[i]) for i in rows]
        plan = [[column_plan[i][j] / row_sums[i] for j in columns] for i in rows]
    return find_mutual(plan, column_plan)


def repeat_mutual(table: Matrix, alpha: float, passes: int) -> Links:
    """SimAlign's itermax as its paper and code describe it."""
    links = find_mutual(table, table)
    if min(len(table), len(table[0])) <= 2:
        return links
    for _ in range(passes - 1):
        taken_rows, taken_columns = {i for i, _ in links}, {j for _, j in links}
        if len(taken_rows) == len(table) or len(taken_columns) == len(table[0]):
            break
        damped = [list(row) for row in table]
        for i, row in enumerate(damped):
            for j in range(len(row)):
                num_free = (i not in taken_rows) + (j not in taken_columns)
                row[j] *= (0.0, min(1.0, alpha), min(1.0, 2 * alpha))[num_free]
        new = {
            (i, j)
            for i, j in find_mutual(damped, damped)
            if i not in taken_rows or j not in taken_columns
        }
        if not new:
            break
        links |= new
    return links


def match_by_force(table: Matrix) -> Links:
    """The best of all matchings of the shorter side."""
    if len(table) > len(table[0]):
        turned = [list(column) for column in zip(*table, strict=True)]
        return {(i, j) for j, i in match_by_force(turned)}
    ways = itertools.permutations(range(len(table[0])), len(table))
    best = max(ways, key=lambda way: sum(table[i][j] for i, j in enumerate(way)))
    return set(enumerate(best))


def link_probable(source: Matrix, target: Matrix, threshold: float) -> Links:
    """awesome-align: softmax of the dot products in both directions."""
    products = multiply(source, target)
    row_sums = [sum(map(math.exp, row)) for row in products]
    column_sums = [sum(map(math.exp, column)) for column in zip(*products, strict=True)]
    return {
        (i, j)
        for i, row in enumerate(products)
        for j, product in enumerate(row)
        if min(math.exp(product) / row_sums[i], math.exp(product) / column_sums[j]) > threshold
    }


def call_pot(costs: np.ndarray, temperature: float) -> np.ndarray:
    """The plan of POT for equal masses."""
    ot = pytest.importorskip("ot", reason="POT is not installed")
    masses = (np.full(size, 1 / size) for size in costs.shape)
    return np.asarray(ot.sinkhorn(*masses, costs, temperature, "sinkhorn_log", 9_999, 1e-12))


def link_one(source: Tensor, target: Tensor, settings: AlignSettings) -> Links:
    rows, columns = source.tolist(), target.tolist()
    if settings.method == "transport":
        return align_step_by_step(rows, columns, settings.iterations)
    if settings.method == "softmax":
        return link_probable(rows, columns, settings.threshold)
    table = find_cosines(rows, columns, settings.distortion)
    if settings.method == "argmax":
        return find_mutual(table, table)
    if settings.method == "itermax":
        return repeat_mutual(table, settings.alpha, settings.passes)
    return match_by_force(table)


def mask_sizes(sizes: list[tuple[int, int]]) -> Masks:
    lengths = [torch.tensor(side) for side in zip(*sizes, strict=True)]
    return Masks(*(torch.arange(int(n.max())) < n[:, None] for n in lengths))


CASES = [
    AlignSettings(),
    AlignSettings(iterations=20),
    AlignSettings(method="argmax"),
    AlignSettings(method="argmax", distortion=0.5),
    AlignSettings(method="itermax"),
    AlignSettings(method="itermax", passes=4),
    AlignSettings(method="itermax", passes=3, alpha=0.45),
    AlignSettings(method="itermax", alpha=0.0),
    AlignSettings(method="match"),
    AlignSettings(method="match", distortion=1.0),
    AlignSettings(method="softmax"),
    AlignSettings(method="softmax", threshold=0.3),
]


def draw_pairs(
    sizes: list[tuple[int, int]], seed: int, shift: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Random units; padding is filled with large numbers, which must not matter."""
    generator = torch.Generator().manual_seed(seed)
    source, target = (torch.full((len(sizes), max(n), 5), 9.0) for n in zip(*sizes, strict=True))
    for k, (s, t) in enumerate(sizes):
        source[k, :s] = torch.randn(s, 5, generator=generator) + shift
        target[k, :t] = torch.randn(t, 5, generator=generator) + shift
    return source, target


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_batched_equals_the_definition_of_each_aligner(settings: AlignSettings) -> None:
    draw = random.Random(7)
    most = 5 if settings.method == "match" else 11
    num_links = 0
    for batch in range(40):
        sizes = [(draw.randint(1, most), draw.randint(1, most)) for _ in range(draw.randint(1, 9))]
        shift = draw.choice([0.0, 0.3, 1.0]) if settings.method == "transport" else 0.0
        source, target = draw_pairs(sizes, batch, shift)
        decision = link_units(source, target, mask_sizes(sizes), settings)
        for k, (s, t) in enumerate(sizes):
            expected = link_one(source[k, :s], target[k, :t], settings)
            assert {tuple(link) for link in decision.linked_BST[k].nonzero().tolist()} == expected
            num_links += len(expected)
            weights = decision.weigh()[k, :s, :t]
            assert (weights >= 0).all()
            assert (weights <= 1 + 1e-6).all()
    assert num_links > 200


def test_sinkhorn_equals_pot() -> None:
    # A plan with one unit on a side leaves no choice: a test of its own covers that.
    sizes = [(2, 2), (5, 3), (4, 9), (11, 6), (7, 7), (2, 10)]
    source, target = draw_pairs(sizes, 7)
    both = [AlignSettings(method="sinkhorn", tolerance=1e-9, share=share) for share in (0.0, 0.9)]
    all_links, few = (link_units(source, target, mask_sizes(sizes), one) for one in both)
    num_few = 0
    for k, (s, t) in enumerate(sizes):
        a, b = (F.normalize(x.double(), dim=1) for x in (source[k, :s], target[k, :t]))
        # Two units exchange at most the mass of the lighter one.
        shares = call_pot((1 - a @ b.T).numpy(), 0.1) * max(s, t)
        np.testing.assert_allclose(all_links.weigh()[k, :s, :t], shares, atol=1e-5)
        expected = find_mutual(shares.tolist(), shares.tolist())
        assert {tuple(link) for link in all_links.linked_BST[k].nonzero().tolist()} == expected
        most = {(i, j) for i, j in expected if shares[i, j] >= 0.9}
        assert {tuple(link) for link in few.linked_BST[k].nonzero().tolist()} == most
        num_few += len(most)
    assert num_few > 2


def test_all_products_negative() -> None:
    masks = mask_sizes([(2, 2)])
    decision = link_units(torch.ones(1, 2, 3), -torch.ones(1, 2, 3), masks, AlignSettings())
    assert decision.linked_BST.nonzero().tolist() == [[0, 0, 0]]


def draw_costs(sizes: list[tuple[int, int]]) -> Tensor:
    """Costs between 0 and 2 as of cosines; padding holds values that must not matter."""
    generator = torch.Generator().manual_seed(0)
    height, width = (max(side) for side in zip(*sizes, strict=True))
    costs = torch.full((len(sizes), height, width), -9.0, dtype=torch.float64)
    for k, (s, t) in enumerate(sizes):
        costs[k, :s, :t] = 2 * torch.rand(s, t, generator=generator, dtype=torch.float64)
    return costs


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.05])
def test_plan_equals_pot(temperature: float) -> None:
    costs = draw_costs(SIZES)
    plans = solve_plan(costs, mask_sizes(SIZES), temperature, 1e-9, 5_000)
    for k, (s, t) in enumerate(SIZES):
        expected = call_pot(costs[k, :s, :t].numpy(), temperature)
        np.testing.assert_allclose(plans[k, :s, :t].numpy(), expected, atol=1e-6, rtol=0)
        assert plans[k].sum() == pytest.approx(1.0)
        assert plans[k, s:].abs().sum() == plans[k, :, t:].abs().sum() == 0


def test_plan_of_a_pair_does_not_depend_on_the_batch() -> None:
    """Bit by bit: a finished pair does not change while harder ones continue."""
    draw = random.Random(0)
    sizes = [(draw.randint(1, 9), draw.randint(1, 9)) for _ in range(16)]
    costs, masks = draw_costs(sizes), mask_sizes(sizes)
    together = solve_plan(costs, masks, 0.05, 1e-8, 500)
    for k in range(len(sizes)):
        own = Masks(masks.source_BS[k : k + 1], masks.target_BT[k : k + 1])
        assert torch.equal(together[k], solve_plan(costs[k : k + 1], own, 0.05, 1e-8, 500)[0])


def test_the_limit_of_iterations() -> None:
    """Without time to converge the plan is that of the last iteration; rows sum to their mass."""
    costs, masks = draw_costs([(6, 6)]), mask_sizes([(6, 6)])
    exact = solve_plan(costs, masks, 0.05, 1e-9, 5_000)
    for limit in (1, 3, 10, 15):
        plan = solve_plan(costs, masks, 0.05, 1e-9, limit)
        assert torch.equal(plan, solve_plan(costs, masks, 0.05, 0.0, limit))
        torch.testing.assert_close(plan.sum(dim=2), torch.full((1, 6), 1 / 6).double())
        assert (plan - exact).abs().max() > 1e-6


def test_sinkhorn_links_the_cheapest_if_a_side_has_one_unit() -> None:
    """All shares are equal there, and rounding must not decide."""
    draw = torch.Generator().manual_seed(0)
    source, target = (torch.randn(50, n, 8, generator=draw) for n in (1, 6))
    decision = link_units(source, target, mask_sizes([(1, 6)] * 50), AlignSettings("sinkhorn"))
    cosines = torch.cosine_similarity(source, target, dim=2)
    expected = [[k, 0, int(cosines[k].argmax())] for k in range(50)]
    assert decision.linked_BST.nonzero().tolist() == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "eflomal"}, "method is 'eflomal'; known: transport, sinkhorn, argmax"),
        ({"iterations": 0}, "iterations is 0; use 1 or more"),
        ({"temperature": float("inf")}, "temperature is inf; use a positive number"),
        ({"distortion": -0.1}, "distortion is -0.1; use 0 to 1"),
    ],
)
def test_bad_settings(values: dict[str, object], message: str) -> None:
    with pytest.raises(MetaXLMError, match=message):
        AlignSettings(**values)  # type: ignore[arg-type]
