"""The report of a run: one static page and one Markdown file, with tables and figures as files.

`write_report` fills `report/` with `index.html` (one file without scripts that needs nothing else),
`report.md`, `claims.json`, `tables/*.{md,tex,csv}` and `figures/*.{svg,pdf}`. A section appears if
its data exist: every run has the summary; a run whose recipe has a grid follows the paper's
experiments, and also has the paper's tables beside its numbers, and its claims. The same run folder
gives the same bytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from metaxlm import __version__
from metaxlm.analysis.claims import OUTCOMES, Outcome
from metaxlm.analysis.contrast import FEWEST_SEEDS
from metaxlm.analysis.paper import ANOTHER_SIZE, AVERAGED, MAIN_VARIANTS, find_paper_scores
from metaxlm.analysis.results import (
    FEATURES,
    TASKS,
    Results,
    Section,
    display_name,
)
from metaxlm.analysis.run_folder import Run, read_run
from metaxlm.analysis.run_tables import (
    list_verdicts,
    make_claims_table,
    make_cost_tables,
    make_data_table,
    make_start_tables,
    make_training_table,
)
from metaxlm.analysis.score_tables import (
    TaskTests,
    describe_basis,
    describe_curves,
    describe_tests,
    find_curves,
    list_transfer,
    make_ablation_tables,
    make_curve_table,
    make_direction_table,
    make_idea_tests,
    make_ideas_table,
    make_language_table,
    make_layer_table,
    make_paired_tests,
    make_review_table,
    make_summary_table,
    make_xtreme_table,
    summarize,
)
from metaxlm.analysis.sentences import (
    LINK_NAMES,
    DrawnSentence,
    Query,
    collect_drawings,
    collect_queries,
    draw_key,
)
from metaxlm.analysis.stats import SeedScores, average, deviation, mean
from metaxlm.analysis.style import (
    TEMPLATES,
    Look,
    assign_looks,
    embed_svg,
    make_environment,
    write_css_variables,
    write_figure,
)
from metaxlm.analysis.tables import Table, render_html, render_markdown, write_tables
from metaxlm.files import write_json
from metaxlm.languages import language_name
from metaxlm.manifest import atomic_folder, write_manifest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_DRAWN = 2
_MOST_QUERIES = 3
_MOST_NUMBERS = 4
_MOST_BARS = 3
"""Transfer tasks that are drawn by language; for more, the tables have them."""
_MOST_LINES = 4
"""Variants that are drawn by layer; of more, the paper's three."""
NO_NUMBERS = "published without numbers"


@dataclass(frozen=True)
class Plate:
    """A figure with its caption; `name` is that of its files."""

    name: str
    title: str
    caption: str
    paper: str
    """Its place in the paper."""
    figure: Figure


@dataclass(frozen=True)
class Headline:
    """The top of the page."""

    sentence: str
    support: str = ""
    measure: str = ""
    numbers: tuple[tuple[str, SeedScores, float | None], ...] = ()
    """Variant, score and the paper's number."""
    counts: tuple[tuple[Outcome, int], ...] = ()
    """Of the claims, by verdict."""


def write_report(run_dir: Path, run: Run | None = None) -> Path:
    """Write the report of a run folder and return its page; an older report is replaced."""
    run = run or read_run(run_dir)
    with atomic_folder(run_dir / "report") as folder:
        fill_report(run, folder)
        write_manifest(folder, {"metaxlm": __version__})
    return run_dir / "report" / "index.html"


def fill_report(run: Run, folder: Path) -> None:
    """Write page, Markdown, tables and figures into a new folder."""
    variants = dict.fromkeys([*MAIN_VARIANTS, *run.results.variants, *run.variants])
    shown = [v for v in variants if v in run.variants or v in run.results.variants]
    looks = assign_looks([*variants] if run.has_grid else shown)
    tables = make_tables(run)
    plates = make_plates(run, looks)
    for name in ("tables", "figures"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    write_tables(folder / "tables", [table for some in tables.values() for table in some])
    drawn = {plate.name: write_figure(folder / "figures", plate.name, plate.figure)
             for plate in plates}  # fmt: skip
    if run.verdicts:
        write_json(folder / "claims.json", list_verdicts(run.verdicts))
    values = _list_values(run, tables)
    page = _render_page(run, looks, values, plates, drawn)
    (folder / "index.html").write_text(page, encoding="utf-8", newline="\n")
    text = make_environment(is_html=False).get_template("report.md.jinja").render(
        **values,
        plates=plates,
        table_text={t.name: render_markdown(t).rstrip("\n") for ts in tables.values() for t in ts},
        claims=render_markdown(make_claims_table(run.verdicts)) if run.verdicts else "",
        variant=display_name,
        mean=mean,
        deviation=lambda series: deviation(list(series.values())),
    )  # fmt: skip
    (folder / "report.md").write_text(text, encoding="utf-8", newline="\n")


def make_tables(run: Run) -> dict[str, list[Table]]:
    """Build every table that the run has the data for, by section of the page."""
    results = run.results
    shown = [v for v in dict.fromkeys([*results.variants]) if v in results.final_steps]
    training = make_training_table(run.meta_log, run.logs)
    curves = find_curves(results) if "mlqa" in results.tasks else {}
    found: dict[str, list[Table | None]] = {
        "summary": [make_summary_table(results, shown)],
        "main": [make_xtreme_table(results), make_review_table(results)] if run.has_grid else [],
        "ablations": [*make_ablation_tables(results)] if run.has_grid else [],
        "tests": [make_paired_tests(results)] if run.has_grid else [],
        "figures": [
            *(make_layer_table(results, task, shown) for task in FEATURES if task in results.tasks),
            make_curve_table(curves),
            make_direction_table(results),
        ],
        "ideas": [make_ideas_table(results), make_idea_tests(results)] if run.has_grid else [],
        "languages": [
            make_language_table(section)
            for section in results.sections(results.tasks, shown).values()
        ],
        "start": [*make_start_tables(run.coverage, run.variants)],
        "cost": [training, *make_cost_tables(run.provenance)],
        "data": [make_data_table(run.recipe)] if run.has_grid else [],
    }
    return {name: [t for t in some if t is not None] for name, some in found.items()}


def make_plates(run: Run, looks: Mapping[str, Look]) -> list[Plate]:
    """Draw every figure that the run has the data for."""
    from metaxlm.analysis import figures

    results = run.results
    measured = {v: looks[v] for v in looks if v in results.variants}
    main = {v: look for v, look in measured.items() if v in MAIN_VARIANTS}
    layered = main if len(measured) > _MOST_LINES and len(main) > 1 else measured
    aside = "" if layered is measured else " The paper's models are drawn; the tables have all."
    curves = find_curves(results) if "mlqa" in results.tasks else {}
    transfer = list_transfer(results, list(measured)) if len(results.tasks) else []
    candidates = [
        ("gains", "Improvement over XLM", _describe_gains(results),
         "Tables 1 and 2, Figures 3 and 4",
         figures.draw_gains(figures.list_gains(results), looks) if run.has_grid else None),
        ("overview", "All tasks at a glance", _OVERVIEW, "Tables 1 and 2, Figures 3 and 4",
         figures.draw_overview(results, looks) if run.has_grid else None),
        ("retrieval", "Sentence retrieval by layer", _RETRIEVAL + aside, f"Figure 3, {NO_NUMBERS}",
         _draw_layers(results, layered, "tatoeba", "accuracy (%)")),
        ("alignment", "Word alignment by layer", _ALIGNMENT + aside, f"Figure 4, {NO_NUMBERS}",
         _draw_layers(results, layered, "alignment", "alignment error rate (%)")),
        ("transfer", "Cross-lingual transfer by language", _TRANSFER,
         "Table 1 and the tables of the appendix",
         figures.draw_transfer(transfer, measured) if len(transfer) <= _MOST_BARS else None),
        ("curves", "MLQA along pretraining", f"{_CURVES} {describe_curves(curves)}",
         f"Figure 5, {NO_NUMBERS}; the text names steps 14K (English) and 20K (others) for XLM",
         figures.draw_curves(curves, looks)),
        ("directions", "16 transfer directions", _DIRECTIONS, f"Figure 6, {NO_NUMBERS}",
         figures.draw_directions(results, looks)),
        ("loss", "Training loss", _LOSS, "none",
         figures.draw_loss(run.meta_log, run.logs, looks)),
        ("coverage", "Copied embeddings, by rule and by language", _COVERAGE, "section 3.2",
         figures.draw_coverage(run.coverage, looks)),
    ]  # fmt: skip
    return [
        Plate(name, title, caption, paper, figure)
        for name, title, caption, paper, figure in candidates
        if figure is not None
    ]


def _draw_layers(
    results: Results, looks: Mapping[str, Look], task: str, label: str
) -> Figure | None:
    from metaxlm.analysis.figures import draw_layers

    return draw_layers(results, looks, task, label) if task in results.tasks else None


def _describe_gains(results: Results) -> str:
    collapsed = results.list_collapsed(MAIN_VARIANTS, TASKS)
    return " ".join([_GAINS, *(each.describe() for each in collapsed)])


_GAINS = (
    "How many points MetaXLM and +Dict score above XLM: F1 for questions, reviews where finetuned "
    "and tested in one language, features at each model's best layer. Thick bars: 95 % intervals "
    "of paired tests over the same test examples. Thin bars: with the variance over seeds of "
    "finetuning, with an arrow where they continue. Features were not tested. Left of the line is "
    "worse than XLM."
)
_OVERVIEW = (
    "The same scores in full. A task whose points are at the majority mark has not been learned, "
    "and does not separate the models."
)
_RETRIEVAL = (
    "How often the nearest sentence in the other language is the right translation, when sentences "
    "are compared by the mean of one layer's hidden states. Thick lines are means over languages "
    "and both directions; thin lines, or a band, are single languages. Higher is better."
)
_ALIGNMENT = (
    "How far the word links found from one layer's hidden states are from the gold links. Thick "
    "lines are means over languages; thin lines, or a band, are single languages. Lower is better."
)
_TRANSFER = (
    "Each model is finetuned in the source language, which is first, and tested in every language. "
    "A dashed line marks the score of always giving the most frequent label: a bar below it has "
    f"transferred nothing. Of more than {_MOST_LINES} variants the first are drawn; the tables "
    "have all."
)
_CURVES = (
    "Each saved checkpoint is finetuned in English and tested on MLQA: F1 in the other languages, "
    "in English, and the difference; bands are deviations over seeds. The interval between two "
    "checkpoints in which a curve leaves its plateau is shaded."
)
_DIRECTIONS = (
    "Reviews: finetuned in one language (the panel), tested in each; mean over books, DVDs and "
    "music, whiskers are deviations over seeds. The same language on both sides is supervised."
)
_LOSS = (
    "Masked-language-model loss over training steps; lower is better. Meta-pretraining has a "
    "vocabulary of its own, so its height does not compare with the others'."
)
_COVERAGE = (
    "Above: the share of the vocabulary that each matching rule filled; fillers have no match and "
    "are initialized at random. Below: how much of each language's running text has copied "
    "embeddings. A variant that copies no word embeddings is not drawn."
)


# What the numbers say ----------------------------------------------------------------------------


def find_headline(run: Run) -> Headline:
    """Write the main result by rule; when no variant beats the baseline, that is the headline."""
    return _find_paper_headline(run) if run.has_grid else _find_run_headline(run)


def _find_paper_headline(run: Run) -> Headline:
    """Compare the paper's average, or the mean over the tasks that its models share."""
    results = run.results
    counted = Counter(verdict.outcome for verdict in run.verdicts)
    counts = tuple((outcome, counted[outcome]) for outcome in OUTCOMES)
    sections = results.sections(AVERAGED, MAIN_VARIANTS)
    having = [v for v in MAIN_VARIANTS if any(v in s.variants for s in sections.values())]
    tasks = [t for t in AVERAGED if t in sections and all(sections[t].average(v) for v in having)]
    if not tasks:
        return Headline("No finetuned task has been measured yet.", counts=counts)
    is_whole = len(tasks) == len(AVERAGED)
    printed = find_paper_scores("xtreme")
    numbers = tuple(
        (v, average([sections[t].average(v) for t in tasks]),
         printed[display_name(v)]["average"] if is_whole else None)
        for v in having
    )  # fmt: skip
    seeds = [sections[task].num_seeds for task in tasks]
    names = ", ".join(sections[task].task.title for task in tasks)
    what = "the paper's seven XTREME tasks" if is_whole else f"the tasks measured so far ({names})"
    measure = (
        f"Average over {what}, finetuned in English; questions as (F1 + EM) / 2; {max(seeds)} "
        f"seed{'s' if max(seeds) > 1 else ''}"
    )
    if len(having) < 2:
        alone = f"Only {display_name(having[0])} has been measured: there is nothing to compare."
        return Headline(alone, "", measure, numbers, counts)
    scores = {variant: 100 * mean(series) for variant, series, _ in numbers}
    steps = list(zip(having[1:], having, strict=False))
    sentence = ", and ".join(_describe_gain(v, base, scores[v] - scores[base]) for v, base in steps)
    if not is_whole:
        sentence = f"On {names if len(tasks) == 1 else f'{len(tasks)} of seven tasks'}, {sentence}"
    few = ", in one seed, which decides nothing" if min(seeds) < FEWEST_SEEDS else ""
    tests = [TaskTests(results, tasks, *step) for step in steps]
    support = ["There are no tests of these differences yet."]
    if any(one.contrasts for one in tests):
        told = ". ".join(one.describe() for one in tests)
        support = [f"Tested {describe_basis(tests)} (p < 0.05). {told}."]
    if flat := [sections[task].task.title for task in tasks if not sections[task].is_learned]:
        support.append(f"On {', '.join(flat)} no model is clearly above the baselines.")
    support += [each.describe() for each in results.list_collapsed(having, tasks)]
    return Headline(f"{sentence}{few}.", " ".join(support), measure, numbers, counts)


def _describe_gain(variant: str, base: str, gain: float) -> str:
    name, other = display_name(variant), display_name(base)
    points = f"{abs(gain):.1f}"
    if points == "0.0":
        return f"{name} scores the same as {other}"
    return f"{name} scores {points} points {'above' if gain > 0 else 'below'} {other}"


_MEASURES = (
    ("retrieval", "Sentence retrieval, accuracy in percent", False,
     "finds the right translation for {} of 100 test sentences"),
    ("alignment", "Word alignment, error rate in percent (lower is better)", True,
     "aligns words with an error rate of {} percent"),
    ("others", "Cross-lingual transfer, score in the other languages", False,
     "scores {} in the languages it was not finetuned in"),
)  # fmt: skip


def _find_run_headline(run: Run) -> Headline:
    """Compare retrieval, or else alignment, or else transfer."""
    summaries = summarize(run.results)
    for part, measure, lower, phrase in _MEASURES:
        scores: dict[str, SeedScores] = {
            s.variant: series for s in summaries if (series := getattr(s, part))
        }
        if scores:
            base = _choose_baseline(run, list(scores))
            ranked = sorted(
                (v for v in scores if v != base),
                key=lambda v: mean(scores[v]) * (1 if lower else -1),
            )
            kept = {base, *ranked[: _MOST_NUMBERS - 1]}
            order = [base, *(v for v in scores if v in kept and v != base)]
            sentence = _write_sentence(run, {v: mean(s) for v, s in scores.items()}, base, lower,
                                       phrase)  # fmt: skip
            numbers = tuple((v, scores[v], None) for v in order)
            return Headline(sentence, "", measure, numbers)
    return Headline("Neither retrieval, word alignment nor transfer has been measured yet.")


def _choose_baseline(run: Run, variants: Sequence[str]) -> str:
    """Return XLM, or the first variant that is initialized at random, or the first."""
    if "xlm" in variants:
        return "xlm"
    return next((v for v in variants if run.starts_random(v)), variants[0])


def _write_sentence(
    run: Run, scores: Mapping[str, float], base: str, lower: bool, phrase: str
) -> str:
    choose = min if lower else max
    best = choose(scores, key=lambda v: round(scores[v], 3))
    told = {v: f"{100 * value:.1f}" for v, value in scores.items()}
    if len(scores) == 1:
        return f"{display_name(best)} {phrase.format(told[best])}."
    if told[best] == told[base]:
        nearest = choose((v for v in scores if v != base), key=lambda v: scores[v])
        return (
            f"No variant beats {display_name(base)} here: it {phrase.format(told[base])}; the "
            f"nearest, {display_name(nearest)}, reaches {told[nearest]}."
        )
    aside = ", which is initialized at random," if run.starts_random(base) else ""
    return (
        f"{display_name(best)} {phrase.format(told[best])}; {display_name(base)}{aside} reaches "
        f"{told[base]}."
    )


def list_strengths(run: Run) -> list[str]:
    """Return what the comparison is based on."""
    strengths = []
    if len(run.variants) > 1 and run.recipe:
        strengths.append(
            "The variants share corpus, vocabulary, batches and steps; they differ only in their "
            "initialization and training method."
        )
    if (retrieval := _find_retrieval(run)) is not None:
        chance = 100 * (retrieval.baseline("chance", retrieval.pairs) or 0.0)
        shown = f"{chance:.1f}" if chance >= 0.1 else f"{chance:.2f}"
        strengths.append(
            "Retrieval and word alignment use the pretrained model without finetuning. Retrieval "
            f"is tested on {describe_tests(retrieval)}; guessing would give {shown} percent."
        )
    if transfer := list_transfer(run.results, run.results.variants):
        source = language_name(transfer[0].sources[0])
        strengths.append(f"Transfer scores come from models finetuned on {source} examples alone.")
    return strengths


def list_limits(run: Run) -> list[str]:
    """Return what the run does not show."""
    limits = []
    if run.uses_phrasebook:
        limits.append(
            "The corpus is the built-in phrasebook: small, and generated from templates and a word "
            "list. The numbers hold for these sentences only, not for natural text."
        )
    if (retrieval := _find_retrieval(run)) is not None:
        smallest = min(size for _, size in retrieval.files(retrieval.pairs))
        if smallest:
            # Half the width of a 95 % interval for a difference of two shares, at its widest.
            margin = 100 * 1.96 * math.sqrt(2 * 0.25 / smallest)
            limits.append(
                f"With {smallest:,} test sentences, retrieval differences below about {margin:.0f} "
                "points in a single language can be chance."
            )
        if retrieval.num_seeds == 1:
            limits.append(
                "Each variant was pretrained with one seed; the variance over seeds of pretraining "
                "is not measured here."
            )
        limits.append(
            "The best layer of each variant is chosen on the test sentences themselves, so its "
            "number is a little optimistic; the figures show all layers, as the paper's do."
        )
    limits += [] if run.has_grid else _list_stuck(run)
    rules = [rule for one in run.coverage.values() for rule, n in one.get("by_rule", {}).items()
             if n]  # fmt: skip
    if any(rule.startswith("dictionary") for rule in rules):
        limits.append(
            "A variant that is initialized with bilingual dictionaries has seen word translations; "
            "it is not an unsupervised model."
        )
    return limits


def _find_retrieval(run: Run) -> Section | None:
    if "tatoeba" not in run.results.tasks:
        return None
    return run.results.section("tatoeba", "features", run.results.variants)


def _list_stuck(run: Run) -> list[str]:
    """Name the transfer scores that are not above always giving the most frequent label."""
    limits = []
    for section in list_transfer(run.results, run.results.variants):
        for variant in section.variants:
            stuck = []
            for pair, series in section.read(variant).items():
                level = section.baseline("majority", [pair])
                size = section.files([pair])[0][1]
                if level is None:
                    continue
                # Two standard errors of a share; F1 has no such simple one.
                known = size > 0 and section.metrics[0] == "accuracy"
                noise = 2 * math.sqrt(level * (1 - level) / size) if known else 0.0
                if mean(series) <= level + noise:
                    stuck.append(language_name(pair[1]))
            if stuck:
                limits.append(
                    f"{section.task.title}: {display_name(variant)} is not clearly above the "
                    f"majority label in {', '.join(stuck)}."
                )
    return limits


# The page ----------------------------------------------------------------------------------------


def _list_values(run: Run, tables: Mapping[str, Sequence[Table]]) -> dict[str, Any]:
    """Return what page and Markdown share."""
    return {
        "run": run,
        "headline": find_headline(run),
        "tables": tables,
        "another_size": ANOTHER_SIZE,
        "facts": list_facts(run),
        "strengths": list_strengths(run),
        "limits": list_limits(run),
        "num_rows": len(run.results.frame),
        "starts": [(v, text) for v in run.variants if (text := run.describe_initialization(v))],
    }


def _render_page(
    run: Run,
    looks: Mapping[str, Look],
    values: Mapping[str, Any],
    plates: Sequence[Plate],
    drawn: Mapping[str, str],
) -> str:
    environment = make_environment()
    environment.filters["variant"] = display_name
    environment.filters["language"] = language_name
    swatches = {variant: look.css_class for variant, look in looks.items()}
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    summaries = summarize(run.results)
    best = {task: run.results.best_layers(task, [s.variant for s in summaries])
            if task in run.results.tasks else {} for task in FEATURES}  # fmt: skip
    drawings = collect_drawings(run.examples, best["alignment"], run.variants, _MOST_DRAWN)
    queries = collect_queries(run.examples, best["tatoeba"], run.variants, _MOST_QUERIES)
    return environment.get_template("page.html.jinja").render(
        **values,
        css=Markup(css + write_css_variables()),
        swatches=swatches,
        table_html={
            table.name: Markup(render_html(table, swatches))
            for some in values["tables"].values()
            for table in some
        },
        figures={
            p.name: {"plate": p, "svg": Markup(embed_svg(drawn[p.name], p.name, p.title))}
            for p in plates
        },
        sentences=_group_by_language(drawings),
        queries=_group_by_language(queries),
        keys=[(Markup(draw_key(kind)), name) for kind, name in LINK_NAMES.items()],
        source="en",
        markup=Markup,
        mean=mean,
        deviation=lambda series: deviation(list(series.values())),
    )


def _group_by_language(items: Sequence[DrawnSentence | Query]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for item in items:
        groups.setdefault(item.language, []).append(item)
    return groups


def list_facts(run: Run) -> list[tuple[str, str]]:
    """List how the run was made, in a few words each."""
    facts = []
    languages = run.recipe.get("languages")
    if isinstance(languages, list):
        names = ", ".join(language_name(str(code)) for code in languages)
        facts.append(("Languages", f"{len(languages)}: {names}"))
    model, vocabulary, pretraining = (
        found if isinstance(found := run.recipe.get(key), dict) else {}
        for key in ("model", "vocabulary", "pretraining")
    )
    if {"layers", "hidden", "heads"} <= model.keys():
        shape = f"{model['layers']} layers, width {model['hidden']}, {model['heads']} heads"
        facts.append(("Encoder", shape))
    if isinstance(vocabulary.get("size"), int):
        facts.append(("Shared vocabulary", f"{vocabulary['size']:,} tokens"))
    if {"steps", "batch_size", "length"} <= pretraining.keys():
        steps, batch, length = (pretraining[key] for key in ("steps", "batch_size", "length"))
        text = f"{steps:,} steps of {batch} × {length} tokens per variant"
        facts.append(("Cross-lingual pretraining", text))
    for label, key in (("Seeds", "seed"), ("metaxlm", "version")):
        values = sorted({str(value) for value in run.results.frame[key].unique() if value != ""})
        facts += [(label, ", ".join(values))] if values else []
    for label, key in (("Recipe's fingerprint", "digest"), ("Collected with torch", "torch")):
        if run.provenance.get(key):
            facts.append((label, str(run.provenance[key])))
    return facts
