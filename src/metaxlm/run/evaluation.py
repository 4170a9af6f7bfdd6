"""Phase (c): models are finetuned and judged, cell by cell, by `metaxlm run` and `evaluate` alike.

Come in: models and a plan. Goes out: one cell for each model, task, training language and seed
(`cells.py`), only those that are missing. Data are read and encoded once for all seeds and for all
models with equal tokenizers; tasks that share a training set (XQuAD and MLQA) share the training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from metaxlm.errors import Diverged, MetaXLMError
from metaxlm.files import digest_value
from metaxlm.finetune.evaluate import evaluate
from metaxlm.finetune.task import DataFile, Dataset, TaskData, load_data
from metaxlm.finetune.train import Finetuned, train_model
from metaxlm.model.any_encoder import AnyEncoder, save_finetuned
from metaxlm.pretrain.distributed import describe_device
from metaxlm.progress import say
from metaxlm.randomness import derive_seed
from metaxlm.run.cells import Cell, CellContent, CellKey, claim
from metaxlm.run.evaluation_plan import (
    EvaluationPlan,
    FeaturePlan,
    TaskPlan,
    group_tasks,
)
from metaxlm.run.features import FEATURE_TASKS, PIVOT, measure_features
from metaxlm.run.finetuned_cell import make_content, tell
from metaxlm.run.models import NamedModel, open_model
from metaxlm.stopping import check_stop

Loaded = dict[str, tuple[dict[DataFile, Dataset], dict[tuple[str, str], TaskData]]]
"""By tokenizer: the files of a group of tasks that were encoded, and what was put together."""

MODELS_IN_MEMORY = 4
"""Opened models that are kept while tasks take turns."""


@dataclass
class Evaluation:
    """Models, a plan, and a folder of cells that fills up."""

    models: Sequence[NamedModel]
    plan: EvaluationPlan
    output: Path
    device: torch.device
    keeps_models: bool = False
    num_skipped: int = 0
    num_made: int = 0
    is_ready: Callable[[NamedModel], bool] = field(default=lambda _: True)
    """Says whether a model is there already; the cells of others wait."""
    check_stop: Callable[[], None] = field(default=check_stop)
    """Called before each cell; raises what ends the evaluation."""
    failures: dict[str, str] = field(default_factory=dict)
    """Cells whose training went wrong, by title, and how; they are not tried again."""
    _opened: dict[NamedModel, AnyEncoder] = field(default_factory=dict)
    _complete: set[Path] = field(default_factory=set)
    """Cells that were seen complete, and need not be looked at again."""
    _cells: dict[CellKey, Cell] = field(default_factory=dict)
    """What was settled once: a run may look for free cells a thousand times."""
    _checked: set[NamedModel] = field(default_factory=set)
    _told: set[Path] = field(default_factory=set)
    """Cells of which it was said that another process is at them."""

    def run(self) -> None:
        """Make every cell that is missing, damaged, or made from other inputs."""
        for part in self.list_parts():
            part()

    def list_parts(self) -> list[Callable[[], None]]:
        """Return the work in parts that may be done in any order, by several processes at once."""
        self.check_models()
        parts: list[Callable[[], None]] = [
            partial(self._measure, model, feature)
            for feature in self.plan.features
            for model in self.models
        ]
        for group in group_tasks(self.plan.tasks):
            loaded: Loaded = {}
            parts += [
                partial(self._finetune_group, group, source, loaded) for source in group[0].sources
            ]
        return parts

    def list_missing(self) -> list[Cell]:
        """Return the cells that are still to be made, by whomever."""
        return [cell for cell in self.list_cells() if self._is_missing(cell)]

    def find_cell(self, model: NamedModel, plan: TaskPlan, source: str, seed: int) -> Cell:
        """Return a cell of a finetuned task, made or not."""
        key = CellKey(model.name, plan.task.name, source, seed)
        if key not in self._cells:
            inputs = {
                "model": model.fingerprint,
                **plan.list_inputs(source),
                "limit": self.plan.limit,
                "seed": [self.plan.seed, seed],
            }
            self._cells[key] = Cell(key, key.place(self.output), inputs)
        return self._cells[key]

    def find_feature_cell(self, model: NamedModel, plan: FeaturePlan) -> Cell:
        """Return a cell of a task without finetuning, made or not."""
        key = CellKey(model.name, plan.name, PIVOT, 0)
        if key not in self._cells:
            inputs = {"model": model.fingerprint, **plan.list_inputs(), "limit": self.plan.limit}
            self._cells[key] = Cell(key, key.place(self.output), inputs)
        return self._cells[key]

    def list_cells(self) -> list[Cell]:
        """Return all cells that are asked for."""
        features = [
            self.find_feature_cell(model, plan)
            for model in self.models
            for plan in self.plan.features
        ]
        return features + [
            self.find_cell(model, plan, source, seed)
            for model in self.models
            for plan in self.plan.tasks
            for source in plan.sources
            for seed in range(self.plan.num_seeds)
        ]

    def check_models(self) -> None:
        """Open each model that is needed, so that one that does not fit is told at once."""
        unchecked = [model for model in self.models if model not in self._checked]
        for model in filter(self.is_ready, unchecked):
            self._checked.add(model)
            for plan in self.plan.tasks:
                cells = [
                    self.find_cell(model, plan, source, seed)
                    for source in plan.sources
                    for seed in range(self.plan.num_seeds)
                ]
                if all(not self._is_missing(cell) for cell in cells):
                    continue
                positions = self._open(model).encoder.config.max_positions
                if plan.settings.length > positions:
                    raise MetaXLMError(
                        f"{model.name}: has {positions} positions, but {plan.task.name} needs "
                        f"{plan.settings.length}; add --set {plan.task.name}.length={positions}"
                    )

    def _open(self, model: NamedModel) -> AnyEncoder:
        if model not in self._opened:
            if len(self._opened) >= MODELS_IN_MEMORY:
                self._opened.pop(next(iter(self._opened)))
            self._opened[model] = open_model(model)
        return self._opened[model]

    def _is_missing(self, cell: Cell) -> bool:
        if cell.folder in self._complete or cell.key.title in self.failures:
            return False
        if cell.find_reason(needs_model=self._needs_model(cell)) is not None:
            return True
        self._complete.add(cell.folder)
        return False

    def _needs_model(self, cell: Cell) -> bool:
        return self.keeps_models and cell.key.task not in FEATURE_TASKS

    @contextmanager
    def _claim_missing(self, cells: Sequence[Cell]) -> Iterator[list[Cell]]:
        """Hold cells and yield those that must be made; none if another process holds one."""
        self.check_stop()
        if not any(map(self._is_missing, cells)):
            self.num_skipped += len(cells)
            yield []
            return
        with claim([cell.folder for cell in cells]) as owner:
            missing = []
            for cell in cells:
                # What was missing a moment ago may have been made by another process.
                reason = cell.find_reason(needs_model=self._needs_model(cell))
                if reason is None:
                    self.num_skipped += 1
                elif owner is not None:
                    if cell.folder in self._told:
                        continue
                    self._told.add(cell.folder)
                    say(f"{cell.key.title}: process {owner} is at it; left to it")
                else:
                    say(f"{cell.key.title}: {reason}" if reason else cell.key.title)
                    missing.append(cell)
            yield missing
            self.num_made += sum(cell.key.title not in self.failures for cell in missing)

    def _measure(self, model: NamedModel, plan: FeaturePlan) -> None:
        if not self.is_ready(model):
            return
        with self._claim_missing([self.find_feature_cell(model, plan)]) as missing:
            for cell in missing:
                start, began = self._open(model), time.monotonic()
                record, tallies = measure_features(
                    start,
                    plan.data_dir,
                    plan.languages,
                    self.device,
                    plan.settings,
                    self.plan.limit,
                )
                start.encoder.to("cpu")
                about = self._describe(model, cell, time.monotonic() - began)
                cell.write(CellContent({**about, **record}, tallies, {}))

    def _finetune_group(self, group: Sequence[TaskPlan], source: str, loaded: Loaded) -> None:
        """Finetune every model with every seed on one training set."""
        for model in filter(self.is_ready, self.models):
            for seed in range(self.plan.num_seeds):
                by_folder = {}
                for plan in group:
                    cell = self.find_cell(model, plan, source, seed)
                    by_folder[cell.folder] = (plan, cell)
                cells = [cell for _, cell in by_folder.values()]
                with self._claim_missing(cells) as missing:
                    if missing:
                        chosen = [by_folder[cell.folder] for cell in missing]
                        self._try_finetuning(model, chosen, loaded)

    def _try_finetuning(
        self, model: NamedModel, missing: Sequence[tuple[TaskPlan, Cell]], loaded: Loaded
    ) -> None:
        """Finetune; one training that diverges must not keep all others from being made."""
        try:
            self._finetune(model, missing, loaded)
        except Diverged as error:
            for _, cell in missing:
                self.failures[cell.key.title] = str(error)
                say(f"{cell.key.title}: given up, {error}")

    def _finetune(
        self,
        model: NamedModel,
        missing: Sequence[tuple[TaskPlan, Cell]],
        loaded: Loaded,
    ) -> None:
        """Train once, and judge on each of the tasks that share the training."""
        start, began = self._open(model), time.monotonic()
        first, cell = missing[0]
        key = cell.key
        seed = derive_seed(self.plan.seed, f"finetune-{first.training}", key.seed)
        data = [self._load(plan, start, key.source, loaded) for plan, _ in missing]
        trained = train_model(first.task, start, data[0], first.settings, seed, self.device)
        for (plan, cell), its_data in zip(missing, data, strict=True):
            config = start.encoder.config
            scores = evaluate(plan.task, trained.model, its_data, config, self.device)
            about = self._describe(model, cell, time.monotonic() - began)
            content = make_content(about, plan, key.source, trained, scores)
            save = partial(_save_model, plan, trained, start, about)
            cell.write(content, save if self.keeps_models else None)
            tell(cell, content.record)

    def _load(self, plan: TaskPlan, start: AnyEncoder, source: str, loaded: Loaded) -> TaskData:
        """Read and encode; a file once for all seeds, tasks and models with equal tokenizers."""
        config = start.encoder.config
        shape = (config.max_positions, config.vocab_size, config.pad_id, config.num_token_types)
        tokenizer = digest_value([digest_tokenizer(start), *shape])
        parts, sets = loaded.setdefault(tokenizer, ({}, {}))
        key = (plan.task.name, source)
        if key not in sets:
            sets[key] = load_data(
                plan.task,
                start.tokenizer,
                plan.data_dir,
                source=source,
                languages=plan.languages,
                settings=plan.settings,
                config=config,
                limit=self.plan.limit,
                loaded=parts,
            )
        return sets[key]

    def _describe(self, model: NamedModel, cell: Cell, seconds: float) -> dict[str, Any]:
        return {
            "model": model.name,
            "model_source": str(model.source),
            "variant": model.variant,
            "step": model.step,
            "seed": cell.key.seed,
            "limit": self.plan.limit,
            "seconds": round(seconds, 1),
            "device": describe_device(self.device),
        }


def report_failures(evaluations: Iterable[Evaluation]) -> None:
    """Raise an error that tells which cells could not be made, if there are any."""
    found = {title: why for each in evaluations for title, why in each.failures.items()}
    if not found:
        return
    first, why = next(iter(found.items()))
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise MetaXLMError(f"{first}: not made{more}: {why}; all other cells are complete")


def digest_tokenizer(start: AnyEncoder) -> str:
    """Return what is equal for tokenizers that give equal ids."""
    tokenizer = start.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = str(id(tokenizer)) if backend is None else backend.to_str()
    specials = [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.unk_token_id]
    return digest_value([rules, specials, tokenizer.pad_token_id])


def _save_model(
    plan: TaskPlan, trained: Finetuned, start: AnyEncoder, about: dict[str, Any], folder: Path
) -> None:
    save_finetuned(
        trained.model,
        start,
        folder,
        kind=plan.task.kind,
        labels=plan.task.labels,
        length=plan.settings.length,
        stride=plan.settings.stride,
        facts={"task": plan.task.name, **about},
    )
