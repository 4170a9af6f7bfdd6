from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from metaxlm.init.dictionaries import Dictionaries
from metaxlm.init.match_plan import Plan, make_plan
from metaxlm.init.rules import RULES, TEXT_RULES
from metaxlm.init.vocabulary import NormalizedVocab, list_vocabulary
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokens import BYTE_OF_LETTER, Kind
from tests.init.conftest import DICTIONARIES, MakePlan, describe
from tests.init.test_dictionary_rules import make_dictionaries


@pytest.mark.parametrize(
    ("token", "rule", "weights", "languages"),
    [
        ("▁London", "direct", {"ĠLondon": 1}, ()),
        ("▁Hotel", "lower", {"Ġhotel": 1}, ()),
        ("▁paris", "capitalized", {"ĠParis": 1}, ()),
        ("▁café", "accents", {"Ġcafe": 1}, ()),
        ("▁Katze", "dictionary", {"Ġcat": 1}, ("de",)),
        ("▁Straße", "dictionary", {"Ġcity": 1}, ("de",)),
        ("▁chat", "dictionary", {"Ġcat": 1}, ("fr",)),
        ("▁кошка", "dictionary", {"Ġcat": 1}, ("ru",)),
        ("▁любит", "dictionary", {"Ġloves": 0.5, "Ġlove": 0.5}, ("ru",)),
        ("猫", "dictionary", {"Ġcat": 1}, ("zh",)),
        ("▁猫", "dictionary", {"Ġcat": 1}, ("zh",)),
        ("▁城市", "dictionary", {"Ġcity": 1}, ("zh",)),
        ("ш", "filler", {}, ()),
        ("<s>", "special", {"<s>": 1}, ()),
        ("<mask>", "special", {"<mask>": 1}, ()),
    ],
)
def test_examples_by_hand(
    plan: Plan, token: str, rule: str, weights: dict[str, float], languages: tuple[str, ...]
) -> None:
    assert describe(plan, token) == (rule, weights)
    entries = plan.origin(plan.tokens.index(token)).entries
    assert tuple(dict.fromkeys(language for language, _ in entries)) == languages


def test_rows_are_the_ids_of_both_tokenizers(
    plan: Plan, pieces: PreTrainedTokenizerBase, byte_bpe: PreTrainedTokenizerBase
) -> None:
    assert {token: row for row, token in enumerate(plan.tokens)} == pieces.get_vocab()
    assert plan.source_size == len(byte_bpe)
    for row in range(len(plan)):
        origin = plan.origin(row)
        assert list(origin.source_tokens) == byte_bpe.convert_ids_to_tokens(origin.source_rows)


def test_settings_of_the_recipe(make: MakePlan) -> None:
    starts = make(DICTIONARIES, pieces="word_start")
    assert describe(starts, "猫")[0] == "filler"
    assert describe(starts, "▁猫")[0] == "dictionary"
    direct = make(DICTIONARIES, rules=["direct"])
    counts = direct.count_rules()
    assert not any(counts[rule] for rule in list(TEXT_RULES)[1:])
    assert [describe(direct, f"▁{word}")[0] for word in ("London", "Hotel", "Katze")] == [
        "direct", "filler", "dictionary",
    ]  # fmt: skip
    bare = make()
    assert describe(bare, "▁Katze")[0] == "filler"
    assert not bare.languages
    assert bare.recipe.filler == "random"


# Properties of every plan. Few letters, so that vocabularies overlap; accents, cases and a ligature
# for every rule.
WORDS = st.text("aAbé\u0301ﬁfiД ", min_size=1, max_size=3).filter(str.strip)
TEXTS = st.tuples(WORDS.map(lambda word: word.replace(" ", "")).filter(bool), st.booleans())
LETTER_OF = {byte: letter for letter, byte in BYTE_OF_LETTER.items()}


def _write(text: str, starts: bool, kind: Kind) -> str:
    """Write a surface form in the notation of a tokenizer."""
    if kind is Kind.SENTENCEPIECE:
        return f"▁{text}" if starts else text
    if kind is Kind.WORDPIECE:
        return text if starts else f"##{text}"
    return "".join(LETTER_OF[byte] for byte in (f" {text}" if starts else text).encode())


VOCABULARIES = st.builds(
    lambda kind, texts: list_vocabulary(
        ["<s>", "<mask>", *(_write(*text, kind) for text in texts)], kind
    ),
    st.sampled_from(list(Kind)),
    st.lists(TEXTS, min_size=1, max_size=12, unique=True),
)
PAIRS = st.lists(st.tuples(WORDS.map(str.lower), WORDS), min_size=1, max_size=8)
LEXICONS = st.dictionaries(st.sampled_from(["de", "fr", "ru"]), PAIRS, max_size=3).map(
    lambda by_language: make_dictionaries(**by_language)
)
RECIPES = st.builds(
    MatchingRecipe,
    rules=st.lists(st.sampled_from(list(TEXT_RULES)), unique=True),
    pieces=st.sampled_from(["any", "word_start"]),
    one_to_many=st.sampled_from(["first", "mean", "frequency", "mean_per_language"]),
    multi_token=st.just(False),
)


@given(VOCABULARIES, VOCABULARIES, RECIPES, LEXICONS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_every_token_has_one_origin_whatever_the_order_of_languages(
    target: NormalizedVocab,
    source: NormalizedVocab,
    recipe: MatchingRecipe,
    dictionaries: Dictionaries,
    random: Random,
) -> None:
    plan = make_plan(target, source, recipe, dictionaries)
    assert sum(plan.count_rules().values()) == len(plan) == len(target)
    for row in range(len(plan)):
        origin = plan.origin(row)
        assert origin.token == target.tokens[row]
        assert len(set(origin.source_rows)) == len(origin.source_rows)
        assert all(0 <= one < len(source) for one in origin.source_rows)
        assert (not origin.source_rows) == (origin.rule == "filler")
        if origin.source_rows:
            assert sum(origin.weights) == pytest.approx(1)
            assert min(origin.weights) > 0
        assert bool(origin.entries) == origin.rule.startswith("dictionary")
        if origin.rule in TEXT_RULES:
            assert origin.rule in recipe.rules
    languages = list(dictionaries.by_language)
    random.shuffle(languages)
    shuffled = Dictionaries("en", {key: dictionaries.by_language[key] for key in languages})
    assert plan == make_plan(target, source, recipe, shuffled)


@given(VOCABULARIES, VOCABULARIES, RECIPES)
@settings(max_examples=50, deadline=None)
def test_a_vocabulary_matches_itself_and_more_rules_match_more(
    target: NormalizedVocab, source: NormalizedVocab, recipe: MatchingRecipe
) -> None:
    plan = make_plan(target, target)
    assert plan.sources.tolist() == list(range(len(target)))
    assert not (plan.rules == RULES.index("filler")).any()
    some = make_plan(target, source, recipe).is_matched
    assert not (some & ~make_plan(target, source).is_matched).any()
