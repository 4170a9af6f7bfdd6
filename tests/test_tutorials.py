"""Run the examples of the tutorials, in the order of the page, with small files of their names."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.toy_runs import run_main

DOCS = Path(__file__).parents[1] / "docs"
TUTORIALS = ("match", "own_text", "classifier", "sentences", "compare", "reproduce")
SMALLER = {
    "size: 64000": "size: 400",
    "layers: 12, hidden: 768, heads: 12, ffn: 3072, max_positions: 512":
        "layers: 1, hidden: 16, heads: 2, ffn: 32, max_positions: 128",
    "steps: 40000, warmup_steps: 2000": "steps: 4, warmup_steps: 1, batch_size: 4, length: 32",
    "train: {en: tickets": "epochs: 1\nlength: 32\ntrain: {en: tickets",
}  # fmt: skip
"""Sizes in the examples, replaced by those of the toy encoder."""
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def desk(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an English encoder, a tokenizer, text, dictionaries and data sets."""
    folder = tmp_path_factory.mktemp("tutorials")
    places = {"english": "meta/model", "multilingual": "vocabulary/multilingual"}
    for name, place in (places | {"muse": "corpus/tasks/muse", "data": "corpus/tasks"}).items():
        shutil.copytree(toy_run / place, folder / name)
    (folder / "text").mkdir()
    for language in ("en", "de"):
        sentences = sorted((toy_run / "corpus" / "text" / language).glob("*.txt"))
        text = "".join(path.read_text("utf-8") for path in sentences)
        (folder / "text" / f"{language}.txt").write_text(text, encoding="utf-8")
    (folder / "words.txt").write_text("Hausboot\nKatzenhaus\n", encoding="utf-8")
    (folder / "tickets").mkdir()
    rows = ["text\tlabel", "My bill is wrong.\tbilling", "It does not start.\ttechnical"]
    for name in ("train", "dev", "test.en", "test.de"):
        (folder / "tickets" / f"{name}.tsv").write_text("\n".join([*rows, *rows[1:]]) + "\n")
    labels = {0: "technical", 1: "billing"}
    classifier = AutoModelForSequenceClassification.from_pretrained(
        folder / "english", id2label=labels, label2id={name: row for row, name in labels.items()}
    )
    classifier.save_pretrained(folder / "classifier")
    AutoTokenizer.from_pretrained(folder / "english").save_pretrained(folder / "classifier")
    call("export", "--model", folder / "english", "--normalize", "--output", folder / "teacher")
    call("publish", toy_run, folder / "published")
    return folder


def call(*arguments: str | Path) -> None:
    assert run_main(*arguments, workers=True) == 0, arguments


LONG = ("classifier", "own_text")  # the others run the same commands


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in TUTORIALS]
)
def test_examples_run(name: str, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "compare" and not (desk / "runs" / "own").exists():
        pytest.skip("needs the run of own_text")
    monkeypatch.chdir(desk)
    blocks = BLOCK.findall((DOCS / "tutorials" / f"{name}.md").read_text("utf-8"))
    assert blocks
    values: dict[str, object] = {}
    for language, title, code in blocks:
        if language == "yaml":
            for large, small in SMALLER.items():
                code = code.replace(large, small)
            Path(title).write_text(code, encoding="utf-8")
        elif language == "python":
            exec(compile(code, f"{name}.md", "exec"), values)
        else:
            code = code.replace("steps=12000", "steps=4 --set batch_size=8")
            for line in code.splitlines():
                command, *arguments = shlex.split(line)
                assert command == "metaxlm", line
                call(*arguments)


def test_matched_and_exported_folders_can_be_verified(desk: Path, tmp_path: Path) -> None:
    matched, exported = tmp_path / "matched", tmp_path / "exported"
    call("match", "--from", desk / "english", "--to", desk / "multilingual", "--output", matched)
    (matched / "README.md").write_bytes(b"---\ndate: 2024-13-45\n---\n\xff")  # a broken card
    call("export", "--model", matched, "--output", exported)
    call("verify", exported)
    assert run_main("verify", matched) == 1  # the card is not the one that was written
