"""Imports: every family, age, precision and spelling of a checkpoint that we claim to read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
import transformers

from metaxlm.errors import MetaXLMError
from metaxlm.model.huggingface import load_pretrained

Tensors = dict[str, torch.Tensor]
Edit = Callable[[Tensors], None]
HEAD = {"head.dense.weight", "head.dense.bias", "head.norm.weight", "head.norm.bias", "head.bias"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_half_precision_checkpoint_loads_as_float32(
    folder: Path, edit_tensors: Callable[[Edit], None], dtype: torch.dtype
) -> None:
    full = load_pretrained(folder).model.state_dict()

    def halve(tensors: Tensors) -> None:
        tensors.update({name: tensor.to(dtype) for name, tensor in tensors.items()})

    edit_tensors(halve)
    loaded = load_pretrained(folder).model.state_dict()
    for name, value in loaded.items():
        assert value.dtype == torch.float32
        assert torch.equal(value, full[name].to(dtype).float()), name


def test_shards_are_read(folder: Path) -> None:
    whole = load_pretrained(folder).model.state_dict()
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert not (folder / "model.safetensors").exists()
    loaded = load_pretrained(folder).model.state_dict()
    assert all(torch.equal(loaded[name], whole[name]) for name in whole)
    shards[1].unlink()
    with pytest.raises(MetaXLMError, match=f"{shards[1].name}: named in model.safetensors.index"):
        load_pretrained(folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(MetaXLMError, match="has no weight_map"):
        load_pretrained(folder)


BASES = ["RobertaModel", "XLMRobertaModel", "CamembertModel", "BertModel", "DistilBertModel"]


@pytest.mark.parametrize("class_name", BASES)
def test_a_base_model_gets_a_fresh_head(
    class_name: str, write_checkpoint: Callable[..., Path]
) -> None:
    folder = write_checkpoint(class_name)
    loaded = load_pretrained(folder)
    assert set(loaded.missing) == HEAD
    assert loaded.architecture == class_name
    state = loaded.model.state_dict()
    assert state["head.dense.weight"].std().item() == pytest.approx(0.02, rel=0.2)
    assert state["head.dense.bias"].eq(0).all()
    assert state["head.norm.weight"].eq(1).all()
    assert state["head.bias"].eq(0).all()
    theirs = transformers.AutoModel.from_pretrained(folder)
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        difference = theirs(ids).last_hidden_state - loaded.model.encoder(ids)
    assert difference.abs().max() < 1e-5


def test_a_fresh_head_depends_on_nothing_but_its_size(
    write_checkpoint: Callable[..., Path],
) -> None:
    folder, other = write_checkpoint("BertModel"), write_checkpoint("RobertaModel")
    torch.manual_seed(1)
    first = load_pretrained(folder).model.head.state_dict()
    torch.manual_seed(2)
    load_pretrained(other)
    with torch.device("meta"):
        second = load_pretrained(folder).model.head.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_only_the_lost_part_of_a_head_is_fresh(
    folder: Path, edit_tensors: Callable[[Edit], None]
) -> None:
    whole = load_pretrained(folder).model.state_dict()
    edit_tensors(lambda tensors: tensors.__delitem__("lm_head.layer_norm.bias"))
    loaded = load_pretrained(folder)
    assert loaded.missing == ("head.norm.bias",)
    for name, value in loaded.model.state_dict().items():
        assert torch.equal(value, whole[name]) == (name not in loaded.missing), name


@pytest.mark.parametrize(
    ("class_name", "lacks_head"),
    [
        ("BertForPreTraining", False),
        ("RobertaForSequenceClassification", True),
        ("XLMRobertaForTokenClassification", True),
        ("BertForQuestionAnswering", True),
        ("DistilBertForSequenceClassification", True),
    ],
)
def test_other_heads_are_left_behind(
    class_name: str, lacks_head: bool, write_checkpoint: Callable[..., Path]
) -> None:
    loaded = load_pretrained(write_checkpoint(class_name))
    assert set(loaded.missing) == (HEAD if lacks_head else set())


@pytest.mark.parametrize("class_name", ["RobertaModel", "DistilBertForMaskedLM"])
def test_loading_leaves_the_random_generator_alone(
    class_name: str, write_checkpoint: Callable[..., Path]
) -> None:
    folder = write_checkpoint(class_name)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    load_pretrained(folder)
    assert torch.equal(torch.rand(3), expected)


def test_a_loaded_model_can_be_trained(folder: Path) -> None:
    model = load_pretrained(folder).model.train()
    model(torch.tensor([[5, 6, 7]]), None, torch.tensor([1])).sum().backward()
    assert all(p.requires_grad and p.grad is not None for p in model.parameters())


def rename_old_norms(tensors: Tensors) -> None:
    for name in [name for name in tensors if "LayerNorm" in name or "layer_norm" in name]:
        old = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        tensors[old] = tensors.pop(name)


def strip_prefix(tensors: Tensors) -> None:
    for name in [name for name in tensors if name.startswith("roberta.")]:
        tensors[name.removeprefix("roberta.")] = tensors.pop(name)


def spell_out_the_decoder(tensors: Tensors) -> None:
    words = tensors["roberta.embeddings.word_embeddings.weight"]
    tensors["lm_head.decoder.weight"] = words.clone()
    tensors["lm_head.decoder.bias"] = tensors["lm_head.bias"].clone()


def keep_the_bias_in_the_decoder(tensors: Tensors) -> None:
    tensors["lm_head.decoder.bias"] = tensors.pop("lm_head.bias")


def add_buffers(tensors: Tensors) -> None:
    tensors["roberta.embeddings.position_ids"] = torch.arange(40)[None]
    tensors["roberta.pooler.dense.weight"] = torch.zeros(32, 32)


@pytest.mark.parametrize(
    "edit",
    [
        rename_old_norms,
        strip_prefix,
        spell_out_the_decoder,
        keep_the_bias_in_the_decoder,
        add_buffers,
    ],
)
def test_other_spellings_are_understood(
    folder: Path, edit_tensors: Callable[[Edit], None], edit: Edit
) -> None:
    expected = load_pretrained(folder).model.state_dict()
    edit_tensors(edit)
    loaded = load_pretrained(folder)
    assert loaded.missing == ()
    found = loaded.model.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_missing_configuration_keys_have_the_family_defaults(
    write_checkpoint: Callable[..., Path],
) -> None:
    folder = write_checkpoint("BertForMaskedLM")
    values = json.loads((folder / "config.json").read_text())
    for key in ("architectures", "layer_norm_eps", "type_vocab_size", "pad_token_id"):
        del values[key]
    (folder / "config.json").write_text(json.dumps(values))
    loaded = load_pretrained(folder)
    assert loaded.architecture == "BertModel"
    assert loaded.model.config.norm_eps == 1e-12
    assert loaded.model.config.pad_id == 0
    assert loaded.missing == ()


def test_a_hub_name_is_found_in_the_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "cache" / "models--somebody--tiny"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (repository / "snapshots").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    folder.rename(repository / "snapshots" / commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    assert load_pretrained("somebody/tiny").architecture == "RobertaForMaskedLM"
