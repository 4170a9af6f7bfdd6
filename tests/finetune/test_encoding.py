from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.encoding import check_tokenizer, tokenize_flat
from metaxlm.model.encoder import EncoderConfig
from tests.finetune.conftest import TEXT, make_tokenizer, tokenize_words

SENTENCES = [line.split() for line in TEXT] + [["don't", "U.S.", "3,5", "ﬁne", "house"], ["."]]
ODD = [
    *(["\u200b", "hill", ""], [], ["\u200b"], ["the", "\u200b", "river", "\u200b"]),
    ["ﬁn", "e\u0301"],
]


def test_flat_tokens_are_those_of_single_sentences(any_tokenizer: PreTrainedTokenizerBase) -> None:
    sentences = [*SENTENCES, *ODD, TEXT[0].split()]
    flat = tokenize_flat(any_tokenizer, sentences)
    single = tokenize_words(any_tokenizer, sentences)
    assert flat.lengths_P.tolist() == [len(pieces) for pieces in single]
    assert flat.ids_N.tolist() == [token for pieces in single for token in pieces.ids]
    assert flat.words_N.tolist() == [word for pieces in single for word in pieces.words]
    assert tokenize_flat(any_tokenizer, [[]]).lengths_P.tolist() == [0]


def test_each_word_has_the_tokens_it_has_in_text(any_tokenizer: PreTrainedTokenizerBase) -> None:
    # RoBERTa's own tokenizer encodes a word differently after a space; the others always add one.
    needs_space = getattr(any_tokenizer.backend_tokenizer.pre_tokenizer, "add_prefix_space", True)
    for words, pieces in zip(SENTENCES, tokenize_words(any_tokenizer, SENTENCES), strict=True):
        assert pieces.ids == any_tokenizer(" ".join(words), add_special_tokens=False)["input_ids"]
        expected: list[int] = []
        for k, word in enumerate(words):
            alone = word if needs_space or k == 0 else f" {word}"
            expected += [k] * len(any_tokenizer(alone, add_special_tokens=False)["input_ids"])
        assert pieces.words == expected


def test_tokenizers_that_do_not_fit() -> None:
    tokenizer = make_tokenizer("unigram")
    check_tokenizer(tokenizer, EncoderConfig(vocab_size=len(tokenizer)))
    message = "^the tokenizer has 150 tokens and the encoder 100 embeddings; load both from one"
    with pytest.raises(MetaXLMError, match=message):
        check_tokenizer(tokenizer, EncoderConfig(vocab_size=100))
    bare = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, unk_token="<unk>")
    with pytest.raises(MetaXLMError, match=r"^the tokenizer has no cls_token; add it to its"):
        check_tokenizer(bare, EncoderConfig(vocab_size=500))
