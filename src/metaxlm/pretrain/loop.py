"""The training loop of all phases: masked language modeling and sentence encoders.

The model is trained in place; checkpoints and `log.jsonl` are written to a folder. A run that was
stopped or killed resumes from its newest checkpoint and ends with bit-identical weights: samples,
masks and dropout are functions of (seed, step), and everything else is in the checkpoint.
`train` pretrains by masked language modeling; `train_phase` is the loop itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, Generic

import torch

from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.files import exclusive_folder, remove, sweep, write_json
from metaxlm.manifest import find_damage
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.batches.masking import IGNORED, Masking
from metaxlm.pretrain.batches.source import Batch, BatchSource, MicroBatch, MicroBatches, Prefetcher
from metaxlm.pretrain.checkpoint import (
    Checkpoint,
    CheckpointWriter,
    TrainingState,
    check_fit,
    list_checkpoints,
    load_checkpoint,
    load_newest,
    require_space,
    step_name,
)
from metaxlm.pretrain.cost import count_step_flops, estimate_disk, measure_peak
from metaxlm.pretrain.distributed import DistributedContext, own_products
from metaxlm.pretrain.guard import MOST_REWINDS, Spike
from metaxlm.pretrain.log import LOG_NAME, Trackers, TrainingLog
from metaxlm.pretrain.optimizer import largest, learning_rate, value_at
from metaxlm.pretrain.step import ModelStep, PretrainStep, Teacher
from metaxlm.progress import say, track
from metaxlm.randomness import derive_seed
from metaxlm.recipe import ExecutionRecipe, TrainingRecipe
from metaxlm.stopping import deferred_stops

STEPS = "steps"  # folder next to the checkpoints with the exported models of `keep_steps`
BAD_STEPS_NAME = "bad_steps.json"
Export = Callable[[MaskedLM, Path], None]  # writes a model as a Hugging Face folder
_AGREE_EVERY = 2  # steps: all processes must agree on a stop, which costs a message


class Phase(ABC, Generic[Batch]):
    """What the loop trains: a step, the batches of a run, and what its log shows."""

    def __init__(
        self, step: ModelStep[Any], batches: MicroBatches[Batch], recipe: TrainingRecipe
    ) -> None:
        self.step, self.batches, self.recipe = step, batches, recipe

    @abstractmethod
    def take(self, number: int, batches: Sequence[Batch]) -> None:
        """Take a step, counted from 0, on its micro-batches."""

    @abstractmethod
    def describe(self, state: TrainingState) -> tuple[dict[str, float], float]:
        """Return the numbers of the last step for its log row, and the FLOPs of a step."""

    def measure(self) -> Mapping[str, float] | None:
        """Return a loss of held-out text for each language; None if nothing is held out."""
        return None

    def rate(self, number: int) -> float:
        """Return the learning rate of a step."""
        recipe = self.recipe
        return learning_rate(number, recipe.learning_rate, recipe.steps, recipe.warmup_steps)


class _Pretraining(Phase[MicroBatch]):
    def __init__(
        self,
        step: PretrainStep,
        batches: BatchSource,
        recipe: TrainingRecipe,
        masking: Masking,
        seed: int,
    ) -> None:
        super().__init__(step, batches, recipe)
        self._step, self._source, self._masking, self._seed = step, batches, masking, seed

    def take(self, number: int, batches: Sequence[MicroBatch]) -> None:
        probability = value_at(self.recipe.mask_probability, number)
        self._step(batches, self.rate(number), probability, self._source.mask_key(number))

    def describe(self, state: TrainingState) -> tuple[dict[str, float], float]:
        recipe, config = self.recipe, self.step.model.config
        probability = value_at(recipe.mask_probability, state.step - 1)
        num_predictions = round(probability * recipe.batch_size * recipe.length)
        flops = count_step_flops(config, recipe.batch_size, recipe.length, num_predictions)
        return {"mask_probability": probability}, flops

    def measure(self) -> Mapping[str, float] | None:
        if not self.recipe.held_out:
            return None
        return measure_held_out(self._step, self._source, self._masking, self.recipe, self._seed)


def train(
    model: MaskedLM,
    batches: BatchSource,
    recipe: TrainingRecipe,
    folder: Path,
    seed: int,
    world: DistributedContext,
    title: str,
    *,
    masking: Masking,
    execution: ExecutionRecipe | None = None,
    teacher: Teacher | None = None,
    export: Export | None = None,
    trackers: Trackers | None = None,
) -> TrainingState:
    """Pretrain to the recipe's last step, resuming from the newest checkpoint in the folder."""
    execution = execution or ExecutionRecipe()

    def make_phase() -> Phase[MicroBatch]:
        step = PretrainStep(model, masking, recipe, execution, world, teacher)
        return _Pretraining(step, batches, recipe, masking, seed)

    workers = execution.workers
    return train_phase(make_phase, recipe, folder, world, title, workers, export, trackers)


def train_phase(
    make_phase: Callable[[], Phase[Batch]],
    recipe: TrainingRecipe,
    folder: Path,
    world: DistributedContext,
    title: str,
    workers: int = 1,
    export: Export | None = None,
    trackers: Trackers | None = None,
    steps_dir: Path | None = None,
) -> TrainingState:
    """Train a phase to its last step, resuming from the newest checkpoint in the folder.

    `make_phase` is called when the folder is locked. Models of `keep_steps` are exported to
    `steps_dir`, by default to the folder `steps` beside the checkpoints.
    """
    steps_dir = steps_dir or folder.parent / STEPS
    indices, count = world.share(recipe.micro_batches, recipe.batch_size)
    with exclusive_folder(folder) if world.is_main else nullcontext():
        if world.is_main:
            sweep(folder)  # temporary files of a killed run
        phase = make_phase()
        step, batches, model = phase.step, phase.batches, phase.step.model
        state = _resume(step, folder, title)
        log_path = peak = None
        if world.is_main:
            frozen = not all(parameter.requires_grad for parameter in model.parameters())
            needed = estimate_disk(model.config, recipe, frozen_body=frozen)
            require_space(needed, folder, steps_dir)
            with suppress(torch.OutOfMemoryError):
                peak = measure_peak(world.device, step.dtype) * world.size
            log_path = folder / LOG_NAME
        log = TrainingLog(log_path, state, title, trackers=trackers, peak_flops=peak)

        def is_due(every: int) -> bool:
            return state.step % every == 0 or state.step == recipe.steps

        with (
            _open_writer(folder, steps_dir, recipe, model, state.step, export) as writer,
            ExitStack() as readers,
            deferred_stops() as stop_requested,
            track(title, recipe.steps, "steps", completed=state.step) as advance,
        ):

            def read_ahead() -> Prefetcher[Batch]:
                readers.close()
                first, last = (k + state.skipped_batches for k in (state.step, recipe.steps))
                reader = Prefetcher(batches, first, last, indices, count, workers)
                return readers.enter_context(reader)

            prefetcher = read_ahead()
            while state.step < recipe.steps:
                phase.take(state.step, prefetcher.get(state.step + state.skipped_batches))
                state.step += 1
                if is_due(recipe.log_every):
                    spike, number = _write_row(phase, state, log), state.step
                    if spike and recipe.rewind and _rewind(step, state, recipe, writer, folder):
                        log.rewind(state, spike, number)
                        prefetcher = read_ahead()
                        advance(state.step + 1 - number)
                        continue
                if is_due(recipe.evaluate_every):
                    with log.pausing():
                        losses = phase.measure()
                    if losses is not None:
                        is_falling = phase.rate(state.step) < phase.rate(state.step - 1)
                        log.write_held_out(state, losses, is_falling=is_falling)
                advance(note=log.note)
                if _is_regular(state.step, recipe):
                    state.rewinds = 0
                stopping = _must_stop(step, state, recipe, batches, folder, stop_requested)
                if stopping or state.step in recipe.keep_steps or is_due(recipe.checkpoint_every):
                    _save(step, state, log, writer, stopping or state.step == recipe.steps)
                if stopping:
                    raise Interrupted(f"{title}: stopped after step {state.step}")
    return state


def _write_row(phase: Phase[Any], state: TrainingState, log: TrainingLog) -> Spike | None:
    norm = phase.step.read(state)
    numbers, flops = phase.describe(state)
    if state.loss_scale is not None:
        numbers = {**numbers, "loss_scale": state.loss_scale}
    spike = log.write_row(state, phase.rate(state.step - 1), norm, numbers, flops)
    phase.step.totals.reset()
    state.loss_sum, state.loss_count, state.largest_norm = 0.0, 0, 0.0
    return spike


def _is_regular(step: int, recipe: TrainingRecipe) -> bool:
    """Return whether every run has a checkpoint of this step, stopped in between or not."""
    return step % recipe.checkpoint_every == 0 or step in recipe.keep_steps


def _rewind(
    step: ModelStep[Any],
    state: TrainingState,
    recipe: TrainingRecipe,
    writer: CheckpointWriter,
    folder: Path,
) -> bool:
    """Return to the last regular checkpoint, and skip the batches since then (collective).

    A run that is killed later repeats all of this from its checkpoint, and ends with the same
    weights. Return whether there is a checkpoint to return to that was not tried too often.
    """
    writer.wait()
    if state.rewinds >= MOST_REWINDS:
        return False
    found = None
    if step.world.is_main:
        found = load_newest(folder, lambda at: at < state.step and _is_regular(at, recipe))
    earlier = step.world.broadcast(None if found is None else found.state)
    if earlier is None:
        return False
    if found is not None:  # a stop may have saved later ones, which are of no use now
        for path in list_checkpoints(folder):
            if path.name > step_name(earlier.step):
                remove(path)
    earlier.skipped_batches = state.skipped_batches + state.step - earlier.step
    earlier.rewinds = state.rewinds + 1
    step.restore(found or Checkpoint({}, {}, earlier))
    vars(state).update(vars(earlier))
    return True


def _must_stop(
    step: ModelStep[Any],
    state: TrainingState,
    recipe: TrainingRecipe,
    batches: MicroBatches[Any],
    folder: Path,
    stop_requested: Callable[[], bool],
) -> bool:
    """Return whether any process must stop; abort after too many consecutive bad steps."""
    world, limit = step.world, recipe.max_bad_steps
    if world.size > 1 and state.step % _AGREE_EVERY and state.step < recipe.steps:
        return False
    if not world.agree(stop_requested() or step.count_bad_steps() >= limit):
        return False
    step.read(state)
    if state.skipped_in_row >= limit:
        # No checkpoint: the newest one is equivalent, because these steps changed nothing.
        last = state.step + state.skipped_batches
        bad_steps = range(last - state.skipped_in_row, last)
        abort_on_nan(folder / BAD_STEPS_NAME, bad_steps, batches, write=world.is_main)
    return world.agree(stop_requested())


def abort_on_nan(path: Path, steps: range, batches: MicroBatches[Any], *, write: bool) -> None:
    """Write the samples of bad steps, counted from 0, and raise the error that ends the run."""
    if write:
        write_json(path, [{"step": step, "samples": batches.samples(step)} for step in steps])
    raise MetaXLMError(
        f"the loss or the gradient was not finite in {len(steps)} steps in a row, {steps[0]:,} to "
        f"{steps[-1]:,}; they changed no weights. Their blocks are listed in {path}; lower "
        "learning_rate, increase warmup_steps, or check these blocks"
    )


def _save(
    step: ModelStep[Any],
    state: TrainingState,
    log: TrainingLog,
    writer: CheckpointWriter,
    wait: bool,
) -> None:
    step.read(state)
    state.seconds, state.log = log.seconds, log.flush()
    tensors, moments = step.collect()
    if step.world.is_main:
        writer.save(tensors, moments, state, wait=wait)


@torch.no_grad()
def measure_held_out(
    step: PretrainStep, batches: BatchSource, masking: Masking, recipe: TrainingRecipe, seed: int
) -> dict[str, float]:
    """Return the mean loss per prediction of each language that has held-out blocks."""
    # Masks are the same in every call. Each process computes all, as sharded weights require.
    device = step.world.device
    key = derive_seed(seed, "held-out")
    # One rate for all steps, so that measurements are comparable.
    probability = largest(recipe.mask_probability)

    def compute(held_out: Sequence[MicroBatch]) -> float:
        total = torch.zeros_like(step.totals.loss)
        count = torch.zeros((), dtype=torch.int64, device=device)
        for batch in (held.to(device) for held in held_out):
            masked = masking(batch.ids_BL, batch.lengths_B, batch.rows_B, key, probability)
            with own_products(device, step.dtype), step.autocast():
                loss, _ = step.objective(masked, batch.lengths_B)  # without the teacher's loss
            total += loss.to(total.dtype)
            count += (masked.labels_M != IGNORED).sum()
        return float(total / count.clamp_min(1))

    step.model.eval()
    try:
        held_out = {language: batches.held_out(language) for language in batches.languages}
        return {language: compute(found) for language, found in held_out.items() if found}
    finally:
        step.model.train()


def _resume(step: ModelStep[Any], folder: Path, title: str) -> TrainingState:
    found = load_newest(folder) if step.world.is_main else None
    if found is not None:
        check_fit(found, step.model, folder)
    state = step.world.broadcast(None if found is None else found.state)
    if state is None:
        return TrainingState()
    step.restore(found or Checkpoint({}, {}, state))
    say(f"{title}: continuing after step {state.step:,}")
    return state


def _open_writer(
    folder: Path,
    steps_dir: Path,
    recipe: TrainingRecipe,
    model: MaskedLM,
    newest: int,
    export: Export | None,
) -> CheckpointWriter:
    def publish(checkpoint: Checkpoint) -> None:
        if export is not None:
            place = steps_dir / step_name(checkpoint.state.step)
            export(MaskedLM.from_state(model.config, checkpoint.model), place)

    for step in recipe.keep_steps:  # export again if a model is missing or damaged
        source, place = (parent / step_name(step) for parent in (folder, steps_dir))
        if source.is_dir() and find_damage(place) and not find_damage(source):
            publish(load_checkpoint(source))
    every = recipe.checkpoint_every if recipe.rewind else 0
    keep = recipe.keep_checkpoints
    return CheckpointWriter(folder, keep, recipe.keep_steps, publish, newest, every)
