"""Both vocabularies: XLM-R's and RoBERTa's layout, and they survive a save."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import PARTS, sentences
from tokenizers import AddedToken
from transformers import AutoTokenizer, PreTrainedTokenizerBase, RobertaTokenizer

from metaxlm.errors import MetaXLMError
from metaxlm.vocab.bpe import train_byte_bpe
from metaxlm.vocab.unigram import train_unigram

LINES = [
    "the cat sees a house.",
    "  der  alte Mann ",
    "кошка видит дом.",
    "ﬁne ½ Ｗｉｄｅ …",
    "unseen Wörter: ψ 你好, don't!",
    "tab\there",
]


@pytest.mark.parametrize("name", ["multilingual_tokenizer", "monolingual_tokenizer"])
def test_the_layout_is_the_families(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer: PreTrainedTokenizerBase = request.getfixturevalue(name)
    assert tokenizer.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>"]) == [0, 1, 2, 3]
    assert tokenizer.mask_token_id == len(tokenizer) - 1
    assert tokenizer("a cat")["input_ids"][0] == 0
    assert tokenizer("a cat")["input_ids"][-1] == 2
    pair = tokenizer("a", "b", add_special_tokens=True)["input_ids"]
    assert pair.count(2) == 3


def test_a_vocabulary_has_the_size_that_was_asked_for(
    multilingual_tokenizer: PreTrainedTokenizerBase,
) -> None:
    assert len(multilingual_tokenizer) == 110
    assert len(train_byte_bpe(iter(sentences("en")), 300)) == 300


@pytest.mark.parametrize("name", ["multilingual_tokenizer", "monolingual_tokenizer"])
def test_a_saved_tokenizer_gives_the_same_ids(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    tokenizer: PreTrainedTokenizerBase = request.getfixturevalue(name)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for line in LINES:
        assert loaded(line)["input_ids"] == tokenizer(line)["input_ids"]
        assert loaded(line, line)["input_ids"] == tokenizer(line, line)["input_ids"]
    assert loaded.mask_token_id == tokenizer.mask_token_id
    assert loaded.all_special_ids == tokenizer.all_special_ids


def test_training_twice_gives_the_same_vocabulary() -> None:
    lines = [line for language in PARTS for line in sentences(language)]
    first, second = (train_unigram(iter(lines), 100).get_vocab() for _ in range(2))
    assert first == second
    first, second = (train_byte_bpe(iter(lines), 400).get_vocab() for _ in range(2))
    assert first == second


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(MetaXLMError, match=r"vocabulary.size 100000: this much text gives at most"):
        train_unigram(iter(sentences("en")), 100_000)
    with pytest.raises(MetaXLMError, match=r"vocabulary.size 20: too small, the characters"):
        train_unigram(iter(sentences("en")), 20)
    with pytest.raises(MetaXLMError, match=r"monolingual_size 200: .* need 261 rows"):
        train_byte_bpe(iter(sentences("en")), 200)


def test_byte_bpe_is_robertas(monolingual_tokenizer: PreTrainedTokenizerBase) -> None:
    model = json.loads(monolingual_tokenizer.backend_tokenizer.to_str())["model"]
    roberta = RobertaTokenizer(
        vocab=monolingual_tokenizer.get_vocab(),
        merges=[tuple(merge) for merge in model["merges"]],
        mask_token=AddedToken("<mask>", lstrip=True, special=True),  # as its published files say
        add_prefix_space=True,
    )
    for line in [*LINES, "a <mask> house", "naïve 🙂 \u0301", ""]:
        assert monolingual_tokenizer(line)["input_ids"] == roberta(line)["input_ids"]
        pair = monolingual_tokenizer(line, "a cat")["input_ids"]
        assert pair == roberta(line, "a cat")["input_ids"]
        if "<mask>" not in line:
            ids = monolingual_tokenizer(line, add_special_tokens=False)["input_ids"]
            assert monolingual_tokenizer.decode(ids).strip() == line.strip()


def test_a_mask_takes_the_space_before_it(
    monolingual_tokenizer: PreTrainedTokenizerBase,
    multilingual_tokenizer: PreTrainedTokenizerBase,
) -> None:
    for tokenizer in (monolingual_tokenizer, multilingual_tokenizer):
        ids = tokenizer("the cat <mask>", add_special_tokens=False)["input_ids"]
        assert ids == [*tokenizer("the cat", add_special_tokens=False)["input_ids"], ids[-1]]
        assert ids[-1] == tokenizer.mask_token_id


def test_training_shows_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    lines = sentences("en")
    train_unigram(iter(lines), 45, len(lines), "pieces of text")
    shown = capsys.readouterr().out
    assert "pieces of text: 64/64 sentences" in shown
    assert "collecting substrings" in shown
    assert " rounds" in shown
    train_byte_bpe(iter(lines), 300, len(lines), "merges")
    assert "merges: 64/64 sentences" in capsys.readouterr().out
