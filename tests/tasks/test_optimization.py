from __future__ import annotations

import pytest
import torch
from torch import nn

from metaxlm.tasks.optimization import make_optimizer, schedule_rate, set_rate
from metaxlm.tasks.task import FinetuneSettings


def test_rate_rises_for_a_tenth_and_falls_to_zero() -> None:
    rates = [schedule_rate(step, 100, 0.1) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * (k + 1) for k in range(10)])
    assert rates[10] == 1.0
    assert rates[55] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(1 / 90)
    assert schedule_rate(100, 100, 0.1) == 0.0


def test_rate_without_warmup_and_with_nothing_else() -> None:
    assert schedule_rate(0, 5, 0.1) == 1.0
    assert [schedule_rate(step, 4, 1.0) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


def test_only_matrices_decay() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    settings = FinetuneSettings(epochs=1, learning_rate=0.5, weight_decay=0.1)
    optimizer = make_optimizer(model, settings, torch.device("cpu"))
    set_rate(optimizer, 0.25)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    weight, *rest = model.parameters()
    torch.testing.assert_close(weight.detach(), before[0] * (1 - 0.25 * 0.1))
    assert all(torch.equal(a, b) for a, b in zip(rest, before[1:], strict=True))
