"""The one finetuning loop: a task, an encoder and data come in, scores by language go out.

Phase (c) of the paper (Section 3.3, hyperparameters in its appendix): train on one language, pick
the best epoch on dev data, test on every language. AdamW with a linear schedule and warm-up,
gradients clipped, bfloat16 on CUDA. Order and dropout are functions of the seed and the step alone,
so on a CPU a run repeats bit for bit (on CUDA as far as its kernels do).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import Encoder
from metaxlm.model.heads import TaskModel
from metaxlm.pretraining.optimizer import learning_rate, make_optimizer, set_rate
from metaxlm.progress import say, track
from metaxlm.randomness import derive_seed
from metaxlm.tasks.batches import (
    Inputs,
    collate_inputs,
    evaluating,
    pad_rows,
    plan_batches,
    shuffle_batches,
)
from metaxlm.tasks.encoding import check_tokenizer
from metaxlm.tasks.task import IGNORED, Features, FinetuneSettings, Logits, Split, Task

EVALUATION_TOKENS = 16_384
"""Tokens, padding included, in one forward pass of evaluation."""

ADAM_BETAS = (0.9, 0.999)
"""The paper gives none for finetuning; these are XTREME's."""

NOTE_EVERY = 20
"""Steps between two looks at the loss; each look waits for the device."""


@dataclass(frozen=True)
class SplitScore:
    """Scores of the best epoch on one file."""

    language: str
    split: Split
    num_examples: int
    values: dict[str, float]
    majority: dict[str, float]
    """The same scores for always answering the training set's most frequent label."""


@dataclass(frozen=True)
class EpochRecord:
    """How one epoch went."""

    epoch: int
    loss: float
    """Mean over the steps."""
    dev: float
    """What selects the epoch."""


@dataclass(frozen=True)
class TransferScores:
    """The outcome of one finetuning."""

    task: str
    metric: str
    source: str
    seed: int
    best_epoch: int
    epochs: tuple[EpochRecord, ...]
    scores: tuple[SplitScore, ...]

    def find(self, language: str, split: Split = "test") -> SplitScore:
        """Return the scores on one file."""
        for score in self.scores:
            if (score.language, score.split) == (language, split):
                return score
        raise MetaXLMError(f"{self.task}: no {split} score for {language}; it was not evaluated")


@dataclass(frozen=True)
class _Dataset:
    """One file, read and encoded."""

    language: str
    split: Split
    examples: list[Any]
    features: list[Features]


def finetune(
    task: Task[Any, Any],
    encoder: Encoder,
    tokenizer: PreTrainedTokenizerBase,
    data_dir: Path,
    languages: Sequence[str],
    settings: FinetuneSettings,
    seed: int,
    device: torch.device,
    *,
    source: str = "en",
) -> TransferScores:
    """Train a copy of the encoder on `source` and score it on dev and test of all languages.

    Everything is read before anything is trained, so a broken file shows at once. A language needs
    a dev or a test file; which one is missing is said. The passed encoder is not changed.
    """
    check_tokenizer(tokenizer, encoder.config)
    if not 2 < settings.length <= encoder.config.max_positions:
        raise MetaXLMError(
            f"{task.name}: length {settings.length} does not fit the encoder's "
            f"{encoder.config.max_positions} positions; choose one from 3 to that"
        )

    def load(split: Split, language: str) -> _Dataset:
        return _load(task, tokenizer, data_dir, split, language, settings.length)

    train = load("train", source)
    present = _find_files(task, data_dir, languages)
    datasets = [load(split, language) for language, split in present]
    selecting = [data for data in datasets if data.split == "dev"]
    if settings.select_by == "source":
        selecting = [data for data in selecting if data.language == source]
        selecting = selecting or [load("dev", source)]
    if not selecting:
        raise MetaXLMError(
            f"{task.name}: no dev file in {data_dir}; one is needed to pick an epoch"
        )

    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(derive_seed(seed, f"{task.name} head"))
        model = TaskModel(copy.deepcopy(encoder), task.make_head(encoder.config))
        model.requires_grad_(True).to(device)
        best_epoch, records = _train(task, model, train, selecting, settings, seed, device)
        scores = _score_all(task, model, train, datasets, device)
    return TransferScores(task.name, task.metric, source, seed, best_epoch, records, scores)


def _find_files(
    task: Task[Any, Any], data_dir: Path, languages: Sequence[str]
) -> list[tuple[str, Split]]:
    """List the dev and test files of the languages, and say what is not there."""
    splits: tuple[Split, Split] = ("dev", "test")
    known = {split: task.list_languages(data_dir, split) for split in splits}
    files: list[tuple[str, Split]] = []
    for language in languages:
        here: list[Split] = [split for split in splits if language in known[split]]
        if not here:
            either = sorted({code for codes in known.values() for code in codes})
            raise MetaXLMError(
                f"{data_dir / task.name}: no dev or test file for {language!r}; found here: "
                f"{' '.join(either) or 'nothing'}"
            )
        files += [(language, split) for split in here]
    for split in splits:
        missing = [language for language in languages if language not in known[split]]
        if missing:
            say(f"{task.name}: no {split} file for {' '.join(missing)}; no {split} score there")
    return files


def _load(
    task: Task[Any, Any],
    tokenizer: PreTrainedTokenizerBase,
    data_dir: Path,
    split: Split,
    language: str,
    length: int,
) -> _Dataset:
    examples = task.read(data_dir, split, language)
    encoded = task.featurize(examples, tokenizer, length)
    if encoded.notice:
        say(f"{task.name} {split}-{language}: {encoded.notice}")
    return _Dataset(language, split, examples, encoded.features)


def _train(
    task: Task[Any, Any],
    model: TaskModel,
    train: _Dataset,
    selecting: Sequence[_Dataset],
    settings: FinetuneSettings,
    seed: int,
    device: torch.device,
) -> tuple[int, tuple[EpochRecord, ...]]:
    """Train all epochs and leave the best one's weights in the model."""
    optimizer = make_optimizer(
        model,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        betas=ADAM_BETAS,
        epsilon=settings.adam_epsilon,
    )
    lengths = [len(sequence.ids) for sequence in train.features]
    steps_per_epoch = math.ceil(len(lengths) / settings.batch_size)
    total = settings.epochs * steps_per_epoch
    warmup_steps = int(total * settings.warmup)
    best_value, best_epoch, best_weights = -math.inf, 0, {}
    records: list[EpochRecord] = []
    step = 0
    with track(f"{task.name}: finetune", total, "steps") as advance:
        for epoch in range(1, settings.epochs + 1):
            losses = torch.zeros((), device=device)
            model.train()
            for batch in shuffle_batches(lengths, settings.batch_size, seed, epoch):
                rate = learning_rate(step, settings.learning_rate, total, warmup_steps)
                set_rate(optimizer, rate)
                torch.manual_seed(derive_seed(seed, f"{task.name} dropout", step))
                loss = _take_step(
                    task, model, optimizer, [train.features[k] for k in batch], settings, device
                )
                losses += loss
                step += 1
                look = step % NOTE_EVERY == 0 or step == total
                advance(note=f"loss {_check_loss(loss, task, step):.3f}" if look else None)
            mean_loss = _check_loss(losses / steps_per_epoch, task, step)
            values = [_evaluate(task, model, data, device)[task.metric] for data in selecting]
            records.append(EpochRecord(epoch, mean_loss, sum(values) / len(values)))
            if records[-1].dev > best_value:
                best_value, best_epoch = records[-1].dev, epoch
                best_weights = {k: v.to("cpu", copy=True) for k, v in model.state_dict().items()}
    model.load_state_dict(best_weights)
    return best_epoch, tuple(records)


def _take_step(
    task: Task[Any, Any],
    model: TaskModel,
    optimizer: torch.optim.Optimizer,
    batch: Sequence[Features],
    settings: FinetuneSettings,
    device: torch.device,
) -> Tensor:
    labels = pad_rows([sequence.labels for sequence in batch], IGNORED).to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        logits = model(*_collate(batch, model, device))
    loss = task.compute_loss(logits.float(), labels)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    optimizer.step()
    return loss.detach()


def _score_all(
    task: Task[Any, Any],
    model: TaskModel,
    train: _Dataset,
    datasets: Sequence[_Dataset],
    device: torch.device,
) -> tuple[SplitScore, ...]:
    scores: list[SplitScore] = []
    with track(f"{task.name}: evaluate", len(datasets), "files") as advance:
        for data in datasets:
            majority = task.score(
                data.examples, task.answer_majority(train.examples, data.examples)
            )
            values = _evaluate(task, model, data, device)
            scores.append(
                SplitScore(data.language, data.split, len(data.examples), values, majority)
            )
            advance(note=f"{data.language} {task.metric} {values[task.metric]:.3f}")
    return tuple(scores)


def _evaluate(
    task: Task[Any, Any], model: TaskModel, data: _Dataset, device: torch.device
) -> dict[str, float]:
    lengths = [len(sequence.ids) for sequence in data.features]
    logits: dict[int, Logits] = {}
    with evaluating(model):
        for batch in plan_batches(lengths, EVALUATION_TOKENS):
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                answers = model(*_collate([data.features[k] for k in batch], model, device))
            for k, answer in zip(batch, answers.float().cpu().numpy(), strict=True):
                logits[k] = answer if answer.ndim == 1 else answer[: lengths[k]]
    in_order = [logits[k] for k in range(len(lengths))]
    return task.score(data.examples, task.decode(data.examples, data.features, in_order))


def _collate(batch: Sequence[Features], model: TaskModel, device: torch.device) -> Inputs:
    config = model.encoder.config
    types = [sequence.token_types for sequence in batch if sequence.token_types is not None]
    ids = [sequence.ids for sequence in batch]
    return collate_inputs(
        ids, config.pad_id, device, types if types and config.num_token_types > 1 else None
    )


def _check_loss(loss: Tensor, task: Task[Any, Any], step: int) -> float:
    value = loss.item()
    if not math.isfinite(value):
        raise MetaXLMError(
            f"{task.name}: the loss is {value} at step {step}; lower the learning rate"
        )
    return value
