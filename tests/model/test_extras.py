"""A classifier stays a classifier: task heads and sentence modules pass from folder to folder."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.model.conftest import make_unigram_tokenizer
from tests.model.encoder_kinds import FOREIGN, OURS, SENTENCES, Kind, edit_config, write_folder
from transformers import AutoModelForMaskedLM, PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json
from metaxlm.init.start import Parts, match
from metaxlm.model.any_encoder import load_encoder, load_task_model
from metaxlm.model.extras import read_extras
from metaxlm.model.huggingface import CLASS_ENDINGS, load_pretrained

ENDINGS = list(CLASS_ENDINGS.values())
LABELS = {"id2label": {0: "no", 1: "maybe", 2: "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}
FAMILIES = OURS | {
    "roberta": Kind("Roberta", wordpiece=False, num_positions=38),
    "camembert": Kind("Camembert", wordpiece=False, num_positions=38),
}


def write_task_model(family: str, folder: Path, ending: str = ENDINGS[0]) -> Path:
    changes = {} if ending == "ForQuestionAnswering" else LABELS
    if ending == "ForSequenceClassification":
        changes = changes | {"problem_type": "single_label_classification"}
    return write_folder((FAMILIES | FOREIGN)[family], folder, suffix=ending, **changes)


@pytest.fixture
def pieces() -> PreTrainedTokenizerBase:
    return make_unigram_tokenizer()


NONE = {("eurobert", ENDINGS[2]), ("nomic_bert", ENDINGS[2]), ("xlm", ENDINGS[2])}  # no such class


def list_pairs() -> list[Any]:
    """Every family with every head; by default one head of each family, in turn."""
    pairs = []
    for number, family in enumerate(FAMILIES | FOREIGN):
        endings = [ending for ending in ENDINGS if (family, ending) not in NONE]
        for place, ending in enumerate(endings):
            marks = () if place == number % len(endings) else pytest.mark.slow
            pairs.append(pytest.param(family, ending, marks=marks))
    return pairs


@pytest.mark.parametrize(("family", "ending"), list_pairs())
def test_a_matched_task_model_is_one_with_the_same_head(
    tmp_path: Path, family: str, ending: str, pieces: PreTrainedTokenizerBase
) -> None:
    source = write_task_model(family, tmp_path / "source", ending)
    start = match(source, pieces)
    start.save(tmp_path / "matched")
    auto = getattr(transformers, f"AutoModel{ending}")
    before = auto.from_pretrained(source)
    after, report = auto.from_pretrained(tmp_path / "matched", output_loading_info=True)
    assert type(after) is type(before)
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    head = read_extras(source).tensors
    assert head
    states = before.state_dict(), after.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in head)
    for key in ("id2label", "label2id", "num_labels", "problem_type"):
        assert getattr(after.config, key) == getattr(before.config, key)
    # The same folder is the language model to train.
    _, report = AutoModelForMaskedLM.from_pretrained(tmp_path / "matched", output_loading_info=True)
    assert not report["missing_keys"]
    again = load_pretrained(tmp_path / "matched")
    assert not again.missing
    found = again.model.state_dict()
    assert all(torch.equal(found[name], value) for name, value in start.model.state_dict().items())


def test_a_model_without_the_source_layers_has_no_head(
    tmp_path: Path, pieces: PreTrainedTokenizerBase
) -> None:
    source = write_task_model("bert", tmp_path / "source")
    match(source, pieces, parts=Parts.preset("embeddings")).save(tmp_path / "matched")
    assert read_json(tmp_path / "matched" / "config.json")["architectures"] == ["BertForMaskedLM"]


def _drop(folder: Path, *names: str) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({k: v for k, v in tensors.items() if k not in names}, path, {"format": "pt"})


@pytest.mark.parametrize("fault", ["no labels", "no tensor", "another shape"])
def test_a_broken_head_is_rejected_before_anything_is_written(
    tmp_path: Path, fault: str, pieces: PreTrainedTokenizerBase
) -> None:
    source = write_task_model("bert", tmp_path / "source")
    expected = "classifier.weight of its BertForSequenceClassification is missing; use a complete"
    if fault == "no labels":
        edit_config(source, id2label=None, label2id=None)
        expected = "has 3 rows, but config.json has 2 labels; name 3 labels in id2label"
    elif fault == "no tensor":
        _drop(source, "classifier.weight")
    else:
        path = source / "model.safetensors"
        save_file(load_file(path) | {"classifier.weight": torch.ones(3, 8)}, path)
        expected = r"classifier.weight .* has shape \(3, 8\), but config.json makes it \(3, 32\)"
    with pytest.raises(MetaXLMError, match=expected) as found:
        match(source, pieces).save(tmp_path / "matched")
    assert "\n" not in str(found.value)
    assert not (tmp_path / "matched").exists()


@pytest.mark.parametrize("family", [*FAMILIES, *FOREIGN])
def test_the_own_head_is_scored_in_the_order_of_the_labels(tmp_path: Path, family: str) -> None:
    folder = write_task_model(family, tmp_path / "model")
    start = load_encoder(folder)
    model = load_task_model(start, "classification", ["YES", "no", "maybe"])
    inputs = start.tokenizer(SENTENCES[:1], return_tensors="pt")
    auto = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        expected, found = auto(**inputs).logits, model(inputs["input_ids"])
    torch.testing.assert_close(found, expected[:, [2, 0, 1]])
    with pytest.raises(MetaXLMError, match=r"label 'never' is not in id2label \(no, maybe, yes\)"):
        load_task_model(start, "classification", ["no", "never"])
    with pytest.raises(MetaXLMError, match="which must be one ForTokenClassification"):
        load_task_model(start, "tagging", ["no"])


MODULES = {
    "Transformer": None,
    "1_Pooling": {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": False}
    | {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": False},
    "2_Dense": {"in_features": 32, "out_features": 8, "bias": True}
    | {"activation_function": "torch.nn.modules.activation.Tanh"},
    "3_Normalize": None,
}


def write_sentence_folder(family: str, folder: Path, place: str) -> Path:
    """Write a sentence-transformers folder whose encoder is in the subfolder `place`, if any."""
    inner = write_folder(FAMILIES[family], folder / place)
    (inner / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    modules = []
    for number, (path, settings) in enumerate(MODULES.items()):
        name = path.split("_")[-1]
        path = place if name == "Transformer" else path
        kind = f"sentence_transformers.models.{name}"
        modules.append({"idx": number, "name": str(number), "path": path, "type": kind})
        if settings is not None:
            (folder / path).mkdir()
            (folder / path / "config.json").write_text(json.dumps(settings))
    dense = {"linear.weight": torch.randn(8, 32), "linear.bias": torch.randn(8)}
    save_file(dense, folder / "2_Dense" / "model.safetensors")
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "the "}}')
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.mark.parametrize(
    ("family", "place"),
    [
        pytest.param(family, place, marks=() if number % 2 == k else pytest.mark.slow)
        for number, family in enumerate(FAMILIES)
        for k, place in enumerate(("", "0_Transformer"))
    ],
)
def test_a_sentence_folder_stays_one(tmp_path: Path, family: str, place: str) -> None:
    source = write_sentence_folder(family, tmp_path / "source", place)
    first = load_pretrained(source)
    match(source, first.tokenizer).save(tmp_path / "first")
    match(tmp_path / "first", first.tokenizer, max_positions=16).save(tmp_path / "matched")
    matched = tmp_path / "matched"
    for name in ("1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"):
        assert (matched / name).read_bytes() == (source / name).read_bytes()
    modules, before = (read_json(one / "modules.json") for one in (matched, source))
    assert modules == [before[0] | {"path": ""}, *before[1:]]
    lengths = [read_json(tmp_path / name / "sentence_bert_config.json")["max_seq_length"]
               for name in ("first", "matched")]  # fmt: skip
    assert lengths == [20, 16]
    assert read_json(matched / "config_sentence_transformers.json")["prompts"] == {"query": "the "}
    assert len(load_encoder(matched).tokenizer) == len(first.tokenizer)
    if importlib.util.find_spec("sentence_transformers") is not None:
        from sentence_transformers import SentenceTransformer

        models = [SentenceTransformer(str(one), device="cpu") for one in (source, matched)]
        vectors = [torch.from_numpy(model.encode(SENTENCES)) for model in models]
        assert models[1].max_seq_length == 16
        assert vectors[1].shape == (len(SENTENCES), 8)
        torch.testing.assert_close(vectors[1], vectors[0], atol=1e-5, rtol=1e-4)


def test_a_sentence_folder_without_a_module_is_rejected(
    tmp_path: Path, pieces: PreTrainedTokenizerBase
) -> None:
    source = write_sentence_folder("bert", tmp_path / "source", "")
    shutil.rmtree(source / "2_Dense")
    with pytest.raises(MetaXLMError, match=r"2_Dense/config\.json is missing; copy the whole"):
        match(source, pieces)
