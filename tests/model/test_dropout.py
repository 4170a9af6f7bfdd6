from __future__ import annotations

import pytest
import torch

from metaxlm.model.encoder import Dropout, draw_factors


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_values_are_dropped_as_often_as_asked_and_independently(p: float) -> None:
    torch.manual_seed(3)
    factors = draw_factors(torch.empty(1000, 401), p)
    assert factors.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])
    kept = (factors > 0).double()
    spread = (p * (1 - p)) ** 0.5
    assert float(kept.mean()) == pytest.approx(1 - p, abs=5 * spread / kept.numel() ** 0.5 + 1e-5)
    # Neighbors share a draw of the generator: four of them, and across rows.
    flat = (kept.flatten() - (1 - p)) / spread
    for distance in (1, 2, 3, 4, 401):
        correlation = float((flat[:-distance] * flat[distance:]).mean())
        assert abs(correlation) < 5 / len(flat) ** 0.5, distance


def test_the_gradient_goes_where_the_value_went() -> None:
    torch.manual_seed(0)
    values = torch.randn(7, 3, requires_grad=True)
    dropout = Dropout(0.5).train()
    output = dropout(values)
    output.sum().backward()
    assert values.grad is not None
    torch.testing.assert_close(values.grad * values, output)
    assert 0 < int((output == 0).sum()) < 21


def test_it_follows_the_seed_and_is_off_in_evaluation() -> None:
    values, dropout = torch.ones(1000), Dropout(0.3)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(dropout(values))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    assert dropout.eval()(values) is values
    assert Dropout(0.0)(values) is values
