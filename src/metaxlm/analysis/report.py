"""Write the report of a run: a static page and a Markdown file, with tables and figures as files.

`write_report` fills `report/` with `index.html` (one file without scripts or other resources),
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
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from markupsafe import Markup

from metaxlm import __version__
from metaxlm.analysis import paper, run_tables, score_tables
from metaxlm.analysis.claims import list_verdicts, make_claims_table, make_primary_tests
from metaxlm.analysis.contrast import FEWEST_SEEDS, OUTCOMES, Outcome, name_basis
from metaxlm.analysis.evaluation_tables import make_confusion_tables
from metaxlm.analysis.learning_curves import describe_curves, find_curves, make_curve_table
from metaxlm.analysis.paper import AVERAGED, MAIN_VARIANTS
from metaxlm.analysis.results import (
    FEATURES,
    SOURCE,
    TASKS,
    Row,
    display_name,
    join_names,
    paused_collection,
)
from metaxlm.analysis.run_folder import Run, collect_examples, read_run
from metaxlm.analysis.score_tables import LAYER_AXES, describe_data, list_transfer, summarize
from metaxlm.analysis.stats import SeedScores, average, deviation, mean
from metaxlm.analysis.style import (
    LINK_KINDS,
    TEMPLATES,
    Look,
    assign_looks,
    embed_svg,
    make_environment,
    write_css_variables,
    write_figure,
)
from metaxlm.analysis.tables import Table, format_cell, render_markdown, write_tables
from metaxlm.files import write_json
from metaxlm.languages import language_name
from metaxlm.manifest import atomic_folder, write_manifest

if TYPE_CHECKING:
    import matplotlib.figure

_MOST_ALIGNED, _MOST_QUERIES, _MOST_NUMBERS = 2, 3, 4
_MOST_BARS = 3  # transfer tasks that are drawn by language; for more, the tables have them
_MOST_LINES = 4  # variants that are drawn by layer; of more, the paper's three


@dataclass(frozen=True)
class Figure:
    """A figure with its caption; `name` is that of its files."""

    name: str
    title: str
    caption: str
    paper: str  # its place there
    drawing: matplotlib.figure.Figure


@dataclass(frozen=True)
class Headline:
    """The top of the page."""

    sentence: str
    support: str = ""
    measure: str = ""
    numbers: Sequence[tuple[str, SeedScores, float | None]] = ()
    """Variant, score and the paper's number."""
    counts: Sequence[tuple[Outcome, int]] = ()  # of the claims, by verdict


def write_report(run_dir: Path, run: Run | None = None) -> Path:
    """Write the report of a run folder and return its page; an older report is replaced."""
    run = run or read_run(run_dir)
    with atomic_folder(run_dir / "report") as folder:
        fill_report(run, folder)
        write_manifest(folder, {"metaxlm": __version__})
    return run_dir / "report" / "index.html"


@paused_collection()
def fill_report(run: Run, folder: Path) -> None:
    """Write page, Markdown, tables and figures into a new folder."""
    variants = dict.fromkeys([*MAIN_VARIANTS, *run.results.variants, *run.variants])
    shown = [v for v in variants if v in run.variants or v in run.results.variants]
    looks = assign_looks([*variants] if run.has_grid else shown)
    tables = make_tables(run)
    figures = make_figures(run, looks)
    for name in ("tables", "figures"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    write_tables(folder / "tables", [table for some in tables.values() for table in some])
    drawn = {one.name: write_figure(folder / "figures", one.name, one.drawing) for one in figures}
    if run.verdicts:
        write_json(folder / "claims.json", list_verdicts(run.verdicts))
    values = {
        "run": run,
        "headline": find_headline(run),
        "tables": tables,
        "figures": {one.name: one for one in figures},
        "another_size": paper.ANOTHER_SIZE,
        "facts": list_facts(run),
        "strengths": list_strengths(run),
        "limits": list_limits(run),
        "starts": [(v, text) for v in run.variants if (text := run.describe_initialization(v))],
        "mean": mean,
        "deviation": lambda series: deviation(list(series.values())),
    }
    page = _render_page(run, looks, values, drawn)
    (folder / "index.html").write_text(page, encoding="utf-8", newline="\n")
    texts = {t.name: render_markdown(t).rstrip("\n") for some in tables.values() for t in some}
    text = _render("report.md.jinja", {
        **values,
        "table_text": texts,
        "claims": render_markdown(make_claims_table(run.verdicts)) if run.verdicts else "",
    })  # fmt: skip
    (folder / "report.md").write_text(text, encoding="utf-8", newline="\n")


def _render(template: str, values: Mapping[str, Any]) -> str:
    environment = make_environment(is_html=".html" in template)
    environment.filters |= {"variant": display_name, "language": language_name, "cell": format_cell}
    return environment.get_template(template).render(values)


def _render_page(
    run: Run, looks: Mapping[str, Look], values: Mapping[str, Any], drawn: Mapping[str, str]
) -> str:
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    figures: dict[str, Figure] = values["figures"]
    words = ("source_words", "target_words")
    return _render("page.html.jinja", {
        **values,
        "css": Markup(css + write_css_variables()),
        "swatches": {variant: look.css_class for variant, look in looks.items()},
        "svg": {n: Markup(embed_svg(drawn[n], n, one.title)) for n, one in figures.items()},
        "alignments": collect_examples(run, "alignment", words, _MOST_ALIGNED),
        "queries": collect_examples(run, "tatoeba", ("query", "expected"), _MOST_QUERIES),
        "links": LINK_KINDS,
        "source": SOURCE,
    })  # fmt: skip


def make_tables(run: Run) -> dict[str, list[Table]]:
    """Build every table that the run has the data for, by section of the page."""
    results, shown = run.results, list(run.results.variants)
    by_task = results.sections(results.tasks, shown).values()
    cost = run_tables.make_cost_tables(run.provenance)
    sections: dict[str, Sequence[Table | None]] = {
        "summary": [score_tables.make_summary_table(results, shown)],
        "figures": [
            *(score_tables.make_layer_table(results, t, shown) for t in FEATURES),
            make_curve_table(find_curves(results)), score_tables.make_direction_table(results),
        ],
        "languages": list(map(score_tables.make_language_table, by_task)),
        "confusion": make_confusion_tables(run.confused, _name_transfer),
        "start": [*run_tables.make_start_tables(run), run_tables.make_dictionary_table(run)],
        "cost": [run_tables.make_training_table(run), *cost],
        "paper": [], "tests": [paper.make_run_tests(results)], "ideas": [], "data": [],
    }  # fmt: skip
    if run.has_grid:
        sections |= {
            "paper": [paper.make_paper_table(results, spec) for spec in paper.TABLES],
            "tests": [make_primary_tests(results), paper.make_paired_tests(results)],
            "ideas": [paper.make_ideas_table(results), paper.make_idea_tests(results)],
            "data": [run_tables.make_data_table(run)],
        }
    return {name: [t for t in some if t is not None] for name, some in sections.items()}


def _name_transfer(record: Row, file: Row) -> str:
    """Name a variant and a direction; all other languages are one, to keep the page short."""
    source, is_own = language_name(record["source"]), file["language"] == record["source"]
    target = source if is_own else "other languages"
    return f"{display_name(record['variant'])}: {source} → {target}"


def make_figures(run: Run, looks: Mapping[str, Look]) -> list[Figure]:
    """Draw every figure that the run has the data for."""
    from metaxlm.analysis import figures

    results = run.results
    measured = {v: looks[v] for v in looks if v in results.variants}
    main = {v: look for v, look in measured.items() if v in MAIN_VARIANTS}
    layered = main if len(measured) > _MOST_LINES and len(main) > 1 else measured
    aside = "" if layered is measured else "The paper's models are drawn; the tables have all."
    curves = find_curves(results)
    transfer = list_transfer(results, list(measured))
    collapsed = results.list_collapsed(MAIN_VARIANTS, TASKS)
    more = {
        "gains": " ".join(each.describe() for each in collapsed), "retrieval": aside,
        "alignment": aside, "curves": describe_curves(curves),
    }  # fmt: skip
    drawn = transfer if len(transfer) <= _MOST_BARS else []
    drawings = {
        "retrieval": figures.draw_layers(results, layered, "tatoeba", LAYER_AXES["tatoeba"]),
        "alignment": figures.draw_layers(results, layered, "alignment", LAYER_AXES["alignment"]),
        "transfer": figures.draw_transfer(drawn, measured),
        "curves": figures.draw_curves(curves, looks),
        "directions": figures.draw_directions(results, looks),
        "loss": figures.draw_loss(run.meta_log, run.logs, looks),
        "coverage": figures.draw_coverage(run.coverage, looks),
    }
    if run.has_grid:
        gains = figures.list_improvements(results)
        drawings["gains"] = figures.draw_improvements(gains, looks)
        drawings["overview"] = figures.draw_overview(results, looks)
    text = (files("metaxlm.analysis") / "figures.yaml").read_text(encoding="utf-8")
    return [
        Figure(name, one["title"], f"{one['caption']} {more.get(name, '')}".strip(), one["paper"],
               drawing)
        for one in yaml.safe_load(text)
        if (drawing := drawings.get(name := one["name"])) is not None
    ]  # fmt: skip


def find_headline(run: Run) -> Headline:
    """Write the main result by rule; when no variant beats the baseline, that is the headline."""
    return _find_paper_headline(run) if run.has_grid else _find_run_headline(run)


def _find_paper_headline(run: Run) -> Headline:
    """Compare the paper's average, or the mean over the tasks that its models share."""
    results = run.results
    counted = Counter(verdict.outcome for verdict in run.verdicts)
    counts = [(outcome, counted[outcome]) for outcome in OUTCOMES]
    sections = results.sections(AVERAGED, MAIN_VARIANTS)
    having = [v for v in MAIN_VARIANTS if any(v in s.variants for s in sections.values())]
    tasks = [t for t in AVERAGED if t in sections and all(sections[t].average(v) for v in having)]
    if not tasks:
        return Headline("No finetuned task has been measured yet.", counts=counts)
    is_whole = len(tasks) == len(AVERAGED)
    printed = paper.find_paper_scores("xtreme")
    numbers = [
        (v, average([sections[t].average(v) for t in tasks]),
         printed[display_name(v)]["average"] if is_whole else None)
        for v in having
    ]  # fmt: skip
    seeds = [sections[task].num_seeds for task in tasks]
    names = ", ".join(sections[task].task.title for task in tasks)
    what = "the paper's seven XTREME tasks" if is_whole else f"the tasks measured so far ({names})"
    low, high = min(seeds), max(seeds)
    measure = (
        f"Average over {what}, finetuned in English; questions as (F1 + EM) / 2; "
        f"{high if low == high else f'{low} to {high}'} seed{'s' if high > 1 else ''}"
    )
    if len(having) < 2:
        alone = f"Only {display_name(having[0])} has been measured: there is nothing to compare."
        return Headline(alone, "", measure, numbers, counts)
    scores = {variant: 100 * mean(series) for variant, series, _ in numbers}
    parts, support, tested = [], [], []
    for base, variant in pairwise(having):
        gain = scores[variant] - scores[base]
        points = f"{abs(gain):.1f} points {'above' if gain > 0 else 'below'}"
        points = "the same as" if points.startswith("0.0") else points
        parts.append(f"{display_name(variant)} scores {points} {display_name(base)}")
        sentence, contrasts = paper.compare_tasks(results, tasks, variant, base)
        support.append(f"{sentence}.")
        tested += contrasts
    sentence = ", and ".join(parts)
    if not is_whole:
        sentence = f"On {names if len(tasks) == 1 else f'{len(tasks)} of seven tasks'}, {sentence}"
    few = ", in one seed, which decides nothing" if min(seeds) < FEWEST_SEEDS else ""
    support = [f"Tested {name_basis(tested)} (p < 0.05).", *support]
    support = support if tested else ["There are no tests of these differences yet."]
    if flat := [sections[task].task.title for task in tasks if not sections[task].is_learned]:
        support.append(f"On {', '.join(flat)} no model is clearly above the baselines.")
    support += [each.describe() for each in results.list_collapsed(having, tasks)]
    return Headline(f"{sentence}{few}.", " ".join(support), measure, numbers, counts)


_MEASURES = (
    ("retrieval", "Sentence retrieval, accuracy in percent", False,
     "finds the right translation for {} of 100 test sentences"),
    ("alignment", "Word alignment, error rate in percent (lower is better)", True,
     "aligns words with an error rate of {} percent"),
    ("others", "Cross-lingual transfer, score in the other languages", False,
     "scores {} in the languages it was not finetuned in"),
)  # fmt: skip


def _find_run_headline(run: Run) -> Headline:
    """Compare retrieval, or else alignment, or else transfer.

    The baseline is XLM, or the first variant that is initialized at random, or the first.
    """
    summaries = summarize(run.results)
    for part, measure, lower, phrase in _MEASURES:
        series = {v: one[part] for v, one in summaries.items() if one[part]}
        if not series:
            continue
        random = [v for v in series if not run.list_copied_parts(v)]
        base = "xlm" if "xlm" in series else [*random, *series][0]
        scores = {v: mean(one) for v, one in series.items()}
        shown = {v: f"{100 * value:.1f}" for v, value in scores.items()}
        choose = min if lower else max
        best = choose(scores, key=lambda v: round(scores[v], 3))
        others = [v for v in scores if v != base]
        name, base_name = display_name(best), display_name(base)
        sentence = f"{name} {phrase.format(shown[best])}"
        if others and shown[best] == shown[base]:
            nearest = choose(others, key=lambda v: scores[v])
            sentence = (
                f"No variant beats {base_name} here: it {phrase.format(shown[base])}; the nearest, "
                f"{display_name(nearest)}, reaches {shown[nearest]}"
            )
        elif others:
            aside = ", which is initialized at random," if base in random else ""
            sentence += f"; {base_name}{aside} reaches {shown[base]}"
        ranked = sorted(others, key=lambda v: scores[v] * (1 if lower else -1))
        order = [base, *(v for v in others if v in ranked[: _MOST_NUMBERS - 1])]
        return Headline(f"{sentence}.", "", measure, [(v, series[v], None) for v in order])
    return Headline("Neither retrieval, word alignment nor transfer has been measured yet.")


def list_strengths(run: Run) -> list[str]:
    """Return what the comparison is based on."""
    strengths = []
    if len(run.variants) > 1 and run.recipe:
        same = "The variants share corpus, vocabulary, batches and steps"
        strengths.append(f"{same}; they differ only in their initialization and training method.")
    retrieval = run.results.section("tatoeba", "features", run.results.variants)
    if retrieval is not None:
        chance = 100 * (retrieval.baseline("chance", retrieval.pairs) or 0.0)
        shown = f"{chance:.1f}" if chance >= 0.1 else f"{chance:.2f}"
        strengths.append(
            "Retrieval and word alignment use the pretrained model without finetuning. Retrieval "
            f"is tested on {describe_data(retrieval)}; guessing would give {shown} percent."
        )
    if transfer := list_transfer(run.results, run.results.variants):
        source = language_name(transfer[0].sources[0])
        strengths.append(f"Transfer scores come from models finetuned on {source} examples alone.")
    return strengths


def list_limits(run: Run) -> list[str]:
    """Return what the run does not show."""
    limits = []
    corpus = run.recipe.get("corpus")
    if isinstance(corpus, dict) and corpus.get("source", "phrasebook") == "phrasebook":
        limits.append(
            "The corpus is the built-in phrasebook: small, and generated from templates and a word "
            "list. The numbers hold for these sentences only, not for natural text."
        )
    retrieval = run.results.section("tatoeba", "features", run.results.variants)
    if retrieval is not None:
        if smallest := min(size for _, size in retrieval.files(retrieval.pairs)):
            # Half the width of a 95 % interval for a difference of two shares, at its widest.
            margin = 100 * 1.96 * math.sqrt(2 * 0.25 / smallest)
            limits.append(
                f"With {smallest:,} test sentences, retrieval differences below about {margin:.0f} "
                "points in a single language can be chance."
            )
        several = [v for v in retrieval.variants if run.results.list_repetitions(v)]
        alone = [v for v in retrieval.variants if v not in (*several, *run.results.repeated)]
        if retrieval.num_seeds == 1 and alone:
            limits.append(
                f"Pretrained with one seed: {join_names(alone, ', ')}. Their variance over seeds "
                "of pretraining is not measured here."
            )
        limits.append(
            "The best layer of each variant is chosen on the test sentences themselves, so its "
            "number is a little optimistic; the figures show all layers, as the paper's do."
        )
    limits += [] if run.has_grid else _list_stuck(run)
    rules = [r for one in run.coverage.values() for r, n in one.get("by_rule", {}).items() if n]
    if any(rule.startswith("dictionary") for rule in rules):
        limits.append(
            "A variant that is initialized with bilingual dictionaries has seen word translations; "
            "it is not an unsupervised model."
        )
    return limits


def _list_stuck(run: Run) -> list[str]:
    limits = []
    for section in list_transfer(run.results, run.results.variants):
        for variant in section.variants:
            stuck = []
            for pair, series in section.read(variant).items():
                level = section.baseline("majority", [pair])
                # Two standard errors of a share; F1 has no such simple one.
                size = section.files([pair])[0][1] if section.metrics[0] == "accuracy" else 0
                noise = 2 * math.sqrt(level * (1 - level) / size) if level and size else 0.0
                if level is not None and mean(series) <= level + noise:
                    stuck.append(language_name(pair[1]))
            if stuck:
                name = f"{section.task.title}: {display_name(variant)}"
                where = f"the majority label in {', '.join(stuck)}"
                limits.append(f"{name} is not clearly above {where}.")
    return limits


def list_facts(run: Run) -> list[tuple[str, str]]:
    """List how the run was made, in a few words each."""
    facts = []
    languages = run.recipe.get("languages")
    if isinstance(languages, list):
        names = ", ".join(language_name(str(code)) for code in languages)
        facts.append(("Languages", f"{len(languages)}: {names}"))
    for label, section, keys, text in (
        ("Encoder", "model", ("layers", "hidden", "heads"), "{} layers, width {}, {} heads"),
        ("Shared vocabulary", "vocabulary", ("size",), "{:,} tokens"),
        ("Cross-lingual pretraining", "pretraining", ("steps", "batch_size", "length"),
         "{:,} steps of {} × {} tokens per variant"),
    ):  # fmt: skip
        settings = run.settings(section)
        if all(isinstance(settings.get(key), int) for key in keys):
            facts.append((label, text.format(*(settings[key] for key in keys))))
    if isinstance(run.recipe.get("seed"), int):
        facts.append(("Seed", str(run.recipe["seed"])))
    for label, key in (("Seeds of finetuning", "seed"), ("metaxlm", "version")):
        values = sorted({str(value) for value in run.results.frame[key].unique() if value != ""})
        facts += [(label, ", ".join(values))] if values else []
    made = [
        one
        for key in ("stages", "cells")
        for one in run.provenance.get(key) or ()
        if isinstance(one, dict)
    ]
    for label, key in (("Device", "device"), ("Trained until", "finished")):
        values = sorted({str(one[key]) for one in made if one.get(key)})
        if values:
            facts.append((label, ", ".join(values) if key == "device" else values[-1]))
    for label, key in (("Recipe's fingerprint", "digest"), ("Collected with torch", "torch")):
        if run.provenance.get(key):
            facts.append((label, str(run.provenance[key])))
    return facts
