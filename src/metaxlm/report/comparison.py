"""Several models side by side: rows of an evaluation and paired tests come in, tables go out.

By task as the paper's table 1 (mean over languages, then over seeds; questions as F1 / EM; `Avg`
only over all seven), by language as its appendix, the spread over seeds, and the tests. The paper's
own rows stand beside them, over the same languages, as what they are: models of another size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from metaxlm.experiments.paper_scores import (
    AVERAGED,
    MODELS,
    average_tasks,
    find_paper_mean,
)
from metaxlm.experiments.series import Series, average_series
from metaxlm.experiments.statistics import Difference, correct_holm, summarize_seeds
from metaxlm.experiments.task_comparison import TaskComparison
from metaxlm.languages import language_name
from metaxlm.report.cells import (
    Cell,
    Column,
    Group,
    Line,
    Table,
    format_cell,
    make_score_cell,
    mark_best,
)
from metaxlm.report.scores import is_lower_better, score_series
from metaxlm.report.sections import TaskSection
from metaxlm.report.tables import name_metric

PAPER_LABEL = "Published by the paper: 270 million parameters, another size, no competitors"
PAPER = "paper"
"""Second line of the heading over a column of published scores."""
SIGNIFICANT = 0.05


def make_task_table(
    sections: Sequence[TaskSection], models: Sequence[str], notes: Sequence[str] = ()
) -> Table:
    """Build models x tasks, with the paper's rows beneath."""
    columns = [section.column for section in sections]
    has_average = {section.name for section in sections if section.is_papers} >= set(AVERAGED)
    lines = []
    for model in models:
        cells = [section.cell(model, section.scores.common_languages()) for section in sections]
        if has_average:
            cells.append(make_score_cell(score_series(_average_series(sections, model))))
        lines.append(Line(model, tuple(cells), model))
    groups = [Group(tuple(lines))]
    if published := _list_paper_lines(sections, has_average):
        groups.append(Group(tuple(published), PAPER_LABEL))
    if has_average:
        columns.append(Column("Avg", "", "higher"))
    about = ["Mean over languages, then mean ± deviation over seeds."]
    if published:
        about.append("The paper's rows are over the same languages.")
    about += list(_describe_sections(sections))
    title = "Scores by task"
    table = Table("tasks", title, tuple(columns), tuple(groups), (*about, *notes))
    return mark_best(table)


def _average_series(sections: Sequence[TaskSection], model: str) -> Series:
    """Average the seven tasks seed by seed, questions as (F1 + EM) / 2."""
    by_task = {
        section.name: average_series(section.series(model))
        for section in sections
        if section.name in AVERAGED
    }
    return average_series([by_task[task] for task in AVERAGED])


def _describe_sections(sections: Sequence[TaskSection]) -> Iterator[str]:
    for section in sections:
        scores = section.scores
        units = scores.common_languages()
        splits = " and ".join(sorted({section.splits[unit] for unit in units}))
        sizes = sorted(scores.examples[unit] for unit in units)
        spread = f"{sizes[0]:,}" if sizes[0] == sizes[-1] else f"{sizes[0]:,}–{sizes[-1]:,}"
        left_out = len(scores.languages()) - len(units)
        sets = "1 set" if len(units) == 1 else f"{len(units)} sets"
        text = f"{section.facts.title}: {splits}, {sets} of {spread} examples"
        if section.name != section.facts.name:
            text = text.replace(":", f" ({section.scenario}):", 1)
        text += f", {scores.num_seeds} seed{'s' if scores.num_seeds > 1 else ''}"
        if left_out:
            text += f" ({left_out} that not all models have are left out)"
        yield f"{text}."


def _list_paper_lines(sections: Sequence[TaskSection], has_average: bool) -> list[Line]:
    lines = []
    for name in MODELS:
        cells, values = [], {}
        for section in sections:
            found = find_paper_cell(section, name, section.scores.common_languages())
            cells.append(found)
            values[section.name] = _list_values(found)
        if all(cell.value is None for cell in cells):
            continue
        if has_average:
            cells.append(Cell(average_tasks(values)))
        lines.append(Line(f"{name} (paper)", tuple(cells), reference=True))
    return lines


def _list_values(cell: Cell) -> list[float]:
    values = [cell.value, None if cell.beside is None else cell.beside.value]
    return [value for value in values if value is not None]


def find_paper_cell(section: TaskSection, model: str, units: Sequence[str]) -> Cell:
    """Return the paper's score over the same languages; empty where it has none."""
    facts = section.facts
    if not section.is_papers:
        return Cell()
    value = find_paper_mean(facts.name, model, facts.metric, units)
    if value is None or facts.second is None:
        return Cell(value)
    return Cell(value, beside=Cell(find_paper_mean(facts.name, model, facts.second, units)))


def make_language_tables(sections: Sequence[TaskSection], models: Sequence[str]) -> list[Table]:
    """Build one table for each task and scenario: languages down, models across."""
    return [_make_language_table(section, models) for section in sections]


def _make_language_table(section: TaskSection, models: Sequence[str]) -> Table:
    shown = [model for model in models if model in section.scores.variants]
    units = sorted(section.scores.languages(), key=lambda unit: unit != "en")
    facts = section.facts
    papers = [name for name in MODELS if has_paper_languages(section, name)]
    facts_of_units = {(section.splits[unit], section.scores.examples[unit]) for unit in units}
    is_alike = len(facts_of_units) == 1
    levels = {"Chance": section.chance, "Majority": section.majority}
    levels = {name: level for name, level in levels.items() if level}

    def make_line(name: str, of: Sequence[str], last: Sequence[Cell]) -> Line:
        mine = [section.cell(model, of) for model in shown]
        published = [find_paper_cell(section, name, of) for name in papers]
        beside = [_average_cells(level, of) for level in levels.values()]
        lower = is_lower_better(facts.metric)
        cells = (*_mark_row(mine, lower), *published, *beside)
        return Line(name, cells if is_alike else (*cells, *last))

    lines = [
        make_line(
            unit if "→" in unit else f"{language_name(unit)} ({unit})",
            [unit],
            [
                Cell(0, style="text", text=section.splits[unit]),
                Cell(section.scores.examples[unit], style="count"),
            ],
        )
        for unit in units
    ]
    blank = Cell(0, style="text")
    mean = make_line("Mean", section.scores.common_languages(), [blank, blank])
    details = {model: f"layer {layer}" for model, layer in section.layers.items()}
    columns = [
        *(Column(model, details.get(model, "")) for model in shown),
        *(Column(name, PAPER) for name in papers),
        *(Column(name) for name in levels),
        *(() if is_alike else (Column("Split"), Column("Examples"))),
    ]
    notes = [f"{_count_seeds(section)}."]
    if levels:
        notes.append(f"No model is needed for: {', '.join(levels).lower()}.")
    if is_alike:
        [(split, size)] = facts_of_units
        notes.append(f"Every set: {split}, {size:,} examples.")
    if papers:
        notes.append("The paper's columns are of models of another size.")
    title = f"{section.column.label} by language ({section.column.detail})"
    groups = (Group(tuple(lines)), Group((mean,)))
    return Table(f"languages-{section.name}", title, tuple(columns), groups, tuple(notes))


def has_paper_languages(section: TaskSection, model: str) -> bool:
    """Say whether the paper has a score of a model in any of the section's languages."""
    units = section.scores.languages()
    return any(find_paper_cell(section, model, [unit]).value is not None for unit in units)


def _count_seeds(section: TaskSection) -> str:
    number = section.scores.num_seeds
    return "One seed" if number == 1 else f"Mean ± deviation over {number} seeds"


def _mark_row(cells: Sequence[Cell], lower: bool) -> list[Cell]:
    """Mark the best model of one language."""
    values = {k: round(cell.value, 3) for k, cell in enumerate(cells) if cell.value is not None}
    if len(values) < 2:
        return list(cells)
    best = min(values.values()) if lower else max(values.values())
    return [replace(cell, best=values.get(k) == best) for k, cell in enumerate(cells)]


def _average_cells(cells: Mapping[str, Cell], units: Sequence[str]) -> Cell:
    chosen = [cells[unit] for unit in units if unit in cells]
    mean = _mean([cell.value for cell in chosen])
    second = _mean([cell.beside.value for cell in chosen if cell.beside is not None])
    return Cell(mean) if second is None else Cell(mean, beside=Cell(second))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def make_seed_table(sections: Sequence[TaskSection], models: Sequence[str]) -> Table | None:
    """Build mean, deviation and 95 % t-interval over seeds of each model and task."""
    groups = []
    for section in sections:
        lines = []
        for model in (model for model in models if model in section.scores.variants):
            for metric, series in zip(
                (section.facts.metric, section.facts.second), section.series(model), strict=False
            ):
                if len(series) > 1:
                    found = summarize_seeds(list(series.values()))
                    values = (found.mean, found.deviation, found.low, found.high)
                    cells = (*map(Cell, values), Cell(found.num_seeds, style="count"))
                    lines.append(Line(model, cells, detail=name_metric(str(metric))))
        if lines:
            groups.append(Group(tuple(lines), f"{section.facts.title}, {section.scenario}"))
    columns = ("Mean", "Deviation", "Interval from", "to", "Seeds")
    title = "Spread over seeds: sample deviation and 95 % t-interval of the mean"
    if not groups:
        return None
    return Table("seeds", title, tuple(Column(name) for name in columns), tuple(groups))


def make_test_table(
    comparisons: Sequence[TaskComparison], titles: Mapping[str, str]
) -> Table | None:
    """Build the paired tests: differences of means over languages, and wins by language."""
    every = [(found, pair) for found in comparisons for pair in found.pairs]
    corrected = correct_holm([pair.mean.p_value for _, pair in every])
    groups: dict[tuple[str, str], list[Line]] = {}
    for (found, pair), p_value in zip(every, corrected, strict=True):
        better, worse = (
            sum(d.p_value < SIGNIFICANT and sign * d.value > 0 for d in pair.by_language)
            for sign in (1, -1)
        )
        mean = pair.mean
        cells = (
            Cell(mean.value),
            Cell(mean.value, style="text", text=format_interval(mean)),
            Cell(p_value, style="text", text=format_p_value(p_value)),
            Cell(better, style="text", text=f"{better} / {worse} of {len(found.units)}"),
            Cell(sum(found.num_examples), style="count"),
            Cell(found.num_seeds, style="count"),
        )
        title = f"{titles.get(found.task, found.task)}, {found.scenario}"
        line = Line(f"{pair.first} − {pair.second}", cells)
        groups.setdefault((title, name_metric(found.metric)), []).append(line)
    if not groups:
        return None
    heads = ("Difference", "95 % interval", "p", "Better / worse", "Examples", "Seeds")
    notes = (
        "Paired over the same examples, summed over seeds: difference of the mean over languages, "
        "its bootstrap interval, p of an approximate-randomization test after Holm over this "
        "table; languages in which the first model is better or worse with p < 0.05 after Holm "
        "over the languages.",
    )
    made = tuple(Group(tuple(lines), f"{t} ({metric})") for (t, metric), lines in groups.items())
    columns = tuple(Column(name) for name in heads)
    return Table("tests", "Paired tests between models", columns, made, notes)


def format_interval(difference: Difference) -> str:
    """Write an interval in points."""
    low, high = (format_cell(Cell(end)) for end in (difference.low, difference.high))
    return f"[{low}, {high}]"


def format_p_value(p_value: float) -> str:
    """Write a p-value with as many digits as it has."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def fit_terminal(table: Table) -> Table:
    """Make a table as narrow as terminals are; the files have all of it.

    Tasks go down and models across; the paper's columns by language and sizes are left out.
    """
    if table.name == "tasks":
        return transpose(table)
    is_test = table.name == "tests"
    kept = [
        k
        for k, column in enumerate(table.columns)
        if column.detail != PAPER and not (is_test and column.label in ("Examples", "Seeds"))
    ]
    if len(kept) == len(table.columns):
        return table
    groups = [
        replace(
            group,
            lines=tuple(
                replace(line, cells=tuple(line.cells[k] for k in kept)) for line in group.lines
            ),
        )
        for group in table.groups
    ]
    columns = tuple(table.columns[k] for k in kept)
    notes = table.notes if is_test else table.notes[:-1]
    return replace(table, columns=columns, groups=tuple(groups), notes=notes)


def transpose(table: Table) -> Table:
    """Turn a table: its rows become columns; for terminals, which are higher than wide."""
    lines = [line for group in table.groups for line in group.lines]
    columns = tuple(Column(line.label, line.detail) for line in lines)
    turned = tuple(
        Line(column.label, tuple(line.cells[k] for line in lines), detail=column.detail)
        for k, column in enumerate(table.columns)
    )
    return replace(table, columns=columns, groups=(Group(turned),))
