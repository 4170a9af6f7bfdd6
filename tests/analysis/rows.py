"""Rows and paired tests as a run would have them, made of a few numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from metaxlm.analysis.results import LanguagePair, make_frame
from metaxlm.analysis.scores import Results
from metaxlm.analysis.stats import Difference, PairComparison, TaskComparison

FINAL = 1000
TWIN_COURSES: dict[str, dict[int, tuple[float, float]]] = {
    "xlm": {
        500: (12.4, 6.8), 1000: (14.7, 7.2), 2000: (14.9, 7.2), 3000: (15.6, 7.9),
        4000: (15.3, 7.8), 5000: (15.2, 7.6), 6000: (20.0, 8.2), 8000: (23.0, 8.2),
        11000: (25.9, 10.1), 14000: (40.7, 15.7),
    },
    "metaxlm": {
        500: (29.0, 7.6), 1000: (28.6, 7.9), 2000: (26.0, 9.3), 6000: (29.3, 11.1),
        8000: (28.3, 11.1), 11000: (29.7, 11.2), 14000: (29.4, 11.1),
    },
}  # fmt: skip
"""MLQA along a pretraining that was really run (12 layers of 384, one seed): F1 in English, and the
mean of the other languages. XLM's last finetuning caught on, as no other did."""


def make_row(task: str, variant: str | None, value: float, **others: Any) -> dict[str, Any]:
    """Make one row, by default English to English at the last step."""
    standard = {
        "run": "test", "step": None if variant is None else FINAL, "layer": None,
        "scenario": "transfer", "source": "en", "language": "en", "metric": "accuracy",
        "examples": 100, "seed": 0, "split": "test", "version": "0", "origin": "0" * 12,
    }  # fmt: skip
    assert not set(others) - set(standard)
    return {**standard, "task": task, "variant": variant, "value": value, **others}


def make_results(
    rows: Sequence[Mapping[str, Any]],
    comparisons: Sequence[TaskComparison] = (),
    tested: bool = True,
) -> Results:
    """Make results of rows and tests."""
    return Results(make_frame(rows), comparisons, tested)


def make_scores(
    task: str, variant: str, by_language: Mapping[str, Sequence[float]], **others: Any
) -> list[dict[str, Any]]:
    """Make rows of several languages, each with a value for every seed."""
    return [
        make_row(task, variant, value, language=language, seed=seed, **others)
        for language, values in by_language.items()
        for seed, value in enumerate(values)
    ]


def make_comparison(
    task: str,
    pair: tuple[str, str],
    by_unit: Mapping[LanguagePair, float],
    half_width: float = 0.01,
    p_value: float = 0.001,
    scenario: str = "transfer",
    metric: str = "accuracy",
) -> TaskComparison:
    """Make a tested pair with these differences, all intervals equally wide."""
    mean = sum(by_unit.values()) / len(by_unit)
    differences = [
        Difference(value, value - half_width, value + half_width, p_value)
        for value in (*by_unit.values(), mean)
    ]
    compared = PairComparison(*pair, tuple(differences[:-1]), differences[-1])
    sizes = (100,) * len(by_unit)
    return TaskComparison(task, scenario, metric, tuple(by_unit), sizes, 1, (compared,))


def make_course(
    variant: str, scores: Mapping[int, tuple[float, float]], seeds: int = 1
) -> list[dict[str, Any]]:
    """Make the rows of MLQA by step from percents in English and in the other languages.

    Further seeds are 0.2 points apart around these.
    """
    return [
        make_row("mlqa", variant, value / 100 + 0.002 * (seed - (seeds - 1) / 2),
                 language=code, step=step, seed=seed, metric="f1", split="dev")
        for step, (english, others) in scores.items()
        for seed in range(seeds)
        for code, value in (("en", english), ("de", others), ("ar", others))
    ]  # fmt: skip
