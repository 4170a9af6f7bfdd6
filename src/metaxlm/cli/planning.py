"""`metaxlm plan`: what the trainings of a recipe will cost, before anything exists.

Comes in: a recipe. Goes out: for meta-pretraining and every variant's cross-lingual pretraining its
parameters, tokens, FLOPs, memory, disk space and hours, on this device from a few measured steps,
and on a device of the table by its datasheet. Nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metaxlm.cli.options import Device, Overrides, Quiet
from metaxlm.errors import MetaXLMError
from metaxlm.progress import console, set_quiet

if TYPE_CHECKING:
    import torch

    from metaxlm.config import Recipe, TrainingRecipe
    from metaxlm.model.encoder import EncoderConfig
    from metaxlm.pretrain.cost import Accelerator
    from metaxlm.pretrain.measure import Measurement

ASSUMED_SHARE = 0.4
"""The share of a GPU's matmul rate that is assumed where none was measured."""


@dataclass(frozen=True)
class Training:
    """One training of a recipe."""

    name: str
    config: EncoderConfig
    recipe: TrainingRecipe
    frozen_body: bool = False
    has_teacher: bool = False

    @property
    def shape(self) -> tuple[Any, ...]:
        """What decides the time of a step: trainings that share it are measured once."""
        recipe = self.recipe
        sizes = (recipe.batch_size, recipe.micro_batches, recipe.length, recipe.precision)
        return (self.config, sizes, str(recipe.mask_probability), self.frozen_body)


def list_trainings(recipe: Recipe) -> list[Training]:
    """Return the trainings of a recipe in their order; an imported encoder needs none."""
    from metaxlm.experiments.training import encoder_config

    trainings = []
    if recipe.meta.model is None:
        config = encoder_config(recipe, recipe.vocabulary.monolingual_size)
        trainings.append(Training("meta", config, recipe.meta))
    config = encoder_config(recipe, _count_rows(recipe))
    for name, variant in recipe.variants.items():
        frozen, taught = variant.freeze == "body", variant.distill is not None
        trainings.append(Training(name, config, recipe.pretraining, frozen, taught))
    return trainings


def _count_rows(recipe: Recipe) -> int:
    """Return the rows of the shared vocabulary, which need not be there yet."""
    if recipe.vocabulary.model is None:
        return recipe.vocabulary.size
    from metaxlm.vocabulary.loading import load_tokenizer

    return len(load_tokenizer(recipe.vocabulary.model))


def _check_models(recipe: Recipe) -> None:
    """Refuse an encoder or a tokenizer that a run would refuse."""
    from metaxlm.experiments.pipeline import check_models

    try:
        check_models(recipe)
    except MetaXLMError as error:
        raise MetaXLMError(
            f"{error}; to plan without it: --set meta.model=null, or --set vocabulary.model=null "
            "--set vocabulary.size=ROWS"
        ) from error


def plan_command(
    recipe: Annotated[Path, typer.Argument(help="The experiment, a YAML file.")],
    overrides: Overrides = None,
    on: Annotated[
        str | None, typer.Option("--on", help="Also for this device, such as A100 or RTX-4090.")
    ] = None,
    device: Device = "auto",
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Time a few steps on this device.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Tell parameters, memory, FLOPs, tokens and hours of a recipe's trainings; write nothing."""
    from metaxlm.cli.plan_text import plan_table
    from metaxlm.files import dump_json
    from metaxlm.pretrain.cost import find_accelerator
    from metaxlm.pretrain.device import choose_device
    from metaxlm.recipe_file import load_recipe

    set_quiet(quiet)
    named = None if on is None else find_accelerator(on)
    plan = make_plan(load_recipe(recipe, overrides or []), choose_device(device), named, measure)
    if as_json:
        typer.echo(dump_json(plan), nl=False)
        return
    console.print(plan_table(plan))
    for note in plan["notes"]:
        console.print(note, soft_wrap=not console.is_terminal, markup=False)


def make_plan(
    recipe: Recipe, device: torch.device, named: Accelerator | None, measure: bool
) -> dict[str, Any]:
    """Return everything that `metaxlm plan` tells, as JSON has it."""
    from metaxlm.cli.plan_text import explain
    from metaxlm.pretrain.device import describe_device

    _check_models(recipe)
    trainings = list_trainings(recipe)
    measured: dict[tuple[Any, ...], Measurement | str] = {}
    if measure:
        for training in trainings:
            if training.recipe.steps and training.shape not in measured:
                measured[training.shape] = _measure(training, device)
    rows = [_plan_training(t, device, measured.get(t.shape), named) for t in trainings]
    return {
        "recipe": recipe.name,
        "device": describe_device(device),
        "on": None if named is None else named.name,
        "trainings": rows,
        "notes": explain(recipe, rows, device, named),
    }


def _measure(training: Training, device: torch.device) -> Measurement | str:
    """Time a few steps, or say why that cannot be."""
    from metaxlm.pretrain.measure import DoesNotFit, measure_step

    with console.status(f"measuring steps of {training.name} ..."):
        try:
            return measure_step(
                training.config, training.recipe, device, frozen_body=training.frozen_body
            )
        except DoesNotFit as error:
            return str(error)


def _plan_training(
    training: Training,
    device: torch.device,
    measured: Measurement | str | None,
    named: Accelerator | None,
) -> dict[str, Any]:
    from metaxlm.pretrain import cost
    from metaxlm.pretrain.engine import uses_bfloat16

    config, recipe, frozen = training.config, training.recipe, training.frozen_body
    is_gpu = device.type == "cuda"
    memory = _estimate_memory(
        training, uses_bfloat16(recipe, device), is_gpu or not config.attention_dropout
    )
    flops = cost.step_flops(config, recipe, frozen_body=frozen)
    row: dict[str, Any] = {
        "name": training.name,
        "parameters": cost.count_parameters(config),
        "trainable": cost.count_trainable(config, frozen),
        "steps": recipe.steps,
        "tokens": recipe.steps * recipe.batch_size * recipe.length,
        "flops": recipe.steps * flops,
        "memory_bytes": sum(memory.values()),
        "memory_parts": memory,
        "disk_bytes": cost.estimate_disk(config, recipe, frozen_body=frozen),
        "has_teacher": training.has_teacher,
        "measured": None,
        "problem": measured if isinstance(measured, str) else None,
        "hours": 0.0 if not recipe.steps else None,
        "hours_on": None,
    }
    share = ASSUMED_SHARE
    if measured is not None and not isinstance(measured, str):
        row["measured"] = _describe(measured, training, flops, device)
        row["hours"] = recipe.steps * measured.seconds / 3600
        # A share that was measured on a CPU says nothing about a GPU.
        share = row["measured"]["peak_share"] if is_gpu else share
    if named is not None:
        rate = share * cost.REACHED_OF_DATASHEET * named.peak
        row["assumed_share"] = share
        row["hours_on"] = recipe.steps * flops / rate / 3600
        parts = _estimate_memory(training, recipe.precision != "float32", flash=True)
        row["memory_bytes_on"] = sum(parts.values())
    return row


def _estimate_memory(training: Training, bfloat16: bool, flash: bool) -> dict[str, int]:
    from metaxlm.pretrain.cost import count_slots, estimate_memory

    recipe = training.recipe
    rows = -(-recipe.batch_size // recipe.micro_batches)
    return estimate_memory(
        training.config,
        rows,
        recipe.length,
        count_slots(recipe, rows),
        bfloat16,
        frozen_body=training.frozen_body,
        flash=flash,
    )


def _describe(
    measured: Measurement, training: Training, flops: float, device: torch.device
) -> dict[str, Any]:
    from metaxlm.pretrain.cost import measure_peak
    from metaxlm.pretrain.engine import uses_bfloat16

    recipe = training.recipe
    peak = measure_peak(device, uses_bfloat16(recipe, device))
    return {
        "seconds_per_step": measured.seconds,
        "steps": measured.num_steps,
        "rows": measured.num_rows,
        "batch_size": recipe.batch_size,
        "length": recipe.length,
        "tokens_per_second": recipe.batch_size * recipe.length / measured.seconds,
        "matmul_flops": peak,
        "peak_share": flops / measured.seconds / peak,
        "memory_bytes": measured.peak_bytes,
    }
