"""The one training loop of both pretraining phases: masked language modeling.

Comes in: a model, the source of its batches, a recipe, a folder. Goes out: the model, trained in
place, with checkpoints and `log.jsonl` in the folder. A run that was stopped or killed continues
from its newest checkpoint and ends with the same weights, bit for bit: samples, masks and dropout
are functions of (seed, step), and everything else is in the checkpoint. The host waits for the
device only where a row of the log, a measurement or a checkpoint is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from metaxlm.config import ExecutionRecipe, TrainingRecipe
from metaxlm.errors import Interrupted
from metaxlm.files import exclusive_folder, sweep
from metaxlm.manifest import find_damage
from metaxlm.model.encoder import MaskedLM
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.prefetch import Feed
from metaxlm.pretrain.batches.source import BatchSource
from metaxlm.pretrain.checkpoint import (
    Checkpoint,
    TrainingState,
    check_fit,
    load_checkpoint,
    load_newest,
    rebuild_model,
    step_name,
)
from metaxlm.pretrain.checkpoint_writer import CheckpointWriter
from metaxlm.pretrain.cost import count_step_flops, estimate_disk, peak_flops
from metaxlm.pretrain.disk_space import require_space
from metaxlm.pretrain.distributed import World
from metaxlm.pretrain.engine import Engine
from metaxlm.pretrain.guard import give_up
from metaxlm.pretrain.held_out import HeldOut
from metaxlm.pretrain.log import LOG_NAME, TrainingLog
from metaxlm.pretrain.objective import Teacher
from metaxlm.pretrain.optimizer import learning_rate
from metaxlm.pretrain.schedules import value_at
from metaxlm.pretrain.trackers import Trackers
from metaxlm.progress import say, track
from metaxlm.stopping import deferred_stops

STEPS = "steps"
"""Beside the folder of checkpoints: the exported models of the recipe's `keep_steps`."""

Export = Callable[[MaskedLM, Path], None]
"""Writes a model as a Hugging Face folder."""

# A stop must be agreed by all processes, which costs a message; a request waits two steps at most.
_AGREE_EVERY = 2


def train(
    model: MaskedLM,
    batches: BatchSource,
    recipe: TrainingRecipe,
    folder: Path,
    seed: int,
    world: World,
    title: str,
    *,
    masking: Masking,
    execution: ExecutionRecipe | None = None,
    teacher: Teacher | None = None,
    export: Export | None = None,
    trackers: Trackers | None = None,
) -> TrainingState:
    """Train to the recipe's last step, from the newest checkpoint in the folder if there is one.

    `export` writes the models of the recipe's `keep_steps` into `steps/` beside the folder.
    """
    execution = execution or ExecutionRecipe()
    indices, num_pieces = world.share(recipe.micro_batches, recipe.batch_size)
    with _hold(folder, world):
        engine = Engine(model, masking, recipe, execution, world, teacher)
        state = _resume(engine, folder, title)
        if world.is_main:
            frozen = not all(parameter.requires_grad for parameter in model.parameters())
            needed = estimate_disk(model.config, recipe, frozen_body=frozen)
            require_space(needed, folder, folder.parent / STEPS)
        log = _open_log(engine, folder, state, title, trackers)
        held_out = HeldOut(engine, batches, masking, recipe, seed)
        with (
            _open_writer(folder, recipe, model, state, export) as writer,
            Feed(batches, state.step, recipe.steps, indices, num_pieces, execution.workers) as feed,
        ):
            _Training(engine, batches, recipe, folder, title, state, log, held_out).run(
                feed, writer
            )
    return state


@dataclass
class _Training:
    """A training under way."""

    engine: Engine
    batches: BatchSource
    recipe: TrainingRecipe
    folder: Path
    title: str
    state: TrainingState
    log: TrainingLog
    held_out: HeldOut

    def run(self, feed: Feed, writer: CheckpointWriter) -> None:
        """Take all steps that are left."""
        state, recipe = self.state, self.recipe
        with (
            deferred_stops() as stop_requested,
            track(self.title, recipe.steps, "steps", completed=state.step) as advance,
        ):
            while state.step < recipe.steps:
                self.take_step(feed)
                if self.is_due(recipe.log_every):
                    self.write_row()
                if recipe.held_out and self.is_due(recipe.evaluate_every):
                    self.measure_held_out()
                advance(note=self.log.note)
                stopping = self.must_stop(stop_requested)
                is_last = state.step == recipe.steps
                is_kept = state.step in recipe.keep_steps
                if stopping or is_kept or self.is_due(recipe.checkpoint_every):
                    self.save(writer, wait=stopping or is_last)
                if stopping:
                    raise Interrupted(f"{self.title}: stopped after step {state.step}")

    def take_step(self, feed: Feed) -> None:
        """Train on the batch of the next step."""
        number = self.state.step
        rate, probability = self.rate(number), self.mask_probability(number)
        self.engine.take_step(feed.get(number), rate, probability, self.batches.mask_key(number))
        self.state.step += 1

    def rate(self, number: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        recipe = self.recipe
        return learning_rate(number, recipe.learning_rate, recipe.steps, recipe.warmup_steps)

    def mask_probability(self, number: int) -> float:
        """Return the share of positions that a step predicts."""
        return value_at(self.recipe.mask_probability, number)

    def is_due(self, every: int) -> bool:
        """Say whether something happens now that happens so often, and at the last step."""
        return self.state.step % every == 0 or self.state.step == self.recipe.steps

    def write_row(self) -> None:
        """Write the row of the log that is due."""
        norm = self.engine.read(self.state)
        last, recipe = self.state.step - 1, self.recipe
        probability = self.mask_probability(last)
        num_predictions = round(probability * recipe.batch_size * recipe.length)
        step_flops = count_step_flops(
            self.engine.model.config, recipe.batch_size, recipe.length, num_predictions
        )
        self.log.write_row(
            self.state,
            rate=self.rate(last),
            norm=norm,
            probability=probability,
            step_flops=step_flops,
        )
        self.engine.begin_mean(self.state)

    def measure_held_out(self) -> None:
        """Write each language's loss on blocks that are not trained on."""
        with self.log.pausing():
            losses = self.held_out.measure()
        self.log.write_held_out(self.state.step, losses)

    def must_stop(self, stop_requested: Callable[[], bool]) -> bool:
        """Say whether anybody asked to stop; give up if too many steps in a row were bad."""
        state, world, limit = self.state, self.engine.world, self.recipe.max_bad_steps
        if world.size > 1 and state.step % _AGREE_EVERY and state.step < self.recipe.steps:
            return False
        if not world.agree(stop_requested() or self.engine.count_bad_steps() >= limit):
            return False
        self.engine.read(state)
        if state.skipped_in_row >= limit:
            # No checkpoint: the newest one is as good, because these steps changed nothing.
            bad_steps = range(state.step - state.skipped_in_row, state.step)
            raise give_up(self.folder, bad_steps, self.batches.samples, write=world.is_main)
        return world.agree(stop_requested())

    def save(self, writer: CheckpointWriter, *, wait: bool) -> None:
        """Save a checkpoint; unless asked to wait, training goes on while it is written."""
        self.engine.read(self.state)
        self.state.seconds = self.log.seconds
        self.state.log = self.log.flush()
        tensors, moments = self.engine.collect()
        if self.engine.world.is_main:
            writer.save(tensors, moments, self.state, wait=wait)


@contextmanager
def _hold(folder: Path, world: World) -> Iterator[None]:
    """Keep others out of the folder, and sweep what a killed run left in it."""
    if not world.is_main:
        yield
        return
    with exclusive_folder(folder):
        sweep(folder)
        yield


def _resume(engine: Engine, folder: Path, title: str) -> TrainingState:
    """Continue from the newest checkpoint, which the main process reads for all."""
    found = load_newest(folder) if engine.world.is_main else None
    if found is not None:
        check_fit(found, engine.model, folder)
    state = engine.world.broadcast(None if found is None else found.state)
    if state is None:
        return TrainingState()
    engine.restore(found or Checkpoint({}, {}, state))
    say(f"{title}: continuing after step {state.step:,}")
    return state


def _open_log(
    engine: Engine, folder: Path, state: TrainingState, title: str, trackers: Trackers | None
) -> TrainingLog:
    world = engine.world
    if not world.is_main:
        return TrainingLog(None, state, title)
    peak = peak_flops(world.device, engine.bfloat16)
    peak = None if peak is None else peak * world.size
    return TrainingLog(folder / LOG_NAME, state, title, trackers=trackers, peak_flops=peak)


def _open_writer(
    folder: Path,
    recipe: TrainingRecipe,
    model: MaskedLM,
    state: TrainingState,
    export: Export | None,
) -> CheckpointWriter:
    def publish(checkpoint: Checkpoint) -> None:
        if export is not None:
            place = folder.parent / STEPS / step_name(checkpoint.state.step)
            export(rebuild_model(model.config, checkpoint), place)

    for step in recipe.keep_steps:  # a model that is gone or damaged, but not its checkpoint
        source, place = (parent / step_name(step) for parent in (folder, folder.parent / STEPS))
        if source.is_dir() and find_damage(place) and not find_damage(source):
            publish(load_checkpoint(source))
    return CheckpointWriter(
        folder,
        keep=recipe.keep_checkpoints,
        permanent=recipe.keep_steps,
        publish=publish,
        newest_step=state.step,
    )
