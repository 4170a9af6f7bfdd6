"""Features layer by layer: results rows come in, tables and figures of the paper's plots go out.

Figures 3 (Tatoeba) and 4 (word alignment) of the paper follow a score through the layers. Here each
has a table too: the means of all models first, then every language.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from metaxlm.languages import language_name
from metaxlm.report.cells import (
    Cell,
    Column,
    Direction,
    Group,
    Line,
    Table,
    make_score_cell,
    mark_best,
)
from metaxlm.report.figures import draw_layers
from metaxlm.report.palette import assign_looks
from metaxlm.report.scores import Row, Scores, collect, is_lower_better, score_series

METRICS = {
    "tatoeba": ("accuracy", "Tatoeba by layer", "accuracy (%)"),
    "alignment": ("aer", "Word alignment by layer", "alignment error rate (%)"),
}
"""For each task without finetuning: its metric, the table's title and the figure's axis."""


def make_layer_tables(rows: Sequence[Row], models: Sequence[str]) -> list[Table]:
    """Build one table for each task: layers across, models down, by language."""
    tables = []
    for task, (metric, title, label) in METRICS.items():
        scores = collect(rows, task=task, metric=metric, scenario="features")
        if scores:
            better = "lower is better" if is_lower_better(metric) else "higher is better"
            tables.append(_make_table(task, f"{title} ({label}, {better})", metric, scores, models))
    return tables


def draw_layer_figures(rows: Sequence[Row], models: Sequence[str]) -> dict[str, Figure]:
    """Draw one figure for each task, by the name of its table."""
    looks = assign_looks(models)
    figures = {
        f"layers-{task}": draw_layers(rows, looks, task=task, metric=metric, label=label)
        for task, (metric, _, label) in METRICS.items()
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def _make_table(task: str, title: str, metric: str, scores: Scores, models: Sequence[str]) -> Table:
    shown = [model for model in models if model in scores.variants]
    layers = sorted({layer for model in shown for layer in scores.layers(model)})
    better: Direction = "lower" if is_lower_better(metric) else "higher"

    def make_group(label: str, languages: Sequence[str]) -> Group:
        lines = tuple(
            Line(model, tuple(_make_cell(scores, model, layer, languages) for layer in layers))
            for model in shown
        )
        return Group(lines, label)

    common = scores.common_languages()
    groups = [make_group("Mean", common)] if common else []
    groups += [make_group(f"{language_name(code)} ({code})", [code]) for code in scores.languages()]
    columns = tuple(
        Column("Embeddings" if layer == 0 else f"Layer {layer}", better=better) for layer in layers
    )
    return mark_best(Table(f"layers-{task}", title, columns, tuple(groups)))


def _make_cell(scores: Scores, model: str, layer: int, languages: Sequence[str]) -> Cell:
    if layer not in scores.layers(model):
        return Cell()
    return make_score_cell(score_series(scores.mean(model, layer, languages)))
