"""Whole runs at toy size: every stage for real, twice, changed, killed, interrupted."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from tests.conftest import PARTS, sentences
from tests.toy_runs import run, start
from transformers import AutoModel, AutoTokenizer, BertConfig, BertForMaskedLM, BertTokenizerFast

from metaxlm.cli import main
from metaxlm.data.shards import open_shard
from metaxlm.files import digest_file
from metaxlm.model.huggingface import load_pretrained
from metaxlm.pretrain.batches.source import MicroBatch, Prefetcher

RECIPE = """\
name: toy
languages: [en, de, zh]
corpus:
  phrasebook:
    {source_sentences: 1200, sentences: 400, test_pairs: 30, aligned_pairs: 20,
     train_examples: 100, test_examples: 20}
vocabulary: {size: 700, monolingual_size: 500}
model: {layers: 2, hidden: 32, heads: 2, ffn: 64, max_positions: 64}
meta: &training
  {steps: 60, batch_size: 8, length: 32, learning_rate: 3e-3, warmup_steps: 6,
   checkpoint_every: 20, log_every: 10}
pretraining: *training
variants:
  xlm: {initialize: none}
  metaxlm+dict: {initialize: both, dictionaries: true}
evaluation:
  finetune:
    udpos: {epochs: 1, learning_rate: 1e-3, length: 32}
"""
VARIANTS = ("xlm", "metaxlm+dict")


def write_recipe(folder: Path, text: str = RECIPE) -> Path:
    path = folder / "toy.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def model_digests(folder: Path) -> dict[str, str]:
    root = folder / "runs" / "toy"
    paths = [root / "meta" / "model", *(root / "variants" / name / "model" for name in VARIANTS)]
    return {str(path.relative_to(root)): digest_file(path / "model.safetensors") for path in paths}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One undisturbed run that the tests below look at."""
    folder = tmp_path_factory.mktemp("finished")
    write_recipe(folder)
    assert run(folder) == 0
    return folder


def test_a_run_leaves_everything_in_its_place(finished: Path) -> None:
    root = finished / "runs" / "toy"
    names = {path.name for path in root.iterdir()} - {".lock"}
    folders = {"corpus", "vocabulary", "shards", "meta", "variants", "cells", "report"}
    files = {"recipe.yaml", "inputs.json"}
    files |= {"results.jsonl", "comparisons.json", "provenance.json", "digests.json"}
    assert names - {".lock-tables", ".lock-inputs.json", ".lock-digests.json"} == folders | files
    assert not list(root.rglob(".tmp-*"))
    assert (root / "report" / "index.html").stat().st_size > 10_000
    for name in VARIANTS:
        assert "toy" in (root / "variants" / name / "model" / "README.md").read_text("utf-8")


def test_every_score_is_a_row(finished: Path) -> None:
    lines = (finished / "runs/toy/results.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    found = {(row["variant"], row["task"], row["language"], row["layer"]) for row in rows}
    for variant in VARIANTS:
        for language in ("de", "zh"):
            for layer in range(3):
                assert (variant, "tatoeba", language, layer) in found
                assert (variant, "alignment", language, layer) in found
        for language in ("en", "de", "zh"):
            assert (variant, "udpos", language, None) in found
    assert all(0 <= row["value"] <= 1 for row in rows)
    assert {row["examples"] for row in rows if row["task"] == "tatoeba"} == {30}


@pytest.mark.filterwarnings("ignore")
def test_models_load_in_transformers_and_give_the_same_vectors(finished: Path) -> None:
    for name in VARIANTS:
        folder = finished / "runs" / "toy" / "variants" / name / "model"
        tokenizer = AutoTokenizer.from_pretrained(folder)
        texts = [
            "Anna lives in Paris.",
            "Anna wohnt in Paris und liest ein Buch.",
            "安娜住在巴黎。",
        ]
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        theirs = AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state
        mask = batch["attention_mask"].bool()
        ours = load_pretrained(folder).model.encoder.eval()(batch["input_ids"], mask)
        assert torch.allclose(ours[mask], theirs[mask], atol=1e-5)


def test_what_only_finished_stages_need_may_be_deleted(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    root = tmp_path / "runs" / "toy"
    before = model_digests(tmp_path)
    for name in ("shards", "vocabulary", "meta", "variants/xlm/initialization", "corpus/text"):
        shutil.rmtree(root / name)
    assert run(tmp_path, "--stage", "pretrain") == 0
    output = capsys.readouterr().out
    assert "running" not in output
    assert output.count("pretrain") == output.count("pretrain xlm: up to date") + 1 == 2
    (root / "variants" / "xlm" / "model" / "config.json").unlink()
    assert run(tmp_path, "--stage", "pretrain", "--variant", "xlm") == 0
    output = capsys.readouterr().out
    again = re.findall(r"^(.+): running", output, re.MULTILINE)
    assert again == ["corpus", "vocabulary", "shards", "initialize xlm", "pretrain xlm"]
    del before["meta/model"]
    assert {name: digest_file(root / name / "model.safetensors") for name in before} == before


def test_a_second_start_does_nothing(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = model_digests(finished)
    assert run(finished) == 0
    output = capsys.readouterr().out
    assert "running" not in output
    assert output.count("up to date") == 4 + 2 * 2 + 1
    assert model_digests(finished) == before


def test_a_change_repeats_what_depends_on_it_and_undoes_itself(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = model_digests(finished)
    change = ["--set", "pretraining.steps=40", "--variant", "xlm"]
    assert run(finished, *change, "--stage", "pretrain") == 0
    output = capsys.readouterr().out
    assert "pretrain xlm: running again, changed: pretraining.steps: 60 -> 40" in output
    assert "initialize xlm: up to date" in output
    assert "metaxlm+dict" not in output
    assert model_digests(finished) != before
    assert run(finished, "--quiet") == 0
    assert capsys.readouterr().out == ""
    assert model_digests(finished) == before


def test_a_killed_run_ends_with_the_same_models(finished: Path, tmp_path: Path) -> None:
    write_recipe(tmp_path)
    process = start(tmp_path, "--stage", "pretrain")
    while not list((tmp_path / "runs/toy/variants").glob("xlm/checkpoints/step-*20")):
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.communicate()
    assert not list((tmp_path / "runs/toy/variants").glob("*/model"))
    assert run(tmp_path, "--stage", "pretrain") == 0
    assert model_digests(tmp_path) == model_digests(finished)


def test_ctrl_c_saves_and_exits_75(finished: Path, tmp_path: Path) -> None:
    write_recipe(tmp_path, RECIPE.replace("steps: 60", "steps: 4000"))
    assert run(tmp_path, "--stage", "shards", "--quiet") == 0
    process = start(tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if b"meta: running" in line:
            break
    checkpoints = tmp_path / "runs/toy/meta/checkpoints"
    while not list(checkpoints.glob("step-*")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75, output
    assert b"the same command continues" in output
    assert write_recipe(tmp_path)
    assert run(tmp_path, "--stage", "meta", "--quiet") == 0
    expected = digest_file(finished / "runs/toy/meta/model/model.safetensors")
    assert digest_file(tmp_path / "runs/toy/meta/model/model.safetensors") == expected


def test_a_stop_in_the_last_step_ends_the_run_which_continues_after_the_training(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    for name in ("xlm/model", "xlm/checkpoints", "metaxlm+dict/model"):
        shutil.rmtree(tmp_path / "runs/toy/variants" / name)
    get = Prefetcher.get

    def get_and_stop(feed: Prefetcher, step: int) -> list[MicroBatch]:
        if step == 59:
            os.kill(os.getpid(), signal.SIGTERM)
        return get(feed, step)

    with monkeypatch.context() as patch:
        patch.setattr(Prefetcher, "get", get_and_stop)
        assert run(tmp_path, "--stage", "pretrain") == 75
    output, errors = capsys.readouterr()
    line = "metaxlm: pretraining xlm: stopped after step 60; the same command continues\n"
    assert errors == line
    assert "pretrain metaxlm+dict" not in output
    assert run(tmp_path, "--stage", "pretrain") == 0
    assert "pretraining xlm: continuing after step 60" in capsys.readouterr().out
    assert model_digests(tmp_path) == model_digests(finished)


@pytest.mark.filterwarnings("ignore")
def test_own_text_with_an_imported_encoder_both_may_move(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, encoder = tmp_path / "text", tmp_path / "bert"
    text.mkdir()
    for language in PARTS:
        (text / f"{language}.txt").write_text("\n".join(sentences(language)), encoding="utf-8")
    words = sorted({word.strip(".") for line in sentences("en") for word in line.split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(vocabulary), intermediate_size=64, **sizes)
    BertForMaskedLM(config).save_pretrained(encoder)
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(encoder)
    write_recipe(tmp_path, RECIPE.replace("languages: [en, de, zh]", "languages: [en, de, ru]"))

    def choose(text: Path, encoder: Path) -> list[str]:
        return [
            *("--set", "corpus={source: text, path: " + str(text) + "}"),
            *("--set", f"meta={{model: {encoder}, length: 32}}"),
            *("--set", "variants={metaxlm: {initialize: both}}", "--set", "vocabulary.size=110"),
            *("--set", "evaluation={retrieval: null, alignment: null}"),
        ]

    own = choose(text, encoder)
    assert run(tmp_path, *own) == 0
    ledger = json.loads(
        (tmp_path / "runs/toy/variants/metaxlm/init/coverage.json").read_text("utf-8")
    )
    assert ledger["by_rule"]["direct"] > 5
    assert (tmp_path / "runs/toy/variants/metaxlm/model/model.safetensors").is_file()
    wrong = [*own, "--set", "model.hidden=64"]
    assert run(tmp_path, *wrong) == 2
    capsys.readouterr()
    (tmp_path / "elsewhere").mkdir()
    moved_text, moved_encoder = (
        path.rename(tmp_path / "elsewhere" / path.name) for path in (text, encoder)
    )
    for path in (*moved_text.iterdir(), *moved_encoder.iterdir()):
        os.utime(path)  # as a download or a plain copy has it
    assert run(tmp_path, *choose(moved_text, moved_encoder)) == 0
    assert "running" not in capsys.readouterr().out
    shutil.rmtree(tmp_path / "runs/toy/corpus/text")
    assert run(tmp_path, *choose(text, moved_encoder)) == 0  # no raw text, as on another machine
    output = capsys.readouterr().out
    assert f"corpus: {text} is not there; going by what" in output
    assert "running" not in output
    with (moved_text / "de.txt").open("a", encoding="utf-8") as file:
        file.write("\nein Satz mehr.")
    assert run(tmp_path, *choose(moved_text, moved_encoder), "--stage", "corpus") == 0
    assert "corpus: running again, changed: files: " in capsys.readouterr().out
    before = (moved_text / "de.txt").read_text("utf-8")
    (moved_text / "de.txt").write_text(before.replace("ein Satz", "kein Fug"), "utf-8")
    assert run(tmp_path, *choose(moved_text, moved_encoder), "--stage", "corpus") == 0
    assert "corpus: running again, changed: files: " in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_a_loaded_vocabulary_serves_as_the_shared_one(finished: Path, tmp_path: Path) -> None:
    """The words of three languages as BERT has them: other special tokens, no `<s>`."""
    words = sorted(
        {w.strip(".") for name in PARTS for line in sentences(name) for w in line.split()}
    )
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    BertTokenizerFast(str(tmp_path / "vocab.txt"), do_lower_case=False).save_pretrained(
        tmp_path / "tokenizer"
    )
    text = tmp_path / "text"
    text.mkdir()
    for language in PARTS:
        (text / f"{language}.txt").write_text("\n".join(sentences(language)), encoding="utf-8")
    write_recipe(tmp_path, RECIPE.replace("languages: [en, de, zh]", "languages: [en, de, ru]"))
    own = [
        *("--set", "corpus={source: text, path: " + str(text) + "}"),
        *("--set", f"vocabulary.model={tmp_path / 'tokenizer'}"),
        *(
            "--set",
            "vocabulary.monolingual_size=300",
            "--set",
            "variants={xlm: {initialize: none}}",
        ),
        *("--set", "evaluation={retrieval: null, alignment: null}"),
    ]
    assert run(tmp_path, *own) == 0
    shard = open_shard(tmp_path / "runs/toy/shards/multilingual/de")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    assert loaded.decode(shard.sentence(0)) == "die Katze sieht ein Haus."
    assert shard.counts.unknown == 0
    model = AutoModel.from_pretrained(tmp_path / "runs/toy/variants/xlm/model")
    assert model.config.vocab_size >= len(vocabulary)


def test_the_corpus_of_a_run_in_numbers(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["metaxlm", "corpus", "stats", str(finished / "runs" / "toy"), "--alpha", "0.3"]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", [*arguments, "--output", str(tmp_path / "out")])
        main()
    assert not ended.value.code
    shown = capsys.readouterr().out
    assert "en English" in shown
    table = (tmp_path / "out" / "corpus.md").read_text("utf-8")
    shards = {n: open_shard(finished / f"runs/toy/shards/multilingual/{n}") for n in ("en", "zh")}
    english = next(line for line in table.splitlines() if line.startswith("| en English"))
    cells = [cell.strip() for cell in english.split("|")[1:-1]]
    counts = shards["en"].counts
    assert cells[2:5] == [f"{counts.documents:,}", f"{counts.sentences:,}", f"{counts.tokens:,}"]
    assert cells[5] == f"{counts.tokens / counts.words:.2f}"
    chinese = next(line for line in table.splitlines() if line.startswith("| zh Chinese"))
    assert chinese.split("|")[6].strip() == "–"
    shares = [float(line.split("|")[-2].strip(" %*")) for line in table.splitlines()[4:7]]
    assert abs(sum(shares) - 100) < 0.05
    for name in ("corpus.svg", "corpus.pdf"):
        assert (tmp_path / "out" / name).stat().st_size > 3_000
