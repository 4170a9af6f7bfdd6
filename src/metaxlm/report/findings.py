"""What the numbers say, in words: the headline, and what the run does and does not show.

In come the run and its summaries, out come a few plain sentences. They are made by rule from the
results, so they can be no rosier than these: when no variant beats the baseline, that is the
headline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metaxlm.experiments.names import display_name
from metaxlm.languages import language_name
from metaxlm.report.run_folder import Run
from metaxlm.report.scores import (
    Score,
    Summary,
    collect,
    collect_majority,
    find_source_language,
    list_transfer_metrics,
    score_series,
)
from metaxlm.report.tables import describe_tests, name_task

_MOST_NUMBERS = 4


@dataclass(frozen=True)
class Headline:
    """The main result: what was measured, one number a variant, and a sentence."""

    measure: str
    numbers: tuple[tuple[str, float], ...]
    """Variant and score in percent, the baseline first."""
    sentence: str


@dataclass(frozen=True)
class _Measure:
    name: str
    read: Callable[[Summary], Score | None]
    lower: bool
    phrase: str
    """What a variant does, with the place of its number."""


_MEASURES = (
    _Measure(
        "Sentence retrieval, accuracy in percent",
        lambda s: s.retrieval,
        False,
        "finds the right translation for {} of 100 test sentences",
    ),
    _Measure(
        "Word alignment, error rate in percent (lower is better)",
        lambda s: s.aer,
        True,
        "aligns words with an error rate of {} percent",
    ),
    _Measure(
        "Cross-lingual transfer, score in the other languages",
        lambda s: s.transfer_others,
        False,
        "scores {} in the languages it was not finetuned in",
    ),
)


def find_headline(run: Run, summaries: Sequence[Summary]) -> Headline | None:
    """Return the main result: retrieval, or else alignment, or else transfer."""
    for measure in _MEASURES:
        scores = {s.variant: score.mean for s in summaries if (score := measure.read(s))}
        if scores:
            baseline = _choose_baseline(run, list(scores))
            numbers = _choose_numbers(scores, baseline, measure.lower)
            sentence = _write_sentence(run, scores, baseline, measure)
            return Headline(measure.name, numbers, sentence)
    return None


def _choose_baseline(run: Run, variants: Sequence[str]) -> str:
    """Return XLM, or the first variant that starts from nothing, or the first."""
    if "xlm" in variants:
        return "xlm"
    return next((v for v in variants if run.starts_random(v)), variants[0])


def _choose_numbers(
    scores: dict[str, float], baseline: str, lower: bool
) -> tuple[tuple[str, float], ...]:
    """Keep the baseline and the best few, in the recipe's order."""
    others = sorted(
        (v for v in scores if v != baseline), key=lambda v: scores[v] * (1, -1)[not lower]
    )
    kept = {baseline, *others[: _MOST_NUMBERS - 1]}
    order = [baseline, *(v for v in scores if v in kept and v != baseline)]
    return tuple((variant, 100 * scores[variant]) for variant in order)


def _write_sentence(run: Run, scores: dict[str, float], baseline: str, measure: _Measure) -> str:
    choose = min if measure.lower else max
    best = choose(scores, key=lambda v: round(scores[v], 3))
    told = {v: f"{100 * value:.1f}" for v, value in scores.items()}
    if len(scores) == 1:
        return f"{display_name(best)} {measure.phrase.format(told[best])}."
    if told[best] == told[baseline]:
        rivals = {v: value for v, value in scores.items() if v != baseline}
        nearest = choose(rivals, key=lambda v: rivals[v])
        return (
            f"No variant beats {display_name(baseline)} here: it "
            f"{measure.phrase.format(told[baseline])}; the nearest, {display_name(nearest)}, "
            f"reaches {told[nearest]}."
        )
    aside = ", which starts from random values," if run.starts_random(baseline) else ""
    return (
        f"{display_name(best)} {measure.phrase.format(told[best])}; "
        f"{display_name(baseline)}{aside} reaches {told[baseline]}."
    )


def list_strengths(run: Run) -> list[str]:
    """Say what the comparison rests on."""
    strengths = []
    if len(run.variants) > 1 and run.recipe:
        strengths.append(
            "The variants share corpus, vocabulary, batches and steps; they differ only in what "
            "they start with."
        )
    retrieval = collect(run.rows, task="tatoeba", metric="accuracy", scenario="features")
    if retrieval:
        strengths.append(
            "Retrieval and word alignment use the pretrained model as it is, without finetuning. "
            f"Retrieval is tested on {describe_tests(retrieval)}; guessing would give "
            f"{_write_chance(retrieval.examples)} percent."
        )
    if list_transfer_metrics(run.rows):
        source = language_name(find_source_language(run.rows))
        strengths.append(f"Transfer scores come from models finetuned on {source} examples alone.")
    return strengths


def _write_chance(examples: dict[str, int]) -> str:
    chances = [100 / size for size in examples.values() if size]
    chance = sum(chances) / len(chances) if chances else 0.0
    return f"{chance:.1f}" if chance >= 0.1 else f"{chance:.2f}"


def list_limits(run: Run) -> list[str]:
    """Say what the run does not show."""
    limits = []
    if run.uses_phrasebook:
        limits.append(
            "The corpus is the built-in phrasebook: small, and generated from templates and a word "
            "list. The numbers hold for this closed world; they do not tell how the variants would "
            "score on natural text."
        )
    limits.extend(_limit_noise(run))
    if any(row.get("scenario") == "features" for row in run.rows):
        limits.append(
            "The best layer of each variant is picked on the test sentences themselves, so its "
            "number is a little optimistic; the figures show all layers, as the paper's do."
        )
    limits.extend(_limit_majority(run))
    if any(_uses_dictionary(run, variant) for variant in run.variants):
        limits.append(
            "A variant that starts with bilingual dictionaries has seen word translations; it is "
            "not an unsupervised model."
        )
    return limits


def _uses_dictionary(run: Run, variant: str) -> bool:
    by_rule = run.coverage.get(variant, {}).get("by_rule", {})
    return any(rule.startswith("dictionary") and count for rule, count in by_rule.items())


def _limit_noise(run: Run) -> list[str]:
    retrieval = collect(run.rows, task="tatoeba", metric="accuracy", scenario="features")
    limits = []
    sizes = list(retrieval.examples.values())
    if sizes:
        # Half the width of a 95 % interval for a difference of two shares, at its widest.
        margin = 100 * 1.96 * math.sqrt(2 * 0.25 / min(sizes))
        limits.append(
            f"With {min(sizes):,} test sentences, retrieval differences below about {margin:.0f} "
            "points in a single language can be chance."
        )
    if retrieval.num_seeds == 1:
        limits.append(
            "Each variant was pretrained with one seed; how much another seed would change is not "
            "measured here."
        )
    return limits


def _limit_majority(run: Run) -> list[str]:
    """Name the transfer scores that are no better than always giving the most frequent label."""
    limits = []
    for task, metric in list_transfer_metrics(run.rows):
        scores = collect(run.rows, task=task, metric=metric, scenario="transfer")
        levels = collect_majority(run.rows, task)
        for variant in (v for v in run.variants if v in scores.variants):
            stuck = []
            for language, level in levels.items():
                score = score_series(scores.series(variant, None, language))
                size = scores.examples.get(language, 0)
                # Two standard errors of a share; F1 has no such simple one.
                known = size > 0 and metric == "accuracy"
                noise = 2 * math.sqrt(level * (1 - level) / size) if known else 0.0
                if score is not None and score.mean <= level + noise:
                    stuck.append(language_name(language))
            if stuck:
                limits.append(
                    f"{name_task(task)}: {display_name(variant)} is not clearly above the "
                    f"majority label in {', '.join(stuck)}."
                )
    return limits
