"""The tables of scores as data: rows of results in, table objects out.

They follow the paper's: variants down, languages across, the mean at the end, the best value of a
column bold (its table 1 and those of the appendix). The summary puts the three scenarios side by
side; the others show one task by language.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from metaxlm.experiments.names import display_name
from metaxlm.experiments.series import average_series, subtract_series
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
from metaxlm.report.scores import (
    Row,
    Scores,
    collect,
    collect_majority,
    find_source_language,
    is_lower_better,
    list_transfer_metrics,
    other_languages,
    score_series,
    summarize,
)

MAJORITY_LABEL = "Majority label"
_TASK_NAMES = {
    "udpos": "POS tagging", "panx": "NER", "xquad": "XQuAD", "mlqa": "MLQA", "tydiqa": "TyDiQA",
    "xnli": "XNLI", "pawsx": "PAWS-X", "cls": "Amazon reviews", "amazon-books": "Amazon Books",
    "amazon-dvd": "Amazon DVD", "amazon-music": "Amazon Music",
}  # fmt: skip
_METRIC_NAMES = {"f1": "F1", "exact_match": "exact match", "em": "exact match", "aer": "AER"}


def name_task(task: str) -> str:
    """Return a task's name as the paper writes it."""
    return _TASK_NAMES.get(task, task)


def name_metric(metric: str) -> str:
    """Return a metric's name as it stands in running text."""
    return _METRIC_NAMES.get(metric, metric)


def make_language_columns(languages: Sequence[str], better: Direction | None) -> list[Column]:
    """Return one column a language: its name, and its code beneath."""
    names = [(language_name(code), code) for code in languages]
    return [Column(name, "" if name == code else code, better) for name, code in names]


def make_summary_table(rows: Sequence[Row], variants: Sequence[str] | None = None) -> Table:
    """Build the five headline numbers of every variant, and the majority level beneath."""
    source = language_name(find_source_language(rows))
    columns = (
        Column("Retrieval", "accuracy", "higher"),
        Column("Alignment", "error rate", "lower"),
        Column("Transfer", source, "higher"),
        Column("Transfer", "others", "higher"),
        Column("Transfer", "gap", "lower"),
    )
    lines = []
    for s in summarize(rows, variants):
        scores = (s.retrieval, s.aer, s.transfer_source, s.transfer_others, s.transfer_gap)
        lines.append(Line(display_name(s.variant), tuple(map(make_score_cell, scores)), s.variant))
    majority = _summarize_majority(rows)
    if majority is not None:
        lines.append(majority)
    notes = tuple(_note_summary(rows))
    return mark_best(
        Table("summary", "The five headline numbers", columns, (Group(tuple(lines)),), notes)
    )


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
        at_source.append({0: levels[source]})
        at_others.append(average_series([{0: levels[language]} for language in others]))
    if not at_source:
        return None
    cells = [
        make_score_cell(score_series(average_series(level))) for level in (at_source, at_others)
    ]
    return Line(MAJORITY_LABEL, (Cell(), Cell(), *cells, Cell()), reference=True)


def _note_summary(rows: Sequence[Row]) -> list[str]:
    retrieval = collect(rows, task="tatoeba", metric="accuracy", scenario="features")
    aer = collect(rows, task="alignment", metric="aer", scenario="features")
    source = language_name(find_source_language(rows))
    notes = []
    if retrieval:
        notes.append(f"Retrieval: mean over {describe_tests(retrieval)}, both ways, best layer.")
    if aer:
        notes.append(f"Alignment: mean over {describe_tests(aer)}, best layer; lower is better.")
    transfer = []
    for task, metric in list_transfer_metrics(rows):
        scores = collect(rows, task=task, metric=metric, scenario="transfer")
        transfer.append(f"{name_task(task)} {name_metric(metric)}, {describe_tests(scores)}")
    if transfer:
        several = "mean of " if len(transfer) > 1 else ""
        notes.append(
            f"Transfer: {several}{'; '.join(transfer)}; the gap is {source}'s score less the mean "
            "of the others, and smaller is better. Majority label: the score of always giving the "
            "most frequent one."
        )
    notes += _note_spans(task for task, _ in list_transfer_metrics(rows))
    return notes


def _note_spans(tasks: Iterable[str]) -> list[str]:
    """Explain the majority level of XTREME's part-of-speech score, which looks like a mistake."""
    if "udpos" not in tasks:
        return []
    return [
        "POS tagging F1 is XTREME's: neighboring words of one tag count as one span, so a single "
        "tag for everything scores near zero."
    ]


def describe_tests(scores: Scores) -> str:
    """Say on how much a mean rests: languages, examples, and seeds where there are several."""
    languages = scores.common_languages()
    text = _count(len(languages), "language")
    left_out = len(scores.languages()) - len(languages)
    if left_out:
        text += f" that every variant has ({left_out} left out)"
    sizes = sorted({scores.examples[lang] for lang in languages if lang in scores.examples})
    if len(sizes) == 1:
        text += f" × {_count(sizes[0], 'example')}"
    elif sizes:
        text += f" × {sizes[0]:,}–{sizes[-1]:,} examples"
    return f"{text}, {_count(scores.num_seeds, 'seed')}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def make_retrieval_table(rows: Sequence[Row], variants: Sequence[str]) -> Table | None:
    """Build retrieval accuracy by language at each variant's best layer: mean, then each way."""
    both = collect(rows, task="tatoeba", metric="accuracy", scenario="features")
    source = find_source_language(rows)
    metrics = {
        "accuracy": "Both directions",
        "accuracy_to_source": f"Other language → {language_name(source)}",
        "accuracy_from_source": f"{language_name(source)} → other language",
    }
    title = "Sentence retrieval by language (accuracy at 1)"
    return _make_feature_table("retrieval", title, rows, variants, "tatoeba", metrics, both)


def make_alignment_table(rows: Sequence[Row], variants: Sequence[str]) -> Table | None:
    """Build alignment error by language at each variant's best layer, with precision and recall."""
    aer = collect(rows, task="alignment", metric="aer", scenario="features")
    metrics = {
        "aer": "Alignment error rate (lower is better)",
        "precision": "Precision",
        "recall": "Recall",
    }
    title = "Word alignment by language"
    return _make_feature_table("alignment", title, rows, variants, "alignment", metrics, aer)


def choose_layers(scores: Scores, variants: Sequence[str], lower: bool) -> dict[str, int]:
    """Pick each variant's best layer; variants without values are left out."""
    languages = scores.common_languages()
    best = {variant: scores.best_layer(variant, lower, languages) for variant in variants}
    return {variant: layer for variant, layer in best.items() if layer is not None}


def _make_feature_table(
    name: str, title: str, rows: Sequence[Row], variants: Sequence[str], task: str,
    metrics: Mapping[str, str], main: Scores,
) -> Table | None:  # fmt: skip
    """Make one group of rows for each metric, all at the layer where the main metric is best."""
    if not main:
        return None
    layers = choose_layers(main, variants, lower=is_lower_better(next(iter(metrics))))
    groups = []
    for metric, label in metrics.items():
        scores = collect(rows, task=task, metric=metric, scenario="features")
        lines = []
        for variant, layer in layers.items():
            series = [scores.series(variant, layer, language) for language in main.languages()]
            series.append(scores.mean(variant, layer, main.common_languages()))
            cells = tuple(make_score_cell(score_series(one)) for one in series)
            lines.append(Line(display_name(variant), cells, variant, f"layer {layer}"))
        if scores:
            better: Direction = "lower" if is_lower_better(metric) else "higher"
            groups.append(Group(tuple(lines), label, better))
    columns = (*make_language_columns(main.languages(), None), Column("Mean"))
    notes = (f"Mean over {describe_tests(main)}; each variant at the layer with its best mean.",)
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
    lines = []
    for variant in (v for v in variants if v in scores.variants):
        mean = scores.mean(variant, None, others)
        gap = subtract_series(scores.series(variant, None, source), mean)
        series = [*(scores.series(variant, None, language) for language in languages), mean, gap]
        cells = tuple(make_score_cell(score_series(one)) for one in series)
        lines.append(Line(display_name(variant), cells, variant))
    levels = collect_majority(rows, task)
    if levels:
        by_language = tuple(Cell(levels.get(language)) for language in languages)
        known = [{0: levels[language]} for language in others if language in levels]
        mean_level = make_score_cell(score_series(average_series(known)))
        cells = (*by_language, mean_level, Cell())
        lines.append(Line(MAJORITY_LABEL, cells, reference=True))
    better: Direction = "lower" if is_lower_better(metric) else "higher"
    columns = (
        *make_language_columns(languages, better),
        Column("Others", "mean", better),
        Column("Gap", "", "lower"),
    )
    finetuned = f"Finetuned in {language_name(source)} only; {describe_tests(scores)}."
    notes = (finetuned, *_note_spans([task]))
    title = f"Transfer by language: {name_task(task)} ({name_metric(metric)})"
    groups = (Group(tuple(lines)),)
    return mark_best(Table(f"transfer-{task}-{metric}", title, columns, groups, notes))
