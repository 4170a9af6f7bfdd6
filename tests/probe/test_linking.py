from __future__ import annotations

import itertools
import math
import random

import pytest
import torch

from metaxlm.errors import MetaXLMError
from metaxlm.probe.aligners import AlignSettings, link_units
from metaxlm.probe.aligners import Masks

Matrix = list[list[float]]
Links = set[tuple[int, int]]


def find_cosines(source: Matrix, target: Matrix, distortion: float = 0.0) -> Matrix:
    """Similarities as SimAlign defines them, one number at a time."""

    def compare(x: list[float], y: list[float]) -> float:
        product = sum(a * b for a, b in zip(x, y, strict=True))
        return (product / math.hypot(*x) / math.hypot(*y) + 1) / 2

    table = [[compare(x, y) for y in target] for x in source]
    if len(source) < 2 or len(target) < 2:
        return table
    for i, row in enumerate(table):
        for j in range(len(row)):
            apart = i / (len(source) - 1) - j / (len(target) - 1)
            row[j] *= 1 - distortion * apart**2
    return table


def find_mutual(table: Matrix) -> Links:
    rows, columns = range(len(table)), range(len(table[0]))
    best_column = [max(columns, key=lambda j: table[i][j]) for i in rows]
    best_row = [max(rows, key=lambda i: table[i][j]) for j in columns]
    return {(i, best_column[i]) for i in rows if best_row[best_column[i]] == i}


def repeat_mutual(table: Matrix, alpha: float, passes: int) -> Links:
    """SimAlign's itermax as its paper and code say, one pass after the other."""
    links = find_mutual(table)
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
            (i, j) for i, j in find_mutual(damped) if i not in taken_rows or j not in taken_columns
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
    products = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in target] for x in source]
    row_sums = [sum(map(math.exp, row)) for row in products]
    column_sums = [sum(map(math.exp, column)) for column in zip(*products, strict=True)]
    return {
        (i, j)
        for i, row in enumerate(products)
        for j, product in enumerate(row)
        if min(math.exp(product) / row_sums[i], math.exp(product) / column_sums[j]) > threshold
    }


def link_one(source: Matrix, target: Matrix, settings: AlignSettings) -> Links:
    if settings.method == "softmax":
        return link_probable(source, target, settings.threshold)
    table = find_cosines(source, target, settings.distortion)
    if settings.method == "argmax":
        return find_mutual(table)
    if settings.method == "itermax":
        return repeat_mutual(table, settings.alpha, settings.passes)
    return match_by_force(table)


CASES = [
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


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_batched_equals_one_by_one(settings: AlignSettings) -> None:
    draw = random.Random(7)
    generator = torch.Generator().manual_seed(7)
    most = 5 if settings.method == "match" else 11
    num_cases = num_links = 0
    while num_cases < 200:
        sizes = [(draw.randint(1, most), draw.randint(1, most)) for _ in range(draw.randint(1, 9))]
        num_cases += len(sizes)
        longest = [max(side) for side in zip(*sizes, strict=True)]
        # Padding is filled with large numbers: it must not matter what stands there.
        source = torch.full((len(sizes), longest[0], 5), 9.0)
        target = torch.full((len(sizes), longest[1], 5), 9.0)
        for k, (s, t) in enumerate(sizes):
            source[k, :s] = torch.randn(s, 5, generator=generator)
            target[k, :t] = torch.randn(t, 5, generator=generator)
        lengths = [torch.tensor(side) for side in zip(*sizes, strict=True)]
        masks = Masks(*(torch.arange(int(n.max())) < n[:, None] for n in lengths))
        decision = link_units(source, target, masks, settings)
        for k, (s, t) in enumerate(sizes):
            expected = link_one(source[k, :s].tolist(), target[k, :t].tolist(), settings)
            assert {tuple(link) for link in decision.linked_BST[k].nonzero().tolist()} == expected
            num_links += len(expected)
            weights = decision.weigh()[k, :s, :t]
            assert (weights >= 0).all()
            assert (weights <= 1 + 1e-6).all()
    assert num_links > num_cases


def test_passes_of_itermax_add_links() -> None:
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randn(30, 9, 5, generator=generator) for _ in range(2))
    masks = Masks(*(torch.ones(30, 9, dtype=torch.bool),) * 2)
    counts = []
    for passes in (1, 2, 3):
        settings = AlignSettings(method="itermax", passes=passes)
        counts.append(int(link_units(source, target, masks, settings).linked_BST.sum()))
    argmax = link_units(source, target, masks, AlignSettings(method="argmax"))
    assert counts[0] == int(argmax.linked_BST.sum())
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "eflomal"}, "method is 'eflomal'; known: transport, sinkhorn, argmax"),
        ({"encoding": "both"}, "encoding is 'both'; known: joint, separate"),
        ({"words": "last"}, "words is 'last'; known: any, first, mean"),
        ({"iterations": 0}, "iterations is 0; use 1 or more"),
        ({"passes": 0}, "passes is 0"),
        ({"temperature": 0.0}, "temperature is 0.0; use a positive number"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"threshold": 1.5}, "threshold is 1.5; use 0 to 1"),
        ({"distortion": -0.1}, "distortion is -0.1; use 0 to 1"),
    ],
)
def test_bad_settings(values: dict[str, object], message: str) -> None:
    with pytest.raises(MetaXLMError, match=message):
        AlignSettings(**values)  # type: ignore[arg-type]
