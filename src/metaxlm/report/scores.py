"""From result rows to the numbers that tables and figures show.

In come the rows of results.jsonl, out come scores: means over languages, taken within each seed
first and then over the seeds, as the paper does for its table 1. Variants are compared on the
languages that all of them have; the best layer is the one with the best mean over those.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metaxlm.experiments.results import select_final
from metaxlm.experiments.series import Series, average_series, subtract_series

Row = Mapping[str, Any]

_LOWER_IS_BETTER = frozenset({"aer", "gap", "loss", "perplexity"})
_TASK_METRICS = ("accuracy", "f1", "exact_match", "em")
"""The metrics of the paper's tables; a task's other ones stay in results.jsonl."""
_TUNING_SPLITS = frozenset({"train", "dev", "validation"})


def is_lower_better(metric: str) -> bool:
    """Tell which end of a metric is the good one."""
    return metric in _LOWER_IS_BETTER


@dataclass(frozen=True)
class Score:
    """A mean over seeds; the deviation is the sample's, and there is none for one seed."""

    mean: float
    deviation: float | None = None
    seeds: int = 1


def score_series(series: Series) -> Score | None:
    """Reduce the values of several seeds to mean and standard deviation."""
    values = list(series.values())
    if not values:
        return None
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Score(statistics.fmean(values), deviation, len(values))


class Scores:
    """One metric of one task, by variant, layer, language and seed."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._values: dict[tuple[Any, Any, Any], Series] = {}
        self._examples: dict[str, int] = {}
        for row in rows:
            key = (row.get("variant"), row.get("layer"), row.get("language"))
            self._values.setdefault(key, {})[row.get("seed", 0)] = float(row["value"])
            if row.get("examples") is not None:
                self._examples[str(row.get("language"))] = int(row["examples"])

    def __bool__(self) -> bool:
        return bool(self._values)

    @property
    def variants(self) -> list[str]:
        """Variants with any value, in the order of the results."""
        return list(dict.fromkeys(v for v, _, _ in self._values if v is not None))

    @property
    def examples(self) -> dict[str, int]:
        """Test examples of each language."""
        return dict(self._examples)

    @property
    def num_seeds(self) -> int:
        """The largest number of seeds behind a value."""
        return max((len(series) for series in self._values.values()), default=0)

    def layers(self, variant: str) -> list[int]:
        """Layers of a variant, in order."""
        return sorted({layer for v, layer, _ in self._values if v == variant and layer is not None})

    def languages(self, variant: str | None = None) -> list[str]:
        """Languages of a variant, or of all of them, in the order of the results."""
        found = (lang for v, _, lang in self._values if variant is None or v == variant)
        return list(dict.fromkeys(str(lang) for lang in found))

    def common_languages(self) -> list[str]:
        """Languages that every variant with any value has; only these make comparable means."""
        sets = [set(self.languages(variant)) for variant in self.variants]
        return [lang for lang in self.languages() if all(lang in found for found in sets)]

    def series(self, variant: str | None, layer: int | None, language: str) -> Series:
        """Values of one cell by seed; empty when there are none."""
        return self._values.get((variant, layer, language), {})

    def mean(self, variant: str, layer: int | None, languages: Sequence[str]) -> Series:
        """Mean over languages, by seed; empty when a language is missing."""
        return average_series([self.series(variant, layer, language) for language in languages])

    def best_layer(self, variant: str, lower: bool, languages: Sequence[str]) -> int | None:
        """Return the layer with the best mean; the lowest of several equal ones."""
        means = {
            layer: score.mean
            for layer in self.layers(variant)
            if (score := score_series(self.mean(variant, layer, languages)))
        }
        if not means:
            return None
        best = min(means.values()) if lower else max(means.values())
        return next(layer for layer, value in means.items() if value == best)


def collect(rows: Iterable[Row], *, task: str, metric: str, scenario: str) -> Scores:
    """Gather one metric of one task: test split, last step of each variant, one source language."""
    chosen = [
        row
        for row in rows
        if row.get("task") == task
        and (row.get("metric"), row.get("scenario")) == (metric, scenario)
    ]
    return Scores(select_final(_keep_test_split(_keep_one_source(chosen))))


def find_source_language(rows: Iterable[Row]) -> str:
    """Return the language that finetuning starts from: English unless the rows never name it."""
    sources = [str(row["source"]) for row in rows if row.get("source") is not None]
    return "en" if "en" in sources or not sources else sources[0]


def list_transfer_metrics(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """List the (task, metric) pairs of cross-lingual transfer, in the order of the results."""
    found = (
        (str(row["task"]), str(row["metric"]))
        for row in rows
        if row.get("scenario") == "transfer" and row.get("metric") in _TASK_METRICS
    )
    return list(dict.fromkeys(found))


def collect_majority(rows: Sequence[Row], task: str) -> dict[str, float]:
    """Return the score of the most frequent label by language, where it was measured."""
    scores = collect(rows, task=task, metric="majority", scenario="transfer")
    means = {lang: score_series(scores.series(None, None, lang)) for lang in scores.languages()}
    return {language: score.mean for language, score in means.items() if score}


@dataclass(frozen=True)
class Summary:
    """The five headline numbers of one variant; what was not measured is None."""

    variant: str
    retrieval: Score | None
    retrieval_layer: int | None
    aer: Score | None
    aer_layer: int | None
    transfer_source: Score | None
    transfer_others: Score | None
    transfer_gap: Score | None


def summarize(rows: Sequence[Row], variants: Sequence[str] | None = None) -> list[Summary]:
    """Compute the headline numbers of every variant, in the given order or the results' own."""
    named = dict.fromkeys(str(row["variant"]) for row in rows if row.get("variant") is not None)
    retrieval = collect(rows, task="tatoeba", metric="accuracy", scenario="features")
    aer = collect(rows, task="alignment", metric="aer", scenario="features")
    transfer = [
        collect(rows, task=task, metric=metric, scenario="transfer")
        for task, metric in list_transfer_metrics(rows)
    ]
    source = find_source_language(rows)
    summaries = []
    for variant in variants if variants is not None else named:
        retrieval_layer, retrieval_score = _score_best_layer(retrieval, variant, lower=False)
        aer_layer, aer_score = _score_best_layer(aer, variant, lower=True)
        at_source = average_series([s.series(variant, None, source) for s in transfer])
        others = average_series(
            [s.mean(variant, None, other_languages(s, source)) for s in transfer]
        )
        summaries.append(
            Summary(
                variant=variant,
                retrieval=retrieval_score,
                retrieval_layer=retrieval_layer,
                aer=aer_score,
                aer_layer=aer_layer,
                transfer_source=score_series(at_source),
                transfer_others=score_series(others),
                transfer_gap=score_series(subtract_series(at_source, others)),
            )
        )
    return summaries


def other_languages(scores: Scores, source: str) -> list[str]:
    """Return the common languages but the source: those the transfer gap is measured against."""
    return [language for language in scores.common_languages() if language != source]


def _score_best_layer(scores: Scores, variant: str, lower: bool) -> tuple[int | None, Score | None]:
    languages = scores.common_languages()
    layer = scores.best_layer(variant, lower, languages)
    if layer is None:
        return None, None
    return layer, score_series(scores.mean(variant, layer, languages))


def _keep_one_source(rows: list[Row]) -> list[Row]:
    source = find_source_language(rows)
    return [row for row in rows if row.get("source") in (source, None)]


def _keep_test_split(rows: list[Row]) -> list[Row]:
    """Drop dev scores where test scores exist; a task without a test set keeps its dev scores."""
    tested = [row for row in rows if row.get("split") not in _TUNING_SPLITS]
    return tested or rows
