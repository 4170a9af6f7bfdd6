"""Existing vocabularies: loaded, converted, or rejected in one line."""

from __future__ import annotations

import io
import json
import lzma
from pathlib import Path

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tests.conftest import sentences
from tests.vocab.languages import SENTENCES
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    BertConfig,
    ByT5Tokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
)

from metaxlm.errors import MetaXLMError
from metaxlm.vocab.load import load_tokenizer
from metaxlm.vocab.unigram import train_model

LINES = [line for lines in SENTENCES.values() for line in lines]
XLMR_PIECES = Path(__file__).parents[3] / "shared" / "data" / "vocabulary" / "xlmr-pieces.txt.xz"


@pytest.fixture(scope="module")
def model() -> bytes:
    return train_model(LINES, 600, None, "test")


def test_a_trained_tokenizer_is_loaded_again(
    multilingual_tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    multilingual_tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.get_vocab() == multilingual_tokenizer.get_vocab()
    assert loaded(LINES)["input_ids"] == multilingual_tokenizer(LINES)["input_ids"]


def test_a_tokenizer_beside_a_model_keeps_its_normalization(model: bytes, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(model)
    tokenizer = load_tokenizer(str(tmp_path))
    (tmp_path / "spiece.model").unlink()
    tokenizer.save_pretrained(tmp_path)
    XLMRobertaConfig(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    assert load_tokenizer(str(tmp_path))(LINES)["input_ids"] == tokenizer(LINES)["input_ids"]


def test_a_model_with_a_few_rules_of_its_own_is_converted(tmp_path: Path) -> None:
    (tmp_path / "rules.tsv").write_text("65 301\tE9\n41 308\tC4\nFB01\t66 69\n")
    with (tmp_path / "spiece.model").open("wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*sentences("en"), "é Ä fi"]),
            model_writer=writer,
            vocab_size=45,
            normalization_rule_tsv=str(tmp_path / "rules.tsv"),
            minloglevel=2,
        )
    oracle = sentencepiece.SentencePieceProcessor(str(tmp_path / "spiece.model"))
    loaded = load_tokenizer(str(tmp_path))
    for text in ("the cat sees e\u0301 A\u0308", "\ufb01nds  the old man", "é\u0301"):
        assert loaded.tokenize(text) == oracle.encode(text, out_type=str)


@pytest.mark.parametrize("name", ["sentencepiece.bpe.model", "spiece.model"])
def test_a_sentencepiece_model_alone_is_converted(name: str, model: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(model)
    oracle = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = load_tokenizer(str(tmp_path))(LINES, add_special_tokens=False)["input_ids"]
    assert ids == [[3 if i == 0 else i + 1 for i in row] for row in oracle.encode(LINES)]


@pytest.mark.skipif(not XLMR_PIECES.is_file(), reason="needs XLM-R's pieces beside the repository")
def test_xlmrs_pieces_get_xlmrs_ids(model: bytes, tmp_path: Path) -> None:
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    del proto.pieces[3:]
    pieces = lzma.decompress(XLMR_PIECES.read_bytes()).decode().split("\n")[:-1]
    for rank, piece in enumerate(pieces):  # the scores are not there, the order is
        proto.pieces.add(piece=piece, score=-5 - rank / 1e5)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(proto.SerializeToString())
    tokenizer = load_tokenizer(str(tmp_path))
    assert len(tokenizer) == 250_002
    assert tokenizer.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>"]) == [0, 1, 2, 3]
    assert tokenizer.convert_tokens_to_ids([",", "."]) == [4, 5]
    assert tokenizer.mask_token_id == 250_001
    oracle = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    ids = tokenizer(LINES, add_special_tokens=False)["input_ids"]
    assert ids == [[3 if i == 0 else i + 1 for i in row] for row in oracle.encode(LINES)]


@pytest.mark.parametrize("rule", ["nfkc", "identity"])
def test_models_with_other_normalizations_are_converted(rule: str, tmp_path: Path) -> None:
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=writer,
        vocab_size=590,
        normalization_rule_name=rule,
        minloglevel=2,
    )
    (tmp_path / "spiece.model").write_bytes(writer.getvalue())
    oracle = sentencepiece.SentencePieceProcessor(model_proto=writer.getvalue())
    ids = load_tokenizer(str(tmp_path))(LINES, add_special_tokens=False)["input_ids"]
    assert ids == [[3 if i == 0 else i + 1 for i in row] for row in oracle.encode(LINES)]


def test_models_of_other_kinds_are_rejected(model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "spiece.model"
    path.write_bytes(b"\xff\xffnot a model")
    with pytest.raises(MetaXLMError, match=r"spiece.model: not a SentencePiece model"):
        load_tokenizer(str(tmp_path))
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences("en")),
        model_writer=writer,
        vocab_size=60,
        model_type="bpe",
        user_defined_symbols=["<br>"],
        minloglevel=2,
    )
    path.write_bytes(writer.getvalue())
    with pytest.raises(MetaXLMError, match=r"another kind than unigram, symbols defined by a user"):
        load_tokenizer(str(tmp_path))
    path.write_bytes(model)
    (tmp_path / "other.model").write_bytes(model)
    with pytest.raises(MetaXLMError, match=r"several SentencePiece models \(other.model, spiece"):
        load_tokenizer(str(tmp_path))


def test_a_tokenizer_without_the_roles_is_rejected(tmp_path: Path) -> None:
    words = Tokenizer(WordLevel({"[UNK]": 0, "[PAD]": 1, "a": 2, "b": 3}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(tmp_path)
    message = r"no token for mask \(mask_token\), start \(cls_token or bos_token\), end"
    with pytest.raises(MetaXLMError, match=message):
        load_tokenizer(str(tmp_path))


def test_a_slow_tokenizer_is_rejected(tmp_path: Path) -> None:
    ByT5Tokenizer().save_pretrained(tmp_path)
    with pytest.raises(MetaXLMError, match=r"ByT5Tokenizer is not a fast tokenizer"):
        load_tokenizer(str(tmp_path))


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


@pytest.mark.parametrize("name", ["unknown/such-tokenizer", "./missing-folder", "a b c", ""])
def test_unknown_names_are_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(MetaXLMError, match=f"^{name}: no such folder"):
        load_tokenizer(name)
