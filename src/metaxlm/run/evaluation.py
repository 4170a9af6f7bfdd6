"""Finetune and evaluate models: the missing jobs (`jobs.py`) of one plan (`task_plans.py`).

Data is read and encoded once for all seeds and for all models with equal tokenizers. Tasks that
share a training set (XQuAD and MLQA) share the finetuned model.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from metaxlm.analysis.results import has_learned
from metaxlm.errors import Diverged, MetaXLMError
from metaxlm.files import digest_value
from metaxlm.finetune.task import DataFile, Dataset, TaskData, load_data
from metaxlm.finetune.trainer import FileScores, Finetuned, evaluate, train_model
from metaxlm.init.dictionaries import load_dictionaries
from metaxlm.model.any_encoder import AnyEncoder, find_label_rows, save_finetuned
from metaxlm.model.front_matter import PIPELINES, Score
from metaxlm.model.huggingface import CLASS_ENDINGS
from metaxlm.pretrain.code_switching import Switching
from metaxlm.pretrain.distributed import describe_device
from metaxlm.progress import say
from metaxlm.randomness import derive_seed
from metaxlm.run import task_plans
from metaxlm.run.fingerprints import FileFingerprints
from metaxlm.run.jobs import EvalJob, JobKey, claim
from metaxlm.run.models import NamedModel, open_model
from metaxlm.run.switch_table import build_switch_table
from metaxlm.run.task_plans import (
    EvaluationPlan,
    FeaturePlan,
    TaskPlan,
)
from metaxlm.stopping import check_stop

Loaded = dict[str, tuple[dict[DataFile, Dataset], dict[tuple[str, str], TaskData]]]
"""By tokenizer: the encoded files of a group of tasks, and the data sets made of them."""
Part = Callable[[], int]  # a part of the work that returns the number of jobs it ran

MODELS_IN_MEMORY = 4


@dataclass
class Evaluation:
    """Run the jobs of some models and one plan."""

    models: Sequence[NamedModel]
    plan: EvaluationPlan
    output: Path
    device: torch.device
    files: FileFingerprints = field(default_factory=FileFingerprints)
    keeps_models: bool = False
    is_ready: Callable[[NamedModel], bool] = lambda _: True  # the jobs of other models wait
    check_stop: Callable[[], None] = check_stop  # called before each job; raises to end
    failures: dict[str, str] = field(default_factory=dict)  # messages of failed jobs by title
    _complete: set[Path] = field(default_factory=set)  # folders of jobs
    _reported: set[Path] = field(default_factory=set)  # jobs that run in another process
    _checked: set[NamedModel] = field(default_factory=set)
    _switchings: dict[tuple[str, str, float], Switching] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Keep a few opened models in memory."""
        self._open = lru_cache(MODELS_IN_MEMORY)(open_model)

    @cached_property
    def jobs(self) -> dict[JobKey, EvalJob]:
        """All jobs by key; computed once, because it checks all input files."""
        inputs: dict[JobKey, dict[str, Any]] = {}
        limit = {"limit": self.plan.limit}
        for model in self.models:
            for feature in self.plan.features:
                key = JobKey(model.name, feature.name, task_plans.PIVOT, 0)
                facts = feature.list_inputs(self.files)
                inputs[key] = {"model": model.fingerprint, **facts, **limit}
        for model in self.models:
            for plan in self.plan.tasks:
                for source in plan.sources:
                    facts = plan.list_inputs(source, self.files) | self._list_dictionaries(plan)
                    for seed in range(self.plan.num_seeds):
                        key = JobKey(model.name, plan.name, source, seed)
                        seeds = {"seed": [self.plan.seed, seed]}
                        inputs[key] = {"model": model.fingerprint, **facts, **limit, **seeds}
        return {key: EvalJob(key, key.place(self.output), facts) for key, facts in inputs.items()}

    def _list_dictionaries(self, plan: TaskPlan) -> dict[str, Any]:
        if not plan.settings.switch:
            return {}
        files = self.files.list_folder(self.plan.dictionaries, "dictionaries")
        languages = None if self.plan.switched is None else list(self.plan.switched)
        return {"dictionaries": files, "switched": languages}

    def run(self) -> None:
        """Run every job that is missing, damaged, or made from other inputs."""
        for part in self.list_parts():
            part()

    def list_parts(self) -> list[Part]:
        """Return the work in parts that several processes may run in any order."""
        self.check_models()
        pairs = product(self.plan.features, self.models)
        parts: list[Part] = [partial(self._measure, model, feature) for feature, model in pairs]
        for group in task_plans.group_tasks(self.plan.tasks):
            finetune = partial(self._finetune_group, group, {})
            parts += [partial(finetune, source) for source in group[0].sources]
        return parts

    def list_missing(self) -> list[EvalJob]:
        """Return the jobs that are not complete."""
        return [job for job in self.jobs.values() if self._is_missing(job)]

    def check_models(self) -> None:
        """Reject models with too few positions for a missing job, before anything is trained."""
        unchecked = [model for model in self.models if model not in self._checked]
        for model in filter(self.is_ready, unchecked):
            self._checked.add(model)
            for plan in self.plan.tasks:
                mine = (model.name, plan.name)
                jobs = [job for key, job in self.jobs.items() if (key.model, key.task) == mine]
                if not any(map(self._is_missing, jobs)):
                    continue
                positions = self._open(model).encoder.config.max_positions
                if (needed := plan.settings.length) > positions:
                    what = f"has {positions} positions, but {plan.name} needs {needed}"
                    fix = f"add --set {plan.name}.length={positions}"
                    raise MetaXLMError(f"{model.name}: {what}; {fix}")
                if plan.settings.epochs == 0:
                    find_label_rows(self._open(model), plan.task.kind, plan.task.labels)

    def _is_missing(self, job: EvalJob) -> bool:
        if job.folder in self._complete or job.key.title in self.failures:
            return False
        if job.find_reason(needs_model=self._needs_model(job)) is not None:
            return True
        self._complete.add(job.folder)
        return False

    def _needs_model(self, job: EvalJob) -> bool:
        return self.keeps_models and job.key.task not in task_plans.FEATURE_TASKS

    @contextmanager
    def _claim_missing(self, jobs: Sequence[EvalJob]) -> Iterator[list[EvalJob]]:
        """Lock jobs and yield the missing ones; none if another process has locked one."""
        self.check_stop()
        if not any(map(self._is_missing, jobs)):
            yield []
            return
        with claim([job.folder for job in jobs]) as owner:
            missing = []
            for job in jobs:
                # Another process may have finished the job in the meantime.
                reason = job.find_reason(needs_model=self._needs_model(job))
                if reason is None:
                    continue
                if owner is None:
                    say(f"{job.key.title}: {reason}" if reason else job.key.title)
                    missing.append(job)
                elif job.folder not in self._reported:
                    self._reported.add(job.folder)
                    say(f"{job.key.title}: already running in process {owner}; skipping")
            yield missing

    def _measure(self, model: NamedModel, plan: FeaturePlan) -> int:
        if not self.is_ready(model):
            return 0
        job = self.jobs[JobKey(model.name, plan.name, task_plans.PIVOT, 0)]
        with self._claim_missing([job]) as missing:
            if missing:
                encoder, start, limit = self._open(model), time.monotonic(), self.plan.limit
                record, tallies = task_plans.measure_features(encoder, plan, self.device, limit)
                encoder.encoder.to("cpu")
                about = self._describe(model, job, time.monotonic() - start)
                job.write({**about, **record}, tallies)
        return len(missing)

    def _finetune_group(self, group: Sequence[TaskPlan], loaded: Loaded, source: str) -> int:
        num_made = 0
        plans = {plan.name: plan for plan in group}
        ready = filter(self.is_ready, self.models)
        for model, seed in product(ready, range(self.plan.num_seeds)):
            jobs = [self.jobs[JobKey(model.name, name, source, seed)] for name in plans]
            with self._claim_missing(jobs) as missing:
                if not missing:
                    continue
                try:
                    self._finetune(model, [(plans[job.key.task], job) for job in missing], loaded)
                    num_made += len(missing)
                except Diverged as error:  # other jobs go on
                    for job in missing:
                        self.failures[job.key.title] = str(error)
                        say(f"{job.key.title}: failed, {error}")
        return num_made

    def _finetune(
        self, model: NamedModel, missing: Sequence[tuple[TaskPlan, EvalJob]], loaded: Loaded
    ) -> None:
        """Finetune once, and evaluate on each of the tasks that share the training set."""
        encoder, start = self._open(model), time.monotonic()
        first, key = missing[0][0], missing[0][1].key
        seed = derive_seed(self.plan.seed, f"finetune-{first.task.training}", key.seed)
        data = [self._load(plan, encoder, key.source, loaded) for plan, _ in missing]
        switching = self._find_switching(encoder, key.source, first.settings.switch)
        trained = train_model(
            first.task, encoder, data[0], first.settings, seed, self.device, switching
        )
        for (plan, job), its_data in zip(missing, data, strict=True):
            config = encoder.encoder.config
            scores = evaluate(plan.task, trained.model, its_data, config, self.device)
            about = self._describe(model, job, time.monotonic() - start)
            record = about | _describe_result(plan, key.source, trained, scores)
            places = [(f"{found.file.split}-{found.file.language}", found) for found in scores]
            suffix = plan.task.submission_suffix
            save = partial(
                save_finetuned,
                trained.model,
                encoder,
                kind=plan.task.kind,
                problem=plan.task.problem,
                labels=plan.task.labels,
                length=plan.settings.length,
                stride=plan.settings.stride,
                facts={"task": plan.name, **about},
                scores=_list_scores(plan, scores),
            )
            job.write(
                record,
                {place: found.tally for place, found in places if found.num_examples},
                {f"{place}{suffix}": found.submission for place, found in places},
                save if self.keeps_models else None,
            )
            _log_scores(job, record)

    def _load(self, plan: TaskPlan, encoder: AnyEncoder, source: str, loaded: Loaded) -> TaskData:
        """Read and encode data; each file once for all seeds, tasks and equal tokenizers."""
        config, tokenizer = encoder.encoder.config, encoder.tokenizer
        files, sets = loaded.setdefault(_digest_tokenizer(encoder), ({}, {}))
        key = (plan.name, source)
        if key not in sets:
            sets[key] = load_data(
                plan.task,
                tokenizer,
                plan.data_dir,
                source=source,
                languages=plan.languages,
                settings=plan.settings,
                config=config,
                limit=self.plan.limit,
                loaded=files,
            )
        return sets[key]

    def _find_switching(
        self, encoder: AnyEncoder, language: str, probability: float
    ) -> Switching | None:
        """Return the switching of words of a language; made once for equal tokenizers."""
        if probability == 0:
            return None
        assert self.plan.dictionaries is not None
        key = (_digest_tokenizer(encoder), language, probability)
        if key not in self._switchings:
            folder, languages = self.plan.dictionaries, self.plan.switched
            dictionaries = load_dictionaries(folder, languages, language)
            table = build_switch_table(dictionaries, encoder.tokenizer)
            count = table.count_pieces()[language]
            if not count:
                raise MetaXLMError(
                    f"{folder}: no word of {language!r} has a translation where both are single "
                    "tokens of the model's vocabulary; finetune without `switch`"
                )
            say(f"{language}: {count:,} tokens may switch into another language")
            self._switchings[key] = Switching(table, encoder.tokenizer, probability)
        return self._switchings[key]

    def _describe(self, model: NamedModel, job: EvalJob, seconds: float) -> dict[str, Any]:
        facts = {"model": model.name, "model_source": str(model.source), "variant": model.variant}
        numbers = {"step": model.step, "seed": job.key.seed, "limit": self.plan.limit}
        device = describe_device(self.device)
        return {**facts, **numbers, "seconds": round(seconds, 1), "device": device}


def _digest_tokenizer(encoder: AnyEncoder) -> str:
    """Return a digest of everything that decides how texts are encoded."""
    config, tokenizer = encoder.encoder.config, encoder.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = str(id(tokenizer)) if backend is None else backend.to_str()
    specials = [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.unk_token_id]
    shape = (config.max_positions, config.vocab_size, config.pad_id, config.num_token_types)
    return digest_value([rules, specials, tokenizer.pad_token_id, *shape])


def raise_failures(evaluations: Iterable[Evaluation]) -> None:
    """Raise an error that names the failed jobs, if there are any."""
    failures = {title: why for each in evaluations for title, why in each.failures.items()}
    if failures:
        first, why = next(iter(failures.items()))
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise MetaXLMError(f"{first}: failed{more}: {why}; all other jobs are complete")


def _describe_result(
    plan: TaskPlan, source: str, trained: Finetuned, scores: Sequence[FileScores]
) -> dict[str, Any]:
    task = plan.task
    counts = ("num_examples", "num_unlabeled", "values", "majority", "chance")
    files = []
    for found in scores:
        place = {name: getattr(found.file, name) for name in ("language", "split", "name")}
        place["path"] = str(found.file.path)
        shown = {"confusion": found.confusion} if found.confusion else {}
        files.append(place | {name: getattr(found, name) for name in counts} | shown)
    return {
        "task": task.name,
        **{name: getattr(task, name) for name in ("title", "kind", "metric")},
        **({"labels": list(task.labels)} if any(found.confusion for found in scores) else {}),
        "source": source,
        "trained_in_each": len(task.sources) > 1,
        "settings": plan.settings.describe(),
        "best_epoch": trained.best_epoch,
        "epochs": [asdict(epoch) for epoch in trained.epochs],
        "files": files,
    }


def _list_scores(plan: TaskPlan, scores: Sequence[FileScores]) -> list[Score]:
    """Return the scores of the model card: those of test sets, or of other sets without them."""
    metric, kind = plan.task.metric, PIPELINES[CLASS_ENDINGS[plan.task.kind]]
    known = [found for found in scores if metric in found.values]
    tests = [found for found in known if found.file.split == "test"]
    return [
        Score(plan.name, one.file.language, metric, one.values[metric], one.file.split, kind=kind)
        for one in tests or known
    ]


def _log_scores(job: EvalJob, record: Mapping[str, Any]) -> None:
    """Log the mean score over languages; warn if the model did not learn the task."""
    title, metric, files = job.key.title, record["metric"], record["files"]
    scored = [file for file in files if metric in file["values"]]
    for file in scored:
        baselines = [file[name][metric] for name in ("majority", "chance") if metric in file[name]]
        value = file["values"][metric]
        if file["language"] == record["source"] and not has_learned(value, *baselines):
            say(
                f"{title}: learned nothing: {metric} {100 * value:.1f} in the training language "
                f"{record['source']}, baseline {100 * max(baselines, default=0.0):.1f}; if other "
                "seeds learn the task, this one collapsed: lower learning_rate or increase warmup"
            )
            break
    for split in ("test", "dev"):
        if values := [file["values"][metric] for file in scored if file["split"] == split]:
            mean = f"{100 * sum(values) / len(values):.1f}"
            say(f"{title}: {metric} {mean}, mean over {len(values)} {split} files")
            return
    say(f"{title}: no file has labels; predictions are written, but not scored")
