"""A run stopped at many moments prints how to continue, and ends like an undisturbed one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from signal import SIGINT
from typing import Any

import pytest
from tests.faults.programs import run_program
from tests.faults.stopped_runs import End, Moment

from metaxlm.data.demo import write_phrasebook
from metaxlm.data.text import read_sentences, seal_text
from metaxlm.files import digest_file
from metaxlm.pretrain.checkpoint import step_name
from metaxlm.recipe import PhrasebookRecipe

LANGUAGES = ["en", "de"]
SIZES = PhrasebookRecipe(
    source_sentences=400,
    sentences=300,
    test_pairs=20,
    aligned_pairs=20,
    train_examples=40,
    test_examples=10,
)
STEPS = 8
RECIPE = """\
name: toy
languages: [en, de]
corpus: {{source: text, path: {data}/raw, task_mb: 1, cleaning: {{language: false}}}}
engine: {{workers: 2}}
vocabulary: {{size: 300, monolingual_size: 400}}
model: {{layers: 1, hidden: 16, heads: 2, ffn: 32, max_positions: 32}}
meta: &training
  {{steps: 8, batch_size: 4, length: 32, warmup_steps: 2, checkpoint_every: 4, log_every: 2}}
pretraining: *training
variants: {{metaxlm: {{initialize: both}}}}
evaluation:
  data: {data}/tasks
  finetune: {{udpos: {{epochs: 1, length: 32, seeds: 2}}}}
"""

TASKS = "metaxlm.data.executors:wait"
PIECES = "metaxlm.vocab.unigram"
LOOP = "metaxlm.pretrain.loop"
BATCHES = "metaxlm.pretrain.batches.source"
TRAINING = "metaxlm.run.training"
CELLS = "metaxlm.run.evaluation"
LINE = re.compile(r"metaxlm: (.+: )?stopped( after step \d+)?; the same command continues\n")
TIMES = {"seconds", "tokens_per_second", "peak_share", "log", "files", "sha256", "seal"}
"""Keys of JSON objects that hold times, or digests of files with times in them."""
TIMED = ("index", "report", "training", "cost-stages", "cost-evaluation")
"""Names of the files of the report that show times."""
# In the order of the run: each start continues until the next moment.
MOMENTS = [
    Moment("import typer", "typer"),
    Moment("import numpy", "numpy", number=SIGINT),
    Moment("within numpy's import", "numpy.linalg"),
    Moment("import torch", "torch", number=SIGINT, group=True),
    Moment("within torch's import", "torch.nn"),
    Moment("import transformers", "transformers", number=SIGINT),
    Moment("recipe is read", "metaxlm.recipe.recipe_file:load_recipe", after=True),
    Moment("run is planned", "metaxlm.cli.run:Work.plan", after=True),
    Moment("corpus: start", "metaxlm.run.stages:prepare_corpus", number=SIGINT),
    Moment("corpus: workers, whole group", TASKS, group=True),
    Moment("corpus: between rounds", "metaxlm.data.pipeline:_deduplicate"),
    Moment("corpus: before the last round", "metaxlm.data.pipeline:_split", number=SIGINT),
    Moment("corpus: assembly", "metaxlm.data.pipeline:_assemble"),
    Moment("between stages", "metaxlm.run.stage:Stage.run", call=2),
    Moment("vocabulary: SentencePiece reads", f"{PIECES}:_feed", group=True),
    Moment("vocabulary: SentencePiece trains", f"{PIECES}:_wait_for_seeds", number=SIGINT),
    Moment("vocabulary: rounds, whole group", f"{PIECES}:_show_rounds", group=True),
    Moment("vocabulary: byte-level BPE", "metaxlm.run.prepare:train_byte_bpe"),
    Moment("shards: workers, whole group", TASKS, call=5, number=SIGINT, group=True),
    Moment("shards: almost complete", "metaxlm.run.stage:_describe"),
    Moment("meta: before the loop", f"{LOOP}:_resume", number=SIGINT),
    Moment("meta: in the loop", f"{BATCHES}:Prefetcher.get", step=2),
    Moment("meta: checkpoint is written", "metaxlm.pretrain.checkpoint:save_checkpoint"),
    Moment("meta: last step", f"{BATCHES}:Prefetcher.get", step=STEPS - 1),
    Moment("meta: model is written", f"{TRAINING}:save_pretrained", number=SIGINT),
    Moment("initialize: start", "metaxlm.run.stages:initialize_variant"),
    Moment("initialize: rows are copied", f"{TRAINING}:initialize", number=SIGINT),
    Moment("pretrain: in the loop", f"{BATCHES}:Prefetcher.get", step=3, number=SIGINT),
    Moment("pretrain: after the last save", f"{LOOP}:_save", step=STEPS, after=True),
    Moment("pretrain: almost complete", "metaxlm.run.stage:_describe"),
    Moment("evaluation: retrieval", "metaxlm.run.task_plans:measure_features", number=SIGINT),
    Moment("evaluation: a cell is complete", "metaxlm.run.jobs:EvalJob.write", after=True),
    Moment("evaluation: finetuning", "metaxlm.finetune.trainer:FinetuneStep.take", call=2),
    Moment("evaluation: scoring", f"{CELLS}:evaluate", call=2, number=SIGINT),
    Moment("results are collected", "metaxlm.cli.run:collect_results"),
    Moment("report: figures", "metaxlm.analysis.style:render_svg", number=SIGINT),
    Moment("report: complete", "metaxlm.cli.run:show_summary"),
]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe of all stages, on files of the user."""
    data = tmp_path_factory.mktemp("data")
    write_phrasebook(data, LANGUAGES, 1, SIZES)
    (data / "raw").mkdir()
    for language in LANGUAGES:
        seal_text(data / "text" / language)
        lines = read_sentences(data / "text" / language)
        (data / "raw" / f"{language}.txt").write_text("\n".join(lines), encoding="utf-8")
    path = data / "toy.yaml"
    path.write_text(RECIPE.format(data=data), encoding="utf-8")
    return path


def test_moments_name_functions_that_exist() -> None:
    for moment in MOMENTS:
        module, _, name = moment.place.partition(":")
        if name:
            assert attrgetter(name)(import_module(module)), moment.name


def run(recipe: Path, folder: Path, moments: Sequence[Moment]) -> list[End]:
    """Start the recipe once for each moment and once more; return how each start ended."""
    folder.mkdir(exist_ok=True)
    fields = json.dumps([asdict(moment) for moment in moments])
    return [End(**end) for end in run_program("stopped_runs", recipe, folder, fields)]


def read_outputs(folder: Path) -> dict[str, Any]:
    """Return all files of a run but locks, earlier checkpoints and durations."""
    root = folder / "runs"
    found: dict[str, Any] = {}
    newest = step_name(STEPS)
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        is_earlier = any(part.startswith("step-") and part != newest for part in path.parts)
        is_skipped = is_earlier or path.name.startswith(".lock") or "tensorboard" in path.parts
        if path.is_dir() or is_skipped:
            continue
        if path.suffix in (".json", ".jsonl"):
            lines = [path.read_text("utf-8")]
            lines = lines[0].splitlines() if path.suffix == ".jsonl" else lines
            found[name] = [drop_times(json.loads(line)) for line in lines]
        else:
            found[name] = None if path.stem in TIMED else digest_file(path)
    return found


def drop_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: drop_times(item) for key, item in value.items() if key not in TIMES}
    return [drop_times(item) for item in value] if isinstance(value, list) else value


@pytest.mark.faults
def test_a_run_stopped_everywhere_ends_like_an_undisturbed_one(
    recipe: Path, tmp_path: Path
) -> None:
    [whole] = run(recipe, tmp_path / "whole", [])
    assert (whole.code, whole.errors) == (0, "")
    *stops, end = run(recipe, tmp_path / "stopped", MOMENTS)
    wrong = []
    for moment, stop in zip(MOMENTS, stops, strict=True):
        times = f"{stop.seconds or -1:.1f} s of {stop.total_s:.1f} s"
        print(f"| {moment.name} | {stop.code} | {stop.errors.strip()} | {times} |")
        if stop.seconds is None or stop.code != 75 or stop.left or not LINE.fullmatch(stop.errors):
            wrong.append((moment.name, stop))
    assert not wrong
    assert (end.code, end.errors) == (0, "")
    assert read_outputs(tmp_path / "stopped") == read_outputs(tmp_path / "whole")
