"""Tables of scores: the summary, by language, layer and direction.

Each function takes results and returns a table, or None where its data are missing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from metaxlm.analysis import paper
from metaxlm.analysis.results import (
    FEATURES,
    MORE_FEATURES,
    SOURCE,
    VARIANTS,
    LanguagePair,
    Names,
    Pairs,
    display_name,
    name_metric,
)
from metaxlm.analysis.scores import IN_TEXT, NOT_IN_TEXT, Results, Section, share_pairs
from metaxlm.analysis.stats import (
    SeedScores,
    average,
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
    join_cells,
    mark_best,
    mark_row,
    seed_cell,
    text_cell,
)
from metaxlm.languages import language_name

LAYER_AXES = {"tatoeba": "accuracy (%)", "alignment": "alignment error rate (%)"}
LAYER_AXES |= dict.fromkeys(MORE_FEATURES, "accuracy (%)")
_DIRECTIONS = {
    "accuracy_to_source": "Other language → English",
    "accuracy_from_source": "English → other language",
    "precision": "Precision",
    "recall": "Recall",
}
"""Further metrics of features, shown by language."""


def list_transfer(results: Results, variants: Names) -> list[Section]:
    """Return the seven tasks of the average where they are measured, else those all variants have.

    Tasks that are trained in several languages (Amazon reviews) are left out: in their own language
    they are supervised, so that they have no gap.
    """
    every = results.sections(results.tasks, variants).values()
    some = [s for s in every if s.scenario == "transfer" and not s.task.trained_in_each]
    measured = {variant for section in some for variant in section.variants}
    seven = [section for section in some if section.task.name in paper.AVERAGED]
    if len(seven) == len(paper.AVERAGED):
        return seven
    return [section for section in some if measured <= set(section.variants)]


def summarize(
    results: Results, variants: Names | None = None, in_text: bool | None = None
) -> dict[str, dict[str, SeedScores]]:
    """Return the headline numbers of every variant, empty where it was not measured.

    `average` is the paper's average of seven tasks, as in table 1; `source`, `others` and their
    `gap` are transfer on the same tasks, or on those that all variants have. With `in_text`, the
    numbers are those of the languages in the pretraining text (True) or of the others (False).
    """

    def choose(section: Section, pairs: Pairs) -> list[LanguagePair]:
        known = section.shared if in_text is None else section.by_text(in_text)
        return [pair for pair in pairs if pair in set(known)]

    variants = results.variants if variants is None else variants
    transfer = list_transfer(results, variants)
    features = [results.section(task, "features", variants) for task in FEATURES]
    main = results.sections(paper.AVERAGED, paper.MAIN_VARIANTS)
    summaries = {}
    for variant in variants:
        is_main = variant in paper.MAIN_VARIANTS
        sections = main if is_main else results.sections(paper.AVERAGED, [variant])
        seven = [
            one.average(variant, choose(one, one.shared)) if (one := sections.get(task)) else {}
            for task in paper.AVERAGED
        ]
        retrieval, alignment = (
            section.series(variant, choose(section, section.shared)) if section else {}
            for section in features
        )
        source = average([s.average(variant, choose(s, [s.own_pair])) for s in transfer])
        tested = [(s, pairs) for s in transfer if (pairs := choose(s, s.other_pairs))]
        others = average([section.average(variant, pairs) for section, pairs in tested])
        summaries[variant] = {
            "retrieval": retrieval, "alignment": alignment, "average": average(seven),
            "source": source, "others": others, "gap": subtract(source, others),
        }  # fmt: skip
    return summaries


def make_summary_table(results: Results, variants: Names | None = None) -> Table:
    """Build the headline numbers of every variant, and the majority baseline beneath."""
    summaries = summarize(results, variants)
    transfer = list_transfer(results, list(summaries))
    source = language_name(transfer[0].sources[0] if transfer else SOURCE)
    parts = {
        "retrieval": Column("Retrieval", "accuracy", "higher"),
        "alignment": Column("Alignment", "error rate", "lower"),
        "average": Column("Transfer", "average", "higher"),
        "source": Column("Transfer", source, "higher"),
        "others": Column("Transfer", "others", "higher"),
        "gap": Column("Transfer", "gap", "lower"),
    }
    if not any(one["average"] for one in summaries.values()):
        del parts["average"]  # of fewer than seven tasks there is none
    lines = [
        Line(display_name(variant), [seed_cell(one[part]) for part in parts], variant)
        for variant, one in summaries.items()
    ]
    sides = {
        "source": [_average_baseline(s, [s.own_pair]) for s in transfer],
        "others": [_average_baseline(s, s.other_pairs) for s in transfer],
    }
    if transfer and not any(value is None for side in sides.values() for value in side):
        known = {k: Cell(sum(v or 0.0 for v in s) / len(s)) for k, s in sides.items()}
        cells = [known.get(part, Cell()) for part in parts]
        lines.append(Line("Majority label", cells, reference=True))
    groups = [Group(lines)]
    sections = [*transfer, *results.sections(FEATURES, list(summaries)).values()]
    is_split = any(results.split_by_text(section.shared) for section in sections)
    for in_text, label in ((True, IN_TEXT), (False, NOT_IN_TEXT)) if is_split else ():
        some = summarize(results, list(summaries), in_text)
        cells_of = {v: [seed_cell(one[part]) for part in parts] for v, one in some.items()}
        groups.append(Group([Line(display_name(v), c, v) for v, c in cells_of.items()], label))
    notes = _note_summary(results, "average" in parts, list(summaries), transfer, source)
    columns = list(parts.values())
    return mark_best(Table("summary", "Headline numbers", columns, groups, notes))


def _average_baseline(section: Section, pairs: Pairs) -> float | None:
    values = [section.baseline("majority", pairs, metric) for metric in section.metrics]
    known = [value for value in values if value is not None]
    return sum(value / len(values) for value in known) if len(known) == len(values) else None


def _note_summary(
    results: Results, has_average: bool, variants: Names, transfer: Sequence[Section], source: str
) -> list[str]:
    notes = []
    for label, task, more in (("Retrieval", "tatoeba", "both directions, "),
                              ("Alignment", "alignment", "lower is better, ")):  # fmt: skip
        if (section := results.section(task, "features", variants)) is not None:
            notes.append(f"{label}: {describe_data(section)}, {more}best layer.")
    if has_average:
        notes.append("Average: the seven tasks of table 1, all languages.")
    if transfer:
        names = ", ".join(section.task.title for section in transfer)
        counts = f", {describe_data(transfer[0])}" if len(transfer) == 1 else ""
        two = any(len(section.metrics) > 1 for section in transfer)
        questions = "; questions count as (F1 + EM) / 2" if two else ""
        notes.append(
            f"Transfer from {source}: {names}{counts}{questions}. The gap is {source}'s score less "
            "the mean of the others."
        )
    if outside := [s.task.title for s in transfer if results.split_by_text(s.shared)]:
        notes.append(f"Of these tasks, tested outside of the text: {', '.join(outside)}.")
    if any(section.task.name == "udpos" for section in transfer):
        notes.append(
            "POS F1 is XTREME's: neighboring words of one tag count as one span, so that a single "
            "tag for everything scores near zero."
        )
    return notes


def describe_data(section: Section) -> str:
    """Write how much data a mean has: languages, examples and seeds."""
    shared = section.shared
    text = f"{len(shared):,} language{'' if len(shared) == 1 else 's'}"
    if left_out := len(section.pairs) - len(shared):
        text += f" that every variant has ({left_out} left out)"
    if sizes := sorted({size for _, size in section.files(shared) if size}):
        spread = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,}–{sizes[-1]:,}"
        text += f" × {spread} examples"
    return f"{text}, {section.counted_seeds}"


def make_language_table(section: Section) -> Table:
    """Build a task by language: languages down, variants across, mean and transfer gap beneath."""
    shown, pairs, files = section.variants, section.pairs, section.files(section.pairs)
    papers = [
        name
        for name in (() if set(shown) & VARIANTS.keys() else paper.MODELS)
        if any(paper.find_paper_cell(section, name, [pair]) for pair in pairs)
    ]
    baselines = {
        name: label for name, label in paper.BASELINE_LABELS.items()
        if any(section.baseline(name, [pair]) is not None for pair in pairs)
    }  # fmt: skip
    is_alike = len(set(files)) == 1
    heading = paper.section_column(section)

    def make_line(label: str, of: Pairs, code: str = "", file: int = -1) -> Line:
        cells = mark_row([paper.with_paper(section, v, of) for v in shown], heading.better)
        cells += [paper.find_paper_cell(section, name, of) or Cell() for name in papers]
        cells += [paper.baseline_cell(section, name, of) for name in baselines]
        if not is_alike:
            split, size = files[file]
            cells += [text_cell(split), Cell(size, style="count")] if file >= 0 else _blanks(2)
        return Line(label, cells, detail=code)

    lines = [
        make_line(f"{a}→{b}", [(a, b)], file=k) if section.is_crossed
        else make_line(language_name(b), [(a, b)], b, k)
        for k, (a, b) in enumerate(pairs)
    ]  # fmt: skip
    means = [make_line("Mean", section.shared)]
    if not section.is_crossed:
        parts = section.results.split_by_text(section.shared)
        means += [make_line(f"{label} ({len(of)})", of) for label, of in parts]
    width = len(means[0].cells) - len(shown)
    own, others = [section.own_pair], section.other_pairs
    if section.scenario == "transfer" and not section.is_crossed and others:
        means.append(make_line("Other languages", others))
        if section.own_pair in section.shared:
            gaps = []
            for v in shown:
                sides = ([section.series(v, p, m) for p in (own, others)] for m in section.metrics)
                gaps.append(join_cells([seed_cell(subtract(*side)) for side in sides]) or Cell())
            means.append(Line("Transfer gap", [*mark_row(gaps, "lower"), *_blanks(width)]))
    groups = [Group(lines), Group(means)]
    if section.scenario == "features":
        groups += _list_metric_groups(section, width)
    columns = [
        *(Column(display_name(v), f"layer {section.layers[v]}" if v in section.layers else "")
          for v in shown),
        *(Column(name, "paper") for name in papers),
        *map(Column, baselines.values()),
        *(() if is_alike else (Column("Split"), Column("Examples"))),
    ]  # fmt: skip
    notes = [f"{section.counted_seeds}.", *paper.describe_sections([section])]
    if is_alike and files[0][1]:
        notes.append(f"Every set has {files[0][1]:,} examples.")
    notes.append("The mean is over the languages that all of them have.")
    title = f"{section.task.title} by language ({heading.detail})"
    return Table(f"languages-{section.name}", title, columns, groups, notes)


def _blanks(number: int) -> list[Cell]:
    return [text_cell()] * number


def _list_metric_groups(section: Section, width: int) -> Iterable[Group]:
    rows = [(language_name(b), [(a, b)], b) for a, b in section.pairs]
    for metric, title in _DIRECTIONS.items():
        if any(section.read(variant, metric) for variant in section.variants):
            lines = []
            for label, of, code in [*rows, ("Mean", section.shared, "")]:
                cells = [seed_cell(section.series(v, of, metric)) for v in section.variants]
                lines.append(Line(label, [*mark_row(cells), *_blanks(width)], detail=code))
            yield Group(lines, title)


def read_layers(
    results: Results, task: str, variants: Iterable[str], pairs: Pairs = ()
) -> dict[str, dict[int, SeedScores]]:
    """Return means by layer, over the pairs given or those that all variants have somewhere."""
    every = {v: layers for v in variants if (layers := results.scores_by_layer(task, v))}
    pairs = pairs or _share_layers(every.values())
    means: dict[str, dict[int, SeedScores]] = {variant: {} for variant in every}
    for variant, layers in every.items():
        for layer, scores in layers.items():
            if series := average([scores.get(pair, {}) for pair in pairs]):
                means[variant][layer] = series
    return means


def _share_layers(every: Iterable[Mapping[int, Mapping[LanguagePair, Any]]]) -> list[LanguagePair]:
    return share_pairs([dict.fromkeys(chain(*layers.values())) for layers in every])


def make_layer_table(
    results: Results, task: str, variants: Names, *, by_language: bool = False
) -> Table | None:
    """Build figure 3 or 4 as a table: layers across, models down, means and single languages."""
    every = {v: layers for v in variants if (layers := results.scores_by_layer(task, v))}
    if not every:
        return None
    info = results.info(task)
    side: Better = "lower" if info.lower else "higher"
    depths = sorted({layer for by_layer in every.values() for layer in by_layer})
    pairs = dict.fromkeys(p for of in every.values() for scores in of.values() for p in scores)
    shared = _share_layers(every.values())

    def make_group(label: str, of: Pairs) -> Group:
        lines = []
        for variant, means in read_layers(results, task, variants, of).items():
            trace = {
                "variant": variant, "task": task, "scenario": "features", "metric": info.metric,
                "source": SOURCE, "step": results.final_steps[variant],
                "language": " ".join(b for _, b in of),
                "origin": " ".join(sorted(results.origins(variant, task, [SOURCE]))),
            }  # fmt: skip
            cells = [seed_cell(means.get(k, {}), trace={**trace, "layer": k}) for k in depths]
            lines.append(Line(display_name(variant), cells, variant))
        return Group(lines, label)

    groups = [make_group("Mean" if by_language else "", shared)] if shared else []
    groups += [make_group(f"{name} ({len(of)})", of) for name, of in results.split_by_text(shared)]
    if by_language:
        groups += [make_group(f"{language_name(b)} ({b})", [(a, b)]) for a, b in pairs]
    columns = [Column("Emb." if k == 0 else str(k), better=side) for k in depths]
    title = f"{info.title} by layer ({name_metric(info.metric)}, {side} is better)"
    notes = [f"Mean over the {len(shared)} languages that all have. Layer 0 is the embeddings."]
    return mark_best(Table(f"layers-{task}", title, columns, groups, notes))


_REVIEW_PAIRS = list(product(paper.REVIEW_LANGUAGES, repeat=2))


def read_directions(results: Results) -> dict[str, dict[LanguagePair, SeedScores]]:
    """Return accuracy by direction of transfer, averaged over the reviews' domains."""
    every: dict[str, dict[LanguagePair, SeedScores]] = {}
    for variant, (a, b) in product(paper.MAIN_VARIANTS, _REVIEW_PAIRS):
        scenario = "supervised" if a == b else "transfer"
        domains = [results.scores(t, variant, scenario).get((a, b), {}) for t in paper.DOMAINS]
        every.setdefault(variant, {})[a, b] = average(domains)
    return {variant: scores for variant, scores in every.items() if any(scores.values())}


def make_direction_table(results: Results) -> Table | None:
    """Build figure 6 as a table: 16 directions down, models across, the gain at the end."""
    directions = read_directions(results)
    if not directions:
        return None
    has_gain = {"xlm", "metaxlm"} <= directions.keys()
    groups: dict[str, list[Line]] = {}
    for source, target in _REVIEW_PAIRS:
        cells = []
        for variant, scores in directions.items():
            origins = (results.origins(variant, task, [source]) for task in paper.DOMAINS)
            trace = {
                **paper.trace_mean(results, variant, " ".join(paper.DOMAINS), "accuracy"),
                "scenario": "supervised" if source == target else "transfer",
                "source": source, "language": target,
                "origin": " ".join(sorted(set().union(*origins))),
            }  # fmt: skip
            cells.append(seed_cell(scores[source, target], trace=trace))
        cells = mark_row(cells)
        if has_gain:
            ours, base = (directions[v][source, target] for v in ("metaxlm", "xlm"))
            cells.append(Cell(mean(ours) - mean(base) if ours and base else None))
        label = f"Finetuned in {language_name(source)}"
        groups.setdefault(label, []).append(Line(f"→ {language_name(target)}", cells))
    columns = [Column(display_name(variant)) for variant in directions]
    columns += [Column("MetaXLM − XLM")] if has_gain else []
    note = (
        "Accuracy, mean over books, DVDs and music. Chance is 50. The paper shows this as a figure "
        "without numbers, and counts 15 gains of 16."
    )
    title = "Transfer directions between the reviews' languages"
    made = [Group(lines, label) for label, lines in groups.items()]
    return Table("directions", title, columns, made, [note])


def name_in_text(label: str) -> str:
    """Return the label of a row over the languages of the text."""
    return f"{label}, in the text"


@dataclass(frozen=True)
class TaskScore:
    """One row of the overview."""

    label: str
    scores: dict[str, SeedScores]
    baseline: float | None = None


def list_task_scores(results: Results, variants: Names) -> list[TaskScore]:
    """List one score per task: F1 of questions, the mean of the reviews, the best layer.

    Alignment is 100 - AER, so that more is better everywhere.
    """
    sections = results.sections(results.tasks, variants)

    def read(
        label: str,
        some: Sequence[Section],
        baseline: float | None = None,
        pairs: Pairs | None = None,
    ) -> TaskScore:
        scores = {v: average([section.series(v, pairs) for section in some]) for v in variants}
        if some[0].task.lower:
            scores = {v: {k: 1 - value for k, value in s.items()} for v, s in scores.items()}
        return TaskScore(label, {v: series for v, series in scores.items() if series}, baseline)

    def read_by_text(label: str, one: Section) -> list[TaskScore]:
        rows = [read(label, [one], one.baseline("majority", one.shared))]
        for _, pairs in results.split_by_text(one.shared)[:1]:
            rows.append(read(name_in_text(label), [one], one.baseline("majority", pairs), pairs))
        return rows

    rows = [
        row
        for task in paper.AVERAGED
        if (one := sections.get(task)) is not None
        for row in read_by_text(one.task.title, one)
    ]
    reviews = [
        sections[name] for task in paper.DOMAINS if (name := f"{task}-supervised") in sections
    ]
    if len(reviews) == len(paper.DOMAINS):
        rows.append(read("Amazon", reviews, 0.5))
    for section in (sections[task] for task in FEATURES if task in sections):
        label = "Alignment, 100 − AER" if section.task.lower else section.task.title
        rows += read_by_text(label, section)
    return [row for row in rows if row.scores]
