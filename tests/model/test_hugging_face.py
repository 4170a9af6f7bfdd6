from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
import transformers
from conftest import SENTENCES, disturb, make_unigram_tokenizer, make_wordpiece_tokenizer
from safetensors.torch import load_file, save_file

from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_file
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.model.hugging_face import load_pretrained, save_pretrained

HEAD = {"head.dense.weight", "head.dense.bias", "head.norm.weight", "head.norm.bias", "head.bias"}
FAMILIES = [
    ("RobertaForMaskedLM", {"layer_norm_eps": 1e-5, "type_vocab_size": 1}),
    ("XLMRobertaForMaskedLM", {"layer_norm_eps": 1e-3, "hidden_size": 96, "num_hidden_layers": 3}),
    ("CamembertForMaskedLM", {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}),
    ("BertForMaskedLM", {"type_vocab_size": 2}),
    ("BertForMaskedLM", {"type_vocab_size": 1, "layer_norm_eps": 1e-3}),
]


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, **changes}))


def edit_tensors(folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    edit(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def assert_same_logits(ours: MaskedLM, theirs: torch.nn.Module, tokenizer: object) -> None:
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")  # type: ignore[operator]
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = theirs(**batch).logits[mask]
        found = ours.logits(batch["input_ids"], mask)[mask]
    assert expected.abs().max() > 0.1
    assert (found - expected).abs().max() < 1e-5


@pytest.mark.parametrize(("class_name", "changes"), FAMILIES)
def test_import_then_export_keeps_every_logit(
    class_name: str,
    changes: dict[str, object],
    write_checkpoint: Callable[..., Path],
    tmp_path: Path,
) -> None:
    source = write_checkpoint(class_name, **changes)
    loaded = load_pretrained(source)
    assert loaded.architecture == class_name
    assert loaded.missing == ()
    assert not loaded.model.training
    original = transformers.AutoModelForMaskedLM.from_pretrained(source)
    assert_same_logits(loaded.model, original, loaded.tokenizer)

    save_pretrained(loaded.model, loaded.tokenizer, tmp_path / "exported", "# card\n")
    exported = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "exported")
    assert type(exported).__name__ == "XLMRobertaForMaskedLM"
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert_same_logits(loaded.model, exported, tokenizer)

    again = load_pretrained(tmp_path / "exported")
    assert_same_logits(again.model, exported, tokenizer)
    assert again.model.config.dropout == loaded.model.config.dropout
    assert again.model.config.attention_dropout == loaded.model.config.attention_dropout
    assert again.model.config.max_positions == loaded.model.config.max_positions


@pytest.mark.parametrize("class_name", ["RobertaForMaskedLM", "BertForMaskedLM"])
def test_transformers_misses_nothing_in_an_export(
    class_name: str, write_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    loaded = load_pretrained(write_checkpoint(class_name))
    save_pretrained(loaded.model, loaded.tokenizer, tmp_path / "model", "")
    _, info = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "model", output_loading_info=True
    )
    assert not any(info.values()), info
    base, info = transformers.AutoModel.from_pretrained(
        tmp_path / "model", output_loading_info=True, add_pooling_layer=False
    )
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    # AutoModel has no use for the head; the same is said of every masked language model.
    assert all(name.startswith("lm_head.") for name in info["unexpected_keys"])
    batch = loaded.tokenizer(SENTENCES, padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = base(**batch, output_hidden_states=True).hidden_states
        found = loaded.model.encoder.hidden_states(batch["input_ids"], mask)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs)[mask].abs().max() < 1e-5
    _, info = transformers.AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert all(name.startswith("pooler.") for name in info["missing_keys"])


def test_an_export_carries_the_whole_configuration(tmp_path: Path) -> None:
    tokenizer = make_unigram_tokenizer()
    config = EncoderConfig(
        len(tokenizer), 24, 2, 3, 40, max_positions=17, norm_eps=3e-6, dropout=0.0
    )
    save_pretrained(MaskedLM(config), tokenizer, tmp_path / "model", "")
    values = json.loads((tmp_path / "model" / "config.json").read_text())
    assert values["layer_norm_eps"] == 3e-6
    assert values["max_position_embeddings"] == 19
    assert values["type_vocab_size"] == 1
    assert (values["pad_token_id"], values["bos_token_id"], values["eos_token_id"]) == (1, 0, 2)
    assert transformers.AutoConfig.from_pretrained(tmp_path / "model").dtype == torch.float32
    assert load_pretrained(tmp_path / "model").model.config == config


def test_the_exported_tokenizer_is_the_same_tokenizer(tmp_path: Path) -> None:
    tokenizer = make_unigram_tokenizer()
    model = MaskedLM(EncoderConfig(len(tokenizer), 8, 1, 1, 8, max_positions=17))
    before = json.loads(tokenizer.backend_tokenizer.to_str())
    tokenizer(SENTENCES, padding="max_length", max_length=5, truncation=True)
    save_pretrained(model, tokenizer, tmp_path / "model", "")
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert json.loads(loaded.backend_tokenizer.to_str()) == before
    assert loaded.model_max_length == 17
    for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"):
        name = f"{role}_token"
        assert getattr(loaded, name) == getattr(tokenizer, name)
    # The full-width letters are seen as plain ones only if the normalizer survived.
    texts = [*SENTENCES, "ｔｈｅ cat <mask> a dog", "unseen!"]
    assert loaded(texts)["input_ids"] == tokenizer(texts)["input_ids"]
    assert set(loaded("a", "b")) == {"input_ids", "attention_mask"}


def test_pairs_work_in_an_exported_bert(
    write_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    loaded = load_pretrained(write_checkpoint("BertForMaskedLM"))
    save_pretrained(loaded.model, loaded.tokenizer, tmp_path / "model", "")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    model = transformers.AutoModel.from_pretrained(tmp_path / "model", add_pooling_layer=False)
    batch = tokenizer("the cat", "a dog", return_tensors="pt")
    with torch.no_grad():
        found = loaded.model.encoder(batch["input_ids"])
        assert (model(**batch).last_hidden_state - found).abs().max() < 1e-5


def test_exports_are_reproducible_and_replace_the_old_folder(tmp_path: Path) -> None:
    tokenizer = make_unigram_tokenizer()
    model = MaskedLM(EncoderConfig(len(tokenizer), 8, 1, 1, 8))
    for name in ("one", "two"):
        save_pretrained(model, tokenizer, tmp_path / name, "# card\n")
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == [
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    for name in files:
        assert digest_file(tmp_path / "one" / name) == digest_file(tmp_path / "two" / name)
    old = digest_file(tmp_path / "two" / "model.safetensors")
    disturb(model)
    save_pretrained(model, tokenizer, tmp_path / "two", "# another\n")
    assert digest_file(tmp_path / "two" / "model.safetensors") != old
    assert (tmp_path / "two" / "README.md").read_text() == "# another\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_a_failed_export_leaves_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = make_unigram_tokenizer()
    model = MaskedLM(EncoderConfig(len(tokenizer), 8, 1, 1, 8))
    save_pretrained(model, tokenizer, tmp_path / "model", "# old\n")
    with pytest.raises(TypeError):
        save_pretrained(model, tokenizer, tmp_path / "model", None)  # type: ignore[arg-type]
    assert (tmp_path / "model" / "README.md").read_text() == "# old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_half_precision_model_is_exported_as_float32(tmp_path: Path) -> None:
    tokenizer = make_unigram_tokenizer()
    model = MaskedLM(EncoderConfig(len(tokenizer), 8, 1, 1, 8)).bfloat16()
    save_pretrained(model, tokenizer, tmp_path / "model", "")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_half_precision_checkpoint_loads_as_float32(folder: Path, dtype: torch.dtype) -> None:
    full = load_pretrained(folder).model.state_dict()

    def halve(tensors: dict[str, torch.Tensor]) -> None:
        tensors.update({name: tensor.to(dtype) for name, tensor in tensors.items()})

    edit_tensors(folder, halve)
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


@pytest.mark.parametrize(
    "class_name", ["RobertaModel", "XLMRobertaModel", "CamembertModel", "BertModel"]
)
def test_a_base_model_gets_a_fresh_head(
    class_name: str, write_checkpoint: Callable[..., Path]
) -> None:
    folder = write_checkpoint(class_name)
    torch.manual_seed(5)
    first = load_pretrained(folder)
    torch.manual_seed(5)
    second = load_pretrained(folder)
    assert set(first.missing) == HEAD
    assert first.architecture == class_name
    state, same = first.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(state[name], same[name]) for name in state)
    assert state["head.dense.weight"].std().item() == pytest.approx(0.02, rel=0.2)
    assert state["head.norm.weight"].eq(1).all()
    assert state["head.bias"].eq(0).all()
    theirs = transformers.AutoModel.from_pretrained(folder)
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        difference = theirs(ids).last_hidden_state - first.model.encoder(ids)
    assert difference.abs().max() < 1e-5


@pytest.mark.parametrize(
    ("class_name", "lacks_head"),
    [
        ("BertForPreTraining", False),
        ("RobertaForSequenceClassification", True),
        ("XLMRobertaForTokenClassification", True),
        ("BertForQuestionAnswering", True),
    ],
)
def test_other_heads_are_left_behind(
    class_name: str, lacks_head: bool, write_checkpoint: Callable[..., Path]
) -> None:
    loaded = load_pretrained(write_checkpoint(class_name))
    assert set(loaded.missing) == (HEAD if lacks_head else set())


def test_loading_leaves_the_random_generator_alone(folder: Path) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    load_pretrained(folder)
    assert torch.equal(torch.rand(3), expected)


def test_a_loaded_model_can_be_trained(folder: Path) -> None:
    model = load_pretrained(folder).model.train()
    model(torch.tensor([[5, 6, 7]]), None, torch.tensor([1])).sum().backward()
    assert all(p.requires_grad and p.grad is not None for p in model.parameters())


def rename_old_norms(tensors: dict[str, torch.Tensor]) -> None:
    for name in [name for name in tensors if "LayerNorm" in name or "layer_norm" in name]:
        old = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        tensors[old] = tensors.pop(name)


def strip_prefix(tensors: dict[str, torch.Tensor]) -> None:
    for name in [name for name in tensors if name.startswith("roberta.")]:
        tensors[name.removeprefix("roberta.")] = tensors.pop(name)


def spell_out_the_decoder(tensors: dict[str, torch.Tensor]) -> None:
    words = tensors["roberta.embeddings.word_embeddings.weight"]
    tensors["lm_head.decoder.weight"] = words.clone()
    tensors["lm_head.decoder.bias"] = tensors["lm_head.bias"].clone()


def keep_the_bias_in_the_decoder(tensors: dict[str, torch.Tensor]) -> None:
    tensors["lm_head.decoder.bias"] = tensors.pop("lm_head.bias")


def add_buffers(tensors: dict[str, torch.Tensor]) -> None:
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
    folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]
) -> None:
    expected = load_pretrained(folder).model.state_dict()
    edit_tensors(folder, edit)
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


def change_word_rows(tensors: dict[str, torch.Tensor]) -> None:
    tensors["lm_head.decoder.weight"] = tensors["roberta.embeddings.word_embeddings.weight"] + 1


def change_decoder_bias(tensors: dict[str, torch.Tensor]) -> None:
    tensors["lm_head.decoder.bias"] = tensors["lm_head.bias"] + 1


def drop_a_value(tensors: dict[str, torch.Tensor]) -> None:
    del tensors["roberta.encoder.layer.1.attention.self.value.weight"]


def add_a_layer(tensors: dict[str, torch.Tensor]) -> None:
    tensors["roberta.encoder.layer.2.output.dense.bias"] = torch.zeros(32)


def shorten_positions(tensors: dict[str, torch.Tensor]) -> None:
    name = "roberta.embeddings.position_embeddings.weight"
    tensors[name] = tensors[name][:20].clone()


def quantize(tensors: dict[str, torch.Tensor]) -> None:
    name = "roberta.encoder.layer.0.intermediate.dense.weight"
    tensors[name] = tensors[name].to(torch.int8)


def spell_twice(tensors: dict[str, torch.Tensor]) -> None:
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
    folder: Path, edit: Callable[[dict[str, torch.Tensor]], None], message: str
) -> None:
    edit_tensors(folder, edit)
    with pytest.raises(MetaXLMError, match=message) as caught:
        load_pretrained(folder)
    assert str(caught.value).startswith(f"{folder}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; metaxlm reads bert, camembert, roberta"),
        ({"model_type": None}, "model_type is None"),
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


def test_folders_that_are_no_models_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match="nowhere: no such folder"):
        load_pretrained(tmp_path / "nowhere")
    with pytest.raises(MetaXLMError, match="nowhere: no such folder"):
        load_pretrained(str(tmp_path / "nowhere"))
    with pytest.raises(MetaXLMError, match="is a file; give the folder"):
        load_pretrained(folder / "config.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MetaXLMError, match="not a model folder, it has no config.json"):
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
    with pytest.raises(MetaXLMError, match="model.safetensors: damaged or cut off") as caught:
        load_pretrained(folder)
    assert "\n" not in str(caught.value)


def test_tokenizers_that_do_not_fit_are_refused(folder: Path) -> None:
    tokenizer = make_unigram_tokenizer()
    tokenizer.add_tokens(["extra"])
    tokenizer.save_pretrained(folder)
    size = len(tokenizer)
    with pytest.raises(MetaXLMError, match=f"has {size} tokens, but the model only {size - 1}"):
        load_pretrained(folder)
    make_wordpiece_tokenizer().save_pretrained(folder)
    with pytest.raises(MetaXLMError, match="pads with id 0, but the model with 1"):
        load_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(MetaXLMError, match="its tokenizer cannot be loaded") as caught:
        load_pretrained(folder)
    assert "\n" not in str(caught.value)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(MetaXLMError, match="has no tokenizer; put its tokenizer.json there"):
        load_pretrained(folder)


def test_a_foreign_tokenizer_is_not_exported(tmp_path: Path) -> None:
    tokenizer = make_wordpiece_tokenizer()
    model = MaskedLM(EncoderConfig(len(tokenizer), 8, 1, 1, 8))
    with pytest.raises(MetaXLMError, match="the tokenizer pads with id 0, but the model with 1"):
        save_pretrained(model, tokenizer, tmp_path / "model", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["no-such-model", "nobody/no-such-model"])
def test_an_unknown_hub_name_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(MetaXLMError, match=f"^{name}: neither a folder here nor") as caught:
        load_pretrained(name)
    assert "\n" not in str(caught.value)


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
