"""The report's figures: training loss, scores by layer and by language, what the variants start with.

In come rows of results, training logs and coverage records; out come matplotlib figures that hold
no global state. Scores by layer are the paper's figures 3 (retrieval) and 4 (word alignment); the
transfer by language is its table 1 and the appendix's tables drawn as bars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from metaxlm.report.palette import GRID, INK, Look, choose_rule_tone
from metaxlm.report.run_folder import Row, display_name
from metaxlm.report.scores import (
    Scores,
    collect,
    collect_majority,
    find_source_language,
    list_transfer_metrics,
    score_series,
)
from metaxlm.report.start_tables import list_rules
from metaxlm.report.tables import name_metric, name_task
from metaxlm.report.vector import drawing_style

_WIDTH = 6.6
"""Inches; narrow enough for a phone to show the text at a readable size."""
_MOST_POINTS = 300
_MOST_THIN_LINES = 8
Looks = Mapping[str, Look]


def draw_loss(
    meta_log: Sequence[Row], logs: Mapping[str, Sequence[Row]], looks: Looks
) -> Figure | None:
    """Draw the training loss of every variant over steps, meta-pretraining beside it."""
    if not logs and not meta_log:
        return None
    with drawing_style():
        figure = Figure(figsize=(_WIDTH, 3.5))
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
            _add_legend(figure, list(logs), looks, markers=False)
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
        figure = Figure(figsize=(_WIDTH, 4.0))
        axis = figure.add_subplot()
        languages = scores.common_languages()
        for variant in variants:
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
        _add_legend(figure, variants, looks)
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
    """Draw transfer scores as bars by language, one panel a task, with the majority level."""
    measures = list_transfer_metrics(rows)
    if not measures:
        return None
    collected = [collect(rows, task=t, metric=m, scenario="transfer") for t, m in measures]
    most = max(len(scores.languages()) for scores in collected)
    shown = [variant for variant in looks if any(variant in s.variants for s in collected)]
    with drawing_style():
        figure = Figure(figsize=(max(_WIDTH, 0.9 + 0.24 * most * (len(shown) + 1)),
                                 0.5 + 2.9 * len(measures)))  # fmt: skip
        axes = figure.subplots(len(measures), 1, squeeze=False)[:, 0]
        for axis, (task, metric), scores in zip(axes, measures, collected, strict=True):
            _draw_task(axis, scores, collect_majority(rows, task), find_source_language(rows),
                       [v for v in shown if v in scores.variants], looks)  # fmt: skip
            _label(axis, name_task(task), "", name_metric(metric))
        majority = Line2D([], [], color=INK.light, linewidth=1.6, linestyle=(0, (2, 1)))
        _add_legend(figure, shown, looks, bars=True, extra={"most frequent label": majority})
    return figure


def _draw_task(
    axis: Axes, scores: Scores, majority: Mapping[str, float], source: str,
    variants: Sequence[str], looks: Looks,
) -> None:  # fmt: skip
    languages = sorted(scores.languages(), key=lambda language: language != source)
    step = 0.8 / len(variants)
    for number, variant in enumerate(variants):
        for place, language in enumerate(languages):
            score = score_series(scores.series(variant, None, language))
            if score is None:
                continue
            error = None if score.deviation is None else 100 * score.deviation
            axis.bar(
                place - 0.4 + step * (number + 0.5), 100 * score.mean, 0.9 * step,
                color=looks[variant].tone.light, yerr=error,
                error_kw={"ecolor": INK.light, "elinewidth": 1, "capsize": 0},
            )  # fmt: skip
    for place, language in enumerate(languages):
        if language in majority:
            level = 100 * majority[language]
            axis.hlines(level, place - 0.45, place + 0.45, color=INK.light, linewidth=1.6,
                        linestyle=(0, (2, 1)), zorder=5)  # fmt: skip
    axis.set_xticks(range(len(languages)), languages)
    axis.tick_params(axis="x", length=0)
    axis.set_ylim(0, 100)


def draw_coverage(coverage: Mapping[str, Mapping[str, Any]], looks: Looks) -> Figure | None:
    """Draw what the variants start with: rows by rule, and running tokens by language."""
    variants = [variant for variant in looks if variant in coverage]
    if not variants:
        return None
    languages = list(
        dict.fromkeys(x for variant in variants for x in coverage[variant].get("by_language", {}))
    )
    with drawing_style():
        width = max(_WIDTH, 0.9 + 0.24 * len(languages) * (len(variants) + 1))
        height = 1.1 + 0.36 * len(variants)
        panels = 2 if languages else 1
        figure = Figure(figsize=(width, height + (2.8 if languages else 0)))
        axes = figure.subplots(panels, 1, squeeze=False, height_ratios=[height, 2.8][:panels])[:, 0]
        _draw_rules(axes[0], coverage, variants)
        if languages:
            _draw_tokens(axes[1], coverage, variants, languages, looks)
    return figure


def _draw_rules(axis: Axes, coverage: Mapping[str, Mapping[str, Any]], variants: list[str]) -> None:
    rules = list_rules({variant: coverage[variant] for variant in variants})
    kinds = list(dict.fromkeys(_name_kind(rule) for rule in rules))
    for place, variant in enumerate(variants):
        by_rule = coverage[variant].get("by_rule", {})
        total = sum(by_rule.values()) or 1
        shares = [
            100 * sum(n for rule, n in by_rule.items() if _name_kind(rule) == kind) / total
            for kind in kinds
        ]
        edges = [0.0]
        for share in shares:
            edges.append(edges[-1] + share)
        for kind, (left, right) in zip(kinds, pairwise(edges), strict=True):
            axis.barh(place, right - left, 0.62, left=left, color=choose_rule_tone(kind).light)
    axis.set_yticks(range(len(variants)), [display_name(variant) for variant in variants])
    axis.invert_yaxis()
    axis.set_xlim(0, 100)
    axis.grid(False)
    axis.grid(axis="x", color=GRID.light)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    _label(axis, "", "share of the vocabulary's rows (%)", "")
    patches = [Patch(color=choose_rule_tone(kind).light, label=kind) for kind in kinds]
    axis.legend(handles=patches, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(kinds),
                borderaxespad=0.2, handlelength=1, columnspacing=1.2, handletextpad=0.5)  # fmt: skip


def _name_kind(rule: str) -> str:
    return "normalized" if rule.startswith("normalized") else rule


def _draw_tokens(
    axis: Axes, coverage: Mapping[str, Mapping[str, Any]], variants: list[str],
    languages: list[str], looks: Looks,
) -> None:  # fmt: skip
    step = 0.8 / len(variants)
    for number, variant in enumerate(variants):
        found = coverage[variant].get("by_language", {})
        for place, language in enumerate(languages):
            share = 100 * found.get(language, {}).get("matched", 0.0)
            middle = place - 0.4 + step * (number + 0.5)
            axis.bar(middle, share, 0.9 * step, color=looks[variant].tone.light)
    axis.set_xticks(range(len(languages)), languages)
    axis.tick_params(axis="x", length=0)
    axis.set_ylim(0, 100)
    _label(axis, "", "", "running tokens (%)")


def _label(axis: Axes, title: str, x_label: str, y_label: str) -> None:
    axis.set_title(title)
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)


def _add_legend(
    figure: Figure, variants: Sequence[str], looks: Looks, *, markers: bool = True,
    bars: bool = False, extra: Mapping[str, Line2D] | None = None,
) -> None:  # fmt: skip
    handles: list[Any] = []
    for variant in variants:
        look = looks[variant]
        if bars:
            handles.append(Patch(color=look.tone.light))
        else:
            handles.append(
                Line2D(
                    [], [], color=look.tone.light, linestyle=look.dash, linewidth=2,
                    marker=look.marker if markers else None, markersize=5,
                )
            )  # fmt: skip
    labels = [display_name(variant) for variant in variants]
    for label, handle in (extra or {}).items():
        labels.append(label)
        handles.append(handle)
    figure.legend(handles, labels, loc="outside upper left", ncols=min(4, len(handles)),
                  columnspacing=1.6, handlelength=2.2 if not bars else 1.2)  # fmt: skip
