"""Fixtures that many tests share: a little text, tokenizers trained on it, shards of it."""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast, PreTrainedTokenizerBase

from metaxlm.data.shards import Shard, open_shard, write_shard
from metaxlm.progress import set_quiet
from metaxlm.vocab.tokenizer import train_byte_bpe
from metaxlm.vocab.unigram import train_unigram
from tests.commands import Command
from tests.damage import make_run

# Started in the background, as by a scheduler, a process ignores Ctrl-C, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

_ROOT = Path(__file__).parent

PARTS = {
    "en": (
        ["the cat", "a dog", "my sister", "the old man"],
        ["sees", "likes", "finds", "does not see"],
        ["a house", "the red book", "some bread", "the river at night"],
    ),
    "de": (
        ["die Katze", "ein Hund", "meine Schwester", "der alte Mann"],
        ["sieht", "mag", "findet", "kennt"],
        ["ein Haus", "das rote Buch", "etwas Brot", "den Fluss bei Nacht"],
    ),
    "ru": (
        ["кошка", "собака", "моя сестра", "старик"],
        ["видит", "любит", "находит", "не видит"],
        ["дом", "красную книгу", "хлеб", "реку ночью"],
    ),
}


WORDS = "cat dog sister man sees likes finds house red book bread river night old"


Shards = dict[str, Shard]


def sentences(language: str) -> list[str]:
    """All 64 sentences of a language, in a fixed order."""
    return [" ".join(parts) + "." for parts in itertools.product(*PARTS[language])]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with whole runs: a file is one process's, and the last ones should be short."""
    long = ("run", "finetune", "pretrain", "cli", "faults", "model")
    items.sort(key=lambda item: item.path.parts[len(_ROOT.parts)] not in long)


@pytest.fixture(autouse=True)
def speaking() -> None:
    """A command that was run with --quiet in this process must not silence the next test."""
    set_quiet(False)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """The suite runs in two processes on two cores."""
    torch.set_num_threads(1)
    yield


@pytest.fixture(scope="session")
def multilingual_tokenizer() -> PreTrainedTokenizerBase:
    lines = [line for language in PARTS for line in sentences(language)]
    return train_unigram(iter(lines), 110)


@pytest.fixture(scope="session")
def tokenizer(multilingual_tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    return multilingual_tokenizer


@pytest.fixture(scope="session")
def monolingual_tokenizer() -> PreTrainedTokenizerBase:
    return train_byte_bpe(iter(sentences("en")), 320)


@pytest.fixture(scope="session")
def shards(
    tmp_path_factory: pytest.TempPathFactory, multilingual_tokenizer: PreTrainedTokenizerBase
) -> Shards:
    """Shards of the three languages; English is twice as large."""
    folder: Path = tmp_path_factory.mktemp("shards")
    for language in PARTS:
        repeated = sentences(language) * (2 if language == "en" else 1)
        write_shard(folder / language, repeated, multilingual_tokenizer)
    return {language: open_shard(folder / language) for language in PARTS}


def make_encoder(folder: Path) -> None:
    """Write an uncased BERT without a head, whose vocabulary is a list of words and letters."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), *letters]
    words += [f"##{letter}" for letter in letters]
    path = folder.with_suffix(".txt")
    path.write_text("\n".join(words), encoding="utf-8")
    tokenizer = BertTokenizerFast(vocab=str(path))
    torch.manual_seed(1)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    sizes |= {"vocab_size": len(words), "hidden_size": 16, "max_position_embeddings": 64}
    BertModel(BertConfig(**sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "bert"
    make_encoder(folder)
    return folder


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, `runs/toy` in the folder of its recipe; only for tests that read it."""
    return make_run(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def copied(toy_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run and its recipe that a test may change."""
    shutil.copytree(toy_run.parents[1], tmp_path, dirs_exist_ok=True)
    return tmp_path / "runs" / "toy"


@pytest.fixture
def metaxlm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)
