"""Train a task model on one language, choose the best epoch on dev data, and score it.

AdamW with a linear schedule and warm-up, clipped gradients, the precision `auto` of pretraining.
Order and dropout are functions of the seed and the step, so a run on a CPU is reproducible bit by
bit. An encoder of ours takes a step's sequences packed; on a GPU the whole step is one CUDA graph
per total of tokens.
Another encoder takes them padded, on a CPU in groups of similar length.

Two baselines without a model accompany each score: chance, and the training set's most frequent
answer. Examples without a label are predicted and not scored.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate, compress
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from metaxlm.errors import Diverged
from metaxlm.finetune.batches import (
    FeatureTable,
    compute_logits,
    compute_packed,
    evaluating,
    plan_batches,
    round_total,
    shuffle_batches,
    split_batch,
    split_logits,
    takes_packed,
)
from metaxlm.finetune.encoding import Ids
from metaxlm.finetune.task import (
    IGNORED,
    AnyTask,
    Baselines,
    DataFile,
    Dataset,
    Features,
    FinetuneSettings,
    Logits,
    Tally,
    TaskData,
)
from metaxlm.model.any_encoder import AnyEncoder, load_task_model, make_task_model
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.heads import TaskModel
from metaxlm.pretrain.code_switching import Switching
from metaxlm.pretrain.distributed import DistributedContext, choose_dtype
from metaxlm.pretrain.optimizer import learning_rate, make_optimizer
from metaxlm.pretrain.step import FusedUpdate, TrainStep, is_recording
from metaxlm.progress import track
from metaxlm.randomness import derive_seed, generator

ADAM_BETAS = (0.9, 0.999)
"""The paper gives none for finetuning; these are XTREME's."""
NOTE_EVERY = {"cpu": 20, "cuda": 200, "mps": 200}
"""Steps between two reports of the loss; each one waits for the device."""
EVALUATION_TOKENS = {"cpu": 4_096, "cuda": 65_536, "mps": 16_384}
"""Tokens of one forward pass of evaluation, padding included."""
_GROUP_COST = 16
"""Tokens that take a CPU as long as one more group, which adds all gradients once more."""


@dataclass(frozen=True)
class EpochRecord:
    """Mean loss and dev score of one epoch; no dev score if the last epoch is taken."""

    epoch: int
    loss: float
    dev: float | None


@dataclass(frozen=True)
class Finetuned:
    """The result of one training: the model of the best epoch, on the device."""

    model: nn.Module
    best_epoch: int
    epochs: tuple[EpochRecord, ...]


def train_model(
    task: AnyTask,
    start: AnyEncoder,
    data: TaskData,
    settings: FinetuneSettings,
    seed: int,
    device: torch.device,
    switching: Switching | None = None,
) -> Finetuned:
    """Train a copy of the encoder with a new head; the passed encoder is not changed.

    With 0 epochs, return the model with its own head, as it is. `switching` replaces some words of
    the training set with translations.
    """
    if settings.epochs == 0:
        return Finetuned(load_task_model(start, task.kind, task.labels).to(device), 0, ())
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(derive_seed(seed, f"{task.training} head"))
        model = make_task_model(start, task.kind, len(task.labels)).to(device)
        config = start.encoder.config
        rows, features, pad_id = None, data.train.features, config.pad_id
        text = None if switching is None else SwitchedText(data.train, switching, seed)
        if isinstance(model, TaskModel) and settings.weight_decay == 0:
            rows = TrainedRows(model, features, () if text is None else text.translations)
            features, pad_id = rows.renumber(features), rows.pad_id
        table = FeatureTable(features, config, device, pad_id)
        optimizer = make_optimizer(
            model,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            betas=ADAM_BETAS,
            epsilon=settings.adam_epsilon,
        )
        step = FinetuneStep(task, model, table, optimizer, device, clip=settings.clip)
        steps_per_epoch = math.ceil(len(table.lengths) / settings.batch_size)
        last, total, taken = settings.epochs, settings.epochs * steps_per_epoch, 0
        best_value, best_epoch, best_weights = -math.inf, last, {}
        records: list[EpochRecord] = []
        with track(f"{task.name}: finetune", total, "steps") as advance:
            for epoch in range(1, last + 1):
                if text is not None:
                    ids_N = text.draw(epoch)
                    table.replace_ids(ids_N if rows is None else rows.find(ids_N))
                step.totals.reset()
                for batch in shuffle_batches(table.lengths, settings.batch_size, seed, epoch):
                    warmup = int(total * settings.warmup)
                    rate = learning_rate(taken, settings.learning_rate, total, warmup)
                    dropout_seed = derive_seed(seed, f"{task.training} dropout", taken)
                    step.take(step.make_inputs(batch, settings.batch_size, dropout_seed), rate)
                    taken += 1
                    look = taken % NOTE_EVERY[device.type] == 0
                    advance(note=f"loss {step.totals.last_loss.item():.3f}" if look else None)
                if bad := int(step.totals.bad - step.totals.overflows):
                    raise Diverged(
                        f"{task.name}: the loss or its gradient was not finite in {bad} of {taken} "
                        f"steps; lower the learning rate"
                    )
                with nullcontext() if rows is None else rows.completed():
                    scores = [
                        score_dataset(task, model, dev, config, device)[task.metric]
                        for dev in data.selecting
                    ]
                value = sum(scores) / len(scores) if scores else None
                loss = float(step.totals.loss) / max(1, int(step.totals.steps))
                records.append(EpochRecord(epoch, loss, value))
                if value is not None and value > best_value:
                    best_value, best_epoch = value, epoch
                    if epoch < last:
                        state = model.state_dict()
                        best_weights = {name: tensor.clone() for name, tensor in state.items()}
        if best_epoch < last:
            model.load_state_dict(best_weights)
        if rows is not None:
            rows.finish()
        task.finish(model)
        return Finetuned(model, best_epoch, tuple(records))


class SwitchedText:
    """A training set in which some words are replaced with translations."""

    def __init__(self, data: Dataset, switching: Switching, seed: int) -> None:
        """Take the tokens of a data set in the language of its file."""
        self._ids_N = np.concatenate([f.ids for f in data.features]).astype(np.int32)
        self._language = np.array([switching.languages.index(data.file.language)])
        self._switching, self._seed = switching, seed
        self.translations = switching.list_translations(data.file.language)

    def draw(self, epoch: int) -> Ids:
        """Return the tokens of all sequences in an epoch, one after another."""
        ids_1N = self._ids_N[None].copy()
        key = derive_seed(self._seed, "switched words", epoch)
        # A sequence ends with a special token, so no word continues in the next one.
        self._switching.switch(ids_1N, self._language, 0, key)
        switched_N: Ids = ids_1N[0]
        return switched_N


class TrainedRows:
    """The token embeddings that a training set uses, as the only ones of the model.

    Without weight decay, AdamW does not change the others: their gradients are 0. Without them, a
    step reads and writes less memory, most of all with a large vocabulary.
    """

    def __init__(
        self, model: TaskModel, features: Sequence[Features], more_ids: Sequence[int] | Ids = ()
    ) -> None:
        """Leave out all embeddings but those of the sequences and of `more_ids`, until `finish`."""
        self._words = model.encoder.words
        whole, pad_id = self._words.weight, self._words.padding_idx
        assert pad_id is not None
        self._whole = whole, pad_id
        used = [[pad_id], more_ids, *(f.ids for f in features)]
        self._ids_K = np.unique(np.concatenate(used).astype(np.int64))
        self._rows_K = torch.from_numpy(self._ids_K).to(whole.device)
        self.pad_id = int(self.find(np.array([pad_id]))[0])
        self._set(nn.Parameter(whole.detach()[self._rows_K]), self.pad_id)

    def renumber(self, features: Sequence[Features]) -> list[Features]:
        """Return the sequences with the rows of the embeddings as ids."""
        return [replace(f, ids=self.find(f.ids)) for f in features]

    def find(self, ids_N: Ids) -> Ids:
        """Return the rows of tokens."""
        return np.searchsorted(self._ids_K, ids_N).astype(ids_N.dtype)

    @contextmanager
    def completed(self) -> Iterator[None]:
        """Give the model all embeddings, to score other texts."""
        trained = self._words.weight
        self.finish()
        try:
            yield
        finally:
            self._set(trained, self.pad_id)

    def finish(self) -> None:
        """Give the model all embeddings."""
        whole, pad_id = self._whole
        with torch.no_grad():
            whole[self._rows_K] = self._words.weight
        self._set(whole, pad_id)

    def _set(self, weight: Tensor, pad_id: int) -> None:
        assert isinstance(weight, nn.Parameter)
        self._words.weight, self._words.padding_idx = weight, pad_id
        self._words.num_embeddings = len(weight)


@dataclass(frozen=True)
class Group:
    """Sequences of a step that are computed together, padded to `length` unless `is_even`."""

    size: int
    length: int
    is_even: bool


@dataclass(frozen=True)
class StepRows:
    """The sequences of a step."""

    rows_B: Tensor
    seed: int
    """Of the step's dropout; `seed_1` is on the device."""
    total: int
    """Rounded number of tokens, if packed."""
    groups: tuple[Group, ...] = ()
    """Groups in the order of the rows, if padded."""
    seed_1: Tensor | None = None

    def shape(self) -> Hashable:
        """Return the number of tokens: only packed steps are recorded."""
        return self.total

    def to(self, device: torch.device) -> Self:
        """Return copies on a device with memory of their own."""
        return replace(
            self,
            rows_B=self.rows_B.to(device, copy=True),
            seed_1=torch.tensor([self.seed], device=device),
        )

    def fill(self, other: Self) -> None:
        """Copy the values of another step of this shape."""
        assert self.seed_1 is not None
        self.rows_B.copy_(other.rows_B, non_blocking=True)
        self.seed_1.fill_(other.seed)


def make_groups(lengths: Sequence[int], device: torch.device) -> tuple[Group, ...]:
    """Group a step's sequences by their lengths, in descending order; a GPU has one group."""
    sizes = split_batch(lengths, _GROUP_COST) if device.type == "cpu" else [len(lengths)]
    return tuple(
        Group(size, lengths[end - size], lengths[end - size] == lengths[end - 1])
        for size, end in zip(sizes, accumulate(sizes), strict=True)
    )


class FinetuneStep(TrainStep[StepRows]):
    """Trains a task model step by step."""

    def __init__(
        self,
        task: AnyTask,
        model: nn.Module,
        table: FeatureTable,
        optimizer: torch.optim.AdamW,
        device: torch.device,
        *,
        clip: float,
    ) -> None:
        world, dtype = DistributedContext.alone(device), choose_dtype("auto", device)
        super().__init__(optimizer, world, clip=clip, dtype=dtype)
        self._task, self._model, self._table = task, model, table
        self._is_packed = takes_packed(model, device)
        self._copies: Mapping[Tensor, Tensor] = {}

    def make_inputs(self, batch: Sequence[int], batch_size: int, seed: int) -> StepRows:
        """Prepare a step on these sequences, the longest first."""
        lengths = [self._table.lengths[k] for k in batch]
        device = self.world.device
        if not self._is_packed:
            return StepRows(torch.tensor(batch), seed, 0, make_groups(lengths, device))
        # Graphs have one size: complete the batch.
        missing = batch_size - len(batch) if self._can_be_captured() else 0
        rows_B = torch.tensor([*batch, *[self._table.filler] * missing])
        return StepRows(rows_B, seed, round_total(sum(lengths) + missing, device))

    def _compute(self, inputs: StepRows, skip: bool = False) -> None:
        if not is_recording():
            torch.manual_seed(inputs.seed)
        self._optimizer.zero_grad(set_to_none=True)
        compute = self._train_packed if self._is_packed else self._train_groups
        self._update(compute(inputs), skip)

    def _train_packed(self, inputs: StepRows) -> Tensor:
        packed = self._table.pack(inputs.rows_B, inputs.total)
        logits = compute_packed(self._model, packed, inputs.seed_1, self._copies)
        loss = self._task.compute_loss(logits, packed.labels_BW, packed.lengths_B)
        self._backpropagate(loss)
        return loss.detach()

    def _train_groups(self, inputs: StepRows) -> Tensor:
        parts = torch.split(inputs.rows_B, [group.size for group in inputs.groups])
        batches = [
            self._table.gather(rows_B, group.length)
            for rows_B, group in zip(parts, inputs.groups, strict=True)
        ]
        counts = [(batch.labels_BW != IGNORED).sum() for batch in batches]
        total = torch.stack(counts).sum().clamp_min(1)
        step_loss = torch.zeros_like(self.totals.loss)
        for batch, group, count in zip(batches, inputs.groups, counts, strict=True):
            logits = compute_logits(self._model, batch, group.is_even)
            loss = self._task.compute_loss(logits, batch.labels_BW, batch.lengths_B)
            loss = loss * (count / total)
            self._backpropagate(loss)
            step_loss += loss.detach()
        return step_loss

    def _before_replay(self, inputs: StepRows) -> None:
        torch.manual_seed(inputs.seed)  # the head's dropout is torch's

    def _can_be_captured(self) -> bool:
        return self._is_packed and self.world.device.type == "cuda"

    def _make_fused_update(self) -> FusedUpdate:
        assert isinstance(self._model, TaskModel)
        update = FusedUpdate(self._model.encoder, self._optimizer, copies_words=False)
        self._copies = update.copies
        return update


@dataclass(frozen=True)
class FileScores:
    """The scores and predictions of a model on one file."""

    file: DataFile
    num_examples: int
    """Labeled ones, which are scored."""
    num_unlabeled: int
    values: dict[str, float]
    """Scores by name; empty if no example has a label."""
    majority: dict[str, float]
    """The same scores for the training set's most frequent answer, and for a random one."""
    chance: dict[str, float]
    tally: Tally
    submission: str
    """All predictions as XTREME's submission file."""
    confusion: list[list[int]]
    """How often each class is predicted as each; empty if the task does not show it."""


def evaluate(
    task: AnyTask, model: nn.Module, data: TaskData, config: EncoderConfig, device: torch.device
) -> tuple[FileScores, ...]:
    """Score a model on every dev and test file."""
    scores: list[FileScores] = []
    with track(f"{task.name}: evaluate", len(data.scored), "files") as advance:
        for scored in data.scored:
            file = scored.file
            predictions, gold, answers = _predict(task, model, scored, config, device)
            tally = task.tally(gold, answers, file.language)
            values: dict[str, float] = {}
            baselines: Baselines = ({}, {})
            if gold:
                values = {name: float(v) for name, v in task.summarize(tally.sum(axis=0)).items()}
                if file not in data.baselines:
                    random = generator(0, f"{task.name} chance {file.name} {file.language}")
                    train = data.train.examples or gold
                    majority = task.answer_majority(train, gold)
                    chance = task.answer_randomly(train, gold, random)
                    data.baselines[file] = (
                        task.score(gold, majority, file.language),
                        task.score(gold, chance, file.language),
                    )
                baselines = data.baselines[file]
            submission = task.format_predictions(scored.examples, predictions)
            counts = len(gold), scored.num_unlabeled
            confusion = task.confuse(gold, answers)
            scores.append(
                FileScores(file, *counts, values, *baselines, tally, submission, confusion)
            )
            advance(note=f"{file.language} {values[task.metric]:.3f}" if values else None)
    return tuple(scores)


def score_dataset(
    task: AnyTask, model: nn.Module, data: Dataset, config: EncoderConfig, device: torch.device
) -> dict[str, float]:
    """Return the scores on the labeled examples of one set."""
    _, gold, answers = _predict(task, model, data, config, device)
    return task.score(gold, answers, data.file.language)


def _predict(
    task: AnyTask, model: nn.Module, data: Dataset, config: EncoderConfig, device: torch.device
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return all predictions, and the labeled examples with theirs; batch similar lengths."""
    found: dict[int, Logits] = {}
    is_packed = takes_packed(model, device)
    table = FeatureTable(data.features, config, device)
    lengths = table.lengths
    with evaluating(model):
        for batch in plan_batches(lengths, EVALUATION_TOKENS[device.type]):
            rows_B, sizes = torch.tensor(batch).to(device), [lengths[k] for k in batch]
            if is_packed:
                packed = table.pack(rows_B, round_total(sum(sizes), device))
                logits = compute_packed(model, packed)
            else:
                padded = table.gather(rows_B, sizes[0])
                logits = compute_logits(model, padded, is_even=sizes[0] == sizes[-1])
            found |= zip(batch, split_logits(logits, sizes), strict=True)
    ordered = [found[k] for k in range(len(lengths))]
    predictions = task.decode(data.examples, data.features, ordered)
    is_labeled = [example.is_labeled for example in data.examples]
    gold, answers = (list(compress(side, is_labeled)) for side in (data.examples, predictions))
    return predictions, gold, answers
