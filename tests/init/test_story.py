from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries
from metaxlm.init.ledger import Story, explain, find_rows
from metaxlm.init.plan import Plan, make_plan
from metaxlm.recipe import MatchingRecipe


def _tell(plan: Plan, token: str) -> Story:
    [row] = find_rows(plan, token)
    return explain(plan, row)


def test_a_word_through_the_dictionary(plan: Plan) -> None:
    story = _tell(plan, "▁Haus")
    assert story.description == '"Haus", Latin script, starts a word'
    assert [(step.rule, step.text) for step in story.steps] == [
        ("direct", '"Haus" at a word start: not in the source'),
        ("nfkc", "nothing new to try"),
        ("lower", '"haus" at a word start: not in the source'),
        ("capitalized", "nothing new to try"),
        ("word_start", '"Haus" inside a word, "haus" inside a word: not in the source'),
        ("accents", "nothing new to try"),
        ("dictionary", '"haus" is German house'),
    ]
    assert [step.is_decisive for step in story.steps] == [False] * 6 + [True]
    assert story.outcome == "a copy of Ġhouse"


def test_what_was_looked_for_is_really_absent(
    plan: Plan, byte_bpe: PreTrainedTokenizerBase
) -> None:
    tokens = byte_bpe.get_vocab()
    assert not {"ĠHaus", "Ġhaus", "Haus", "haus"} & tokens.keys()


def test_several_source_rows_are_told_with_their_weights(plan: Plan) -> None:
    story = _tell(plan, "▁любит")
    assert story.steps[-1].text == '"любит" is Russian loves, love'
    assert story.outcome == "0.50 Ġloves + 0.50 Ġlove"


def test_a_row_that_nothing_matches(plan: Plan) -> None:
    story = _tell(plan, "ш")
    assert story.description == '"ш", Cyrillic script, continues a word'
    assert [step.rule for step in story.steps][-2:] == ["dictionary", "filler"]
    assert story.steps[-2].text == '"ш": no entry that the source could match'
    assert story.outcome == "random numbers with deviation 0.02"


def test_a_special_token(plan: Plan) -> None:
    story = _tell(plan, "<mask>")
    assert [step.rule for step in story.steps] == ["special"]
    assert story.outcome == "a copy of <mask>"


def test_choices_of_the_recipe_are_told(
    pieces: PreTrainedTokenizerBase, byte_bpe: PreTrainedTokenizerBase, dictionaries: Dictionaries
) -> None:
    recipe = MatchingRecipe(rules=["lower"], pieces="word_start", filler="normal")
    plan = make_plan(pieces, byte_bpe, recipe, dictionaries)
    steps = {step.rule: step.text for step in _tell(plan, "шка").steps}
    assert steps["direct"] == steps["accents"] == "off in the recipe"
    assert steps["lower"] == '"шка" inside a word: not in the source'
    assert steps["dictionary"] == "off for pieces that continue a word"
    assert steps["filler"] == "random numbers with the source rows' mean and deviation"
    bare = make_plan(pieces, byte_bpe, recipe)
    steps = {step.rule: step.text for step in _tell(bare, "▁Haus").steps}
    assert steps["dictionary"] == "none was given, or none matched any row"


def test_parts_and_subwords(
    pieces: PreTrainedTokenizerBase, byte_bpe: PreTrainedTokenizerBase, dictionaries: Dictionaries
) -> None:
    recipe = MatchingRecipe(filler="subwords")
    story = _tell(make_plan(pieces, byte_bpe, recipe), "ш")
    assert story.steps[-1].rule == "subwords"
    assert " + " in story.outcome


def test_rows_by_number(plan: Plan) -> None:
    assert find_rows(plan, "#7") == [7]
    assert find_rows(plan, "nothing") == []
    with pytest.raises(MetaXLMError, match="#99999: the plan has rows 0 to"):
        find_rows(plan, "#99999")
