"""Whole runs at toy size: every stage for real, twice, changed, killed, interrupted."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from tests.conftest import PARTS, sentences
from tests.toy_runs import command, run, run_main, write_toy
from transformers import AutoModel, AutoTokenizer, BertConfig, BertForMaskedLM, BertTokenizerFast

from metaxlm.analysis.report import list_facts
from metaxlm.analysis.results import load_results, select
from metaxlm.analysis.run_folder import read_run
from metaxlm.data.shards import open_shard
from metaxlm.digests import DIGESTS
from metaxlm.files import digest_file
from metaxlm.model.huggingface import load_pretrained
from metaxlm.pretrain.batches.source import MicroBatch, Prefetcher

VARIANTS = ("xlm", "metaxlm+dict")
KILLED = """
import os, time
from metaxlm.cli import main
from metaxlm.pretrain.batches.source import Prefetcher
get = Prefetcher.get
def get_or_die(feed, step):
    while step == 3:
        time.sleep(0.01)
        if os.path.exists(os.environ["CHECKPOINT"]):
            os.kill(os.getpid(), 9)
    return get(feed, step)
Prefetcher.get = get_or_die
main()
"""  # a process that is killed after a checkpoint


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


def model_digests(root: Path) -> dict[str, str]:
    paths = [root / "meta" / "model", *(root / "variants" / name / "model" for name in VARIANTS)]
    return {str(path.relative_to(root)): digest_file(path / "model.safetensors") for path in paths}


@pytest.mark.filterwarnings("ignore")
def test_models_load_in_transformers_and_give_the_same_vectors(toy_run: Path) -> None:
    for name in VARIANTS:
        folder = toy_run / "variants" / name / "model"
        tokenizer = AutoTokenizer.from_pretrained(folder)
        texts = ["Anna lives in Paris.", "Anna wohnt in Paris und liest ein Buch."]
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        theirs = AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state
        mask = batch["attention_mask"].bool()
        ours = load_pretrained(folder).model.encoder.eval()(batch["input_ids"], mask)
        assert torch.allclose(ours[mask], theirs[mask], atol=1e-5)


def test_inputs_of_finished_stages_may_be_deleted(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = model_digests(copied)
    for name in ("shards", "vocabulary", "meta", "variants/xlm/initialization", "corpus/text"):
        shutil.rmtree(copied / name)
    assert run(tmp_path, "--stage", "pretrain") == 0
    output = capsys.readouterr().out
    assert "running" not in output
    assert output.count("pretrain") == output.count("pretrain xlm: up to date") + 1 == 2
    (copied / "variants" / "xlm" / "model" / "config.json").unlink()
    assert run(tmp_path, "--stage", "pretrain", "--variant", "xlm") == 0
    output = capsys.readouterr().out
    again = re.findall(r"^(.+): running", output, re.MULTILINE)
    assert again == ["corpus", "vocabulary", "shards", "initialize xlm", "pretrain xlm"]
    del before["meta/model"]
    assert {name: digest_file(copied / name / "model.safetensors") for name in before} == before


def test_a_change_repeats_dependent_stages_and_can_be_undone(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = model_digests(copied)
    change = ["--set", "pretraining.steps=3", "--variant", "xlm"]
    assert run(tmp_path, *change, "--stage", "pretrain") == 0
    output = capsys.readouterr().out
    assert "pretrain xlm: running again, changed: pretraining.steps: 4 -> 3" in output
    assert "initialize xlm: up to date" in output
    assert "metaxlm+dict" not in output
    assert model_digests(copied) != before
    assert run(tmp_path, "--quiet") == 0
    assert capsys.readouterr().out == ""
    assert model_digests(copied) == before


def test_the_report_shows_which_classes_are_confused(copied: Path, tmp_path: Path) -> None:
    task = {"epochs": 1, "length": 32, "seeds": 2}
    evaluation = {"retrieval": None, "alignment": None, "finetune": {"xnli": task}}
    assert run(tmp_path, "--set", f"evaluation={json.dumps(evaluation)}") == 0
    report = copied / "report"
    page = (report / "index.html").read_text(encoding="utf-8")
    assert re.search(r"<details>\n<summary>XNLI: gold classes", page)  # closed until it is clicked
    with (report / "tables" / "confusion-xnli.csv").open(encoding="utf-8") as lines:
        cells = list(csv.DictReader(lines))
    rows = load_results(copied)
    for name, variant in (("XLM", "xlm"), ("MetaXLM+Dict", "metaxlm+dict")):
        for target, language in (("English", "en"), ("other languages", "de")):
            counts = [c for c in cells if c["group"] == f"{name}: English → {target}"]
            right = sum(float(cell["value"]) for cell in counts if cell["row"] == cell["column"])
            mine = select(rows, task="xnli", metric="accuracy", variants=[variant], split="test")
            mine = mine[mine.language == language]
            assert len(counts) == 9 and len(mine) == 2  # seeds
            assert right == pytest.approx((mine.value * mine.examples).sum())
            assert sum(float(cell["value"]) for cell in counts) == mine.examples.sum()
    # Evaluations that the results do not come from are not shown.
    results = copied / "results.jsonl"
    kept = [line for line in results.read_text("utf-8").splitlines() if '"xlm"' not in line]
    (copied / DIGESTS).unlink()
    results.write_text("\n".join(kept), encoding="utf-8")
    assert {record["variant"] for record in read_run(copied).confused} == {"metaxlm+dict"}


def test_a_killed_run_ends_with_the_same_models(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = model_digests(copied)
    shutil.rmtree(copied / "variants")
    arguments = command(tmp_path, "--stage", "pretrain")[1:]
    checkpoint = copied / "variants/xlm/checkpoints/step-00000002"
    # On another number of threads, sums are rounded in another way.
    more = {"CHECKPOINT": str(checkpoint), "OMP_NUM_THREADS": "1"}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], check=False, env={**os.environ, **more}
    )
    assert killed.returncode == -signal.SIGKILL
    assert not list(copied.glob("variants/*/model"))
    assert run(tmp_path, "--stage", "pretrain") == 0
    assert "pretraining xlm: continuing after step 2" in capsys.readouterr().out
    assert model_digests(copied) == before


@pytest.mark.parametrize(("number", "at"), [(signal.SIGINT, 1), (signal.SIGTERM, 3)])
def test_a_stopped_run_saves_and_ends_with_the_same_models(
    number: int,
    at: int,
    copied: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A stop in the last step keeps the trained model in its checkpoint."""
    before = model_digests(copied)
    for name in ("xlm/model", "xlm/checkpoints", "metaxlm+dict/model"):
        shutil.rmtree(copied / "variants" / name)
    get = Prefetcher.get

    def get_and_stop(feed: Prefetcher, step: int) -> list[MicroBatch]:
        if step == at:
            os.kill(os.getpid(), number)
        return get(feed, step)

    with monkeypatch.context() as patch:
        patch.setattr(Prefetcher, "get", get_and_stop)
        assert run(tmp_path, "--stage", "pretrain") == 75
    output, errors = capsys.readouterr()
    stopped = f"stopped after step {at + 1}; the same command continues"
    assert errors == f"metaxlm: pretraining xlm: {stopped}\n"
    assert "pretrain metaxlm+dict" not in output
    assert run(tmp_path, "--stage", "pretrain") == 0
    assert f"pretraining xlm: continuing after step {at + 1}" in capsys.readouterr().out
    assert model_digests(copied) == before


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
    write_toy(tmp_path, {"steps": 4})

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
    write_toy(tmp_path, {"steps": 4})
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


def test_the_report_names_seed_device_date_and_tests(toy_run: Path) -> None:
    run_read = read_run(toy_run)
    facts = dict(list_facts(run_read))
    assert facts["Seed"] == str(run_read.recipe["seed"]) != facts["Seeds of finetuning"]
    assert facts["Device"] and facts["metaxlm"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", facts["Trained until"])
    page = (toy_run / "report" / "index.html").read_text(encoding="utf-8")
    for fact in facts.values():
        assert fact in page
    tests = page[page.index('id="table-tests"') :]
    assert re.search(r"<td class=\"words\">(< 0\.001|&lt; 0\.001|[01]\.\d{3})</td>", tests)


def test_corpus_statistics_of_a_run(toy_run: Path, tmp_path: Path) -> None:
    assert run_main("corpus", "stats", toy_run, "--alpha", "0.3", "--output", tmp_path / "out") == 0
    table = (tmp_path / "out" / "corpus.md").read_text("utf-8").splitlines()
    [line] = [line for line in table if line.startswith("| en English")]
    english = [cell.strip() for cell in line.split("|")[1:-1]]
    counts = open_shard(toy_run / "shards/multilingual/en").counts
    assert english[2:5] == [f"{counts.documents:,}", f"{counts.sentences:,}", f"{counts.tokens:,}"]
    assert english[5] == f"{counts.tokens / counts.words:.2f}"
    shares = [float(line.split("|")[-2].strip(" %*")) for line in table[4:6]]
    assert abs(sum(shares) - 100) < 0.05
    for name in ("corpus.svg", "corpus.pdf"):
        assert (tmp_path / "out" / name).stat().st_size > 3_000
