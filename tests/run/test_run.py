"""Whole runs at toy size: every stage for real, twice, changed, killed, interrupted."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import PARTS, sentences
from tests.toy_runs import SIZES, run, run_main, start, write_toy
from transformers import AutoModel, AutoTokenizer, BertConfig, BertForMaskedLM, BertTokenizerFast

from metaxlm.data.shards import open_shard
from metaxlm.files import digest_file
from metaxlm.model.huggingface import load_pretrained
from metaxlm.pretrain.batches.source import MicroBatch, Prefetcher

CHANGES: dict[str, Any] = {
    "languages": ["en", "de", "zh"],
    "corpus": {"phrasebook": SIZES | {"source_sentences": 1200, "sentences": 400}},
    "vocabulary": {"size": 700, "monolingual_size": 500},
    "variants": {"xlm": {"initialize": "none"}, "metaxlm+dict": {"dictionaries": True}},
}
TRAINING = {"steps": 60, "checkpoint_every": 20, "log_every": 10}
VARIANTS = ("xlm", "metaxlm+dict")


def write_recipe(folder: Path, **training: Any) -> Path:
    return write_toy(folder, TRAINING | training, **CHANGES)


def write_text(folder: Path) -> Path:
    """Write the sentences of three languages; return their folder."""
    folder.mkdir()
    for language in PARTS:
        (folder / f"{language}.txt").write_text("\n".join(sentences(language)), encoding="utf-8")
    return folder


def write_vocabulary(path: Path, languages: Iterable[str]) -> int:
    """Write the vocabulary of a BERT with all words of some languages; return its size."""
    lines = (line for language in languages for line in sentences(language))
    words = sorted({word.strip(".") for line in lines for word in line.split()})
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words]
    path.write_text("\n".join(words), encoding="utf-8")
    return len(words)


def list_settings(*settings: str) -> list[str]:
    settings += ("languages=[en, de, ru]", "evaluation={retrieval: null, alignment: null}")
    return [word for setting in settings for word in ("--set", setting)]


def model_digests(folder: Path) -> dict[str, str]:
    root = folder / "runs" / "toy"
    paths = [root / "meta" / "model", *(root / "variants" / name / "model" for name in VARIANTS)]
    return {str(path.relative_to(root)): digest_file(path / "model.safetensors") for path in paths}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One undisturbed run."""
    folder = tmp_path_factory.mktemp("finished")
    write_recipe(folder)
    assert run(folder) == 0
    return folder


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


def test_inputs_of_finished_stages_may_be_deleted(
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


def test_a_change_repeats_dependent_stages_and_can_be_undone(
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
    write_recipe(tmp_path, steps=4000)
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


def test_a_stop_in_the_last_step_keeps_the_trained_model(
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
def test_text_and_an_imported_encoder_may_be_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, encoder = write_text(tmp_path / "text"), tmp_path / "bert"
    size = write_vocabulary(tmp_path / "vocab.txt", ["en"])
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=size, intermediate_size=32, **sizes)
    BertForMaskedLM(config).save_pretrained(encoder)
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(encoder)
    write_recipe(tmp_path)

    def start_with(text: Path, encoder: Path, *more: str) -> tuple[int, str]:
        corpus, meta = f"{{source: text, path: {text}}}", f"{{model: {encoder}, length: 32}}"
        variants = "variants={metaxlm: {initialize: both}}"
        settings = (f"corpus={corpus}", f"meta={meta}", variants, "vocabulary.size=110")
        return run(tmp_path, *list_settings(*settings), *more), capsys.readouterr().out

    assert start_with(text, encoder)[0] == 0
    variant = tmp_path / "runs/toy/variants/metaxlm"
    coverage = json.loads((variant / "initialization/coverage.json").read_text("utf-8"))
    assert coverage["by_rule"]["direct"] > 5
    assert (variant / "model/model.safetensors").is_file()
    assert start_with(text, encoder, "--set", "model.hidden=64")[0] == 2
    (tmp_path / "elsewhere").mkdir()
    moved, moved_encoder = (
        path.rename(tmp_path / "elsewhere" / path.name) for path in (text, encoder)
    )
    for path in (*moved.iterdir(), *moved_encoder.iterdir()):
        os.utime(path)  # as after a download or a plain copy
    code, output = start_with(moved, moved_encoder)
    assert code == 0 and "running" not in output
    shutil.rmtree(tmp_path / "runs/toy/corpus/text")
    code, output = start_with(text, moved_encoder)  # no raw text, as on another machine
    assert code == 0 and "running" not in output
    assert f"corpus: {text} does not exist; using the inputs recorded in" in output
    before = (moved / "de.txt").read_text("utf-8")
    for content in (f"{before}\nein Satz mehr.", f"{before}\nkein Fug mehr."):
        (moved / "de.txt").write_text(content, "utf-8")
        code, output = start_with(moved, moved_encoder, "--stage", "corpus")
        assert code == 0 and "corpus: running again, changed: files: " in output


@pytest.mark.filterwarnings("ignore")
def test_a_loaded_vocabulary_is_the_shared_one(tmp_path: Path) -> None:
    """Load a vocabulary of words as BERT has it: other special tokens, no `<s>`."""
    size = write_vocabulary(tmp_path / "vocab.txt", PARTS)
    tokenizer = BertTokenizerFast(str(tmp_path / "vocab.txt"), do_lower_case=False)
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    write_recipe(tmp_path)
    corpus = f"corpus={{source: text, path: {write_text(tmp_path / 'text')}}}"
    vocabulary = f"vocabulary={{model: {tmp_path / 'tokenizer'}, monolingual_size: 300}}"
    settings = list_settings(corpus, vocabulary, "variants={xlm: {initialize: none}}")
    assert run(tmp_path, *settings) == 0
    shard = open_shard(tmp_path / "runs/toy/shards/multilingual/de")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    assert loaded.decode(shard.sentence(0)) == "die Katze sieht ein Haus."
    assert shard.counts.unknown == 0
    model = AutoModel.from_pretrained(tmp_path / "runs/toy/variants/xlm/model")
    assert model.config.vocab_size >= size


def test_corpus_statistics_of_a_run(finished: Path, tmp_path: Path) -> None:
    folder = finished / "runs" / "toy"
    assert run_main("corpus", "stats", folder, "--alpha", "0.3", "--output", tmp_path / "out") == 0
    table = (tmp_path / "out" / "corpus.md").read_text("utf-8").splitlines()
    english, chinese = (
        [cell.strip() for cell in line.split("|")[1:-1]]
        for name in ("| en English", "| zh Chinese")
        for line in table
        if line.startswith(name)
    )
    counts = open_shard(folder / "shards/multilingual/en").counts
    assert english[2:5] == [f"{counts.documents:,}", f"{counts.sentences:,}", f"{counts.tokens:,}"]
    assert (english[5], chinese[5]) == (f"{counts.tokens / counts.words:.2f}", "–")
    shares = [float(line.split("|")[-2].strip(" %*")) for line in table[4:7]]
    assert abs(sum(shares) - 100) < 0.05
    for name in ("corpus.svg", "corpus.pdf"):
        assert (tmp_path / "out" / name).stat().st_size > 3_000
