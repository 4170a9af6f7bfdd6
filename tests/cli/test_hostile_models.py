"""Every command rejects model folders with code, and does not run it."""

from __future__ import annotations

import io
import json
import shutil
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
ANSWERS = "y\n1\nyes\n"  # would run the code if a prompt read standard input

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
}
PLANS = ("plan toy.yaml --no-measure", "doctor toy.yaml", "run toy.yaml", "run toy.yaml --dry")
for part in ("meta", "vocabulary"):
    COMMANDS |= {f"{plan}, {part}": f"{plan} --set {part}.model=hostile" for plan in PLANS}


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


Changes = dict[str, dict[str, Any]]
# The tokenizer of a family without one: transformers would ask whether to run it.
OWN_TOKENIZER: Changes = {
    "config.json": {"model_type": "eurobert"},
    "tokenizer_config.json": {
        "tokenizer_class": "OwnTokenizer",
        "auto_map": {"AutoTokenizer": [None, "own.OwnTokenizer"]},
    },
}
OWN_CONFIG = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
NESTED = {"text_config": {"sub": [{"auto_map": {"AutoModel": "own.Model"}}]}}
PIPELINE = {"custom_pipelines": {"mine": {"impl": "own.OwnPipeline"}}}
OLD_LIST = {"auto_map": ["own.OwnTokenizer", None]}
MODULE = {"idx": 0, "name": "0", "path": "", "type": "own.OwnTransformer"}
KINDS: dict[str, tuple[Changes, str]] = {
    "auto_map": (OWN_TOKENIZER, "tokenizer_config.json: `tokenizer_class` asks for code"),
    "a config": ({"config.json": OWN_CONFIG}, "hostile/config.json: `auto_map` asks for code"),
    "a list": ({"tokenizer_config.json": OLD_LIST}, "tokenizer_config.json: `auto_map` asks for"),
    "nested": ({"config.json": NESTED}, "hostile/config.json: `auto_map` asks for code"),
    "tokenizer_class": (
        {"tokenizer_config.json": {"tokenizer_class": "own.OwnTokenizer"}},
        "`tokenizer_class` asks for code",
    ),
    "custom_pipelines": ({"config.json": PIPELINE}, "`custom_pipelines` asks for code"),
    "modules.json": ({}, "modules.json: `type: own.OwnTransformer` asks for code"),
}


@pytest.fixture
def hostile(tmp_path: Path, encoder: Path) -> Path:
    """A hostile copy of a model, beside a good model, text and a recipe."""
    shutil.copytree(encoder, tmp_path / "good")
    hostile = Path(shutil.copytree(encoder, tmp_path / "hostile"))
    edit(hostile / "config.json", architectures=["BertForSequenceClassification"])
    (hostile / "own.py").write_text(CODE.format(sentinel=str(tmp_path / "it_ran")))
    (tmp_path / "text").mkdir()
    (tmp_path / "data/tatoeba").mkdir(parents=True)
    for language, code in (("en", "eng"), ("de", "deu")):
        text = "\n".join(sentences(language)) + "\n"
        (tmp_path / f"text/{language}.txt").write_text(text)
        (tmp_path / f"data/tatoeba/tatoeba.deu-eng.{code}").write_text(text)
    (tmp_path / "pairs.txt").write_text("the cat ||| die Katze\n")
    write_toy(tmp_path, variants={"metaxlm": {"initialize": "both"}})
    return hostile


def check_rejection(
    metaxlm: Command, patch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    before = set(metaxlm.folder.rglob("*"))
    answers = io.StringIO(ANSWERS)
    patch.setattr("sys.stdin", answers)
    complaint = metaxlm.complaint(*words)
    assert expected in complaint
    assert answers.tell() == 0, "standard input was read"
    assert set(metaxlm.folder.rglob("*")) == before  # `it_ran` is not there


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_rejects_code(
    metaxlm: Command, hostile: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    if command == "match explain":
        assert metaxlm("match", "--from", "good", "--to", "good", "--output", "start")[0] == 0
        shutil.copy(metaxlm.folder / "start" / LEDGER, hostile)
    for name, changes in OWN_TOKENIZER.items():
        edit(hostile / name, **changes)
    expected = "hostile/tokenizer_config.json: `tokenizer_class` asks for code"
    check_rejection(metaxlm, monkeypatch, COMMANDS[command].split(), expected)


@pytest.mark.parametrize("role", ["encoder", "tokenizer"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_reference_to_code_is_rejected(
    metaxlm: Command, hostile: Path, monkeypatch: pytest.MonkeyPatch, kind: str, role: str
) -> None:
    changes, expected = KINDS[kind]
    for name, values in changes.items():
        edit(hostile / name, **values)
    if kind == "modules.json":
        (hostile / kind).write_text(json.dumps([MODULE]))
    command = COMMANDS["export" if role == "encoder" else "match --to"]
    check_rejection(metaxlm, monkeypatch, command.split(), expected)
