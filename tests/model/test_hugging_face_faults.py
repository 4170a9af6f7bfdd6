"""Imports that must be refused, each with one line that names the place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoConfig
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.errors import MetaXLMError
from metaxlm.model import families
from metaxlm.model.huggingface import load_pretrained

Tensors = dict[str, torch.Tensor]
Edit = Callable[[Tensors], None]


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, **changes}))


def change_word_rows(tensors: Tensors) -> None:
    tensors["lm_head.decoder.weight"] = tensors["roberta.embeddings.word_embeddings.weight"] + 1


def change_decoder_bias(tensors: Tensors) -> None:
    tensors["lm_head.decoder.bias"] = tensors["lm_head.bias"] + 1


def drop_a_value(tensors: Tensors) -> None:
    del tensors["roberta.encoder.layer.1.attention.self.value.weight"]


def add_a_layer(tensors: Tensors) -> None:
    tensors["roberta.encoder.layer.2.output.dense.bias"] = torch.zeros(32)


def shorten_positions(tensors: Tensors) -> None:
    name = "roberta.embeddings.position_embeddings.weight"
    tensors[name] = tensors[name][:20].clone()


def quantize(tensors: Tensors) -> None:
    name = "roberta.encoder.layer.0.intermediate.dense.weight"
    tensors[name] = tensors[name].to(torch.int8)


def spell_twice(tensors: Tensors) -> None:
    tensors["lm_head.layer_norm.gamma"] = tensors["lm_head.layer_norm.weight"].clone()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (change_word_rows, r"lm_head.decoder.weight differs from the word embeddings"),
        (change_decoder_bias, r"lm_head.decoder.bias differs from lm_head.bias"),
        (drop_a_value, r"lacks 1 encoder parameters, such as encoder.layer.1.attention.self.value"),
        (add_a_layer, r"does not announce, such as encoder.layer.2.output.dense.bias"),
        (shorten_positions, r"position_embeddings.weight has shape \(20, 32\), but .* \(40, 32\)"),
        (quantize, r"encoder.layer.0.intermediate.dense.weight is stored as int8"),
        (spell_twice, r"holds lm_head.layer_norm.weight twice"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    folder: Path, edit_tensors: Callable[[Edit], None], edit: Edit, message: str
) -> None:
    edit_tensors(edit)
    with pytest.raises(MetaXLMError, match=message) as caught:
        load_pretrained(folder)
    assert str(caught.value).startswith(f"{folder}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "a-new-one"},
            "model_type is 'a-new-one'; metaxlm reads bert, camembert, distilbert, roberta, xlm-r",
        ),
        ({"model_type": None}, "model_type is None; metaxlm reads"),
        ({"model_type": ["bert"]}, r"model_type is \['bert'\]; metaxlm reads"),
        ({"architectures": ["RobertaForCausalLM"]}, r"architecture \['RobertaForCausalLM'\]"),
        ({"architectures": ["JinaBertModel"]}, r"architecture \['JinaBertModel'\]"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'; metaxlm computes only 'gelu'"),
        ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'; it must be a whole number"),
        ({"layer_norm_eps": None}, "layer_norm_eps is None; it must be a number"),
        ({"pad_token_id": None}, "pad_token_id is None; it must be a whole number"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not a multiple of num_heads 5"),
        ({"max_position_embeddings": 2}, "max_positions is 0"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    folder: Path, changes: dict[str, object], message: str
) -> None:
    edit_config(folder, **changes)
    with pytest.raises(MetaXLMError, match=message) as caught:
        load_pretrained(folder)
    assert str(caught.value).startswith(f"{folder / 'config.json'}: ")
    assert str(caught.value).count("config.json: ") == 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("albert", "shares one layer and factorizes its embeddings"),
        ("electra", "its discriminator has no MLM head"),
        ("deberta-v2", "relative positions"),
        ("mpnet", "relative positions"),
        ("modernbert", "rotates its queries and keys"),
        ("xlm-roberta-xl", "normalizes before each layer"),
        ("xlm", "no transform in its MLM head"),
        ("longformer", "attends to a part"),
        ("t5", "a decoder of its own"),
        ("gpt2", "from left to right"),
    ],
)
def test_a_related_family_is_refused_with_the_reason(
    model_type: str, reason: str, tmp_path: Path
) -> None:
    AutoConfig.for_model(model_type).save_pretrained(tmp_path)
    with pytest.raises(MetaXLMError) as caught:
        load_pretrained(tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'config.json'}: model_type is '{model_type}', which ")
    assert reason in message
    assert message.endswith("; metaxlm reads bert, camembert, distilbert, roberta, xlm-roberta")
    assert "\n" not in message


def test_every_reason_is_for_a_family_that_exists() -> None:
    assert set(families._REASON_OF) <= set(CONFIG_MAPPING.keys())
    assert not set(families._REASON_OF) & set(families.FAMILIES)


def test_an_activation_that_distilbert_does_not_share_is_refused(
    write_checkpoint: Callable[..., Path],
) -> None:
    folder = write_checkpoint("DistilBertForMaskedLM", activation="relu")
    with pytest.raises(MetaXLMError, match="activation is 'relu'; metaxlm computes only 'gelu'"):
        load_pretrained(folder)


def test_folders_that_are_no_models_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match="nowhere: no such folder"):
        load_pretrained(tmp_path / "nowhere")
    with pytest.raises(MetaXLMError, match="nowhere: no such folder"):
        load_pretrained(str(tmp_path / "nowhere"))
    with pytest.raises(MetaXLMError, match="a file; give the folder"):
        load_pretrained(folder / "config.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MetaXLMError, match=r"not a model folder, it has no config.json"):
        load_pretrained(tmp_path / "empty")
    (folder / "config.json").write_text("{")
    with pytest.raises(MetaXLMError, match=r"config.json:1: not valid JSON"):
        load_pretrained(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(MetaXLMError, match="model_type is None"):
        load_pretrained(folder)


def test_pickles_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(MetaXLMError, match=r"has no model.safetensors; convert"):
        load_pretrained(folder)
    (folder / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(MetaXLMError, match=r"has only pytorch_model.bin, a pickle .*convert") as e:
        load_pretrained(folder)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("keep", [0, 5, 400, -7], ids=lambda keep: f"[:{keep}]")
def test_damaged_weights_are_refused(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(MetaXLMError, match=r"model.safetensors: .*damaged or cut off") as caught:
        load_pretrained(folder)
    assert "\n" not in str(caught.value)


def test_tokenizers_that_do_not_fit_are_refused(
    folder: Path, tokenizer: Tokenizer, wordpiece_tokenizer: Tokenizer
) -> None:
    tokenizer.add_tokens(["extra"])
    tokenizer.save_pretrained(folder)
    size = len(tokenizer)
    with pytest.raises(MetaXLMError, match=f"has {size} tokens, but the model only {size - 1}"):
        load_pretrained(folder)
    wordpiece_tokenizer.save_pretrained(folder)
    with pytest.raises(MetaXLMError, match="pads with id 0, but the model with 1"):
        load_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(MetaXLMError, match="no tokenizer that transformers can load") as caught:
        load_pretrained(folder)
    assert "\n" not in str(caught.value)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(MetaXLMError, match=r"has no tokenizer; put its tokenizer.json there"):
        load_pretrained(folder)


@pytest.mark.parametrize("name", ["no-such-model", "nobody/no-such-model"])
def test_an_unknown_hub_name_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        MetaXLMError, match=f"^{name}: no such folder, and the Hugging Face hub"
    ) as caught:
        load_pretrained(name)
    assert "\n" not in str(caught.value)
