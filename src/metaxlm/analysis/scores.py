"""The scores of a run by task, scenario, variant, pair of languages and seed.

`Results` indexes the rows that `results.select` returns; a `Section` compares variants on one task
in one scenario. Tables, claims, tests and figures read their numbers here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar, cast

from metaxlm.analysis.results import (
    BASELINES,
    MARGIN,
    METRICS,
    SOURCE,
    TASKS,
    VARIANTS,
    LanguagePair,
    Pairs,
    TaskInfo,
    display_name,
    has_learned,
    prefer_dev,
    select,
    title_task,
)
from metaxlm.analysis.stats import SeedScores, TaskComparison, average, mean
from metaxlm.languages import language_name

if TYPE_CHECKING:
    from pandas import DataFrame

PairScores = dict[LanguagePair, SeedScores]
IN_TEXT, NOT_IN_TEXT = "Languages of the text", "Languages that are not in the text"
T = TypeVar("T")


@dataclass(frozen=True)
class Collapsed:
    """Finetunings of one model, task and training language at the level of the baselines."""

    variant: str
    task: str
    source: str
    seeds: tuple[int, ...]
    num_seeds: int
    value: float  # mean of the collapsed seeds in the training language
    others: float  # mean of the other seeds over all languages

    def describe(self) -> str:
        """Return one sentence."""
        noun, them = ("seed", "it") if len(self.seeds) == 1 else ("seeds", "them")
        return (
            f"{title_task(self.task)}: {len(self.seeds)} of {self.num_seeds} finetunings of "
            f"{display_name(self.variant)} collapsed ({noun} {', '.join(map(str, self.seeds))}: "
            f"{100 * self.value:.1f} in {language_name(self.source)}); the mean without {them} is "
            f"{100 * self.others:.1f}."
        )


class _Index:
    """The selected rows of one task."""

    def __init__(self) -> None:
        # By scenario, metric, variant and layer.
        self.scores: dict[tuple[str, str, str | None, int | None], PairScores] = {}
        # Split and number of examples.
        self.files: dict[tuple[str, LanguagePair], tuple[str, int]] = {}
        # By variant and training language.
        self.origins: dict[tuple[str, str], set[str]] = {}


@dataclass
class Results:
    """All scores of a run, and the paired tests between its variants."""

    frame: DataFrame
    comparisons: Sequence[TaskComparison] = ()
    tested: bool = True
    """False for numbers without seeds and examples, as published ones are: then the signs of
    differences decide alone."""
    infos: Mapping[str, TaskInfo] = field(default_factory=dict)  # tasks that are not the paper's
    step_seconds: Mapping[str, float] = field(default_factory=dict)  # of pretraining, by variant
    repeated: Mapping[str, str] = field(default_factory=dict)
    """Variants that differ from another one in their seed alone, with that one's name."""
    text_languages: frozenset[str] = frozenset()  # of the pretraining text, if they are known
    _memory: dict[Any, Any] = field(default_factory=dict, repr=False)

    def remember(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` returned for this key, and call it the first time only."""
        if key not in self._memory:
            self._memory[key] = make()
        return cast("T", self._memory[key])

    @cached_property
    def tasks(self) -> list[str]:
        """Tasks with any score: the paper's in its order, then the others."""
        names = list(self.frame["task"].unique())
        return [*(t for t in TASKS if t in names), *(t for t in names if t not in TASKS)]

    @cached_property
    def variants(self) -> list[str]:
        """Variants with any score: the paper's in its order, then the others."""
        own = [*self.own_variants, *(v for v in self.final_steps if v in self.repeated)]
        return [*(v for v in VARIANTS if v in self.final_steps), *own]

    @cached_property
    def own_variants(self) -> list[str]:
        """Variants that are not the paper's; repeated pretrainings are left out."""
        return [v for v in self.final_steps if v not in VARIANTS and v not in self.repeated]

    def list_repetitions(self, variant: str) -> list[str]:
        """Return the variants with scores that repeat one with another seed."""
        return [v for v in self.final_steps if self.repeated.get(v) == variant]

    def split_by_text(self, pairs: Pairs) -> list[tuple[str, list[LanguagePair]]]:
        """Split pairs by whether the second language is in the text; none unless both occur."""
        inside = [pair for pair in pairs if pair[1] in self.text_languages]
        outside = [pair for pair in pairs if pair[1] not in self.text_languages]
        if not inside or not outside:
            return []
        return [(IN_TEXT, inside), (NOT_IN_TEXT, outside)]

    @cached_property
    def final_steps(self) -> dict[str, int | None]:
        """The last step of each variant, None where its rows name none."""
        last = self.frame.groupby("variant", sort=False)["step"].max()
        return {str(v): None if math.isnan(step) else int(step) for v, step in last.items()}

    def info(self, task: str) -> TaskInfo:
        """Return the properties of a task; the metric of an unknown one is its first."""
        if task in self.infos or task in TASKS:
            return self.infos.get(task) or TASKS[task]
        names = self.frame.loc[self.frame["task"] == task, "metric"]
        return TaskInfo(task, task, next((name for name in names if name in METRICS), "accuracy"))

    def _index(self, task: str) -> _Index:
        def make() -> _Index:
            index, rows = _Index(), select(self.frame, task=task)
            names = ("scenario", "metric", "variant", "layer", "source", "language", "seed",
                     "value", "split", "examples", "origin")  # fmt: skip
            columns = (rows[name].tolist() for name in names)
            for scenario, metric, variant, layer, *pair, seed, value, split, size, origin in zip(
                *columns, strict=True
            ):
                name = variant if isinstance(variant, str) else None
                depth, place = None if math.isnan(layer) else int(layer), (pair[0], pair[1])
                scores = index.scores.setdefault((scenario, metric, name, depth), {})
                scores.setdefault(place, {})[int(seed)] = float(value)
                index.files[scenario, place] = split, int(size)
                if name is not None and origin:
                    index.origins.setdefault((name, pair[0]), set()).add(origin)
            return index

        return self.remember(("index", task), make)

    def scores(
        self, task: str, variant: str | None, scenario: str = "transfer",
        metric: str | None = None, layer: int | None = None,
    ) -> PairScores:  # fmt: skip
        """Return a finished model's scores by languages and seed; empty where there are none."""
        key = (scenario, metric or self.info(task).metric, variant, layer)
        return self._index(task).scores.get(key, {})

    def scores_by_layer(self, task: str, variant: str) -> dict[int, PairScores]:
        """Return the scores of the measured layers of a variant, in order."""
        wanted = ("features", self.info(task).metric, variant)
        scores = self._index(task).scores.items()
        layers = {key[3]: s for key, s in scores if key[:3] == wanted and key[3] is not None}
        return dict(sorted(layers.items()))

    def best_layers(self, task: str, variants: Sequence[str]) -> dict[str, int]:
        """Return the layer with the best mean of each variant."""

        def find() -> dict[str, int]:
            metric = self.info(task).metric
            rows = self.remember(
                ("features", task),
                lambda: select(self.frame, task=task, scenario="features", metric=metric),
            )
            rows = select(rows, task=task, variants=variants, layer="best")
            best = dict(zip(rows["variant"], rows["layer"].astype(int), strict=True))
            return {variant: int(best[variant]) for variant in variants if variant in best}

        return self.remember(("best layers", task, *variants), find)

    def learning_curve(self, task: str, variant: str) -> dict[int, PairScores]:
        """Return transfer scores at every saved step, all of the same files.

        Dev sets go first, as in the paper's figure 5.
        """

        def trace() -> dict[str, dict[int, PairScores]]:
            frame = self.frame
            saved = frame[frame["step"].notna() & (frame["task"] == task)]
            rows = select(prefer_dev(saved), task=task, scenario="transfer", step="all",
                          metric=self.info(task).metric)  # fmt: skip
            curves: dict[str, dict[int, PairScores]] = {}
            names = ("variant", "step", "source", "language", "seed", "value")
            columns = (rows[name].tolist() for name in names)
            for name, step, source, language, seed, value in zip(*columns, strict=True):
                pairs = curves.setdefault(name, {}).setdefault(int(step), {})
                pairs.setdefault((source, language), {})[int(seed)] = float(value)
            return curves

        curves = self.remember(("curves", task), trace) if task in self.tasks else {}
        return curves.get(variant, {})

    def file(self, task: str, scenario: str, pair: LanguagePair) -> tuple[str, int]:
        """Return split and number of examples behind the scores of a pair of languages."""
        return self._index(task).files.get((scenario, pair), ("", 0))

    def origins(self, variant: str, task: str, sources: Iterable[str]) -> set[str]:
        """Return the fingerprints of evaluations."""
        known = self._index(task).origins
        return set().union(*(known.get((variant, source), set()) for source in sources))

    def baseline(
        self, task: str, scenario: str, pair: LanguagePair, name: str, metric: str = ""
    ) -> float | None:
        """Return the score of the most frequent label (`majority`) or of guessing (`chance`)."""
        if scenario == "features":
            # One of all sentences is the right one; word alignment has no such baseline.
            size = self.file(task, scenario, pair)[1]
            is_retrieval = name == "chance" and self.info(task).metric == "accuracy"
            return 1 / size if is_retrieval and size else None
        name = name if metric in ("", self.info(task).metric) else f"{name}_{metric}"
        series = self.scores(task, None, scenario, name).get(pair)
        return mean(series) if series else None

    def best_baseline(self, task: str, scenario: str, pairs: Iterable[LanguagePair]) -> float:
        """Return the better baseline as a mean over pairs; 0 where none was measured."""
        every = [
            [self.baseline(task, scenario, p, name) or 0.0 for name in BASELINES] for p in pairs
        ]
        return statistics.fmean(map(max, every)) if every else 0.0

    @cached_property
    def collapsed(self) -> list[Collapsed]:
        """Finetunings that learned nothing while another seed of the same did."""
        tasks, scenarios = self.frame["task"].unique(), ("transfer", "supervised")
        trained = product(tasks, scenarios, self.final_steps)
        return [one for about in trained for one in self._find_collapsed(*about)]

    def _find_collapsed(self, task: str, scenario: str, variant: str) -> Iterator[Collapsed]:
        scores = self.scores(task, variant, scenario)
        for source, series in ((a, series) for (a, b), series in scores.items() if a == b):
            level = self.best_baseline(task, scenario, [(source, source)])
            bad = tuple(sorted(s for s, value in series.items() if not has_learned(value, level)))
            if 0 < len(bad) < len(series):
                kept = [
                    {seed: value for seed, value in of_pair.items() if seed not in bad}
                    for pair, of_pair in scores.items()
                    if pair[0] == source
                ]
                value, others = statistics.fmean(series[s] for s in bad), mean(average(kept))
                yield Collapsed(variant, task, source, bad, len(series), value, others)

    def list_collapsed(self, variants: Iterable[str], tasks: Iterable[str]) -> list[Collapsed]:
        """Return the collapsed finetunings of some variants on some tasks."""
        variants, tasks = set(variants), set(tasks)
        return [c for c in self.collapsed if c.variant in variants and c.task in tasks]

    def section(
        self, task: str, scenario: str, variants: Sequence[str], *, both: bool = True
    ) -> Section | None:
        """Return a task in one scenario for the variants that have it; None where none has."""
        if task not in self.tasks:
            return None
        info = self.info(task)
        is_layered = scenario == "features" and any(self.scores_by_layer(task, v) for v in variants)
        layers = self.best_layers(task, variants) if is_layered else {}
        having = tuple(v for v in variants if self.scores(task, v, scenario, layer=layers.get(v)))
        if not having:
            return None
        metrics = info.metrics if both else info.metrics[:1]
        return Section(self, info, scenario, having, metrics, layers)

    def sections(
        self, tasks: Iterable[str], variants: Sequence[str], *, both: bool = True
    ) -> dict[str, Section]:
        """Return all sections of some tasks by name; tasks that no variant has are left out."""
        places = product(tasks, ("features", "supervised", "transfer"))
        every = (self.section(*place, variants, both=both) for place in places)
        return {section.name: section for section in every if section is not None}


def share_pairs(many: Sequence[Mapping[LanguagePair, Any]]) -> list[LanguagePair]:
    """Return the pairs of languages that all have, in the order of the first."""
    return [pair for pair in many[0] if all(pair in scores for scores in many)] if many else []


@dataclass(frozen=True)
class Section:
    """One task in one scenario: the scores of the variants that are compared.

    Means are over the languages that all of these variants have.
    """

    results: Results
    task: TaskInfo
    scenario: str
    variants: tuple[str, ...]
    metrics: tuple[str, ...]  # one, or two of which the second is printed after a slash
    layers: Mapping[str, int]  # best layer of each variant, for tasks without finetuning

    @property
    def name(self) -> str:
        """Name its table."""
        return f"{self.task.name}-{self.scenario}" if self.task.trained_in_each else self.task.name

    @cached_property
    def pairs(self) -> list[LanguagePair]:
        """Pairs of languages that any variant has; English first."""
        pairs = dict.fromkeys(pair for v in self.variants for pair in self.read(v))
        return sorted(pairs, key=lambda pair: pair[1] != self.sources[0] or self.is_crossed)

    @cached_property
    def shared(self) -> list[LanguagePair]:
        """Pairs that all variants have."""
        return share_pairs([dict.fromkeys(self.pairs), *(self.read(v) for v in self.variants)])

    @cached_property
    def sources(self) -> list[str]:
        """Training languages; English first."""
        sources = dict.fromkeys(pair[0] for v in self.variants for pair in self.read(v))
        return sorted(sources, key=lambda code: code != SOURCE)

    @property
    def own_pair(self) -> LanguagePair:
        """The training language's own pair."""
        return self.sources[0], self.sources[0]

    @property
    def other_pairs(self) -> list[LanguagePair]:
        """The shared pairs of the training language with other languages."""
        return [p for p in self.shared if p[0] == self.sources[0] and p != self.own_pair]

    def by_text(self, is_inside: bool) -> list[LanguagePair]:
        """Return the shared pairs whose second language is in the pretraining text, or is not."""
        text = self.results.text_languages
        return [pair for pair in self.shared if (pair[1] in text) == is_inside]

    @property
    def is_crossed(self) -> bool:
        """Whether it is trained in several languages and tested in others."""
        return self.scenario == "transfer" and (self.task.trained_in_each or len(self.sources) > 1)

    @property
    def is_papers(self) -> bool:
        """Whether the paper measures the same: trained in English, or supervised."""
        return self.scenario == "supervised" or (not self.is_crossed and self.sources == [SOURCE])

    @cached_property
    def num_seeds(self) -> int:
        """The largest number of seeds behind a score."""
        return max(len(seeds) for v in self.variants for seeds in self.read(v).values())

    @property
    def counted_seeds(self) -> str:
        """The number of seeds in words."""
        return f"{self.num_seeds} seed{'' if self.num_seeds == 1 else 's'}"

    def read(self, variant: str, metric: str | None = None) -> PairScores:
        """Return a variant's scores at its best layer, or of the whole model."""
        place = self.task.name, variant, self.scenario, metric or self.metrics[0]
        return self.results.scores(*place, self.layers.get(variant))

    def series(
        self, variant: str, pairs: Pairs | None = None, metric: str | None = None
    ) -> SeedScores:
        """Return the mean over pairs of languages by seed; empty where one is missing."""
        scores = self.read(variant, metric)
        return average([scores.get(pair, {}) for pair in (self.shared if pairs is None else pairs)])

    def average(self, variant: str, pairs: Pairs | None = None) -> SeedScores:
        """Return the mean over pairs and metrics: questions count as (F1 + EM) / 2."""
        return average([self.series(variant, pairs, metric) for metric in self.metrics])

    def baseline(self, name: str, pairs: Pairs, metric: str = "") -> float | None:
        """Return the mean of a baseline over the pairs where it was measured."""
        place = self.task.name, self.scenario
        values = (self.results.baseline(*place, pair, name, metric) for pair in pairs)
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known else None

    def files(self, pairs: Pairs) -> list[tuple[str, int]]:
        """Return split and number of examples of each pair of languages."""
        return [self.results.file(self.task.name, self.scenario, pair) for pair in pairs]

    def splits(self, pairs: Pairs, separator: str = " and ") -> str:
        """Name the splits of some pairs."""
        return separator.join(sorted({split for split, _ in self.files(pairs)}))

    @property
    def is_learned(self) -> bool:
        """Whether any variant is clearly above each baseline."""
        best = max((mean(series) for v in self.variants if (series := self.series(v))), default=0.0)
        baselines = [self.baseline(name, self.shared) for name in BASELINES]
        return all(best >= level + MARGIN for level in baselines if level is not None)

    def trace(self, variant: str, pairs: Pairs, metric: str | None = None) -> dict[str, Any]:
        """Return the fields that identify the rows behind a mean in results.jsonl."""
        sources = sorted({source for source, _ in pairs})
        origins = self.results.origins(variant, self.task.name, sources)
        return {
            "variant": variant, "step": self.results.final_steps.get(variant),
            "task": self.task.name, "scenario": self.scenario, "source": " ".join(sources),
            "language": " ".join(language for _, language in pairs),
            "metric": metric or self.metrics[0], "layer": self.layers.get(variant),
            "split": self.splits(pairs, " "), "origin": " ".join(sorted(origins)),
            "seed": " ".join(map(str, sorted(self.series(variant, pairs, metric)))),
        }  # fmt: skip
