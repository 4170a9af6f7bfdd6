"""A finetuned model is judged: data sets come in, scores and predictions by file go out.

Beside each score stand two levels that need no model: chance, and the training set's most frequent
answer. Examples without a label are predicted and not scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from metaxlm.finetune.batches import evaluating, plan_batches
from metaxlm.finetune.feature_table import FeatureTable
from metaxlm.finetune.forward import (
    compute_logits,
    compute_packed,
    round_total,
    split_logits,
    takes_packed,
)
from metaxlm.finetune.task import DataFile, Features, Logits, Tally, Task
from metaxlm.finetune.task_data import Dataset, Levels, TaskData
from metaxlm.model.encoder import EncoderConfig
from metaxlm.progress import track
from metaxlm.randomness import generator

EVALUATION_TOKENS = {"cpu": 4_096, "cuda": 65_536}
"""Tokens, padding included, in one forward pass of evaluation."""


@dataclass(frozen=True)
class FileScores:
    """What a model made of one file."""

    file: DataFile
    num_examples: int
    """Labeled ones, which the scores are from."""
    num_unlabeled: int
    values: dict[str, float]
    """Scores by name; empty if no example has a label."""
    majority: dict[str, float]
    """The same scores for always answering what is most frequent in the training set."""
    chance: dict[str, float]
    """The same scores for answering at random."""
    tally: Tally
    """What each labeled example adds to the scores, in the file's order."""
    submission: str
    """All predictions as XTREME's submission file."""


def judge(
    task: Task[Any, Any],
    model: nn.Module,
    data: TaskData,
    config: EncoderConfig,
    device: torch.device,
) -> tuple[FileScores, ...]:
    """Score a model on every judged file."""
    scores: list[FileScores] = []
    with track(f"{task.name}: evaluate", len(data.judged), "files") as advance:
        for judged in data.judged:
            found = _judge_file(task, model, data.train, judged, data.levels, config, device)
            scores.append(found)
            value = found.values.get(task.metric)
            advance(note=None if value is None else f"{judged.file.language} {value:.3f}")
    return tuple(scores)


def score_dataset(
    task: Task[Any, Any],
    model: nn.Module,
    data: Dataset,
    config: EncoderConfig,
    device: torch.device,
) -> dict[str, float]:
    """Return the scores on the labeled examples of one set."""
    predictions = _predict(task, model, data, config, device)
    gold, answers = _keep_labeled(task, data, predictions)
    return task.score(gold, answers, data.file.language)


def predict_logits(
    model: nn.Module, features: Sequence[Features], config: EncoderConfig, device: torch.device
) -> list[Logits]:
    """Return the logits of each sequence, in order; computed in batches of similar lengths."""
    if not features:
        return []
    table = FeatureTable(features, config, device)
    lengths = table.lengths
    found: dict[int, Logits] = {}
    is_packed = takes_packed(model, device)
    with evaluating(model):
        for batch in plan_batches(lengths, EVALUATION_TOKENS[device.type]):
            rows_B, sizes = torch.tensor(batch).to(device), [lengths[k] for k in batch]
            if is_packed:
                packed = table.pack(rows_B, round_total(sum(sizes), device))
                logits = compute_packed(model, packed)
            else:
                longest, is_even = sizes[0], sizes[0] == sizes[-1]
                logits = compute_logits(model, table.gather(rows_B, longest), is_even)
            found |= zip(batch, split_logits(logits, sizes), strict=True)
    return [found[k] for k in range(len(features))]


def _judge_file(
    task: Task[Any, Any],
    model: nn.Module,
    train: Dataset,
    data: Dataset,
    known: dict[DataFile, Levels],
    config: EncoderConfig,
    device: torch.device,
) -> FileScores:
    predictions = _predict(task, model, data, config, device)
    submission = task.format_predictions(data.examples, predictions)
    language = data.file.language
    gold, answers = _keep_labeled(task, data, predictions)
    tally = task.tally(gold, answers, language)
    values: dict[str, float] = {}
    levels = Levels({}, {})
    if gold:
        values = {name: float(v) for name, v in task.summarize(tally.sum(axis=0)).items()}
        if data.file not in known:
            known[data.file] = find_levels(task, train.examples, gold, data.file)
        levels = known[data.file]
    return FileScores(
        data.file, len(gold), data.num_unlabeled, values, levels.majority, levels.chance, tally,
        submission,
    )  # fmt: skip


def find_levels(
    task: Task[Any, Any], train: Sequence[Any], gold: Sequence[Any], file: DataFile
) -> Levels:
    """Return the scores of two ways to answer without a model."""
    random = generator(0, f"{task.name} chance {file.name} {file.language}")
    return Levels(
        task.score(gold, task.answer_majority(train, gold), file.language),
        task.score(gold, task.answer_randomly(train, gold, random), file.language),
    )


def _predict(
    task: Task[Any, Any],
    model: nn.Module,
    data: Dataset,
    config: EncoderConfig,
    device: torch.device,
) -> list[Any]:
    logits = predict_logits(model, data.features, config, device)
    return task.decode(data.examples, data.features, logits)


def _keep_labeled(
    task: Task[Any, Any], data: Dataset, predictions: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    if not data.num_unlabeled:
        return list(data.examples), list(predictions)
    pairs = [
        (example, answer)
        for example, answer in zip(data.examples, predictions, strict=True)
        if task.is_labeled(example)
    ]
    return [example for example, _ in pairs], [answer for _, answer in pairs]
