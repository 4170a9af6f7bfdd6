"""Phase (c), the stages that measure: features without finetuning, and cross-lingual transfer.

A trained variant comes in; rows of the results table go out, and a few real sentences for the eye.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from metaxlm.config import Recipe
from metaxlm.experiments.layout import RunLayout
from metaxlm.experiments.results import FILE_NAME, Result, write_results
from metaxlm.files import write_json
from metaxlm.model.hugging_face import Pretrained, load_pretrained
from metaxlm.progress import say
from metaxlm.randomness import derive_seed
from metaxlm.tasks.alignment import AlignmentOutcome, draw_examples, measure_alignment
from metaxlm.tasks.finetune import TransferScores, finetune
from metaxlm.tasks.readers import (
    list_tatoeba,
    list_word_alignment,
    read_tatoeba,
    read_word_alignment,
)
from metaxlm.tasks.registry import TASKS
from metaxlm.tasks.retrieval import RetrievalOutcome, measure_retrieval

EXAMPLES_NAME = "examples.json"
PIVOT = "en"
"""Tatoeba and the gold alignments pair every language with English."""


def evaluate_features(
    recipe: Recipe, layout: RunLayout, variant: str, device: torch.device, folder: Path
) -> None:
    """Measure retrieval and alignment by layer; write rows and drawn examples."""
    pretrained = load_pretrained(layout.variant(variant) / "model")
    results: list[Result] = []
    examples: dict[str, list[dict[str, Any]]] = {"alignment": [], "retrieval": []}
    if recipe.evaluation.retrieval is not None:
        for found in _retrieve(recipe, layout, pretrained, device):
            results += _retrieval_rows(recipe, variant, found)
            examples["retrieval"] += _retrieval_examples(found)
    if recipe.evaluation.alignment is not None:
        for aligned, drawn in _align(recipe, layout, pretrained, device):
            results += _alignment_rows(recipe, variant, aligned)
            examples["alignment"] += drawn
    write_results(folder / FILE_NAME, results)
    write_json(folder / EXAMPLES_NAME, examples)


def finetune_task(
    recipe: Recipe,
    layout: RunLayout,
    variant: str,
    task_name: str,
    device: torch.device,
    folder: Path,
) -> None:
    """Finetune in the source language with each seed, test in every language, write rows."""
    task = TASKS[task_name]
    wishes = recipe.evaluation.finetune[task_name]
    given = {key: value for key, value in wishes if key != "seeds" and value is not None}
    settings = replace(task.settings, **given)
    pretrained = load_pretrained(layout.variant(variant) / "model")
    results: list[Result] = []
    for number in range(wishes.seeds):
        outcome = finetune(
            task,
            pretrained.model.encoder,
            pretrained.tokenizer,
            task_data(recipe, layout),
            recipe.languages,
            settings,
            derive_seed(recipe.seed, f"finetune-{task_name}", number),
            device,
            source=recipe.source_language,
        )
        results += _transfer_rows(recipe, variant, outcome, number)
    write_results(folder / FILE_NAME, results)


def task_data(recipe: Recipe, layout: RunLayout) -> Path:
    """Return the folder with the task data: the recipe's, or the built-in corpus's."""
    return recipe.evaluation.data or layout.tasks


def _foreign(recipe: Recipe, task: str, available: list[str]) -> list[str]:
    """Return the languages to test, and say which have no data."""
    foreign = [language for language in recipe.languages if language != PIVOT]
    if missing := [language for language in foreign if language not in available]:
        say(f"{task}: no test data for {', '.join(missing)}")
    return [language for language in foreign if language in available]


def _retrieve(
    recipe: Recipe, layout: RunLayout, pretrained: Pretrained, device: torch.device
) -> Iterator[RetrievalOutcome]:
    data_dir = task_data(recipe, layout)
    assert recipe.evaluation.retrieval is not None
    for language in _foreign(recipe, "tatoeba", list_tatoeba(data_dir)):
        yield measure_retrieval(
            pretrained.model.encoder,
            pretrained.tokenizer,
            read_tatoeba(data_dir, language),
            device,
            batch_tokens=recipe.evaluation.retrieval.batch_tokens,
        )


def _align(
    recipe: Recipe, layout: RunLayout, pretrained: Pretrained, device: torch.device
) -> Iterator[tuple[AlignmentOutcome, list[dict[str, Any]]]]:
    data_dir = task_data(recipe, layout)
    settings = recipe.evaluation.alignment
    assert settings is not None
    for language in _foreign(recipe, "alignment", list_word_alignment(data_dir)):
        gold = read_word_alignment(data_dir, language)
        outcome = measure_alignment(
            pretrained.model.encoder,
            pretrained.tokenizer,
            gold,
            device,
            batch_tokens=settings.batch_tokens,
        )
        best = min(outcome.layers, key=lambda layer: layer.scores.aer).layer
        drawn = draw_examples(gold, outcome, best, settings.drawn_pairs)
        yield outcome, [{"language": language, **asdict(example)} for example in drawn]


def _row(recipe: Recipe, variant: str | None, task: str, language: str, **values: Any) -> Result:
    return Result(
        run=recipe.name,
        variant=variant,
        step=recipe.pretraining.steps if variant else None,
        task=task,
        language=language,
        **values,
    )


def _retrieval_rows(recipe: Recipe, variant: str, outcome: RetrievalOutcome) -> list[Result]:
    metrics = ("accuracy", "accuracy_to_source", "accuracy_from_source")
    return [
        _row(
            recipe,
            variant,
            "tatoeba",
            outcome.language,
            scenario="features",
            source=PIVOT,
            layer=layer.layer,
            metric=metric,
            value=getattr(layer, metric),
            examples=outcome.num_pairs,
            seed=recipe.seed,
            split="test",
        )
        for layer in outcome.layers
        for metric in metrics
    ]


def _retrieval_examples(outcome: RetrievalOutcome) -> list[dict[str, Any]]:
    best = max(outcome.layers, key=lambda layer: layer.accuracy)
    return [
        {"language": outcome.language, "layer": best.layer, **asdict(example)}
        for example in best.examples
    ]


def _alignment_rows(recipe: Recipe, variant: str, outcome: AlignmentOutcome) -> list[Result]:
    return [
        _row(
            recipe,
            variant,
            "alignment",
            outcome.language,
            scenario="features",
            source=PIVOT,
            layer=layer.layer,
            metric=metric,
            value=getattr(layer.scores, metric),
            examples=outcome.num_pairs,
            seed=recipe.seed,
            split="test",
        )
        for layer in outcome.layers
        for metric in ("aer", "precision", "recall")
    ]


def _transfer_rows(
    recipe: Recipe, variant: str, outcome: TransferScores, seed: int
) -> list[Result]:
    """Give each score its row, and the majority level a row of its own beside it."""
    results = []
    for score in outcome.scores:
        levels: list[tuple[str | None, str, float]] = [
            (variant, metric, value) for metric, value in score.values.items()
        ]
        levels.append((None, "majority", score.majority[outcome.metric]))
        for name, metric, value in levels:
            results.append(
                _row(
                    recipe,
                    name,
                    outcome.task,
                    score.language,
                    scenario="transfer",
                    source=outcome.source,
                    layer=None,
                    metric=metric,
                    value=value,
                    examples=score.num_examples,
                    seed=seed,
                    split=score.split,
                )
            )
    return results
