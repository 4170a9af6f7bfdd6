"""Exports: transformers computes the same, and the same model gives the same files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.files import digest_file
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.huggingface import load_pretrained, save_pretrained
from metaxlm.model.masked_lm import MaskedLM

SENTENCES = ["the cat sees a dog", "a small house", "the old man likes the red house and the dog"]
FAMILIES = [
    ("RobertaForMaskedLM", {"layer_norm_eps": 1e-5, "type_vocab_size": 1}),
    ("XLMRobertaForMaskedLM", {"layer_norm_eps": 1e-3, "hidden_size": 96, "num_hidden_layers": 3}),
    ("CamembertForMaskedLM", {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}),
    ("BertForMaskedLM", {"type_vocab_size": 1, "layer_norm_eps": 1e-3}),
    ("DistilBertForMaskedLM", {"dropout": 0.2, "attention_dropout": 0.3, "n_layers": 3}),
    ("MPNetForMaskedLM", {"layer_norm_eps": 1e-3}),
    (
        "ModernBertForMaskedLM",
        {"num_hidden_layers": 5, "local_attention": 4, "norm_eps": 1e-3, "mlp_dropout": 0.2}
        | {"embedding_dropout": 0.2, "attention_dropout": 0.3, "global_attn_every_n_layers": 2},
    ),
]


def assert_same_logits(ours: MaskedLM, theirs: torch.nn.Module, tokenizer: Tokenizer) -> None:
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
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
    assert type(exported).__name__ == class_name
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert_same_logits(loaded.model, exported, tokenizer)

    again = load_pretrained(tmp_path / "exported")
    assert_same_logits(again.model, exported, tokenizer)
    assert again.model.config.dropout == loaded.model.config.dropout
    assert again.model.config.attention_dropout == loaded.model.config.attention_dropout
    assert again.model.config.max_positions == loaded.model.config.max_positions


def test_transformers_loads_an_export_completely(
    write_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    loaded = load_pretrained(write_checkpoint("BertForMaskedLM"))
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
    # AutoModel does not load the head.
    assert all(name.startswith("cls.") for name in info["unexpected_keys"])
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


def test_an_export_carries_the_whole_configuration(tmp_path: Path, tokenizer: Tokenizer) -> None:
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
    with safe_open(tmp_path / "model" / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}, "older transformers need it"
    assert load_pretrained(tmp_path / "model").model.config == config


def test_the_exported_tokenizer_is_the_same_tokenizer(tmp_path: Path, tokenizer: Tokenizer) -> None:
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
    # Full-width letters become plain ones only with the normalizer.
    texts = [*SENTENCES, "ｔｈｅ cat <mask> a dog", "unseen!"]
    assert loaded(texts)["input_ids"] == tokenizer(texts)["input_ids"]
    assert set(loaded("a", "b")) == {"input_ids", "attention_mask"}
    settings = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    assert "token_type_ids" not in settings["model_input_names"], "older defaults have it"


def test_exports_are_reproducible_and_replace_the_old_folder(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    model = MaskedLM(EncoderConfig(len(tokenizer), 8, 1, 1, 8)).bfloat16()
    for name in ("one", "two"):
        save_pretrained(model, tokenizer, tmp_path / name, "# card\n")
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    expected = ["README.md", "config.json", "manifest.json", "model.safetensors"]
    assert files == [*expected, "tokenizer.json", "tokenizer_config.json"]
    for name in files:
        assert digest_file(tmp_path / "one" / name) == digest_file(tmp_path / "two" / name)
    tensors = load_file(tmp_path / "one" / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    old = digest_file(tmp_path / "two" / "model.safetensors")
    with torch.no_grad():
        model.head.bias += 1.0
    save_pretrained(model, tokenizer, tmp_path / "two", "# another\n")
    assert digest_file(tmp_path / "two" / "model.safetensors") != old
    assert (tmp_path / "two" / "README.md").read_text() == "# another\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
