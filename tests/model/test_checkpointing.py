"""Layers that are computed again in the backward pass: the same results, fewer kept tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.model.encoder_kinds import FOREIGN, write_folder
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import EncoderConfig, NativeEncoder, Rotary
from metaxlm.model.huggingface import load_pretrained
from metaxlm.model.masked_lm import MaskedLM

FAMILIES = {
    "roberta": {},
    "mpnet": {"num_token_types": 0, "relative_buckets": 32},
    "modernbert": {"num_token_types": 0, "position_offset": 0, "rotary": Rotary(3, 2)},
}
UNSUPPORTED = ("albert", "xlm")
LENGTHS = [24, 24, 9]
Forward = Callable[[MaskedLM], Tensor]


def run_padded(model: MaskedLM) -> Tensor:
    mask_BL = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids_BL = torch.where(mask_BL, torch.arange(max(LENGTHS)) % 14 + 5, model.config.pad_id)
    hidden_BLD = model.encoder(ids_BL, mask_BL)
    return model.loss_sum(hidden_BLD, torch.arange(0, 50, 3), torch.arange(17) + 3)


def run_packed(model: MaskedLM) -> Tensor:
    assert isinstance(model.encoder, NativeEncoder)
    ids_N = torch.arange(sum(LENGTHS)) % 14 + 5
    hidden_1ND = model.encoder.encode_packed(ids_N, LENGTHS)[None]
    return model.loss_sum(hidden_1ND, torch.arange(0, 50, 3), torch.arange(17) + 3)


def measure(model: MaskedLM, forward: Forward) -> tuple[dict[str, Tensor], int]:
    """Return the loss and all gradients, and the bytes of activations kept in between."""
    kept: dict[int, int] = {}
    own = {parameter.data_ptr() for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    model.zero_grad()
    torch.manual_seed(3)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = forward(model)
    loss.backward()
    after = torch.rand(1)  # of the same generator
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return found | {"loss": loss.detach(), "after": after}, sum(kept.values())


def check(model: MaskedLM, forward: Forward) -> None:
    expected, before = measure(model, forward)
    again, _ = measure(model, forward)
    assert all(torch.equal(again[name], tensor) for name, tensor in expected.items())
    model.encoder.gradient_checkpointing_enable()
    found, after = measure(model, forward)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    assert after < before / 2
    with torch.no_grad():
        model.eval()
        assert forward(model).isfinite()


@pytest.mark.parametrize("forward", [run_padded, run_packed])
@pytest.mark.parametrize("family", FAMILIES)
def test_our_encoders_compute_the_same(family: str, forward: Forward) -> None:
    torch.manual_seed(0)
    settings = {"dropout": 0.2, "attention_dropout": 0.2} | FAMILIES[family]
    check(MaskedLM(EncoderConfig(40, 32, 4, 2, 64, 32, **settings)), forward)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in FOREIGN if name not in UNSUPPORTED])
def test_other_families_compute_the_same(name: str, tmp_path: Path) -> None:
    folder = write_folder(FOREIGN[name], tmp_path, num_hidden_layers=4)
    check(load_pretrained(folder).model.train(), run_padded)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_family_without_it_is_rejected(name: str, tmp_path: Path) -> None:
    model = load_pretrained(write_folder(FOREIGN[name], tmp_path)).model
    with pytest.raises(MetaXLMError, match=f"^{name}: transformers cannot checkpoint"):
        model.encoder.gradient_checkpointing_enable()
