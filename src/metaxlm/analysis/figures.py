"""Draw the report's figures, each a matplotlib figure without global state.

Scores by layer are the paper's figures 3 (retrieval) and 4 (word alignment); curves its figure 5,
directions its figure 6. Improvements, overview and bars show its tables 1 and 2. Coverage shows the
variants' initialization, by the rules of section 3.2.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from metaxlm.analysis.contrast import Measure, try_contrast
from metaxlm.analysis.learning_curves import PANELS, Curve, Curves, find_onset, format_steps
from metaxlm.analysis.paper import MAIN_VARIANTS, REVIEW_LANGUAGES
from metaxlm.analysis.results import Row, display_name, name_metric
from metaxlm.analysis.score_tables import (
    list_task_scores,
    name_in_text,
    read_directions,
    read_layers,
)
from metaxlm.analysis.scores import Results, Section
from metaxlm.analysis.stats import SeedScores, deviation, find_comparison, mean
from metaxlm.analysis.style import GRID, INK, Look, choose_rule_tone, drawing_style
from metaxlm.languages import language_name

Looks = Mapping[str, Look]
MOST_BARS = 4  # variants that are drawn by language; the tables have all
_WIDTH = 5.7  # inches; narrow enough for a phone to show the text at a readable size
_MOST_POINTS = 300
_MOST_THIN_LINES = 8
_MOST_SPREADS = 4
_NARROWEST_BAR = 0.11  # inches
_MOST_WHISKER = 0.35
"""How far whiskers may widen the figure of improvements, relative to the range of its points."""
_LONGEST_NAME = 22
_SHADE = 0.25
_DASHED = (0, (2, 1))
_BASELINE: dict[str, Any] = {"color": INK.light, "linewidth": 1.6, "linestyle": _DASHED}
_BAR_LEGEND: dict[str, Any] = {
    "loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "handlelength": 1,
    "columnspacing": 1.2, "handletextpad": 0.5,
}  # fmt: skip
_NORMALIZING = ("nfkc", "lower", "capitalized", "word_start", "accents")
_KINDS = ("special", "direct", "normalized", "dictionary")


@drawing_style()
def draw_loss(
    meta_log: Sequence[Row], logs: Mapping[str, Sequence[Row]], looks: Looks
) -> Figure | None:
    """Draw the training loss of every variant over steps, meta-pretraining beside it."""
    if not logs and not meta_log:
        return None
    figure = Figure(figsize=(_WIDTH, 3.6))
    ratios = [1, 1.7] if meta_log and logs else [1]
    axes = figure.subplots(1, len(ratios), width_ratios=ratios, squeeze=False)[0]
    if meta_log:
        axes[0].plot(*thin_log(meta_log), color=INK.light, linewidth=1.6)
        _label(axes[0], "Meta-pretraining", "step", "loss")
    if logs:
        for variant, log in logs.items():
            look = looks[variant]
            axes[-1].plot(*thin_log(log), look.dash, color=look.color, linewidth=1.6)
        _label(axes[-1], "Cross-lingual pretraining", "step", "" if meta_log else "loss")
        _add_legend(figure, _make_handles(logs, looks, "lines"), list(map(_name, logs)))
    return figure


def thin_log(log: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Average neighboring rows of a long log, so that a figure stays small."""
    size = -(-len(log) // _MOST_POINTS)
    chunks = [log[start : start + size] for start in range(0, len(log), size)]
    averages = [[sum(row[k] for row in c) / len(c) for c in chunks] for k in ("step", "loss")]
    return averages[0], averages[1]


@drawing_style()
def draw_layers(results: Results, looks: Looks, task: str, label: str) -> Figure | None:
    """Draw a score by layer: a thick line per variant for the mean, languages thin or as a band."""
    curves = read_layers(results, task, looks) if task in results.tasks else {}
    if not curves:
        return None
    figure = Figure(figsize=(_WIDTH, 3.6))
    axis = figure.add_subplot()
    for variant in curves if len(curves) <= _MOST_SPREADS else ():
        _draw_spread(axis, results, task, variant, looks[variant])
    for variant, curve in curves.items():
        look = looks[variant]
        axis.plot(
            list(curve), [100 * mean(series) for series in curve.values()], look.dash,
            color=look.color, linewidth=2.2, marker=look.marker, markersize=5, zorder=4,
        )  # fmt: skip
    axis.set_ylim(bottom=0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    _label(axis, "", "layer (0 = embeddings)", label)
    _add_legend(figure, _make_handles(curves, looks, "both"), list(map(_name, curves)))
    return figure


def _draw_spread(axis: Axes, results: Results, task: str, variant: str, look: Look) -> None:
    by_layer = {
        layer: {pair: 100 * mean(series) for pair, series in scores.items()}
        for layer, scores in results.scores_by_layer(task, variant).items()
    }
    pairs = dict.fromkeys(pair for values in by_layer.values() for pair in values)
    if len(pairs) <= _MOST_THIN_LINES:
        for pair in pairs:
            line = {layer: values[pair] for layer, values in by_layer.items() if pair in values}
            axis.plot([*line], [*line.values()], color=look.color, linewidth=0.8, alpha=0.4)
        return
    low, high = ([choose(values.values()) for values in by_layer.values()] for choose in (min, max))
    axis.fill_between(list(by_layer), low, high, color=look.color, alpha=0.13, linewidth=0)


@drawing_style()
def draw_transfer(sections: Sequence[Section], looks: Looks) -> Figure | None:
    """Draw transfer scores as bars by language for each task, with the majority baseline.

    Of many variants the first ones are drawn; the tables have all.
    """
    shown = [v for v in looks if any(v in section.variants for section in sections)][:MOST_BARS]
    panels = [
        (section, metric, piece)
        for section in sections
        for metric in section.metrics
        for piece in _break_languages(section.pairs, len(shown))
    ]
    if not panels:
        return None
    height = 2.7 if len(panels) == 1 else 2.0
    figure = Figure(figsize=(_WIDTH, 0.6 + height * len(panels)))
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    titled = set()
    for axis, (section, metric, pairs) in zip(axes, panels, strict=True):
        bars = {
            v: {pair[1]: section.read(v, metric).get(pair, {}) for pair in pairs}
            for v in shown
            if v in section.variants
        }
        _draw_bars(axis, bars, looks)
        baselines = [section.baseline("majority", [pair], metric) for pair in pairs]
        known = [(x, 100 * value) for x, value in enumerate(baselines) if value is not None]
        ends = [[y for _, y in known], *([x + d for x, _ in known] for d in (-0.45, 0.45))]
        axis.hlines(*ends, zorder=5, **_BASELINE)
        title = "" if section.name in titled else section.task.title
        _label(axis, title, "", name_metric(metric))
        titled.add(section.name)
    handles = [*(Patch(color=looks[v].color) for v in shown), Line2D([], [], **_BASELINE)]
    _add_legend(figure, handles, [*map(_name, shown), "majority label"])
    return figure


def _break_languages(languages: Sequence[Any], num_variants: int) -> list[Sequence[Any]]:
    most = max(3, int(_WIDTH / (_NARROWEST_BAR * (num_variants + 1))))
    size = -(-len(languages) // -(-len(languages) // most))
    return [languages[start : start + size] for start in range(0, len(languages), size)]


def _draw_bars(axis: Axes, bars: Mapping[str, Mapping[str, SeedScores]], looks: Looks) -> None:
    """Draw a group of bars per language, a bar per variant, whiskers where there are seeds.

    `bars` are scores by variant and language.
    """
    step = 0.8 / len(bars)
    languages: list[str] = []
    for number, (variant, scores) in enumerate(bars.items()):
        languages = list(scores)
        shift = step * (number + 0.5) - 0.4
        places = [(k + shift, series) for k, series in enumerate(scores.values()) if series]
        heights = [100 * mean(series) for _, series in places]
        axis.bar([x for x, _ in places], heights, 0.9 * step, color=looks[variant].color)
        spread = [(x, mean(s), d) for x, s in places if (d := deviation(list(s.values())))]
        ends = ([100 * (m + sign * d) for _, m, d in spread] for sign in (-1, 1))
        axis.vlines([x for x, _, _ in spread], *ends, color=INK.light, linewidth=1)
    axis.set_xticks(range(len(languages)), languages)
    axis.set_xlim(-0.6, len(languages) - 0.4)
    axis.tick_params(axis="x", length=0)
    axis.set_ylim(0, 100)


@drawing_style()
def draw_coverage(coverage: Mapping[str, Mapping[str, Any]], looks: Looks) -> Figure | None:
    """Draw `coverage.json` by variant: embeddings by rule, running text by language."""
    variants = [variant for variant in looks if variant in coverage]
    if not variants:
        return None
    shares = {variant: coverage[variant].get("by_language", {}) for variant in variants}
    languages = list(dict.fromkeys(x for by_language in shares.values() for x in by_language))
    pieces = _break_languages(languages, len(variants)) if languages else []
    heights = [0.9 + 0.36 * len(variants), *[2.5 if len(pieces) == 1 else 1.9] * len(pieces)]
    figure = Figure(figsize=(_WIDTH, sum(heights)))
    axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    rules = {_name(variant): coverage[variant].get("by_rule", {}) for variant in variants}
    kinds = draw_rule_bars(axes[0], rules)
    _label(axes[0], "", "share of the vocabulary (%)", "")
    patches = [Patch(color=choose_rule_tone(kind).light, label=kind) for kind in kinds]
    axes[0].legend(handles=patches, ncols=_fit_columns(kinds, 4.4), **_BAR_LEGEND)
    for axis, piece in zip(axes[1:], pieces, strict=True):
        bars = {
            v: {x: {0: shares[v].get(x, {}).get("matched", 0.0)} for x in piece} for v in variants
        }
        _draw_bars(axis, bars, looks)
        _label(axis, "", "", "running tokens (%)")
    if pieces:
        patches = [Patch(color=looks[v].color, label=_name(v)) for v in variants]
        columns = _fit_columns([_name(variant) for variant in variants], 4.0)
        axes[1].legend(handles=patches, ncols=columns, **_BAR_LEGEND)
    return figure


def name_rule_kind(rule: str) -> str:
    """Return the family of a rule: `lower` and `accents` both normalize."""
    return "normalized" if rule in _NORMALIZING else rule.partition("_")[0]


def list_kinds(bars: Iterable[Mapping[str, float]]) -> list[str]:
    """List the kinds of rules that matched anything, in the order of their use, fillers last."""
    kinds = {name_rule_kind(rule) for bar in bars for rule, value in bar.items() if value}
    between = sorted(kinds - {*_KINDS, "filler"})
    return [kind for kind in (*_KINDS, *between, "filler") if kind in kinds]


def draw_rule_bars(axis: Axes, bars: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Draw a horizontal bar of 100 % for each name, divided by kind of rule; return the kinds."""
    kinds = list_kinds(bars.values())
    for place, by_rule in enumerate(bars.values()):
        total = sum(by_rule.values()) or 1
        edges = [0.0]
        for kind in kinds:
            share = sum(n for rule, n in by_rule.items() if name_rule_kind(rule) == kind) / total
            edges.append(edges[-1] + 100 * share)
        for kind, (left, right) in zip(kinds, pairwise(edges), strict=True):
            axis.barh(place, right - left, 0.62, left=left, color=choose_rule_tone(kind).light)
    _set_rows(axis, list(bars))
    axis.set_xlim(0, 100)
    axis.spines["left"].set_visible(False)
    return kinds


@dataclass(frozen=True)
class Improvement:
    """One variant's improvement over XLM on one task, as a fraction."""

    label: str
    variant: str
    value: float
    interval: tuple[float, float] | None = None  # over examples, with the models fixed
    half_width: float | None = None  # of the interval over examples and seeds


def list_improvements(results: Results) -> list[Improvement]:
    """List the improvements over XLM in the order of the tables; reviews where supervised."""
    base = MAIN_VARIANTS[0]
    improvements = []
    for section in results.sections(results.tasks, MAIN_VARIANTS).values():
        name, sign = section.task.name, -1 if section.task.lower else 1
        is_shown = base in section.variants and not section.is_crossed
        for variant in section.variants[1:] if is_shown else ():
            value = sign * (mean(section.series(variant)) - mean(section.series(base)))
            tested = find_comparison(results.comparisons, name, (variant, base), section.scenario)
            interval = None
            if tested is not None:  # tests pool the seeds, which moves the interval a little
                shift = value - tested[1].mean.value
                interval = tested[1].mean.low + shift, tested[1].mean.high + shift
            measures = [Measure(name, section.scenario)]
            lead = try_contrast(results, variant, base, measures, section.variants)
            half = lead.half_width if lead else None
            improvements.append(Improvement(section.task.title, variant, value, interval, half))
        for _, pairs in results.split_by_text(section.shared)[:1] if is_shown else ():
            level = mean(section.series(base, pairs))
            improvements += [
                Improvement(name_in_text(section.task.title), variant, sign * gain)
                for variant in section.variants[1:]
                for gain in [mean(section.series(variant, pairs)) - level]
            ]
    return improvements


@drawing_style()
def draw_improvements(improvements: Sequence[Improvement], looks: Looks) -> Figure | None:
    """Draw a line per task, the improvements over XLM as points with their intervals."""
    if not improvements:
        return None
    base = MAIN_VARIANTS[0]
    labels = list(dict.fromkeys(one.label for one in improvements))
    variants = [v for v in MAIN_VARIANTS if any(one.variant == v for one in improvements)]
    figure = Figure(figsize=(_WIDTH, 1.2 + 0.33 * len(labels)))
    axis = figure.add_subplot()
    for stripe in range(0, len(labels), 2):
        axis.axhspan(stripe - 0.5, stripe + 0.5, color=GRID.light, alpha=0.35, linewidth=0)
    axis.axvline(0, color=looks[base].color, linewidth=1.8)
    low, high = _find_limits(improvements)
    for one in improvements:
        shift = 0.32 * (variants.index(one.variant) - (len(variants) - 1) / 2)
        place, look = labels.index(one.label) + shift, looks[one.variant]
        if one.half_width is not None:
            ends = [100 * (one.value + sign * one.half_width) for sign in (-1, 1)]
            axis.plot(ends, [place, place], color=look.color, linewidth=0.7)
            for end, limit, marker in zip(ends, (low, high), "<>", strict=True):
                if not low <= end <= high:  # it continues beyond the figure
                    _draw_point(axis, limit, place, replace(look, marker=marker), 4, clip_on=False)
        if one.interval is not None:
            ends = [100 * end for end in one.interval]
            axis.plot(ends, [place, place], color=look.color, linewidth=2.2)
        _draw_point(axis, 100 * one.value, place, look, 6)
    _set_rows(axis, labels)
    axis.set_xlim(low, high)
    axis.set_xlabel("points of F1, accuracy or error rate better than XLM")
    axis.set_title("Improvement over XLM, by task")
    handles = [Line2D([], [], color=looks[base].color, linewidth=1.8)]
    handles += _make_handles(variants, looks, "markers")
    names = [display_name(base), *map(display_name, variants)]
    for part, width, name in (("interval", 2.2, "95 %, over examples"),
                              ("half_width", 0.7, "and over seeds")):  # fmt: skip
        if any(getattr(one, part) is not None for one in improvements):
            handles.append(Line2D([], [], color=INK.light, linewidth=width))
            names.append(name)
    figure.legend(handles, names, loc="outside upper left", ncols=3, handlelength=1.3)
    return figure


def _find_limits(improvements: Sequence[Improvement]) -> tuple[float, float]:
    """Return the ends of the axis: all points, and whiskers but for the part that is far out."""
    ends = [100 * one.value for one in improvements] + [0.0]
    ends += [100 * end for one in improvements for end in one.interval or ()]
    low, high = min(ends), max(ends)
    room = _MOST_WHISKER * max(1.0, high - low)
    widths = [(g.value, g.half_width) for g in improvements if g.half_width is not None]
    far = [low, high, *(100 * (value + sign * w) for value, w in widths for sign in (-1, 1))]
    low, high = max(min(far), low - room), min(max(far), high + room)
    margin = 0.03 * max(1.0, high - low)
    return low - margin, high + margin


@drawing_style()
def draw_overview(results: Results, looks: Looks) -> Figure | None:
    """Draw every task as a line of points, one per model."""
    variants = [variant for variant in MAIN_VARIANTS if variant in results.variants]
    rows = list_task_scores(results, variants)
    if not rows:
        return None
    figure = Figure(figsize=(_WIDTH, 0.9 + 0.34 * len(rows)))
    axis = figure.add_subplot()
    for place, row in enumerate(rows):
        values = {variant: 100 * mean(series) for variant, series in row.scores.items()}
        ends = [min(values.values()), max(values.values())]
        axis.plot(ends, [place, place], color=GRID.light, linewidth=4, zorder=1)
        if row.baseline is not None:
            level = [100 * row.baseline]
            axis.plot(level, [place], marker="|", markersize=11, color=INK.light, zorder=2)
        for variant, value in values.items():
            _draw_point(axis, value, place, looks[variant], 7.5, zorder=3)
    _set_rows(axis, [row.label for row in rows])
    axis.set_xlim(0, 100)
    axis.set_xlabel("score; higher is better")
    handles = _make_handles(variants, looks, "markers")
    labels = list(map(display_name, variants))
    if any(row.baseline is not None for row in rows):
        handles.append(Line2D([], [], color=INK.light, marker="|", linestyle="", markersize=9))
        labels.append("majority label")
    figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), handlelength=1)
    return figure


@drawing_style()
def draw_curves(curves: Mapping[str, Curves], looks: Looks) -> Figure | None:
    """Draw figure 5: three panels above one another, so that onsets compare at a glance."""
    if not curves:
        return None
    figure = Figure(figsize=(_WIDTH, 7.0))
    axes = figure.subplots(3, 1, sharex=True)
    for axis, (quantity, title) in zip(axes, PANELS.items(), strict=True):
        for variant, curve in curves.items():
            _draw_curve(axis, curve[quantity], looks[variant], mark=quantity != "gap")
        axis.set_title(title)
        axis.set_ylabel("F1" if quantity != "gap" else "F1 points")
    axes[-1].set_xlabel("pretraining step")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes[-1].xaxis.set_major_formatter(FuncFormatter(lambda step, _: format_steps(step)))
    handles: list[Artist] = [*_make_handles(curves, looks, "markers")]
    labels = list(map(display_name, curves))
    if any(axis.patches for axis in axes):
        handles.append(Patch(color=INK.light, alpha=_SHADE, linewidth=0))
        labels.append("starts to rise")
    figure.legend(handles, labels, loc="outside upper left", ncols=min(4, len(labels)))
    return figure


def _draw_curve(axis: Axes, curve: Curve, look: Look, mark: bool) -> None:
    """Draw mean and deviation over seeds, and the interval in which the curve starts to rise."""
    steps = sorted(curve)
    means = [100 * mean(curve[step]) for step in steps]
    axis.plot(
        steps, means, look.dash, color=look.color, linewidth=2, marker=look.marker,
        markersize=4, zorder=3,
    )  # fmt: skip
    spreads = [100 * (deviation(list(curve[step].values())) or 0.0) for step in steps]
    if any(spreads):
        both = list(zip(means, spreads, strict=True))
        low, high = ([value + sign * spread for value, spread in both] for sign in (-1, 1))
        axis.fill_between(steps, low, high, color=look.color, alpha=0.15, linewidth=0)
    onset = find_onset(curve) if mark else None
    if onset is not None and onset.low is not None:
        axis.axvspan(onset.low, onset.high, color=look.color, alpha=_SHADE, linewidth=0, zorder=1)


@drawing_style()
def draw_directions(results: Results, looks: Looks) -> Figure | None:
    """Draw figure 6: a panel per training language, a point per model and test language."""
    directions = read_directions(results)
    if not directions:
        return None
    figure = Figure(figsize=(_WIDTH, 3.6))
    axes = figure.subplots(1, len(REVIEW_LANGUAGES), sharey=True)
    for axis, source in zip(axes, REVIEW_LANGUAGES, strict=True):
        for number, (variant, scores) in enumerate(directions.items()):
            shift, look = 0.22 * (number - (len(directions) - 1) / 2), looks[variant]
            for place, target in enumerate(REVIEW_LANGUAGES):
                if series := scores[source, target]:
                    spread = deviation(list(series.values()))
                    axis.errorbar(
                        place + shift, 100 * mean(series), None if spread is None else 100 * spread,
                        marker=look.marker, markersize=5, linestyle="", color=look.color,
                        elinewidth=1.2,
                    )  # fmt: skip
        axis.axhline(50, color=INK.light, linestyle=_DASHED, linewidth=1)
        axis.set_xticks(range(len(REVIEW_LANGUAGES)), REVIEW_LANGUAGES)
        axis.set_xlim(-0.6, len(REVIEW_LANGUAGES) - 0.4)
        axis.set_title(f"{language_name(source)} →")
    axes[0].set_ylabel("accuracy (%)")
    handles = _make_handles(directions, looks, "markers")
    handles.append(Line2D([], [], color=INK.light, linestyle=_DASHED, linewidth=1))
    labels = [*map(display_name, directions), "chance"]
    figure.legend(handles, labels, loc="outside upper left", ncols=4, handlelength=1.4)
    return figure


def _label(axis: Axes, title: str, x_label: str, y_label: str) -> None:
    axis.set(title=title, xlabel=x_label, ylabel=y_label)


def _draw_point(axis: Axes, x: float, y: float, look: Look, size: float, **more: Any) -> None:
    axis.plot([x], [y], marker=look.marker, markersize=size, linestyle="", color=look.color, **more)


def _set_rows(axis: Axes, labels: Sequence[str]) -> None:
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.grid(False)
    axis.grid(axis="x", color=GRID.light)


def _make_handles(variants: Iterable[str], looks: Looks, kind: str) -> list[Line2D]:
    """Return legend entries of `lines`, `markers` or `both`."""
    return [
        Line2D(
            [], [], color=looks[v].color, linewidth=2,
            linestyle="" if kind == "markers" else looks[v].dash,
            marker=None if kind == "lines" else looks[v].marker,
            markersize=7 if kind == "markers" else 5,
        )
        for v in variants
    ]  # fmt: skip


def _add_legend(figure: Figure, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    more = {"ncols": _fit_columns(labels, _WIDTH - 0.4), "columnspacing": 1.3, "handlelength": 2}
    figure.legend(handles, labels, loc="outside upper left", **more)


def _fit_columns(labels: Sequence[str], width: float) -> int:
    """Return how many legend columns fit: all in one row, or columns as wide as the longest."""
    widths = [0.5 + 0.075 * len(label) for label in labels]
    if sum(widths) <= width:
        return len(labels)
    return max(1, int(width / max(widths)))


def _name(variant: str) -> str:
    name = display_name(variant)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
