"""Extend a WordPiece vocabulary by pieces of other languages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedTokenizerBase

from metaxlm.data.encode import SentenceEncoder
from metaxlm.errors import MetaXLMError
from metaxlm.init.pieces import extend_wordpiece
from metaxlm.init.start import match
from tests.commands import Command
from tests.init.conftest import ENGLISH, WriteDictionaries
from tests.init.test_start import _write

GERMAN = ["Die Katze wohnt im Häuschen.", "Wir hören den Hund im Haus.", "Das Häuschen ist schön."]
THAI = ["แมวอยู่ในบ้าน", "สุนัขอยู่ในบ้าน", "แมวและสุนัข"]
CHINESE = ["猫住在房子里。", "狗也住在房子里。", "猫和狗。"]
TEXTS = {"en": [ENGLISH] * 5, "de": GERMAN * 9, "th": THAI * 9, "zh": CHINESE * 9}


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[str]:
    return tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.fixture
def source(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> Path:
    return _write(tmp_path / "source", "Bert", wordpiece)


def test_the_source_language_keeps_its_tokens_and_other_languages_get_theirs(
    source: Path, tmp_path: Path, write: WriteDictionaries
) -> None:
    old = AutoTokenizer.from_pretrained(source)
    extension = extend_wordpiece(old, TEXTS, "en", 110)
    dictionaries = write({"en-de.txt": "cat katze\n", "en-zh.txt": "cat 猫\n"})
    match(source, extend=extension, dictionaries=dictionaries).save(tmp_path / "extended")
    new = AutoTokenizer.from_pretrained(tmp_path / "extended")
    assert new.get_vocab().items() > old.get_vocab().items()
    assert len(new) == len(old) + len(extension.words)
    assert encode(new, ENGLISH) == encode(old, ENGLISH)
    for text in (*GERMAN, *THAI, *CHINESE):
        tokens = encode(new, text)
        assert new.unk_token not in tokens
        spelled = "".join(token.removeprefix("##") for token in tokens)
        assert spelled == text.lower().replace(" ", "")  # accents are kept
        ids = SentenceEncoder(new.backend_tokenizer).encode([text]).ids.tolist()
        assert new.convert_ids_to_tokens(ids) == tokens
    assert new.unk_token not in encode(new, "".join(THAI) * 9)  # longer than BERT's longest word
    assert new.decode(new("Die Katze")["input_ids"], skip_special_tokens=True) == "die katze"


def test_old_embeddings_keep_every_bit_and_new_ones_come_from_dictionaries(
    source: Path, tmp_path: Path, write: WriteDictionaries
) -> None:
    old = AutoTokenizer.from_pretrained(source)
    extension = extend_wordpiece(old, TEXTS, "en", 110)
    dictionaries = write({"en-zh.txt": "cat 猫\n"})
    match(source, extend=extension, dictionaries=dictionaries).save(tmp_path / "extended")
    models = [AutoModelForMaskedLM.from_pretrained(one) for one in (source, tmp_path / "extended")]
    before, after = (model.get_input_embeddings().weight for model in models)
    assert torch.equal(after[: len(before)], before)
    vocabulary = extension.tokenizer.get_vocab()
    for token in ("猫", "##猫"):
        assert torch.equal(after[vocabulary[token]], before[vocabulary["cat"]])


def test_pieces_of_the_source_language_are_not_added(wordpiece: PreTrainedTokenizerBase) -> None:
    german = [f"{one} Zuordnungsvorschrift cathouse" for one in GERMAN] * 9
    both = {"en": [f"{ENGLISH} cathouse"] * 5, "de": german}
    kept = extend_wordpiece(wordpiece, {"de": german}, "en", 100)
    filtered = extend_wordpiece(wordpiece, both, "en", 100)
    assert {"cathouse", "häuschen"} <= set(kept.words)
    assert set(kept.words) - set(filtered.words) == {"cathouse"}


@pytest.mark.parametrize("kind", ["byte_bpe", "pieces"])
def test_other_kinds_are_rejected(kind: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(MetaXLMError, match=r"only WordPiece, such as BERT's"):
        extend_wordpiece(request.getfixturevalue(kind), TEXTS, "en", 100)


def test_text_of_another_language_is_needed(wordpiece: PreTrainedTokenizerBase) -> None:
    with pytest.raises(MetaXLMError, match="no text of another language"):
        extend_wordpiece(wordpiece, {"en": [ENGLISH], "de": []}, "en", 100)


def test_the_command_adds_pieces_of_several_languages(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").mkdir()
    for code, sentences in TEXTS.items():
        (tmp_path / "text" / f"{code}.txt").write_text("\n".join(sentences), encoding="utf-8")
    command = Command(tmp_path, capsys)
    options = ("--from", source, "--corpus", "text", "--size", "110", "--output")
    code, _, errors = command("match", "--extend", "de,th,zh", *options, "extended")
    assert code == 0, errors
    new = AutoTokenizer.from_pretrained(tmp_path / "extended")
    assert new.unk_token not in encode(new, THAI[0])
    complaint = command.complaint("match", "--extend", "de,sw", *options, "other")
    assert "no text of sw; found: de en th zh" in complaint
    assert not (tmp_path / "other").exists()
