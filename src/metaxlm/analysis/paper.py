"""The paper's published scores, and its tables with a run's numbers beside them.

`paper_scores.tsv` has them in percent as printed; here they are fractions. The paper's models have
270 million parameters and 200,000 steps: they are printed beside other models' scores for
orientation, never as competitors. The printed means are those of unrounded scores: up to 0.1 points
differ from the means of what is printed by language (PAWS-X of XLM 77.8, from its languages 77.7;
TyDiQA F1 of MetaXLM 39.7 and 39.8; Amazon of +Dict 85.0 and 84.9). Tables 3 to 5 (distillation,
freezing, initialization) have means of five tasks only, with F1 for questions. The figures
(retrieval and alignment by layer, curves, directions) are published without numbers.
"""

import csv
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import combinations

from metaxlm.analysis.contrast import Contrast, Measure, try_contrast
from metaxlm.analysis.results import (
    BASELINES,
    FEATURES,
    TASKS,
    VARIANTS,
    Names,
    Pairs,
    display_name,
    join_names,
    name_metric,
    title_task,
)
from metaxlm.analysis.scores import IN_TEXT, NOT_IN_TEXT, Results, Section
from metaxlm.analysis.stats import ALPHA, TaskComparison, average, correct_holm
from metaxlm.analysis.tables import (
    Cell,
    Column,
    Group,
    Line,
    Table,
    format_cell,
    join_cells,
    mark_best,
    section_cell,
    seed_cell,
    text_cell,
)
from metaxlm.languages import language_name

MODELS = ("XLM", "MetaXLM", "MetaXLM+Dict", "mBERT")
MAIN_VARIANTS = ("xlm", "metaxlm", "metaxlm+dict")  # the rows of the paper's tables 1 and 2
AVERAGED = ("udpos", "panx", "xquad", "mlqa", "tydiqa", "xnli", "pawsx")
"""The seven tasks of table 1; `Avg` is over them."""
ABLATED = AVERAGED[2:]  # the five tasks of tables 3 to 5
DOMAINS = {"amazon-books": "Book", "amazon-dvd": "DVD", "amazon-music": "Music"}
"""The review tasks with the headings of table 2."""
REVIEW_LANGUAGES = ("en", "de", "fr", "ja")
MEAN = "mean"  # language of a score that is the mean over languages
ANOTHER_SIZE = "270 million parameters, 200,000 steps: another size, for orientation only"
"""Printed wherever the paper's numbers are beside ours."""
BASE = "metaxlm+dict"  # the model that an idea beyond the paper has to beat at equal cost
BASELINE_LABELS = dict(zip(BASELINES, ("Majority label", "Chance"), strict=True))
_FEW_VARIANTS = 4
_TESTED = (
    ("metaxlm", "xlm"), ("metaxlm+dict", "metaxlm"), ("metaxlm+dict", "xlm"), ("xlm+kd", "xlm"),
    ("metaxlm", "xlm+kd"), ("freeze", "metaxlm"), ("freeze", "xlm"), ("body", "xlm"),
    ("embeddings", "xlm"), ("metaxlm", "body"), ("metaxlm", "embeddings"),
)  # fmt: skip
"""The pairs of models that the paper compares."""


def read_table(name: str) -> list[dict[str, str]]:
    """Read one of the package's tables."""
    text = (files("metaxlm.analysis") / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t"))


@cache
def paper_scores() -> dict[tuple[str, str], dict[str, dict[str, float]]]:
    """Return all published scores as `{(task, language): {model: {metric: fraction}}}`.

    The task is one of ours, `xtreme` for table 1's average, or `amazon` for table 2's.
    """
    scores: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for row in read_table("paper_scores.tsv"):
        models = scores.setdefault((row["task"], row["language"]), {})
        models.setdefault(row["model"], {})[row["metric"]] = float(row["value"]) / 100
    return scores


def find_paper_scores(task: str, language: str = MEAN) -> dict[str, dict[str, float]]:
    """Return a task's published scores as `{model: {metric: fraction}}`."""
    return paper_scores().get((task, language), {})


@cache
def list_paper_languages(task: str) -> list[str]:
    """Return the languages of a task in the paper's order; none for a task that it lacks."""
    return [code for name, code in paper_scores() if name == task and code != MEAN]


def find_paper_mean(task: str, model: str, metric: str, languages: Sequence[str]) -> float | None:
    """Return the published mean over these languages; None where one has no published score.

    Over all of the paper's languages it is the printed mean, where there is one.
    """
    if languages and set(languages) == set(list_paper_languages(task)):
        printed = find_paper_scores(task).get(model, {}).get(metric)
        if printed is not None:
            return printed
    found = (find_paper_scores(task, code).get(model, {}) for code in languages)
    known = [scores[metric] for scores in found if metric in scores]
    return statistics.fmean(known) if known and len(known) == len(languages) else None


def average_tasks(scores: Iterable[Sequence[float]]) -> float | None:
    """Return the paper's `Avg` of the scores of its tasks; None unless all of them are there.

    A task has one score, or F1 and exact match, which count as their mean.
    """
    many = list(scores)
    return statistics.fmean(map(statistics.fmean, many)) if many and all(many) else None


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper: variants down, tasks across."""

    name: str
    title: str
    variants: Mapping[str, str]  # labels of the rows
    columns: Sequence[tuple[str, str]]
    """Tasks with a language in which they are supervised, or none for the mean over languages."""
    note: str
    average: str = ""
    """The published average of the last column; without it questions have F1 alone."""
    further: Mapping[str, str] = field(default_factory=dict)
    """Labels of rows that the paper does not have, shown where they were measured."""


_MAIN = {name: VARIANTS[name] for name in MAIN_VARIANTS}
TABLES = (
    PaperTable(
        "table-1-xtreme", "Table 1. Cross-lingual understanding (XTREME)", _MAIN,
        [(task, "") for task in AVERAGED],
        "Finetuned in English, tested in every language: mean over languages, then mean ± "
        "deviation over seeds. Avg counts questions as (F1 + EM) / 2.",
        average="xtreme",
    ),
    PaperTable(
        "table-2-amazon", "Table 2. Amazon reviews by language and domain", _MAIN,
        [(task, code) for code in REVIEW_LANGUAGES for task in DOMAINS],
        "Accuracy; finetuned and tested in the same language and domain. Half of the reviews are "
        "positive: chance is 50.",
        average="amazon",
    ),
    *(
        PaperTable(name, title, variants, [(task, "") for task in ABLATED],
                   f"As table 1; F1 for questions.{more}", further=further)
        for name, title, variants, more, further in (
            ("table-3-distillation", "Table 3. Knowledge distillation from the English model",
             {name: VARIANTS[name] for name in ("xlm", "xlm+kd", "metaxlm")}, "", {}),
            ("table-4-freezing", "Table 4. The Transformer body frozen in pretraining",
             {name: VARIANTS[name] for name in ("xlm", "metaxlm", "freeze")}, "", {}),
            ("table-5-initialization", "Table 5. Which parts are initialized",
             {"xlm": "None", "body": "Body", "embeddings": "Emb", "metaxlm": "Both"},
             " None is XLM. Body is the Transformer layers, Emb the word embeddings. Both is "
             "MetaXLM: these and the remainder, which is positions, token types, the LayerNorm of "
             "the embeddings and the MLM head.",
             {"body+embeddings": "Body + Emb", "remainder": "Remainder"}),
        )
    ),
)  # fmt: skip


def make_paper_table(results: Results, spec: PaperTable) -> Table:
    """Build a table of the paper; what has not been measured is a dash, and a note names it."""
    tasks, both = list(dict.fromkeys(task for task, _ in spec.columns)), bool(spec.average)
    further = {v: label for v, label in spec.further.items() if v in results.final_steps}
    spec = replace(spec, variants={**spec.variants, **further})
    sections = results.sections(tasks, list(spec.variants), both=both)
    if spec.columns[0][1]:
        sections = {t: sections[name] for t in tasks if (name := f"{t}-supervised") in sections}
    columns = [
        Column(DOMAINS[task], language_name(code), "higher") if code
        else Column(TASKS[task].title, name_metrics(TASKS[task].metrics[: 1 + both]), "higher")
        for task, code in spec.columns
    ]  # fmt: skip
    columns += [Column("Avg", "", "higher")] if both else []
    lines = []
    for variant, label in spec.variants.items():
        cells = [_make_cell(sections.get(t), t, variant, code, both) for t, code in spec.columns]
        if spec.average == "xtreme":
            cells.append(average_cell(results, sections, variant))
        elif spec.average:
            series = average([
                section.series(variant, [(code, code)]) if (section := sections.get(task)) else {}
                for task, code in spec.columns
            ])  # fmt: skip
            trace = trace_mean(results, variant, "twelve sets", "accuracy")
            printed = _printed(find_paper_scores(spec.average).get(label, {}))
            cells.append(replace(seed_cell(series, trace=trace), paper=printed))
        lines.append(Line(label, cells, variant))
    groups, notes = [Group(lines)], [spec.note]
    if spec.average == "xtreme":
        groups.append(Group(_list_references(sections)))
        published = find_paper_scores(spec.average)
        averages = [f"{100 * published[label]['average']:.1f}" for label in spec.variants.values()]
        notes.append(f"The paper prints an Avg of {', '.join(averages)}.")
        notes.append("mBERT's numbers are the printed ones, over all languages.")
    if not spec.columns[0][1]:
        columns_of = [sections.get(task) for task, _ in spec.columns]
        groups += _list_by_text(columns_of, spec.variants, sections if spec.average else {})
    notes += _note_sections(results, sections, tasks, list(spec.variants), brief=not both)
    return mark_best(Table(spec.name, spec.title, columns, groups, notes))


def _list_by_text(
    columns: Sequence[Section | None], variants: Mapping[str, str], sections: Mapping[str, Section]
) -> list[Group]:
    """Return the lines over the languages of the pretraining text, and over the others.

    With `sections`, each line ends with the average of the seven tasks.
    """
    every = [section for section in columns if section is not None]
    if not any(section.results.split_by_text(section.shared) for section in every):
        return []
    groups = []
    for label, is_inside in ((IN_TEXT, True), (NOT_IN_TEXT, False)):
        lines = []
        for variant, name in variants.items():
            cells = [
                section_cell(one, variant, pairs) if one and (pairs := one.by_text(is_inside))
                else Cell()
                for one in columns
            ]  # fmt: skip
            if sections:
                seven = [sections[t].average(variant, sections[t].by_text(is_inside))
                         if t in sections else {} for t in AVERAGED]  # fmt: skip
                cells.append(seed_cell(average(seven)))
            lines.append(Line(name, cells, variant))
        groups.append(Group(lines, label))
    return groups


def name_metrics(metrics: Sequence[str]) -> str:
    """Name one metric, or F1 and exact match."""
    return "F1 / EM" if len(metrics) > 1 else name_metric(metrics[0])


def _list_references(sections: Mapping[str, Section]) -> list[Line]:
    lines = []
    for name, label in BASELINE_LABELS.items():
        cells = [baseline_cell(s, name) if (s := sections.get(t)) else Cell() for t in AVERAGED]
        if any(cell.value is not None for cell in cells):
            lines.append(Line(label, [*cells, text_cell()], reference=True))
    mbert = [
        replace(text_cell(), paper=_printed(find_paper_scores(task).get("mBERT", {})))
        for task in (*AVERAGED, "xtreme")
    ]
    return [*lines, Line("mBERT", mbert, reference=True)]


def _make_cell(section: Section | None, task: str, variant: str, code: str, both: bool) -> Cell:
    if section is not None and section.shared:
        return with_paper(section, variant, [(code, code)] if code else section.shared)
    published = find_paper_scores(task, code or MEAN).get(display_name(variant), {})
    return Cell(paper=_printed(published, both=both))


def with_paper(section: Section, variant: str, pairs: Pairs) -> Cell:
    """Return a variant's mean over pairs, with the paper's over the same languages."""
    paper = find_paper_cell(section, display_name(variant), pairs)
    return replace(section_cell(section, variant, pairs), paper=paper)


def find_paper_cell(section: Section, model: str, pairs: Pairs) -> Cell | None:
    """Return the paper's score of a model over the same languages; None where it has none."""
    if not section.is_papers:
        return None
    languages = [language for _, language in pairs]
    values = [find_paper_mean(section.task.name, model, m, languages) for m in section.metrics]
    return None if values[0] is None else join_cells([Cell(value) for value in values])


def _printed(metrics: Mapping[str, float], *, both: bool = True) -> Cell | None:
    return join_cells([Cell(value) for value in metrics.values()][: 1 + both])


def average_cell(results: Results, sections: Mapping[str, Section], variant: str) -> Cell:
    """Return the paper's `Avg` of seven tasks; ours is empty unless all of them are there."""
    name, seven = display_name(variant), [sections.get(task) for task in AVERAGED]
    series = average([section.average(variant) if section else {} for section in seven])
    published = [find_paper_cell(s, name, s.shared) if s else None for s in seven]
    value = average_tasks([[c.value for c in cell.parts if c.value] if cell else []
                           for cell in published])  # fmt: skip
    printed = _printed(find_paper_scores("xtreme").get(name, {}))
    trace = trace_mean(results, variant, "seven tasks", "average")
    return replace(seed_cell(series, trace=trace), paper=printed if value is None else Cell(value))


def trace_mean(results: Results, variant: str, task: str, metric: str) -> dict[str, object]:
    """Return the fields behind a mean over tasks."""
    step = results.final_steps.get(variant)
    return {"variant": variant, "task": task, "metric": metric, "step": step}


def baseline_cell(section: Section, name: str, pairs: Pairs | None = None) -> Cell:
    """Return a baseline in one metric, or in two where both were measured."""
    pairs = section.shared if pairs is None else pairs
    cells = [Cell(section.baseline(name, pairs, metric)) for metric in section.metrics]
    return join_cells([cells[0], *(cell for cell in cells[1:] if cell.value is not None)]) or Cell()


def _note_sections(
    results: Results, sections: Mapping[str, Section], tasks: Names, variants: Names, brief: bool
) -> list[str]:
    notes = [] if brief else describe_sections([sections[t] for t in tasks if t in sections])
    notes += [each.describe() for each in results.list_collapsed(variants, tasks)]
    if absent := [v for v in variants if v not in results.variants]:
        notes.append(f"Not measured here: {join_names(absent, ', ')}.")
    if unmeasured := [title_task(task) for task in tasks if task not in sections]:
        notes.append(f"No scores of these variants yet on {', '.join(unmeasured)}.")
    for task, section in sections.items():
        if lacking := [v for v in variants if v in results.variants and v not in section.variants]:
            names = join_names(lacking, ", ")
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
            published = find_paper_scores(name)
            printed = [published.get(label, {}).get(section.metrics[0]) for label in _MAIN.values()]
            shown = ", ".join(f"{100 * value:.1f}" for value in printed if value is not None)
            notes.append(
                f"{title}: {len(ours)} languages here, {len(theirs)} in the paper; its numbers are "
                f"averaged over ours where it has them{f' (it prints {shown})' if shown else ''}."
            )
        if not section.is_learned:
            flat = "no model is clearly above the baselines, so that this task does not separate"
            notes.append(f"{title}: {flat} them.")
    sets = "; ".join(f"{', '.join(titles)}: {split}" for split, titles in by_split.items() if split)
    return [f"Sets: {sets}.", *notes] if sets else notes


def make_test_table(
    comparisons: Sequence[TaskComparison], titles: Mapping[str, str] | None = None
) -> Table | None:
    """Build the paired tests: differences of means over languages, and wins by language."""
    every = [(task, pair) for task in comparisons for pair in task.pairs]
    corrected = correct_holm([pair.mean.p_value for _, pair in every])
    groups: dict[str, list[Line]] = {}
    for (task, pair), p_value in zip(every, corrected, strict=True):
        sure = [one.value for one in pair.by_language if one.p_value < ALPHA]
        wins, losses = sum(value > 0 for value in sure), sum(value < 0 for value in sure)
        low, high = (format_cell(Cell(end)) for end in (pair.mean.low, pair.mean.high))
        p_text = "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"
        texts = (f"[{low}, {high}]", p_text, f"{wins} / {losses} of {len(task.units)}")
        counts = (sum(task.num_examples), task.num_seeds)
        cells = [Cell(pair.mean.value), *map(text_cell, texts),
                 *(Cell(n, style="count") for n in counts)]  # fmt: skip
        title = (titles or {}).get(task.task) or title_task(task.task)
        label = f"{title}, {task.scenario} ({name_metric(task.metric)})"
        line = Line(join_names([pair.first, pair.second], " − "), cells)
        groups.setdefault(label, []).append(line)
    if not groups:
        return None
    note = (
        "Paired over the same examples, summed over seeds: difference of the mean over languages, "
        "its bootstrap interval, p of an approximate-randomization test after Holm over this "
        "table; languages in which the first model is better or worse with p < 0.05 after Holm "
        "over the languages."
    )
    heads = ("Difference", "95 % interval", "p", "Better / worse", "Examples", "Seeds")
    made = [Group(lines, label) for label, lines in groups.items()]
    return Table("tests", "Paired tests between models", list(map(Column, heads)), made, [note])


def make_paired_tests(results: Results) -> Table | None:
    """Build the paired tests of the pairs that the paper, or an idea beyond it, compares."""
    return _test_pairs(results, (*_TESTED, *((variant, BASE) for variant in results.own_variants)))


def make_run_tests(results: Results) -> Table | None:
    """Build the paired tests of a run's variants: of all pairs if they are few, or with the first.

    The first variant is XLM if there is one.
    """
    variants = sorted(results.variants, key=lambda variant: variant != "xlm")
    pairs = [(second, first) for first, second in combinations(variants, 2)]
    if len(variants) > _FEW_VARIANTS:
        pairs = [pair for pair in pairs if pair[1] == variants[0]]
    return _test_pairs(results, pairs)


def _test_pairs(results: Results, wanted: Sequence[tuple[str, str]]) -> Table | None:
    chosen = []
    for comparison in (one for one in results.comparisons if one.layer is None):
        pairs = {(pair.first, pair.second): pair for pair in comparison.pairs}
        pairs |= {(pair.second, pair.first): pair.turn() for pair in comparison.pairs}
        if known := tuple(pairs[names] for names in wanted if names in pairs):
            chosen.append(replace(comparison, pairs=known))
    order = [*TASKS]
    chosen.sort(key=lambda one: order.index(one.task) if one.task in order else len(order))
    return make_test_table(chosen)


def compare_tasks(
    results: Results, tasks: Names, variant: str, base: str
) -> tuple[str, list[Contrast]]:
    """Write on how many tasks one variant beats another; also return the tested differences."""
    every = [try_contrast(results, variant, base, [Measure(task)]) for task in tasks]
    tested = [one for one in every if one is not None and one.p_value is not None]
    corrected = correct_holm([one.p_value or 0.0 for one in tested])
    counts = []
    for sign, word in ((1, "better"), (-1, "worse")):
        sure = [p_value < ALPHA for one, p_value in zip(tested, corrected, strict=True)
                if one.direction == sign]  # fmt: skip
        aside = f" ({sum(sure)} after Holm)" if sure else ""
        counts.append(f"{word} on {len(sure)}{aside}")
    counts.append(f"undecided on {sum(one.direction == 0 for one in tested)}")
    if untested := len(tasks) - len(tested):
        counts.append(f"untested on {untested}")
    measures = [Measure(task, metrics=results.info(task).metrics) for task in tasks]
    total = try_contrast(results, variant, base, measures) if tasks[1:] else None
    on_average = f"{total.describe()} on average, " if total else ""
    names = f"{display_name(variant)} against {display_name(base)}"
    number = f"{len(tasks)} task{'s' if len(tasks) > 1 else ''}"
    return f"{names}: {on_average}{', '.join(counts)} of {number}", tested


def make_ideas_table(results: Results) -> Table | None:
    """Build our own variants beside +Dict, on everything any of them was measured on."""
    own = results.own_variants
    if not own or BASE not in results.variants:
        return None
    shown = [BASE, *own]
    sections = results.sections(TASKS, shown)
    chosen = [s for s in sections.values() if any(variant in s.variants for variant in own)]
    lines = []
    for variant in shown:
        cells = [section_cell(section, variant) for section in chosen]
        cells.append(replace(average_cell(results, sections, variant), paper=None))
        lines.append(Line(display_name(variant), cells, variant))
    notes = [
        "Means over the languages that all rows have; features at each model's best layer. By "
        "tests over examples and seeds (p < 0.05):"
    ]
    for variant in own:
        tasks = [t for t in AVERAGED if t in sections and variant in sections[t].variants]
        if tasks:
            notes.append(f"{compare_tasks(results, tasks, variant, BASE)[0]}.")
    collapsed = results.list_collapsed(shown, [section.task.name for section in chosen])
    notes += [each.describe() for each in collapsed]
    columns = [*map(section_column, chosen), Column("Avg", "seven tasks", "higher")]
    title = f"Ideas beyond the paper, beside {display_name(BASE)}"
    names = {variant: display_name(variant) for variant in shown}
    groups = [Group(lines), *_list_by_text(chosen, names, sections)]
    return mark_best(Table("ideas", title, columns, groups, notes))


def section_column(section: Section) -> Column:
    """Return the heading of a section."""
    text = name_metrics(section.metrics)
    detail = f"{section.scenario}, {text}" if section.task.trained_in_each else text
    return Column(section.task.title, detail, "lower" if section.task.lower else "higher")


def make_idea_tests(results: Results) -> Table | None:
    """Build the tests between each of our own variants, the main ones, and each other."""
    own = results.own_variants
    known = [*(variant for variant in MAIN_VARIANTS if variant in results.variants), *own]
    lines = []
    for variant in own:
        for base in known[: known.index(variant)]:
            measures = [[Measure(task)] for task in AVERAGED]
            for task in FEATURES:
                layer = results.best_layers(task, [base]).get(base)
                measures.append([Measure(task, "features", layer=layer)])
            measures.append([Measure(task, metrics=TASKS[task].metrics) for task in AVERAGED])
            tests = [try_contrast(results, variant, base, of) for of in measures]
            texts = [one.describe(names_weaker_tests=True) if one else "–" for one in tests]
            lines.append(Line(join_names([variant, base], " − "), list(map(text_cell, texts))))
    if not lines:
        return None
    note = (
        "Points by which the first is better, and p over examples and seeds unless another test is "
        "named; in the average, questions count as (F1 + EM) / 2. Tatoeba and word alignment: at "
        "the second one's best layer, over sentences."
    )
    columns = [*map(Column, map(title_task, (*AVERAGED, *FEATURES))), Column("Avg", "seven tasks")]
    return Table("ideas-tests", "Ideas beyond the paper, tested", columns, [Group(lines)], [note])
