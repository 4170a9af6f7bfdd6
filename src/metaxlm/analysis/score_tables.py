"""The tables of scores: the paper's tables 1 to 5 and its appendix, tests, and a run's own.

Each function takes results and returns a table, or None where its data are missing. Rows or columns
that have not been measured leave a dash, and a note names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from metaxlm.analysis.claims import name_basis
from metaxlm.analysis.contrast import (
    FEWEST_SEEDS,
    Contrast,
    Measure,
    MissingScoresError,
    contrast,
)
from metaxlm.analysis.curves import (
    Curves,
    Lag,
    Quantity,
    describe_onset,
    find_lag,
    find_onset,
    trace_curves,
)
from metaxlm.analysis.paper import (
    ABLATED,
    AVERAGED,
    DOMAINS,
    MAIN_VARIANTS,
    MODELS,
    REVIEW_LANGUAGES,
    average_tasks,
    find_paper_mean,
    find_paper_scores,
    list_paper_languages,
)
from metaxlm.analysis.results import (
    FEATURES,
    SOURCE,
    TASKS,
    VARIANTS,
    LanguagePair,
    Results,
    Section,
    count_seeds,
    display_name,
    name_metric,
    share_pairs,
    title_task,
)
from metaxlm.analysis.stats import (
    ALPHA,
    Difference,
    PairComparison,
    SeedScores,
    TaskComparison,
    average,
    correct_holm,
    deviation,
    find_interval,
    mean,
    subtract,
)
from metaxlm.analysis.tables import (
    Better,
    Cell,
    Column,
    Group,
    Line,
    Table,
    format_cell,
    format_p_value,
    mark_best,
    mark_row,
    section_cell,
    seed_cell,
)
from metaxlm.languages import language_name

CURVE_TASK = "mlqa"
"""The task of the paper's figure 5."""
BASE = "metaxlm+dict"
"""What an idea beyond the paper has to beat at equal cost."""
PANELS: tuple[tuple[Quantity, str], ...] = (
    ("others", "(a) other languages"),
    ("source", "(b) English"),
    ("gap", "(c) transfer gap"),
)
_BASELINES = {"Majority label": "majority", "Chance": "chance"}
_DIRECTIONS = {
    "accuracy_to_source": "Other language → English",
    "accuracy_from_source": "English → other language",
    "precision": "Precision",
    "recall": "Recall",
}
"""Further metrics of features, shown by language."""
_ABLATIONS = (
    ("3", "distillation", "Knowledge distillation from the English model",
     {name: VARIANTS[name] for name in ("xlm", "xlm+kd", "metaxlm")}),
    ("4", "freezing", "The Transformer body frozen in pretraining",
     {name: VARIANTS[name] for name in ("xlm", "metaxlm", "freeze")}),
    ("5", "initialization", "Which parts are initialized",
     {"xlm": "None", "body": "Body", "embeddings": "Emb", "metaxlm": "Both"}),
)  # fmt: skip
_PAPER_PAIRS = (
    ("metaxlm", "xlm"), ("metaxlm+dict", "metaxlm"), ("metaxlm+dict", "xlm"), ("xlm+kd", "xlm"),
    ("metaxlm", "xlm+kd"), ("freeze", "metaxlm"), ("freeze", "xlm"), ("body", "xlm"),
    ("embeddings", "xlm"), ("metaxlm", "body"), ("metaxlm", "embeddings"),
)  # fmt: skip


def better(section: Section) -> Better:
    """Say which end of a section's metric is the good one."""
    return "lower" if section.task.lower else "higher"


def detail(section: Section) -> str:
    """Name the metrics of a section."""
    text = "F1 / EM" if len(section.metrics) > 1 else name_metric(section.metrics[0])
    return f"{section.scenario}, {text}" if section.task.trained_in_each else text


# One summary for every run -----------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """The headline numbers of one variant; empty where it was not measured."""

    variant: str
    retrieval: SeedScores
    alignment: SeedScores
    average: SeedScores
    """The paper's average of seven tasks, as in table 1."""
    source: SeedScores
    others: SeedScores
    """Transfer on the tasks that all variants have."""

    @property
    def gap(self) -> SeedScores:
        """The transfer gap."""
        return subtract(self.source, self.others)


def list_transfer(results: Results, variants: Sequence[str]) -> list[Section]:
    """Return the transfer tasks that are trained in one language and that all variants have.

    Tasks that are trained in several languages (Amazon reviews) are left out: in their own language
    they are supervised, so that they have no gap.
    """
    found = [
        section
        for section in results.sections(results.tasks, variants).values()
        if section.scenario == "transfer" and not section.task.trained_in_each
    ]
    measured = {variant for section in found for variant in section.variants}
    return [section for section in found if measured <= set(section.variants)]


def summarize(results: Results, variants: Sequence[str] | None = None) -> list[Summary]:
    """Return the headline numbers of every variant."""
    variants = results.variants if variants is None else variants
    transfer = list_transfer(results, variants)
    features = [
        results.section(task, "features", variants) if task in results.tasks else None
        for task in FEATURES
    ]
    seven = results.sections(AVERAGED, MAIN_VARIANTS)
    summaries = []
    for variant in variants:
        pairs = [_split_pairs(section) for section in transfer]
        source, others = (
            average([
                average([section.series(variant, both[k], m) for m in section.metrics])
                for section, both in zip(transfer, pairs, strict=True)
            ])
            for k in (0, 1)
        )  # fmt: skip
        shown = seven if variant in MAIN_VARIANTS else results.sections(AVERAGED, [variant])
        retrieval, alignment = (section.series(variant) if section else {} for section in features)
        seven_tasks = [shown[task].average(variant) if task in shown else {} for task in AVERAGED]
        summaries.append(
            Summary(variant, retrieval, alignment, average(seven_tasks), source, others)
        )
    return summaries


def _split_pairs(section: Section) -> tuple[list[LanguagePair], list[LanguagePair]]:
    """Return the training language's own pair, and those of the other languages."""
    source = section.sources[0]
    mine = [pair for pair in section.shared if pair[0] == source]
    return [(source, source)], [pair for pair in mine if pair[1] != source]


def make_summary_table(results: Results, variants: Sequence[str] | None = None) -> Table:
    """Build the headline numbers of every variant, and the majority baseline beneath."""
    summaries = summarize(results, variants)
    transfer = list_transfer(results, [one.variant for one in summaries])
    source = language_name(transfer[0].sources[0] if transfer else SOURCE)
    parts = {
        "retrieval": Column("Retrieval", "accuracy", "higher"),
        "alignment": Column("Alignment", "error rate", "lower"),
        "average": Column("Transfer", "average", "higher"),
        "source": Column("Transfer", source, "higher"),
        "others": Column("Transfer", "others", "higher"),
        "gap": Column("Transfer", "gap", "lower"),
    }
    if not any(one.average for one in summaries):
        del parts["average"]  # of fewer than seven tasks there is none
    lines = [
        Line(
            display_name(one.variant),
            tuple(seed_cell(getattr(one, part)) for part in parts),
            one.variant,
        )
        for one in summaries
    ]
    if sides := _average_baselines(transfer):
        cells = {"source": Cell(sides[0]), "others": Cell(sides[1])}
        baseline = tuple(cells.get(part, Cell()) for part in parts)
        lines.append(Line("Majority label", baseline, reference=True))
    columns = tuple(parts.values())
    notes = tuple(_note_summary(results, summaries, transfer, source))
    table = Table("summary", "Headline numbers", columns, (Group(tuple(lines)),), notes)
    return mark_best(table)


def _average_baselines(transfer: Sequence[Section]) -> tuple[float, float] | None:
    """Return the majority baseline over the same tasks and languages as the variants' scores."""
    found = [
        [
            section.baseline("majority", _split_pairs(section)[k], metric)
            for section in transfer
            for metric in section.metrics
        ]
        for k in (0, 1)
    ]
    known = [[value for value in side if value is not None] for side in found]
    if not transfer or known != found:
        return None
    weights = [1 / len(section.metrics) for section in transfer for _ in section.metrics]
    source, others = (
        sum(w * value for w, value in zip(weights, side, strict=True)) / len(transfer)
        for side in known
    )
    return source, others


def _note_summary(
    results: Results, summaries: Sequence[Summary], transfer: Sequence[Section], source: str
) -> list[str]:
    variants = [one.variant for one in summaries]
    notes = []
    for label, task, more in (("Retrieval", "tatoeba", "both directions, "),
                              ("Alignment", "alignment", "lower is better, ")):  # fmt: skip
        section = results.section(task, "features", variants) if task in results.tasks else None
        if section is not None:
            notes.append(f"{label}: {describe_tests(section)}, {more}best layer.")
    if any(one.average for one in summaries):
        notes.append("Average: the seven tasks of table 1, all languages.")
    if transfer:
        names = ", ".join(section.task.title for section in transfer)
        counts = f", {describe_tests(transfer[0])}" if len(transfer) == 1 else ""
        two = any(len(section.metrics) > 1 for section in transfer)
        questions = "; questions count as (F1 + EM) / 2" if two else ""
        notes.append(
            f"Transfer from {source}: {names}{counts}{questions}. The gap is {source}'s score less "
            "the mean of the others."
        )
    if any(section.task.name == "udpos" for section in transfer):
        notes.append(
            "POS F1 is XTREME's: neighboring words of one tag count as one span, so that a single "
            "tag for everything scores near zero."
        )
    return notes


def describe_tests(section: Section) -> str:
    """Write how much data a mean has: languages, examples and seeds."""
    shared = section.shared
    text = f"{len(shared):,} language{'' if len(shared) == 1 else 's'}"
    if left_out := len(section.pairs) - len(shared):
        text += f" that every variant has ({left_out} left out)"
    sizes = sorted({size for _, size in section.files(shared) if size})
    if sizes:
        spread = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,}–{sizes[-1]:,}"
        text += f" × {spread} examples"
    return f"{text}, {count_seeds(section)}"


# The paper's tables ------------------------------------------------------------------------------


def make_xtreme_table(results: Results) -> Table:
    """Build table 1: seven tasks of cross-lingual transfer and their average."""
    sections = results.sections(AVERAGED, MAIN_VARIANTS)
    lines = [
        Line(
            display_name(variant),
            (
                *(_make_cell(sections.get(task), task, variant) for task in AVERAGED),
                _average_cell(results, sections, variant),
            ),
            variant,
        )
        for variant in MAIN_VARIANTS
    ]
    levels = []
    for label, name in _BASELINES.items():
        cells = [_baseline_cell(sections.get(task), name) for task in AVERAGED]
        if any(cell.value is not None for cell in cells):
            levels.append(Line(label, (*cells, Cell(style="text")), reference=True))
    mbert = [
        Cell(style="text", paper=_printed(find_paper_scores(task).get("mBERT", {})))
        for task in (*AVERAGED, "xtreme")
    ]
    levels.append(Line("mBERT", tuple(mbert), reference=True))
    printed = find_paper_scores("xtreme")
    averages = ", ".join(f"{100 * printed[VARIANTS[v]]['average']:.1f}" for v in MAIN_VARIANTS)
    notes = [
        "Finetuned in English, tested in every language: mean over languages, then mean ± "
        "deviation over seeds. Avg counts questions as (F1 + EM) / 2.",
        f"The paper prints an Avg of {averages}.",
        *_note_sections(results, sections, AVERAGED, MAIN_VARIANTS),
    ]
    columns = [Column(TASKS[t].title, _name_metrics(t), "higher") for t in AVERAGED]
    return mark_best(
        Table(
            "table-1-xtreme",
            "Table 1. Cross-lingual understanding (XTREME)",
            (*columns, Column("Avg", "", "higher")),
            (Group(tuple(lines)), Group(tuple(levels))),
            tuple(notes),
        )
    )


def make_review_table(results: Results) -> Table:
    """Build table 2: reviews by language and domain, finetuned and tested in the same."""
    found = results.sections(DOMAINS, MAIN_VARIANTS)
    sections = {t: found[name] for t in DOMAINS if (name := f"{t}-supervised") in found}
    places = [(language, task) for language in REVIEW_LANGUAGES for task in DOMAINS]
    lines = []
    for variant in MAIN_VARIANTS:
        cells = [_make_cell(sections.get(t), t, variant, code) for code, t in places]
        series = average([
            section.series(variant, [(code, code)]) if (section := sections.get(task)) else {}
            for code, task in places
        ])  # fmt: skip
        trace = _trace_mean(results, variant, "twelve sets", "accuracy")
        published = find_paper_scores("amazon").get(VARIANTS[variant], {})
        cells.append(replace(seed_cell(series, trace=trace), paper=_printed(published)))
        lines.append(Line(display_name(variant), tuple(cells), variant))
    columns = [Column(DOMAINS[task], language_name(code), "higher") for code, task in places]
    notes = [
        "Accuracy; finetuned and tested in the same language and domain. Half of the reviews are "
        "positive: chance is 50.",
        *_note_sections(results, sections, tuple(DOMAINS), MAIN_VARIANTS),
    ]
    return mark_best(
        Table(
            "table-2-amazon",
            "Table 2. Amazon reviews by language and domain",
            (*columns, Column("Avg", "", "higher")),
            (Group(tuple(lines)),),
            tuple(notes),
        )
    )


def make_ablation_tables(results: Results) -> list[Table]:
    """Build tables 3, 4 and 5: five tasks, F1 for questions."""
    tables = []
    for number, name, title, variants in _ABLATIONS:
        sections = results.sections(ABLATED, tuple(variants), both=False)
        lines = [
            Line(label, tuple(_make_cell(sections.get(t), t, v, both=False) for t in ABLATED), v)
            for v, label in variants.items()
        ]
        aside = "None is XLM, Both is MetaXLM; Emb is the word embeddings."
        notes = [
            "As table 1; F1 for questions.",
            *([aside] if name == "initialization" else []),
            *_note_sections(results, sections, ABLATED, tuple(variants), brief=True),
        ]
        columns = [Column(TASKS[t].title, name_metric(TASKS[t].metric), "higher") for t in ABLATED]
        tables.append(
            mark_best(
                Table(
                    f"table-{number}-{name}", f"Table {number}. {title}", tuple(columns),
                    (Group(tuple(lines)),), tuple(notes),
                )
            )
        )  # fmt: skip
    return tables


def _name_metrics(task: str) -> str:
    return "F1 / EM" if TASKS[task].second else name_metric(TASKS[task].metric)


def _make_cell(
    section: Section | None,
    task: str,
    variant: str,
    language: str | None = None,
    *,
    both: bool = True,
) -> Cell:
    """Return our score and the paper's; the paper's printed one where nothing was measured."""
    if section is not None and section.shared:
        pairs = section.shared if language is None else [(language, language)]
        return with_paper(section, variant, pairs)
    published = find_paper_scores(task, *([language] if language else []))
    return Cell(paper=_printed(published.get(VARIANTS[variant], {}), both=both))


def with_paper(section: Section, variant: str, pairs: Sequence[LanguagePair] | None = None) -> Cell:
    """Return a variant's mean over pairs, with the paper's over the same languages."""
    cell = section_cell(section, variant, pairs)
    pairs = section.shared if pairs is None else pairs
    return replace(cell, paper=find_paper_cell(section, display_name(variant), pairs))


def find_paper_cell(section: Section, model: str, pairs: Sequence[LanguagePair]) -> Cell | None:
    """Return the paper's score of a model over the same languages; None where it has none."""
    if not section.is_papers:
        return None
    languages = [language for _, language in pairs]
    values = [find_paper_mean(section.task.name, model, m, languages) for m in section.metrics]
    if values[0] is None:
        return None
    return Cell(values[0], beside=Cell(values[1]) if len(values) > 1 else None)


def _printed(metrics: Mapping[str, float], *, both: bool = True) -> Cell | None:
    values = list(metrics.values())
    if not values:
        return None
    return Cell(values[0], beside=Cell(values[1]) if len(values) > 1 and both else None)


def _average_cell(results: Results, sections: Mapping[str, Section], variant: str) -> Cell:
    """Return the paper's `Avg` of seven tasks; ours is empty unless all of them are there."""
    series = average([sections[t].average(variant) if t in sections else {} for t in AVERAGED])
    published = average_tasks(
        [
            [
                value
                for metric in sections[task].metrics
                if (value := find_paper_mean(task, display_name(variant), metric,
                                             [pair[1] for pair in sections[task].shared]))
            ]
            if task in sections
            else []
            for task in AVERAGED
        ]
    )  # fmt: skip
    printed = _printed(find_paper_scores("xtreme").get(display_name(variant), {}))
    paper = Cell(published) if published is not None else printed
    trace = _trace_mean(results, variant, "seven tasks", "average")
    return replace(seed_cell(series, trace=trace), paper=paper)


def _trace_mean(results: Results, variant: str, task: str, metric: str) -> dict[str, object]:
    step = results.final_steps.get(variant)
    return {"variant": variant, "task": task, "metric": metric, "step": step}


def _baseline_cell(
    section: Section | None, name: str, pairs: Sequence[LanguagePair] | None = None
) -> Cell:
    if section is None:
        return Cell()
    pairs = section.shared if pairs is None else pairs
    cells = [Cell(section.baseline(name, pairs, metric)) for metric in section.metrics]
    has_second = len(cells) > 1 and cells[1].value is not None
    return replace(cells[0], beside=cells[1]) if has_second else cells[0]


def _note_sections(
    results: Results,
    sections: Mapping[str, Section],
    tasks: Sequence[str],
    variants: Sequence[str],
    *,
    brief: bool = False,
) -> list[str]:
    """Name sets, languages that differ from the paper's, tasks at baselines, collapsed seeds."""
    notes = [] if brief else describe_sections([sections[t] for t in tasks if t in sections])
    notes += [each.describe() for each in results.list_collapsed(variants, tasks)]
    if absent := [display_name(v) for v in variants if v not in results.variants]:
        notes.append(f"Not measured here: {', '.join(absent)}.")
    if unmeasured := [title_task(task) for task in tasks if task not in sections]:
        notes.append(f"No scores of these variants yet on {', '.join(unmeasured)}.")
    for task in (task for task in tasks if task in sections):
        having = sections[task].variants
        if lacking := [v for v in variants if v in results.variants and v not in having]:
            names = ", ".join(map(display_name, lacking))
            notes.append(f"{title_task(task)} has not been measured for {names}.")
    return notes


def describe_sections(sections: Sequence[Section]) -> list[str]:
    """Name the splits of sections, and where their languages differ from the paper's."""
    by_split: dict[str, list[str]] = {}
    notes = []
    for section in sections:
        name, title, shared = section.task.name, section.task.title, section.shared
        by_split.setdefault(section.splits(shared), []).append(title)
        ours, theirs = [language for _, language in shared], list_paper_languages(name)
        if ours and theirs and section.is_papers and set(ours) != set(theirs):
            found = find_paper_scores(name)
            printed = [found.get(VARIANTS[v], {}).get(section.metrics[0]) for v in MAIN_VARIANTS]
            shown = ", ".join(f"{100 * value:.1f}" for value in printed if value is not None)
            notes.append(
                f"{title}: {len(ours)} languages here, {len(theirs)} in the paper; its numbers are "
                f"averaged over ours where it has them{f' (it prints {shown})' if shown else ''}."
            )
        if not section.is_learned:
            notes.append(
                f"{title}: no model is clearly above the baselines, so that this task does not "
                "separate them."
            )
    sets = "; ".join(f"{', '.join(titles)}: {split}" for split, titles in by_split.items() if split)
    return [f"Sets: {sets}.", *notes] if sets else notes


# By language, layer, direction and step ----------------------------------------------------------


def make_language_table(section: Section) -> Table:
    """Build a task by language: languages down, variants across, mean and transfer gap beneath."""
    shown, metrics = section.variants, section.metrics
    pairs, files = section.pairs, section.files(section.pairs)
    papers = [] if set(shown) & VARIANTS.keys() else [
        name for name in MODELS if any(find_paper_cell(section, name, [pair]) for pair in pairs)
    ]  # fmt: skip
    levels = {
        label: name for label, name in _BASELINES.items()
        if any(section.baseline(name, [pair]) is not None for pair in pairs)
    }  # fmt: skip
    is_alike = len(set(files)) == 1
    side = better(section)

    def make_line(label: str, of: Sequence[LanguagePair], code: str = "", file: int = -1) -> Line:
        mine = mark_row([with_paper(section, variant, of) for variant in shown], side)
        reference = [find_paper_cell(section, name, of) or Cell() for name in papers]
        levels_here = [_baseline_cell(section, name, of) for name in levels.values()]
        last = [Cell(style="text"), Cell(style="text")]
        if file >= 0:
            last = [Cell(style="text", text=files[file][0]), Cell(files[file][1], style="count")]
        cells = (*mine, *reference, *levels_here, *(() if is_alike else last))
        return Line(label, cells, detail=code)

    lines = [
        make_line(f"{a}→{b}", [(a, b)], file=k) if section.is_crossed
        else make_line(language_name(b), [(a, b)], b, k)
        for k, (a, b) in enumerate(pairs)
    ]  # fmt: skip
    means = [make_line("Mean", section.shared)]
    source, others = _split_pairs(section)
    width = len(means[0].cells) - len(shown)
    if section.scenario == "transfer" and not section.is_crossed and others:
        means.append(make_line("Other languages", others))
        if source[0] in section.shared:
            gaps = [
                [subtract(section.series(v, source, m), section.series(v, others, m))
                 for m in metrics]
                for v in shown
            ]  # fmt: skip
            cells = [
                replace(seed_cell(one[0]), beside=seed_cell(one[1]) if one[1:] else None)
                for one in gaps
            ]
            blank = (Cell(style="text"),) * width
            means.append(Line("Transfer gap", (*mark_row(cells, "lower"), *blank)))
    groups = [Group(tuple(lines)), Group(tuple(means))]
    if section.scenario == "features":
        groups += list(_list_metric_groups(section, width))
    columns = (
        *(
            Column(display_name(v), f"layer {section.layers[v]}" if v in section.layers else "")
            for v in shown
        ),
        *(Column(name, "paper") for name in papers),
        *(Column(label) for label in levels),
        *(() if is_alike else (Column("Split"), Column("Examples"))),
    )
    notes = [f"{count_seeds(section)}.".capitalize(), *describe_sections([section])]
    if is_alike and files[0][1]:
        notes.append(f"Every set has {files[0][1]:,} examples.")
    notes.append("The mean is over the languages that all of them have.")
    title = f"{section.task.title} by language ({detail(section)})"
    return Table(f"languages-{section.name}", title, columns, tuple(groups), tuple(notes))


def _list_metric_groups(section: Section, width: int) -> Iterable[Group]:
    """Yield a group of languages for each further metric of a task without finetuning."""
    for metric, label in _DIRECTIONS.items():
        if any(section.read(variant, metric) for variant in section.variants):
            lines = [
                Line(
                    label_,
                    (
                        *mark_row([seed_cell(section.series(v, of, metric))
                                   for v in section.variants]),
                        *(Cell(style="text"),) * width,
                    ),
                    detail=code,
                )
                for label_, of, code in [
                    *((language_name(b), [(a, b)], b) for a, b in section.pairs),
                    ("Mean", section.shared, ""),
                ]
            ]  # fmt: skip
            yield Group(tuple(lines), label)


def read_layers(
    results: Results, task: str, variants: Iterable[str], pairs: Sequence[LanguagePair] = ()
) -> dict[str, dict[int, SeedScores]]:
    """Return means by layer, over the pairs given or those that all variants have everywhere."""
    having = [variant for variant in variants if results.layers(task, variant)]
    if not pairs:
        found = [
            dict.fromkeys(
                p for k in results.layers(task, v)
                for p in results.scores(task, v, "features", layer=k)
            )
            for v in having
        ]  # fmt: skip
        pairs = share_pairs(found)
    return {
        variant: {
            layer: series
            for layer in results.layers(task, variant)
            for scores in [results.scores(task, variant, "features", layer=layer)]
            if (series := average([scores.get(pair, {}) for pair in pairs]))
        }
        for variant in having
    }


def make_layer_table(
    results: Results, task: str, variants: Sequence[str], *, by_language: bool = False
) -> Table | None:
    """Build figure 3 or 4 as a table: layers across, models down, means and single languages."""
    curves = read_layers(results, task, variants)
    if not curves:
        return None
    info = results.info(task)
    side: Better = "lower" if info.lower else "higher"
    layers = sorted({layer for variant in curves for layer in results.layers(task, variant)})
    found = {
        v: [results.scores(task, v, "features", layer=k) for k in results.layers(task, v)]
        for v in curves
    }
    pairs = dict.fromkeys(
        p for of_variant in found.values() for scores in of_variant for p in scores
    )
    shared = [p for p in pairs if all(any(p in s for s in of) for of in found.values())]

    def make_group(label: str, of: Sequence[LanguagePair]) -> Group:
        means = read_layers(results, task, variants, of)
        lines = []
        for variant in curves:
            cells = []
            for layer in layers:
                trace = {
                    "variant": variant, "task": task, "scenario": "features", "layer": layer,
                    "metric": info.metric, "source": SOURCE, "step": results.final_steps[variant],
                    "language": " ".join(b for _, b in of),
                    "origin": " ".join(sorted(results.origins(variant, task, [SOURCE]))),
                }  # fmt: skip
                cells.append(seed_cell(means[variant].get(layer, {}), trace=trace))
            lines.append(Line(display_name(variant), tuple(cells), variant))
        return Group(tuple(lines), label)

    groups = [make_group("Mean" if by_language else "", shared)] if shared else []
    if by_language:
        groups += [make_group(f"{language_name(b)} ({b})", [(a, b)]) for a, b in pairs]
    columns = tuple(Column("Emb." if k == 0 else str(k), better=side) for k in layers)
    title = f"{info.title} by layer ({name_metric(info.metric)}, {side} is better)"
    notes = (f"Mean over the {len(shared)} languages that all have. Layer 0 is the embeddings.",)
    return mark_best(Table(f"layers-{task}", title, columns, tuple(groups), notes))


def read_directions(
    results: Results, variants: Sequence[str] = MAIN_VARIANTS
) -> dict[str, dict[LanguagePair, SeedScores]]:
    """Return accuracy by direction of transfer, averaged over the reviews' domains."""
    found: dict[str, dict[LanguagePair, SeedScores]] = {}
    for variant in variants:
        for pair in product(REVIEW_LANGUAGES, REVIEW_LANGUAGES):
            scenario = "supervised" if pair[0] == pair[1] else "transfer"
            domains = [results.scores(task, variant, scenario).get(pair, {}) for task in DOMAINS]
            found.setdefault(variant, {})[pair] = average(domains)
    return {variant: scores for variant, scores in found.items() if any(scores.values())}


def make_direction_table(results: Results) -> Table | None:
    """Build figure 6 as a table: 16 directions down, models across, the gain at the end."""
    directions = read_directions(results)
    if not directions:
        return None
    has_gain = {"xlm", "metaxlm"} <= directions.keys()
    groups = []
    for source in REVIEW_LANGUAGES:
        lines = []
        for target in REVIEW_LANGUAGES:
            cells = []
            for variant, scores in directions.items():
                origins = (results.origins(variant, task, [source]) for task in DOMAINS)
                trace = {
                    **_trace_mean(results, variant, " ".join(DOMAINS), "accuracy"),
                    "scenario": "supervised" if source == target else "transfer",
                    "source": source, "language": target,
                    "origin": " ".join(sorted(set().union(*origins))),
                }  # fmt: skip
                cells.append(seed_cell(scores[source, target], trace=trace))
            line = list(mark_row(cells))
            if has_gain:
                gain = [directions[v][source, target] for v in ("metaxlm", "xlm")]
                line.append(Cell(mean(gain[0]) - mean(gain[1]) if all(gain) else None))
            lines.append(Line(f"→ {language_name(target)}", tuple(line)))
        groups.append(Group(tuple(lines), f"Finetuned in {language_name(source)}"))
    columns = [Column(display_name(variant)) for variant in directions]
    columns += [Column("MetaXLM − XLM")] if has_gain else []
    notes = (
        "Accuracy, mean over books, DVDs and music. Chance is 50. The paper shows this as a figure "
        "without numbers, and counts 15 gains of 16.",
    )
    title = "Transfer directions between the reviews' languages"
    return Table("directions", title, tuple(columns), tuple(groups), notes)


def format_steps(step: float) -> str:
    """Write a number of steps as short as the paper does."""
    return f"{step / 1000:g}K" if step >= 1000 else f"{step:g}"


def find_curves(results: Results) -> dict[str, Curves]:
    """Return the curves of every variant that was measured at two steps or more."""
    found = {variant: trace_curves(results, CURVE_TASK, variant) for variant in results.variants}
    return {variant: curves for variant, curves in found.items() if len(curves["gap"]) > 1}


def describe_curves(curves: Mapping[str, Curves]) -> str:
    """Write where the curves of every variant start to rise, and how well a lag is known."""
    sentences = []
    for variant, found in curves.items():
        source, others = (
            "no rise" if onset is None else f"rise {describe_onset(onset)}"
            for onset in (find_onset(found["source"]), find_onset(found["others"]))
        )
        lag = find_lag(found)
        told = f" {describe_lag(lag)}" if lag is not None else ""
        sentences.append(
            f"{display_name(variant)}, English: {source}; other languages: {others}.{told}"
        )
    return " ".join(sentences)


def describe_lag(lag: Lag) -> str:
    """Write how far the other languages rise after English, and how well that is known."""
    if abs(lag.steps) < lag.resolution:
        return f"They rise together, within {lag.resolution:,} steps."
    low, high = sorted(map(abs, lag.bounds))
    order = "after" if lag.steps > 0 else "before"
    doubt = "" if lag.is_resolved else ", on which the seeds do not agree"
    doubt = ", in one seed" if lag.num_seeds < FEWEST_SEEDS else doubt
    return f"The others start {low:,} to {high:,} steps {order} English{doubt}."


def make_curve_table(curves: Mapping[str, Curves]) -> Table | None:
    """Build figure 5 as a table: steps across, and variants down in three groups."""
    steps = sorted({step for found in curves.values() for step in found["gap"]})
    if not steps:
        return None
    languages = {"source": "en", "others": "all but en", "gap": "en less all but en"}
    groups = []
    for quantity, label in PANELS:
        lines = []
        for variant, found in curves.items():
            trace = {"variant": variant, "task": CURVE_TASK, "metric": "f1", "source": SOURCE,
                     "scenario": "transfer", "language": languages[quantity]}  # fmt: skip
            cells = [
                seed_cell(series, trace={**trace, "step": step,
                                         "seed": " ".join(map(str, sorted(series)))})
                for step in steps
                for series in [found[quantity].get(step, {})]
            ]  # fmt: skip
            lines.append(Line(display_name(variant), tuple(cells), variant))
        groups.append(Group(tuple(lines), label, None if quantity == "gap" else "higher"))
    notes = (
        "F1, mean over languages, then over the seeds of finetuning; the gap is English less the "
        f"mean of the others. {describe_curves(curves)}",
    )
    columns = tuple(Column(format_steps(step)) for step in steps)
    table = Table("curves-mlqa", "MLQA along pretraining, by step", columns, tuple(groups), notes)
    return mark_best(table)


# Tests and ideas beyond the paper ----------------------------------------------------------------


def make_test_table(
    comparisons: Sequence[TaskComparison], titles: Mapping[str, str] | None = None
) -> Table | None:
    """Build the paired tests: differences of means over languages, and wins by language."""
    every = [(found, pair) for found in comparisons for pair in found.pairs]
    corrected = correct_holm([pair.mean.p_value for _, pair in every])
    groups: dict[str, list[Line]] = {}
    for (found, pair), p_value in zip(every, corrected, strict=True):
        wins, losses = (
            sum(d.p_value < ALPHA and sign * d.value > 0 for d in pair.by_language)
            for sign in (1, -1)
        )
        cells = (
            Cell(pair.mean.value),
            Cell(style="text", text=_format_interval(pair.mean)),
            Cell(style="text", text=format_p_value(p_value)),
            Cell(style="text", text=f"{wins} / {losses} of {len(found.units)}"),
            Cell(sum(found.num_examples), style="count"),
            Cell(found.num_seeds, style="count"),
        )
        title = (titles or {}).get(found.task) or title_task(found.task)
        label = f"{title}, {found.scenario} ({name_metric(found.metric)})"
        names = f"{display_name(pair.first)} − {display_name(pair.second)}"
        groups.setdefault(label, []).append(Line(names, cells))
    if not groups:
        return None
    notes = (
        "Paired over the same examples, summed over seeds: difference of the mean over languages, "
        "its bootstrap interval, p of an approximate-randomization test after Holm over this "
        "table; languages in which the first model is better or worse with p < 0.05 after Holm "
        "over the languages.",
    )
    heads = ("Difference", "95 % interval", "p", "Better / worse", "Examples", "Seeds")
    made = tuple(Group(tuple(lines), label) for label, lines in groups.items())
    columns = tuple(Column(name) for name in heads)
    return Table("tests", "Paired tests between models", columns, made, notes)


def make_paired_tests(results: Results) -> Table | None:
    """Build the paired tests of those pairs that the paper, or an idea beyond it, asks about."""
    own = [variant for variant in results.variants if variant not in VARIANTS]
    wanted = (*_PAPER_PAIRS, *((variant, BASE) for variant in own))
    chosen = []
    for comparison in (one for one in results.comparisons if one.layer is None):
        pairs: dict[tuple[str, str], PairComparison] = {}
        for pair in comparison.pairs:
            pairs[pair.first, pair.second] = pair
            pairs[pair.second, pair.first] = pair.turn()
        if known := tuple(pairs[names] for names in wanted if names in pairs):
            chosen.append(replace(comparison, pairs=known))
    order = [*TASKS]
    chosen.sort(key=lambda one: order.index(one.task) if one.task in order else len(order))
    return make_test_table(chosen)


def _format_interval(difference: Difference) -> str:
    low, high = (format_cell(Cell(end)) for end in (difference.low, difference.high))
    return f"[{low}, {high}]"


@dataclass(frozen=True)
class TaskTests:
    """One variant against another on some tasks, tested as the claims are."""

    results: Results
    tasks: Sequence[str]
    variant: str
    base: str

    def compare(self, *measures: Measure) -> Contrast | None:
        """Compare the means of measures; None where scores are missing."""
        try:
            return contrast(self.results, self.variant, self.base, measures)
        except MissingScoresError:
            return None

    @cached_property
    def contrasts(self) -> list[Contrast]:
        """The tasks that could be tested."""
        found = [self.compare(Measure(task)) for task in self.tasks]
        return [one for one in found if one is not None and one.p_value is not None]

    def describe(self) -> str:
        """Write on how many tasks one beats the other, and on how many after Holm."""
        corrected = correct_holm([one.p_value or 0.0 for one in self.contrasts])
        clear = [
            (one.direction, p_value < ALPHA)
            for one, p_value in zip(self.contrasts, corrected, strict=True)
            if one.direction
        ]
        counts = []
        for sign, word in ((1, "better"), (-1, "worse")):
            sure = [is_sure for direction, is_sure in clear if direction == sign]
            aside = f" ({sum(sure)} after Holm)" if sure else ""
            counts.append(f"{word} on {len(sure)}{aside}")
        counts.append(f"undecided on {len(self.contrasts) - len(clear)}")
        if untested := len(self.tasks) - len(self.contrasts):
            counts.append(f"untested on {untested}")
        measures = [Measure(task, metrics=self.results.info(task).metrics) for task in self.tasks]
        total = self.compare(*measures) if self.tasks[1:] else None
        on_average = f"{total.describe()} on average, " if total else ""
        names = f"{display_name(self.variant)} against {display_name(self.base)}"
        number = f"{len(self.tasks)} task{'s' if len(self.tasks) > 1 else ''}"
        return f"{names}: {on_average}{', '.join(counts)} of {number}"


def describe_basis(tests: Sequence[TaskTests]) -> str:
    """Name the tests behind several comparisons."""
    return name_basis([one for each in tests for one in each.contrasts])


def make_ideas_table(results: Results) -> Table | None:
    """Build our own variants beside +Dict, on everything any of them was measured on."""
    own = [variant for variant in results.variants if variant not in VARIANTS]
    if not own or BASE not in results.variants:
        return None
    shown = [BASE, *own]
    sections = results.sections(TASKS, shown)
    chosen = [s for s in sections.values() if any(variant in s.variants for variant in own)]
    lines = []
    for variant in shown:
        cells = [section_cell(section, variant) for section in chosen]
        cells.append(replace(_average_cell(results, sections, variant), paper=None))
        lines.append(Line(display_name(variant), tuple(cells), variant))
    notes = [
        "Means over the languages that all rows have; features at each model's best layer. By "
        "tests over examples and seeds (p < 0.05):",
    ]
    for variant in own:
        tasks = [t for t in AVERAGED if t in sections and variant in sections[t].variants]
        if tasks:
            notes.append(f"{TaskTests(results, tasks, variant, BASE).describe()}.")
    collapsed = results.list_collapsed(shown, [section.task.name for section in chosen])
    notes += [each.describe() for each in collapsed]
    columns = [
        *(Column(s.task.title, detail(s), better(s)) for s in chosen),
        Column("Avg", "seven tasks", "higher"),
    ]
    title = f"Ideas beyond the paper, beside {display_name(BASE)}"
    return mark_best(Table("ideas", title, tuple(columns), (Group(tuple(lines)),), tuple(notes)))


def make_idea_tests(results: Results) -> Table | None:
    """Build the tests between each of our own variants, the main ones, and each other."""
    own = [variant for variant in results.variants if variant not in VARIANTS]
    known = [*(variant for variant in MAIN_VARIANTS if variant in results.variants), *own]
    measured = [*AVERAGED, *FEATURES]
    lines = []
    for variant in own:
        for base in known[: known.index(variant)]:
            tests = TaskTests(results, measured, variant, base)
            found = []
            for task in measured:
                measure = Measure(task)
                if task in FEATURES:
                    layer = results.best_layers(task, [base]).get(base)
                    measure = Measure(task, "features", layer=layer)
                found.append(tests.compare(measure))
            seven = [Measure(task, metrics=TASKS[task].metrics) for task in AVERAGED]
            found.append(tests.compare(*seven))
            texts = [one.describe(names_weaker_tests=True) if one else "–" for one in found]
            cells = tuple(Cell(style="text", text=text) for text in texts)
            lines.append(Line(f"{display_name(variant)} − {display_name(base)}", cells))
    if not lines:
        return None
    note = (
        "Points by which the first is better, and p over examples and seeds unless another test is "
        "named; in the average, questions count as (F1 + EM) / 2. Tatoeba and word alignment: at "
        "the second one's best layer, over sentences."
    )
    columns = (*(Column(title_task(task)) for task in measured), Column("Avg", "seven tasks"))
    title = "Ideas beyond the paper, tested"
    return Table("ideas-tests", title, columns, (Group(tuple(lines)),), (note,))


# Of `metaxlm evaluate` ---------------------------------------------------------------------------


def make_task_table(
    results: Results, sections: Sequence[Section], models: Sequence[str], notes: Sequence[str] = ()
) -> Table:
    """Build models x tasks, with the paper's rows beneath."""
    by_name = {section.name: section for section in sections}
    has_average = all(t in by_name and by_name[t].is_papers for t in AVERAGED)
    lines = []
    for model in models:
        cells = [section_cell(section, model) for section in sections]
        if has_average:
            cells.append(replace(_average_cell(results, by_name, model), paper=None))
        lines.append(Line(model, tuple(cells), model))
    published = []
    for name in MODELS:
        found = [find_paper_cell(section, name, section.shared) for section in sections]
        if not any(found):
            continue
        values = dict(zip(by_name, found, strict=True))
        seven = [_list_values(values.get(task)) for task in AVERAGED]
        more = [Cell(average_tasks(seven))] if has_average else []
        cells = [one or Cell() for one in found] + more
        published.append(Line(f"{name} (paper)", tuple(cells), reference=True))
    groups = [Group(tuple(lines))]
    about = ["Mean over languages, then mean ± deviation over seeds."]
    if published:
        about.append("The paper's rows are over the same languages.")
        groups.append(Group(tuple(published), "Published by the paper: 270 million parameters"))
    for section in sections:
        where = f" ({section.scenario})" if section.task.trained_in_each else ""
        splits = section.splits(section.shared)
        about.append(f"{section.task.title}{where}: {splits}, {describe_tests(section)}.")
    columns = [Column(s.task.title, detail(s), better(s)) for s in sections]
    columns += [Column("Avg", "", "higher")] if has_average else []
    table = Table("tasks", "Scores by task", tuple(columns), tuple(groups), (*about, *notes))
    return mark_best(table)


def _list_values(cell: Cell | None) -> list[float]:
    values = [cell.value, cell.beside.value if cell.beside else None] if cell else []
    return [value for value in values if value is not None]


def make_seed_table(sections: Sequence[Section], models: Sequence[str]) -> Table | None:
    """Build mean, deviation and 95 % t-interval over seeds of each model and task."""
    groups = []
    for section in sections:
        lines = []
        for model in (model for model in models if model in section.variants):
            for metric in section.metrics:
                values = list(section.series(model, metric=metric).values())
                if (interval := find_interval(values)) is not None:
                    found = (sum(values) / len(values), deviation(values), *interval)
                    cells = (*map(Cell, found), Cell(len(values), style="count"))
                    lines.append(Line(model, cells, detail=name_metric(metric)))
        if lines:
            groups.append(Group(tuple(lines), f"{section.task.title}, {section.scenario}"))
    if not groups:
        return None
    heads = ("Mean", "Deviation", "Interval from", "to", "Seeds")
    title = "Spread over seeds: sample deviation and 95 % t-interval of the mean"
    return Table("seeds", title, tuple(Column(name) for name in heads), tuple(groups))
