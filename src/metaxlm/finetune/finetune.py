"""The one finetuning loop: a task, an encoder and data come in, the best epoch's model goes out.

Phase (c) of the paper (Section 3.3, hyperparameters in its appendix): train on one language, pick
the best epoch on dev data. AdamW with a linear schedule and warm-up, gradients clipped, bfloat16 on
CUDA. Order and dropout are functions of the seed and the step alone, so on a CPU a run repeats bit
for bit (on CUDA as far as its kernels do).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from metaxlm.errors import Diverged
from metaxlm.finetune.batches import shuffle_batches
from metaxlm.finetune.feature_table import FeatureTable
from metaxlm.finetune.finetune_step import FinetuneStep
from metaxlm.finetune.judging import score_dataset
from metaxlm.finetune.task import FinetuneSettings, Task
from metaxlm.finetune.task_data import TaskData
from metaxlm.model.any_encoder import AnyEncoder, make_task_model
from metaxlm.model.encoder import EncoderConfig
from metaxlm.pretrain.optimizer import learning_rate, make_optimizer
from metaxlm.progress import track
from metaxlm.randomness import derive_seed

ADAM_BETAS = (0.9, 0.999)
"""The paper gives none for finetuning; these are XTREME's."""

NOTE_EVERY = {"cpu": 20, "cuda": 200}
"""Steps between two looks at the loss; each look waits for the device."""


@dataclass(frozen=True)
class EpochRecord:
    """How one epoch went."""

    epoch: int
    loss: float
    """Mean over the steps."""
    dev: float | None
    """What selects the epoch; None where the last one is taken."""


@dataclass(frozen=True)
class Finetuned:
    """The outcome of one training."""

    model: nn.Module
    """With the weights of the best epoch, on the device."""
    best_epoch: int
    epochs: tuple[EpochRecord, ...]


def train_model(
    task: Task[Any, Any],
    start: AnyEncoder,
    data: TaskData,
    settings: FinetuneSettings,
    seed: int,
    device: torch.device,
) -> Finetuned:
    """Train a copy of the encoder with a fresh head; the passed encoder is not changed."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(derive_seed(seed, f"{task.training} head"))
        model = make_task_model(start, task.kind, len(task.labels)).to(device)
        return _Training(task, model, start.encoder.config, data, settings, seed, device).run()


class _Training:
    def __init__(
        self,
        task: Task[Any, Any],
        model: nn.Module,
        config: EncoderConfig,
        data: TaskData,
        settings: FinetuneSettings,
        seed: int,
        device: torch.device,
    ) -> None:
        self._task, self._model, self._config = task, model, config
        self._data, self._settings = data, settings
        self._seed, self._device = seed, device
        self._table = FeatureTable(data.train.features, config, device)
        optimizer = make_optimizer(
            model,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            betas=ADAM_BETAS,
            epsilon=settings.adam_epsilon,
        )
        self._step = FinetuneStep(task, model, self._table, optimizer, device, clip=settings.clip)
        self._steps_per_epoch = math.ceil(len(self._table.lengths) / settings.batch_size)
        self._total = settings.epochs * self._steps_per_epoch
        self._taken = 0

    def run(self) -> Finetuned:
        """Train all epochs and leave the best one's weights in the model."""
        best_value, best_epoch, best_weights = -math.inf, 0, {}
        records: list[EpochRecord] = []
        last = self._settings.epochs
        with track(f"{self._task.name}: finetune", self._total, "steps") as advance:
            for epoch in range(1, last + 1):
                self._train_epoch(epoch, advance)
                mean_loss = self._check_loss()
                dev = self._select()
                records.append(EpochRecord(epoch, mean_loss, dev))
                if dev is None:
                    best_epoch = epoch
                elif dev > best_value:
                    best_value, best_epoch = dev, epoch
                    if epoch < last:
                        state = self._model.state_dict()
                        best_weights = {name: value.clone() for name, value in state.items()}
        if self._data.selecting and best_epoch < last:
            self._model.load_state_dict(best_weights)
        return Finetuned(self._model, best_epoch, tuple(records))

    def _train_epoch(self, epoch: int, advance: Callable[..., None]) -> None:
        settings, lengths = self._settings, self._table.lengths
        warmup_steps = int(self._total * settings.warmup)
        self._step.totals.reset()
        batches = shuffle_batches(lengths, settings.batch_size, self._seed, epoch)
        look_every = NOTE_EVERY[self._device.type]
        for batch in batches:
            rate = learning_rate(self._taken, settings.learning_rate, self._total, warmup_steps)
            seed = derive_seed(self._seed, f"{self._task.training} dropout", self._taken)
            self._step.take(self._step.make_inputs(batch, settings.batch_size, seed), rate)
            self._taken += 1
            look = self._taken % look_every == 0
            advance(note=f"loss {self._step.totals.last_loss.item():.3f}" if look else None)

    def _select(self) -> float | None:
        """Return the mean score over the selecting sets."""
        values = [
            score_dataset(self._task, self._model, data, self._config, self._device)
            for data in self._data.selecting
        ]
        return sum(v[self._task.metric] for v in values) / len(values) if values else None

    def _check_loss(self) -> float:
        totals = self._step.totals
        if bad := int(totals.bad):
            raise Diverged(
                f"{self._task.name}: the loss or its gradient was not finite in {bad} of "
                f"{self._taken} steps; lower the learning rate"
            )
        return float(totals.loss) / self._steps_per_epoch
