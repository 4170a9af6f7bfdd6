from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from metaxlm.init.dictionaries import Dictionaries, load_dictionaries
from metaxlm.init.plan import Plan, make_plan
from metaxlm.init.rules import RULES, TEXT_RULES
from metaxlm.recipe import MatchingRecipe
from tests.init.conftest import DICTIONARIES, WriteDictionaries


def _describe(plan: Plan, token: str) -> tuple[str, dict[str, float], tuple[str, ...]]:
    origin = plan.origin(plan.tokens.index(token))
    assert origin.token == token
    weights = dict(zip(origin.source_tokens, origin.weights, strict=True))
    return origin.rule, weights, origin.languages


@pytest.mark.parametrize(
    ("token", "rule", "weights", "languages"),
    [
        ("▁London", "direct", {"ĠLondon": 1}, ()),
        ("▁Hotel", "lower", {"Ġhotel": 1}, ()),
        ("▁paris", "capitalized", {"ĠParis": 1}, ()),
        ("▁café", "accents", {"Ġcafe": 1}, ()),
        ("▁Katze", "dictionary", {"Ġcat": 1}, ("de",)),
        ("▁Hund", "dictionary", {"Ġdog": 1}, ("de",)),
        ("▁Mädchen", "dictionary", {"Ġgirl": 1}, ("de",)),
        ("▁Straße", "dictionary", {"Ġcity": 1}, ("de",)),
        ("▁chat", "dictionary", {"Ġcat": 1}, ("fr",)),
        ("▁maison", "dictionary", {"Ġhouse": 1}, ("fr",)),
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
    assert _describe(plan, token) == (rule, weights, languages)


def test_every_row_has_exactly_one_origin(plan: Plan, pieces: PreTrainedTokenizerBase) -> None:
    vocabulary = pieces.get_vocab()
    assert {token: row for row, token in enumerate(plan.tokens)} == vocabulary
    assert sum(plan.count_rules().values()) == len(plan) == len(vocabulary)
    for row in range(len(plan)):
        origin = plan.origin(row)
        if origin.rule == "filler":
            assert origin.source_rows == origin.weights == origin.languages == ()
        else:
            assert sum(origin.weights) == pytest.approx(1)
            assert len(set(origin.source_rows)) == len(origin.source_rows) >= 1
            assert bool(origin.languages) == origin.rule.startswith("dictionary")


def test_source_tokens_are_those_of_the_source_rows(
    plan: Plan, byte_bpe: PreTrainedTokenizerBase
) -> None:
    assert plan.source_size == len(byte_bpe)
    for row in range(len(plan)):
        origin = plan.origin(row)
        assert list(origin.source_tokens) == byte_bpe.convert_ids_to_tokens(origin.source_rows)


def test_only_word_starts(
    pieces: PreTrainedTokenizerBase, byte_bpe: PreTrainedTokenizerBase, dictionaries: Dictionaries
) -> None:
    recipe = MatchingRecipe(pieces="word_start")
    found = make_plan(pieces, byte_bpe, recipe, dictionaries)
    assert _describe(found, "猫")[0] == "filler"
    assert _describe(found, "▁猫")[0] == "dictionary"


def test_without_normalization(
    pieces: PreTrainedTokenizerBase, byte_bpe: PreTrainedTokenizerBase, dictionaries: Dictionaries
) -> None:
    found = make_plan(pieces, byte_bpe, MatchingRecipe(rules=["direct"]), dictionaries)
    counts = found.count_rules()
    assert [rule for rule in list(TEXT_RULES)[1:] if counts[rule]] == []
    assert _describe(found, "▁London")[0] == "direct"
    assert _describe(found, "▁Hotel")[0] == "filler"
    assert _describe(found, "▁Katze")[0] == "dictionary"


def test_without_dictionaries(
    pieces: PreTrainedTokenizerBase, byte_bpe: PreTrainedTokenizerBase
) -> None:
    found = make_plan(pieces, byte_bpe, MatchingRecipe(), None)
    assert _describe(found, "▁Katze")[0] == "filler"
    assert not found.languages
    assert found.recipe.filler == "random"


def test_translation_of_several_tokens(
    write: WriteDictionaries,
    pieces: PreTrainedTokenizerBase,
    byte_bpe: PreTrainedTokenizerBase,
) -> None:
    loaded = load_dictionaries(write({"en-de.txt": "red house\tHaus\n"}))
    weights = {"Ġred": 0.5, "Ġhouse": 0.5}
    found = make_plan(pieces, byte_bpe, MatchingRecipe(), loaded)
    assert _describe(found, "▁Haus") == ("dictionary_tokens", weights, ("de",))
    found = make_plan(pieces, byte_bpe, MatchingRecipe(multi_token=False), loaded)
    assert _describe(found, "▁Haus")[0] == "filler"


@pytest.mark.parametrize("one_to_many", ["first", "mean", "frequency", "mean_per_language"])
def test_order_of_dictionary_files_does_not_matter(
    tmp_path: Path,
    pieces: PreTrainedTokenizerBase,
    byte_bpe: PreTrainedTokenizerBase,
    one_to_many: str,
) -> None:
    # Several languages know the same word, and disagree.
    files = {f"en-{k}.txt": v for k, v in DICTIONARIES.items()}
    files |= {"en-nl.txt": "dog chat\nriver chat\n", "af-en.txt": "chat girl\nchat red\n"}
    files |= {"fr-en.txt": "chat house\nchat city\n"}
    recipe = MatchingRecipe(one_to_many=one_to_many)
    plans = []
    for name, order in (("forth", list(files)), ("back", list(reversed(files)))):
        folder = tmp_path / name
        folder.mkdir()
        for file in order:
            (folder / file).write_text(files[file], encoding="utf-8")
        loaded = load_dictionaries(folder)
        # The order of the mapping must not matter either.
        languages = sorted(loaded.by_language, reverse=name == "back")
        shuffled = Dictionaries("en", {key: loaded.by_language[key] for key in languages})
        plans.append(make_plan(pieces, byte_bpe, recipe, shuffled))
    assert plans[0] == plans[1]
    rows, chosen = byte_bpe.get_vocab(), plans[0].origin(plans[0].tokens.index("▁chat"))[3]
    total = sum(1 / (rows[token] + 1) for token in chosen)
    expected = {
        "first": {"Ġgirl": 1},
        # The position in the source vocabulary stands in for the frequency.
        "frequency": {token: 1 / (rows[token] + 1) / total for token in chosen},
        "mean": {
            "Ġgirl": 1 / 7, "Ġred": 1 / 7, "Ġcat": 1 / 7, "Ġhouse": 1 / 7, "Ġcity": 1 / 7,
            "Ġdog": 1 / 7, "Ġriver": 1 / 7,
        },
        "mean_per_language": {
            "Ġgirl": 1 / 6, "Ġred": 1 / 6, "Ġcat": 1 / 9, "Ġhouse": 1 / 9, "Ġcity": 1 / 9,
            "Ġdog": 1 / 6, "Ġriver": 1 / 6,
        },
    }[one_to_many]  # fmt: skip
    rule, weights, languages = _describe(plans[0], "▁chat")
    assert (rule, weights) == ("dictionary", pytest.approx(expected))
    assert languages == (("af",) if one_to_many == "first" else ("af", "fr", "nl"))


def test_plans_that_differ_are_not_equal(plan: Plan) -> None:
    assert plan == replace(plan)
    assert plan != replace(plan, recipe=MatchingRecipe(filler="normal"))
    assert plan != replace(plan, weights=plan.weights * np.float32(0.5))
    assert plan != "a plan"


def test_rules_stand_in_the_order_they_are_tried(plan: Plan) -> None:
    assert list(plan.count_rules()) == list(RULES)
    assert RULES[0] == "special"
    assert RULES[-1] == "filler"
    assert plan.is_matched.sum() == len(plan) - plan.count_rules()["filler"]
