"""The report's tables as data: rows of results in, table objects out, nothing rendered yet.

The tables follow the paper's: variants down, languages across, the mean at the end, the best value
of a column bold (its tables 1, 2 and those of the appendix). How they become HTML, Markdown, LaTeX
or a terminal table stands in `rendering`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from metaxlm.languages import language_name
from metaxlm.report.run_folder import display_name
from metaxlm.report.scores import (
    Row,
    Score,
    Scores,
    average,
    collect,
    collect_majority,
    find_source_language,
    is_lower_better,
    list_transfer_metrics,
    other_languages,
    score_series,
    subtract,
    summarize,
)

Direction = Literal["higher", "lower"] | None
"""Which end of a column is good; None where neither is."""

TASK_NAMES = {
    "udpos": "POS", "panx": "NER", "xquad": "XQuAD", "mlqa": "MLQA", "tydiqa": "TyDiQA",
    "xnli": "XNLI", "pawsx": "PAWS-X", "cls": "Amazon reviews",
}  # fmt: skip
METRIC_NAMES = {"f1": "F1", "accuracy": "accuracy", "exact_match": "exact match", "em": "EM"}


@dataclass(frozen=True)
class Cell:
    """A value as it stands in the results; `style` says how it is written."""

    value: float | None = None
    deviation: float | None = None
    style: Literal["percent", "count", "decimal", "time"] = "percent"
    best: bool = False


@dataclass(frozen=True)
class Column:
    """A column's heading; `detail` is a second, smaller line such as a language's code."""

    label: str
    detail: str = ""
    better: Direction = None


@dataclass(frozen=True)
class Line:
    """One row of cells; a reference row, such as the majority level, never competes."""

    label: str
    cells: tuple[Cell, ...]
    variant: str | None = None
    reference: bool = False


@dataclass(frozen=True)
class Group:
    """Rows that compete with one another; `better` overrides the columns' where metrics differ."""

    lines: tuple[Line, ...]
    label: str = ""


@dataclass(frozen=True)
class Table:
    """A table to be rendered; `name` is its file's."""

    name: str
    title: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()


def make_score_cell(score: Score | None) -> Cell:
    """Return the cell of a score, empty when it was not measured."""
    return Cell() if score is None else Cell(score.mean, score.deviation)


def mark_best(table: Table) -> Table:
    """Mark the best value of every column in each group; a single value has nothing to beat."""
    return replace(
        table, groups=tuple(_mark_group(group, table.columns) for group in table.groups)
    )


def _mark_group(group: Group, columns: Sequence[Column]) -> Group:
    lines = [list(line.cells) for line in group.lines]
    for position, column in enumerate(columns):
        # Values that print alike are equally good: compare what the reader sees.
        shown = {
            number: round(cells[position].value or 0.0, 3)
            for number, cells in enumerate(lines)
            if cells[position].value is not None and not group.lines[number].reference
        }
        if column.better is None or len(shown) < 2:
            continue
        best = min(shown.values()) if column.better == "lower" else max(shown.values())
        for number, value in shown.items():
            if value == best:
                lines[number][position] = replace(lines[number][position], best=True)
    marked = (
        replace(line, cells=tuple(cells)) for line, cells in zip(group.lines, lines, strict=True)
    )
    return replace(group, lines=tuple(marked))


def make_summary_table(rows: Sequence[Row], variants: Sequence[str] | None = None) -> Table:
    """Build the five headline numbers of every variant, and the majority level beneath."""
    summaries = summarize(rows, variants)
    source = language_name(find_source_language(rows))
    columns = (
        Column("Retrieval", "accuracy", "higher"),
        Column("Alignment", "error rate", "lower"),
        Column("Transfer", source, "higher"),
        Column("Transfer", "other languages", "higher"),
        Column("Transfer gap", "", "lower"),
    )
    lines = [
        Line(
            display_name(s.variant),
            tuple(
                make_score_cell(score)
                for score in (
                    s.retrieval, s.aer, s.transfer_source, s.transfer_others, s.transfer_gap
                )
            ),
            s.variant,
        )
        for s in summaries
    ]  # fmt: skip
    majority = _summarize_majority(rows)
    if majority is not None:
        lines.append(majority)
    table = Table("summary", "Summary", columns, (Group(tuple(lines)),), _note_summary(rows))
    return mark_best(table)


def _summarize_majority(rows: Sequence[Row]) -> Line | None:
    """Average the majority level over the same tasks and languages as the variants' scores."""
    source = find_source_language(rows)
    at_source, at_others = [], []
    for task, metric in list_transfer_metrics(rows):
        scores = collect(rows, task=task, metric=metric, scenario="transfer")
        levels = collect_majority(rows, task)
        others = other_languages(scores, source)
        if source not in levels or not others or any(lang not in levels for lang in others):
            return None
        at_source.append({None: levels[source]})
        at_others.append(average([{None: levels[language]} for language in others]))
    if not at_source:
        return None
    cells = [make_score_cell(score_series(average(s))) for s in (at_source, at_others)]
    return Line("Most frequent label", (Cell(), Cell(), *cells, Cell()), reference=True)


def _note_summary(rows: Sequence[Row]) -> tuple[str, ...]:
    retrieval = collect(rows, task="tatoeba", metric="accuracy", scenario="features")
    aer = collect(rows, task="alignment", metric="aer", scenario="features")
    tasks = list_transfer_metrics(rows)
    notes = []
    if retrieval:
        notes.append(f"Retrieval: {_describe_languages(retrieval)}, both directions, best layer.")
    if aer:
        notes.append(f"Alignment: {_describe_languages(aer)}, best layer; lower is better.")
    if tasks:
        seeds = max(
            collect(rows, task=t, metric=m, scenario="transfer").num_seeds for t, m in tasks
        )
        named = ", ".join(f"{name_task(task)} {name_metric(metric)}" for task, metric in tasks)
        notes.append(
            f"Transfer: {named}, {_count(seeds, 'seed')}; "
            "the gap is the source language's score less the others' mean."
        )
    return tuple(notes)


def make_retrieval_table(rows: Sequence[Row], variants: Sequence[str]) -> Table | None:
    """Build retrieval accuracy by language at each variant's best layer: mean, then each way."""
    both = collect(rows, task="tatoeba", metric="accuracy", scenario="features")
    if not both:
        return None
    layers = choose_layers(both, variants, lower=False)
    source = find_source_language(rows)
    metrics = {
        "accuracy": "Both directions",
        "accuracy_to_source": f"xx → {source}",
        "accuracy_from_source": f"{source} → xx",
    }
    groups = _group_metrics(rows, "tatoeba", metrics, layers, both)
    return _make_layer_table(
        "retrieval", "Sentence retrieval by language (accuracy at 1)", both, groups, ("higher",) * 3
    )


def make_alignment_table(rows: Sequence[Row], variants: Sequence[str]) -> Table | None:
    """Build alignment error by language at each variant's best layer, with precision and recall."""
    aer = collect(rows, task="alignment", metric="aer", scenario="features")
    if not aer:
        return None
    layers = choose_layers(aer, variants, lower=True)
    metrics = {"aer": "Alignment error rate (lower is better)"}
    groups = _group_metrics(rows, "alignment", metrics, layers, aer)
    table = _make_layer_table("alignment", "Word alignment by language", aer, groups, ("lower",))
    extra = _group_metrics(
        rows, "alignment", {"precision": "Precision", "recall": "Recall"}, layers, aer
    )
    marked = [_mark_group(g, [replace(c, better="higher") for c in table.columns]) for g in extra]
    return replace(table, groups=(*table.groups, *marked))


def choose_layers(scores: Scores, variants: Sequence[str], lower: bool) -> dict[str, int]:
    """Pick each variant's best layer; variants without values are left out."""
    languages = scores.common_languages()
    best = {variant: scores.best_layer(variant, lower, languages) for variant in variants}
    return {variant: layer for variant, layer in best.items() if layer is not None}


def _group_metrics(
    rows: Sequence[Row], task: str, metrics: Mapping[str, str], layers: Mapping[str, int],
    main: Scores,
) -> list[Group]:  # fmt: skip
    """Make one group of rows for each metric that was measured, at the main metric's layers."""
    groups = []
    for metric, label in metrics.items():
        scores = collect(rows, task=task, metric=metric, scenario="features")
        if not scores:
            continue
        lines = []
        for variant, layer in layers.items():
            cells = [score_series(scores.series(variant, layer, x)) for x in main.languages()]
            mean = score_series(scores.mean(variant, layer, main.common_languages()))
            name = f"{display_name(variant)}, layer {layer}"
            lines.append(Line(name, tuple(map(make_score_cell, [*cells, mean])), variant))
        groups.append(Group(tuple(lines), label))
    return groups


def _make_layer_table(
    name: str, title: str, scores: Scores, groups: Sequence[Group],
    directions: Sequence[Direction],
) -> Table:  # fmt: skip
    columns = (*_make_language_columns(scores.languages(), directions[0]),
               Column("Mean", "", directions[0]))  # fmt: skip
    notes = (f"{_sentence(_describe_languages(scores))}; best layer by the mean.",)
    return mark_best(Table(name, title, columns, tuple(groups), notes))


def make_transfer_tables(rows: Sequence[Row], variants: Sequence[str]) -> list[Table]:
    """Build one table for each finetuned task: every language, the others' mean, the gap."""
    return [
        _make_transfer_table(rows, variants, task, metric)
        for task, metric in list_transfer_metrics(rows)
    ]


def _make_transfer_table(
    rows: Sequence[Row], variants: Sequence[str], task: str, metric: str
) -> Table:
    scores = collect(rows, task=task, metric=metric, scenario="transfer")
    source = find_source_language(rows)
    others = other_languages(scores, source)
    languages = sorted(scores.languages(), key=lambda language: language != source)
    better: Direction = "lower" if is_lower_better(metric) else "higher"
    lines = []
    for variant in variants:
        if variant not in scores.variants:
            continue
        mean = scores.mean(variant, None, others)
        gap = subtract(scores.series(variant, None, source), mean)
        series = [*(scores.series(variant, None, language) for language in languages), mean, gap]
        cells = tuple(make_score_cell(score_series(one)) for one in series)
        lines.append(Line(display_name(variant), cells, variant))
    levels = collect_majority(rows, task)
    if levels:
        cells = tuple(Cell(levels.get(language)) for language in languages)
        known = [{None: levels[language]} for language in others if language in levels]
        mean_level = make_score_cell(score_series(average(known)))
        lines.append(Line("Most frequent label", (*cells, mean_level, Cell()), reference=True))
    columns = (
        *_make_language_columns(languages, better),
        Column("Others", "mean", better),
        Column("Gap", "", "lower"),
    )
    note = (
        f"{_sentence(_describe_languages(scores))}; {_count(scores.num_seeds, 'seed')}; "
        f"finetuned in {language_name(source)} only."
    )
    title = f"Transfer by language: {name_task(task)} ({name_metric(metric)})"
    return mark_best(Table(f"transfer-{task}-{metric}", title, columns, (Group(tuple(lines)),), (note,)))


def make_coverage_tables(
    coverage: Mapping[str, Mapping[str, Any]], variants: Sequence[str]
) -> list[Table]:
    """Build what each variant starts with: rows by rule, running tokens by language, scripts."""
    present = [variant for variant in variants if variant in coverage]
    if not present:
        return []
    rules = list(dict.fromkeys(rule for v in present for rule in coverage[v].get("by_rule", {})))
    languages = list(dict.fromkeys(x for v in present for x in coverage[v].get("by_language", {})))
    scripts = list(dict.fromkeys(x for v in present for x in coverage[v].get("by_script", {})))
    tables = [
        _tabulate(
            "start-rules", "Rows of the vocabulary by the rule that filled them", present,
            [*(Column(rule) for rule in rules), Column("all rows")],
            lambda v: [
                *(Cell(coverage[v]["by_rule"].get(rule, 0), style="count") for rule in rules),
                Cell(coverage[v].get("rows"), style="count"),
            ],
        )
    ]  # fmt: skip
    if languages:
        tables.append(
            _tabulate(
                "start-tokens", "Running tokens whose row is copied, by language", present,
                _make_language_columns(languages, "higher"),
                lambda v: [
                    Cell(coverage[v].get("by_language", {}).get(x, {}).get("matched"))
                    for x in languages
                ],
            )
        )  # fmt: skip
    if scripts:
        tables.append(
            _tabulate(
                "start-scripts", "Rows copied, by script", present,
                [Column(script, "", "higher") for script in scripts],
                lambda v: [_share(coverage[v].get("by_script", {}).get(x)) for x in scripts],
            )
        )  # fmt: skip
    return tables
