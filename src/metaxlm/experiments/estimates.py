"""How long stages and cells will take, guessed before they start.

Comes in: a recipe, what earlier runs recorded (`past_runs.py`), what cells compute (`workload.py`),
and a few steps timed on this device. Goes out: seconds, with what they rest on; nothing where
nothing is known. Section 4.1 of the paper tells the cost of its own runs only afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from metaxlm.config import Recipe, TrainingRecipe
from metaxlm.data.readers.streams import find_compression
from metaxlm.experiments.evaluation_plan import FeaturePlan, TaskPlan
from metaxlm.experiments.features import PIVOT
from metaxlm.experiments.past_runs import PastRuns, PastStage, count_weights, mean_seconds
from metaxlm.experiments.workload import Counter, Workload
from metaxlm.model.encoder import EncoderConfig
from metaxlm.pretraining.cost import (
    count_parameters,
    count_slots,
    count_step_flops,
    step_flops,
)
from metaxlm.pretraining.device import describe_device
from metaxlm.pretraining.measure import DoesNotFit, measure_step

Basis = Literal["measured", "recorded", "computed", "usual", "unknown"]
"""Steps or text timed now; seconds of earlier runs; FLOPs at a measured rate; rates of the
project's own measurements, on other machines; nothing."""

_LIMIT_S = 10.0
"""How long the measurement of one shape of finetuning may take."""
_STEPS = 5
_COMPRESSED = 4
"""Bytes of text in a byte of a compressed file, about."""
# Seconds of one core a byte of text, and of starting workers, also for each language: as measured
# for docs/results/corpus.md.
_READ_S, _TOKENIZE_S = 0.16e-6, 0.13e-6
_START_S, _LANGUAGE_START_S = 1.5, 0.08
# Vocabularies of the built-in corpus, in seconds; sentences of real text are longer.
_VOCABULARY_S, _SENTENCE_S = 2.0, 2e-5
# A row of the shared vocabulary to match, a byte of a model to write.
_MATCH_S, _WRITE_S = 2e-5, 3e-9
_LANGUAGE_S = {"cpu": 0.02, "cuda": 0.5}
"""Seconds a language of retrieval beyond the encoder's own; an H200 spends them on new shapes."""
_LINK_S = {"cpu": 5e-4, "cuda": 1e-4}
"""Seconds of optimal transport for a sentence pair and a layer."""
_START_CELL_S = {"cpu": 0.0, "cuda": 1.0}


@dataclass(frozen=True)
class Estimate:
    """Seconds of a piece of work; None where nothing is known."""

    seconds: float | None = None
    basis: Basis = "unknown"


UNKNOWN = Estimate()
NOTHING = Estimate(0.0, "measured")


@dataclass(frozen=True)
class Pace:
    """How fast an encoder is trained on a device: seconds a step, however small, and FLOP/s."""

    step_s: float
    rate: float

    def time_steps(self, steps: float, flops: float) -> float:
        """Return the seconds of so many steps with so many FLOPs in all."""
        return steps * self.step_s + flops / self.rate


def measure_pace(config: EncoderConfig, device: torch.device) -> Pace | None:
    """Time a tiny step and one of finetuning's size; None if memory is short."""
    sizes = ((1, 8), (32, min(64, config.max_positions)))
    points = []
    for rows, length in sizes:
        recipe = TrainingRecipe(batch_size=rows, length=length, mask_probability=0.01)
        try:
            found = measure_step(config, recipe, device, _STEPS, limit_s=_LIMIT_S)
        except DoesNotFit:
            return None
        flops = count_step_flops(config, rows, length, count_slots(recipe, rows))
        points.append((flops, found.seconds))
    return fit_pace(*points)


def fit_pace(few: tuple[float, float], many: tuple[float, float]) -> Pace:
    """Draw a line through the (FLOPs, seconds) of two steps; noise must not make work free."""
    per_flop = (many[1] - few[1]) / (many[0] - few[0])
    per_flop = max(per_flop, 0.1 * many[1] / many[0])
    return Pace(max(0.0, few[1] - per_flop * few[0]), 1 / per_flop)


def estimate_training(
    config: EncoderConfig,
    recipe: TrainingRecipe,
    seconds_per_step: float,
    steps_left: int,
    num_languages: int,
    *,
    frozen_body: bool = False,
) -> Estimate:
    """Return what is left of a training, with its measurements on held-out blocks.

    The step was timed with a body that moves; a frozen one is cheaper by its FLOPs.
    """
    rounds = -(-steps_left // recipe.evaluate_every)
    predictions = count_slots(recipe, 1)
    block, step = (
        count_step_flops(config, rows, recipe.length, rows * predictions)
        for rows in (1, recipe.batch_size)
    )
    # A forward pass alone is a third of a step's FLOPs.
    held_out = rounds * recipe.held_out * num_languages * block / step / 3
    share = step_flops(config, recipe, frozen_body=frozen_body) / step_flops(config, recipe)
    return Estimate((steps_left * share + held_out) * seconds_per_step, "measured")


@dataclass(frozen=True)
class Preparation:
    """The stages that train nothing."""

    recipe: Recipe
    past: PastRuns
    raw_bytes: int
    """Files of the corpus, as they would be without compression; 0 for the built-in one."""
    text_bytes: int
    """Prepared text; 0 if nobody knows."""
    sampled_s: float | None = None
    """How long the built-in corpus took just now."""

    def estimate(self, name: str, variant: str | None, config: EncoderConfig) -> Estimate:
        """Return what a stage will take."""
        if name == "corpus":
            return self._estimate_corpus()
        if name == "vocabulary":
            return self._estimate_vocabulary()
        if name == "shards":
            return self._estimate_shards()
        if name == "initialize" and variant is not None:
            return self._estimate_initialization(variant, config)
        assert name == "meta", name  # of an encoder that is imported: read it, write it
        return Estimate(2 * _WRITE_S * 4 * count_parameters(config), "usual")

    def _estimate_corpus(self) -> Estimate:
        if self.sampled_s is not None:
            return Estimate(self.sampled_s, "measured")
        values = self.recipe.corpus.model_dump(mode="json")

        def fits(stage: PastStage) -> bool:
            return self._is_alike(stage, "corpus", values, "path", "phrasebook")

        alike = self.past.find_stages("corpus", fits)
        sizes = [(s.seconds, count_bytes(s.inputs.get("files", []))) for s in alike]
        if found := [seconds * self.raw_bytes / size for seconds, size in sizes if size]:
            return _as_recorded(found)
        if self.recipe.corpus.source == "dump":
            return UNKNOWN  # wikitext is parsed, at a rate that no real dump has shown yet
        return self._use_cores(_READ_S, self.raw_bytes)

    def _estimate_vocabulary(self) -> Estimate:
        values = self.recipe.vocabulary.model_dump(mode="json")
        alike = self.past.find_stages(
            "vocabulary",
            lambda stage: self._is_alike(stage, "vocabulary", values) and bool(stage.text_bytes),
        )
        if alike and self.text_bytes:
            return _as_recorded([s.seconds * self.text_bytes / s.text_bytes for s in alike])
        if self.recipe.corpus.source != "phrasebook" or self.recipe.vocabulary.model:
            return UNKNOWN
        return Estimate(_VOCABULARY_S + _SENTENCE_S * _count_sentences(self.recipe), "usual")

    def _estimate_shards(self) -> Estimate:
        alike = self.past.find_stages("shards", lambda stage: bool(stage.text_bytes))
        if not self.text_bytes:
            return UNKNOWN
        if alike:
            return _as_recorded([s.seconds * self.text_bytes / s.text_bytes for s in alike])
        return self._use_cores(_TOKENIZE_S, self.text_bytes)

    def _estimate_initialization(self, variant: str, config: EncoderConfig) -> Estimate:
        start = self.recipe.variants[variant]
        model = self.recipe.model.model_dump(mode="json")

        def fits(stage: PastStage) -> bool:
            then = stage.inputs.get("variant", {})
            same = then.get("dictionaries") == start.dictionaries
            same &= ("matching" in stage.inputs) == start.needs_source
            vocabularies = (stage.recipe.vocabulary.size, self.recipe.vocabulary.size)
            return same and stage.inputs.get("model") == model and len(set(vocabularies)) == 1

        if alike := self.past.find_stages("initialize", fits):
            return _as_recorded([stage.seconds for stage in alike])
        matching = _MATCH_S * config.vocab_size if start.needs_source else 0
        return Estimate(matching + _WRITE_S * 4 * count_parameters(config), "usual")

    def _use_cores(self, core_s: float, size: int) -> Estimate:
        engine = self.recipe.engine
        if engine.name != "local":
            return UNKNOWN
        # Imported here: a machine that gets finished shards has nothing that prepares them.
        from metaxlm.data.executors import count_cores

        cores = engine.workers or count_cores()
        start = _START_S + _LANGUAGE_START_S * len(self.recipe.languages)
        return Estimate(start + core_s * size / cores, "usual")

    @staticmethod
    def _is_alike(stage: PastStage, key: str, values: dict[str, Any], *but: str) -> bool:
        then = stage.inputs.get(key, {})
        return all(then.get(name) == value for name, value in values.items() if name not in but)


@dataclass
class CellClock:
    """Guesses what cells take: from cells like them, else from what they compute."""

    recipe: Recipe
    run: Path
    past: PastRuns
    counter: Counter
    config: EncoderConfig
    device: torch.device
    _features: dict[tuple[str, tuple[str, ...]], Estimate] = field(default_factory=dict)

    @cached_property
    def pace(self) -> Pace | None:
        """How fast this device trains; measured when first asked."""
        return measure_pace(self.config, self.device)

    def estimate_group(self, plans: Sequence[TaskPlan], source: str) -> list[Estimate]:
        """Return the time of each of the tasks that one training serves; the first one trains."""
        found: list[Estimate] = []
        for number, plan in enumerate(plans):
            recorded = self._find_recorded(plan.task.name, source, plan.settings.epochs)
            if recorded is None:
                count = self.counter.count_judging if number else self.counter.count_task
                found.append(self._compute(count(plan, source)))
            else:
                # A cell records all since the training began, also its fellows' judging.
                before = sum(estimate.seconds or 0.0 for estimate in found)
                found.append(Estimate(max(0.0, recorded - before), "recorded"))
        return found

    def estimate_feature(self, plan: FeaturePlan) -> Estimate:
        """Return the time of a cell without finetuning."""
        key = (plan.name, plan.languages)
        if key not in self._features:
            recorded = self._find_recorded(plan.name, PIVOT, None)
            self._features[key] = (
                self._compute(self.counter.count_feature(plan))
                if recorded is None
                else Estimate(recorded, "recorded")
            )
        return self._features[key]

    def _find_recorded(self, task: str, source: str, epochs: int | None) -> float | None:
        device = describe_device(self.device)
        weights = count_weights(self.recipe.model)
        return mean_seconds(
            [
                cell.seconds * weights / cell.weights * (epochs or 1) / (cell.epochs or 1)
                for cell in self.past.find_cells(self.run, task, source, device)
            ]
        )

    def _compute(self, work: Workload) -> Estimate:
        if self.pace is None:
            return UNKNOWN
        kind, length = self.device.type, max(1, round(work.length))
        per_token = count_step_flops(self.config, 1, length, 0) / length
        flops = per_token * (work.trained + work.judged / 3)
        seconds = _START_CELL_S[kind] + self.pace.time_steps(work.steps, flops)
        seconds += work.retrieved * _LANGUAGE_S[kind]
        seconds += work.linked * (self.config.num_layers + 1) * _LINK_S[kind]
        return Estimate(seconds, "computed")


def count_bytes(files: Sequence[Sequence[Any]]) -> int:
    """Return the bytes of text in files, each given as its path, its size and more."""
    return sum(
        int(size) * (_COMPRESSED if find_compression(Path(path)) else 1) for path, size, *_ in files
    )


def _count_sentences(recipe: Recipe) -> int:
    sizes = recipe.corpus.phrasebook
    return sizes.source_sentences + sizes.sentences * (len(recipe.languages) - 1)


def _as_recorded(values: Sequence[float]) -> Estimate:
    return Estimate(mean_seconds(values), "recorded")
