from __future__ import annotations

import copy

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from metaxlm.init.rules import (
    RULES,
    TEXT_RULES,
    Matches,
    match_vocabulary,
    normalize_text,
    strip_accents,
)
from metaxlm.init.vocabulary import list_vocabulary, read_vocabulary
from metaxlm.vocab.tokens import Kind

SOURCE = ["cat", "Ġcat", "ĠParis", "dog", "Ġhotel", "Ġcafe", "Ġ", "i", "Ã", "<s>", "ĠNATO", "Ġfi"]


def _match(pieces: list[str], *rules: str) -> list[tuple[str, str]]:
    """Match SentencePiece pieces with a few tokens of RoBERTa's kind: (rule, source token)."""
    target = list_vocabulary(pieces, Kind.SENTENCEPIECE)
    source = list_vocabulary(SOURCE, Kind.BYTE_BPE)
    found = match_vocabulary(target, source, rules or tuple(TEXT_RULES))
    return [(RULES[rule], SOURCE[row] if row >= 0 else "") for rule, row in _pairs(found)]


def _pairs(found: Matches) -> list[tuple[int, int]]:
    return list(zip(found.rules.tolist(), found.sources.tolist(), strict=True))


@pytest.mark.parametrize(
    ("piece", "rule", "token"),
    [
        ("▁cat", "direct", "Ġcat"),
        ("cat", "direct", "cat"),
        ("▁", "direct", "Ġ"),
        ("▁Hotel", "lower", "Ġhotel"),
        ("▁ﬁ", "nfkc", "Ġfi"),
        ("▁paris", "capitalized", "ĠParis"),
        ("▁PARIS", "capitalized", "ĠParis"),
        ("▁dog", "word_start", "dog"),
        ("▁Dog", "word_start", "dog"),
        ("hotel", "word_start", "Ġhotel"),
        ("▁Café", "accents", "Ġcafe"),
        ("café", "accents", "Ġcafe"),
        ("ï", "accents", "i"),
        ("▁ï", "filler", ""),
        ("▁nato", "filler", ""),
        ("▁кот", "filler", ""),
        ("<s>", "special", "<s>"),
        ("</s>", "filler", ""),
    ],
)
def test_first_rule_that_finds_the_piece(piece: str, rule: str, token: str) -> None:
    assert _match([piece]) == [(rule, token)]


def test_each_rule_is_optional() -> None:
    pieces = ["▁cat", "▁ﬁ", "▁Hotel", "▁paris", "▁dog", "▁Café"]
    assert [rule for rule, _ in _match(pieces)] == list(TEXT_RULES)
    for left_out in TEXT_RULES:
        rules = [rule for rule in TEXT_RULES if rule != left_out]
        assert left_out not in [rule for rule, _ in _match(pieces, *rules)]
    assert _match(pieces, "direct") == [("direct", "Ġcat"), *[("filler", "")] * 5]


def test_white_space_and_marks_alone_are_the_bare_word_start() -> None:
    assert _match(["\x85"]) == [("word_start", "Ġ")]
    assert _match(["\u0301"]) == [("accents", "Ġ")]


def test_normalization() -> None:
    assert normalize_text(" Ａﬁ\x85") == "Afi"
    assert strip_accents("Éтёс̌ø") == "Eтесø"


def test_broken_bytes_match_by_name() -> None:
    source = list_vocabulary(SOURCE, Kind.BYTE_BPE)
    same = match_vocabulary(list_vocabulary(["Ã", "Â"], Kind.BYTE_BPE), source)
    assert _pairs(same) == [(RULES.index("direct"), 8), (RULES.index("filler"), -1)]
    # In SentencePiece the same letter is the letter itself.
    other = match_vocabulary(list_vocabulary(["Ã"], Kind.SENTENCEPIECE), source)
    assert other.sources.tolist() == [-1]


def test_bytes_meet_across_notations() -> None:
    source = list_vocabulary(SOURCE, Kind.BYTE_BPE)
    fallback = list_vocabulary(["<0xC3>", "<0xC2>"], Kind.SENTENCEPIECE)
    assert _pairs(match_vocabulary(fallback, source))[0] == (RULES.index("direct"), 8)
    assert match_vocabulary(fallback, source).sources.tolist() == [8, -1]
    assert match_vocabulary(fallback, source, ["lower"]).sources.tolist() == [-1, -1]


def test_special_tokens_match_by_role_across_roberta_and_bert(
    byte_bpe: PreTrainedTokenizerBase, wordpiece: PreTrainedTokenizerBase
) -> None:
    roberta, bert = read_vocabulary(byte_bpe), read_vocabulary(wordpiece)
    partners = {
        "<s>": "[CLS]",
        "<pad>": "[PAD]",
        "</s>": "[SEP]",
        "<unk>": "[UNK]",
        "<mask>": "[MASK]",
    }
    for target, source, names in (
        (roberta, bert, partners),
        (bert, roberta, {there: here for here, there in partners.items()}),
    ):
        found = match_vocabulary(target, source)
        special = np.flatnonzero(found.rules == RULES.index("special")).tolist()
        assert {target.tokens[row]: source.tokens[found.sources[row]] for row in special} == names


def test_extra_special_tokens_match_by_name(
    byte_bpe: PreTrainedTokenizerBase, wordpiece: PreTrainedTokenizerBase
) -> None:
    target, source = copy.deepcopy(byte_bpe), copy.deepcopy(wordpiece)
    for tokenizer in (target, source):
        tokenizer.add_special_tokens({"additional_special_tokens": ["<lang:de>"]})
    found = match_vocabulary(read_vocabulary(target), read_vocabulary(source))
    row = target.convert_tokens_to_ids("<lang:de>")
    assert RULES[found.rules[row]] == "special"
    assert found.sources[row] == source.convert_tokens_to_ids("<lang:de>")


def test_wordpiece_word_starts_meet_byte_level_ones(
    byte_bpe: PreTrainedTokenizerBase, wordpiece: PreTrainedTokenizerBase
) -> None:
    target, source = read_vocabulary(byte_bpe), read_vocabulary(wordpiece)
    found = match_vocabulary(target, source)

    def partner(token: str) -> tuple[str, str]:
        row = target.tokens.index(token)
        return RULES[found.rules[row]], source.tokens[found.sources[row]]

    assert partner("Ġcat") == ("direct", "cat")
    assert partner("ĠLondon") == ("lower", "london")
