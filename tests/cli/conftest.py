"""All task data of the built-in corpus in three languages, and two tiny models for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from metaxlm.data.demo import write_phrasebook
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.model.huggingface import save_pretrained
from metaxlm.vocab.unigram import train_unigram
from tests.cli.evaluations import LANGUAGES, QUICK, SIZES, model_options


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
    config = EncoderConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        ffn_size=32,
        max_positions=64,
    )
    for seed, name in enumerate(("one", "two")):
        torch.manual_seed(seed)
        save_pretrained(MaskedLM(config).eval(), tokenizer, folder / name, "# test\n")
    return folder


@pytest.fixture
def small(models: Path, data: Path, tmp_path: Path) -> list[str | Path]:
    """The options of a quick evaluation of one model."""
    options = [*model_options(models, ["one"]), "--data", data, "--output", tmp_path / "out"]
    return [*options, *QUICK, "--limit", "8"]
