from __future__ import annotations

from typing import Any

from metaxlm.report.layer_tables import draw_layer_figures, make_layer_tables
from metaxlm.report.rendering import render_csv, render_markdown


def make_row(task: str, metric: str, model: str, layer: int, language: str, value: float) -> Any:
    return {
        "run": "r", "variant": model, "step": None, "layer": layer, "task": task,
        "scenario": "features", "source": "en", "language": language, "metric": metric,
        "value": value, "examples": 100, "seed": 0, "split": "test",
    }  # fmt: skip


ROWS = [
    make_row("tatoeba", "accuracy", model, layer, language, base + 0.1 * layer)
    for model, base, depth in (("small", 0.1, 1), ("large", 0.15, 2))
    for layer in range(depth + 1)
    for language in ("de", "zh")
] + [
    make_row("alignment", "aer", model, layer, "ro", base - 0.2 * layer)
    for model, base in (("small", 0.6), ("large", 0.7))
    for layer in range(2)
]


def test_a_table_for_each_task_has_means_and_languages() -> None:
    retrieval, alignment = make_layer_tables(ROWS, ["small", "large", "absent"])
    assert retrieval.name == "layers-tatoeba"
    assert [column.label for column in retrieval.columns] == ["Embeddings", "Layer 1", "Layer 2"]
    assert [group.label for group in retrieval.groups] == [
        "Mean", "German (de)", "Chinese (zh)"
    ]  # fmt: skip
    text = render_markdown(retrieval)
    assert "| small | 10.0 | 20.0 | – |" in text
    assert "| large | **15.0** | **25.0** | 35.0 |" in text
    assert "higher is better" in text
    assert alignment.name == "layers-alignment"
    assert [group.label for group in alignment.groups] == ["Mean", "Romanian (ro)"]
    assert "| small | **60.0** | **40.0** |" in render_markdown(alignment)
    assert "| large | 70.0 | 50.0 |" in render_markdown(alignment)
    assert "0.6" in render_csv(alignment)


def test_figures_have_the_tables_names() -> None:
    assert set(draw_layer_figures(ROWS, ["small", "large"])) == {
        "layers-tatoeba", "layers-alignment"
    }  # fmt: skip
    assert draw_layer_figures([], ["small"]) == {}
    assert make_layer_tables([], ["small"]) == []
