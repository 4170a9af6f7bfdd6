"""Load the scores of a run into one DataFrame, and select from it.

`results.jsonl` has one JSON object per score, with the columns of `load_results`. `select` is the
only code that chooses splits, steps and layers. Every table, test, claim and figure gets its scores
through it, most of them through `scores.Results`, which indexes the selected rows by task.
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from metaxlm import __version__
from metaxlm.digests import write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.files import check_name, find_packed
from metaxlm.languages import TASK_TITLES
from metaxlm.reading import MAX_JSON_VALUES, decode_line, json_loads, read_lines
from metaxlm.streams import open_stream

if TYPE_CHECKING:
    from pandas import DataFrame

FILE_NAME = "results.jsonl"
Row = Mapping[str, Any]
Names = Sequence[str]
LanguagePair = tuple[str, str]  # training language and test language
Pairs = Sequence[LanguagePair]
SOURCE = "en"
ORIGIN_DIGITS = 12  # digits of an evaluation's fingerprint that a row keeps
MARGIN = 0.02  # a task is learned where a model is this far above its baselines
LOWER_IS_BETTER = frozenset({"aer", "gap", "loss", "perplexity"})
BASELINES = ("majority", "chance")
_TUNING = ("train", "dev", "validation")
"""Prefixes of splits that final scores avoid where there is a test set."""
METRICS = {
    "accuracy": "accuracy", "f1": "F1", "em": "exact match", "aer": "AER", "macro_f1": "macro F1",
    "micro_f1": "micro F1", "span_f1": "span F1", "pearson": "Pearson", "spearman": "Spearman",
}  # fmt: skip
"""The metrics that can represent a task, and their names."""
IDENTITY = (
    "variant", "step", "layer", "task", "scenario", "source", "language", "metric", "seed", "split",
)  # fmt: skip
_FILE_NAMES = ("run", "variant", "task", "language", "source", "metric", "split")
"""Values of a row that become names of files."""
_BATCH_BYTES = 1 << 18  # of lines that are parsed together


@dataclass(frozen=True)
class TaskInfo:
    """The properties of a task that tables and tests need.

    `second` is printed after a slash. A task that is trained in each of several languages is
    supervised where it is tested in its own.
    """

    name: str
    title: str
    metric: str = "accuracy"
    second: str = ""
    trained_in_each: bool = False

    @property
    def metrics(self) -> tuple[str, ...]:
        """The scores that count in the paper's average."""
        return (self.metric, self.second) if self.second else (self.metric,)

    @property
    def lower(self) -> bool:
        """Whether its metric is an error rate."""
        return self.metric in LOWER_IS_BETTER


_METRICS_OF = {
    "udpos": "f1", "panx": "f1", "xquad": "f1 em", "mlqa": "f1 em", "tydiqa": "f1 em",
    "xnli": "accuracy", "pawsx": "accuracy", "amazon-books": "accuracy", "amazon-dvd": "accuracy",
    "amazon-music": "accuracy", "tatoeba": "accuracy", "alignment": "aer",
}  # fmt: skip
TASKS = {
    name: TaskInfo(name, TASK_TITLES[name], first, second, name.startswith("amazon"))
    for name, metrics in _METRICS_OF.items()
    for first, _, second in [metrics.partition(" ")]
}
"""The paper's tasks in the order of its tables."""
FEATURES = ("tatoeba", "alignment")  # tasks without finetuning, measured at every layer
MORE_FEATURES = {"flores": TaskInfo("flores", "FLORES")}  # those that the paper does not have
VARIANTS = {
    "xlm": "XLM", "metaxlm": "MetaXLM", "metaxlm+dict": "MetaXLM+Dict", "xlm+kd": "XLM+KD",
    "freeze": "MetaXLM+freezing", "body": "Body only", "embeddings": "Embeddings only",
}  # fmt: skip
"""The models of the paper by the names of the recipes; any other variant is an idea beyond it."""


COMPARED = {
    "mbert": "mBERT", "xlm+source": "XLM (alpha 1)", "xlm+target": "XLM (alpha 0.3)",
    "body+embeddings": "Body + embeddings", "remainder": "Remainder only",
}  # fmt: skip
"""Models that the paper's text compares or leaves open, and that its tables do not have."""


def display_name(variant: str) -> str:
    """Return the paper's name of a variant, or the variant's own."""
    return VARIANTS.get(variant) or COMPARED.get(variant, variant)


def join_names(variants: Iterable[str], separator: str = " and ") -> str:
    """Join the names of variants."""
    return separator.join(map(display_name, variants))


def title_task(task: str) -> str:
    """Return the heading of a task in the paper's tables, or the task's own name."""
    return TASKS[task].title if task in TASKS else task


def name_metric(metric: str) -> str:
    """Return a metric's name for running text."""
    return METRICS.get(metric, metric)


def has_learned(value: float, *baselines: float) -> bool:
    """Return whether a score is clearly above its baselines."""
    return value > max(baselines, default=0.0) + MARGIN


@dataclass(frozen=True)
class Result:
    """One score; `load_results` describes the fields, the defaults replace missing values."""

    run: str = ""
    variant: str | None = None
    step: int | None = None
    layer: int | None = None
    task: str = ""
    scenario: str = "transfer"
    source: str = SOURCE
    language: str = ""
    metric: str = ""
    value: float = 0.0
    examples: int = 0
    seed: int = 0
    split: str = "test"
    version: str = ""
    origin: str = ""


_DEFAULTS = {column.name: column.default for column in fields(Result)}
_COLUMN_TYPES = {"step": "float64", "layer": "float64"} | dict.fromkeys(
    ("variant", "scenario", "split"), "str"
)
_TYPES = {
    name: {int if name in ("step", "layer", "examples", "seed") else str, type(None)}
    for name in _DEFAULTS
    if name != "value"
}


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pause the garbage collector, which takes a tenth of the time of a large report."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def list_rows(
    record: Row, run: str, variant: str, step: int | None, seed: int, origin: str = "",
    version: str = __version__,
) -> list[Result]:  # fmt: skip
    """Return the rows of one evaluation record; files without labels have none.

    Where only the first examples of each file were used, the name of the split has their number.
    """
    limited = f"-first-{record['limit']}" if record.get("limit") else ""
    rows = []
    for file in record["files"]:
        about = {
            "run": run, "task": record["task"], "source": record["source"], "seed": seed,
            "origin": origin[:ORIGIN_DIGITS], "version": version, "layer": file.get("layer"),
            "language": file["language"], "examples": file["num_examples"],
            "split": file["name"] + limited, "scenario": find_scenario(record, file["language"]),
        }  # fmt: skip
        for name, value in file["values"].items():
            rows.append(Result(**about, variant=variant, step=step, metric=name, value=value))
        for baseline in BASELINES:
            for name, value in file.get(baseline, {}).items():
                metric = baseline if name == record["metric"] else f"{baseline}_{name}"
                rows.append(Result(**about, metric=metric, value=value))
    return rows


def find_scenario(record: Row, language: str) -> str:
    """Name the scenario of an evaluation's scores in one language."""
    if record["kind"] == "features":
        return "features"
    is_diagonal = record["trained_in_each"] and language == record["source"]
    return "supervised" if is_diagonal else "transfer"


def write_results(path: Path, results: Iterable[Result]) -> None:
    """Write rows as JSON lines, and the digest of the file into the list of its folder."""
    write_listed(path.parent, path.name, dump_lines(map(asdict, results)))


def dump_lines(rows: Iterable[Row]) -> str:
    """Return rows as JSON lines."""
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines, which may be compressed; name a broken line."""
    texts, size = [], 0
    with open_stream(path) as stream:
        for number, line in read_lines(stream, path):
            texts.append(decode_line(number, line, path))
            size += len(line)
            if size > _BATCH_BYTES:
                yield from _parse_lines(texts, path, number)
                texts, size = [], 0
    if texts:
        yield from _parse_lines(texts, path, number)


def _parse_lines(texts: list[str], path: Path, last: int) -> Iterator[dict[str, Any]]:
    """Parse lines together, which is faster; if one is wrong, one by one to name it."""
    joined = f"[{','.join(texts)}]"
    with suppress(MetaXLMError):
        rows = json_loads(joined, str(path)) if len(joined) <= MAX_JSON_VALUES else []
        if len(rows) == len(texts) and set(map(type, rows)) == {dict}:
            texts = []
            yield from rows
    for number, text in enumerate(texts, last + 1 - len(texts)):
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
    rows = list(read_rows(path))
    _check_rows(path, rows)
    if not rows:
        raise MetaXLMError(f"{path}: empty; run `metaxlm run RECIPE` up to its evaluation")
    last = {tuple(map(row.get, identity)): place for place, row in enumerate(rows)}
    return [rows[place] for place in sorted(last.values())]


def _check_rows(path: Path, rows: Sequence[Row]) -> None:
    """Check types and names by column; an error names the first row with a wrong value."""

    def fail(place: int, problem: str) -> NoReturn:
        raise MetaXLMError(f"{path}:{place + 1}: {problem}")

    for key, kinds in _TYPES.items():
        column = [row.get(key) for row in rows]
        types = set(map(type, column))
        if key in ("task", "metric") and type(None) in types:
            fail(column.index(None), "a result needs `task` and `metric`")
        if not types <= kinds:
            place = [type(value) in kinds for value in column].index(False)
            fail(place, f"`{key}` of a result is {column[place]!r}; restore the file")
        for name in set(column) - {None, ""} if key in _FILE_NAMES else ():
            try:
                check_name(str(name), key)
            except MetaXLMError as error:
                fail(column.index(name), str(error))
    values: list[Any] = [row.get("value") for row in rows]
    if not set(map(type, values)) <= {int, float} or not all(map(math.isfinite, values)):
        is_number = [type(v) in (int, float) and math.isfinite(v) for v in values]
        place = is_number.index(False)
        fail(place, f"`value` is {values[place]!r}, not a number; repeat that evaluation")


def load_results(folder: str | Path) -> DataFrame:
    """Read `results.jsonl` of a run folder, or its compressed form, as a DataFrame.

    Of rows with the same identity (a repeated evaluation) the last one counts. Columns:

    - `run`: name of the run
    - `variant`: the model; missing for baselines that need no model
    - `step`: pretraining step of the model, as a float; missing where there is none
    - `layer`: layer of a task without finetuning, as a float; missing for whole models
    - `task`, `metric`: such as `xnli` and `accuracy`; baselines have `majority` and `chance` in the
      task's metric, `majority_NAME` and `chance_NAME` in others
    - `scenario`: `features` (without finetuning), `supervised` (trained and tested in one language,
      for tasks that are trained in several) or `transfer`
    - `source`, `language`: training and test language
    - `value`: the score as a fraction
    - `examples`: number of test examples
    - `seed`: of finetuning
    - `split`: the test file, such as `test` or `dev`
    - `version`: of metaxlm
    - `origin`: fingerprint of the evaluation, shortened
    - `is_final`: whether the row is of a finished model (the variant's largest step) or a baseline
    """
    return make_frame(read_scores(Path(folder) / FILE_NAME))


def make_frame(rows: Iterable[Row]) -> DataFrame:
    """Return rows as a DataFrame with the columns of `load_results`."""
    import pandas as pd

    records = list(rows)
    columns = {
        name: [default if (value := row.get(name)) is None else value for row in records]
        for name, default in _DEFAULTS.items()
    }
    frame = pd.DataFrame(columns).astype(_COLUMN_TYPES)
    frame.loc[frame["layer"].notna() & (frame["scenario"] == "transfer"), "scenario"] = "features"
    last = frame.groupby("variant", dropna=False)["step"].transform("max")
    frame["is_final"] = (
        frame["variant"].isna() | (frame["step"] == last) | (frame["step"].isna() & last.isna())
    )
    return frame


def select(
    frame: DataFrame, *, task: str, scenario: str | None = None, metric: str | None = None,
    variants: Sequence[str | None] | None = None, step: Literal["final", "all"] = "final",
    split: str = "auto", layer: int | Literal["all", "best"] | None = "all",
) -> DataFrame:  # fmt: skip
    """Return the rows of a task: one split, finished models unless `step` is `all`.

    With `split="auto"`, test sets count, or dev sets where more languages (at more steps) have
    these; a split is a dev set by the start of its name, such as `dev-subset`. Each variant has one
    file per language. `layer` is a number, `None` for scores of whole models, or `best`: for each
    variant the layer with its best mean over the languages that all variants have, the lowest of
    equals.
    """
    rows = frame[(frame["task"] == task) & (frame["is_final"] | (step == "all"))]
    if split == "auto":
        rows = _choose_split(rows, ["language"] if step == "final" else ["step", "language"])
    else:
        rows = rows[rows["split"] == split]
    if variants is not None:
        named = [variant for variant in variants if variant is not None]
        is_baseline = rows["variant"].isna() & (None in variants)
        rows = rows[rows["variant"].isin(named) | is_baseline]
    if scenario is not None:
        rows = rows[rows["scenario"] == scenario]
    if layer == "best":
        rows = _keep_best_layers(rows, task)
    elif layer is None:
        rows = rows[rows["layer"].isna()]
    elif layer != "all":
        rows = rows[rows["layer"] == layer]
    return rows if metric is None else rows[rows["metric"] == metric]


def prefer_dev(frame: DataFrame) -> DataFrame:
    """Keep the dev sets where they cover as many steps and languages as the test sets."""
    is_dev = frame["split"].str.startswith(_TUNING)
    dev, test = (
        len(rows[["step", "language"]].drop_duplicates())
        for rows in (frame[is_dev], frame[~is_dev])
    )
    return frame[is_dev] if dev >= test else frame


def _choose_split(frame: DataFrame, keys: list[str]) -> DataFrame:
    is_tuning = frame["split"].str.startswith(_TUNING)
    if is_tuning.any():
        measured = frame.loc[frame["variant"].notna(), keys].assign(is_tuning=is_tuning)
        counts = measured.drop_duplicates()["is_tuning"].value_counts()
        frame = frame[is_tuning == (counts.get(True, 0) > counts.get(False, 0))]
    place = ["variant", "source", "language"]
    names = frame.groupby([*place, "split"], dropna=False, sort=False).size().reset_index(name="n")
    if names.duplicated(place).any():
        names = names.sort_values("n", ascending=False, kind="stable")
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
    shared = wide.columns[wide.notna().groupby(level="variant").any().all()]
    means = wide[shared].mean(axis=1, skipna=False).dropna()
    order = means.sort_index().sort_values(ascending=info.lower, kind="stable")
    best = order.reset_index().drop_duplicates("variant")[["variant", "layer"]]
    return frame.merge(best, on=["variant", "layer"])
