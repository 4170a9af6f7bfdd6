"""The fused kernels compute what the plain encoder computes, on a GPU or in Triton's interpreter.

Without a GPU, `TRITON_INTERPRET=1 pytest tests/model/test_kernels.py` runs the kernels on the CPU.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.model.encoder import Encoder, EncoderConfig, Rotary
from metaxlm.model.masked_lm import MaskedLM

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or not (torch.cuda.is_available() or INTERPRETED),
    reason="no GPU with Triton",
)
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
LENGTHS = [40, 33, 17]
LENGTH, VOCABULARY = 40, 150


@pytest.fixture(autouse=True)
def exact_products() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture(autouse=True)
def scalars_of_new_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6's interpreter turns arrays of one number into numbers as NumPy 2.4 forbids."""
    if not INTERPRETED:
        return
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch(tensor: type, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch)


MPNET = {"num_token_types": 0, "relative_buckets": 32}
# The window is short enough for padding without any key.
MODERN = {"num_token_types": 0, "position_offset": 0, "rotary": Rotary(5, 2, 50.0, 7.0)}
each_family = pytest.mark.parametrize(
    "family", [{}, MPNET, MODERN], ids=["roberta", "mpnet", "modernbert"]
)


def make_model(dropout: float, width: int = 32, **family: object) -> MaskedLM:
    torch.manual_seed(0)
    config = EncoderConfig(
        VOCABULARY, width, 2, 2, 2 * width, 64, dropout=dropout, attention_dropout=dropout,
        **family,  # type: ignore[arg-type]
    )  # fmt: skip
    model = MaskedLM(config)
    with torch.no_grad():  # so that no bias or LayerNorm is trivial
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
        if isinstance(model.encoder, Encoder) and model.encoder.relative_bias is not None:
            model.encoder.relative_bias.table.weight.normal_()
    return model.to(DEVICE).train()


class Example:
    """Three blocks of different lengths, some predictions, two unused slots."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.lengths_B = torch.tensor(LENGTHS, dtype=torch.int32, device=DEVICE)
        self.mask_BL = torch.arange(LENGTH, device=DEVICE) < self.lengths_B[:, None]
        ids_BL = torch.randint(5, VOCABULARY, (len(LENGTHS), LENGTH)).to(DEVICE)
        ids_BL[:, :3] = 7  # a word in many places
        self.ids_BL = torch.where(self.mask_BL, ids_BL, 1)
        self.rows_M = torch.tensor([0, 3, 9, 44, 45, 46, 85, 86, 0, 0], device=DEVICE)
        self.labels_M = torch.tensor([3, 9, 77, 149, 20, 21, 5, 6, -100, -100], device=DEVICE)

    def plain(self, model: MaskedLM) -> tuple[Tensor, Tensor]:
        hidden_BLD = model.encoder(self.ids_BL, self.mask_BL)
        return hidden_BLD, model.loss_sum(hidden_BLD, self.rows_M, self.labels_M)

    def fused(
        self, model: MaskedLM, seed: int = 5, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        from metaxlm.model.kernels.blocks import Blocks

        blocks = Blocks(self.lengths_B, LENGTH, torch.tensor([seed], device=DEVICE), dtype)
        hidden_BLD = model.encoder.encode_blocks(self.ids_BL, blocks)
        return hidden_BLD, model.loss_sum(hidden_BLD, self.rows_M, self.labels_M, blocks)


def gradients(model: MaskedLM, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def distance(found: Tensor, wanted: Tensor) -> float:
    return ((found - wanted).norm() / wanted.norm().clamp_min(1e-12)).item()


# Products of float32 in Triton are rounded to tf32 on a GPU.
TOLERANCE = 1e-5 if INTERPRETED else 5e-3


@each_family
def test_states_loss_and_all_gradients_are_those_of_the_plain_encoder(
    family: dict[str, object],
) -> None:
    model, example = make_model(0.0, **family), Example()
    plain_states, plain_loss = example.plain(model)
    wanted = gradients(model, plain_loss)
    states, loss = example.fused(model)
    found = gradients(model, loss)
    assert loss.item() == pytest.approx(plain_loss.item(), rel=TOLERANCE)
    assert distance(states[example.mask_BL], plain_states[example.mask_BL]) < TOLERANCE
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert distance(found[name], gradient) < TOLERANCE, name


def test_parts_of_half_precision_are_added_up_in_float32() -> None:
    """In the interpreter float16, because it does not compute products of bfloat16."""
    model, example = make_model(0.0, **MODERN), Example()
    half, tolerance = (torch.float16, 5e-3) if INTERPRETED else (torch.bfloat16, 4e-2)
    plain_states, plain_loss = example.plain(model)
    wanted = gradients(model, plain_loss)
    with torch.autocast(DEVICE.type, half, cache_enabled=False):
        states, loss = example.fused(model, dtype=half)
    found = gradients(model, loss)
    assert states.dtype == half
    assert distance(states[example.mask_BL], plain_states[example.mask_BL]) < tolerance
    for name, gradient in wanted.items():
        assert found[name].dtype == torch.float32
        assert distance(found[name], gradient) < tolerance, name


@pytest.mark.parametrize("family", [{"num_token_types": 2}, MODERN], ids=["bert", "modernbert"])
def test_packed_blocks_are_those_of_the_plain_encoder(family: dict[str, object]) -> None:
    """No padding between the blocks, unused rows after them, two token types."""
    from metaxlm.model.kernels.blocks import Blocks

    model, example = make_model(0.0, **family), Example()
    types_BL = (torch.arange(LENGTH, device=DEVICE) > 9).long().expand_as(example.ids_BL)
    plain_BLD = model.encoder(example.ids_BL, example.mask_BL, types_BL)
    weights_ND = torch.randn_like(plain_BLD[example.mask_BL])
    wanted = gradients(model, (plain_BLD[example.mask_BL] * weights_ND).sum())
    ids_N = F.pad(example.ids_BL[example.mask_BL], (0, 30), value=1)  # 30: 120 = 3 x 40 in all
    types_N = F.pad(types_BL[example.mask_BL], (0, 30))
    ends = torch.tensor(LENGTHS, device=DEVICE).cumsum(0)
    blocks = Blocks(
        example.lengths_B, LENGTH, torch.tensor([5], device=DEVICE), torch.float32,
        packed_starts_B1=F.pad(ends, (1, 0)).int(),
    )  # fmt: skip
    # What uninitialized memory may hold would show: NaN times zero is not zero.
    dirty = [torch.full((120, 128), float("nan"), device=DEVICE) for _ in range(20)]
    del dirty
    states_ND = model.encoder.encode_blocks(ids_N, blocks, types_N)
    assert states_ND.isfinite().all()
    real_ND = states_ND[: sum(LENGTHS)]
    found = gradients(model, (real_ND * weights_ND).sum())
    assert distance(real_ND, plain_BLD[example.mask_BL]) < TOLERANCE
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert distance(found[name], gradient) < TOLERANCE, name


@each_family
def test_gradients_with_dropout_are_those_of_the_loss(family: dict[str, object]) -> None:
    model, example = make_model(0.2, **family), Example()
    found = gradients(model, example.fused(model)[1])
    names = (
        "encoder.relative_bias.table.weight",
        "encoder.embeddings.words.weight",
        "encoder.embeddings.positions.weight",
        "encoder.layers.0.attention.qkv.weight",
        "encoder.layers.0.attention.qkv.bias",
        "encoder.layers.0.ffn_in.bias",
        "encoder.layers.0.ffn_norm.weight",
        "encoder.layers.0.ffn_in.weight",
        "encoder.layers.1.attention_norm.weight",
    )
    for name in (name for name in names if name in found):
        parameter, direction = model.get_parameter(name), found[name] / found[name].norm()
        with torch.no_grad():
            parameter += 5e-3 * direction
            above = float(example.fused(model)[1])
            parameter -= 1e-2 * direction
            below = float(example.fused(model)[1])
            parameter += 5e-3 * direction
        slope = (above - below) / 1e-2
        assert slope == pytest.approx(float(found[name].norm()), rel=0.02, abs=0.02), name


def test_dropout_follows_from_the_seed_and_is_off_for_measurements() -> None:
    model, example = make_model(0.3), Example()
    states = example.fused(model)[0]
    assert torch.equal(example.fused(model)[0], states)
    assert not torch.equal(example.fused(model, seed=6)[0], states)
    model.eval()
    assert torch.equal(example.fused(model, seed=6)[0], example.fused(model)[0])


@each_family
def test_layers_computed_again_have_the_same_gradients(family: dict[str, object]) -> None:
    model, example = make_model(0.2, **family), Example()
    wanted = gradients(model, example.fused(model)[1])
    model.encoder.gradient_checkpointing_enable()
    found = gradients(model, example.fused(model)[1])
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert torch.equal(found[name], gradient), name


@each_family
def test_frozen_weights_get_no_gradient_and_change_no_other(family: dict[str, object]) -> None:
    model, example = make_model(0.1, **family), Example()
    wanted = gradients(model, example.fused(model)[1])
    for parameter in model.encoder.layers.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    found = gradients(model, example.fused(model)[1])
    assert found.keys() == {name for name in wanted if not name.startswith("encoder.layers")}
    assert all(torch.equal(found[name], wanted[name]) for name in found)


def test_attention_drops_independently_and_as_often_as_asked() -> None:
    from metaxlm.model.kernels.attention import Shape, attend, make_column_keys

    length, heads, size, rate = 64, 2, 16, 0.25
    shape = Shape(8, length, heads, size, rate)
    # All keys alike: each weight is 1 / L before dropout. Values tell four of the keys apart.
    qkv = torch.zeros(8 * length, 3 * heads * size, device=DEVICE)
    values = qkv.view(8, length, 3, heads, size)[:, :, 2]
    for key in range(size):
        values[:, key, :, key] = 1
    lengths = torch.full((8,), length, dtype=torch.int32, device=DEVICE)
    seed = torch.tensor([3], device=DEVICE)
    starts = torch.arange(9, dtype=torch.int32, device=DEVICE) * length
    out, _ = attend(qkv, starts, lengths, make_column_keys(seed, length), seed, 1, shape)
    kept = (out.view(-1, size) > 0).double()
    torch.testing.assert_close(out.max().item(), 1 / length / (1 - rate), rtol=1e-3, atol=0)
    assert float(kept.mean()) == pytest.approx(1 - rate, abs=0.015)
    centered = (kept - (1 - rate)) / (rate * (1 - rate)) ** 0.5
    correlation = centered.T @ centered / len(kept)
    correlation.fill_diagonal_(0)
    assert float(correlation.abs().max()) < 5 / len(kept) ** 0.5


def test_attention_stays_finite_where_all_scores_are_far_below_zero() -> None:
    from metaxlm.model.kernels.attention import Shape, attend, attend_backward, make_column_keys

    heads, size, length = 2, 16, 40  # no multiple of a tile: some of its keys are none
    torch.manual_seed(0)
    shape = Shape(1, length, heads, size, 0.0)
    qkv = torch.randn(length, 3 * heads * size, device=DEVICE)
    parts = qkv.view(length, 3, heads, size)
    parts[:, 0] += 12
    parts[:, 1] -= 12  # scores around -600
    qkv = qkv.bfloat16().float()  # matrix units take 10 bits of a float32; these are exact there
    lengths = torch.tensor([length], dtype=torch.int32, device=DEVICE)
    starts = torch.tensor([0, length], dtype=torch.int32, device=DEVICE)
    seed = torch.tensor([3], device=DEVICE)
    keys = make_column_keys(seed, length)
    out, traces = attend(qkv, starts, lengths, keys, seed, 1, shape)
    upstream = torch.randn_like(out).bfloat16().float()
    found = attend_backward(upstream, qkv, out, traces, starts, lengths, shape)[0]

    exact = qkv.double().cpu().requires_grad_()
    query, key, value = exact.view(length, 3, heads, size).permute(1, 2, 0, 3)
    mixed = F.scaled_dot_product_attention(query, key, value).permute(1, 0, 2).flatten(1)
    (wanted,) = torch.autograd.grad(mixed, exact, upstream.double().cpu())
    assert float((query @ key.mT).max().detach()) * size**-0.5 < -128
    torch.testing.assert_close(out.double().cpu(), mixed.detach(), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(found.double().cpu(), wanted, atol=2e-2, rtol=1e-3)


def test_gelu_is_exact_to_the_rounding_of_its_input_type() -> None:
    from metaxlm.model.kernels.gelu import gelu, gelu_backward

    x = torch.linspace(-8, 8, 3000, device=DEVICE).view(30, 100)
    wanted = x.double().requires_grad_()
    torch.testing.assert_close(gelu(x).double(), F.gelu(wanted).detach(), atol=5e-7, rtol=0)
    upstream = torch.randn(30, 100, device=DEVICE)
    (gradient,) = torch.autograd.grad(F.gelu(wanted), wanted, upstream.double())
    found, sums = gelu_backward(upstream, x)
    torch.testing.assert_close(found.double(), gradient, atol=3e-6, rtol=0)
    torch.testing.assert_close(sums.double(), gradient.sum(0), atol=3e-5, rtol=0)


def test_cross_entropy_over_padded_columns() -> None:
    from metaxlm.model.kernels.cross_entropy import cross_entropy, gradient

    torch.manual_seed(0)
    rows, vocabulary, padded = 70, 5003, 5120
    logits = 5 * torch.randn(rows, padded, device=DEVICE)
    labels = torch.randint(0, vocabulary, (rows,), device=DEVICE)
    labels[4] = -100
    wanted = logits[:, :vocabulary].double().requires_grad_()
    reference = F.cross_entropy(wanted, labels, reduction="none")
    reference.sum().mul(0.5).backward()
    loss, lse = cross_entropy(logits, labels, vocabulary)
    torch.testing.assert_close(loss.double(), reference.detach(), atol=1e-5, rtol=1e-6)
    d_bias = gradient(logits, labels, lse, torch.tensor(0.5, device=DEVICE), vocabulary)
    assert wanted.grad is not None
    torch.testing.assert_close(logits[:, :vocabulary].double(), wanted.grad, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(d_bias.double(), wanted.grad.sum(0), atol=1e-5, rtol=1e-4)
    assert not logits[:, vocabulary:].any()


def test_adamw_equals_torch_and_skips_on_request() -> None:
    from metaxlm.model.kernels.adamw import update

    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(300, 33, device=DEVICE))
    ours = parameter.detach().clone()
    first, second = torch.zeros_like(ours), torch.zeros_like(ours)
    # The interpreter cuts bits off where a GPU rounds.
    half = torch.float32 if INTERPRETED else torch.bfloat16
    copy = torch.zeros_like(ours, dtype=half)
    betas, eps, decay, rate = (0.9, 0.98), 1e-6, 0.01, 1e-2
    optimizer = torch.optim.AdamW([parameter], rate, betas, eps, decay)
    no, yes = torch.zeros((), device=DEVICE), torch.ones((), device=DEVICE)
    for time in range(1, 5):
        gradient = torch.randn_like(ours)
        parameter.grad = gradient / 2
        optimizer.step()
        corrections = [1 - betas[0] ** time, (1 - betas[1] ** time) ** 0.5]
        numbers = torch.tensor([rate, 2.0, *corrections], device=DEVICE)
        update(ours, gradient, first, second, copy, numbers, no, betas, eps, decay)
    torch.testing.assert_close(ours, parameter.detach(), atol=3e-6, rtol=0)
    assert torch.equal(copy, ours.to(half))
    before = [tensor.clone() for tensor in (ours, first, second, copy)]
    update(ours, gradient, first, second, copy, numbers, yes, betas, eps, decay)
    assert all(torch.equal(a, b) for a, b in zip(before, (ours, first, second, copy), strict=True))


@pytest.mark.parametrize(("length", "window"), [(330, 0), (90, 0), (330, 64), (90, 20)])
def test_bias_and_window_and_their_gradients_are_those_of_float64(length: int, window: int) -> None:
    """More than one tile of queries and keys, tiles of one bias, blocks of different lengths."""
    from metaxlm.model.kernels.attention import (
        BiasTiles,
        Shape,
        attend,
        attend_backward,
        make_column_keys,
    )  # fmt: skip

    torch.manual_seed(3)
    lengths, heads, size = [length, length // 2], 2, 32
    shape = Shape(len(lengths), length, heads, size, 0.0, window=window)
    qkv = torch.randn(len(lengths) * length, 3 * heads * size, device=DEVICE)
    places = torch.arange(length, device=DEVICE)
    distances_LL = places[None, :] - places[:, None]
    table = torch.randn(heads, 257, device=DEVICE)  # the bias does not change from 128 on
    distances_W = torch.arange(1 - length, length, device=DEVICE)
    by_distance = table[:, distances_W.clamp(-128, 128) + 128]
    bias = None if window else BiasTiles.make(by_distance, qkv.dtype)
    lengths_B = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    starts = torch.arange(len(lengths) + 1, device=DEVICE, dtype=torch.int32) * length
    seed = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    keys = make_column_keys(seed, length)
    is_real = places < lengths_B[:, None]
    upstream = torch.randn(len(qkv), heads * size, device=DEVICE) * is_real.view(-1, 1)
    out, traces = attend(qkv, starts, lengths_B, keys, seed, 1, shape, bias)
    found = attend_backward(upstream, qkv, out, traces, starts, lengths_B, shape, bias)
    assert torch.isfinite(out).all() and torch.isfinite(found[0]).all()

    exact_qkv, exact_table = qkv.double().requires_grad_(), table.double().requires_grad_()
    q, k, v = exact_qkv.view(len(lengths), length, 3, heads, size).permute(2, 0, 3, 1, 4)
    scores = exact_table[:, distances_LL.clamp(-128, 128) + 128] * (0 if window else 1)
    scores = scores.masked_fill(~is_real[:, None, None, :], float("-inf"))
    if window:
        scores = scores.masked_fill(distances_LL.abs() > window, float("-inf"))
    exact = F.scaled_dot_product_attention(q, k, v, attn_mask=scores).transpose(1, 2)
    rows = is_real.flatten()
    exact = exact.reshape(len(qkv), -1)[rows]
    (exact * upstream[rows].double()).sum().backward()
    assert distance(out[rows].double(), exact.detach()) < TOLERANCE
    assert exact_qkv.grad is not None and exact_table.grad is not None
    assert distance(found[0][rows].double(), exact_qkv.grad[rows]) < TOLERANCE
    if window:
        return
    assert found[2] is not None
    folded = torch.zeros_like(exact_table)
    folded.index_add_(1, distances_W.clamp(-128, 128) + 128, found[2].double())
    assert distance(folded, exact_table.grad) < TOLERANCE
    again = attend_backward(upstream, qkv, out, traces, starts, lengths_B, shape, bias)
    assert torch.equal(found[2], again[2])
