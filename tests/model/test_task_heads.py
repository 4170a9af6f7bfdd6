from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from metaxlm.model.encoder import Encoder, EncoderConfig
from metaxlm.model.heads import ClassificationHead, SpanHead, TaggingHead, TaskModel

CONFIG = EncoderConfig(
    vocab_size=60, hidden_size=64, num_layers=1, num_heads=4, ffn_size=32, max_positions=16
)
HIDDEN = torch.randn(2, 9, 64, generator=torch.Generator().manual_seed(0))


def make_heads(config: EncoderConfig = CONFIG) -> list[nn.Module]:
    torch.manual_seed(0)
    return [ClassificationHead(config, 3), TaggingHead(config, 7), SpanHead(config)]


def test_shapes() -> None:
    shapes = [tuple(head(HIDDEN).shape) for head in make_heads()]
    assert shapes == [(2, 3), (2, 9, 7), (2, 9, 2)]


def test_fresh_heads_are_small_and_seeded() -> None:
    for head, same in zip(make_heads(), make_heads(), strict=True):
        for (name, value), again in zip(head.named_parameters(), same.parameters(), strict=True):
            assert torch.equal(value, again), name
            if name.endswith("bias"):
                assert value.eq(0).all(), name
            else:
                assert value.std().item() == pytest.approx(0.02, rel=0.25), name


def test_classification_reads_the_first_token_only() -> None:
    head = make_heads()[0].eval()
    changed = HIDDEN.clone()
    changed[:, 1:] += 1.0
    assert torch.equal(head(changed), head(HIDDEN))
    changed[:, 0] += torch.arange(64)
    assert not torch.allclose(head(changed), head(HIDDEN))


@pytest.mark.parametrize("index", [0, 1])
def test_dropout_acts_in_training_only(index: int) -> None:
    head = make_heads()[index]
    assert not torch.equal(head(HIDDEN), head(HIDDEN))
    head.eval()
    assert torch.equal(head(HIDDEN), head(HIDDEN))
    still = make_heads(dataclasses.replace(CONFIG, dropout=0.0))[index]
    assert torch.equal(still(HIDDEN), still(HIDDEN))


def test_classification_drops_before_and_after_the_dense_layer() -> None:
    head = make_heads(dataclasses.replace(CONFIG, dropout=0.5))[0]
    assert isinstance(head, ClassificationHead)
    seen: dict[str, torch.Tensor] = {}
    for name in ("dense", "output"):
        module = head.get_submodule(name)
        module.register_forward_pre_hook(lambda _, args, name=name: seen.update({name: args[0]}))
    head(HIDDEN)
    for name in ("dense", "output"):
        assert 0.3 < seen[name].eq(0).float().mean().item() < 0.7, name


def test_a_task_model_hides_the_padding() -> None:
    torch.manual_seed(0)
    model = TaskModel(Encoder(CONFIG), TaggingHead(CONFIG, 7)).eval()
    ids = torch.tensor([[5, 6, 7, 1, 1]])
    mask = torch.tensor([[True, True, True, False, False]])
    torch.testing.assert_close(model(ids, mask)[:, :3], model(ids[:, :3]))
    assert not torch.allclose(model(ids)[:, :3], model(ids, mask)[:, :3])
