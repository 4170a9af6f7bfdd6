"""Every command rejects model folders with code, and does not run it."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metaxlm.init.ledger import LEDGER
from tests.commands import Command
from tests.conftest import sentences
from tests.toy_runs import write_toy

CODE = """
from pathlib import Path

from transformers import BertConfig as OwnConfig
from transformers import BertTokenizerFast as OwnTokenizer

Path({sentinel!r}).touch()
"""
ANSWERS = "y\n1\nyes\n"
"""Answers that would run the code if a prompt read standard input."""
HOSTILE, GOOD = "hostile", "good"

COMMANDS = {
    "match --from": "match --from hostile --to good --output out",
    "match --to": "match --from good --to hostile --output out",
    "match explain": "match explain dogcat hostile",
    "trim --model": "trim --model hostile --corpus text --output out",
    "trim --tokenizer": "trim --tokenizer hostile --corpus text --output out",
    "evaluate": "evaluate --model hostile --task tatoeba --data data --output out",
    "embed": "embed --model hostile --input text/en.txt --output out.npy",
    "export": "export --model hostile --output out",
    "retrieve": "retrieve --model hostile --queries text/de.txt --keys text/en.txt",
    "mine": "mine --model hostile --source text/en.txt --target text/de.txt --output out.tsv",
    "align": "align --model hostile --input pairs.txt --output out.txt",
    "plan, meta": "plan toy.yaml --no-measure --set meta.model=hostile",
    "plan, vocabulary": "plan toy.yaml --no-measure --set vocabulary.model=hostile",
    "doctor, meta": "doctor toy.yaml --set meta.model=hostile",
    "doctor, vocabulary": "doctor toy.yaml --set vocabulary.model=hostile",
    "run, meta": "run toy.yaml --set meta.model=hostile",
    "run, vocabulary": "run toy.yaml --set vocabulary.model=hostile",
    "run --dry, meta": "run toy.yaml --dry --set meta.model=hostile",
    "run --dry, vocabulary": "run toy.yaml --dry --set vocabulary.model=hostile",
}


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def map_tokenizer(folder: Path) -> None:
    """Map the tokenizer of a family without one: transformers would ask whether to run it."""
    edit(folder / "config.json", model_type="eurobert")
    edit(
        folder / "tokenizer_config.json",
        tokenizer_class="OwnTokenizer",
        auto_map={"AutoTokenizer": [None, "own.OwnTokenizer"]},
    )


def map_config(folder: Path) -> None:
    edit(folder / "config.json", model_type="own", auto_map={"AutoConfig": "own.OwnConfig"})


def map_list(folder: Path) -> None:
    """Use the older form of a tokenizer's auto_map with a known model."""
    edit(folder / "tokenizer_config.json", auto_map=["own.OwnTokenizer", None])


def nest(folder: Path) -> None:
    edit(folder / "config.json", text_config={"sub": [{"auto_map": {"AutoModel": "own.Model"}}]})


def name_tokenizer(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", tokenizer_class="own.OwnTokenizer")


def name_pipeline(folder: Path) -> None:
    edit(folder / "config.json", custom_pipelines={"mine": {"impl": "own.OwnPipeline"}})


def name_module(folder: Path) -> None:
    module = {"idx": 0, "name": "0", "path": "", "type": "own.OwnTransformer"}
    (folder / "modules.json").write_text(json.dumps([module]))


KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "auto_map": (map_tokenizer, "tokenizer_config.json: `tokenizer_class` asks for code"),
    "auto_map of config.json": (map_config, "hostile/config.json: `auto_map` asks for code"),
    "a list in auto_map": (map_list, "tokenizer_config.json: `auto_map` asks for code"),
    "a nested auto_map": (nest, "hostile/config.json: `auto_map` asks for code"),
    "tokenizer_class": (name_tokenizer, "`tokenizer_class` asks for code"),
    "custom_pipelines": (name_pipeline, "`custom_pipelines` asks for code"),
    "modules.json": (name_module, "modules.json: `type: own.OwnTransformer` asks for code"),
}


class Place:
    """A folder with a good model, a hostile copy of it, text and a recipe."""

    def __init__(self, folder: Path, encoder: Path) -> None:
        self.sentinel = folder / "it_ran"
        shutil.copytree(encoder, folder / GOOD)
        self.hostile = Path(shutil.copytree(encoder, folder / HOSTILE))
        edit(self.hostile / "config.json", architectures=["BertForSequenceClassification"])
        (self.hostile / "own.py").write_text(CODE.format(sentinel=str(self.sentinel)))
        (folder / "text").mkdir()
        (folder / "data/tatoeba").mkdir(parents=True)
        for language, code in (("en", "eng"), ("de", "deu")):
            text = "\n".join(sentences(language)) + "\n"
            (folder / f"text/{language}.txt").write_text(text)
            (folder / f"data/tatoeba/tatoeba.deu-eng.{code}").write_text(text)
        (folder / "pairs.txt").write_text("the cat ||| die Katze\n")
        write_toy(folder, variants={"metaxlm": {"initialize": "both"}})


@pytest.fixture
def place(tmp_path: Path, encoder: Path) -> Place:
    return Place(tmp_path, encoder)


def check_rejection(
    metaxlm: Command, place: Place, patch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    before = set(metaxlm.folder.rglob("*"))
    answers = io.StringIO(ANSWERS)
    patch.setattr("sys.stdin", answers)
    complaint = metaxlm.complaint(*words)
    assert not place.sentinel.exists()
    assert expected in complaint
    assert answers.tell() == 0, "standard input was read"
    assert set(metaxlm.folder.rglob("*")) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_rejects_code(
    metaxlm: Command, place: Place, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    if command == "match explain":
        assert metaxlm("match", "--from", "good", "--to", "good", "--output", "start")[0] == 0
        shutil.copy(metaxlm.folder / "start" / LEDGER, place.hostile)
    map_tokenizer(place.hostile)
    expected = "hostile/tokenizer_config.json: `tokenizer_class` asks for code"
    check_rejection(metaxlm, place, monkeypatch, COMMANDS[command].split(), expected)


@pytest.mark.parametrize("role", ["encoder", "tokenizer"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_reference_to_code_is_rejected(
    metaxlm: Command, place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, role: str
) -> None:
    change, expected = KINDS[kind]
    change(place.hostile)
    command = COMMANDS["export" if role == "encoder" else "match --to"]
    check_rejection(metaxlm, place, monkeypatch, command.split(), expected)
