"""Phase (c) without finetuning: sentence retrieval and word alignment, by layer.

An encoder and gold data come in; scores of every layer go out, and a few real sentences for the
eye (the paper's Section 4.4 and its two figures). Serves the run's stage and `metaxlm evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from metaxlm.config import AlignmentRecipe, Recipe, RetrievalRecipe
from metaxlm.errors import MetaXLMError
from metaxlm.experiments.layout import RunLayout
from metaxlm.experiments.results import FILE_NAME, list_rows, write_results
from metaxlm.features.alignment import draw_examples, measure_alignment
from metaxlm.features.retrieval import measure_retrieval
from metaxlm.files import write_json
from metaxlm.model.any_encoder import AnyEncoder, load_encoder
from metaxlm.progress import say
from metaxlm.tasks.readers import (
    list_tatoeba,
    list_word_alignment,
    read_tatoeba,
    read_word_alignment,
)

EXAMPLES_NAME = "examples.json"
PIVOT = "en"
"""Tatoeba and the gold alignments pair every language with English."""

RETRIEVAL = "tatoeba"
ALIGNMENT = "alignment"
FEATURE_TASKS: dict[str, Callable[[Path], list[str]]] = {
    RETRIEVAL: list_tatoeba,
    ALIGNMENT: list_word_alignment,
}
"""Tasks without finetuning, and what lists their languages in a data folder."""
TITLES = {RETRIEVAL: "Tatoeba", ALIGNMENT: "Word alignment"}
METRICS = {RETRIEVAL: "accuracy", ALIGNMENT: "aer"}


@dataclass(frozen=True)
class FeatureScores:
    """What the layers of an encoder score on one task."""

    record: dict[str, Any]
    """As in a cell of an evaluation; each layer of each language counts as a file."""
    examples: list[dict[str, Any]]
    """Sentences to look at."""


def evaluate_features(
    recipe: Recipe, layout: RunLayout, variant: str, device: torch.device, folder: Path
) -> None:
    """Measure retrieval and alignment by layer; write rows and drawn examples."""
    start = load_encoder(layout.variant(variant) / "model")
    data_dir = recipe.evaluation.data or layout.tasks
    rows = []
    examples: dict[str, list[dict[str, Any]]] = {ALIGNMENT: [], "retrieval": []}
    if recipe.evaluation.retrieval is not None:
        languages = _find_languages(recipe, RETRIEVAL, data_dir)
        found = retrieve(start, data_dir, languages, device, recipe.evaluation.retrieval)
        rows += list_rows(found.record, recipe.name, variant, recipe.pretraining.steps, recipe.seed)
        examples["retrieval"] = found.examples
    if recipe.evaluation.alignment is not None:
        languages = _find_languages(recipe, ALIGNMENT, data_dir)
        found = align(start, data_dir, languages, device, recipe.evaluation.alignment)
        rows += list_rows(found.record, recipe.name, variant, recipe.pretraining.steps, recipe.seed)
        examples[ALIGNMENT] = found.examples
    write_results(folder / FILE_NAME, rows)
    write_json(folder / EXAMPLES_NAME, examples)


def measure_features(
    task: str,
    start: AnyEncoder,
    data_dir: Path,
    languages: Sequence[str],
    device: torch.device,
    limit: int | None = None,
) -> FeatureScores:
    """Measure one of the feature tasks with the usual settings."""
    if task == RETRIEVAL:
        return retrieve(start, data_dir, languages, device, RetrievalRecipe(), limit)
    if task == ALIGNMENT:
        return align(start, data_dir, languages, device, AlignmentRecipe(), limit)
    raise MetaXLMError(f"{task}: no task without finetuning; known: {', '.join(FEATURE_TASKS)}")


def retrieve(
    start: AnyEncoder,
    data_dir: Path,
    languages: Sequence[str],
    device: torch.device,
    settings: RetrievalRecipe,
    limit: int | None = None,
) -> FeatureScores:
    """Let each sentence look for its translation, with every layer."""
    files, examples = [], []
    for language in languages:
        sentences = read_tatoeba(data_dir, language)
        if limit is not None:
            foreign, english = sentences.foreign[:limit], sentences.english[:limit]
            sentences = replace(sentences, foreign=foreign, english=english)
        outcome = measure_retrieval(start, sentences, device, batch_tokens=settings.batch_tokens)
        for layer in outcome.layers:
            values = {
                "accuracy": layer.accuracy,
                "accuracy_to_source": layer.accuracy_to_source,
                "accuracy_from_source": layer.accuracy_from_source,
            }
            files.append(_describe_layer(language, layer.layer, outcome.num_pairs, values))
        best = max(outcome.layers, key=lambda layer: layer.accuracy)
        examples += [
            {"language": language, "layer": best.layer, **asdict(example)}
            for example in best.examples
        ]
    return FeatureScores(_describe_task(RETRIEVAL, files), examples)


def align(
    start: AnyEncoder,
    data_dir: Path,
    languages: Sequence[str],
    device: torch.device,
    settings: AlignmentRecipe,
    limit: int | None = None,
) -> FeatureScores:
    """Link the words of gold pairs, with every layer."""
    files, examples = [], []
    for language in languages:
        gold = read_word_alignment(data_dir, language)
        if limit is not None:
            gold = replace(gold, pairs=gold.pairs[:limit])
        outcome = measure_alignment(start, gold, device, batch_tokens=settings.batch_tokens)
        for layer in outcome.layers:
            values = {name: getattr(layer.scores, name) for name in ("aer", "precision", "recall")}
            files.append(_describe_layer(language, layer.layer, outcome.num_pairs, values))
        best = min(outcome.layers, key=lambda layer: layer.scores.aer).layer
        drawn = draw_examples(gold, outcome, best, settings.drawn_pairs)
        examples += [{"language": language, **asdict(example)} for example in drawn]
    return FeatureScores(_describe_task(ALIGNMENT, files), examples)


def _describe_layer(
    language: str, layer: int, num_pairs: int, values: dict[str, float]
) -> dict[str, Any]:
    place = {"language": language, "layer": layer, "split": "test", "name": "test"}
    return {**place, "num_examples": num_pairs, "num_unlabeled": 0, "values": values}


def _describe_task(task: str, files: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "task": task,
        "title": TITLES[task],
        "kind": "features",
        "metric": METRICS[task],
        "source": PIVOT,
        "files": files,
    }


def _find_languages(recipe: Recipe, task: str, data_dir: Path) -> list[str]:
    """Return the recipe's languages to test, and say which have no data."""
    foreign = [language for language in recipe.languages if language != PIVOT]
    available = FEATURE_TASKS[task](data_dir)
    if missing := [language for language in foreign if language not in available]:
        say(f"{task}: no test data for {', '.join(missing)}")
    return [language for language in foreign if language in available]
