"""The report's figures: training loss, scores by layer and by language, what variants start with.

In come rows of results, training logs and coverage records; out come matplotlib figures that hold
no global state. Scores by layer are the paper's figures 3 (retrieval) and 4 (word alignment); the
transfer by language is its table 1 and the appendix's tables drawn as bars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from metaxlm.experiments.names import display_name
from metaxlm.report.palette import INK, Look, choose_rule_tone
from metaxlm.report.rule_bars import draw_rule_bars
from metaxlm.report.run_folder import Row
from metaxlm.report.scores import (
    Score,
    Scores,
    collect,
    collect_majority,
    find_source_language,
    list_transfer_metrics,
    score_series,
)
from metaxlm.report.start_tables import Coverage
from metaxlm.report.tables import name_metric, name_task
from metaxlm.report.vector import drawing_style

_WIDTH = 5.7
"""Inches; narrow enough for a phone to show the text at a readable size."""
_MOST_POINTS = 300
_MOST_THIN_LINES = 8
_MOST_SPREADS = 4
_NARROWEST_BAR = 0.11
"""Inches."""
MOST_BARS = 4
"""Variants that are drawn by language; more make a figure of meters."""
_LONGEST_NAME = 22
_BAR_LEGEND: dict[str, Any] = {
    "loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "handlelength": 1,
    "columnspacing": 1.2, "handletextpad": 0.5,
}  # fmt: skip
Looks = Mapping[str, Look]
Bars = Mapping[str, Mapping[str, Score | None]]
"""Scores by variant and language."""


def draw_loss(
    meta_log: Sequence[Row], logs: Mapping[str, Sequence[Row]], looks: Looks
) -> Figure | None:
    """Draw the training loss of every variant over steps, meta-pretraining beside it."""
    if not logs and not meta_log:
        return None
    with drawing_style():
        figure = Figure(figsize=(_WIDTH, 3.6))
        panels = [bool(meta_log), bool(logs)]
        axes = figure.subplots(1, sum(panels), width_ratios=[1, 1.7][: sum(panels)], squeeze=False)
        places = list(axes[0])
        if meta_log:
            axis = places.pop(0)
            steps, losses = thin_log(meta_log)
            axis.plot(steps, losses, color=INK.light, linewidth=1.6)
            _label(axis, "Meta-pretraining", "step", "loss")
        if logs:
            axis = places.pop(0)
            for variant, log in logs.items():
                look = looks[variant]
                steps, losses = thin_log(log)
                axis.plot(steps, losses, look.dash, color=look.tone.light, linewidth=1.6)
            _label(axis, "Cross-lingual pretraining", "step", "" if meta_log else "loss")
            handles = _make_handles(logs, looks, markers=False)
            _add_legend(figure, handles, list(map(_name, logs)))
    return figure


def thin_log(log: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Average neighboring rows of a long log, so that a figure stays small."""
    size = -(-len(log) // _MOST_POINTS)
    chunks = [log[start : start + size] for start in range(0, len(log), size)]
    steps = [sum(row["step"] for row in chunk) / len(chunk) for chunk in chunks]
    return steps, [sum(row["loss"] for row in chunk) / len(chunk) for chunk in chunks]


def draw_layers(
    rows: Sequence[Row], looks: Looks, *, task: str, metric: str, label: str
) -> Figure | None:
    """Draw a score by layer: a line a variant for the mean over languages, each language thin."""
    scores = collect(rows, task=task, metric=metric, scenario="features")
    variants = [variant for variant in looks if variant in scores.variants]
    if not variants:
        return None
    with drawing_style():
        figure = Figure(figsize=(_WIDTH, 3.6))
        axis = figure.add_subplot()
        languages = scores.common_languages()
        for variant in variants if len(variants) <= _MOST_SPREADS else ():
            _draw_spread(axis, scores, variant, looks[variant])
        for variant in variants:
            look = looks[variant]
            layers, values = _trace(scores, variant, languages)
            axis.plot(
                layers, values, look.dash, color=look.tone.light, linewidth=2.2,
                marker=look.marker, markersize=5, zorder=4,
            )  # fmt: skip
        axis.set_ylim(bottom=0)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        _label(axis, "", "layer (0 = embeddings)", label)
        handles = _make_handles(variants, looks, markers=True)
        _add_legend(figure, handles, list(map(_name, variants)))
    return figure


def _trace(scores: Scores, variant: str, languages: Sequence[str]) -> tuple[list[int], list[float]]:
    found = [
        (layer, 100 * score.mean)
        for layer in scores.layers(variant)
        if (score := score_series(scores.mean(variant, layer, languages)))
    ]
    return [layer for layer, _ in found], [value for _, value in found]


def _draw_spread(axis: Axes, scores: Scores, variant: str, look: Look) -> None:
    """Draw single languages: thin lines for a few, a band from lowest to highest for many."""
    languages = scores.languages(variant)
    if len(languages) <= _MOST_THIN_LINES:
        for language in languages:
            layers, values = _trace(scores, variant, [language])
            axis.plot(layers, values, color=look.tone.light, linewidth=0.8, alpha=0.4)
        return
    by_layer: dict[int, list[float]] = {}
    for language in languages:
        for layer, value in zip(*_trace(scores, variant, [language]), strict=True):
            by_layer.setdefault(layer, []).append(value)
    layers = sorted(by_layer)
    lowest, highest = [min(by_layer[x]) for x in layers], [max(by_layer[x]) for x in layers]
    axis.fill_between(layers, lowest, highest, color=look.tone.light, alpha=0.13, linewidth=0)


def draw_transfer(rows: Sequence[Row], looks: Looks) -> Figure | None:
    """Draw transfer scores as bars by language for each task, with the majority level.

    Of many variants the first ones are drawn; the tables have all.
    """
    panels: list[tuple[str, str, Scores, Sequence[str]]] = []
    source = find_source_language(rows)
    shown = list_drawn(rows, looks)
    for task, metric in list_transfer_metrics(rows):
        scores = collect(rows, task=task, metric=metric, scenario="transfer")
        if found := [variant for variant in shown if variant in scores.variants]:
            languages = sorted(scores.languages(), key=lambda language: language != source)
            pieces = _break_languages(languages, len(found))
            panels += [(task, metric, scores, piece) for piece in pieces]
    if not panels:
        return None
    with drawing_style():
        height = 2.7 if len(panels) == 1 else 2.0
        figure = Figure(figsize=(_WIDTH, 0.6 + height * len(panels)))
        axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
        titled = set()
        for axis, (task, metric, scores, piece) in zip(axes, panels, strict=True):
            _draw_bars(axis, _read_bars(scores, shown, piece), looks)
            _draw_levels(axis, collect_majority(rows, task), piece)
            _label(axis, "" if task in titled else name_task(task), "", name_metric(metric))
            titled.add(task)
        majority = Line2D([], [], color=INK.light, linewidth=1.6, linestyle=(0, (2, 1)))
        handles = [*(Patch(color=looks[variant].tone.light) for variant in shown), majority]
        _add_legend(figure, handles, [*map(_name, shown), "majority label"])
    return figure


def list_drawn(rows: Sequence[Row], looks: Looks) -> list[str]:
    """Return the variants whose transfer is drawn by language."""
    found = {row["variant"] for row in rows if row.get("scenario") == "transfer"}
    return [variant for variant in looks if variant in found][:MOST_BARS]


def _break_languages(languages: Sequence[str], num_variants: int) -> list[Sequence[str]]:
    """Break many languages into rows of bars that stay wide enough to see."""
    most = max(3, int(_WIDTH / (_NARROWEST_BAR * (num_variants + 1))))
    num_rows = -(-len(languages) // most)
    size = -(-len(languages) // num_rows)
    return [languages[start : start + size] for start in range(0, len(languages), size)]


def _read_bars(scores: Scores, variants: Sequence[str], languages: Sequence[str]) -> Bars:
    return {
        variant: {
            language: score_series(scores.series(variant, None, language)) for language in languages
        }
        for variant in variants
        if variant in scores.variants
    }


def _draw_bars(axis: Axes, bars: Bars, looks: Looks) -> None:
    """Draw one group of bars a language, one bar a variant, whiskers where there are seeds."""
    step = 0.8 / len(bars)
    languages: list[str] = []
    for number, (variant, scores) in enumerate(bars.items()):
        languages = list(scores)
        shift = step * (number + 0.5) - 0.4
        found = [(place + shift, s) for place, s in enumerate(scores.values()) if s is not None]
        places, heights = [x for x, _ in found], [100 * score.mean for _, score in found]
        axis.bar(places, heights, 0.9 * step, color=looks[variant].tone.light)
        spread = [(x, s.mean, s.deviation) for x, s in found if s.deviation is not None]
        if spread:
            lowest = [100 * (mean - deviation) for _, mean, deviation in spread]
            highest = [100 * (mean + deviation) for _, mean, deviation in spread]
            axis.vlines([x for x, _, _ in spread], lowest, highest, color=INK.light, linewidth=1)
    axis.set_xticks(range(len(languages)), languages)
    axis.set_xlim(-0.6, len(languages) - 0.4)
    axis.tick_params(axis="x", length=0)
    axis.set_ylim(0, 100)


def _draw_levels(axis: Axes, levels: Mapping[str, float], languages: Sequence[str]) -> None:
    found = [(x, 100 * levels[code]) for x, code in enumerate(languages) if code in levels]
    axis.hlines(
        [height for _, height in found], [x - 0.45 for x, _ in found], [x + 0.45 for x, _ in found],
        color=INK.light, linewidth=1.6, linestyle=(0, (2, 1)), zorder=5,
    )  # fmt: skip


def draw_coverage(coverage: Coverage, looks: Looks) -> Figure | None:
    """Draw what the variants start with: rows by rule, and running tokens by language."""
    variants = [variant for variant in looks if variant in coverage]
    if not variants:
        return None
    found = {variant: coverage[variant].get("by_language", {}) for variant in variants}
    languages = list(dict.fromkeys(x for by_language in found.values() for x in by_language))
    pieces = _break_languages(languages, len(variants)) if languages else []
    with drawing_style():
        heights = [0.9 + 0.36 * len(variants), *[2.5 if len(pieces) == 1 else 1.9] * len(pieces)]
        figure = Figure(figsize=(_WIDTH, sum(heights)))
        axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        _draw_rules(axes[0], coverage, variants)
        for axis, piece in zip(axes[1:], pieces, strict=True):
            bars: Bars = {
                variant: {x: Score(found[variant].get(x, {}).get("matched", 0.0)) for x in piece}
                for variant in variants
            }
            _draw_bars(axis, bars, looks)
            _label(axis, "", "", "running tokens (%)")
        if pieces:
            patches = [Patch(color=looks[v].tone.light, label=_name(v)) for v in variants]
            columns = _fit_columns([_name(variant) for variant in variants], 4.0)
            axes[1].legend(handles=patches, ncols=columns, **_BAR_LEGEND)
    return figure


def _draw_rules(axis: Axes, coverage: Coverage, variants: list[str]) -> None:
    bars = {_name(variant): coverage[variant].get("by_rule", {}) for variant in variants}
    kinds = draw_rule_bars(axis, bars)
    _label(axis, "", "share of the vocabulary's rows (%)", "")
    patches = [Patch(color=choose_rule_tone(kind).light, label=kind) for kind in kinds]
    axis.legend(handles=patches, ncols=_fit_columns(kinds, 4.4), **_BAR_LEGEND)


def _label(axis: Axes, title: str, x_label: str, y_label: str) -> None:
    axis.set_title(title)
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)


def _make_handles(variants: Iterable[str], looks: Looks, markers: bool) -> list[Line2D]:
    return [
        Line2D(
            [], [], color=looks[variant].tone.light, linestyle=looks[variant].dash, linewidth=2,
            marker=looks[variant].marker if markers else None, markersize=5,
        )
        for variant in variants
    ]  # fmt: skip


def _add_legend(figure: Figure, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """Put a legend above the panels, where no curve can be hidden."""
    columns = _fit_columns(labels, _WIDTH - 0.4)
    figure.legend(
        handles, labels, loc="outside upper left", ncols=columns, columnspacing=1.3, handlelength=2
    )


def _fit_columns(labels: Sequence[str], width: float) -> int:
    """Return how many legend columns fit: all in one row, or columns as wide as the longest."""
    widths = [0.5 + 0.075 * len(label) for label in labels]
    if sum(widths) <= width:
        return len(labels)
    return max(1, int(width / max(widths)))


def _name(variant: str) -> str:
    """Return a variant's name at a length that leaves room for the figure."""
    name = display_name(variant)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
