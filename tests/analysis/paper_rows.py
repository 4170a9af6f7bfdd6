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
from tests.analysis import rows
from tests.analysis.fake_run import write_lines

VARIANTS = {"xlm": "XLM", "metaxlm": "MetaXLM", "metaxlm+dict": "MetaXLM+Dict"}
AMAZON = ("amazon-books", "amazon-dvd", "amazon-music")
SEEDS = (0, 1, 2)
SPREAD = 0.01
FINAL = 20_000
ONSETS = {code: 6_000 if code == "en" else 10_000 for code in list_paper_languages("mlqa")}


def make_row(
    variant: str | None, task: str, metric: str, language: str, value: float, **more: Any
) -> dict[str, Any]:
    about = {"step": None if variant is None else FINAL, "origin": f"{variant}-{task}"}
    return rows.make_row(task, variant, value, metric=metric, language=language, **about | more)


def make_paper_rows(
    variants: Sequence[str] = tuple(VARIANTS), tasks: Sequence[str] = AVERAGED
) -> list[dict[str, Any]]:
    """Return the appendix tables as rows: three seeds around the published numbers."""
    made: list[dict[str, Any]] = []
    for task in tasks:
        supervised = task in AMAZON
        for language in list_paper_languages(task):
            scores = find_paper_scores(task, language)
            source = language if supervised else "en"
            scenario = "supervised" if supervised else "transfer"
            made += [
                make_row(v, task, metric, language, value + SPREAD * (seed - 1), seed=seed,
                         source=source, scenario=scenario, origin=f"{v}-{task}-{source}-{seed}")
                for v in variants
                for metric, value in scores[VARIANTS[v]].items()
                for seed in SEEDS
            ]  # fmt: skip
            made.append(
                make_row(None, task, "majority", language, 0.1, source=source, scenario=scenario)
            )
    return made


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
    made: list[dict[str, Any]] = []
    for k, variant in enumerate(VARIANTS):
        for layer in range(layers):
            for language in ("de", "fr"):
                value = 0.1 * (k + 1) + 0.02 * layer
                place = {"layer": layer, "scenario": "features"}
                made.append(make_row(variant, "tatoeba", "accuracy", language, value, **place))
                made.append(make_row(variant, "alignment", "aer", language, 1 - value, **place))
    return made


def make_curve_rows() -> list[dict[str, Any]]:
    """Return MLQA checkpoints: XLM's English rises from step 6,000 on, its others from 10,000.

    MetaXLM's rise from the first step.
    """
    made: list[dict[str, Any]] = []
    for step in range(1_000, FINAL, 1_000):
        for language, onset in ONSETS.items():
            late = 0.1 + 0.4 * max(0, step - onset) / FINAL
            early = 0.5 - 300 / step + (0.2 if language == "en" else 0.0)
            for variant, value in (("xlm", late), ("metaxlm", early)):
                made += [
                    make_row(variant, "mlqa", "f1", language, value + 0.001 * (seed - 1),
                             step=step, seed=seed)
                    for seed in SEEDS
                ]  # fmt: skip
    return made


def printed(task: str, variant: str, metric: str) -> float:
    """Return the paper's printed mean."""
    return find_paper_scores(task, MEAN)[VARIANTS[variant]][metric]


def make_comparison(
    task: str,
    pairs: dict[tuple[str, str], tuple[float, float]],
    units: Sequence[tuple[str, str]] = (("en", "de"), ("en", "fr")),
) -> TaskComparison:
    """Return tests of a task in some languages: a difference and a p-value for each pair."""
    made = []
    for (first, second), (value, p_value) in pairs.items():
        difference = Difference(value, value - 0.02, value + 0.01, p_value)
        made.append(PairComparison(first, second, (difference,) * len(units), difference))
    return TaskComparison(
        task, "transfer", "f1", tuple(units), (50,) * len(units), 3, tuple(made)
    )  # fmt: skip


PROVENANCE = {
    "stages": [
        {"title": title, "variant": variant, "seconds": seconds, "device": device, **counts}
        for title, variant, seconds, device, counts in (
            ("meta-pretraining", None, 120, "GPU", {"steps": 100, "tokens": 1000}),
            ("pretraining", "xlm", 30, "GPU", {"steps": 200, "tokens": 3000}),
            ("vocabulary", None, 60, "CPU", {}),
        )
    ],
    "cells": [
        {"model": m, "task": t, "source": "en", "seed": k, "seconds": seconds, "device": "GPU"}
        for m, t, k, seconds in (
            ("xlm", "xnli", 0, 30), ("xlm", "xnli", 1, 60),
            ("xlm-step-10", "mlqa", 0, 4), ("xlm-step-20", "mlqa", 0, 2),
        )
    ],
}  # fmt: skip
RECIPE = """\
name: tiny
languages: [en, de]
model: {layers: 2, hidden: 64, heads: 4}
pretraining: {steps: 20000, batch_size: 8, length: 32}
variants: {xlm: {initialize: none}, metaxlm: {initialize: both}}
evaluation: {grid: [{tasks: [xtreme]}]}
"""


def make_folder(folder: Path, content: list[dict[str, Any]] | None = None) -> Path:
    """Write the small files of a run that has everything, or these rows."""
    content = content or [
        *make_paper_rows(), *make_paper_rows(tasks=AMAZON), *make_layer_rows(), *make_curve_rows(),
        *make_direction_rows({"xlm": 0.6, "metaxlm": 0.7}),
        make_row("mine <b>", "xnli", "accuracy", "de", 0.7),
    ]  # fmt: skip
    write_lines(folder / "results.jsonl", content)
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
