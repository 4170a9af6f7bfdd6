"""The command `metaxlm sentences`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from transformers import AutoModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.model.any_encoder import load_encoder
from metaxlm.probe.sentence_folder import export_sentence_transformers
from metaxlm.sentences.sentence_step import SentenceStep
from tests.commands import Command
from tests.conftest import sentences
from tests.sentences.encoder_trainings import SentenceTrainings, save_student
from tests.sentences.test_encoder_stage import WORDS

SMALL = ("steps=6", "batch_size=8", "max_length=24", "checkpoint_every=2", "log_every=2")


@pytest.fixture
def arguments(tmp_path: Path, trainings: SentenceTrainings) -> list[str]:
    """A command in a folder with text, a dictionary and parallel text."""
    first, second, *others = (text.capitalize() for text in sentences("en")[:32])
    text = "\n".join([f"{first} {second}", *others])  # one line has two sentences
    (tmp_path / "en.txt").write_text(text, encoding="utf-8")
    (tmp_path / "muse").mkdir()
    entries = "".join(f"{word} {other}\n" for word, other in WORDS.items())
    (tmp_path / "muse" / "en-de.txt").write_text(entries, encoding="utf-8")
    (tmp_path / "muse" / "en-fr.txt").write_text("the le\ncat chat\na un\n", encoding="utf-8")
    pairs = zip(sentences("en")[40:], sentences("ru")[40:], strict=True)
    lines = "".join(f"{one}\t{other}\n" for one, other in pairs)
    (tmp_path / "en-ru.tsv").write_text(lines, encoding="utf-8")
    names = ["--teacher", str(trainings.teacher), "--student", str(trainings.student)]
    files = ["--text", "en.txt", "--dictionary", "muse", "--output", "encoder"]
    settings = [part for setting in SMALL for part in ("--set", setting)]
    return ["sentences", *names, *files, *settings, "--device", "cpu"]


def replace(arguments: list[str], option: str, *values: str) -> list[str]:
    place = arguments.index(option)
    return [*arguments[:place], *values, *arguments[place + 2 :]]


def test_all_sources_make_one_encoder(
    arguments: list[str], metaxlm: Command, tmp_path: Path
) -> None:
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts" / "de.txt").write_text("\n".join(sentences("de")), encoding="utf-8")
    more = ["--parallel", "en-ru.tsv", "--corpus", "counts", "--set", "keep_steps=[4]"]
    code, output, errors = metaxlm(*arguments, *more)
    assert code == 0, errors
    assert "words with a translation: de" in output and "no fr.txt" in output
    assert 'SentenceTransformer("encoder")' in output
    assert AutoModel.from_pretrained(tmp_path / "encoder").config.hidden_size == 16
    card = (tmp_path / "encoder" / "README.md").read_text()
    for fact in ("32 en sentences, muse", "en-ru.tsv | 24 pairs", "Russian (ru)", "6 of 8 pairs"):
        assert fact in card
    assert (tmp_path / "encoder-steps" / "step-00000004" / "modules.json").is_file()
    assert not (tmp_path / "encoder-work").exists()
    assert metaxlm("verify", "encoder")[0] == 0
    code, output, _ = metaxlm(*arguments, *more)
    assert code == 0 and "encoder: up to date" in output
    error = metaxlm.complaint(*arguments, *more, "--set", "cosine_weight=1")
    assert "made with other settings or files (sentences.cosine_weight: 4.0 -> 1.0)" in error


def test_the_same_command_continues(
    arguments: list[str], metaxlm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, errors = metaxlm(*replace(arguments, "--output", "--output", "whole"))
    assert code == 0, errors
    take = SentenceStep.__call__
    steps = iter(range(100))

    def stop(self: SentenceStep, *rest: object) -> None:
        take(self, *rest)  # type: ignore[arg-type]
        if next(steps) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(SentenceStep, "__call__", stop)
        code, _, _ = metaxlm(*arguments)
    assert code == 75
    assert not (tmp_path / "encoder").exists()
    code, output, errors = metaxlm(*arguments)
    assert code == 0, errors
    assert "continuing after step 3" in output
    weights = [tmp_path / name / "model.safetensors" for name in ("whole", "encoder")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.parametrize(
    ("option", "values", "message"),
    [
        ("--student", ["--student", "wide"], "/wide of 32; choose a teacher of the student"),
        ("--teacher", ["--teacher", "plain"], "plain: not a sentence encoder"),
        ("--teacher", ["--teacher", "nowhere/x"], "nowhere/x: no such folder"),
        ("--dictionary", ["--dictionary", "rare"], "en-de.txt: translates 0.0% of the words"),
        ("--dictionary", ["--parallel", "name.en"], "parallel files need equally many"),
        ("--dictionary", ["--parallel", "nowhere.tsv"], "nowhere.tsv"),
        ("--dictionary", [], "needs --dictionary or --parallel"),
        ("--text", [], "--dictionary rewrites English text; name it with --text"),
        ("--text", ["--text", "empty.txt"], "empty.txt: no sentence of 3 to 64 words"),
        ("--text", ["--text", "nowhere.txt"], "nowhere.txt: no such file"),
        ("--output", ["--output", "muse"], "muse: is also an input"),
        ("--output", ["--output", "mine"], "mine: not empty and not written by metaxlm"),
        ("--device", ["--set", "mlm_weight=1"], "masked language modeling needs the shards"),
        ("--device", ["--set", "text=x"], "is set by an option of the command"),
        ("--device", ["--set", "tempreture=1"], "did you mean 'temperature'?"),
        ("--device", ["--languages", "sw"], "no dictionary; looked for en-sw.txt"),
        ("--device", ["--languages", "xx"], "--languages xx: no such language"),
    ],
)
def test_bad_input_writes_nothing(
    arguments: list[str],
    metaxlm: Command,
    tmp_path: Path,
    tokenizer: Tokenizer,
    option: str,
    values: list[str],
    message: str,
) -> None:
    if "wide" in values:
        save_student(tmp_path / "wide", tokenizer, width=32, num_heads=2)
    if "plain" in values:
        save_student(tmp_path / "plain", tokenizer)
    (tmp_path / "rare").mkdir()
    (tmp_path / "rare" / "en-de.txt").write_text("zebra Zebra\n", encoding="utf-8")
    (tmp_path / "name.en").write_text("one line\n", encoding="utf-8")
    (tmp_path / "name.de").write_text("eine Zeile\nnoch eine\n", encoding="utf-8")
    (tmp_path / "empty.txt").write_text("\n1 2 3 4\nno\n", encoding="utf-8")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("of the user", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    error = metaxlm.complaint(*replace(arguments, option, *values))
    assert message in error
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_of_another_teacher_can_be_the_student(
    arguments: list[str], metaxlm: Command, tmp_path: Path, trainings: SentenceTrainings
) -> None:
    export_sentence_transformers(load_encoder(trainings.student), tmp_path / "exported")
    changed = replace(arguments, "--student", "--student", "exported")
    code, _, errors = metaxlm(*changed, "--languages", "de")
    assert code == 0, errors
    assert "English (en)" in (tmp_path / "encoder" / "README.md").read_text()
