"""Encoding distinct words once gives exactly the ids of encoding whole sentences."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import PARTS, sentences
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE, WordLevel
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerBase as TokenizerBase

from metaxlm.data.encode import Encoded, SentenceEncoder, word_mode

HARD = [
    "the cat sees a house.",
    "cat",
    "«Кошка» видит ½ ﬁsh №5 ﷺ ｆｕｌｌ",
    "你好，世界。 สวัสดีชาวโลก नमस्ते दुनिया",
    "\u200b \u200b cat\u200bdog e\u0301 \u0301a 👩‍👩‍👧 don't we'll they're ... -- 3.14",
    "a" * 5000,
]

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def rows(encoded: Encoded) -> list[list[int]]:
    ends = accumulate(encoded.lengths.tolist(), initial=0)
    return [encoded.ids[start:end].tolist() for start, end in pairwise(ends)]


def plain(tokenizer: Tokenizer, lines: list[str]) -> list[list[int]]:
    return [e.ids for e in tokenizer.encode_batch(lines, add_special_tokens=False)]


def make_spaced() -> Tokenizer:
    """RoBERTa's own kind: no space is put before the first word."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(sentences("en") + sentences("ru"), trainer)
    return tokenizer


BACKENDS: dict[str, Tokenizer] = {"roberta": make_spaced()}
"""Not an argument of the tests: hypothesis would print it."""


@pytest.fixture(autouse=True, scope="module")
def backends(multilingual_tokenizer: TokenizerBase, monolingual_tokenizer: TokenizerBase) -> None:
    BACKENDS["unigram"] = multilingual_tokenizer.backend_tokenizer
    BACKENDS["byte_bpe"] = monolingual_tokenizer.backend_tokenizer


MODES = {"unigram": "alone", "byte_bpe": "alone", "roberta": "spaced"}


@pytest.mark.parametrize("kind", MODES)
def test_words_give_the_ids_of_sentences(kind: str) -> None:
    encoder = SentenceEncoder(BACKENDS[kind])
    lines = HARD + [line for language in PARTS for line in sentences(language)]
    assert encoder.mode == MODES[kind]
    encoded = encoder.encode(lines)
    assert rows(encoded) == plain(BACKENDS[kind], lines)
    assert encoded.num_words == sum(len(line.split(" ")) for line in lines)


@pytest.mark.parametrize("kind", MODES)
@settings(max_examples=75, deadline=None)
@given(texts=st.lists(st.text(max_size=40), max_size=6))
def test_any_text(kind: str, texts: list[str]) -> None:
    lines = [line for text in texts if (line := " ".join(text.split()))]
    lines = [line for line in lines if not any(token in line for token in SPECIALS)]
    encoder = SentenceEncoder(BACKENDS[kind])
    assert rows(encoder.encode(lines)) == plain(BACKENDS[kind], lines)


def test_text_is_never_special(
    multilingual_tokenizer: TokenizerBase, monolingual_tokenizer: TokenizerBase
) -> None:
    line = "the <s> cat </s> <mask> sees<pad>a house<s>"
    for tokenizer in (multilingual_tokenizer, monolingual_tokenizer):
        specials = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        as_text = SentenceEncoder(tokenizer.backend_tokenizer).encode([line])
        assert not specials & set(as_text.ids.tolist())
        assert len(as_text.ids) > 10
        # The tokenizer itself is left as it was.
        assert specials & set(tokenizer(line, add_special_tokens=False)["input_ids"])


def test_a_tokenizer_of_another_kind_gets_whole_sentences() -> None:
    tokenizer = Tokenizer(WordLevel({"ab c": 0, "d": 1, "[UNK]": 2}, unk_token="[UNK]"))
    encoder = SentenceEncoder(tokenizer)
    assert encoder.mode == "sentence"
    assert rows(encoder.encode(["ab c", "d", "e"])) == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("pre_tokenizer", "mode"),
    [
        (pre_tokenizers.Metaspace(prepend_scheme="always"), "alone"),
        (pre_tokenizers.Metaspace(prepend_scheme="first"), "sentence"),
        (pre_tokenizers.Metaspace(prepend_scheme="always", split=False), "sentence"),
        (pre_tokenizers.BertPreTokenizer(), "alone"),
        (pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False), "sentence"),
        (
            pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
            "alone",
        ),
        (pre_tokenizers.Digits(), "sentence"),
    ],
)
def test_word_modes(pre_tokenizer: pre_tokenizers.PreTokenizer, mode: str) -> None:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    assert word_mode(json.loads(tokenizer.to_str())) == mode


def test_cutting_and_padding_of_a_tokenizer_file_are_left_out() -> None:
    tokenizer = BACKENDS["roberta"]
    plain = SentenceEncoder(tokenizer).encode(["one two three four", "five"])
    padded = Tokenizer.from_str(tokenizer.to_str())
    padded.enable_truncation(2)
    padded.enable_padding(length=7)
    found = SentenceEncoder(padded).encode(["one two three four", "five"])
    assert found.lengths.tolist() == plain.lengths.tolist()
    assert found.ids.tolist() == plain.ids.tolist()
