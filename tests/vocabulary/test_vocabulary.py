"""Both vocabularies: XLM-R's and RoBERTa's layout, and they survive a save."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import sentencepiece
from tests.conftest import PARTS, sentences
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.vocabulary.byte_bpe import train_byte_bpe
from metaxlm.vocabulary.sample import sample_counts, sample_sentences
from metaxlm.vocabulary.unigram import fast_tokenizer, train_unigram

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


def test_ids_follow_sentencepieces_own() -> None:
    writer = io.BytesIO()
    lines = [line for language in PARTS for line in sentences(language)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=writer, vocab_size=110, minloglevel=2
    )
    oracle = sentencepiece.SentencePieceProcessor(model_proto=writer.getvalue())
    tokenizer = fast_tokenizer(writer.getvalue())
    for line in [*lines, *LINES]:
        pieces = tokenizer.convert_ids_to_tokens(
            tokenizer(line, add_special_tokens=False).input_ids
        )
        ids = tokenizer(line, add_special_tokens=False)["input_ids"]
        # SentencePiece has <unk> <s> </s> first, XLM-R's layout one more.
        assert [3 if i == 0 else i + 1 for i in oracle.encode(line)] == ids, (line, pieces)


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


def test_the_sample_is_rebalanced_and_repeats_nothing() -> None:
    counts = {"en": 10_000, "sw": 100}
    wanted = sample_counts(counts, 0.5, 10**9)
    assert wanted["en"] / wanted["sw"] == pytest.approx(10, rel=0.02)
    assert wanted["sw"] == 100
    assert sum(sample_counts(counts, 0.5, 110).values()) == 110
    texts = {code: [f"{code} {i}" for i in range(n)] for code, n in counts.items()}
    sample = list(sample_sentences(texts, counts, wanted, seed=1))
    assert len(sample) == len(set(sample)) == sum(wanted.values())
    assert sample == list(sample_sentences(texts, counts, wanted, seed=1))
    assert sample != list(sample_sentences(texts, counts, wanted, seed=2))
