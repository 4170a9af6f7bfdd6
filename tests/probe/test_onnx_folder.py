from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoTokenizer

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json
from metaxlm.model.any_encoder import load_encoder
from metaxlm.model.foreign import quiet_transformers
from metaxlm.probe import onnx_folder
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.onnx_folder import Sample, add_onnx, read_sample
from metaxlm.probe.onnx_report import Figures
from metaxlm.probe.sentence_folder import export_sentence_transformers
from tests.commands import Command
from tests.finetune.conftest import CPU
from tests.model.encoder_kinds import ALL, SENTENCES, write_folder

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore:.*google._upb._message.*:DeprecationWarning")

NORMALIZED = ("--text", "a.txt", "--normalize")
CUT = ("--text", "a.txt", "--layer", "1")
PAIRS = Sample("pairs", (*SENTENCES, *(text.replace("the", "a") for text in SENTENCES)), (3,))


def export(kind: str, folder: Path, sample: Sample = PAIRS, **options: Any) -> Path:
    """Write a toy encoder of a family with its ONNX file to a folder."""
    int8 = options.pop("int8", False)
    model = load_encoder(write_folder(ALL[kind], folder / "model"))
    export_sentence_transformers(model, folder / "out", **options)
    add_onnx(folder / "out", sample, int8=int8)
    return folder / "out"


def run(folder: Path, texts: list[str], file: str = "model.onnx") -> tuple[Any, np.ndarray]:
    """Return the tokens of texts and the outputs of a file, by onnxruntime alone."""
    session = onnxruntime.InferenceSession(folder / "onnx" / file)
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="np")
    names = [one.name for one in session.get_inputs()]
    assert set(names) == set(inputs)
    return inputs, session.run(None, {name: inputs[name].astype(np.int64) for name in names})[0]


def mean_of(folder: Path, texts: list[str], file: str = "model.onnx") -> np.ndarray:
    inputs, hidden_BLD = run(folder, texts, file)
    mask_BL1 = inputs["attention_mask"][..., None]
    return (hidden_BLD * mask_BL1).sum(axis=1) / mask_BL1.sum(axis=1)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RoBERTa-like encoder with float and int8 files."""
    return export("xlm-roberta", tmp_path_factory.mktemp("onnx"), int8=True, normalize=True)


@pytest.mark.parametrize(
    "kind",
    ["xlm-roberta", "bert", "distilbert", "mpnet", "modernbert"]
    + [pytest.param(kind, marks=pytest.mark.slow) for kind in ("electra", "deberta-v2", "albert")],
)
def test_families_give_the_vectors_of_torch(tmp_path: Path, kind: str) -> None:
    folder = export(kind, tmp_path)
    texts = [*SENTENCES, "a", " ".join(["the old man sees a dog"] * 4)]
    expected = embed_texts(load_encoder(tmp_path / "model"), texts, CPU)[-1].numpy()
    np.testing.assert_allclose(mean_of(folder, texts), expected, atol=1e-4)
    # Neither padding nor the size of the batch changes a vector.
    alone = np.concatenate([mean_of(folder, [text]) for text in texts])
    np.testing.assert_allclose(alone, expected, atol=1e-4)


@pytest.mark.parametrize(("pooling", "normalize"), [("cls", True), ("mean", True), ("cls", False)])
def test_sentence_transformers_pools_the_file(
    tmp_path: Path, pooling: Any, normalize: bool
) -> None:
    peer = pytest.importorskip("sentence_transformers")
    folder = export("xlm-roberta", tmp_path, pooling=pooling, normalize=normalize)
    model = peer.SentenceTransformer(str(folder), device="cpu")
    inputs, hidden_BLD = run(folder, SENTENCES)
    features = {"token_embeddings": torch.from_numpy(hidden_BLD)}
    features["attention_mask"] = torch.from_numpy(inputs["attention_mask"])
    for module in list(model)[1:]:
        features = module(features)
    expected = model.encode(SENTENCES, show_progress_bar=False)
    np.testing.assert_allclose(features["sentence_embedding"], expected, atol=1e-4)
    # The vectors that are measured are those of the folder.
    work = onnx_folder._Work.open(folder)
    found = work.compute(work.run_torch, Sample("texts", tuple(SENTENCES)), "test").values
    np.testing.assert_allclose(found.detach(), expected, atol=1e-4)
    figures = read_json(folder / "onnx/measured.json")["files"]["model.onnx"]
    assert figures["largest_difference"] < 1e-5


def test_sentence_transformers_loads_the_folder(exported: Path) -> None:
    pytest.importorskip("optimum.onnxruntime", exc_type=ImportError)
    from sentence_transformers import SentenceTransformer

    found = SentenceTransformer(str(exported), backend="onnx", device="cpu").encode(SENTENCES)
    expected = SentenceTransformer(str(exported), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_settings_have_nothing_that_the_onnx_backend_rejects(exported: Path) -> None:
    settings = read_json(exported / "sentence_bert_config.json")
    assert "model_args" not in settings and settings["max_seq_length"] == 38


def test_int8_is_measured_and_described(exported: Path) -> None:
    measured = read_json(exported / "onnx/measured.json")
    assert (measured["sample"], measured["texts"]) == ("pairs", 6)
    float32, int8 = (measured["files"][name] for name in ("model.onnx", "model_int8.onnx"))
    assert 0.9 < int8["mean_cosine"] < float32["mean_cosine"] <= 1.0000001
    assert int8["lowest_cosine"] <= int8["mean_cosine"]
    assert float32["retrieval"] == measured["torch_retrieval"]
    vectors = [mean_of(exported, list(PAIRS.texts), f"model{end}.onnx") for end in ("", "_int8")]
    vectors = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in vectors]
    cosines = (vectors[0] * vectors[1]).sum(axis=1)
    assert cosines.mean() == pytest.approx(int8["mean_cosine"], abs=1e-4)
    card = (exported / "README.md").read_text(encoding="utf-8")
    assert f"| {int8['mean_cosine']:.5f} |" in card
    assert f"8 bits: {int8['quantized']}." in card
    assert 'backend="onnx"' in card and "on 6 texts (pairs)" in card


def test_int8_has_a_scale_per_column_and_seven_bits(exported: Path) -> None:
    graph = onnx.load(exported / "onnx/model_int8.onnx").graph
    tensors = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    inputs = [node.input for node in graph.node if node.op_type == "MatMulInteger"]
    matrices = {names[1] for names in inputs if names[1] in tensors}
    assert matrices
    for name in matrices:
        weight, scale = tensors[name], tensors[name.replace("_quantized", "_scale")]
        assert scale.shape == (weight.shape[1],)
        assert 60 <= np.abs(weight.astype(int)).max() <= 64


def test_the_best_of_bad_choices_is_kept(exported: Path, tmp_path: Path) -> None:
    shutil.copy(exported / "onnx/model.onnx", tmp_path)
    qualities = iter([0.1, 0.5, 0.3])
    found: list[tuple[int, int]] = []

    def count(path: Path) -> tuple[int, int]:
        """Return the numbers of matrices with 8 bits, and of embeddings in floats."""
        graph = onnx.load(path).graph
        floats = [one for one in graph.initializer if one.data_type == onnx.TensorProto.FLOAT]
        tables = [one for one in floats if "embeddings" in one.name and len(one.dims) == 2]
        return sum(node.op_type == "MatMulInteger" for node in graph.node), len(tables)

    def measure(path: Path, name: str | None = None) -> Figures:
        found.append(count(path))
        return Figures(1.0, 0.0, mean_cosine=next(qualities), quantized=name)

    best = onnx_folder._quantize_well(tmp_path, measure)
    assert best.quality == 0.5 and best.quantized == onnx_folder._PLANS[1].name
    matrices, tables = zip(*found, strict=True)
    assert matrices[0] > matrices[1] == matrices[2]
    assert 0 == tables[0] == tables[1] < tables[2]
    assert count(tmp_path / "model_int8.onnx") == found[1]


def test_answers_are_not_in_the_padding(tmp_path: Path) -> None:
    folder = write_folder(ALL["bert"], tmp_path / "task", suffix="ForQuestionAnswering")
    work = onnx_folder._Work.open(folder)
    starts, ends = torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[3.0, 2.0, 9.0]])
    found = work._finish((starts, ends), torch.tensor([[True, True, False]]))
    assert found.predictions is not None and found.predictions.tolist() == [[1, 0]]
    assert found.values.tolist() == [[1, 3], [2, 2]]


def test_retrieval_is_the_mean_over_languages() -> None:
    right, wrong = torch.eye(4), torch.eye(4).roll(1, dims=0)
    values = torch.cat([right, right, right, wrong])  # two blocks of four pairs
    found = onnx_folder._retrieve(onnx_folder._Computed(values), Sample("", (), (4, 4)))
    assert found == 0.5


def test_a_loss_by_int8_is_in_card_and_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (onnx_folder, sys.modules["metaxlm.probe.onnx_report"]):
        monkeypatch.setattr(module, "LOWEST_QUALITY", 1.5)
    folder = export("bert", tmp_path, int8=True)
    printed = " ".join(capsys.readouterr().out.split())
    figures = read_json(folder / "onnx/measured.json")["files"]["model_int8.onnx"]
    expected = f"mean cosine with the float model's vectors is {figures['mean_cosine']:.4f}, below"
    assert f"warning: onnx/model_int8.onnx changes the model: the {expected}" in printed
    assert f"**Warning**: onnx/model_int8.onnx changes the model: the {expected}" in (
        folder / "README.md"
    ).read_text(encoding="utf-8")
    # All choices were tried.
    tried = [float(part.split(": ")[1].split(",")[0]) for part in printed.split("int8 of ")[1:]]
    assert len(tried) == 3 and f"{max(tried):.4f}" == f"{figures['mean_cosine']:.4f}"


def test_weights_above_the_limit_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_folder, "_LARGEST_FILE", 10_000)
    folder = export("bert", tmp_path, int8=True)
    sizes = {path.name: path.stat().st_size for path in (folder / "onnx").iterdir()}
    assert sizes["model.onnx_data"] > 50_000
    assert len(list((folder / "onnx").glob("model.onnx*"))) == 2
    figures = read_json(folder / "onnx/measured.json")["files"]["model.onnx"]
    assert figures["megabytes"] > 0.05
    expected = embed_texts(load_encoder(tmp_path / "model"), SENTENCES, CPU)[-1].numpy()
    np.testing.assert_allclose(mean_of(folder, SENTENCES), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        ("bert", "ForSequenceClassification"),
        ("xlm-roberta", "ForTokenClassification"),
        ("modernbert", "ForSequenceClassification"),
        ("distilbert", "ForQuestionAnswering"),
    ],
)
def test_task_models_give_their_logits(
    metaxlm: Command, tmp_path: Path, kind: str, suffix: str
) -> None:
    labels = {} if suffix == "ForQuestionAnswering" else {"id2label": {0: "a", 1: "b", 2: "c"}}
    write_folder(ALL[kind], tmp_path / "task", suffix=suffix, **labels)
    (tmp_path / "task/README.md").write_text("# A classifier\n\n## ONNX\n\nold\n")
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES))
    options = ("--format", "onnx", "--quantize", "int8", "--text", "texts.txt")
    code, printed, _ = metaxlm("export", "--model", "task", "--output", "out", *options)
    assert code == 0 and "written: out, for onnxruntime" in printed
    inputs, found = run(tmp_path / "out", SENTENCES)
    tensors = {name: torch.from_numpy(value) for name, value in inputs.items()}
    for folder in ("out", "task"):
        auto_class = getattr(transformers, f"AutoModel{suffix}")
        with torch.no_grad():
            outputs = auto_class.from_pretrained(tmp_path / folder).eval()(**tensors)
        expected = outputs[0].numpy()
        assert found.shape == expected.shape
        is_whole = suffix == "ForSequenceClassification"
        rows = slice(None) if is_whole else inputs["attention_mask"].astype(bool)
        np.testing.assert_allclose(found[rows], expected[rows], atol=1e-4)
    measured = read_json(tmp_path / "out/onnx/measured.json")["files"]
    assert measured["model.onnx"]["same_predictions"] == 1
    assert 0 <= measured["model_int8.onnx"]["same_predictions"] <= 1
    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert card.startswith("# A classifier") and card.count("## ONNX") == 1 and "old" not in card


def test_the_command(metaxlm: Command, encoder: Path, tmp_path: Path) -> None:
    shutil.copytree(encoder, tmp_path / "bert")
    (tmp_path / "pairs.tsv").write_text("a cat\tthe cat\nred house\tthe red house\n")
    command = ("export", "--model", "bert", "--format", "onnx")
    code, printed, errors = metaxlm(*command, "--text", "pairs.tsv", "--output", "out")
    assert (code, errors) == (0, "")
    lines = printed.splitlines()
    assert lines[-1] == 'written: out, for SentenceTransformer("out", backend="onnx")'
    assert lines[-2].startswith("onnx/model.onnx: 0.0 MB; cosine 1.0000, lowest 1.0000; largest")
    assert "; retrieval " in lines[-2]
    assert sorted(path.name for path in (tmp_path / "out/onnx").iterdir()) == [
        "measured.json", "model.onnx",
    ]  # fmt: skip
    assert read_json(tmp_path / "out/onnx/measured.json")["sample"] == "pairs.tsv"
    assert metaxlm("verify", "out")[0] == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--quantize", "int8"), "--quantize: only ONNX files have it; add --format onnx"),
        (("--text", "a.txt"), "--text: only ONNX files have it; add --format onnx"),
        (("--format", "onnx", "--text", "empty.txt"), "empty.txt:1: no text in it"),
        (("--format", "onnx", "--text", "none.txt"), "none.txt: no such file"),
        (("--format", "onnx", "--model", "task", *NORMALIZED), "task: has a task head"),
        (("--format", "onnx", "--model", "task", *CUT), "task: has a task head"),
    ],
)
def test_mistakes_are_one_line(
    metaxlm: Command, encoder: Path, tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "a.txt").write_text("a cat\n")
    if "task" in options:
        with quiet_transformers():
            write_folder(ALL["bert"], tmp_path / "task", suffix="ForSequenceClassification")
    command = ("export", "--model", encoder, "--output", "out", *options)
    assert expected in metaxlm.complaint(*command)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_missing_packages_are_named(
    metaxlm: Command, encoder: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    found = metaxlm.complaint("export", "--model", encoder, "--output", "out", "--format", "onnx")
    assert found == (
        f"metaxlm: ONNX files need {package}; install it with: pip install 'metaxlm[onnx]'\n"
    )


def test_a_file_with_other_numbers_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_folder, "TOLERANCE", -1.0)
    with pytest.raises(MetaXLMError, match="bert: the ONNX file gives other numbers than torch"):
        export("bert", tmp_path)


def test_the_built_in_sample_has_pairs() -> None:
    sample = read_sample(None)
    assert sample.blocks == (50,) * 5 and len(sample.texts) == 500
    assert "de, fr, ru, tr, zh with en" in sample.name
