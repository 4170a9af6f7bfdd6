"""Folders as they are found in the wild: old names, padded rows, untied rows, other layouts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.errors import MetaXLMError
from metaxlm.model import model_folder
from metaxlm.model.huggingface import load_pretrained

SENTENCES = ["the cat sees a dog", "a small house", "the old man likes the red house"]
Write = Callable[..., Path]


def assert_parity(folder: Path) -> None:
    """Compare every layer and every logit with transformers, on a padded batch."""
    loaded = load_pretrained(folder)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder)
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


def test_the_first_bert_checkpoints_are_read(write_checkpoint: Write) -> None:
    folder = write_checkpoint("BertForPreTraining")
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in [name for name in tensors if "LayerNorm" in name]:
        old = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        tensors[old] = tensors.pop(name)
    tensors["bert.embeddings.position_ids"] = torch.arange(40)[None]
    save_file(tensors, path, metadata={"format": "pt"})
    assert sum(name.endswith(".gamma") for name in tensors) == 6
    assert load_pretrained(folder).missing == ()
    assert_parity(folder)


@pytest.mark.parametrize(
    "class_name", ["RobertaForMaskedLM", "BertForMaskedLM", "DistilBertForMaskedLM"]
)
def test_rows_beyond_the_tokenizer_are_kept(class_name: str, write_checkpoint: Write) -> None:
    folder = write_checkpoint(class_name, vocab_size=64)
    loaded = load_pretrained(folder)
    assert len(loaded.tokenizer) < 64
    assert loaded.model.config.vocab_size == 64
    assert_parity(folder)


def test_padding_may_have_any_id(write_checkpoint: Write, tokenizer: Tokenizer) -> None:
    tokenizer.pad_token = "p"
    pad_id = tokenizer.pad_token_id
    assert pad_id > 30
    folder = write_checkpoint(
        "RobertaForMaskedLM", pad_token_id=pad_id, max_position_embeddings=pad_id + 21
    )
    tokenizer.save_pretrained(folder)
    assert load_pretrained(folder).model.config.max_positions == 20
    assert_parity(folder)


def test_untied_rows_are_read_if_they_are_equal(write_checkpoint: Write) -> None:
    folder = write_checkpoint("RobertaForMaskedLM", tie_word_embeddings=False)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    with pytest.raises(MetaXLMError, match=r"lm_head.decoder.weight differs .*an untied output"):
        load_pretrained(folder)
    words = tensors["roberta.embeddings.word_embeddings.weight"]
    tensors["lm_head.decoder.weight"] = words.clone()
    tensors.pop("lm_head.decoder.bias", None)
    save_file(tensors, path, metadata={"format": "pt"})
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "tie_word_embeddings": True}))
    assert_parity(folder)


@pytest.mark.parametrize(
    ("class_name", "dropout", "attention_dropout"),
    [
        ("CamembertModel", "hidden_dropout_prob", "attention_probs_dropout_prob"),
        ("DistilBertModel", "dropout", "attention_dropout"),
    ],
)
def test_dropout_is_read(
    class_name: str, dropout: str, attention_dropout: str, write_checkpoint: Write
) -> None:
    folder = write_checkpoint(class_name, **{dropout: 0.2, attention_dropout: 0.3})
    config = load_pretrained(folder).model.config
    assert (config.dropout, config.attention_dropout) == (0.2, 0.3)


def test_distilbert_settings_have_two_names(write_checkpoint: Write) -> None:
    folder = write_checkpoint("DistilBertForMaskedLM")
    values = json.loads((folder / "config.json").read_text())
    values["hidden_size"] = values.pop("dim")
    values["num_hidden_layers"] = values.pop("n_layers")
    (folder / "config.json").write_text(json.dumps(values))
    assert_parity(folder)


def test_distilbert_gets_a_token_type_that_adds_nothing(write_checkpoint: Write) -> None:
    loaded = load_pretrained(write_checkpoint("DistilBertModel"))
    assert loaded.model.encoder.embeddings.token_types.weight.shape == (1, 32)
    assert loaded.model.encoder.embeddings.token_types.weight.eq(0).all()
    assert not any("token_types" in name for name in loaded.missing)


@pytest.mark.parametrize("is_uncased", [True, False], ids=["uncased", "cased"])
@pytest.mark.parametrize("class_name", ["BertForMaskedLM", "DistilBertForMaskedLM"])
def test_a_folder_with_only_vocab_txt_keeps_its_case(
    class_name: str, is_uncased: bool, write_checkpoint: Write
) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "The", "##s"]
    folder = write_checkpoint(class_name, vocab_size=len(tokens))
    for path in folder.glob("*token*"):
        path.unlink()
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": is_uncased}))
    loaded = load_pretrained(folder)
    pieces = loaded.tokenizer.tokenize("The cats")
    assert pieces == ["the" if is_uncased else "The", "cat", "##s"]
    assert_parity(folder)


def make_sentence_transformer(folder: Path, path: str) -> Path:
    """Return the folder as sentence-transformers lays it out, the encoder under `path`."""
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


def test_a_sentence_transformers_folder_is_read(folder: Path) -> None:
    root = make_sentence_transformer(folder, "0_Transformer")
    expected, found = (load_pretrained(path).model.state_dict() for path in (folder, root))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_download_takes_the_encoder_and_no_pickles() -> None:
    needed = ["config.json", "model-00001-of-00002.safetensors", "tokenizer.json", "vocab.txt"]
    needed += ["modules.json", *(f"0_Transformer/{name}" for name in needed)]
    others = ["pytorch_model.bin", "0_Transformer/pytorch_model.bin", "onnx/config.json", "rust.ot"]
    kept = filter_repo_objects(needed + others, allow_patterns=model_folder._DOWNLOADED)
    assert list(kept) == needed


@pytest.mark.parametrize("path", ["2_Transformer", "../checkpoint", ""])
def test_a_sentence_transformers_folder_without_encoder_is_refused(folder: Path, path: str) -> None:
    root = make_sentence_transformer(folder, path)
    with pytest.raises(MetaXLMError, match=r"sentences: not a model folder, it has no config.json"):
        load_pretrained(root)
    for broken in ("null", "[3]"):
        (root / "modules.json").write_text(broken)
        with pytest.raises(MetaXLMError, match="sentences: not a model folder"):
            load_pretrained(root)
