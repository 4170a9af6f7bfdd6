"""The paper's tables 1 to 5: measurements come in, tables in its layout go out.

Table 1 (XTREME), 2 (Amazon reviews), 3 (distillation), 4 (freezing) and 5 (initialization): the
same rows and columns, the best value of a column bold, the paper's number beside ours. A variant
or a task that has not been measured leaves a dash, and a note says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from metaxlm.experiments.names import display_name
from metaxlm.experiments.paper_scores import (
    ABLATED,
    AVERAGED,
    find_paper_scores,
    list_paper_languages,
)
from metaxlm.experiments.series import average_series
from metaxlm.languages import language_name
from metaxlm.report.cells import Cell, Column, Group, Line, Table, make_score_cell, mark_best
from metaxlm.report.paper.measurements import (
    DOMAINS,
    MAIN_VARIANTS,
    REVIEW_LANGUAGES,
    TASKS,
    Measurements,
    PaperCell,
    Trace,
    is_learned,
    make_paper_cell,
)
from metaxlm.report.scores import score_series
from metaxlm.report.sections import TaskSection
from metaxlm.report.tables import name_metric

ANOTHER_SIZE = "270 million parameters, 200,000 steps: another size, for orientation only"
"""What is said of the paper's numbers wherever they stand beside ours."""
_TITLES = {facts.name: facts for facts in TASKS}
_NAMES_OF_INITIALIZATION = {
    "xlm": "None", "body": "Body", "embeddings": "Emb", "metaxlm": "Both",
}  # fmt: skip
_ABLATIONS: tuple[tuple[str, str, str, Mapping[str, str]], ...] = (
    ("3", "distillation", "Knowledge distillation from the English model",
     {name: display_name(name) for name in ("xlm", "xlm+kd", "metaxlm")}),
    ("4", "freezing", "The Transformer body frozen in pretraining",
     {name: display_name(name) for name in ("xlm", "metaxlm", "freeze")}),
    ("5", "initialization", "Which parts are initialized", _NAMES_OF_INITIALIZATION),
)  # fmt: skip


def make_xtreme_table(found: Measurements) -> Table:
    """Build table 1: seven tasks of cross-lingual transfer and their average."""
    sections = found.sections(MAIN_VARIANTS, AVERAGED)
    lines = [
        Line(
            display_name(variant),
            (
                *(_make_cell(found, sections.get(task), task, variant) for task in AVERAGED),
                _average_or_paper(found, sections, variant),
            ),
            variant,
        )
        for variant in MAIN_VARIANTS
    ]
    columns = [*map(_make_column, AVERAGED), Column("Avg", "", "higher")]
    levels = [*_list_levels(sections), _make_mbert_line()]
    notes = [
        "Finetuned in English, tested in every language: mean over languages, then mean ± "
        "deviation over seeds. Avg counts questions as (F1 + EM) / 2.",
        f"The paper prints an Avg of {_list_averages()}.",
        *describe_sections(sections, AVERAGED),
        *_list_failed(found, MAIN_VARIANTS, AVERAGED),
        *list_missing(found, MAIN_VARIANTS, sections, AVERAGED),
    ]
    title = "Table 1. Cross-lingual understanding (XTREME)"
    groups = (Group(tuple(lines)), Group(tuple(levels)))
    return mark_best(Table("table-1-xtreme", title, tuple(columns), groups, tuple(notes)))


def make_review_table(found: Measurements) -> Table:
    """Build table 2: reviews by language and domain, finetuned and tested in the same."""
    sections = found.sections(MAIN_VARIANTS, DOMAINS)
    supervised = {task: sections.get(f"{task}-supervised") for task in DOMAINS}
    lines = []
    for variant in MAIN_VARIANTS:
        cells = [
            _make_cell(found, supervised[task], task, variant, language)
            for language in REVIEW_LANGUAGES
            for task in DOMAINS
        ]
        lines.append(
            Line(display_name(variant), (*cells, _average_reviews(found, supervised, variant)),
                 variant)
        )  # fmt: skip
    columns = [
        *(
            Column(domain, language_name(language), "higher")
            for language in REVIEW_LANGUAGES
            for domain in DOMAINS.values()
        ),
        Column("Avg", "", "higher"),
    ]
    named = {task: section for task, section in supervised.items() if section is not None}
    notes = [
        "Accuracy; finetuned and tested in the same language and domain. Half of the reviews are "
        "positive: chance is 50.",
        *describe_sections(named, tuple(DOMAINS)),
        *_list_failed(found, MAIN_VARIANTS, tuple(DOMAINS)),
        *list_missing(found, MAIN_VARIANTS, named, tuple(DOMAINS)),
    ]
    title = "Table 2. Amazon reviews by language and domain"
    return mark_best(
        Table("table-2-amazon", title, tuple(columns), (Group(tuple(lines)),), tuple(notes))
    )


def make_ablation_tables(found: Measurements) -> list[Table]:
    """Build tables 3, 4 and 5: five tasks, of questions the F1."""
    return [_make_ablation_table(found, *about) for about in _ABLATIONS]


def _make_ablation_table(
    found: Measurements, number: str, name: str, title: str, variants: Mapping[str, str]
) -> Table:
    sections = found.sections(tuple(variants), ABLATED, only_first=True)
    lines = tuple(
        Line(
            label,
            tuple(_make_cell(found, sections.get(t), t, v, only_first=True) for t in ABLATED),
            variant=v,
        )
        for v, label in variants.items()
    )
    columns = tuple(
        Column(_TITLES[task].title, name_metric(_TITLES[task].metric), "higher") for task in ABLATED
    )
    notes = [
        "As table 1; of questions the F1.",
        *_list_failed(found, tuple(variants), ABLATED),
        *list_missing(found, tuple(variants), sections, ABLATED),
    ]
    if name == "initialization":
        notes.insert(1, "None is XLM, Both is MetaXLM; Emb stands for the word embeddings.")
    table = Table(
        f"table-{number}-{name}", f"Table {number}. {title}", columns, (Group(lines),), tuple(notes)
    )
    return mark_best(table)


def _make_column(task: str) -> Column:
    facts = _TITLES[task]
    metric = "F1 / EM" if facts.second else name_metric(facts.metric)
    return Column(facts.title, metric, "higher")


def _make_cell(
    found: Measurements,
    section: TaskSection | None,
    task: str,
    variant: str,
    language: str | None = None,
    only_first: bool = False,
) -> PaperCell:
    """Return our score and the paper's; the paper's alone where nothing was measured."""
    units = None if language is None else [language]
    cell = PaperCell() if section is None else found.cell(section, variant, units)
    if section is not None and cell.paper is not None:
        return cell
    if section is None or not section.scores.common_languages():
        metrics = find_paper_scores(task, *([language] if language else []))
        return replace(cell, paper=_read_paper(metrics.get(display_name(variant), {}), only_first))
    return cell


def _read_paper(metrics: Mapping[str, float], only_first: bool) -> Cell | None:
    values = list(metrics.values())
    if not values:
        return None
    beside = Cell(values[1]) if len(values) > 1 and not only_first else None
    return Cell(values[0], beside=beside)


def _average_or_paper(
    found: Measurements, sections: Mapping[str, TaskSection], variant: str
) -> PaperCell:
    cell = found.average_cell(sections, variant)
    if cell.paper is not None:
        return cell
    printed = find_paper_scores("xtreme").get(display_name(variant), {})
    return replace(cell, paper=_read_paper(printed, True))


def _list_averages() -> str:
    found = find_paper_scores("xtreme")
    return ", ".join(f"{100 * found[display_name(v)]['average']:.1f}" for v in MAIN_VARIANTS)


def _average_reviews(
    found: Measurements, sections: Mapping[str, TaskSection | None], variant: str
) -> PaperCell:
    """Average the twelve sets; the paper's mean is the printed one."""
    measured = [
        section.scores.series(variant, None, language)
        for section in sections.values()
        if section is not None
        for language in REVIEW_LANGUAGES
    ]
    is_complete = len(measured) == len(DOMAINS) * len(REVIEW_LANGUAGES)
    series = average_series(measured) if is_complete else {}
    trace = Trace(variant, "twelve sets", "accuracy", "supervised", step=found.steps.get(variant))
    printed = Cell(find_paper_scores("amazon").get(display_name(variant), {}).get("accuracy"))
    ours = make_score_cell(score_series(series))
    return make_paper_cell(ours, printed, [trace] if series else ())


def _list_levels(sections: Mapping[str, TaskSection]) -> list[Line]:
    """List what needs no model: always the most frequent answer, and a random one."""
    lines = []
    for label, name in (("Majority label", "majority"), ("Chance", "chance")):
        cells = [_average_level(sections.get(task), name) for task in AVERAGED]
        if any(cell.value is not None for cell in cells):
            lines.append(Line(label, (*cells, Cell(style="text")), reference=True))
    return lines


def _average_level(section: TaskSection | None, name: str) -> Cell:
    if section is None:
        return Cell()
    levels: dict[str, Cell] = getattr(section, name)
    units = [unit for unit in section.scores.common_languages() if unit in levels]
    values = [levels[unit].value for unit in units]
    known = [value for value in values if value is not None]
    seconds = [
        beside.value
        for unit in units
        if (beside := levels[unit].beside) is not None and beside.value is not None
    ]
    if not known:
        return Cell()
    beside = Cell(sum(seconds) / len(seconds)) if seconds else None
    return Cell(sum(known) / len(known), beside=beside)


def _make_mbert_line() -> Line:
    """Return the paper's last row: a model with larger batches and more steps, its numbers only."""
    cells = [
        PaperCell(style="text", paper=_read_paper(find_paper_scores(task).get("mBERT", {}), False))
        for task in (*AVERAGED, "xtreme")
    ]
    return Line("mBERT", tuple(cells), reference=True)


def describe_sections(sections: Mapping[str, TaskSection], tasks: Sequence[str]) -> list[str]:
    """Say which sets the scores are from, and where languages differ from the paper's."""
    by_split: dict[str, list[str]] = {}
    notes = []
    for task in (task for task in tasks if task in sections):
        section = sections[task]
        title = _TITLES[task].title
        units = section.scores.common_languages()
        split = " and ".join(sorted({section.splits[unit] for unit in units}))
        by_split.setdefault(split, []).append(title)
        theirs = list_paper_languages(task)
        if units and theirs and set(units) != set(theirs):
            printed = _list_printed(task, section.facts.metric)
            notes.append(
                f"{title}: {len(units)} languages here, {len(theirs)} in the paper, whose numbers "
                f"are averaged over ours where it has them{printed}."
            )
        if not is_learned(section):
            notes.append(
                f"{title}: no model is clearly above the most frequent answer, so that this task "
                "tells nothing about them."
            )
    sets = "; ".join(f"{', '.join(titles)}: {split}" for split, titles in by_split.items() if split)
    return [f"Sets: {sets}.", *notes] if sets else notes


def _list_failed(found: Measurements, variants: Sequence[str], tasks: Sequence[str]) -> list[str]:
    """Say which single finetunings learned nothing, and what the mean is without them."""
    return [failed.describe() for failed in found.list_failed(variants, tasks)]


def _list_printed(task: str, metric: str) -> str:
    """Write the paper's own means, as it prints them, for those who compare with it."""
    found = find_paper_scores(task)
    values = [found.get(display_name(variant), {}).get(metric) for variant in MAIN_VARIANTS]
    shown = ", ".join(f"{100 * value:.1f}" for value in values if value is not None)
    return f" (it prints {shown})" if shown else ""


def list_missing(
    found: Measurements,
    variants: Sequence[str],
    sections: Mapping[str, TaskSection],
    tasks: Sequence[str],
) -> list[str]:
    """Say which variants and tasks of a table have not been measured."""
    notes = []
    absent = [display_name(variant) for variant in variants if variant not in found.variants]
    if absent:
        notes.append(f"Not measured here: {', '.join(absent)}.")
    unmeasured = [_TITLES[task].title for task in tasks if task not in sections]
    if unmeasured:
        notes.append(f"No scores of these variants yet on {', '.join(unmeasured)}.")
    for task in (task for task in tasks if task in sections):
        having = set(sections[task].scores.variants)
        lacking = [v for v in variants if v in found.variants and v not in having]
        if lacking:
            names = ", ".join(map(display_name, lacking))
            notes.append(f"{_TITLES[task].title} has not been measured for {names}.")
    return notes
