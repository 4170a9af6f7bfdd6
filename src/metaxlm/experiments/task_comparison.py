"""Paired tests between models as a run keeps them: `comparison.py` makes them, reports and claims
read them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.experiments.statistics import Difference, PairComparison
from metaxlm.files import find_packed, read_json

FILE_NAME = "comparisons.json"

Unit = tuple[str, str]
"""Training language and test language."""


@dataclass(frozen=True)
class TaskComparison:
    """Pairs of models on one task, those that share the same files and seeds."""

    task: str
    scenario: str
    metric: str
    units: tuple[Unit, ...]
    num_examples: tuple[int, ...]
    """Of each unit."""
    num_seeds: int
    pairs: tuple[PairComparison, ...]
    """P-values by unit are corrected over the units; that of the mean stands alone."""
    layer: int | None = None
    """Of a task without finetuning, of which only the means are compared."""


def read_comparisons(path: Path) -> list[TaskComparison]:
    """Return the tests that a run has kept; none where there is no file."""
    path = find_packed(path)
    if not path.is_file():
        return []
    try:
        return [restore(values) for values in read_json(path).values()]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MetaXLMError(
            f"{path}: not a file of comparisons ({error!r}); delete it and run the evaluation again"
        ) from error


def restore(values: Mapping[str, Any]) -> TaskComparison:
    """Make one from what `asdict` gives of it."""
    pairs = tuple(
        PairComparison(
            pair["first"],
            pair["second"],
            tuple(map(_restore_difference, pair["by_language"])),
            _restore_difference(pair["mean"]),
        )
        for pair in values["pairs"]
    )
    units = tuple((source, language) for source, language in values["units"])
    sizes = tuple(values["num_examples"])
    if not all(isinstance(number, int) for number in (*sizes, values["num_seeds"])):
        raise TypeError("a number of examples or seeds that is not whole")
    return TaskComparison(**{**values, "units": units, "num_examples": sizes, "pairs": pairs})


def _restore_difference(values: Mapping[str, Any]) -> Difference:
    found = Difference(**values)
    if not all(isinstance(number, int | float) for number in values.values()):
        raise TypeError("a difference that is not a number")
    return found
