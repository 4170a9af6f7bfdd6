"""The optimizer and the schedule that pretraining and finetuning share."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.pretrain.optimizer import (
    export_moments,
    import_moments,
    learning_rate,
    make_optimizer,
    set_rate,
)


def make(model: nn.Module, weight_decay: float = 0.1) -> torch.optim.AdamW:
    return make_optimizer(
        model, learning_rate=0.5, weight_decay=weight_decay, betas=(0.9, 0.98), epsilon=1e-6
    )


def test_the_schedule_is_linear_up_and_down() -> None:
    rates = [learning_rate(step, 1.0, 10, 4) for step in range(11)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])
    assert learning_rate(0, 1.0, 10, 0) == 1.0
    assert [learning_rate(step, 2.0, 4, 4) for step in range(4)] == [0.5, 1.0, 1.5, 2.0]


def test_biases_and_layer_norms_are_not_decayed() -> None:
    model = MaskedLM(EncoderConfig(50, 8, 1, 2, 16, 8))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = make(model).param_groups
    decayed, spared = ({names[id(p)] for p in group["params"]} for group in groups)
    assert all(name.endswith("weight") and "norm" not in name for name in decayed)
    assert all("norm" in name or name.endswith("bias") for name in spared)
    assert len(decayed) + len(spared) == len(names)


def test_decay_is_decoupled_and_follows_the_rate() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    optimizer = make(model)
    set_rate(optimizer, 0.25)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    weight, *rest = model.parameters()
    torch.testing.assert_close(weight.detach(), before[0] * (1 - 0.25 * 0.1))
    assert all(torch.equal(a, b) for a, b in zip(rest, before[1:], strict=True))


def test_moments_move_to_another_optimizer_by_name() -> None:
    def take_steps(model: nn.Module, optimizer: torch.optim.AdamW, *seeds: int) -> None:
        for seed in seeds:
            for number, parameter in enumerate(model.parameters()):
                generator = torch.Generator().manual_seed(10 * seed + number)
                if parameter.requires_grad:
                    parameter.grad = torch.randn(parameter.shape, generator=generator)
            optimizer.step()

    models = [nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)) for _ in range(2)]
    for model in models:
        model.load_state_dict(models[0].state_dict())
        model[0].requires_grad_(False)
    first, second = map(make, models)
    take_steps(models[0], first, 1, 2)
    moments = {name: tensor.clone() for name, tensor in export_moments(first, models[0]).items()}
    assert set(moments) == {
        "exp_avg.1.weight", "exp_avg.1.bias", "exp_avg_sq.1.weight", "exp_avg_sq.1.bias",
    }  # fmt: skip
    models[1].load_state_dict(models[0].state_dict())
    import_moments(second, models[1], moments, 2)
    take_steps(models[0], first, 3)
    take_steps(models[1], second, 3)
    assert torch.equal(models[0][1].weight, models[1][1].weight)
    assert torch.equal(models[0][1].bias, models[1][1].bias)
