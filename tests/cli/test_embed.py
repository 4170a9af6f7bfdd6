from __future__ import annotations

import importlib.util
import io
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerBase

import metaxlm as metaxlm_api
from metaxlm.files import read_json, write_json
from metaxlm.manifest import MANIFEST
from metaxlm.model.any_encoder import load_encoder
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.huggingface import save_pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.probe.corrections import Corrections
from metaxlm.probe.embedding import embed_stream, embed_texts
from metaxlm.probe.retrieval_io import read_vectors
from metaxlm.probe.sentence_folder import export_sentence_transformers
from tests.commands import Command
from tests.conftest import sentences

LINES = sentences("de")[:10]
EMBED = ("embed", "--model", "model", "--input", "a.txt", "--output")


@pytest.fixture
def folder(tmp_path: Path, multilingual_tokenizer: PreTrainedTokenizerBase) -> Path:
    """A finished model of two layers, and a text file."""
    torch.manual_seed(1)
    config = EncoderConfig(len(multilingual_tokenizer), 16, 2, 2, 32, max_positions=24)
    save_pretrained(MaskedLM(config).eval(), multilingual_tokenizer, tmp_path / "model", "# A\n")
    (tmp_path / "a.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def expected(folder: Path, capsys: pytest.CaptureFixture[str]) -> np.ndarray:
    """Every layer of every line."""
    vectors = embed_texts(load_encoder(folder / "model"), LINES).numpy()
    capsys.readouterr()  # the command's words only are looked at
    return vectors


def test_the_last_layer_in_float16(metaxlm: Command, folder: Path, expected: np.ndarray) -> None:
    code, printed, errors = metaxlm(*EMBED, "out/a.npy")
    assert (code, errors) == (0, "")
    told = "10 vectors of 16 numbers in float16, layer 2 of 2: out/a.npy"
    assert printed.splitlines()[-1] == told
    vectors = np.load(folder / "out" / "a.npy")
    assert vectors.dtype == np.float16
    np.testing.assert_allclose(vectors, expected[2], atol=2e-3)


def test_corrections_reach_the_vectors(metaxlm: Command, folder: Path) -> None:
    options = ("--sif", "--center", "--remove-components", "2", "--type", "float32")
    assert metaxlm(*EMBED, "a.npy", *options)[0] == 0
    chosen = Corrections(sif=True, center=True, remove_components=2)
    wanted = embed_texts(load_encoder(folder / "model"), LINES, corrections=chosen)[2]
    np.testing.assert_allclose(np.load(folder / "a.npy"), wanted, atol=1e-5)
    told = metaxlm.complaint(*EMBED, "b.npy", "--remove-components", "10")
    assert "10 vectors of 16 numbers allow at most 9; remove fewer" in told
    assert not (folder / "b.npy").exists()


def test_options_reach_the_vectors(metaxlm: Command, folder: Path, expected: np.ndarray) -> None:
    options = ("--layer", "0,1..2", "--type", "float32", "--batch-tokens", "30")
    assert metaxlm(*EMBED, "a.parquet", *options)[0] == 0
    table = pq.read_table(folder / "a.parquet")
    assert table.column_names == ["line", "text", "layer_0", "layer_1+2"]
    assert table["text"].to_pylist() == LINES
    vectors = read_vectors(folder / "a.parquet", "1+2")
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected[1:].mean(axis=0), atol=1e-5)
    assert metaxlm(*EMBED, "a.npy", "--no-specials", "--type", "float32")[0] == 0
    without = embed_texts(load_encoder(folder / "model"), LINES, specials=False)[-1]
    np.testing.assert_allclose(np.load(folder / "a.npy"), without, atol=1e-5)
    assert metaxlm(*EMBED, "b.npy", "--precision", "bfloat16", "--type", "float32")[0] == 0
    error = np.abs(np.load(folder / "b.npy") - expected[2]).max()
    assert 1e-5 < error < 0.1


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_sentence_encoder_gives_its_own_vectors(
    metaxlm: Command, folder: Path, pooling: Literal["mean", "cls"]
) -> None:
    whole = load_encoder(folder / "model")
    export_sentence_transformers(
        whole, folder / "st", normalize=True, pooling=pooling, max_length=7
    )
    options = (*EMBED, "a.npy", "--model", "st", "--type", "float32")
    code, printed, errors = metaxlm(*options, "--batch-tokens", "30")
    assert (code, errors) == (0, "")
    pooled = "mean" if pooling == "mean" else "first token"
    assert f"sentence encoder: {pooled} of the last layer, 2; --layer chooses another" in printed
    found = np.load(folder / "a.npy")
    model = AutoModel.from_pretrained(folder / "st").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "st")
    for text, vector in zip(LINES, found, strict=True):
        batch = tokenizer(text, truncation=True, max_length=7, return_tensors="pt")
        states = model(**batch).last_hidden_state[0].detach()
        expected = states.mean(dim=0) if pooling == "mean" else states[0]
        np.testing.assert_allclose(vector, expected / expected.norm(), atol=1e-5)
    np.testing.assert_array_equal(metaxlm_api.embed(folder / "st", LINES), found)
    if importlib.util.find_spec("sentence_transformers") is not None:
        from sentence_transformers import SentenceTransformer

        peer = SentenceTransformer(str(folder / "st"), device="cpu")
        np.testing.assert_allclose(found, peer.encode(LINES), atol=1e-5)
    # A chosen layer has none of the folder's steps.
    assert metaxlm(*options, "--layer", "-1")[0] == 0
    np.testing.assert_allclose(np.load(folder / "a.npy"), embed_texts(whole, LINES)[2], atol=1e-5)
    if pooling == "cls":
        told = metaxlm.complaint(*options, "--no-specials")
        assert "its vectors are states of the first token" in told and "choose a layer" in told


def test_a_sentence_encoder_may_change_case_and_width(metaxlm: Command, folder: Path) -> None:
    export_sentence_transformers(load_encoder(folder / "model"), folder / "st")
    (folder / "st" / MANIFEST).unlink()
    settings = read_json(folder / "st" / "sentence_bert_config.json") | {"do_lower_case": True}
    write_json(folder / "st" / "sentence_bert_config.json", settings)
    dense = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    write_json(folder / "st/modules.json", [*read_json(folder / "st/modules.json"), dense])
    (folder / "st/2_Dense").mkdir()
    activation = {"activation_function": "torch.nn.modules.linear.Identity"}
    write_json(folder / "st/2_Dense/config.json", activation)
    weight = torch.randn(5, 16)
    save_file({"linear.weight": weight}, folder / "st/2_Dense/model.safetensors")
    options = ("--model", "st", "--type", "float32", "--center")
    code, printed, errors = metaxlm(*EMBED, "a.parquet", *options)
    assert (code, errors) == (0, "")
    assert "10 vectors of 5 numbers in float32" in printed
    assert pq.read_table(folder / "a.parquet")["text"].to_pylist() == LINES
    lowered = embed_texts(load_encoder(folder / "model"), [line.lower() for line in LINES])[2]
    expected = lowered @ weight.T
    found = read_vectors(folder / "a.parquet")
    np.testing.assert_allclose(found, expected - expected.mean(dim=0), atol=1e-5)


def test_standard_input(
    metaxlm: Command, folder: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\ufeff" + "\r\n".join(LINES)  # as other systems write it
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code, printed, _ = metaxlm(*EMBED, "a.npy", "--input", "-", "--quiet")
    assert (code, printed) == (0, "")
    np.testing.assert_allclose(np.load(folder / "a.npy"), expected[2], atol=2e-3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_leaves_the_earlier_file(
    metaxlm: Command, folder: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.npy").write_bytes(b"earlier")

    def embed_and_stop(*arguments: Any, **options: Any) -> Iterator[Any]:
        for chunk in embed_stream(*arguments, **options):
            yield chunk
            os.kill(os.getpid(), number)

    monkeypatch.setattr("metaxlm.probe.embedding.embed_stream", embed_and_stop)
    code, _, errors = metaxlm(*EMBED, "a.npy", "--batch-tokens", "30")
    assert code == 75
    assert errors == (
        "metaxlm: stopped; no incomplete file was written, and the same command starts over\n"
    )
    assert {path.name for path in folder.iterdir()} == {"a.npy", "a.txt", "model"}
    assert (folder / "a.npy").read_bytes() == b"earlier"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\n\nb\n \n", "a.txt:2: the line is empty (as are 1 more); a vector needs a text"),
        ("a\n\u200b\n", "a.txt:2 ('\\u200b') has no token; a vector needs one"),
        ("", "a.txt:1: no text in it"),
        (b"a\nb\xff\n", "a.txt:2: not UTF-8 (byte 0xFF); convert it with iconv"),
    ],
)
def test_bad_lines_are_named(
    metaxlm: Command, folder: Path, content: str | bytes, expected: str
) -> None:
    data = content.encode() if isinstance(content, str) else content
    (folder / "a.txt").write_bytes(data)
    assert expected in metaxlm.complaint(*EMBED, "out.npy")
    assert not (folder / "out.npy").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("a.npy", "--layer", "3"), "layer 3: the encoder has 2 layers"),
        (("a.txt",), "a.txt: vectors are written as .npy or .parquet"),
        (("a.npy", "--input", "b.txt"), "b.txt: no such file"),
        (("a.npy", "--model", "nothing/here/at/all"), "nothing/here/at/all: no such folder"),
    ],
)
def test_mistakes_are_one_line(
    metaxlm: Command, folder: Path, options: tuple[str, ...], expected: str
) -> None:
    assert expected in metaxlm.complaint(*EMBED, *options)
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "model"]


def test_the_variants_of_a_run(metaxlm: Command, folder: Path, toy_run: Path) -> None:
    variants = [toy_run / "variants" / name for name in ("xlm", "metaxlm+dict")]
    expected = f"2 models; name one: {variants[0]}, {variants[1]}\n"
    for command in ((*EMBED, "a.npy"), ("export", "--output", "out")):
        assert metaxlm.complaint(*command, "--model", toy_run).endswith(expected)
    assert metaxlm(*EMBED, "a.npy", "--model", variants[1], "--type", "float32")[0] == 0
    vectors = embed_texts(load_encoder(variants[1] / "model"), LINES)[-1]
    np.testing.assert_allclose(np.load(folder / "a.npy"), vectors, atol=1e-5)


def test_export(metaxlm: Command, folder: Path, expected: np.ndarray) -> None:
    options = ("export", "--model", "model", "--output", "out", "--layer", "1", "--normalize")
    code, printed, errors = metaxlm(*options)
    assert (code, errors) == (0, "")
    assert printed == 'written: out, for SentenceTransformer("out")\n'
    assert read_json(folder / "out" / "config.json")["num_hidden_layers"] == 1
    assert "2_Normalize" in (folder / "out" / "modules.json").read_text(encoding="utf-8")
    assert "out: is there already" in metaxlm.complaint(*options)
    two = (*options[:4], "other", "--layer", "1,2")
    assert "--layer 1,2: 2 layers; a folder has one, name it" in metaxlm.complaint(*two)
    assert metaxlm(*options[:4], "last", "--quiet")[:2] == (0, "")
    found = embed_texts(load_encoder(folder / "last"), LINES)[-1].numpy()
    np.testing.assert_allclose(found, expected[2], atol=1e-5)


def test_export_of_a_sentence_encoder_keeps_its_steps(metaxlm: Command, folder: Path) -> None:
    whole = load_encoder(folder / "model")
    export_sentence_transformers(whole, folder / "st", normalize=True, pooling="cls", max_length=7)
    assert metaxlm("export", "--model", "st", "--output", "out")[0] == 0
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        assert read_json(folder / "out" / name) == read_json(folder / "st" / name)
    assert "not trained on pairs" not in (folder / "out" / "README.md").read_text("utf-8")
    # A chosen layer has none of the folder's steps.
    assert metaxlm("export", "--model", "st", "--output", "one", "--layer", "1")[0] == 0
    assert read_json(folder / "one" / "sentence_bert_config.json")["max_seq_length"] > 7
    settings = read_json(folder / "st" / "sentence_bert_config.json") | {"do_lower_case": True}
    (folder / "st" / MANIFEST).unlink()
    write_json(folder / "st" / "sentence_bert_config.json", settings)
    expected = "st: has do_lower_case, which an exported folder has not"
    assert expected in metaxlm.complaint("export", "--model", "st", "--output", "two")


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        (b"---\nlanguage: fran\xe7ais\nlicense: mit\n---\n", "not UTF-8"),
        (b"---\ndate: 2024-13-45\nlicense: mit\n---\n", "month must be in 1..12"),
        (b"---\nlanguage: " + b"[" * 5000 + b"\n---\n", "nested too deeply"),
        (b"---\nlanguage: {\n---\n", "not valid YAML"),
    ],
)
def test_export_leaves_out_a_card_that_cannot_be_read(
    metaxlm: Command, encoder: Path, tmp_path: Path, card: bytes, reason: str
) -> None:
    shutil.copytree(encoder, tmp_path / "bert")
    (tmp_path / "bert/README.md").write_bytes(card)
    code, printed, errors = metaxlm("export", "--model", "bert", "--output", "out")
    assert (code, errors) == (0, "")
    assert reason in next(line for line in printed.splitlines() if "bert/README.md: " in line)
    text = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert text.startswith("---\nlibrary_name: sentence-transformers\n")


def test_export_of_a_checkpoint_to_onnx(metaxlm: Command, folder: Path, toy_run: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    checkpoints = toy_run / "variants" / "xlm" / "checkpoints"
    checkpoint = sorted(path for path in checkpoints.iterdir() if path.name.startswith("step-"))[-1]
    options = ("--format", "onnx", "--text", "a.txt", "--output", "out")
    code, printed, errors = metaxlm("export", "--model", checkpoint, *options)
    assert (code, errors) == (0, "")
    assert 'for SentenceTransformer("out", backend="onnx")' in printed
    session = runtime.InferenceSession(folder / "out/onnx/model.onnx")
    assert [one.name for one in session.get_outputs()] == ["last_hidden_state"]
