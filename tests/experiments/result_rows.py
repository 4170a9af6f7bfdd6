"""Rows and paired tests as a run would have them, made of a few numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from metaxlm.experiments.comparison import TaskComparison, Unit
from metaxlm.experiments.statistics import Difference, PairComparison

FINAL = 1000


def make_row(task: str, variant: str | None, value: float, **others: Any) -> dict[str, Any]:
    """Make one row; English to English at the last step unless told otherwise."""
    standard = {
        "run": "test", "step": None if variant is None else FINAL, "layer": None,
        "scenario": "transfer", "source": "en", "language": "en", "metric": "accuracy",
        "examples": 100, "seed": 0, "split": "test", "version": "0", "origin": "0" * 12,
    }  # fmt: skip
    assert not set(others) - set(standard)
    return {**standard, "task": task, "variant": variant, "value": value, **others}


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
    by_unit: Mapping[Unit, float],
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
