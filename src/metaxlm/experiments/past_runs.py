"""What earlier work took, read from the run folders that stand beside each other.

Comes in: the folder of all runs. Goes out: the seconds that finished stages and complete cells
recorded, each with what it depends on: bytes of text, settings, the model's size, the device.
Whatever cannot be read is left out, for these records only serve to guess (`estimates.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from metaxlm.config import ModelRecipe, Recipe
from metaxlm.data.text import read_counts
from metaxlm.errors import MetaXLMError
from metaxlm.experiments.cells import CELLS, RECORD
from metaxlm.experiments.layout import RunLayout
from metaxlm.files import read_json
from metaxlm.manifest import MARKER, read_sealed
from metaxlm.recipe_file import load_recipe


@dataclass(frozen=True)
class PastStage:
    """A finished stage of a run."""

    name: str
    seconds: float
    recipe: Recipe
    """Of its run."""
    inputs: dict[str, Any]
    text_bytes: int
    """Prepared text of the run."""


@dataclass(frozen=True)
class PastCell:
    """A complete cell of a run."""

    run: Path
    task: str
    source: str
    seconds: float
    device: str
    epochs: int | None
    """None for a task without finetuning."""
    weights: int
    """Of its encoder's layers."""


@dataclass(frozen=True)
class PastRuns:
    """All that is known about earlier work."""

    stages: Sequence[PastStage] = ()
    cells: Sequence[PastCell] = ()

    def find_stages(self, name: str, fits: Callable[[PastStage], bool]) -> list[PastStage]:
        """Return the finished stages of a name that are like the one to guess."""
        return [stage for stage in self.stages if stage.name == name and fits(stage)]

    def find_cells(self, run: Path, task: str, source: str, device: str) -> list[PastCell]:
        """Return the cells that tell most: of the same run and source if there are any."""
        found = [cell for cell in self.cells if (cell.task, cell.device) == (task, device)]
        own = [cell for cell in found if cell.run == run] or found
        return [cell for cell in own if cell.source == source] or own


def count_weights(model: ModelRecipe) -> int:
    """Count the weights of an encoder's layers, to which the time of a token is proportional."""
    return model.layers * (4 * model.hidden**2 + 2 * model.hidden * model.ffn)


def read_past(output: Path) -> PastRuns:
    """Read what all runs below a folder recorded."""
    stages: list[PastStage] = []
    cells: list[PastCell] = []
    for path in sorted(output.glob("*/recipe.yaml")):
        try:
            recipe = load_recipe(path)
        except MetaXLMError:
            continue  # of another version, or not a run
        layout = RunLayout(path.parent)
        size = count_text(layout, recipe.languages)
        for marker in [
            *(folder / MARKER for folder in (layout.corpus, layout.vocabulary, layout.shards)),
            *sorted(layout.root.glob(f"variants/*/initialization/{MARKER}")),
        ]:
            stages += _read_stage(marker, recipe, size)
        for record in sorted((layout.root / CELLS).glob(f"*/*/*/{RECORD}")):
            cells += _read_cell(record, layout.root, recipe)
    return PastRuns(stages, cells)


def count_text(layout: RunLayout, languages: Sequence[str]) -> int:
    """Return the bytes of a run's prepared text; 0 if it is not there."""
    try:
        return sum(read_counts(layout.text(language)).text.bytes for language in languages)
    except (MetaXLMError, KeyError, TypeError):
        return 0


def mean_seconds(values: Sequence[float]) -> float | None:
    """Return the mean; None of nothing."""
    return fmean(values) if values else None


def _read_stage(marker: Path, recipe: Recipe, text_bytes: int) -> list[PastStage]:
    try:
        found = read_sealed(marker)
        seconds, inputs = float(found["seconds"]), dict(found["inputs"])
    except (MetaXLMError, KeyError, TypeError, ValueError):
        return []
    name = {"initialization": "initialize"}.get(marker.parent.name, marker.parent.name)
    return [PastStage(name, seconds, recipe, inputs, text_bytes)]


def _read_cell(path: Path, run: Path, recipe: Recipe) -> list[PastCell]:
    hidden = any(part.startswith(".") for part in path.relative_to(run).parts)
    try:
        found = read_json(path)
        settings = found.get("settings")
        # A cell of a few examples tells nothing, nor does one whose model's size nobody knows.
        if hidden or found["limit"] is not None or found["variant"] is None:
            return []
        return [
            PastCell(
                run,
                str(found["task"]),
                str(found["source"]),
                float(found["seconds"]),
                str(found["device"]),
                None if settings is None else int(settings["epochs"]),
                count_weights(recipe.model),
            )
        ]
    except (MetaXLMError, KeyError, TypeError, ValueError, AttributeError):
        return []
