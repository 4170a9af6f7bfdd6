from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries, Dictionary, WordPairs, load_dictionaries
from metaxlm.init.dictionary_rules import (
    LanguageShares,
    OneToMany,
    Translator,
    find_doubtful,
    measure_shares,
)
from metaxlm.init.match_plan import Counts, make_plan
from metaxlm.init.rules import TEXT_RULES, Finder
from metaxlm.init.vocabulary import NormalizedVocab, list_vocabulary, read_vocabulary
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokens import Kind
from tests.init.conftest import DICTIONARIES, MakePlan, WriteDictionaries, describe

Expected = tuple[str, dict[str, float]]


@pytest.fixture(scope="module")
def source(byte_bpe: PreTrainedTokenizerBase) -> NormalizedVocab:
    return read_vocabulary(byte_bpe)


def make_dictionaries(**pairs: list[tuple[str, str]]) -> Dictionaries:
    by_language = {}
    for language, entries in pairs.items():
        columns = ["\n".join(column) for column in zip(*entries, strict=True)]
        file = WordPairs(f"{language}-en.txt", *columns)
        by_language[language] = Dictionary(language, (file,))
    return Dictionaries("en", by_language)


def _translate(
    dictionaries: Dictionaries,
    source: NormalizedVocab,
    word: str,
    one_to_many: OneToMany = "mean_per_language",
    multi_token: bool = True,
    rules: Sequence[str] = tuple(TEXT_RULES),
    frequencies: dict[str, float] | None = None,
    shares: dict[str, float] | None = None,
    own: tuple[str, int, float] | None = None,
) -> tuple[str, dict[str, float], tuple[str, ...]] | None:
    counts = np.ones(len(source))
    for token, count in (frequencies or {}).items():
        counts[source.tokens.index(token)] = count
    translator = Translator(
        dictionaries, source, Finder(source), rules, one_to_many, multi_token, counts
    )
    found = translator.find([word])
    if word not in found:
        return None
    rule, rows, weights, entries = translator.combine(found[word], shares, own)
    tokens = [source.tokens[row] for row in rows]
    languages = tuple(dict.fromkeys(language for language, _ in entries))
    return rule, dict(zip(tokens, weights, strict=True)), languages


MANY = make_dictionaries(
    nl=[("arm", "cat")],
    de=[("arm", "dog"), ("arm", "house"), ("arm", "dog"), ("arm", "unknownword")],
)
SHARES = {"de": 0.1, "nl": 0.4}


@pytest.mark.parametrize(
    ("one_to_many", "shares", "weights"),
    [
        ("first", None, {"Ġdog": 1.0}),
        ("mean", None, {"Ġdog": 1 / 3, "Ġhouse": 1 / 3, "Ġcat": 1 / 3}),
        ("mean_per_language", None, {"Ġdog": 0.25, "Ġhouse": 0.25, "Ġcat": 0.5}),
        # The n-th translation counts 1 / n.
        ("order", None, {"Ġdog": 1 / 3, "Ġhouse": 1 / 6, "Ġcat": 1 / 2}),
        ("frequency", None, {"Ġdog": 1 / 8, "Ġhouse": 1 / 8, "Ġcat": 6 / 8}),
        ("mean", SHARES, {"Ġdog": 0.1, "Ġhouse": 0.1, "Ġcat": 0.8}),
        ("first", SHARES, {"Ġdog": 0.2, "Ġcat": 0.8}),
    ],
)
def test_one_to_many(
    source: NormalizedVocab,
    one_to_many: OneToMany,
    shares: dict[str, float] | None,
    weights: dict[str, float],
) -> None:
    found = _translate(MANY, source, "arm", one_to_many, frequencies={"Ġcat": 6}, shares=shares)
    languages = ("de",) if one_to_many == "first" and shares is None else ("de", "nl")
    assert found == ("dictionary", pytest.approx(weights), languages)


def test_the_text_match_is_mixed_in(source: NormalizedVocab) -> None:
    own = ("arm", source.tokens.index("Ġred"), 0.5)
    found = _translate(MANY, source, "arm", shares=SHARES, own=own)
    weights = {"Ġdog": 0.05, "Ġhouse": 0.05, "Ġcat": 0.4, "Ġred": 0.5}
    assert found == ("dictionary_blend", pytest.approx(weights), ("de", "nl", "en"))


def test_translations_follow_the_matching_rules(source: NormalizedVocab) -> None:
    paris = make_dictionaries(de=[("x", "paris")])
    found = _translate(paris, source, "x", multi_token=False)
    assert found == ("dictionary", {"ĠParis": 1.0}, ("de",))
    assert _translate(paris, source, "x", multi_token=False, rules=["direct"]) is None
    # Accents belong to the spelling of a translation.
    cafe = make_dictionaries(de=[("x", "café")])
    assert _translate(cafe, source, "x", multi_token=False) is None


@pytest.mark.parametrize(
    ("pairs", "one_to_many", "expected"),
    [
        ({"de": ["red dog"]}, "mean", ("dictionary_tokens", {"Ġred": 0.5, "Ġdog": 0.5})),
        # The tokens of several phrases share their weights.
        (
            {"de": ["red dog", "red cat"], "fr": ["dog house"]},
            "mean_per_language",
            ("dictionary_tokens", {"Ġred": 0.25, "Ġdog": 0.375, "Ġcat": 0.125, "Ġhouse": 0.25}),
        ),
        # A phrase is as frequent as its rarest token.
        (
            {"de": ["red cat", "red dog"]},
            "frequency",
            ("dictionary_tokens", {"Ġred": 0.5, "Ġcat": 0.75 / 2, "Ġdog": 0.25 / 2}),
        ),
        # A translation of one token goes first.
        ({"de": ["red dog"], "fr": ["cat"]}, "mean", ("dictionary", {"Ġcat": 1.0})),
    ],
)
def test_translations_of_several_tokens(
    source: NormalizedVocab, pairs: dict[str, list[str]], one_to_many: OneToMany, expected: Expected
) -> None:
    phrases = make_dictionaries(
        **{language: [("x", text) for text in texts] for language, texts in pairs.items()}
    )
    found = _translate(phrases, source, "x", one_to_many, frequencies={"Ġred": 9, "Ġcat": 3})
    assert found is not None
    assert found[:2] == (expected[0], pytest.approx(expected[1]))
    if expected[0] == "dictionary_tokens":
        assert _translate(phrases, source, "x", multi_token=False) is None


def test_several_tokens_need_a_tokenizer(
    source: NormalizedVocab, wordpiece: PreTrainedTokenizerBase
) -> None:
    plain = replace(source, cut=None)
    with pytest.raises(MetaXLMError, match="multi_token: a plain list of tokens cannot cut"):
        _translate(MANY, plain, "arm")
    assert _translate(MANY, plain, "arm", multi_token=False) is not None
    # The source cannot spell this one.
    chinese = make_dictionaries(de=[("x", "猫")])
    assert _translate(chinese, read_vocabulary(wordpiece), "x") is None


def _pairs(num_words: int, reverse: bool = False) -> list[tuple[str, str]]:
    english = "cat dog house girl city river sees loves love hotel cafe London Paris NATO red book"
    texts = [*english.split(), "cats", "dogs", "girls", "books"]
    pairs = [(f"słowo{k}", text) for k, text in enumerate(texts[:num_words])]
    return [(b, a) for a, b in pairs] if reverse else pairs


def test_a_dictionary_with_exchanged_columns_is_rejected(source: NormalizedVocab) -> None:
    expected = (
        r"pl-en\.txt: its columns seem to be exchanged: the source vocabulary has 80% of its words "
        r"and 0% of their translations; rename"
    )
    with pytest.raises(MetaXLMError, match=expected):
        _translate(make_dictionaries(pl=_pairs(20, reverse=True)), source, "x")
    assert _translate(make_dictionaries(pl=_pairs(20)), source, "słowo1") is not None
    # A few words, or words of the same spelling, decide nothing.
    few = make_dictionaries(pl=_pairs(19, reverse=True))
    assert _translate(few, source, "cat") is not None
    alike = make_dictionaries(tl=[(english, english) for _, english in _pairs(20)])
    assert _translate(alike, source, "cat") is not None


# Neither is a token of its own: the vocabulary has ▁ко + би and ▁ко + до.
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
def test_tokens_take_the_translations_of_words_that_contain_them(
    make: MakePlan, split_words: str, first: Expected, second: Expected
) -> None:
    plan = make({"ru": SPLIT}, split_words=split_words)
    assert describe(plan, "▁ко") == (first[0], pytest.approx(first[1]))
    assert describe(plan, "би") == second
    if split_words != "none":
        entries = plan.origin(plan.tokens.index("▁ко")).entries
        assert entries == (("ru", "river"), ("ru", "city"))
    # A translation of the token itself goes first.
    own = make({"ru": SPLIT + "cat ко\n"}, split_words=split_words)
    assert describe(own, "▁ко") == ("dictionary", {"Ġcat": 1})


def test_a_token_takes_the_first_words_of_each_language(make: MakePlan) -> None:
    endings = ["би", "до", "ка", "ко", "лю", "бика", "бит"]
    # The sixth and seventh word are not used; the other language has its own limit.
    english = ["river"] * 5 + ["cat"] * 2
    lines = [f"{english[k]} ко{ending}" for k, ending in enumerate(endings)]
    plan = make({"ru": "\n".join(lines), "bg": "dog кобидо\n"}, split_words="first")
    parts = {"Ġdog": 1 / 500, "Ġriver": sum(1 / (500 + place) for place in range(5))}
    weights = {token: part / sum(parts.values()) for token, part in parts.items()}
    assert describe(plan, "▁ко") == ("dictionary_part", pytest.approx(weights))


def _count(pieces: PreTrainedTokenizerBase, **counts: dict[str, int]) -> Counts:
    target = {}
    for language, tokens in counts.items():
        target[language] = np.zeros(len(pieces), np.int64)
        for token, count in tokens.items():
            target[language][pieces.convert_tokens_to_ids(token)] = count
    return Counts(target=target)


@pytest.mark.parametrize(
    ("precedence", "hotel", "london"),
    [
        ("text", ("lower", {"Ġhotel": 1}), ("direct", {"ĠLondon": 1})),
        ("dictionary", ("dictionary", {"Ġhouse": 1}), ("dictionary", {"Ġcity": 1})),
        # Relative frequencies 1 / 100 and 99 / 100; no share is zero.
        (
            "frequency_weighted",
            ("dictionary_blend", {"Ġhouse": 0.9901 / 1.0002, "Ġhotel": 0.0101 / 1.0002}),
            ("direct", {"ĠLondon": 1}),
        ),
    ],
)
def test_precedence(
    make: MakePlan,
    pieces: PreTrainedTokenizerBase,
    precedence: str,
    hotel: Expected,
    london: Expected,
) -> None:
    # German uses ▁Hotel, English hardly; ▁London is English.
    counts = _count(
        pieces, en={"▁London": 90, "▁Hotel": 1, "▁paris": 9}, de={"▁Hotel": 99, "▁London": 1}
    )
    plan = make({"de": "house hotel\ncity london\n"}, counts, precedence=precedence)
    for token, (rule, weights) in (("▁Hotel", hotel), ("▁London", london)):
        assert describe(plan, token) == (rule, pytest.approx(weights))
    if precedence == "frequency_weighted":
        entries = plan.origin(plan.tokens.index("▁Hotel")).entries
        assert entries == (("de", "house"), ("en", "hotel"))


@pytest.mark.parametrize("target", [None, {"de": np.ones(117, np.int64)}])
def test_frequency_weighting_needs_text_of_the_source_language(
    make: MakePlan, target: dict[str, NDArray[np.int64]] | None
) -> None:
    expected = "`frequency_weighted` needs text of the source language en"
    with pytest.raises(MetaXLMError, match=expected):
        make(DICTIONARIES, Counts(target=target), precedence="frequency_weighted")


def test_a_doubtful_match_tries_the_words_that_contain_it(
    make: MakePlan, pieces: PreTrainedTokenizerBase
) -> None:
    # A letter is a token of the source too, but only German uses these tokens.
    counts = _count(pieces, en={"▁London": 100}, de={"p": 50, "m": 50})
    assert pieces.tokenize("chp") == ["▁ch", "p"]
    text = make({"de": "river chp\n"}, split_words="all")
    assert describe(text, "p")[0] == "direct"
    plan = make({"de": "river chp\n"}, counts, precedence="frequency_weighted", split_words="all")
    assert describe(plan, "p") == ("dictionary_part", {"Ġriver": 1})
    # Without such words it keeps its match.
    assert describe(plan, "m") == describe(text, "m") == ("direct", {"m": 1})
    assert describe(plan, "▁London")[0] == "direct"


def test_parts_weight_languages_by_their_shares(
    make: MakePlan, pieces: PreTrainedTokenizerBase
) -> None:
    other = pieces.convert_ids_to_tokens(pieces.convert_tokens_to_ids("▁ко") + 1)
    counts = _count(pieces, en={"▁London": 1}, ru={"▁ко": 3, other: 1}, bg={"▁ко": 1, other: 3})
    texts = {"ru": "river коби\n", "bg": "city кодо\n"}
    rule, weights = describe(
        make(texts, counts, precedence="frequency_weighted", split_words="all"), "▁ко"
    )
    assert rule == "dictionary_part"
    assert weights == pytest.approx({"Ġriver": 0.75, "Ġcity": 0.25}, abs=1e-3)


def test_characters_are_segments_in_chinese_only(
    write: WriteDictionaries, byte_bpe: PreTrainedTokenizerBase
) -> None:
    target = list_vocabulary(["▁猫河", "猫", "河", "▁шд", "ш", "д"], Kind.SENTENCEPIECE)
    loaded = load_dictionaries(write({"en-zh.txt": "cat 猫\nriver 河\ndog ш\nred д\n"}))
    plan = make_plan(target, byte_bpe, MatchingRecipe(segments=True), loaded)
    assert describe(plan, "▁猫河") == ("segments", {"Ġcat": 0.5, "Ġriver": 0.5})
    assert describe(plan, "▁шд") == ("filler", {})


def test_shares_do_not_depend_on_the_size_of_a_text() -> None:
    counts = {
        "en": np.array([900, 100, 0, 0]),
        "de": np.array([0, 3, 1, 0]),
        "empty": np.zeros(4, np.int64),
    }
    shares = measure_shares(counts, "en")
    assert shares.languages == ("de", "en")
    assert shares.shares_LV[:, 0].tolist() == [0, 1]
    assert shares.shares_LV[:, 1].tolist() == pytest.approx([0.75 / 0.85, 0.1 / 0.85])
    assert shares.find_own(1) == pytest.approx(0.1 / 0.85, abs=2e-4)
    assert shares.find("de", 2) == pytest.approx(1, abs=2e-4)
    # A token without any count has the same share in all languages.
    assert shares.find("de", 3) == shares.find_own(3) == shares.find("xx", 0) > 0


def test_doubtful_tokens() -> None:
    tokens = ["▁lar", "lar", "▁haus", "haus", "の", "▁12", "lar12", "งาน"]
    target = list_vocabulary(tokens, Kind.SENTENCEPIECE)
    text = [tokens.index(token) for token in ("▁lar", "lar", "の", "▁12", "lar12")]
    translated = [tokens.index(token) for token in ("▁haus", "haus", "งาน")]

    def find(own: float) -> set[str]:
        column = np.array([1 - own, own])[:, None]
        shares = LanguageShares("en", ("de", "en"), np.repeat(column, len(tokens), axis=1))
        return {tokens[row] for row in find_doubtful(target, text, translated, shares)}

    # Text matches without numbers; dictionary words inside a word, but not in a script without
    # spaces; nothing that the source language uses.
    assert find(0.01) == {"▁lar", "lar", "の", "lar12", "haus"}
    assert find(0.04) == set()
