"""Phase (c): evaluate the models of a recipe, for `metaxlm run`.

`Grid` has all jobs of a recipe (its variants, kept steps and `evaluation.grid`), which any number
of processes may run. The jobs of a model wait until its pretraining is complete.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch

from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_value
from metaxlm.finetune.catalog import TASKS
from metaxlm.manifest import MARKER, read_sealed
from metaxlm.pretrain.checkpoint import step_name
from metaxlm.pretrain.loop import STEPS
from metaxlm.progress import say
from metaxlm.recipe import FinetuneRecipe, GridRecipe, Recipe, name_encoder
from metaxlm.recipe.schema import ENCODER, find_trained, name_switched
from metaxlm.run import task_plans
from metaxlm.run.evaluation import Evaluation
from metaxlm.run.fingerprints import FileFingerprints
from metaxlm.run.jobs import EvalJob, FinishedJob, keep_current, list_jobs
from metaxlm.run.layout import RunLayout
from metaxlm.run.models import NamedModel
from metaxlm.run.stage import Stage
from metaxlm.run.task_plans import (
    ALIGNMENT,
    RETRIEVAL,
    EvaluationPlan,
    TaskOverrides,
    TaskPlan,
)
from metaxlm.run.variant_encoders import has_pairs
from metaxlm.stopping import check_stop

POLL_S = 2.0  # seconds between two checks for work that other processes have finished
_NUM_STARTS = 8  # number of positions in the list of parts at which processes start


@dataclass
class Grid:
    """All evaluation jobs of a recipe."""

    recipe: Recipe
    layout: RunLayout
    stages: Mapping[str, Stage]
    """The pretraining stage of each variant to evaluate, and the stage of its sentence encoder."""
    device: torch.device
    files: FileFingerprints = field(default_factory=FileFingerprints)
    check_stop: Callable[[], None] = check_stop
    _planned: dict[tuple[str, str], TaskPlan] = field(default_factory=dict)
    """Plans by task and settings, so that blocks with equal settings log missing files once."""

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """One evaluation per block and number of seeds; needs the task data, not the models."""
        evaluations = [
            Evaluation(
                models,
                replace(plan, dictionaries=folder),
                self.layout.root,
                self.device,
                self.files,
                is_ready=lambda model: self.stages[find_trained(model.variant)].is_complete(),
                check_stop=self.check_stop,
            )
            for block in list_blocks(self.recipe)
            for plan in self._plan(block)
            for folder, models in self._group_models(block, plan).items()
        ]
        fingerprints: dict[Path, str] = {}
        for job in chain.from_iterable(each.jobs.values() for each in evaluations):
            if fingerprints.setdefault(job.folder, job.fingerprint) != job.fingerprint:
                what = f"two blocks name {job.key.title} with other languages or settings"
                raise MetaXLMError(f"evaluation.grid: {what}; remove it from one of them")
        return evaluations

    def work(self, should_stop: Callable[[], bool] = lambda: False) -> int:
        """Run missing jobs that are not locked and whose model exists; return their number."""
        parts = list(chain.from_iterable(each.list_parts() for each in self.evaluations))
        # Processes start at different parts, so that few read the same data at the same time.
        first = _find_worker_number() * len(parts) // _NUM_STARTS % max(1, len(parts))
        num_made = 0
        for part in [*parts[first:], *parts[:first]]:
            if should_stop():
                break
            num_made += part()
        return num_made

    def finish(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Work until all jobs are complete, including those of other processes."""
        while self.list_missing() and not should_stop():
            if not self.work(should_stop):
                time.sleep(POLL_S)

    def list_missing(self) -> list[EvalJob]:
        """Return the jobs that are not complete, each once."""
        jobs = chain.from_iterable(each.list_missing() for each in self.evaluations)
        return list({job.folder: job for job in jobs}.values())

    def list_jobs(self) -> list[EvalJob]:
        """Return all jobs of the recipe, each once; raise an error if task data is missing."""
        jobs = chain.from_iterable(each.jobs.values() for each in self.evaluations)
        return list({job.folder: job for job in jobs}.values())

    def read_jobs(self) -> list[FinishedJob]:
        """Return the finished jobs of this recipe and of others that share the run folder.

        Jobs that evaluated an earlier model of a variant are left out.
        """
        jobs = {job.folder: job for job in self.list_jobs()}
        found, problems = list_jobs(self.layout.root)
        current = [
            finished
            for finished in found
            if (job := jobs.get(finished.folder)) is None
            or job.has_fingerprint(finished.origin, finished.metaxlm)
            if finished.inputs["model"] == self._read_fingerprint(finished.record)
        ]
        kept, notes = keep_current(current, jobs.values())
        for line in [*problems, *notes]:
            say(line)
        place = {name: number for number, name in enumerate(self.recipe.variants)}

        def find_place(job: FinishedJob) -> tuple[int, bool]:
            name = find_trained(job.record["variant"])
            return place.get(name, len(place)), name != job.record["variant"]

        return sorted(kept, key=find_place)

    def _read_fingerprint(self, record: Mapping[str, Any]) -> str:
        """Return the current fingerprint of a job's model; empty if the model is gone."""
        variant = find_trained(record["variant"])
        folder = self.layout.variant(variant) / "model"
        if variant.endswith(ENCODER):
            folder = self.layout.encoder(variant.removesuffix(ENCODER))
        marker = folder / MARKER
        found = read_sealed(marker) if marker.is_file() else {}
        return digest_value([found["fingerprint"], record["step"]]) if found else ""

    def _group_models(
        self, block: GridRecipe, plan: EvaluationPlan
    ) -> dict[Path | None, list[NamedModel]]:
        """Group the models of a block by the dictionaries of their switched words."""
        is_switched = any(task.settings.switch for task in plan.tasks)
        groups: dict[Path | None, list[NamedModel]] = {}
        for model in self._list_models(block, plan):
            folder = None
            if is_switched:
                variant = self.recipe.variants[find_trained(model.variant)]
                found = self.recipe.find_matching(variant).dictionaries
                folder = found or self.layout.tasks / "muse"
            groups.setdefault(folder, []).append(model)
        return groups

    def _list_models(self, block: GridRecipe, plan: EvaluationPlan) -> list[NamedModel]:
        """Return the models of a block, which need not exist yet.

        Sentence encoders are measured as they are, and not finetuned.
        """
        training = self.recipe.pretraining
        steps = [*(training.list_kept() if block.steps == "kept" else []), training.steps]
        variants = self.recipe.variants if block.variants is None else block.variants
        models = []
        for variant, step in product((name for name in variants if name in self.stages), steps):
            row = name_switched(variant, block.switch) if block.switch else variant
            name, folder = row, self.layout.variant(variant) / "model"
            if step != training.steps:
                name, folder = f"{row}-step-{step}", folder.parent / STEPS / step_name(step)
            fingerprint = digest_value([self.stages[variant].fingerprint, step])
            models.append(NamedModel(name, folder, step, row, fingerprint))
        for variant in self.recipe.list_encoders() if plan.features else ():
            name, step = name_encoder(variant), training.steps
            if variant in variants and name in self.stages:
                fingerprint = digest_value([self.stages[name].fingerprint, step])
                folder = self.layout.encoder(variant)
                models.append(NamedModel(name, folder, step, name, fingerprint))
        return models

    def _plan(self, block: GridRecipe) -> list[EvaluationPlan]:
        """Plan a block: one plan per number of seeds that its tasks have."""
        measures, seed = self.recipe.evaluation, self.recipe.seed
        data_dir = measures.data or self.layout.tasks
        tasks, features = task_plans.choose_tasks(block.tasks)
        by_seeds: dict[int, list[TaskPlan]] = {}
        for task in tasks:
            settings = measures.finetune.get(task.name, FinetuneRecipe())
            values = settings.model_dump(exclude={"seeds"}, exclude_none=True)
            if block.switch:
                values["switch"] = block.switch
            overrides = TaskOverrides(block.languages, block.sources, {task.name: values})
            key = (task.name, repr(overrides))
            if key not in self._planned:
                self._planned[key] = task_plans.plan_task(task, data_dir, overrides)
            by_seeds.setdefault(block.seeds or settings.seeds, []).append(self._planned[key])
        chosen = {RETRIEVAL: measures.retrieval, ALIGNMENT: measures.alignment}
        measured = tuple(
            task_plans.plan_features(
                name, data_dir, TaskOverrides(block.languages), chosen.get(name)
            )
            for name in features
        )
        plans = [EvaluationPlan((), measured, seed=seed)] if measured else []
        return plans + [
            EvaluationPlan(
                tuple(found),
                num_seeds=num_seeds,
                seed=seed,
                switched=tuple(self.recipe.languages),
            )
            for num_seeds, found in by_seeds.items()
        ]


def _find_worker_number() -> int:
    """Return this process's number among those that were started together; 0 if it is alone."""
    for name in ("RANK", "SLURM_ARRAY_TASK_ID", "SLURM_PROCID"):
        if (number := os.environ.get(name, "")).isdecimal():
            return int(number)
    return 0


def list_blocks(recipe: Recipe) -> Sequence[GridRecipe]:
    """Return the recipe's blocks; by default one with all tasks on every variant."""
    measures = recipe.evaluation
    features = {RETRIEVAL: measures.retrieval, ALIGNMENT: measures.alignment}
    tasks = [*(name for name, settings in features.items() if settings), *measures.finetune]
    if measures.grid or not tasks:
        return measures.grid
    sources = [recipe.source_language]
    return [GridRecipe(tasks=tasks, languages=recipe.languages, sources=sources)]


def list_evaluated(recipe: Recipe) -> list[str]:
    """Return the variants that some block names, in the recipe's order; all without blocks."""
    blocks = list_blocks(recipe)
    named = {name for block in blocks for name in block.variants or recipe.variants}
    return [name for name in recipe.variants if name in named or not blocks]


def check_recipe(recipe: Recipe, variants: Sequence[str]) -> None:
    """Reject unknown variants and tasks and missing folders before any work."""
    for name in variants:
        if name not in (known := recipe.variants):
            raise MetaXLMError(f"--variant {name}: not in the recipe, which has {', '.join(known)}")
    for name in recipe.evaluation.finetune:
        if name not in TASKS:
            where = f"evaluation.finetune.{name}"
            raise MetaXLMError(f"{where}: unknown task; known: {', '.join(TASKS)}")
    for block in list_blocks(recipe):
        _, features = task_plans.choose_tasks(block.tasks)
        if block.switch and features:
            what = f"{features[0]} is not finetuned, so it has no switched words"
            raise MetaXLMError(f"evaluation.grid: {what}; name it in a block without `switch`")
    if recipe.corpus.source == "phrasebook":
        return
    if recipe.evaluation.data is None and list_blocks(recipe):
        raise MetaXLMError(
            "evaluation.data is not set; name the folder with tatoeba/, wordalign/, xnli/ and so "
            "on, or set retrieval and alignment to null"
        )
    if recipe.list_encoders() and not has_pairs(recipe):
        raise MetaXLMError(
            "sentences: no source of pairs; set sentences.dictionaries, matching.dictionaries or "
            "sentences.parallel"
        )
    everywhere = any(each.switch for each in recipe.evaluation.finetune.values())
    switched = {
        name
        for block in list_blocks(recipe)
        if block.switch or everywhere
        for name in block.variants or recipe.variants
    }
    if any(recipe.find_matching(recipe.variants[name]).dictionaries is None for name in switched):
        raise MetaXLMError(
            "evaluation: `switch` needs word lists, but matching.dictionaries names no folder; set "
            "it to a folder of MUSE files such as en-de.txt"
        )
    for variant in recipe.variants.values():
        uses_dictionaries = variant.dictionaries or variant.switch or variant.grow
        if uses_dictionaries and recipe.find_matching(variant).dictionaries is None:
            raise MetaXLMError(
                "a variant has `dictionaries: true`, `switch` or `grow`, but matching.dictionaries "
                "names no folder; set it to a folder of MUSE files such as en-de.txt"
            )
