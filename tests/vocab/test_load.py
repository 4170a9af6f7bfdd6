"""Existing vocabularies: loaded, converted, or rejected in one line."""

from __future__ import annotations

import io
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tests.conftest import sentences
from tests.vocab.languages import SENTENCES
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoTokenizer,
    BertConfig,
    ByT5Tokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
)

from metaxlm.errors import MetaXLMError
from metaxlm.vocab.tokenizer import load_tokenizer
from metaxlm.vocab.unigram import train_model

LINES = [line for lines in SENTENCES.values() for line in lines]
XLMR_PIECES = Path(__file__).parents[3] / "shared" / "data" / "vocabulary" / "xlmr-pieces.txt.xz"


@pytest.fixture(scope="module")
def model() -> bytes:
    return train_model(LINES, 600)


def train(lines: list[str], **options: Any) -> bytes:
    """Train a model by SentencePiece itself."""
    writer = io.BytesIO()
    source: dict[str, Any] = {"sentence_iterator": iter(lines), "model_writer": writer}
    sentencepiece.SentencePieceTrainer.train(**source, minloglevel=2, **options)
    return writer.getvalue()


def check_ids(folder: Path, name: str, model: bytes) -> PreTrainedTokenizerBase:
    """Load a folder with this model alone; its ids are SentencePiece's in XLM-R's layout."""
    (folder / name).write_bytes(model)
    oracle = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = load_tokenizer(str(folder))
    ids = tokenizer(LINES, add_special_tokens=False)["input_ids"]
    assert ids == [[3 if i == 0 else i + 1 for i in row] for row in oracle.encode(LINES)]
    return tokenizer


@pytest.mark.parametrize("name", ["multilingual_tokenizer", "monolingual_tokenizer"])
def test_a_trained_tokenizer_is_loaded_again(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    tokenizer: PreTrainedTokenizerBase = request.getfixturevalue(name)
    tokenizer.save_pretrained(tmp_path)
    for loaded in (load_tokenizer(str(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)):
        assert loaded.get_vocab() == tokenizer.get_vocab()
        assert loaded(LINES, LINES)["input_ids"] == tokenizer(LINES, LINES)["input_ids"]
        assert loaded.special_tokens_map == tokenizer.special_tokens_map


@pytest.mark.parametrize("name", ["sentencepiece.bpe.model", "spiece.model"])
def test_a_sentencepiece_model_alone_is_converted(name: str, model: bytes, tmp_path: Path) -> None:
    tokenizer = check_ids(tmp_path, name, model)
    # Saved beside a model, it keeps its normalization.
    (tmp_path / name).unlink()
    tokenizer.save_pretrained(tmp_path)
    XLMRobertaConfig(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    assert load_tokenizer(str(tmp_path))(LINES)["input_ids"] == tokenizer(LINES)["input_ids"]


@pytest.mark.parametrize("rule", ["nfkc", "identity"])
def test_models_with_other_normalizations_are_converted(rule: str, tmp_path: Path) -> None:
    model = train(LINES, vocab_size=590, normalization_rule_name=rule)
    check_ids(tmp_path, "spiece.model", model)


def test_a_model_with_a_few_rules_of_its_own_is_converted(tmp_path: Path) -> None:
    rules = tmp_path / "rules.tsv"
    rules.write_text("65 301\tE9\n41 308\tC4\nFB01\t66 69\n")
    lines = [*sentences("en"), "é Ä fi"]
    model = train(lines, vocab_size=45, normalization_rule_tsv=str(rules))
    (tmp_path / "spiece.model").write_bytes(model)
    oracle = sentencepiece.SentencePieceProcessor(model_proto=model)
    loaded = load_tokenizer(str(tmp_path))
    for text in ("the cat sees e\u0301 A\u0308", "\ufb01nds  the old man", "é\u0301"):
        assert loaded.tokenize(text) == oracle.encode(text, out_type=str)


@pytest.mark.skipif(not XLMR_PIECES.is_file(), reason="needs XLM-R's pieces beside the repository")
def test_xlmrs_pieces_get_xlmrs_ids(model: bytes, tmp_path: Path) -> None:
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    del proto.pieces[3:]
    pieces = lzma.decompress(XLMR_PIECES.read_bytes()).decode().split("\n")[:-1]
    for rank, piece in enumerate(pieces):  # the scores are not there, the order is
        proto.pieces.add(piece=piece, score=-5 - rank / 1e5)
    tokenizer = check_ids(tmp_path, "sentencepiece.bpe.model", proto.SerializeToString())
    assert len(tokenizer) == 250_002
    names = ["<s>", "<pad>", "</s>", "<unk>", ",", ".", "<mask>"]
    assert tokenizer.convert_tokens_to_ids(names) == [0, 1, 2, 3, 4, 5, 250_001]


def test_models_of_other_kinds_are_rejected(model: bytes, tmp_path: Path) -> None:
    other = train(sentences("en"), vocab_size=60, model_type="bpe", user_defined_symbols=["<br>"])
    for name, content, message in (
        ("spiece.model", b"\xff\xffnot a model", "spiece.model: not a SentencePiece model"),
        ("spiece.model", other, "another kind than unigram, symbols defined by a user"),
        ("other.model", model, r"several SentencePiece models \(other.model, spiece"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(MetaXLMError, match=message):
            load_tokenizer(str(tmp_path))


def test_a_tokenizer_without_the_roles_is_rejected(tmp_path: Path) -> None:
    words = Tokenizer(WordLevel({"[UNK]": 0, "[PAD]": 1, "a": 2, "b": 3}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(tmp_path)
    message = r"no token for mask \(mask_token\), start \(cls_token or bos_token\), end"
    with pytest.raises(MetaXLMError, match=message):
        load_tokenizer(str(tmp_path))
    ByT5Tokenizer().save_pretrained(tmp_path / "slow")
    with pytest.raises(MetaXLMError, match=r"ByT5Tokenizer is not a fast tokenizer"):
        load_tokenizer(str(tmp_path / "slow"))


def test_folders_without_a_tokenizer_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match=r"no tokenizer that transformers can load"):
        load_tokenizer(str(tmp_path))
    for config in (BertConfig(), XLMRobertaConfig()):
        config.save_pretrained(tmp_path)
        with pytest.raises(MetaXLMError, match=r"neither a tokenizer.json nor a model"):
            load_tokenizer(str(tmp_path))
    with pytest.raises(MetaXLMError, match=r"config.json: a file; give the folder"):
        load_tokenizer(str(tmp_path / "config.json"))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": "broken"}))
    with pytest.raises(MetaXLMError):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("name", ["unknown/such-tokenizer", ""])
def test_unknown_names_are_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(MetaXLMError, match=f"^{name}: no such folder"):
        load_tokenizer(name)
