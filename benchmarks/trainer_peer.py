"""Finetuning by transformers' Trainer, the peer of `finetuning.py`.

Trainer gets what a careful user gives it: token ids ready in memory, its own collators, the fused
AdamW that is its default, large batches for evaluation, no logging and no saving. Scores are
computed by the task's own rules.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
import transformers
from torch import Tensor, nn

from metaxlm.finetune.task import Dataset, Features, FinetuneSettings, Logits, Task, TaskData
from metaxlm.finetune.trainer import ADAM_BETAS
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.pretrain.cost import synchronize

HEADS = {
    "classification": "AutoModelForSequenceClassification",
    "tagging": "AutoModelForTokenClassification",
}
AnyTask = Task[Any, Any]
Collator = Callable[[list[Any]], dict[str, Tensor]]


@dataclass(frozen=True)
class Case:
    """What all contenders train on."""

    task: AnyTask
    start: AnyEncoder
    data: TaskData
    settings: FinetuneSettings
    device: torch.device

    @property
    def dev(self) -> Dataset:
        return self.data.selecting[0]

    @property
    def test(self) -> Dataset:
        return next(data for data in self.data.scored if data.file.split == "test")

    @property
    def num_steps(self) -> int:
        return math.ceil(len(self.data.train.features) / self.settings.batch_size)


@dataclass(frozen=True)
class Outcome:
    """What one contender made of one seed."""

    seconds: float
    cpu_s: float
    """Of all threads; other load on the machine hardly changes it."""
    dev: float
    test: float
    padding: float
    """Share of the training tokens that are padding."""


class Timer:
    """Takes the time of a block, the device's work included."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __enter__(self) -> Self:
        synchronize(self._device)
        self._start = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        synchronize(self._device)
        self.seconds = time.perf_counter() - self._start[0]
        self.cpu_s = time.process_time() - self._start[1]


def length_options() -> dict[str, Any]:
    """Return the arguments of the installed Trainer version that group examples by length."""
    known = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    if "train_sampling_strategy" in known:
        return {"train_sampling_strategy": "group_by_length"}
    return {"group_by_length": True} if "group_by_length" in known else {}


class SequentialTrainer(transformers.Trainer):  # type: ignore[misc]
    """Trainer that evaluates in the order given; grouping by length shuffles evaluation as well."""

    def _get_eval_sampler(self, eval_dataset: Any) -> torch.utils.data.Sampler[int]:
        return torch.utils.data.SequentialSampler(eval_dataset)


def run_trainer(case: Case, seed: int, groups: bool) -> Outcome:
    transformers.set_seed(seed)
    head = getattr(transformers, HEADS[case.task.kind])
    folder, num_labels = case.start.source, len(case.task.labels)
    model = head.from_pretrained(folder, num_labels=num_labels, dtype=torch.float32)
    dev, test = PeerRows(case.dev, groups), PeerRows(case.test, groups)
    train = PeerRows(case.data.train, False).rows
    collator = CountingCollator(make_collator(case), train)
    keeper = BestKeeper(f"eval_{case.task.metric}")
    with tempfile.TemporaryDirectory() as output:
        trainer = SequentialTrainer(
            model=model,
            args=make_arguments(case, seed, output, groups),
            train_dataset=train,
            eval_dataset=dev.rows,
            data_collator=collator,
            processing_class=case.start.tokenizer,
            compute_metrics=lambda found: dev.score(case.task, found.predictions),
            callbacks=[keeper],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        with Timer(case.device) as timer:
            trainer.train()
            keeper.restore(model)
        trainer.compute_metrics = None
        score = test.score(case.task, trainer.predict(test.rows).predictions)[case.task.metric]
    return Outcome(timer.seconds, timer.cpu_s, keeper.best, score, collator.padding)


def make_arguments(case: Case, seed: int, output: str, groups: bool) -> Any:
    settings, on_gpu = case.settings, case.device.type == "cuda"
    return transformers.TrainingArguments(
        output_dir=output,
        seed=seed,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=128,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=int(settings.epochs * case.num_steps * settings.warmup),
        weight_decay=settings.weight_decay,
        adam_beta1=ADAM_BETAS[0],
        adam_beta2=ADAM_BETAS[1],
        adam_epsilon=settings.adam_epsilon,
        max_grad_norm=settings.clip,
        eval_strategy="epoch",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=on_gpu,
        **(length_options() if groups else {}),
    )


def make_collator(case: Case) -> Collator:
    kind = (
        transformers.DataCollatorForTokenClassification
        if case.task.kind == "tagging"
        else transformers.DataCollatorWithPadding
    )
    collator: Collator = kind(case.start.tokenizer)
    return collator


class CountingCollator:
    """A collator of Trainer's that counts the padding of training batches."""

    def __init__(self, collator: Collator, train: Sequence[Any]) -> None:
        self._collator = collator
        self._train = {id(row) for row in train}
        self._num_real = self._num_computed = 0

    def __call__(self, rows: list[Any]) -> dict[str, Tensor]:
        if id(rows[0]) in self._train:
            lengths = [len(row["input_ids"]) for row in rows]
            self._num_real += sum(lengths)
            self._num_computed += max(lengths) * len(lengths)
        return self._collator(rows)

    @property
    def padding(self) -> float:
        return 1 - self._num_real / self._num_computed


class BestKeeper(transformers.TrainerCallback):  # type: ignore[misc]
    """Keeps the weights of the best epoch in memory, as our loop does."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.best = -math.inf
        self._weights: dict[str, Tensor] = {}

    def on_evaluate(self, *_: Any, metrics: dict[str, float], model: nn.Module, **__: Any) -> None:
        if metrics[self.metric] > self.best:
            self.best = metrics[self.metric]
            self._weights = {name: value.clone() for name, value in model.state_dict().items()}

    def restore(self, model: nn.Module) -> None:
        model.load_state_dict(self._weights)


class PeerRows:
    """A data set as Trainer takes it; `by_length` puts the longest first, so little is padded."""

    def __init__(self, data: Dataset, by_length: bool) -> None:
        self._data = data
        self._order = list(range(len(data.features)))
        if by_length:
            self._order.sort(key=lambda k: -len(data.features[k].ids))
        self.rows = [make_row(data.features[k]) for k in self._order]

    def score(self, task: AnyTask, predictions: Sequence[Logits]) -> dict[str, float]:
        """Score Trainer's logits by the task's own rules."""
        logits: dict[int, Logits] = {}
        for k, row in zip(self._order, predictions, strict=True):
            logits[k] = row if row.ndim == 1 else row[: len(self._data.features[k].ids)]
        examples, features = self._data.examples, self._data.features
        answers = task.decode(examples, features, [logits[k] for k in range(len(features))])
        return task.score(examples, answers, self._data.file.language)


def make_row(sequence: Features) -> dict[str, Any]:
    labels = sequence.labels.tolist()
    row = {
        "input_ids": sequence.ids.tolist(),
        "attention_mask": [1] * len(sequence.ids),
        "labels": labels if len(labels) == len(sequence.ids) else labels[0],
    }
    if sequence.token_types is not None:
        row["token_type_ids"] = sequence.token_types.tolist()
    return row
