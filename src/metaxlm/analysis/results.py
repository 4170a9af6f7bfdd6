"""Load the scores of a run into one DataFrame, and select from it.

`results.jsonl` has one JSON object per score: `{run, variant, step, layer, task, scenario, source,
language, metric, value, examples, seed, split, version, origin}`. The scenario is `features`,
`supervised` (trained and tested in one language, for tasks that are trained in several) or
`transfer`. Rows without a variant are baselines that need no model: `majority` and `chance` in the
task's metric, `majority_NAME` and `chance_NAME` in others.

`select` is the only code that chooses splits, steps and layers. Every table, test, claim and figure
gets its scores through it, most of them through `Results`, which indexes what it returns.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, cast

from metaxlm import __version__
from metaxlm.analysis.stats import SeedScores, TaskComparison, average, mean
from metaxlm.digests import write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.files import check_name, find_packed
from metaxlm.languages import TASK_TITLES, language_name
from metaxlm.reading import decode_line, json_loads, read_lines
from metaxlm.streams import open_stream

if TYPE_CHECKING:
    from pandas import DataFrame

FILE_NAME = "results.jsonl"
Row = Mapping[str, Any]
LanguagePair = tuple[str, str]
"""Training language and test language."""
PairScores = dict[LanguagePair, SeedScores]
SOURCE = "en"
ORIGIN_DIGITS = 12
"""Digits of an evaluation's fingerprint that a row keeps."""
MARGIN = 0.02
"""A task is learned where a model is this far above its baselines."""
LOWER_IS_BETTER = frozenset({"aer", "gap", "loss", "perplexity"})
_TUNING = ("train", "dev", "validation")
"""How the names of splits begin that final scores avoid where there is a test set."""
_METRICS = {"accuracy": "accuracy", "f1": "F1", "em": "exact match", "aer": "AER"}
"""The metrics that can represent a task, and their names."""
IDENTITY = (
    "variant", "step", "layer", "task", "scenario", "source", "language", "metric", "seed", "split",
)  # fmt: skip
_NAMES = ("run", "variant", "task", "language", "source", "metric", "split")
"""Values of a row that become names of files."""
_KINDS: dict[str, type | UnionType] = {
    **dict.fromkeys(("task", "metric", "scenario", "source", "language", "split", "origin"), str),
    **dict.fromkeys(("step", "layer", "seed", "examples"), int | None),
    **dict.fromkeys(("run", "variant"), str | None),
}
_COLUMNS: dict[str, Any] = {
    "run": "", "variant": None, "step": None, "layer": None, "task": "", "scenario": "transfer",
    "source": SOURCE, "language": "", "metric": "", "value": 0.0, "examples": 0, "seed": 0,
    "split": "test", "version": "", "origin": "",
}  # fmt: skip


@dataclass(frozen=True)
class TaskInfo:
    """What tables and tests must know of a task."""

    name: str
    title: str
    metric: str = "accuracy"
    second: str = ""
    """The score that is printed after a slash, and counts in the paper's average."""
    trained_in_each: bool = False
    """Whether it is trained in several languages, and supervised where it is tested in its own."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The scores that count in the paper's average."""
        return (self.metric, self.second) if self.second else (self.metric,)

    @property
    def lower(self) -> bool:
        """Whether its metric is an error rate."""
        return self.metric in LOWER_IS_BETTER


TASKS = {
    task.name: task
    for task in (
        TaskInfo("udpos", TASK_TITLES["udpos"], "f1"),
        TaskInfo("panx", TASK_TITLES["panx"], "f1"),
        TaskInfo("xquad", TASK_TITLES["xquad"], "f1", "em"),
        TaskInfo("mlqa", TASK_TITLES["mlqa"], "f1", "em"),
        TaskInfo("tydiqa", TASK_TITLES["tydiqa"], "f1", "em"),
        TaskInfo("xnli", TASK_TITLES["xnli"]),
        TaskInfo("pawsx", TASK_TITLES["pawsx"]),
        TaskInfo("amazon-books", TASK_TITLES["amazon-books"], trained_in_each=True),
        TaskInfo("amazon-dvd", TASK_TITLES["amazon-dvd"], trained_in_each=True),
        TaskInfo("amazon-music", TASK_TITLES["amazon-music"], trained_in_each=True),
        TaskInfo("tatoeba", TASK_TITLES["tatoeba"]),
        TaskInfo("alignment", TASK_TITLES["alignment"], "aer"),
    )
}
"""The paper's tasks in the order of its tables."""
FEATURES = ("tatoeba", "alignment")
"""Tasks without finetuning, measured at every layer."""
VARIANTS = {
    "xlm": "XLM",
    "metaxlm": "MetaXLM",
    "metaxlm+dict": "MetaXLM+Dict",
    "xlm+kd": "XLM+KD",
    "freeze": "MetaXLM+freezing",
    "body": "Body only",
    "embeddings": "Embeddings only",
}
"""The models of the paper by the names of the recipes; any other variant is an idea beyond it."""


def display_name(variant: str) -> str:
    """Return the paper's name of a variant, or the variant's own."""
    return VARIANTS.get(variant, variant)


def join_names(variants: Iterable[str]) -> str:
    """Join the names of variants as in running text."""
    return " and ".join(map(display_name, variants))


def title_task(task: str) -> str:
    """Return the heading of a task in the paper's tables, or the task's own name."""
    return TASKS[task].title if task in TASKS else task


def name_metric(metric: str) -> str:
    """Return a metric's name for running text."""
    return _METRICS.get(metric, metric)


# Writing -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """One score."""

    run: str
    variant: str | None
    step: int | None
    layer: int | None
    task: str
    scenario: str
    source: str
    language: str
    metric: str
    value: float
    examples: int
    seed: int
    split: str
    version: str = __version__
    origin: str = ""
    """Fingerprint of the evaluation, shortened."""


def list_rows(
    record: Mapping[str, Any],
    run: str,
    variant: str,
    step: int | None,
    seed: int,
    origin: str = "",
    version: str = __version__,
) -> list[Result]:
    """Return the rows of one evaluation record; files without labels have none.

    Where only the first examples of each file were used, the name of the split has their number.
    """
    limited = f"-first-{record['limit']}" if record.get("limit") else ""
    about = {"run": run, "task": record["task"], "source": record["source"], "seed": seed}
    about |= {"origin": origin[:ORIGIN_DIGITS], "version": version}
    rows = []
    for file in record["files"]:
        place = {
            "language": file["language"],
            "layer": file.get("layer"),
            "examples": file["num_examples"],
            "split": file["name"] + limited,
            "scenario": find_scenario(record, file["language"]),
        }
        for name, value in file["values"].items():
            rows.append(
                Result(**about, **place, variant=variant, step=step, metric=name, value=value)
            )
        for name, value in _list_baselines(record, file):
            rows.append(Result(**about, **place, variant=None, step=None, metric=name, value=value))
    return rows


def find_scenario(record: Mapping[str, Any], language: str) -> str:
    """Name the scenario of an evaluation's scores in one language."""
    if record["kind"] == "features":
        return "features"
    is_diagonal = record["trained_in_each"] and language == record["source"]
    return "supervised" if is_diagonal else "transfer"


def _list_baselines(record: Row, file: Row) -> Iterator[tuple[str, float]]:
    for baseline in ("majority", "chance"):
        for name, value in file.get(baseline, {}).items():
            yield (baseline if name == record["metric"] else f"{baseline}_{name}"), value


def write_results(path: Path, results: Iterable[Result]) -> None:
    """Write rows as JSON lines, and the digest of the file into the list of its folder."""
    write_listed(path.parent, path.name, dump_lines(map(asdict, results)))


def dump_lines(rows: Iterable[Row]) -> str:
    """Return rows as JSON lines."""
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


# Reading -----------------------------------------------------------------------------------------


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines, which may be compressed; name a broken line."""
    with open_stream(path) as stream:
        for number, line in read_lines(stream, path):
            text = decode_line(number, line, path)
            row = json_loads(text, f"{path}:{number}", is_line=True)
            if not isinstance(row, dict):
                raise MetaXLMError(f"{path}:{number}: expected a JSON object, found {text[:40]!r}")
            yield row


def read_scores(path: Path, identity: Sequence[str] = IDENTITY) -> list[Row]:
    """Read `results.jsonl`, or its compressed form; of rows with the same identity keep the last.

    The identity of a row is its values under the given keys.
    """
    path = find_packed(path)
    if not path.is_file():
        raise MetaXLMError(f"{path}: no results yet; run `metaxlm run RECIPE` up to its evaluation")
    kept: dict[tuple[Any, ...], Row] = {}
    for number, row in enumerate(read_rows(path), start=1):
        try:
            _check_row(row)
        except MetaXLMError as error:
            raise MetaXLMError(f"{path}:{number}: {error}") from error
        key = tuple(row.get(key) for key in identity)
        kept.pop(key, None)
        kept[key] = row
    if not kept:
        raise MetaXLMError(f"{path}: empty; run `metaxlm run RECIPE` up to its evaluation")
    return list(kept.values())


def _check_row(row: Row) -> None:
    """Raise an error if a row lacks a value, or has one of another type."""
    value = row.get("value")
    if "task" not in row or "metric" not in row:
        raise MetaXLMError("a result needs `task` and `metric`")
    for key in _KINDS.keys() & row.keys():
        if not isinstance(row[key], _KINDS[key]):
            raise MetaXLMError(f"`{key}` of a result is {row[key]!r}; restore the file")
    for key in _NAMES:
        if row.get(key):
            check_name(row[key], key)
    if type(value) not in (int, float) or not math.isfinite(cast("float", value)):
        raise MetaXLMError(f"`value` is {value!r}, not a number; repeat that evaluation")


def load_results(folder: Path) -> DataFrame:
    """Read `results.jsonl` of a run folder, or its compressed form, as a DataFrame.

    Of a row that was written twice (a repeated evaluation) the last one counts.
    """
    return make_frame(read_scores(folder / FILE_NAME))


def make_frame(rows: Iterable[Row]) -> DataFrame:
    """Return rows as a DataFrame; `is_final` marks finished models and baselines.

    A variant's finished model is the one at its largest step.
    """
    import pandas as pd

    records = list(rows)
    frame = pd.DataFrame(
        {
            name: [default if (found := row.get(name)) is None else found for row in records]
            for name, default in _COLUMNS.items()
        }
    )
    for name in ("step", "layer"):
        frame[name] = frame[name].astype("float64")
    for name in ("variant", "scenario", "split"):
        frame[name] = frame[name].astype("str")
    frame.loc[frame["layer"].notna() & (frame["scenario"] == "transfer"), "scenario"] = "features"
    last = frame.groupby("variant", dropna=False)["step"].transform("max")
    frame["is_final"] = (
        frame["variant"].isna() | (frame["step"] == last) | (frame["step"].isna() & last.isna())
    )
    return frame


def select(
    frame: DataFrame,
    *,
    task: str,
    scenario: str | None = None,
    metric: str | None = None,
    variants: Sequence[str | None] | None = None,
    step: Literal["final", "all"] = "final",
    split: str = "auto",
    layer: int | Literal["all", "best"] | None = "all",
) -> DataFrame:
    """Return the rows of a task: one split, finished models unless `step` is `all`.

    With `split="auto"`, test sets count, or dev sets where more languages (at more steps) have
    these; a split is a dev set by the start of its name, such as `dev-subset`. Each variant has one
    file per language. `layer` is a number, `None` for scores of whole models, or `best`: for each
    variant the layer with its best mean over the languages that all variants have, the lowest of
    equals.
    """
    found = frame[(frame["task"] == task) & (frame["is_final"] | (step == "all"))]
    if split == "auto":
        found = _choose_split(found, ["language"] if step == "final" else ["step", "language"])
    else:
        found = found[found["split"] == split]
    if variants is not None:
        found = found[found["variant"].isin([v for v in variants if v is not None])
                      | (found["variant"].isna() & (None in variants))]  # fmt: skip
    if scenario is not None:
        found = found[found["scenario"] == scenario]
    if layer == "best":
        found = _keep_best_layers(found, task)
    elif layer is None:
        found = found[found["layer"].isna()]
    elif layer != "all":
        found = found[found["layer"] == layer]
    return found if metric is None else found[found["metric"] == metric]


def _choose_split(frame: DataFrame, keys: list[str]) -> DataFrame:
    is_tuning = frame["split"].str.startswith(_TUNING)
    if is_tuning.any():
        measured = frame["variant"].notna()
        counts = [
            len(frame.loc[(is_tuning == kind) & measured, keys].drop_duplicates())
            for kind in (False, True)
        ]
        frame = frame[is_tuning == (counts[1] > counts[0])]
    place = ["variant", "source", "language"]
    names = frame.groupby([*place, "split"], dropna=False, sort=False).size().reset_index(name="n")
    names = names.sort_values("n", ascending=False, kind="stable")
    if names.duplicated(place).any():
        best = names.drop_duplicates(place)[[*place, "split"]]
        frame = frame.merge(best, on=[*place, "split"])
    return frame


def choose_splits(files: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], str]:
    """Choose among (model, split, language) the split of each model and language, as `select`."""
    rows = [{"variant": model, "split": split, "language": code} for model, split, code in files]
    chosen = _choose_split(make_frame(rows), ["language"])
    columns = (chosen[name] for name in ("variant", "language", "split"))
    return {(model, code): split for model, code, split in zip(*columns, strict=True)}


def _keep_best_layers(frame: DataFrame, task: str) -> DataFrame:
    info = TASKS.get(task) or TaskInfo(task, task)
    main = frame[(frame["metric"] == info.metric) & frame["variant"].notna()]
    wide = main.groupby(["variant", "layer", "language"], sort=False)["value"].mean().unstack()
    shared = [c for c in wide if wide[c].groupby(level="variant").count().gt(0).all()]
    means = wide[shared].mean(axis=1, skipna=False).dropna()
    order = means.sort_index().sort_values(ascending=info.lower, kind="stable")
    best = order.reset_index().drop_duplicates("variant")[["variant", "layer"]]
    return frame.merge(best, on=["variant", "layer"])


# Everything that is drawn from a run -------------------------------------------------------------


@dataclass(frozen=True)
class Collapsed:
    """Finetunings of one model, task and training language that are no better than baselines."""

    variant: str
    task: str
    source: str
    seeds: tuple[int, ...]
    num_seeds: int
    """All that were trained."""
    value: float
    """Mean of the collapsed seeds in the training language."""
    others: float
    """Mean of the other seeds over all languages."""

    def describe(self) -> str:
        """Return one sentence."""
        seeds = f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(map(str, self.seeds))}"
        return (
            f"{title_task(self.task)}: {len(self.seeds)} of {self.num_seeds} finetunings of "
            f"{display_name(self.variant)} collapsed ({seeds}: {100 * self.value:.1f} in "
            f"{language_name(self.source)}); the mean without "
            f"{'it' if len(self.seeds) == 1 else 'them'} is {100 * self.others:.1f}."
        )


@dataclass
class _Index:
    """The selected rows of one task, by what they are asked for."""

    scores: dict[tuple[str, str, str | None, int | None], PairScores] = field(default_factory=dict)
    """By scenario, metric, variant and layer."""
    files: dict[tuple[str, LanguagePair], tuple[str, int]] = field(default_factory=dict)
    """Split and number of examples, by scenario and pair of languages."""
    origins: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """By variant and training language."""


@dataclass
class Results:
    """All scores of a run, and the paired tests between its variants."""

    frame: DataFrame
    comparisons: Sequence[TaskComparison] = ()
    tested: bool = True
    """False for numbers without seeds and examples, as published ones are: then the signs of
    differences decide alone."""
    infos: Mapping[str, TaskInfo] = field(default_factory=dict)
    """Tasks that are not the paper's."""

    @cached_property
    def tasks(self) -> list[str]:
        """Tasks with any score: the paper's in its order, then the others."""
        found = list(self.frame["task"].unique())
        return [*(t for t in TASKS if t in found), *(t for t in found if t not in TASKS)]

    @cached_property
    def variants(self) -> list[str]:
        """Variants with any score: the paper's in its order, then the others."""
        found = list(self.frame["variant"].dropna().unique())
        return [*(v for v in VARIANTS if v in found), *(v for v in found if v not in VARIANTS)]

    @cached_property
    def final_steps(self) -> dict[str, int | None]:
        """The last step of each variant, None where its rows name none."""
        last = self.frame.groupby("variant", sort=False)["step"].max()
        return {str(v): None if math.isnan(step) else int(step) for v, step in last.items()}

    def info(self, task: str) -> TaskInfo:
        """Return what is known of a task; the metric of an unknown one is its first."""
        if task in self.infos or task in TASKS:
            return self.infos.get(task) or TASKS[task]
        found = self.frame.loc[self.frame["task"] == task, "metric"]
        return TaskInfo(task, task, next((m for m in found if m in _METRICS), "accuracy"))

    @cached_property
    def _indexes(self) -> dict[str, _Index]:
        return {}

    @cached_property
    def _best_layers(self) -> dict[tuple[str, ...], dict[str, int]]:
        return {}

    @cached_property
    def _curves(self) -> dict[tuple[str, str, str], dict[int, PairScores]]:
        return {}

    @cached_property
    def contrasts(self) -> dict[Any, Any]:
        """Differences that `contrast` has computed."""
        return {}

    def _index(self, task: str) -> _Index:
        if task in self._indexes:
            return self._indexes[task]
        index = self._indexes[task] = _Index()
        chosen = select(self.frame, task=task)
        names = ("scenario", "metric", "variant", "layer", "source", "language", "seed", "value",
                 "split", "examples", "origin")  # fmt: skip
        columns = (chosen[name].tolist() for name in names)
        for scenario, metric, variant, layer, source, language, seed, value, *file in zip(
            *columns, strict=True
        ):
            variant = variant if isinstance(variant, str) else None
            depth = None if math.isnan(layer) else int(layer)
            pair = (source, language)
            scores = index.scores.setdefault((scenario, metric, variant, depth), {})
            scores.setdefault(pair, {})[int(seed)] = float(value)
            index.files[scenario, pair] = file[0], int(file[1])
            if variant is not None and file[2]:
                index.origins.setdefault((variant, source), set()).add(file[2])
        return index

    def scores(
        self,
        task: str,
        variant: str | None,
        scenario: str = "transfer",
        metric: str | None = None,
        layer: int | None = None,
    ) -> PairScores:
        """Return a finished model's scores by languages and seed; empty where there are none."""
        key = (scenario, metric or self.info(task).metric, variant, layer)
        return self._index(task).scores.get(key, {})

    def layers(self, task: str, variant: str, metric: str | None = None) -> list[int]:
        """Return the measured layers of a variant, in order."""
        wanted = ("features", metric or self.info(task).metric, variant)
        found = {key[3] for key in self._index(task).scores if key[:3] == wanted}
        return sorted(layer for layer in found if layer is not None)

    def best_layers(self, task: str, variants: Sequence[str]) -> dict[str, int]:
        """Return the layer with the best mean of each variant."""
        known = self._best_layers
        if (task, *variants) not in known:
            rows = select(self.frame, task=task, scenario="features", variants=variants,
                          layer="best", metric=self.info(task).metric)  # fmt: skip
            best = dict(zip(rows["variant"], rows["layer"].astype(int), strict=True))
            known[task, *variants] = {v: int(best[v]) for v in variants if v in best}
        return known[task, *variants]

    def file(self, task: str, scenario: str, pair: LanguagePair) -> tuple[str, int]:
        """Return split and number of examples behind the scores of a pair of languages."""
        return self._index(task).files.get((scenario, pair), ("", 0))

    def origins(self, variant: str, task: str, sources: Iterable[str]) -> set[str]:
        """Return the fingerprints of evaluations."""
        found = self._index(task).origins
        return set().union(*(found.get((variant, source), set()) for source in sources))

    def learning_curve(
        self, task: str, variant: str, metric: str | None = None
    ) -> dict[int, PairScores]:
        """Return transfer scores at every saved step, all of the same files."""
        metric = metric or self.info(task).metric
        if task not in self.tasks or (task, variant, metric) in self._curves:
            return self._curves.get((task, variant, metric), {})
        found = select(self.frame, task=task, scenario="transfer", metric=metric, step="all",
                       variants=[variant])  # fmt: skip
        curve = self._curves[task, variant, metric] = {}
        columns = (found[c].tolist() for c in ("step", "source", "language", "seed", "value"))
        for step, source, language, seed, value in zip(*columns, strict=True):
            if not math.isnan(step):
                pairs = curve.setdefault(int(step), {})
                pairs.setdefault((source, language), {})[int(seed)] = float(value)
        return curve

    def baseline(
        self, task: str, scenario: str, pair: LanguagePair, name: str, metric: str = ""
    ) -> float | None:
        """Return what always the most frequent label (`majority`) or guessing (`chance`) scores."""
        if scenario == "features":
            # One of all sentences is the right one; word alignment has no such baseline.
            size = self.file(task, scenario, pair)[1]
            is_retrieval = name == "chance" and self.info(task).metric == "accuracy"
            return 1 / size if is_retrieval and size else None
        is_main = metric in ("", self.info(task).metric)
        found = self.scores(task, None, scenario, name if is_main else f"{name}_{metric}").get(pair)
        return mean(found) if found else None

    def find_level(self, task: str, scenario: str, pairs: Sequence[LanguagePair]) -> float:
        """Return the better baseline as a mean over pairs; 0 where none was measured."""
        best = [
            max(self.baseline(task, scenario, pair, name) or 0.0 for name in ("majority", "chance"))
            for pair in pairs
        ]
        return statistics.fmean(best) if best else 0.0

    @cached_property
    def collapsed(self) -> list[Collapsed]:
        """Finetunings that learned nothing while another seed of the same did."""
        return [
            found
            for task in self.frame["task"].unique()
            for scenario in ("transfer", "supervised")
            for variant in self.frame["variant"].dropna().unique()
            for found in self._find_collapsed(task, scenario, variant)
        ]

    def _find_collapsed(self, task: str, scenario: str, variant: str) -> Iterator[Collapsed]:
        scores = self.scores(task, variant, scenario)
        for (source, language), series in scores.items():
            if source != language:
                continue
            level = self.find_level(task, scenario, [(source, language)])
            bad = tuple(sorted(s for s, value in series.items() if not has_learned(value, level)))
            if not bad or len(bad) == len(series):
                continue
            kept = [
                {seed: value for seed, value in of_pair.items() if seed not in bad}
                for pair, of_pair in scores.items()
                if pair[0] == source
            ]
            value = statistics.fmean(series[seed] for seed in bad)
            yield Collapsed(variant, task, source, bad, len(series), value, mean(average(kept)))

    def list_collapsed(self, variants: Iterable[str], tasks: Iterable[str]) -> list[Collapsed]:
        """Return the collapsed finetunings of some variants on some tasks."""
        variants, tasks = set(variants), set(tasks)
        return [c for c in self.collapsed if c.variant in variants and c.task in tasks]

    def section(
        self, task: str, scenario: str, variants: Sequence[str], *, both: bool = True
    ) -> Section | None:
        """Return a task in one scenario for the variants that have it; None where none has."""
        info = self.info(task)
        has_layers = scenario == "features" and any(self.layers(task, v) for v in variants)
        layers = self.best_layers(task, variants) if has_layers else {}
        having = tuple(v for v in variants if self.scores(task, v, scenario, layer=layers.get(v)))
        if not having:
            return None
        metrics = info.metrics if both else info.metrics[:1]
        return Section(self, info, scenario, having, metrics, layers)

    def sections(
        self, tasks: Iterable[str], variants: Sequence[str], *, both: bool = True
    ) -> dict[str, Section]:
        """Return all sections of some tasks by name; tasks that no variant has are left out."""
        found = [
            self.section(task, scenario, variants, both=both)
            for task in tasks
            for scenario in ("features", "supervised", "transfer")
        ]
        return {section.name: section for section in found if section is not None}


def has_learned(value: float, *baselines: float) -> bool:
    """Say whether a score is clearly above its baselines."""
    return value > max(baselines, default=0.0) + MARGIN


def share_pairs(many: Sequence[Mapping[LanguagePair, Any]]) -> list[LanguagePair]:
    """Return the pairs of languages that all have, in the order of the first."""
    if not many:
        return []
    return [pair for pair in many[0] if all(pair in scores for scores in many[1:])]


@dataclass(frozen=True)
class Section:
    """One task in one scenario: the scores of the variants that are compared.

    Means are over the languages that all of these variants have.
    """

    results: Results
    task: TaskInfo
    scenario: str
    variants: tuple[str, ...]
    metrics: tuple[str, ...]
    """One, or two of which the second is printed after a slash."""
    layers: Mapping[str, int]
    """Best layer of each variant, for tasks without finetuning."""

    @property
    def name(self) -> str:
        """Name its table."""
        return f"{self.task.name}-{self.scenario}" if self.task.trained_in_each else self.task.name

    @cached_property
    def pairs(self) -> list[LanguagePair]:
        """Pairs of languages that any variant has; English first."""
        found = dict.fromkeys(pair for v in self.variants for pair in self.read(v))
        return sorted(found, key=lambda pair: pair[1] != self.sources[0] or self.is_crossed)

    @cached_property
    def shared(self) -> list[LanguagePair]:
        """Pairs that all variants have."""
        return share_pairs([dict.fromkeys(self.pairs), *(self.read(v) for v in self.variants)])

    @cached_property
    def sources(self) -> list[str]:
        """Training languages; English first."""
        found = dict.fromkeys(pair[0] for v in self.variants for pair in self.read(v))
        return sorted(found, key=lambda code: code != SOURCE)

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

    def read(self, variant: str, metric: str | None = None) -> PairScores:
        """Return a variant's scores at its best layer, or of the whole model."""
        return self.results.scores(
            self.task.name, variant, self.scenario, metric or self.metrics[0],
            self.layers.get(variant),
        )  # fmt: skip

    def series(
        self, variant: str, pairs: Sequence[LanguagePair] | None = None, metric: str | None = None
    ) -> SeedScores:
        """Return the mean over pairs of languages by seed; empty where one is missing."""
        found = self.read(variant, metric)
        return average([found.get(pair, {}) for pair in (self.shared if pairs is None else pairs)])

    def average(self, variant: str) -> SeedScores:
        """Return the mean over pairs and metrics: questions count as (F1 + EM) / 2."""
        return average([self.series(variant, metric=metric) for metric in self.metrics])

    def baseline(self, name: str, pairs: Sequence[LanguagePair], metric: str = "") -> float | None:
        """Return the mean of a baseline over the pairs where it was measured."""
        found = [
            self.results.baseline(self.task.name, self.scenario, pair, name, metric)
            for pair in pairs
        ]
        known = [value for value in found if value is not None]
        return statistics.fmean(known) if known else None

    def files(self, pairs: Sequence[LanguagePair]) -> list[tuple[str, int]]:
        """Return split and number of examples of each pair of languages."""
        return [self.results.file(self.task.name, self.scenario, pair) for pair in pairs]

    def splits(self, pairs: Sequence[LanguagePair]) -> str:
        """Name the splits of some pairs."""
        return " and ".join(sorted({split for split, _ in self.files(pairs)}))

    @property
    def is_learned(self) -> bool:
        """Whether any variant is clearly above each baseline."""
        best = max((mean(series) for v in self.variants if (series := self.series(v))), default=0.0)
        levels = [self.baseline(name, self.shared) for name in ("majority", "chance")]
        return all(best >= level + MARGIN for level in levels if level is not None)

    def trace(
        self, variant: str, pairs: Sequence[LanguagePair], metric: str | None = None
    ) -> dict[str, Any]:
        """Return the fields by which the rows behind a mean are found in results.jsonl."""
        seeds = self.series(variant, pairs, metric)
        sources = sorted({source for source, _ in pairs})
        origins = self.results.origins(variant, self.task.name, sources)
        return {
            "variant": variant,
            "step": self.results.final_steps.get(variant),
            "task": self.task.name,
            "scenario": self.scenario,
            "source": " ".join(sources),
            "language": " ".join(language for _, language in pairs),
            "metric": metric or self.metrics[0],
            "layer": self.layers.get(variant),
            "split": " ".join(sorted({split for split, _ in self.files(pairs)})),
            "seed": " ".join(map(str, sorted(seeds))),
            "origin": " ".join(sorted(origins)),
        }


def count_seeds(section: Section) -> str:
    """Write the number of seeds."""
    return f"{section.num_seeds} seed{'' if section.num_seeds == 1 else 's'}"
