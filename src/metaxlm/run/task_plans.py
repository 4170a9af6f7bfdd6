"""Plan an evaluation before anything is trained, and measure tasks without finetuning.

For each task, find its files, test languages, training languages and hyperparameters, or raise an
error that names what is missing. `tatoeba` (sentence retrieval) and `alignment` (word alignment)
need no finetuning: `measure_features` scores every layer of an encoder (the paper's section 4.4).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from metaxlm.analysis.results import MORE_FEATURES
from metaxlm.analysis.results import TASKS as TASK_INFO
from metaxlm.errors import MetaXLMError
from metaxlm.files import walk_files
from metaxlm.finetune.catalog import TASKS, find_tasks
from metaxlm.finetune.custom import load_custom_task
from metaxlm.finetune.layouts import find_flores, list_flores, read_flores
from metaxlm.finetune.readers.parallel import (
    list_tatoeba,
    list_word_alignment,
    read_tatoeba,
    read_word_alignment,
)
from metaxlm.finetune.task import AnyTask, DataFile, FinetuneSettings, Tally
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.alignment import count_links, draw_examples, measure_alignment
from metaxlm.probe.retrieval import measure_retrieval
from metaxlm.progress import say
from metaxlm.reading import parse_yaml
from metaxlm.recipe import AlignmentRecipe, FinetuneRecipe, RetrievalRecipe
from metaxlm.recipe.recipe_file import suggest
from metaxlm.run.fingerprints import FileFingerprints

FeatureSettings = RetrievalRecipe | AlignmentRecipe
PIVOT = "en"  # Tatoeba and the gold alignments pair every language with English
RETRIEVAL = "tatoeba"
ALIGNMENT = "alignment"
FLORES = "flores"
FEATURE_TASKS: dict[str, Callable[[Path], list[str]]] = {
    RETRIEVAL: list_tatoeba,
    ALIGNMENT: list_word_alignment,
    FLORES: list_flores,
}
"""Tasks without finetuning, and functions that list their languages in a data folder."""
_DATA = "data"
_HYPERPARAMETERS = tuple(key for key in FinetuneRecipe.model_fields if key != "seeds")


@dataclass(frozen=True)
class TaskPlan:
    """The files and settings of one finetuned task."""

    task: AnyTask
    settings: FinetuneSettings
    sources: tuple[str, ...]  # languages to train in, one at a time
    languages: tuple[str, ...]  # languages to test in; each has a dev or a test file
    data_dir: Path
    files: tuple[DataFile, ...]  # all files of the task

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.name

    def list_inputs(self, source: str, fingerprints: FileFingerprints) -> dict[str, Any]:
        """Return everything that decides the scores of one finetuning run, as JSON values."""
        names = ("name", "kind", "labels", "metric", "reading")
        facts = {name: getattr(self.task, name) for name in names}
        return {
            "task": {**facts, "labels": list(self.task.labels)},
            "source": source,
            "settings": self.settings.describe(),
            "languages": list(self.languages),
            "files": [
                [file.name, file.language, *fingerprints.get(path, self.data_dir, _DATA)]
                for file in self.files
                if (file.language == source and file.split in ("train", "select", "dev"))
                or (file.language in self.languages and file.split in ("dev", "test"))
                for path in file.paths
            ],
        }


@dataclass(frozen=True)
class FeaturePlan:
    """The languages and settings of one task without finetuning."""

    name: str
    languages: tuple[str, ...]
    data_dir: Path
    settings: FeatureSettings

    def list_inputs(self, fingerprints: FileFingerprints) -> dict[str, Any]:
        """Return everything that decides the scores, as JSON values."""
        if self.name == FLORES:
            files = find_flores(self.data_dir)
            paths = sorted(files[code] for code in (PIVOT, *self.languages))
        else:
            folder = self.data_dir / ("wordalign" if self.name == ALIGNMENT else self.name)
            paths = walk_files(folder)
        return {
            "task": self.name,
            "languages": list(self.languages),
            "settings": self.settings.model_dump(mode="json"),
            "tallies": True,
            "files": [fingerprints.get(path, self.data_dir, _DATA) for path in paths],
        }


@dataclass(frozen=True)
class EvaluationPlan:
    """All settings of an evaluation except the models."""

    tasks: tuple[TaskPlan, ...]
    features: tuple[FeaturePlan, ...] = ()
    num_seeds: int = 1
    seed: int = 1  # base seed; random numbers depend on it and on the number of the seed
    limit: int | None = None  # use only the first N examples of each file
    dictionaries: Path | None = None  # folder of the dictionaries of switched words
    switched: tuple[str, ...] | None = None
    """Languages that words may switch into; None means all that have a dictionary."""


@dataclass(frozen=True)
class TaskOverrides:
    """The user's settings of tasks; defaults are the paper's, where it has one."""

    languages: Sequence[str] | None = None
    sources: Sequence[str] | None = None
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Hyperparameters by task; those of the empty name apply to all tasks."""


def choose_tasks(names: Sequence[str]) -> tuple[list[AnyTask], list[str]]:
    """Return finetuned tasks and tasks without finetuning, by name, group or own YAML file."""
    tasks: dict[str, AnyTask] = {}
    features: list[str] = []
    for name in dict.fromkeys(part.strip() for text in names for part in text.split(",")):
        if name in FEATURE_TASKS:
            features.append(name)
        elif Path(name).suffix in (".yaml", ".yml"):
            own = load_custom_task(Path(name))
            if own.name in tasks or own.name in TASKS or own.name in FEATURE_TASKS:
                raise MetaXLMError(f"{name}: a task is already called {own.name!r}; rename yours")
            tasks[own.name] = own
        elif name:
            tasks |= {found: TASKS[found] for found in find_tasks(name)}
    if not tasks and not features:
        raise MetaXLMError(f"--task: names no task; known: {', '.join([*TASKS, *FEATURE_TASKS])}")
    return list(tasks.values()), features


def plan_task(task: AnyTask, data_dir: Path, overrides: TaskOverrides) -> TaskPlan:
    """Plan one finetuned task, or raise an error that names what is missing."""
    values = {**overrides.values.get("", {}), **overrides.values.get(task.name, {})}
    settings = replace(task.settings, **values)
    files = tuple(task.list_files(data_dir))
    tested = dict.fromkeys(file.language for file in files if file.split in ("dev", "test"))
    trained = [file.language for file in files if file.split == "train"]
    codes = task.languages if overrides.languages is None else overrides.languages
    languages = _choose(task.name, "dev or test", codes, list(tested), data_dir)
    own = overrides.sources
    wanted = task.sources if own is None else own
    sources = tuple(wanted)
    if trained or settings.epochs:
        sources = _choose(task.name, "training", wanted, trained, data_dir, own is not None)
    plan = TaskPlan(task, settings, sources, languages, data_dir, files)
    _check_selection(plan)
    return plan


def plan_features(
    name: str, data_dir: Path, overrides: TaskOverrides, settings: FeatureSettings | None = None
) -> FeaturePlan:
    """Plan one task without finetuning."""
    available = FEATURE_TASKS[name](data_dir)
    requested = overrides.languages
    codes = available if requested is None else [code for code in requested if code != PIVOT]
    languages = _choose(name, "dev or test", codes, available, data_dir)
    default = AlignmentRecipe() if name == ALIGNMENT else RetrievalRecipe()
    return FeaturePlan(name, languages, data_dir, settings or default)


def _choose(
    name: str,
    what: str,
    codes: Sequence[str],
    available: Sequence[str],
    data_dir: Path,
    needs_all: bool = False,
) -> tuple[str, ...]:
    """Return the languages that have files; log the others, and raise if none or not all have."""
    found = tuple(code for code in codes if code in available)
    missing = " ".join(code for code in codes if code not in available)
    if not found or (missing and needs_all):
        raise MetaXLMError(
            f"{data_dir}: no {what} file of {name} for {missing or 'any language'}; found here: "
            f"{' '.join(available) or 'nothing'} (`metaxlm data check` shows the layouts)"
        )
    if missing:
        say(f"{name}: no {what} file for {missing}; skipping these languages")
    return found


def check_languages(
    plans: Sequence[TaskPlan | FeaturePlan], requested: Sequence[str] | None
) -> None:
    """Reject a requested language that no task has."""
    available = {code for plan in plans for code in plan.languages} | {PIVOT}
    if missing := [code for code in requested or () if code not in available]:
        what = f"no dev or test file in any of {', '.join(plan.name for plan in plans)}"
        found = " ".join(sorted(available))
        raise MetaXLMError(f"--languages {','.join(missing)}: {what}; found: {found}")


def _check_selection(plan: TaskPlan) -> None:
    if plan.settings.epochs == 0:
        return
    how, files = plan.settings.select_by, {(file.split, file.language) for file in plan.files}
    where, hint = f"{plan.data_dir}: {plan.name}", "use the last epoch (--select last)"
    for source in plan.sources if how == "source" else ():
        if files.isdisjoint((("select", source), ("dev", source))):
            what = f"has no dev file for {source} to select the epoch"
            raise MetaXLMError(f"{where} {what}; add it, or {hint}")
    if how == "all" and files.isdisjoint(("dev", language) for language in plan.languages):
        raise MetaXLMError(f"{where} has no dev file to select the epoch; {hint}")


def read_overrides(
    overrides: Sequence[str], tasks: Sequence[str], select: str | None = None
) -> dict[str, dict[str, Any]]:
    """Parse and validate `KEY=VALUE` (for all tasks) and `TASK.KEY=VALUE`, by task."""
    values: dict[str, dict[str, Any]] = {} if select is None else {"": {"select_by": select}}
    for text in overrides:
        name, equals, value = text.partition("=")
        task, _, key = name.strip().rpartition(".")
        where = f"--set {text}"
        if not equals or not key:
            raise MetaXLMError(f"{where}: expected KEY=VALUE, such as epochs=3 or xnli.epochs=3")
        if task and task not in tasks and task not in TASKS:
            raise MetaXLMError(f"{where}: unknown task {task!r}; {suggest(task, tasks)}")
        if key not in _HYPERPARAMETERS:
            raise MetaXLMError(f"{where}: unknown key {key!r}; {suggest(key, _HYPERPARAMETERS)}")
        parsed = parse_yaml(value, where)[1]
        if parsed is None:
            raise MetaXLMError(f"{where}: {key} has no value")
        try:
            checked = getattr(FinetuneRecipe.model_validate({key: parsed}), key)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Value error, ").removeprefix("Input ")
            raise MetaXLMError(f"{where}: {reason}, found {parsed!r}") from None
        if task and task not in tasks:
            say(f"{where}: has no effect, since {task} is not among the tasks")
        else:
            values.setdefault(task, {})[key] = checked
    return values


def group_tasks(plans: Sequence[TaskPlan]) -> list[list[TaskPlan]]:
    """Group tasks that share a finetuned model."""
    groups: dict[tuple[Any, ...], list[TaskPlan]] = {}
    for plan in plans:
        groups.setdefault((plan.task.training, plan.settings, plan.sources), []).append(plan)
    return list(groups.values())


def measure_features(
    encoder: AnyEncoder, plan: FeaturePlan, device: torch.device, limit: int | None = None
) -> tuple[dict[str, Any], dict[str, Tally]]:
    """Score every layer of an encoder; return the job's record and tallies.

    The record has a file per layer and language, and `examples` with sentences for the report. The
    tallies by `name_tally` have a row per sentence pair: found in both directions, and 1; or the
    counts of the alignment error rate.
    """
    measure = _align if plan.name == ALIGNMENT else _retrieve
    files: list[dict[str, Any]] = []
    examples: list[dict[str, Any]] = []
    tallies: dict[str, Tally] = {}
    for language in plan.languages:
        num_pairs, layers, drawn = measure(encoder, plan, language, device, limit)
        for layer, (values, tally) in layers.items():
            place = {"language": language, "layer": layer, "split": "test", "name": "test"}
            counts = {"num_examples": num_pairs, "num_unlabeled": 0}
            files.append({**place, **counts, "values": values})
            tallies[name_tally(language, layer)] = tally
        examples += [{"language": language, **example} for example in drawn]
    info = {**TASK_INFO, **MORE_FEATURES}[plan.name]
    record = {"task": plan.name, "title": info.title, "kind": "features", "metric": info.metric}
    return {**record, "source": PIVOT, "files": files, "examples": examples}, tallies


_Measured = tuple[int, dict[int, tuple[dict[str, float], Tally]], list[dict[str, Any]]]
"""Number of sentence pairs, values and tally of each layer, and examples."""


def _retrieve(
    encoder: AnyEncoder, plan: FeaturePlan, language: str, device: torch.device, limit: int | None
) -> _Measured:
    read = read_flores if plan.name == FLORES else read_tatoeba
    found = read(plan.data_dir, language)
    sentences = replace(found, foreign=found.foreign[:limit], english=found.english[:limit])
    size = plan.settings.batch_tokens
    outcome = measure_retrieval(encoder, sentences, device, batch_tokens=size)
    names = ("accuracy", "accuracy_to_source", "accuracy_from_source")
    layers = {}
    for layer in outcome.layers:
        hits_N2 = layer.hits_N2.double().numpy()
        tally = np.column_stack([hits_N2, np.ones(len(hits_N2))])
        layers[layer.layer] = ({name: getattr(layer, name) for name in names}, tally)
    best = max(outcome.layers, key=lambda layer: layer.accuracy)
    drawn = [{"layer": best.layer, **asdict(example)} for example in best.examples]
    return outcome.num_pairs, layers, drawn


def _align(
    encoder: AnyEncoder, plan: FeaturePlan, language: str, device: torch.device, limit: int | None
) -> _Measured:
    assert isinstance(plan.settings, AlignmentRecipe)
    gold = read_word_alignment(plan.data_dir, language)
    gold = replace(gold, pairs=gold.pairs[:limit])
    size = plan.settings.batch_tokens
    outcome = measure_alignment(encoder, gold, device, batch_tokens=size)
    layers = {}
    for layer in outcome.layers:
        values = {name: getattr(layer.scores, name) for name in ("aer", "precision", "recall")}
        both = zip(gold.pairs, layer.links, strict=True)
        counts = [count_links(pair.sure, pair.possible, links) for pair, links in both]
        layers[layer.layer] = (values, np.array(counts, dtype=np.float64))
    best = min(outcome.layers, key=lambda layer: layer.scores.aer).layer
    drawn = draw_examples(gold, outcome, best, plan.settings.drawn_pairs)
    return outcome.num_pairs, layers, [asdict(example) for example in drawn]


def name_tally(language: str, layer: int) -> str:
    """Return the name of a layer's tally."""
    return f"{language}-{layer}"


def score_sums(task: str, sums: Tally) -> Tally:
    """Return the metric of a task without finetuning from summed tallies [..., counts]."""
    columns = np.moveaxis(sums, -1, 0)
    if task != ALIGNMENT:
        to_source, from_source, pairs = columns
        return np.asarray((to_source + from_source) / (2 * pairs))
    in_sure, in_possible, predicted, sure = columns
    return np.asarray(1 - (in_sure + in_possible) / np.maximum(predicted + sure, 1))
