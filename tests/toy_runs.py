"""One small recipe for many tests, and runs of it in this process or in another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from metaxlm.cli import main
from metaxlm.data import executors, pipeline

SIZES = {
    "source_sentences": 300, "sentences": 200, "test_pairs": 12, "aligned_pairs": 8,
    "train_examples": 40, "test_examples": 8,
}  # fmt: skip
TRAINING = {
    "steps": 12, "batch_size": 8, "length": 32, "learning_rate": 3e-3, "warmup_steps": 2,
    "checkpoint_every": 4, "log_every": 2,
}  # fmt: skip
TOY: dict[str, Any] = {
    "name": "toy",
    "languages": ["en", "de"],
    "corpus": {"phrasebook": SIZES},
    "vocabulary": {"size": 400, "monolingual_size": 400},
    "model": {"layers": 1, "hidden": 16, "heads": 2, "ffn": 32, "max_positions": 64},
    "meta": TRAINING,
    "pretraining": TRAINING,
    "variants": {"xlm": {"initialize": "none"}, "metaxlm": {"initialize": "both"}},
    "evaluation": {"finetune": {"udpos": {"epochs": 1, "learning_rate": 1e-3, "length": 32}}},
}


def make_toy(training: dict[str, Any] | None = None, **changes: Any) -> str:
    """Return the YAML of the toy recipe.

    `training` changes both training phases. Other dicts are merged into their section, except for
    `variants` and `evaluation`, which are replaced.
    """
    values = dict(TOY)
    for phase in ("meta", "pretraining"):
        values[phase] = TRAINING | (training or {})
    for key, value in changes.items():
        is_merged = isinstance(value, dict) and key not in ("corpus", "variants", "evaluation")
        values[key] = values[key] | value if is_merged else value
    return yaml.safe_dump(values, sort_keys=False)


def write_toy(folder: Path, *arguments: Any, **changes: Any) -> Path:
    """Write `toy.yaml` in a folder."""
    path = folder / "toy.yaml"
    path.write_text(make_toy(*arguments, **changes), encoding="utf-8")
    return path


def command(folder: Path, *more: str, recipe: str = "toy.yaml") -> list[str]:
    """Return the command line of a run in a folder, with the name of the module first."""
    place = ["--output", str(folder / "runs"), "--device", "cpu"]
    return ["metaxlm", "run", str(folder / recipe), *place, *more]


def run(folder: Path, *more: str, recipe: str = "toy.yaml") -> int:
    """Run the recipe in this process; return the exit code."""
    return run_main(*command(folder, *more, recipe=recipe)[1:])


def run_main(*arguments: str | Path, workers: bool = False) -> int:
    """Run the command line in this process; return the exit code.

    Without `workers`, the tasks of a corpus run here too: starting processes for a small corpus
    takes longer than the rest of its run.
    """
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["metaxlm", *map(str, arguments)])
        if not workers:
            patch.setattr(executors, "_run_local", _run_here)
        main()
    return int(ended.value.code or 0)


def _run_here(tasks: executors._Tasks, ranks: Sequence[int], *_: object) -> list[Exception]:
    pipeline._open_writer.cache_clear()  # as in new processes
    errors: list[Exception] = []
    for rank in ranks:
        marker = tasks.work_dir / "completions" / f"{rank:05d}"
        try:
            executors._run_task(tasks.function, tasks.items[rank], marker)
        except Exception as error:
            errors.append(error)
    return errors


def start(folder: Path, *more: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start the recipe in another process with one thread."""
    return subprocess.Popen(
        [sys.executable, "-m", *command(folder, *more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )
