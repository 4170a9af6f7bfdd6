from __future__ import annotations

import random

import pytest
import torch

from metaxlm.probe.aligners import Masks
from metaxlm.probe.aligners import balance, link_transport

Matrix = list[list[float]]


def align_step_by_step(source: Matrix, target: Matrix) -> set[tuple[int, int]]:
    """The aligner of XLM-Align as it is described, one pair and one number at a time."""
    plan = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in target] for x in source]
    plan = [[value if value > 0 else 1e-6 for value in row] for row in plan]
    rows, columns = range(len(source)), range(len(target))
    column_plan = plan
    for _ in range(2):
        column_sums = [sum(plan[i][j] for i in rows) for j in columns]
        column_plan = [[plan[i][j] / column_sums[j] for j in columns] for i in rows]
        row_sums = [sum(column_plan[i]) for i in rows]
        plan = [[column_plan[i][j] / row_sums[i] for j in columns] for i in rows]
    links = set()
    for i in rows:
        j = max(columns, key=lambda j: plan[i][j])
        if i == max(rows, key=lambda i: column_plan[i][j]):
            links.add((i, j))
    return links


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batched_equals_step_by_step(dtype: torch.dtype) -> None:
    draw = random.Random(5)
    generator = torch.Generator().manual_seed(5)
    num_cases = num_links = num_clamped = 0
    while num_cases < 1_000:
        sizes = [(draw.randint(1, 9), draw.randint(1, 9)) for _ in range(draw.randint(1, 12))]
        num_cases += len(sizes)
        longest = [max(side) for side in zip(*sizes, strict=True)]
        # Padding is filled with large numbers: it must not matter what stands there.
        source = torch.full((len(sizes), longest[0], 6), 50.0, dtype=dtype)
        target = torch.full((len(sizes), longest[1], 6), 50.0, dtype=dtype)
        shift = draw.choice([0.0, 0.3, 1.0])  # from half negative to all positive products
        for k, (s, t) in enumerate(sizes):
            source[k, :s] = torch.randn(s, 6, generator=generator, dtype=dtype) + shift
            target[k, :t] = torch.randn(t, 6, generator=generator, dtype=dtype) + shift
            num_clamped += int(((source[k, :s] @ target[k, :t].T) <= 0).sum())
        source_mask = torch.arange(longest[0]) < torch.tensor([s for s, _ in sizes])[:, None]
        target_mask = torch.arange(longest[1]) < torch.tensor([t for _, t in sizes])[:, None]
        linked = link_transport(source, target, Masks(source_mask, target_mask)).linked_BST
        for k, (s, t) in enumerate(sizes):
            expected = align_step_by_step(source[k, :s].tolist(), target[k, :t].tolist())
            assert {tuple(link) for link in linked[k].nonzero().tolist()} == expected
            num_links += len(expected)
    assert num_links > 2_000
    assert num_clamped > 1_000


def test_all_products_negative() -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)
    decision = link_transport(torch.ones(1, 2, 3), -torch.ones(1, 2, 3), Masks(mask, mask))
    assert decision.linked_BST.nonzero().tolist() == [[0, 0, 0]]


def test_more_iterations_change_the_plan_and_the_links() -> None:
    draw = torch.Generator().manual_seed(1)
    source, target = (torch.randn(40, 6, 4, generator=draw) for _ in range(2))
    masks = Masks(*(torch.ones(40, 6, dtype=torch.bool),) * 2)
    two, twenty = (link_transport(source, target, masks, iterations=n) for n in (2, 20))
    assert not torch.equal(two.linked_BST, twenty.linked_BST)
    # Rows sum to 1 by the last step, columns only after many.
    assert (twenty.forward_BST.sum(dim=2) - 1).abs().max() < 1e-9
    errors = [(d.forward_BST.sum(dim=1) - 1).abs().mean() for d in (two, twenty)]
    assert errors[1] < 0.5 * errors[0]
    assert torch.equal(two.weigh(), torch.minimum(two.forward_BST, two.backward_BST))


def test_balance_normalizes_columns_then_rows() -> None:
    mass = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0)) + 0.1
    by_column, by_row = balance(mass, 1)
    torch.testing.assert_close(by_column.sum(dim=1), torch.ones(2, 4))
    torch.testing.assert_close(by_row.sum(dim=2), torch.ones(2, 3))
    torch.testing.assert_close(by_column, mass / mass.sum(dim=1, keepdim=True))
    second_column, _ = balance(mass, 2)
    torch.testing.assert_close(second_column, by_row / by_row.sum(dim=1, keepdim=True))


def test_empty_rows_and_columns_stay_empty() -> None:
    mass = torch.ones(1, 3, 3)
    mass[0, 2] = mass[0, :, 2] = 0.0
    by_column, by_row = balance(mass, 2)
    for plan in (by_column, by_row):
        assert plan.isfinite().all()
        assert plan[0, 2].abs().sum() == plan[0, :, 2].abs().sum() == 0
