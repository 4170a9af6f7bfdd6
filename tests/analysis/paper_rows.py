"""Invented rows: the paper's published numbers as if a run had them, and curves with known onsets.

No model of ours made these scores. They are the paper's, language by language, with a deviation
over seeds that leaves the means as they are, so that a right table must show the paper's numbers
twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metaxlm.analysis.paper import AVERAGED, MEAN, find_paper_scores, list_paper_languages
from metaxlm.analysis.stats import Difference, PairComparison, TaskComparison

VARIANTS = {"xlm": "XLM", "metaxlm": "MetaXLM", "metaxlm+dict": "MetaXLM+Dict"}
AMAZON = ("amazon-books", "amazon-dvd", "amazon-music")
SEEDS = (0, 1, 2)
SPREAD = 0.01
FINAL = 20_000
ONSETS = {code: 6_000 if code == "en" else 10_000 for code in list_paper_languages("mlqa")}


def make_row(
    variant: str | None, task: str, metric: str, language: str, value: float, **more: Any
) -> dict[str, Any]:
    row = {
        "run": "synthetic", "variant": variant, "step": None if variant is None else FINAL,
        "layer": None, "task": task, "scenario": "transfer", "source": "en", "language": language,
        "metric": metric, "value": value, "examples": 100, "seed": 0, "split": "test",
        "version": "0", "origin": f"{variant}-{task}",
    }  # fmt: skip
    return row | more


def make_paper_rows(
    variants: Sequence[str] = tuple(VARIANTS), tasks: Sequence[str] = AVERAGED
) -> list[dict[str, Any]]:
    """Return the appendix tables as rows: three seeds around the published numbers."""
    rows = []
    for task in tasks:
        supervised = task in AMAZON
        for language in list_paper_languages(task):
            scores = find_paper_scores(task, language)
            source = language if supervised else "en"
            scenario = "supervised" if supervised else "transfer"
            rows += [
                make_row(v, task, metric, language, value + SPREAD * (seed - 1), seed=seed,
                         source=source, scenario=scenario, origin=f"{v}-{task}-{source}-{seed}")
                for v in variants
                for metric, value in scores[VARIANTS[v]].items()
                for seed in SEEDS
            ]  # fmt: skip
            rows.append(
                make_row(None, task, "majority", language, 0.1, source=source, scenario=scenario)
            )
    return rows


def make_direction_rows(value: dict[str, float]) -> list[dict[str, Any]]:
    """Return the 12 directions between different languages, the same score for each."""
    languages = ("en", "de", "fr", "ja")
    return [
        make_row(variant, task, "accuracy", target, score + 0.01 * AMAZON.index(task),
                 source=source)
        for variant, score in value.items()
        for task in AMAZON
        for source in languages
        for target in languages
        if source != target
    ]  # fmt: skip


def make_layer_rows(layers: int = 3) -> list[dict[str, Any]]:
    """Return retrieval and alignment by layer: later variants and layers are better."""
    rows = []
    for k, variant in enumerate(VARIANTS):
        for layer in range(layers):
            for language in ("de", "fr"):
                value = 0.1 * (k + 1) + 0.02 * layer
                place = {"layer": layer, "scenario": "features"}
                rows.append(make_row(variant, "tatoeba", "accuracy", language, value, **place))
                rows.append(make_row(variant, "alignment", "aer", language, 1 - value, **place))
    return rows


def make_curve_rows() -> list[dict[str, Any]]:
    """Return MLQA checkpoints: XLM's English rises from step 6,000 on, its others from 10,000.

    MetaXLM's rise from the first step.
    """
    rows = []
    for step in range(1_000, FINAL, 1_000):
        for language, onset in ONSETS.items():
            late = 0.1 + 0.4 * max(0, step - onset) / FINAL
            early = 0.5 - 300 / step + (0.2 if language == "en" else 0.0)
            for variant, value in (("xlm", late), ("metaxlm", early)):
                rows += [
                    make_row(variant, "mlqa", "f1", language, value + 0.001 * (seed - 1),
                             step=step, seed=seed)
                    for seed in SEEDS
                ]  # fmt: skip
    return rows


def make_comparison(
    task: str,
    pairs: dict[tuple[str, str], tuple[float, float]],
    scenario: str = "transfer",
    units: Sequence[tuple[str, str]] = (("en", "de"), ("en", "fr")),
) -> TaskComparison:
    """Return tests of a task in some languages: a difference and a p-value for each pair."""
    made = []
    for (first, second), (value, p_value) in pairs.items():
        difference = Difference(value, value - 0.02, value + 0.01, p_value)
        made.append(PairComparison(first, second, (difference,) * len(units), difference))
    sizes = (50,) * len(units)
    return TaskComparison(task, scenario, "f1", tuple(units), sizes, 3, tuple(made))


def printed(task: str, variant: str, metric: str) -> float:
    """Return the paper's printed mean."""
    return find_paper_scores(task, MEAN)[VARIANTS[variant]][metric]


PROVENANCE = {
    "stages": [
        {
            "title": "meta-pretraining",
            "variant": None,
            "seconds": 120,
            "steps": 100,
            "tokens": 1000,
            "device": "GPU",
        },
        {
            "title": "pretraining",
            "variant": "xlm",
            "seconds": 30,
            "steps": 200,
            "tokens": 3000,
            "device": "GPU",
        },
        {"title": "vocabulary", "variant": None, "seconds": 60, "device": "CPU"},
    ],
    "cells": [
        {"model": "xlm", "task": "xnli", "source": "en", "seed": 0, "seconds": 30, "device": "GPU"},
        {"model": "xlm", "task": "xnli", "source": "en", "seed": 1, "seconds": 60, "device": "GPU"},
        {
            "model": "xlm-step-10",
            "task": "mlqa",
            "source": "en",
            "seed": 0,
            "seconds": 4,
            "device": "GPU",
        },
        {
            "model": "xlm-step-20",
            "task": "mlqa",
            "source": "en",
            "seed": 0,
            "seconds": 2,
            "device": "GPU",
        },
    ],
}
RECIPE = """\
name: tiny
languages: [en, de]
model: {layers: 2, hidden: 64, heads: 4}
pretraining: {steps: 20000, batch_size: 8, length: 32}
variants: {xlm: {initialize: none}, metaxlm: {initialize: both}}
evaluation: {grid: [{tasks: [xtreme]}]}
"""


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def make_folder(folder: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    """Write the small files of a run that has everything, or these rows."""
    rows = rows or [
        *make_paper_rows(), *make_paper_rows(tasks=AMAZON), *make_layer_rows(), *make_curve_rows(),
        *make_direction_rows({"xlm": 0.6, "metaxlm": 0.7}),
        make_row("mine <b>", "xnli", "accuracy", "de", 0.7),
    ]  # fmt: skip
    write_lines(folder / "results.jsonl", rows)
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    (folder / "provenance.json").write_text(
        json.dumps(PROVENANCE | {"digest": "abcdef", "metaxlm": "9.9", "torch": "2.0"})
    )
    log = [{"step": step, "loss": 5 - step / 100, "tokens": step, "seconds": step}
           for step in range(1, 100)]  # fmt: skip
    write_lines(folder / "variants" / "xlm" / "log.jsonl", [*log, {"step": 99, "held_out": {}}])
    write_lines(folder / "meta" / "log.jsonl", log)
    (folder / "data_notes.txt").write_text("Half of the data is missing.\n\nSo it is.\n")
    return folder
