"""All task data of the built-in corpus in three languages, and two tiny models for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from metaxlm.data.demo import write_phrasebook
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.huggingface import save_pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.recipe import PhrasebookRecipe
from metaxlm.vocab.unigram import train_unigram
from tests.toy_runs import run_main

LANGUAGES = ("en", "de", "ru")
SIZES = PhrasebookRecipe(
    source_sentences=300, sentences=200, test_pairs=20, aligned_pairs=8,
    train_examples=40, test_examples=24,
)  # fmt: skip
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


@pytest.fixture(scope="session")
def task_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "corpus"
    write_phrasebook(folder, LANGUAGES, 3, SIZES)
    return folder


@pytest.fixture(scope="session")
def data(task_corpus: Path) -> Path:
    return task_corpus / "tasks"


@pytest.fixture(scope="session")
def models(task_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two random encoders, `one` and `two`, of one tokenizer."""
    folder = tmp_path_factory.mktemp("models")
    texts = [(task_corpus / f"text/{code}/00000.txt").read_text("utf-8") for code in LANGUAGES]
    lines = [line for text in texts for line in text.splitlines() if line]
    tokenizer = train_unigram(iter(lines), 400)
    config = EncoderConfig(len(tokenizer), 16, 1, 2, 32, max_positions=64)
    for seed, name in enumerate(("one", "two")):
        torch.manual_seed(seed)
        save_pretrained(MaskedLM(config).eval(), tokenizer, folder / name, "# test\n")
    return folder


@pytest.fixture
def small(models: Path, data: Path, tmp_path: Path) -> list[str | Path]:
    """The options of a quick evaluation of one model."""
    options = [*model_options(models, ["one"]), "--data", data, "--output", tmp_path / "out"]
    return [*options, *QUICK, "--limit", "8"]
