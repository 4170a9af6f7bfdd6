"""What holds for every plan, whatever the vocabularies and dictionaries."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaxlm.init.dictionaries import Dictionaries, Dictionary, WordPairs
from metaxlm.init.plan import make_plan
from metaxlm.init.rules import RULES, TEXT_RULES
from metaxlm.init.vocabulary import Vocabulary, list_vocabulary
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokens import Kind

# Few letters, so that vocabularies meet; accents, cases and a ligature for every rule.
WORDS = st.text("aAbé\u0301ﬁfiД ", min_size=1, max_size=3).filter(str.strip)
TEXTS = st.tuples(WORDS.map(lambda word: word.replace(" ", "")).filter(bool), st.booleans())


def _write_pieces(texts: list[tuple[str, bool]]) -> list[str]:
    return [f"▁{text}" if starts else text for text, starts in texts]


def _write_bpe(texts: list[tuple[str, bool]]) -> list[str]:
    from metaxlm.vocab.tokens import BYTE_OF_LETTER

    letter_of = {byte: letter for letter, byte in BYTE_OF_LETTER.items()}
    return [
        "".join(letter_of[byte] for byte in (f" {text}" if starts else text).encode())
        for text, starts in texts
    ]


def _write_wordpiece(texts: list[tuple[str, bool]]) -> list[str]:
    return [text if starts else f"##{text}" for text, starts in texts]


WRITERS = {
    Kind.SENTENCEPIECE: _write_pieces,
    Kind.BYTE_BPE: _write_bpe,
    Kind.WORDPIECE: _write_wordpiece,
}
LISTS = st.lists(TEXTS, min_size=1, max_size=12, unique=True)
VOCABULARIES = st.builds(
    lambda kind, texts: list_vocabulary(["<s>", "<mask>", *WRITERS[kind](texts)], kind),
    st.sampled_from(list(Kind)),
    LISTS,
)
PAIRS = st.lists(st.tuples(WORDS.map(str.lower), WORDS), min_size=1, max_size=8)
DICTIONARIES = st.dictionaries(st.sampled_from(["de", "fr", "ru"]), PAIRS, max_size=3).map(
    lambda by_language: Dictionaries(
        "en",
        {
            language: Dictionary(
                language,
                (
                    WordPairs(
                        "x",
                        "\n".join(word for word, _ in pairs),
                        "\n".join(translation for _, translation in pairs),
                    ),
                ),
            )
            for language, pairs in by_language.items()
        },
    )
)
RECIPES = st.builds(
    MatchingRecipe,
    rules=st.lists(st.sampled_from(list(TEXT_RULES)), unique=True),
    pieces=st.sampled_from(["any", "word_start"]),
    one_to_many=st.sampled_from(["first", "mean", "frequency", "mean_per_language"]),
    multi_token=st.just(False),
)


@given(VOCABULARIES, VOCABULARIES, RECIPES, DICTIONARIES)
@settings(max_examples=200, deadline=None)
def test_every_row_has_one_origin(
    target: Vocabulary, source: Vocabulary, recipe: MatchingRecipe, dictionaries: Dictionaries
) -> None:
    plan = make_plan(target, source, recipe, dictionaries)
    assert len(plan) == len(target)
    assert sum(plan.count_rules().values()) == len(target)
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


@given(VOCABULARIES)
@settings(max_examples=100, deadline=None)
def test_a_vocabulary_matches_itself(vocabulary: Vocabulary) -> None:
    plan = make_plan(vocabulary, vocabulary)
    assert plan.sources.tolist() == list(range(len(vocabulary)))
    assert not (plan.rules == RULES.index("filler")).any()


@given(VOCABULARIES, VOCABULARIES, RECIPES)
@settings(max_examples=100, deadline=None)
def test_a_rule_more_never_loses_a_row(
    target: Vocabulary, source: Vocabulary, recipe: MatchingRecipe
) -> None:
    everything = make_plan(target, source).is_matched
    some = make_plan(target, source, recipe).is_matched
    assert not (some & ~everything).any()


@given(VOCABULARIES, VOCABULARIES, RECIPES, DICTIONARIES, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_of_languages_does_not_matter(
    target: Vocabulary,
    source: Vocabulary,
    recipe: MatchingRecipe,
    dictionaries: Dictionaries,
    random: Random,
) -> None:
    languages = list(dictionaries.by_language)
    random.shuffle(languages)
    shuffled = Dictionaries("en", {key: dictionaries.by_language[key] for key in languages})
    assert make_plan(target, source, recipe, dictionaries) == make_plan(
        target, source, recipe, shuffled
    )
