from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerBase

from metaxlm.config import MatchingRecipe
from metaxlm.errors import MetaXLMError
from metaxlm.initialization.canonical import Kind, list_vocabulary
from metaxlm.initialization.dictionaries import load_dictionaries
from metaxlm.initialization.plan import Plan, make_plan
from tests.initialization.conftest import WriteDictionaries


def _describe(plan: Plan, token: str) -> tuple[str, dict[str, float]]:
    origin = plan.origin(plan.tokens.index(token))
    return origin.rule, dict(zip(origin.source_tokens, origin.weights, strict=True))


# Neither is a piece of its own: the vocabulary cuts them into ▁ко + би and ▁ко + до.
SPLIT = "river коби\ncity кодо\n"
MEAN = {"Ġriver": 0.5, "Ġcity": 0.5}


@pytest.mark.parametrize(
    ("split_words", "first", "second"),
    [
        ("none", ("filler", {}), ("filler", {})),
        ("first", ("dictionary_part", MEAN), ("filler", {})),
        ("all", ("dictionary_part", MEAN), ("dictionary_part", {"Ġriver": 1})),
    ],
)
def test_words_of_several_pieces_lend_their_translation(
    write: WriteDictionaries,
    pieces: PreTrainedTokenizerBase,
    byte_bpe: PreTrainedTokenizerBase,
    split_words: str,
    first: tuple[str, dict[str, float]],
    second: tuple[str, dict[str, float]],
) -> None:
    assert pieces.tokenize("коби кодо") == ["▁ко", "би", "▁ко", "до"]
    loaded = load_dictionaries(write({"en-ru.txt": SPLIT}))
    plan = make_plan(pieces, byte_bpe, MatchingRecipe(split_words=split_words), loaded)
    assert _describe(plan, "▁ко") == first
    assert _describe(plan, "би") == second
    if split_words != "none":
        entries = plan.origin(plan.tokens.index("▁ко")).entries
        assert entries == (("ru", "river"), ("ru", "city"))


def test_a_match_of_its_own_goes_before_words_it_is_a_part_of(
    write: WriteDictionaries,
    pieces: PreTrainedTokenizerBase,
    byte_bpe: PreTrainedTokenizerBase,
) -> None:
    loaded = load_dictionaries(write({"en-ru.txt": SPLIT + "cat ко\n"}))
    plan = make_plan(pieces, byte_bpe, MatchingRecipe(split_words="all"), loaded)
    assert _describe(plan, "▁ко") == ("dictionary", {"Ġcat": 1})


def test_a_piece_takes_the_first_words_of_each_language(
    write: WriteDictionaries,
    pieces: PreTrainedTokenizerBase,
    byte_bpe: PreTrainedTokenizerBase,
) -> None:
    endings = ["би", "до", "ка", "ко", "лю", "бика", "бит", "биби", "доби", "каби"]
    # The ninth and tenth word come too late; the other language has room of its own.
    english = ["river"] * 8 + ["cat"] * 2
    lines = [f"{english[k]} ко{ending}" for k, ending in enumerate(endings)]
    files = {"en-ru.txt": "\n".join(lines), "en-bg.txt": "dog кобидо\n"}
    plan = make_plan(
        pieces, byte_bpe, MatchingRecipe(split_words="first"), load_dictionaries(write(files))
    )
    weights = {"Ġdog": 1 / 9, "Ġriver": 8 / 9}
    assert _describe(plan, "▁ко") == ("dictionary_part", pytest.approx(weights))


def test_rows_of_the_sources_own_subwords(
    pieces: PreTrainedTokenizerBase, wordpiece: PreTrainedTokenizerBase
) -> None:
    recipe = MatchingRecipe(rules=["direct"], filler="subwords")
    plan = make_plan(pieces, wordpiece, recipe)
    # The source has no Hund, but parts of it; what it cannot spell stays random.
    parts = wordpiece.tokenize("Hund")
    assert len(parts) == len(set(parts)) > 1
    weights = dict.fromkeys(parts, 1 / len(parts))
    assert _describe(plan, "▁Hund") == ("subwords", pytest.approx(weights))
    # A continuation starts with the letter's own continuation.
    first, *others = wordpiece.tokenize("und")
    assert first == "u"
    weights = dict.fromkeys(["##u", *others], 1 / (1 + len(others)))
    assert _describe(plan, "und") == ("subwords", pytest.approx(weights))
    assert _describe(plan, "▁猫") == ("filler", {})
    assert _describe(plan, "▁Hotel")[0] == "subwords"
    # Fillers are no matches.
    assert not plan.is_matched[plan.tokens.index("▁Hund")]


def test_a_subword_that_occurs_twice_weighs_twice(
    pieces: PreTrainedTokenizerBase, byte_bpe: PreTrainedTokenizerBase
) -> None:
    plan = make_plan(pieces, byte_bpe, MatchingRecipe(filler="subwords"))
    row = plan.tokens.index("шка")
    rows = byte_bpe("шка", add_special_tokens=False)["input_ids"]
    origin = plan.origin(row)
    assert sum(origin.weights) == pytest.approx(1)
    assert max(origin.weights) > min(origin.weights)
    assert set(origin.source_rows) <= set(rows)


@pytest.mark.parametrize("choice", [{"filler": "subwords"}, {"split_words": "all"}])
def test_a_list_of_tokens_cannot_cut(
    write: WriteDictionaries, choice: dict[str, str], byte_bpe: PreTrainedTokenizerBase
) -> None:
    plain = list_vocabulary(["▁x", "y"], Kind.SENTENCEPIECE)
    recipe = MatchingRecipe(multi_token=False, **choice)
    loaded = load_dictionaries(write({"en-ru.txt": SPLIT}))
    key = next(iter(choice))
    source = plain if key == "filler" else byte_bpe
    with pytest.raises(MetaXLMError, match=f"matching.{key}: a plain list of tokens cannot cut"):
        make_plan(plain, source, recipe, loaded)
