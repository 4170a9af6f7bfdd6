"""Load checkpoints of every supported family, age, precision and layout; reject the others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
import transformers
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import load_file, save_file
from tests.model.encoder_kinds import edit_config
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.errors import MetaXLMError
from metaxlm.model import model_folder
from metaxlm.model.encoder import Rotary
from metaxlm.model.huggingface import load_pretrained

SENTENCES = ["the cat sees a dog", "a small house", "the old man likes the red house"]
Tensors = dict[str, torch.Tensor]
Edit = Callable[[Tensors], None]
EditTensors = Callable[[Edit], None]
Write = Callable[..., Path]
HEAD = {"head.dense.weight", "head.dense.bias", "head.norm.weight", "head.norm.bias", "head.bias"}


def assert_parity(folder: Path, **settings: str) -> None:
    """Compare every layer and every logit with transformers, on a padded batch."""
    loaded = load_pretrained(folder)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder, **settings)
    batch = loaded.tokenizer(SENTENCES, padding=True, return_tensors="pt")
    mask = batch["attention_mask"].bool()
    assert not mask.all()
    with torch.no_grad():
        expected = theirs(**batch, output_hidden_states=True)
        states = loaded.model.encoder.hidden_states(batch["input_ids"], mask)
        logits = loaded.model.logits(batch["input_ids"], mask)
    assert expected.logits.abs().max() > 0.1
    for ours, wanted in zip(states, expected.hidden_states, strict=True):
        assert (ours - wanted)[mask].abs().max() < 1e-5
    assert logits.shape == expected.logits.shape
    assert (logits - expected.logits)[mask].abs().max() < 1e-5


def fails(folder: Path | str, message: str) -> str:
    """Return the error of loading a folder, which is one line."""
    with pytest.raises(MetaXLMError, match=message) as caught:
        load_pretrained(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_half_precision_checkpoint_loads_as_float32(
    folder: Path, edit_tensors: EditTensors
) -> None:
    full, half = load_pretrained(folder).model.state_dict(), torch.bfloat16
    edit_tensors(lambda tensors: tensors.update({n: t.to(half) for n, t in tensors.items()}))
    for name, value in load_pretrained(folder).model.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, full[name].to(half).float()), name


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
    fails(folder, f"{shards[1].name}: named in model.safetensors.index")
    (folder / "model.safetensors.index.json").write_text("{}")
    fails(folder, "has no weight_map")


@pytest.mark.parametrize("prefix", ["Roberta", "XLMRoberta", "Camembert", "Bert", "DistilBert"])
def test_a_base_model_gets_a_random_head(prefix: str, write_checkpoint: Write) -> None:
    folder = write_checkpoint(f"{prefix}Model")
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    loaded = load_pretrained(folder)
    assert torch.equal(torch.rand(3), expected), "loading does not change the generator"
    assert set(loaded.missing) == HEAD
    assert loaded.architecture == f"{prefix}Model"
    state = loaded.model.state_dict()
    assert state["head.dense.weight"].std().item() == pytest.approx(0.02, rel=0.2)
    assert state["head.norm.weight"].eq(1).all()
    assert all(state[name].eq(0).all() for name in ("head.dense.bias", "head.bias"))
    with torch.device("meta"):
        again = load_pretrained(folder).model.head.state_dict()
    assert all(torch.equal(state[f"head.{name}"], again[name]) for name in again)
    theirs = transformers.AutoModel.from_pretrained(folder)
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        difference = theirs(ids).last_hidden_state - loaded.model.encoder(ids)
    assert difference.abs().max() < 1e-5


@pytest.mark.parametrize(
    ("class_name", "missing"),
    [
        ("BertForPreTraining", set()),
        ("XLMRobertaForTokenClassification", HEAD),
        ("BertForQuestionAnswering", HEAD),
        ("DistilBertForSequenceClassification", HEAD),
        ("ModernBertForTokenClassification", {"head.bias"}),  # all its heads start alike
    ],
)
def test_task_heads_are_ignored(
    class_name: str, missing: set[str], write_checkpoint: Write
) -> None:
    loaded = load_pretrained(write_checkpoint(class_name))
    assert set(loaded.missing) == missing


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


def keep_bias_in_decoder(tensors: Tensors) -> None:
    tensors["lm_head.decoder.bias"] = tensors.pop("lm_head.bias")


def add_buffers(tensors: Tensors) -> None:
    tensors["roberta.embeddings.position_ids"] = torch.arange(40)[None]
    tensors["roberta.pooler.dense.weight"] = torch.zeros(32, 32)


EDITS = [rename_old_norms, strip_prefix, spell_out_the_decoder, keep_bias_in_decoder, add_buffers]


@pytest.mark.parametrize("edit", EDITS)
def test_other_spellings_are_understood(
    folder: Path, edit_tensors: EditTensors, edit: Edit
) -> None:
    expected = load_pretrained(folder).model.state_dict()
    edit_tensors(edit)
    loaded = load_pretrained(folder)
    assert loaded.missing == ()
    found = loaded.model.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_first_bert_checkpoints_are_read(write_checkpoint: Write) -> None:
    folder = write_checkpoint("BertForPreTraining")
    path = folder / "model.safetensors"
    tensors = load_file(path)
    rename_old_norms(tensors)
    tensors["bert.embeddings.position_ids"] = torch.arange(40)[None]
    save_file(tensors, path, metadata={"format": "pt"})
    assert sum(name.endswith(".gamma") for name in tensors) == 6
    values = json.loads((folder / "config.json").read_text())
    for key in ("architectures", "layer_norm_eps", "type_vocab_size", "pad_token_id"):
        del values[key]
    (folder / "config.json").write_text(json.dumps(values))
    loaded = load_pretrained(folder)
    assert (loaded.architecture, loaded.missing) == ("BertModel", ())
    assert (loaded.model.config.norm_eps, loaded.model.config.pad_id) == (1e-12, 0)
    assert_parity(folder)


def test_embeddings_beyond_the_tokenizer_are_kept(write_checkpoint: Write) -> None:
    folder = write_checkpoint("BertForMaskedLM", vocab_size=64)
    loaded = load_pretrained(folder)
    assert len(loaded.tokenizer) < 64
    assert loaded.model.config.vocab_size == 64
    assert_parity(folder)


def test_untied_embeddings_are_read_if_they_are_equal(write_checkpoint: Write) -> None:
    folder = write_checkpoint("RobertaForMaskedLM", tie_word_embeddings=False)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    fails(folder, r"lm_head.decoder.weight differs .*an untied output")
    words = tensors["roberta.embeddings.word_embeddings.weight"]
    tensors["lm_head.decoder.weight"] = words.clone()
    tensors.pop("lm_head.decoder.bias", None)
    save_file(tensors, path, metadata={"format": "pt"})
    edit_config(folder, tie_word_embeddings=True)
    assert_parity(folder)


def test_settings_and_token_types_of_distilbert(write_checkpoint: Write) -> None:
    folder = write_checkpoint("DistilBertForMaskedLM", dropout=0.2, attention_dropout=0.3)
    values = json.loads((folder / "config.json").read_text())
    # Two settings have two names.
    values["hidden_size"] = values.pop("dim")
    values["num_hidden_layers"] = values.pop("n_layers")
    (folder / "config.json").write_text(json.dumps(values))
    assert_parity(folder)
    model = load_pretrained(folder).model
    assert (model.config.dropout, model.config.attention_dropout) == (0.2, 0.3)
    assert model.encoder.embeddings.token_types is None


FULL, SLIDING = "full_attention", "sliding_attention"
LOCAL_KEYS = {"local_attention": 4, "num_hidden_layers": 4, "max_position_embeddings": 64}


def rewrite_as_version_4(folder: Path) -> None:
    """Give ModernBERT's settings the names that they have on the hub."""
    values = json.loads((folder / "config.json").read_text())
    ropes = values.pop("rope_parameters")
    values["global_rope_theta"] = ropes[FULL]["rope_theta"]
    values["local_rope_theta"] = ropes[SLIDING]["rope_theta"]
    values["global_attn_every_n_layers"] = values.pop("layer_types").index(FULL, 1)
    values["position_embedding_type"] = "sans_pos"
    (folder / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize(("every", "attention"), [(2, "sdpa"), (3, "eager")])
def test_old_and_new_settings_of_modernbert(
    every: int, attention: str, write_checkpoint: Write
) -> None:
    kinds = [SLIDING if number % every else FULL for number in range(4)]
    ropes = {FULL: {"rope_theta": 50.0}, SLIDING: {"rope_theta": 7.0}}
    settings = {"layer_types": kinds, "rope_parameters": ropes}
    folder = write_checkpoint("ModernBertForMaskedLM", **LOCAL_KEYS, **settings)
    assert_parity(folder, attn_implementation=attention)
    new = load_pretrained(folder).model.config
    assert new.rotary == Rotary(2, every, 50.0, 7.0)
    rewrite_as_version_4(folder)
    assert load_pretrained(folder).model.config == new
    assert_parity(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_bias": True}, "attention_bias is True; metaxlm computes only False"),
        ({"decoder_bias": False}, "decoder_bias is False; metaxlm computes only True"),
        ({"hidden_activation": "silu"}, "hidden_activation is 'silu'; metaxlm computes only 'gelu"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling is .*; metaxlm computes only None"),
        ({"embedding_dropout": 0.1}, "embedding_dropout is 0.1; metaxlm computes only 0.0"),
        ({"layer_types": [SLIDING] * 4}, "layer_types is .*computes only full_attention in each"),
        ({"layer_types": [FULL] * 3}, "layer_types is .* N-th of the 4 layers"),
        ({"rope_parameters": {"rope_theta": 7.0}}, "it must have full_attention and sliding"),
        ({"rope_parameters": {FULL: {"rope_type": "yarn"}}}, "computes only rope_type 'default'"),
        ({"rope_parameters": {SLIDING: {"rope_theta": None}}}, "theta must be a number"),
        ({"local_attention": 1}, "window is 0; it must be positive"),
        ({"num_attention_heads": 32}, "a head has 1 dimensions; rotary positions need pairs"),
    ],
)
def test_settings_of_modernbert_that_we_do_not_compute(
    changes: dict[str, object], message: str, write_checkpoint: Write, tmp_path: Path
) -> None:
    source = write_checkpoint("ModernBertForMaskedLM", **LOCAL_KEYS)
    edit_config(source, **changes)
    assert fails(source, message).startswith(f"{source / 'config.json'}: ")


@pytest.mark.parametrize("is_uncased", [True, False], ids=["uncased", "cased"])
def test_a_folder_with_only_vocab_txt_keeps_its_case(
    is_uncased: bool, write_checkpoint: Write
) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "The", "##s"]
    folder = write_checkpoint("DistilBertForMaskedLM", vocab_size=len(tokens))
    for path in folder.glob("*token*"):
        path.unlink()
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": is_uncased}))
    loaded = load_pretrained(folder)
    pieces = loaded.tokenizer.tokenize("The cats")
    assert pieces == ["the" if is_uncased else "The", "cat", "##s"]
    assert_parity(folder)


def make_sentence_transformer(folder: Path, path: str) -> Path:
    """Return a sentence-transformers folder with the encoder in `path`."""
    root = folder.parent / "sentences"
    root.mkdir()
    (root / "1_Pooling").mkdir()
    (root / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    kinds = {"1_Pooling": "Pooling", path: "Transformer"}
    modules = [
        {"idx": i, "name": str(i), "path": name, "type": f"sentence_transformers.models.{kind}"}
        for i, (name, kind) in enumerate(kinds.items())
    ]
    (root / "modules.json").write_text(json.dumps(modules))
    shutil.copytree(folder, root / "0_Transformer")
    return root


def test_a_download_takes_the_encoder_and_no_pickles() -> None:
    needed = ["config.json", "model-00001-of-00002.safetensors", "tokenizer.json", "vocab.txt"]
    needed += ["modules.json", *(f"0_Transformer/{name}" for name in needed)]
    others = ["pytorch_model.bin", "0_Transformer/pytorch_model.bin", "onnx/config.json", "rust.ot"]
    kept = filter_repo_objects(needed + others, allow_patterns=model_folder._DOWNLOADED)
    assert list(kept) == needed


@pytest.mark.parametrize("path", ["0_Transformer", "2_Transformer", "../checkpoint", ""])
def test_a_sentence_transformers_folder_is_read_if_it_has_an_encoder(
    folder: Path, path: str
) -> None:
    root = make_sentence_transformer(folder, path)
    if path == "0_Transformer":
        expected, found = (load_pretrained(place).model.state_dict() for place in (folder, root))
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        return
    fails(root, r"sentences: not a model folder, it has no config.json")
    for broken in ("null", "[3]"):
        (root / "modules.json").write_text(broken)
        fails(root, "sentences: not a model folder")


DECODER, BIAS = "lm_head.decoder.bias", "lm_head.bias"
NORM, GAMMA = "lm_head.layer_norm.weight", "lm_head.layer_norm.gamma"
EXTRA = "roberta.encoder.layer.2.output.dense.bias"
POSITIONS = "roberta.embeddings.position_embeddings.weight"
FFN = "roberta.encoder.layer.0.intermediate.dense.weight"
VALUE = "roberta.encoder.layer.1.attention.self.value.weight"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (DECODER, lambda tensors: tensors[BIAS] + 1, f"{DECODER} differs from {BIAS}"),
        (VALUE, None, "lacks 1 encoder parameters, such as encoder.layer.1.attention.self.value"),
        (EXTRA, lambda _: torch.zeros(32), "does not announce, such as encoder.layer.2.output"),
        (
            POSITIONS,
            lambda tensors: tensors[POSITIONS][:20].clone(),
            r"\(20, 32\), but .* \(40, 32",
        ),
        (FFN, lambda tensors: tensors[FFN].to(torch.int8), "dense.weight is stored as int8"),
        (GAMMA, lambda tensors: tensors[NORM].clone(), f"holds {NORM} twice"),
    ],
)
def test_weights_that_do_not_fit_are_rejected(
    folder: Path,
    edit_tensors: EditTensors,
    name: str,
    change: Callable[[Tensors], torch.Tensor] | None,
    message: str,
) -> None:
    def edit(tensors: Tensors) -> None:
        if change is None:
            del tensors[name]
        else:
            tensors[name] = change(tensors)

    edit_tensors(edit)
    assert fails(folder, message).startswith(f"{folder}: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "electron"}, "has no model_type 'electron' without code from elsewhere"),
        ({"model_type": ["bert"]}, r"has no model_type .\['bert'\]"),
        ({"architectures": ["RobertaForCausalLM"]}, r"architecture \['RobertaForCausalLM'\]"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'; metaxlm computes only 'gelu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'; it must be a whole number"),
        ({"layer_norm_eps": None}, "layer_norm_eps is None; it must be a number"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not a multiple of num_heads 5"),
        ({"max_position_embeddings": 2}, "max_positions is 0"),
    ],
)
def test_a_configuration_that_does_not_fit_is_rejected(
    folder: Path, changes: dict[str, object], message: str
) -> None:
    edit_config(folder, **changes)
    error = fails(folder, message)
    assert error.startswith(f"{folder / 'config.json'}: ")
    assert error.count("config.json: ") == 1


def test_folders_without_a_model_are_rejected(folder: Path, tmp_path: Path) -> None:
    for source in (tmp_path / "nowhere", str(tmp_path / "nowhere")):
        fails(source, "nowhere: no such folder")
    fails(folder / "config.json", "a file; give the folder")
    (tmp_path / "empty").mkdir()
    fails(tmp_path / "empty", r"not a model folder, it has no config.json")
    (folder / "config.json").write_text("{")
    fails(folder, r"config.json:1: not valid JSON")
    (folder / "config.json").write_text("[]")
    fails(folder, "has no model_type 'None'")


def test_pickles_are_rejected(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    fails(folder, r"has no model.safetensors; convert")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    fails(folder, r"has only pytorch_model.bin, a pickle .*convert")


@pytest.mark.parametrize("keep", [0, 400, -7], ids=lambda keep: f"[:{keep}]")
def test_damaged_weights_are_rejected(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    fails(folder, r"model.safetensors: .*damaged or cut off")


def test_tokenizers_that_do_not_fit_are_rejected(
    folder: Path, tokenizer: Tokenizer, wordpiece_tokenizer: Tokenizer
) -> None:
    tokenizer.add_tokens(["extra"])
    tokenizer.save_pretrained(folder)
    size = len(tokenizer)
    fails(folder, f"has {size} tokens, but the model only {size - 1}")
    wordpiece_tokenizer.save_pretrained(folder)
    fails(folder, "pads with id 0, but the model with 1")
    (folder / "tokenizer.json").write_text("{}")
    fails(folder, "no tokenizer that transformers can load")
    (folder / "tokenizer.json").unlink()
    fails(folder, r"has no tokenizer; put its tokenizer.json there")


@pytest.mark.parametrize("name", ["no-such-model", "unknown/no-such-model"])
def test_an_unknown_hub_name_is_rejected(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    fails(name, f"^{name}: no such folder, and the Hugging Face hub")
