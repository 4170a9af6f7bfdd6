"""What an evaluation will do, settled before anything is trained.

Come in: names of tasks, a data folder, languages, overrides of the paper's hyperparameters. Goes
out: for each task its files, languages, training languages and settings, or the one line that says
what is missing.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.catalog import TASKS, find_tasks
from metaxlm.finetune.custom import load_custom_task
from metaxlm.finetune.task import DataFile, FinetuneSettings, Task
from metaxlm.progress import say
from metaxlm.recipe import FinetuneRecipe
from metaxlm.recipe.load import parse_yaml
from metaxlm.run.features import FEATURE_TASKS, USUAL_SETTINGS, FeatureSettings
from metaxlm.run.user_files import UserFiles

AnyTask = Task[Any, Any]
DATA = "data"
"""What the files of tasks are among those of the user."""
_KEYS = tuple(key for key in FinetuneRecipe.model_fields if key != "seeds")
"""Hyperparameters that `--set` may change."""


@dataclass(frozen=True)
class TaskPlan:
    """One finetuned task: what is read, and how it is trained."""

    task: AnyTask
    settings: FinetuneSettings
    sources: tuple[str, ...]
    """Languages to train in, one at a time."""
    languages: tuple[str, ...]
    """Languages to test in; each has a dev or a test file."""
    data_dir: Path
    files: tuple[DataFile, ...]
    """All files of the task."""
    known: UserFiles = field(default_factory=UserFiles, compare=False, repr=False)
    """Tells a file from one that was read before."""

    @property
    def training(self) -> str:
        """Name what is trained: the task, or the training set that it shares with others."""
        return self.task.training

    def shares_training(self, other: TaskPlan) -> bool:
        """Say whether one finetuned model serves both tasks."""
        return self.training == other.training and all(
            getattr(self, name) == getattr(other, name) for name in ("settings", "sources")
        )

    def list_inputs(self, source: str) -> dict[str, Any]:
        """Return what decides the scores of a training, as JSON values."""
        task = self.task
        facts = {
            "name": task.name,
            "kind": task.kind,
            "labels": list(task.labels),
            "metric": task.metric,
            "reading": task.reading,
        }
        used = [file for file in self.files if self._uses(file, source)]
        return {
            "task": facts,
            "source": source,
            "settings": asdict(self.settings),
            "languages": list(self.languages),
            "files": [
                [file.name, file.language, *self.known.identify(path, self.data_dir, DATA)]
                for file in used
                for path in file.paths
            ],
        }

    def _uses(self, file: DataFile, source: str) -> bool:
        if file.language == source and file.split in ("train", "select", "dev"):
            return True
        return file.language in self.languages and file.split in ("dev", "test")


@dataclass(frozen=True)
class FeaturePlan:
    """One task without finetuning."""

    name: str
    languages: tuple[str, ...]
    data_dir: Path
    settings: FeatureSettings
    known: UserFiles = field(default_factory=UserFiles, compare=False, repr=False)

    def list_inputs(self) -> dict[str, Any]:
        """Return what decides its scores, as JSON values."""
        folder = {"alignment": "wordalign"}.get(self.name, self.name)
        paths = sorted(path for path in (self.data_dir / folder).rglob("*") if path.is_file())
        files = [self.known.identify(path, self.data_dir, DATA) for path in paths]
        return {
            "task": self.name,
            "languages": list(self.languages),
            "settings": self.settings.model_dump(mode="json"),
            "tallies": True,
            "files": files,
        }


@dataclass(frozen=True)
class EvaluationPlan:
    """Everything that is asked for but the models."""

    tasks: tuple[TaskPlan, ...]
    features: tuple[FeaturePlan, ...] = ()
    num_seeds: int = 1
    seed: int = 1
    """Decides all draws, with the number of the seed."""
    limit: int | None = None
    """Take the first so many examples of each file."""


@dataclass(frozen=True)
class Wishes:
    """What the user says of a task; what is left out is the paper's."""

    languages: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Hyperparameters by the task's name; under the empty name those for all tasks."""


def choose_tasks(names: Sequence[str]) -> tuple[list[AnyTask], list[str]]:
    """Return the finetuned tasks and those without finetuning: names, groups, own YAML files."""
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
        known = ", ".join([*TASKS, *FEATURE_TASKS])
        raise MetaXLMError(f"--task: names no task; known: {known}")
    return list(tasks.values()), features


def plan_task(
    task: AnyTask, data_dir: Path, wishes: Wishes, known: UserFiles | None = None
) -> TaskPlan:
    """Settle one finetuned task, or say what is missing."""
    given = {**wishes.values.get("", {}), **wishes.values.get(task.name, {})}
    settings = replace(task.settings, **given)
    files = tuple(task.list_files(data_dir))
    there = list(dict.fromkeys(file.language for file in files if file.split in ("dev", "test")))
    languages = choose_languages(task.name, task.languages, there, wishes.languages, data_dir)
    sources = _choose_sources(task, files, wishes.sources, data_dir)
    known = known or UserFiles()
    plan = TaskPlan(task, settings, tuple(sources), tuple(languages), data_dir, files, known)
    _check_selection(plan)
    return plan


def plan_features(
    name: str,
    data_dir: Path,
    wishes: Wishes,
    settings: FeatureSettings | None = None,
    known: UserFiles | None = None,
) -> FeaturePlan:
    """Settle one task without finetuning."""
    there = FEATURE_TASKS[name](data_dir)
    wanted = wishes.languages and tuple(code for code in wishes.languages if code != "en")
    languages = choose_languages(name, there, there, wanted, data_dir)
    settings = settings or USUAL_SETTINGS[name]
    return FeaturePlan(name, tuple(languages), data_dir, settings, known or UserFiles())


def choose_languages(
    name: str,
    known: Sequence[str],
    there: Sequence[str],
    wanted: Sequence[str] | None,
    data_dir: Path,
) -> list[str]:
    """Return the languages to test; say which have no file, and refuse if none has."""
    asked = known if wanted is None else wanted
    found = [code for code in asked if code in there]
    if not found:
        raise MetaXLMError(
            f"{data_dir}: no dev or test file of {name} for {' '.join(asked) or 'any language'}; "
            f"found here: {' '.join(there) or 'nothing'} (`metaxlm data check` shows the layouts)"
        )
    if missing := [code for code in asked if code not in there]:
        say(f"{name}: no dev or test file for {' '.join(missing)}; not tested there")
    return found


def check_languages(plans: Sequence[TaskPlan | FeaturePlan], wanted: Sequence[str] | None) -> None:
    """Refuse a language that was asked for and that no task has."""
    there = {code for plan in plans for code in plan.languages} | {"en"}
    if lost := [code for code in wanted or () if code not in there]:
        names = ", ".join(
            plan.name if isinstance(plan, FeaturePlan) else plan.task.name for plan in plans
        )
        raise MetaXLMError(
            f"--languages {','.join(lost)}: no dev or test file in any of {names}; "
            f"there is {' '.join(sorted(there))}"
        )


def _choose_sources(
    task: AnyTask, files: Sequence[DataFile], wanted: Sequence[str] | None, data_dir: Path
) -> list[str]:
    there = [file.language for file in files if file.split == "train"]
    asked = task.sources if wanted is None else wanted
    missing = [code for code in asked if code not in there]
    found = [code for code in asked if code in there]
    if (missing and wanted is not None) or not found:
        raise MetaXLMError(
            f"{data_dir}: no training file of {task.name} for {' '.join(missing)}; found here: "
            f"{' '.join(there) or 'nothing'} (`metaxlm data check` shows the layouts)"
        )
    if missing:
        say(f"{task.name}: no training file for {' '.join(missing)}; not trained there")
    return found


def _check_selection(plan: TaskPlan) -> None:
    """Refuse a selection of epochs for which there is no file, before anything is trained."""
    how, name = plan.settings.select_by, plan.task.name
    places = {(file.split, file.language) for file in plan.files}
    hint = "take the last epoch (--select last)"
    if how == "source":
        for source in plan.sources:
            if ("select", source) not in places and ("dev", source) not in places:
                raise MetaXLMError(
                    f"{plan.data_dir}: {name} has no dev file for {source}, which must pick the "
                    f"epoch; add it, or {hint}"
                )
    if how == "all" and not any(("dev", language) in places for language in plan.languages):
        raise MetaXLMError(f"{plan.data_dir}: {name} has no dev file to pick an epoch; {hint}")


def read_overrides(
    overrides: Sequence[str], tasks: Sequence[str], select: str | None = None
) -> dict[str, dict[str, Any]]:
    """Read `KEY=VALUE` (for all tasks) and `TASK.KEY=VALUE`, checked, into values by task."""
    values: dict[str, dict[str, Any]] = {}
    if select is not None:
        values[""] = {"select_by": _check_value("--select", "select_by", select)}
    for text in overrides:
        name, equals, value = text.partition("=")
        task, _, key = name.strip().rpartition(".")
        where = f"--set {text}"
        if not equals or not key:
            raise MetaXLMError(f"{where}: expected KEY=VALUE, such as epochs=3 or xnli.epochs=3")
        if task and task not in tasks and task not in TASKS:
            raise MetaXLMError(f"{where}: {_suggest('task', task, tasks)}")
        if key not in _KEYS:
            raise MetaXLMError(f"{where}: {_suggest('key', key, _KEYS)}")
        _, parsed = parse_yaml(value, where)
        checked = _check_value(where, key, parsed)
        if task and task not in tasks:
            say(f"{where}: has no effect, since {task} is not among the tasks")
        else:
            values.setdefault(task, {})[key] = checked
    return values


def _check_value(where: str, key: str, value: Any) -> Any:
    """Check a hyperparameter as the recipe does."""
    if value is None:
        raise MetaXLMError(f"{where}: {key} has no value")
    try:
        return getattr(FinetuneRecipe.model_validate({key: value}), key)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ").removeprefix("Input ")
        raise MetaXLMError(f"{where}: {reason}, found {value!r}") from None


def _suggest(what: str, found: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(found, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
    return f"unknown {what} {found!r}; {hint}"


def group_tasks(plans: Sequence[TaskPlan]) -> list[list[TaskPlan]]:
    """Put tasks together that one finetuned model serves."""
    groups: list[list[TaskPlan]] = []
    for plan in plans:
        for group in groups:
            if group[0].shares_training(plan):
                group.append(plan)
                break
        else:
            groups.append([plan])
    return groups
