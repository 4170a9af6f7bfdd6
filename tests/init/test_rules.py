from __future__ import annotations

import copy

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from metaxlm.init.match_plan import make_plan
from metaxlm.init.rules import (
    RULES,
    TEXT_RULES,
    Matches,
    match_vocabulary,
)
from metaxlm.init.vocabulary import list_vocabulary, read_vocabulary
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokens import Kind
from tests.init.conftest import MakePlan, describe

SOURCE = ["cat", "Ġcat", "ĠParis", "dog", "Ġhotel", "Ġcafe", "Ġ", "i", "Ã", "<s>", "ĠNATO", "Ġfi"]
ROBERTA = list_vocabulary(SOURCE, Kind.BYTE_BPE)


def _match(pieces: list[str], *rules: str) -> list[tuple[str, str]]:
    """Match SentencePiece tokens with a few tokens of RoBERTa's kind: (rule, source token)."""
    target = list_vocabulary(pieces, Kind.SENTENCEPIECE)
    found = match_vocabulary(target, ROBERTA, rules or tuple(TEXT_RULES))
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
        # White space and marks alone are the bare word start.
        ("\x85", "word_start", "Ġ"),
        ("\u0301", "accents", "Ġ"),
    ],
)
def test_first_rule_that_finds_the_token(piece: str, rule: str, token: str) -> None:
    assert _match([piece]) == [(rule, token)]


def test_each_rule_is_optional() -> None:
    pieces = ["▁cat", "▁ﬁ", "▁Hotel", "▁paris", "▁dog", "▁Café"]
    assert [rule for rule, _ in _match(pieces)] == list(TEXT_RULES)
    for left_out in TEXT_RULES:
        rules = [rule for rule in TEXT_RULES if rule != left_out]
        assert left_out not in [rule for rule, _ in _match(pieces, *rules)]
    assert _match(pieces, "direct") == [("direct", "Ġcat"), *[("filler", "")] * 5]


def test_bytes_match_across_notations() -> None:
    same = match_vocabulary(list_vocabulary(["Ã", "Â"], Kind.BYTE_BPE), ROBERTA)
    assert _pairs(same) == [(RULES.index("direct"), 8), (RULES.index("filler"), -1)]
    fallback = list_vocabulary(["<0xC3>", "<0xC2>"], Kind.SENTENCEPIECE)
    assert _pairs(match_vocabulary(fallback, ROBERTA)) == _pairs(same)
    assert match_vocabulary(fallback, ROBERTA, ["lower"]).sources.tolist() == [-1, -1]
    # In SentencePiece the letter is the letter itself.
    assert _match(["Ã"]) == [("filler", "")]


def test_special_tokens_match_by_role_across_roberta_and_bert(
    byte_bpe: PreTrainedTokenizerBase, wordpiece: PreTrainedTokenizerBase
) -> None:
    roberta, bert = read_vocabulary(byte_bpe), read_vocabulary(wordpiece)
    partners = {
        "<s>": "[CLS]", "<pad>": "[PAD]", "</s>": "[SEP]", "<unk>": "[UNK]", "<mask>": "[MASK]",
    }  # fmt: skip
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
    plan = make_plan(target, source)
    assert describe(plan, "<lang:de>") == ("special", {"<lang:de>": 1})
    # Word starts match across notations.
    assert describe(plan, "Ġcat") == ("direct", {"cat": 1})
    assert describe(plan, "ĠLondon") == ("lower", {"london": 1})


def test_subwords_of_the_source(
    pieces: PreTrainedTokenizerBase, wordpiece: PreTrainedTokenizerBase, make: MakePlan
) -> None:
    recipe = MatchingRecipe(rules=["direct"], filler="subwords")
    plan = make_plan(pieces, wordpiece, recipe)
    # The source has no Hund, but parts of it; a text it cannot spell stays random.
    parts = wordpiece.tokenize("Hund")
    assert len(parts) == len(set(parts)) > 1
    weights = dict.fromkeys(parts, 1 / len(parts))
    assert describe(plan, "▁Hund") == ("subwords", pytest.approx(weights))
    # A continuation starts with the continuation of the letter.
    first, *others = wordpiece.tokenize("und")
    assert first == "u"
    weights = dict.fromkeys(["##u", *others], 1 / (1 + len(others)))
    assert describe(plan, "und") == ("subwords", pytest.approx(weights))
    assert describe(plan, "▁猫") == ("filler", {})
    assert describe(plan, "▁Hotel")[0] == "subwords"
    assert not plan.is_matched[plan.tokens.index("▁Hund")]
    # A subword that occurs twice counts twice.
    weights = describe(make(filler="subwords"), "шка")[1]
    assert sum(weights.values()) == pytest.approx(1)
    assert max(weights.values()) > min(weights.values())


def test_a_phrase_is_the_mean_of_its_segments() -> None:
    source = list_vocabulary(["Ġcat", "Ġriver", "Ġdog", "Ġi"], Kind.BYTE_BPE)
    tokens = ["▁catdog", "▁dogriver", "cat", "▁dog", "▁river", "▁catdogs", "▁xyzcat", "▁我不", "我"]
    target = list_vocabulary(tokens, Kind.SENTENCEPIECE)
    plan = make_plan(target, source, MatchingRecipe(segments=True))
    # By length, a token at a word start or inside one.
    assert describe(plan, "▁catdog") == ("segments", {"Ġcat": 0.5, "Ġdog": 0.5})
    weights = {"Ġdog": 3 / 8, "Ġriver": 5 / 8}
    assert describe(plan, "▁dogriver") == ("segments", pytest.approx(weights))
    # One letter of seven may stay unexplained, three of six may not.
    assert describe(plan, "▁catdogs")[0] == "segments"
    assert describe(plan, "▁xyzcat")[0] == "filler"
    assert describe(plan, "▁我不")[0] == "filler"
    assert make_plan(target, source).count_rules()["segments"] == 0


def test_the_longest_segments_win() -> None:
    source = list_vocabulary(["Ġcatdog", "Ġcat", "Ġdogs", "Ġbird"], Kind.BYTE_BPE)
    tokens = ["▁catdog", "▁cat", "dogs", "▁catdogsbird", "bird"]
    target = list_vocabulary(tokens, Kind.SENTENCEPIECE)
    plan = make_plan(target, source, MatchingRecipe(segments=True))
    # cat + dogs + bird explains every letter, but 36 + 16 is more than 9 + 16 + 16.
    weights = {"Ġcatdog": 0.6, "Ġbird": 0.4}
    assert describe(plan, "▁catdogsbird") == ("segments", pytest.approx(weights))
