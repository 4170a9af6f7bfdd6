"""Costs that are computed agree with what models, torch's own counters, and disks say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from metaxlm.model.encoder import EncoderConfig, Rotary
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain import cost
from metaxlm.pretrain.checkpoint import Checkpoint, TrainingState, save_checkpoint
from metaxlm.pretrain.cost import DoesNotFit, extrapolate, measure_step
from metaxlm.recipe import TrainingRecipe

CPU = torch.device("cpu")
SMALL = EncoderConfig(120, 32, 2, 4, 96, 40)
BERT = EncoderConfig(90, 24, 3, 2, 48, 32, pad_id=0, position_offset=0, num_token_types=2)
MODERN = EncoderConfig(90, 24, 4, 2, 48, 32, position_offset=0, rotary=Rotary(window=16))
PAPER = EncoderConfig(250_002)


def make(config: EncoderConfig, frozen_body: bool = False) -> MaskedLM:
    torch.manual_seed(0)
    model = MaskedLM(config).train()
    if frozen_body:
        model.freeze_layers()
    return model


def loss_of(model: MaskedLM, batch_size: int, length: int, num_predictions: int) -> Tensor:
    ids_BL = torch.randint(5, model.config.vocab_size, (batch_size, length))
    rows_M = torch.arange(num_predictions)
    return model.loss_sum(model.encoder(ids_BL), rows_M, ids_BL.flatten()[rows_M])


@pytest.mark.parametrize(("config", "frozen"), [(SMALL, True), (BERT, False), (MODERN, True)])
def test_parameters_are_those_of_the_model(config: EncoderConfig, frozen: bool) -> None:
    model = make(config, frozen)
    parts = cost.count_parts(config)
    assert cost.count_parameters(config) == sum(p.numel() for p in model.parameters())
    for part in ("layers", "head", "words"):
        named = (p.numel() for name, p in model.named_parameters() if model.find_part(name) == part)
        assert parts[part] == sum(named)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert cost.count_trainable(config, frozen) == trainable


@pytest.mark.parametrize(("config", "frozen"), [(SMALL, False), (SMALL, True), (MODERN, False)])
def test_flops_are_those_that_torch_counts(config: EncoderConfig, frozen: bool) -> None:
    model = make(config, frozen)
    with FlopCounterMode(display=False) as counter:
        loss_of(model, 3, 16, 7).backward()
    expected = cost.count_step_flops(config, 3, 16, 7, frozen_body=frozen)
    assert counter.get_total_flops() == expected


def test_local_layers_count_their_window_only() -> None:
    local = replace(MODERN, rotary=Rotary(window=3, global_every=3))
    whole, windows = (cost.count_step_flops(config, 1, 16, 0) for config in (MODERN, local))
    assert whole - windows == 6 * 16 * 2 * MODERN.hidden_size * 2 * (16 - 7)


def test_the_papers_step() -> None:
    """64 x 512 tokens, 12 layers x 768, 250,002 rows: 24.2 TFLOP and 278 million parameters."""
    assert cost.step_flops(PAPER, TrainingRecipe()) == pytest.approx(24.2e12, rel=0.01)
    assert cost.count_parameters(PAPER) == pytest.approx(278e6, rel=0.01)


def test_predictions_follow_the_schedule() -> None:
    recipe = TrainingRecipe(
        steps=100, warmup_steps=10, batch_size=4, length=50, mask_probability={0: 0.4, 100: 0.2}
    )
    assert cost.count_predictions(recipe) == pytest.approx(4 * 50 * 0.3, rel=0.01)
    assert cost.count_slots(recipe, 4) == 4 * 21


@pytest.mark.parametrize(
    ("dropout", "rotary"), [(0.0, None), (0.1, None), (0.0, Rotary()), (0.1, Rotary())]
)
def test_memory_of_activations_is_what_autograd_keeps(
    dropout: float, rotary: Rotary | None
) -> None:
    config = EncoderConfig(
        2_000, 64, 4, 4, 256, 64, dropout=dropout, attention_dropout=dropout, rotary=rotary
    )
    model = make(config)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}
    alive: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = loss_of(model, 8, 64, 80)
    assert loss.requires_grad
    estimate = cost.estimate_memory(config, 8, 64, 80, is_half=False, flash=not dropout)
    # Of the logits only the log-probabilities are kept; the gradients come later.
    expected = estimate["activations"] + estimate["logits"] / 3
    assert sum(kept.values()) == pytest.approx(expected, rel=0.1)


SHARED = TrainingRecipe(batch_size=64, length=512)
LARGE = EncoderConfig(250_002)


def test_small_gpus_take_micro_batches_first_and_checkpointing_last() -> None:
    limits = (5, 8, 16, 24, 48, 100)
    found = [cost.find_setting(LARGE, SHARED, limit * 1e9) for limit in limits]
    assert found[0] is None  # weights, gradients and moments alone are larger
    settings = [one for one in found if one is not None]
    assert [one.gradient_checkpointing for one in settings] == [True, *[False] * 4]
    counts = [one.micro_batches for one in settings]
    assert counts == sorted(counts, reverse=True) and counts[-1] == 1
    for setting, limit in zip(settings, limits[1:], strict=True):
        assert setting.memory_bytes <= limit * 1e9
        assert (setting.compute > 1.0) == setting.gradient_checkpointing
    assert 1.2 < settings[0].compute < 4 / 3
    exact = SHARED.model_copy(update={"precision": "float32"})
    setting = cost.find_setting(LARGE, exact, 16e9)
    assert setting is not None and setting.memory_bytes > settings[1].memory_bytes / 2


def test_checkpointing_and_micro_batches_save_memory() -> None:
    def estimate(rows: int, **more: bool) -> dict[str, int]:
        slots = cost.count_slots(SHARED, rows)
        return cost.estimate_memory(LARGE, rows, 512, slots, is_half=True, **more)

    whole, again = estimate(64), estimate(64, gradient_checkpointing=True)
    assert again["activations"] < whole["activations"] / 4
    assert {k: v for k, v in again.items() if k != "activations"} == {
        k: v for k, v in whole.items() if k != "activations"
    }
    # A step of one row holds both gradients of the token embeddings at its end.
    least = estimate(1, accumulates=True)
    transient = ("activations", "logits", "token gradients")
    assert sum(least[name] for name in transient) == 2 * 4 * 250_002 * 768


def test_disk_is_what_a_checkpoint_takes(tmp_path: Path) -> None:
    config = EncoderConfig(3_000, 64, 2, 4, 256, 64)
    model = make(config, frozen_body=True)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    moments = {f"{m}.{name}": p.detach().clone() for m in ("a", "b") for name, p in trained.items()}
    folder = save_checkpoint(tmp_path, Checkpoint(model.state_dict(), moments, TrainingState(1)))
    size = sum(path.stat().st_size for path in folder.iterdir())
    estimate = cost.estimate_checkpoint(config, frozen_body=True)
    assert size == pytest.approx(estimate, rel=0.03)
    recipe = TrainingRecipe(steps=10, warmup_steps=1, keep_checkpoints=2, keep_steps=[5, 20])
    exported = 4 * cost.count_parameters(config)
    expected = 3 * estimate + (estimate + exported) + exported
    assert cost.estimate_disk(config, recipe, frozen_body=True) == expected
    assert cost.estimate_disk(config, TrainingRecipe(steps=0)) == exported


def test_steps_are_measured_and_leave_no_trace() -> None:
    recipe = TrainingRecipe(batch_size=4, micro_batches=2, length=16)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    measured = measure_step(SMALL, recipe, CPU, steps=3)
    assert torch.get_rng_state().equal(before)
    assert (measured.num_steps, measured.num_rows, measured.peak_bytes) == (3, 4, None)
    assert measured.seconds > 0
    assert measured.loss == pytest.approx(torch.tensor(120.0).log().item(), rel=0.2)


def test_extrapolation() -> None:
    # An optimizer that takes a second, and FLOPs that take half a second each.
    assert extrapolate((3, 2.5), (6, 4), 64) == pytest.approx(1 + 64 / 2)
    assert extrapolate((1, 5), (2, 4), 12) == pytest.approx(4 + 0.2 * 10)


def test_what_does_not_fit_is_not_tried() -> None:
    huge = EncoderConfig(10_000_000, 65_536, 96, 64, 262_144)
    with pytest.raises(DoesNotFit, match="GiB of memory are free"):
        measure_step(huge, TrainingRecipe(), CPU)


def test_float16_without_fused_kernels_needs_more_memory() -> None:
    half = SHARED.model_copy(update={"precision": "float16"})
    plain, fused = (cost.find_setting(LARGE, one, 16e9) for one in (half, SHARED))
    assert plain is not None and fused is not None
    assert plain.memory_bytes > fused.memory_bytes
