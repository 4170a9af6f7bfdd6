"""The tables behind the paper's appendix and figures: by language, by layer, by direction, tests.

Measurements and paired tests come in, tables go out. The appendix tables have languages down and
models across, which a screen can show; figures 3, 4 and 6 are published without numbers, so that
their tables have ours alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from metaxlm.experiments.names import display_name
from metaxlm.experiments.paper_scores import AVERAGED
from metaxlm.experiments.series import Series, average_series
from metaxlm.experiments.statistics import PairComparison
from metaxlm.experiments.task_comparison import TaskComparison
from metaxlm.experiments.wins import turn
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
from metaxlm.report.comparison import make_test_table
from metaxlm.report.paper.measurements import (
    DOMAINS,
    MAIN_VARIANTS,
    PAPER_VARIANTS,
    REVIEW_LANGUAGES,
    TASKS,
    Measurements,
    Trace,
    make_paper_cell,
)
from metaxlm.report.paper.score_tables import describe_sections
from metaxlm.report.scores import collect, is_lower_better, score_series
from metaxlm.report.sections import TaskSection

_METRICS = {"tatoeba": "accuracy", "alignment": "aer"}
_LAYER_TITLES = {
    "tatoeba": "Tatoeba by layer: accuracy at 1, mean over languages and both directions",
    "alignment": "Word alignment by layer: error rate, mean over pairs (lower is better)",
}
_PAPER_PAIRS = (
    ("metaxlm", "xlm"), ("metaxlm+dict", "metaxlm"), ("metaxlm+dict", "xlm"), ("xlm+kd", "xlm"),
    ("metaxlm", "xlm+kd"), ("freeze", "metaxlm"), ("freeze", "xlm"), ("body", "xlm"),
    ("embeddings", "xlm"), ("metaxlm", "body"), ("metaxlm", "embeddings"),
)  # fmt: skip


def make_language_tables(found: Measurements) -> list[Table]:
    """Build the appendix: one table a task, every language, the mean at the end.

    Features are those of each model's best layer.
    """
    sections = found.sections(MAIN_VARIANTS, [*AVERAGED, *_METRICS])
    return [_make_language_table(found, section) for section in sections.values()]


def _make_language_table(found: Measurements, section: TaskSection) -> Table:
    facts = section.facts
    shown = [variant for variant in MAIN_VARIANTS if variant in section.scores.variants]
    units = sorted(section.scores.languages(), key=lambda unit: unit != "en")

    def make_line(label: str, of: Sequence[str], detail: str = "") -> Line:
        cells = [found.cell(section, variant, of) for variant in shown]
        return Line(label, tuple(_mark_row(cells, better)), detail=detail)

    better = section.column.better
    lines = [make_line(language_name(unit), [unit], unit) for unit in units]
    mean = make_line("Mean", section.scores.common_languages())
    layers = {variant: f"layer {layer}" for variant, layer in section.layers.items()}
    columns = tuple(Column(display_name(v), layers.get(v, "")) for v in shown)
    notes = (
        *describe_sections({facts.name: section}, [facts.name]),
        "The mean is over the languages that all of them have.",
    )
    title = f"{facts.title} by language ({'F1 / EM' if facts.second else section.column.detail})"
    groups = (Group(tuple(lines)), Group((mean,)))
    return Table(f"languages-{facts.name}", title, columns, groups, notes)


def _mark_row(cells: Sequence[Cell], better: Direction | None = None) -> list[Cell]:
    """Mark the best of one row, where models stand across; what prints alike is equally good."""
    shown = [f"{100 * cell.value:.1f}" if cell.value is not None else None for cell in cells]
    known = [float(text) for text in shown if text is not None]
    if len(known) < 2:
        return list(cells)
    best = min(known) if better == "lower" else max(known)
    return [
        replace(cell, best=text is not None and float(text) == best)
        for cell, text in zip(cells, shown, strict=True)
    ]


def make_layer_tables(found: Measurements) -> list[Table]:
    """Build figures 3 and 4 as tables: layers across, models down, means over languages."""
    tables = []
    for task, metric in _METRICS.items():
        scores = collect(found.rows, task=task, metric=metric, scenario="features")
        shown = [variant for variant in found.variants if variant in scores.variants]
        layers = sorted({layer for variant in shown for layer in scores.layers(variant)})
        if not layers:
            continue
        languages = scores.common_languages()
        better: Direction = "lower" if is_lower_better(metric) else "higher"
        lines = []
        for variant in shown:
            cells = [
                _trace_series(
                    found,
                    scores.mean(variant, layer, languages),
                    Trace(variant, task, metric, "features", ("en",), tuple(languages),
                          layer=layer),
                )
                for layer in layers
            ]  # fmt: skip
            lines.append(Line(display_name(variant), tuple(cells), variant))
        heads = (Column("Emb." if not k else str(k), better=better) for k in layers)
        notes = (
            f"Mean over the {len(languages)} languages that all have. Layer 0 is the embeddings. "
            "The paper shows this as a figure, without numbers.",
        )
        table = Table(
            f"layers-{task}", _LAYER_TITLES[task], tuple(heads), (Group(tuple(lines)),), notes
        )
        tables.append(mark_best(table))
    return tables


def _trace_series(found: Measurements, series: Series, trace: Trace) -> Cell:
    seeds = tuple(sorted(seed for seed in series if seed is not None))
    origins = found.list_origins(trace.variant, trace.task.split(), trace.sources)
    step = found.steps.get(trace.variant)
    known = replace(trace, step=step, seeds=seeds, origins=origins)
    ours = make_score_cell(score_series(series))
    return make_paper_cell(ours, Cell(), [known] if series else ())


Directions = dict[str, dict[tuple[str, str], Series]]
"""By variant, then by training and test language: accuracy by seed, mean over domains."""


def collect_directions(found: Measurements, variants: Sequence[str]) -> Directions:
    """Average the reviews' domains for each of the 16 directions, seed by seed."""
    values: dict[str, dict[tuple[str, str], dict[str, Series]]] = {}
    for row in found.rows:
        if row["task"] in DOMAINS and row["metric"] == "accuracy" and row["variant"] in variants:
            direction = (str(row["source"]), str(row["language"]))
            by_domain = values.setdefault(row["variant"], {}).setdefault(direction, {})
            by_domain.setdefault(row["task"], {})[row["seed"]] = float(row["value"])
    return {
        variant: {
            direction: average_series(list(by_domain.values()))
            for direction, by_domain in values[variant].items()
            if len(by_domain) == len(DOMAINS)
        }
        for variant in variants
        if variant in values
    }


def make_direction_table(found: Measurements) -> Table | None:
    """Build figure 6 as a table: 16 directions down, models across, the gain at the end."""
    directions = collect_directions(found, MAIN_VARIANTS)
    if not any(directions.values()):
        return None
    shown = list(directions)
    groups = []
    for source in REVIEW_LANGUAGES:
        lines = [
            _make_direction_line(found, directions, source, target) for target in REVIEW_LANGUAGES
        ]
        groups.append(Group(tuple(lines), f"Finetuned in {language_name(source)}"))
    columns = [*(Column(display_name(variant)) for variant in shown)]
    if {"xlm", "metaxlm"} <= set(shown):
        columns.append(Column("MetaXLM − XLM"))
    notes = (
        "Accuracy, mean over books, DVDs and music, which all must be there. Chance is 50. The "
        "paper shows this as a figure, without numbers, and counts 15 gains of 16.",
    )
    title = "Transfer directions between the reviews' languages"
    return Table("directions", title, tuple(columns), tuple(groups), notes)


def _make_direction_line(
    found: Measurements, directions: Directions, source: str, target: str
) -> Line:
    scenario = "supervised" if source == target else "transfer"
    cells: list[Cell] = []
    means: dict[str, float | None] = {}
    for variant, by_direction in directions.items():
        series = by_direction.get((source, target), {})
        trace = Trace(variant, " ".join(DOMAINS), "accuracy", scenario, (source,), (target,))
        cell = _trace_series(found, series, trace)
        means[variant] = cell.value
        cells.append(cell)
    cells = _mark_row(cells)
    if {"xlm", "metaxlm"} <= directions.keys():
        ours, base = means["metaxlm"], means["xlm"]
        cells.append(Cell(None if ours is None or base is None else ours - base))
    return Line(f"→ {language_name(target)}", tuple(cells))


def make_paired_tests(
    comparisons: Sequence[TaskComparison], variants: Sequence[str]
) -> Table | None:
    """Build the paired tests of those pairs that the paper, or an own idea, asks about."""
    own = [variant for variant in variants if variant not in PAPER_VARIANTS]
    wanted = (*_PAPER_PAIRS, *((variant, "metaxlm+dict") for variant in own))
    chosen = []
    for comparison in (one for one in comparisons if one.layer is None):
        pairs = {(pair.first, pair.second): pair for pair in comparison.pairs}
        kept = [_orient(pairs, first, second) for first, second in wanted]
        known = tuple(pair for pair in kept if pair is not None)
        if known:
            chosen.append(replace(comparison, pairs=known))
    order = [facts.name for facts in TASKS]
    chosen.sort(key=lambda one: order.index(one.task) if one.task in order else len(order))
    return make_test_table(chosen, {facts.name: facts.title for facts in TASKS})


def _orient(
    pairs: Mapping[tuple[str, str], PairComparison], first: str, second: str
) -> PairComparison | None:
    """Return a pair with the model that is asked about first, under the paper's names."""
    names = (display_name(first), display_name(second))
    if (first, second) in pairs:
        found = pairs[first, second]
        return PairComparison(*names, found.by_language, found.mean)
    if (second, first) in pairs:
        found = pairs[second, first]
        return PairComparison(*names, tuple(map(turn, found.by_language)), turn(found.mean))
    return None
