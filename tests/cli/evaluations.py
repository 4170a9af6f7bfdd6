"""An evaluation at toy size: the options, the command in this process, and what it leaves."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from metaxlm.cli import main
from metaxlm.recipe import PhrasebookRecipe

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
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["metaxlm", "evaluate", *map(str, arguments)])
        main()
    return int(ended.value.code or 0)


def read_rows(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "results.jsonl").read_text("utf-8").splitlines()]


def cell_times(output: Path) -> dict[str, int]:
    """When each cell was written, by its place."""
    cells = sorted((output / "cells").glob("*/*/*/manifest.json"))
    return {str(path.parent.relative_to(output)): path.stat().st_mtime_ns for path in cells}


def model_options(models: Path, names: Sequence[str] = ("one", "two")) -> list[str | Path]:
    return [part for name in names for part in ("--model", models / name)]
