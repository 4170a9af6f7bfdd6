from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.init.canonical import list_vocabulary
from metaxlm.init.composition import Counts
from metaxlm.init.dictionaries import Dictionaries, load_dictionaries
from metaxlm.init.plan import Plan, make_plan
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.token_forms import Kind
from tests.init.conftest import WriteDictionaries


def _describe(plan: Plan, token: str) -> tuple[str, dict[str, float]]:
    origin = plan.origin(plan.tokens.index(token))
    return origin.rule, dict(zip(origin.source_tokens, origin.weights, strict=True))


# Neither is a piece of its own: the vocabulary cuts them into ▁ко + би and ▁ко + до.
SPLIT = "river коби\ncity кодо\n"
# The second word of a dictionary counts a little less than the first.
MEAN = {"Ġriver": 501 / 1001, "Ġcity": 500 / 1001}


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
    assert _describe(plan, "▁ко") == (first[0], pytest.approx(first[1]))
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
    endings = ["би", "до", "ка", "ко", "лю", "бика", "бит"]
    # The sixth and seventh word come too late; the other language has room of its own.
    english = ["river"] * 5 + ["cat"] * 2
    lines = [f"{english[k]} ко{ending}" for k, ending in enumerate(endings)]
    files = {"en-ru.txt": "\n".join(lines), "en-bg.txt": "dog кобидо\n"}
    plan = make_plan(
        pieces, byte_bpe, MatchingRecipe(split_words="first"), load_dictionaries(write(files))
    )
    parts = {"Ġdog": 1 / 500, "Ġriver": sum(1 / (500 + place) for place in range(5))}
    weights = {token: part / sum(parts.values()) for token, part in parts.items()}
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


# German uses ▁Hotel, English hardly; ▁London is English.
COUNTS = {"en": {"▁London": 90, "▁Hotel": 1, "▁paris": 9}, "de": {"▁Hotel": 99, "▁London": 1}}


def _count(pieces: PreTrainedTokenizerBase) -> Counts:
    counts = {}
    for language, tokens in COUNTS.items():
        counts[language] = np.zeros(len(pieces), np.int64)
        for token, count in tokens.items():
            counts[language][pieces.convert_tokens_to_ids(token)] = count
    return Counts(target=counts)


@pytest.mark.parametrize(
    ("precedence", "hotel", "london"),
    [
        ("text", ("lower", {"Ġhotel": 1}), ("direct", {"ĠLondon": 1})),
        ("dictionary", ("dictionary", {"Ġhouse": 1}), ("dictionary", {"Ġcity": 1})),
        # Relative frequencies 1 / 100 and 99 / 100; each language has a little more than nothing.
        (
            "frequency_weighted",
            ("dictionary_blend", {"Ġhouse": 0.9901 / 1.0002, "Ġhotel": 0.0101 / 1.0002}),
            ("direct", {"ĠLondon": 1}),
        ),
    ],
)
def test_what_goes_first(
    write: WriteDictionaries,
    pieces: PreTrainedTokenizerBase,
    byte_bpe: PreTrainedTokenizerBase,
    precedence: str,
    hotel: tuple[str, dict[str, float]],
    london: tuple[str, dict[str, float]],
) -> None:
    loaded = load_dictionaries(write({"en-de.txt": "house hotel\ncity london\n"}))
    recipe = MatchingRecipe(precedence=precedence)
    plan = make_plan(pieces, byte_bpe, recipe, loaded, _count(pieces))
    for token, (rule, weights) in (("▁Hotel", hotel), ("▁London", london)):
        assert _describe(plan, token) == (rule, pytest.approx(weights))
    if precedence == "frequency_weighted":
        entries = plan.origin(plan.tokens.index("▁Hotel")).entries
        assert entries == (("de", "house"), ("en", "hotel"))


@pytest.mark.parametrize("target", [None, {}, {"de": np.ones(117, np.int64)}])
def test_use_needs_text_of_the_source_language(
    pieces: PreTrainedTokenizerBase,
    byte_bpe: PreTrainedTokenizerBase,
    dictionaries: Dictionaries,
    target: dict[str, NDArray[np.int64]] | None,
) -> None:
    recipe = MatchingRecipe(precedence="frequency_weighted")
    with pytest.raises(MetaXLMError, match="`frequency_weighted` needs text of the source language en"):
        make_plan(pieces, byte_bpe, recipe, dictionaries, Counts(target=target))


def test_a_doubtful_match_tries_the_words_it_is_a_part_of(
    write: WriteDictionaries,
    pieces: PreTrainedTokenizerBase,
    byte_bpe: PreTrainedTokenizerBase,
) -> None:
    # A letter is a token of the source too, but only German uses these pieces.
    counts = {language: np.zeros(len(pieces), np.int64) for language in ("en", "de")}
    counts["en"][pieces.convert_tokens_to_ids("▁London")] = 100
    counts["de"][pieces.convert_tokens_to_ids(["p", "m"])] = 50
    assert pieces.tokenize("chp") == ["▁ch", "p"]
    loaded = load_dictionaries(write({"en-de.txt": "river chp\n"}))
    text = make_plan(pieces, byte_bpe, MatchingRecipe(split_words="all"), loaded)
    assert _describe(text, "p")[0] == "direct"
    recipe = MatchingRecipe(precedence="frequency_weighted", split_words="all")
    plan = make_plan(pieces, byte_bpe, recipe, loaded, Counts(target=counts))
    assert _describe(plan, "p") == ("dictionary_part", {"Ġriver": 1})
    # Without such words it keeps what it had.
    assert _describe(plan, "m") == _describe(text, "m") == ("direct", {"m": 1})
    assert _describe(plan, "▁London")[0] == "direct"


def test_a_phrase_takes_the_mean_of_its_segments(byte_bpe: PreTrainedTokenizerBase) -> None:
    source = list_vocabulary(["Ġcat", "Ġriver", "Ġdog", "Ġi"], Kind.BYTE_BPE)
    tokens = ["▁catdog", "▁dogriver", "cat", "▁dog", "▁river", "▁catdogs", "▁xyzcat", "▁我不", "我"]
    target = list_vocabulary(tokens, Kind.SENTENCEPIECE)
    plan = make_plan(target, source, MatchingRecipe(segments=True))
    # By length, a piece at a word start or inside one.
    assert _describe(plan, "▁catdog") == ("segments", {"Ġcat": 0.5, "Ġdog": 0.5})
    weights = {"Ġdog": 3 / 8, "Ġriver": 5 / 8}
    assert _describe(plan, "▁dogriver") == ("segments", pytest.approx(weights))
    # A letter of seven may stay unexplained, three of six may not.
    assert _describe(plan, "▁catdogs")[0] == "segments"
    assert _describe(plan, "▁xyzcat")[0] == "filler"
    assert _describe(plan, "▁我不")[0] == "filler"
    assert make_plan(target, source).count_rules()["segments"] == 0


def test_the_longest_segments_win() -> None:
    source = list_vocabulary(["Ġcatdog", "Ġcat", "Ġdogs", "Ġbird"], Kind.BYTE_BPE)
    target = list_vocabulary(
        ["▁catdog", "▁cat", "dogs", "▁catdogsbird", "bird"], Kind.SENTENCEPIECE
    )
    plan = make_plan(target, source, MatchingRecipe(segments=True))
    # cat + dogs + bird explains every letter, but 36 + 16 is more than 9 + 16 + 16.
    weights = {"Ġcatdog": 0.6, "Ġbird": 0.4}
    assert _describe(plan, "▁catdogsbird") == ("segments", pytest.approx(weights))


def test_characters_are_segments_in_chinese_only(
    write: WriteDictionaries, byte_bpe: PreTrainedTokenizerBase
) -> None:
    target = list_vocabulary(["▁猫河", "猫", "河", "▁шд", "ш", "д"], Kind.SENTENCEPIECE)
    loaded = load_dictionaries(write({"en-zh.txt": "cat 猫\nriver 河\ndog ш\nred д\n"}))
    plan = make_plan(target, byte_bpe, MatchingRecipe(segments=True), loaded)
    assert _describe(plan, "▁猫河") == ("segments", {"Ġcat": 0.5, "Ġriver": 0.5})
    assert _describe(plan, "▁шд") == ("filler", {})


def test_parts_weigh_languages_by_their_use(
    write: WriteDictionaries,
    pieces: PreTrainedTokenizerBase,
    byte_bpe: PreTrainedTokenizerBase,
) -> None:
    counts = {language: np.zeros(len(pieces), np.int64) for language in ("en", "ru", "bg")}
    row = pieces.convert_tokens_to_ids("▁ко")
    counts["en"][pieces.convert_tokens_to_ids("▁London")] = 1
    counts["ru"][[row, row + 1]] = (3, 1)
    counts["bg"][[row, row + 1]] = (1, 3)
    loaded = load_dictionaries(write({"en-ru.txt": "river коби\n", "en-bg.txt": "city кодо\n"}))
    recipe = MatchingRecipe(precedence="frequency_weighted", split_words="all")
    plan = make_plan(pieces, byte_bpe, recipe, loaded, Counts(target=counts))
    rule, weights = _describe(plan, "▁ко")
    assert rule == "dictionary_part"
    assert weights == pytest.approx({"Ġriver": 0.75, "Ġcity": 0.25}, abs=1e-3)


def test_counts_of_the_source_weigh_translations(
    pieces: PreTrainedTokenizerBase, byte_bpe: PreTrainedTokenizerBase, dictionaries: Dictionaries
) -> None:
    counts = np.zeros(len(byte_bpe), np.int64)
    counts[byte_bpe.convert_tokens_to_ids(["Ġloves", "Ġlove"])] = (8, 0)
    recipe = MatchingRecipe(one_to_many="frequency")
    plan = make_plan(pieces, byte_bpe, recipe, dictionaries, Counts(source=counts))
    weights = {"Ġloves": 0.9, "Ġlove": 0.1}
    assert _describe(plan, "▁любит") == ("dictionary", pytest.approx(weights))
