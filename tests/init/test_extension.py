"""Add words to a vocabulary: old tokens, their ids and their embeddings do not change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedTokenizerBase

from metaxlm.data.encode import SentenceEncoder
from metaxlm.errors import MetaXLMError
from metaxlm.init.extension import choose_words, extend_tokenizer, read_words
from metaxlm.init.ledger import explain, load_ledger
from metaxlm.init.start import match
from metaxlm.pretrain.batches.masking import starts_words
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.unigram import train_unigram
from tests.init.conftest import ENGLISH, FOREIGN, WriteDictionaries
from tests.init.test_start import _write

FAMILY_OF = {
    "wordpiece": "Bert",
    "byte_bpe": "Roberta",
    "pieces": "XLMRoberta",
    "unigram": "XLMRoberta",
}
WORDS = ["Katzenhaus", "houseboat", "Ωμέγα", "猫屋"]


@pytest.fixture(scope="session")
def unigram() -> PreTrainedTokenizerBase:
    """Our own kind, which SentencePiece itself encodes."""
    return train_unigram([ENGLISH, FOREIGN] * 20, 78)


@pytest.fixture(params=FAMILY_OF)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    tokenizer = request.getfixturevalue(request.param)
    return _write(tmp_path / "source", FAMILY_OF[request.param], tokenizer)


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def test_only_new_words_are_tokenized_in_another_way(source: Path, tmp_path: Path) -> None:
    old = AutoTokenizer.from_pretrained(source)
    match(source, extend=WORDS).save(tmp_path / "extended")
    new = AutoTokenizer.from_pretrained(tmp_path / "extended")
    assert new.get_vocab().items() > old.get_vocab().items()
    for text in (ENGLISH, FOREIGN, "Katzenhauses, houseboats: Ωμέγαα", "a  b", ""):
        assert encode(new, text) == encode(old, text)
    ids = range(len(old), len(old) + len(WORDS))
    assert encode(new, " ".join(WORDS)) == [*ids]
    text = f"cat {WORDS[0]}, the {WORDS[1]} ({WORDS[2]}) cat"
    assert [row for row in encode(new, text) if row in ids] == [*ids[:3]]
    assert encode(new, f"猫屋猫屋 {WORDS[1]}") == [ids[3], ids[3], ids[1]]
    # Training encodes text word by word.
    found = SentenceEncoder(new.backend_tokenizer).encode([text])
    assert found.ids.tolist() == encode(new, text)
    assert starts_words(new)[list(ids)].all()


def test_old_embeddings_keep_every_bit_and_new_ones_have_an_origin(
    source: Path, tmp_path: Path, write: WriteDictionaries
) -> None:
    start = match(
        source,
        extend=[*WORDS, "cat", "Katzenhaus"],
        dictionaries=write({"en-de.txt": "cat katzenhaus\ndog cat\n"}),
        matching=MatchingRecipe(precedence="dictionary"),
    )
    start.save(tmp_path / "extended")
    models = [AutoModelForMaskedLM.from_pretrained(one) for one in (source, tmp_path / "extended")]
    before, after = (model.get_input_embeddings().weight for model in models)
    size = len(before)
    assert torch.equal(after[:size], before)
    biases = [model.get_output_embeddings().bias for model in models]
    assert torch.equal(biases[1][:size], biases[0])
    plan = load_ledger(tmp_path / "extended" / "ledger.parquet")
    rules = [plan.origin(row).rule for row in range(size, len(plan))]
    old = AutoTokenizer.from_pretrained(source)
    cuts = [encode(old, word) for word in WORDS]
    for row, rule, cut in zip(range(size, len(plan)), rules, cuts, strict=False):
        assert "starts a word" in explain(plan, row).description
        if rule == "subwords":
            torch.testing.assert_close(after[row], before[cut].mean(dim=0))
    if "cat" in {token.strip("▁Ġ") for token in old.get_vocab()}:
        assert rules[0] == "dictionary"
        assert any("words were skipped" in remark for remark in start.remarks)
    assert "subwords" in rules or old.unk_token_id in cuts[1]


def test_bad_words(byte_bpe: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    for content, expected in {
        "": "words.txt: has no words; write one per line",
        "cat\n\nNew York\n": "words.txt:3: 'New York' is several words; write one per line",
    }.items():
        (tmp_path / "words.txt").write_text(content)
        with pytest.raises(MetaXLMError, match=re.escape(expected)):
            read_words(tmp_path / "words.txt")
    with pytest.raises(MetaXLMError, match="the vocabulary already has all 2 words"):
        extend_tokenizer(byte_bpe, ["cat", "house"])
    with pytest.raises(MetaXLMError, match="needs either the tokenizer of another model or words"):
        match(tmp_path)


def test_the_words_of_a_language_are_those_that_save_most(
    byte_bpe: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    (tmp_path / "de.txt").write_text(
        "Der Hund, der Hund! cat cat\n«Rathaus» der 猫猫 猫猫\nselten\n"
    )
    assert choose_words(byte_bpe, tmp_path, "de") == ["Hund", "der"]
    assert choose_words(byte_bpe, tmp_path, "de", 1) == ["Hund"]
    with pytest.raises(MetaXLMError, match="no text of fr; found: de; add a file such as fr"):
        choose_words(byte_bpe, tmp_path, "fr")
    (tmp_path / "zh.txt").write_text("河城市\n猫屋\nLondon\n", encoding="utf-8")
    with pytest.raises(MetaXLMError, match="Chinese is written without spaces"):
        choose_words(byte_bpe, tmp_path, "zh")
    (tmp_path / "fr.txt").write_text("cat house\n")
    with pytest.raises(MetaXLMError, match="no word of French between spaces that occurs twice"):
        choose_words(byte_bpe, tmp_path, "fr")
