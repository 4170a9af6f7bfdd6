"""Evaluations at toy size: options, command, and results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metaxlm.recipe import PhrasebookRecipe
from tests.toy_runs import run_main

LANGUAGES = ("en", "de", "ru")
SIZES = PhrasebookRecipe(
    source_sentences=300,
    sentences=200,
    test_pairs=20,
    aligned_pairs=8,
    train_examples=40,
    test_examples=24,
)
QUICK = ("--set", "epochs=1", "--set", "length=64", "--set", "learning_rate=1e-3")
QUICK += ("--device", "cpu")


def run(*arguments: str | Path) -> int:
    return run_main("evaluate", *arguments)


def read_rows(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "results.jsonl").read_text("utf-8").splitlines()]


def job_times(output: Path) -> dict[str, int]:
    """Return the modification time of each job by its place."""
    jobs = sorted((output / "cells").glob("*/*/*/manifest.json"))
    return {str(path.parent.relative_to(output)): path.stat().st_mtime_ns for path in jobs}


def model_options(models: Path, names: Sequence[str] = ("one", "two")) -> list[str | Path]:
    return [part for name in names for part in ("--model", models / name)]
