"""Evaluate a finetuned model: scores and predictions of each file.

Two baselines without a model accompany each score: chance, and the training set's most frequent
answer. Examples without a label are predicted and not scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import torch
from torch import nn

from metaxlm.finetune.batches import (
    FeatureTable,
    compute_logits,
    compute_packed,
    evaluating,
    plan_batches,
    round_total,
    split_logits,
    takes_packed,
)
from metaxlm.finetune.task import AnyTask, Baselines, DataFile, Dataset, Logits, Tally, TaskData
from metaxlm.model.encoder import EncoderConfig
from metaxlm.progress import track
from metaxlm.randomness import generator

EVALUATION_TOKENS = {"cpu": 4_096, "cuda": 65_536}
"""Tokens of one forward pass of evaluation, padding included."""


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
            values, baselines, note = {}, Baselines({}, {}), None
            if gold:
                values = {name: float(v) for name, v in task.summarize(tally.sum(axis=0)).items()}
                note = f"{file.language} {values[task.metric]:.3f}"
                if file not in data.baselines:
                    data.baselines[file] = _score_baselines(task, data.train.examples, gold, file)
                baselines = data.baselines[file]
            counts = len(gold), scored.num_unlabeled
            others = baselines.majority, baselines.chance
            submission = task.format_predictions(scored.examples, predictions)
            scores.append(FileScores(file, *counts, values, *others, tally, submission))
            advance(note=note)
    return tuple(scores)


def score_dataset(
    task: AnyTask, model: nn.Module, data: Dataset, config: EncoderConfig, device: torch.device
) -> dict[str, float]:
    """Return the scores on the labeled examples of one set."""
    _, gold, answers = _predict(task, model, data, config, device)
    return task.score(gold, answers, data.file.language)


def _score_baselines(
    task: AnyTask, train: Sequence[Any], gold: Sequence[Any], file: DataFile
) -> Baselines:
    random = generator(0, f"{task.name} chance {file.name} {file.language}")
    return Baselines(
        task.score(gold, task.answer_majority(train, gold), file.language),
        task.score(gold, task.answer_randomly(train, gold, random), file.language),
    )


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
