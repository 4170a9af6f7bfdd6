"""Phase (c) without finetuning: sentence retrieval and word alignment, by layer.

An encoder and gold data come in; scores of every layer go out, and a few real sentences for the
eye (the paper's Section 4.4 and its two figures). Serves `metaxlm run` and `metaxlm evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from metaxlm.analysis.results import TASKS
from metaxlm.finetune.readers.parallel import (
    list_tatoeba,
    list_word_alignment,
    read_tatoeba,
    read_word_alignment,
)
from metaxlm.finetune.task import Tally
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.alignment import count_links, draw_examples, measure_alignment
from metaxlm.probe.retrieval import measure_retrieval
from metaxlm.recipe import AlignmentRecipe, RetrievalRecipe

Floats = npt.NDArray[np.float64]
PIVOT = "en"
"""Tatoeba and the gold alignments pair every language with English."""

RETRIEVAL = "tatoeba"
ALIGNMENT = "alignment"
FEATURE_TASKS: dict[str, Callable[[Path], list[str]]] = {
    RETRIEVAL: list_tatoeba,
    ALIGNMENT: list_word_alignment,
}
"""Tasks without finetuning, and what lists their languages in a data folder."""
FeatureSettings = RetrievalRecipe | AlignmentRecipe
USUAL_SETTINGS: dict[str, FeatureSettings] = {
    RETRIEVAL: RetrievalRecipe(),
    ALIGNMENT: AlignmentRecipe(),
}


def measure_features(
    start: AnyEncoder,
    data_dir: Path,
    languages: Sequence[str],
    device: torch.device,
    settings: FeatureSettings,
    limit: int | None = None,
) -> tuple[dict[str, Any], dict[str, Tally]]:
    """Measure one of the feature tasks; return the record of its cell, and its tallies.

    Each layer of each language counts as a file; `examples` are sentences to look at. Tallies by
    `name_tally` have a row for each sentence pair: found there, found back, and 1; or the counts
    that make up the alignment error rate.
    """
    if isinstance(settings, RetrievalRecipe):
        return _retrieve(start, data_dir, languages, device, settings, limit)
    return _align(start, data_dir, languages, device, settings, limit)


def _retrieve(
    start: AnyEncoder,
    data_dir: Path,
    languages: Sequence[str],
    device: torch.device,
    settings: RetrievalRecipe,
    limit: int | None = None,
) -> tuple[dict[str, Any], dict[str, Tally]]:
    """Let each sentence look for its translation, with every layer."""
    files, examples, tallies = [], [], {}
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
            hits_N2 = layer.hits_N2.double().numpy()
            tally = np.column_stack([hits_N2, np.ones(len(hits_N2))])
            tallies[name_tally(language, layer.layer)] = tally
        best = max(outcome.layers, key=lambda layer: layer.accuracy)
        examples += [
            {"language": language, "layer": best.layer, **asdict(example)}
            for example in best.examples
        ]
    return _describe_task(RETRIEVAL, files, examples), tallies


def _align(
    start: AnyEncoder,
    data_dir: Path,
    languages: Sequence[str],
    device: torch.device,
    settings: AlignmentRecipe,
    limit: int | None = None,
) -> tuple[dict[str, Any], dict[str, Tally]]:
    """Link the words of gold pairs, with every layer."""
    files, examples, tallies = [], [], {}
    for language in languages:
        gold = read_word_alignment(data_dir, language)
        if limit is not None:
            gold = replace(gold, pairs=gold.pairs[:limit])
        outcome = measure_alignment(start, gold, device, batch_tokens=settings.batch_tokens)
        for layer in outcome.layers:
            values = {name: getattr(layer.scores, name) for name in ("aer", "precision", "recall")}
            files.append(_describe_layer(language, layer.layer, outcome.num_pairs, values))
            counts = [
                count_links(pair.sure, pair.possible, links)
                for pair, links in zip(gold.pairs, layer.links, strict=True)
            ]
            tallies[name_tally(language, layer.layer)] = np.array(counts, dtype=np.float64)
        best = min(outcome.layers, key=lambda layer: layer.scores.aer).layer
        drawn = draw_examples(gold, outcome, best, settings.drawn_pairs)
        examples += [{"language": language, **asdict(example)} for example in drawn]
    return _describe_task(ALIGNMENT, files, examples), tallies


def name_tally(language: str, layer: int) -> str:
    """Name the tally of a layer in a cell."""
    return f"{language}-{layer}"


def score_sums(task: str, sums: Tally) -> Floats:
    """Return the task's metric of summed tallies [..., counts]."""
    columns = np.moveaxis(sums, -1, 0)
    if task == RETRIEVAL:
        there, back, pairs = columns
        found: Floats = (there + back) / (2 * pairs)
        return found
    in_sure, in_possible, predicted, sure = columns
    errors: Floats = 1 - (in_sure + in_possible) / np.maximum(predicted + sure, 1)
    return errors


def _describe_layer(
    language: str, layer: int, num_pairs: int, values: dict[str, float]
) -> dict[str, Any]:
    place = {"language": language, "layer": layer, "split": "test", "name": "test"}
    return {**place, "num_examples": num_pairs, "num_unlabeled": 0, "values": values}


def _describe_task(
    task: str, files: list[dict[str, Any]], examples: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "task": task,
        "title": TASKS[task].title,
        "kind": "features",
        "metric": TASKS[task].metric,
        "source": PIVOT,
        "files": files,
        "examples": examples,
    }
