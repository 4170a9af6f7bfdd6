from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries, Dictionary, WordPairs
from metaxlm.init.dictionary_rules import (
    OneToMany,
    Translator,
    find_translations,
    guess_frequencies,
)
from metaxlm.init.rules import TEXT_RULES, Finder
from metaxlm.init.vocabulary import Vocabulary, read_vocabulary


@pytest.fixture(scope="module")
def source(byte_bpe: PreTrainedTokenizerBase) -> Vocabulary:
    return read_vocabulary(byte_bpe)


def _make(**pairs: list[tuple[str, str]]) -> Dictionaries:
    return Dictionaries(
        "en",
        {
            language: Dictionary(
                language,
                (
                    WordPairs(
                        f"{language}-en.txt",
                        "\n".join(word for word, _ in entries),
                        "\n".join(translation for _, translation in entries),
                    ),
                ),
            )
            for language, entries in pairs.items()
        },
    )


def _translate(
    dictionaries: Dictionaries,
    source: Vocabulary,
    word: str,
    one_to_many: OneToMany = "mean_per_language",
    multi_token: bool = True,
    rules: Sequence[str] = tuple(TEXT_RULES),
    frequencies: NDArray[np.float64] | None = None,
    shares: dict[str, float] | None = None,
    own: tuple[str, int, float] | None = None,
) -> tuple[str, dict[str, float], tuple[str, ...]] | None:
    if frequencies is None:
        frequencies = guess_frequencies(len(source))
    translator = Translator(
        dictionaries, source, Finder(source), rules, one_to_many, multi_token, frequencies
    )
    found = translator.find([word])
    if word not in found:
        return None
    rule, rows, weights, entries = translator.combine(found[word], shares, own)
    tokens = [source.tokens[row] for row in rows]
    languages = tuple(dict.fromkeys(language for language, _ in entries))
    return rule, dict(zip(tokens, weights, strict=True)), languages


MANY = _make(
    nl=[("arm", "cat")],
    de=[("arm", "dog"), ("arm", "house"), ("arm", "dog"), ("arm", "unknownword")],
)


@pytest.mark.parametrize(
    ("one_to_many", "weights", "languages"),
    [
        ("first", {"Ġdog": 1.0}, ("de",)),
        ("mean", {"Ġdog": 1 / 3, "Ġhouse": 1 / 3, "Ġcat": 1 / 3}, ("de", "nl")),
        ("mean_per_language", {"Ġdog": 0.25, "Ġhouse": 0.25, "Ġcat": 0.5}, ("de", "nl")),
    ],
)
def test_one_to_many(
    source: Vocabulary, one_to_many: OneToMany, weights: dict[str, float], languages: tuple[str]
) -> None:
    found = _translate(MANY, source, "arm", one_to_many)
    assert found == ("dictionary", pytest.approx(weights), languages)


def test_a_translation_that_languages_agree_on_weighs_more(source: Vocabulary) -> None:
    agreed = _make(de=[("arm", "cat")], fr=[("arm", "cat"), ("arm", "dog")])
    found = _translate(agreed, source, "arm", "mean")
    assert found == ("dictionary", pytest.approx({"Ġcat": 2 / 3, "Ġdog": 1 / 3}), ("de", "fr"))


def test_translations_follow_the_matching_rules(source: Vocabulary) -> None:
    found = _translate(_make(de=[("x", "paris")]), source, "x", multi_token=False)
    assert found == ("dictionary", {"ĠParis": 1.0}, ("de",))
    # Accents belong to the spelling of a translation and are not stripped.
    assert _translate(_make(de=[("x", "café")]), source, "x", multi_token=False) is None


def test_only_enabled_rules_match_translations(source: Vocabulary) -> None:
    paris = _make(de=[("x", "paris")])
    assert _translate(paris, source, "x", multi_token=False, rules=["direct"]) is None


def test_translations_of_several_tokens_are_the_mean_of_their_rows(source: Vocabulary) -> None:
    phrase = _make(de=[("x", "red dog")])
    found = _translate(phrase, source, "x")
    assert found == ("dictionary_tokens", {"Ġred": 0.5, "Ġdog": 0.5}, ("de",))
    assert _translate(phrase, source, "x", multi_token=False) is None


def test_tokens_of_several_phrases_share_their_weights(source: Vocabulary) -> None:
    phrases = _make(de=[("x", "red dog"), ("x", "red cat")], fr=[("x", "dog house")])
    found = _translate(phrases, source, "x")
    weights = {"Ġred": 0.25, "Ġdog": 0.125 + 0.25, "Ġcat": 0.125, "Ġhouse": 0.25}
    assert found == ("dictionary_tokens", pytest.approx(weights), ("de", "fr"))


def test_single_tokens_go_before_several(source: Vocabulary) -> None:
    mixed = _make(de=[("x", "red dog")], fr=[("x", "cat")])
    assert _translate(mixed, source, "x") == ("dictionary", {"Ġcat": 1.0}, ("fr",))


def test_several_tokens_need_a_tokenizer(source: Vocabulary) -> None:
    plain = replace(source, cut=None)
    with pytest.raises(MetaXLMError, match="multi_token: a plain list of tokens cannot cut"):
        _translate(MANY, plain, "arm")
    assert _translate(MANY, plain, "arm", multi_token=False) is not None


def test_translation_the_source_cannot_spell(wordpiece: PreTrainedTokenizerBase) -> None:
    unspeakable = _make(de=[("x", "猫")])
    assert _translate(unspeakable, read_vocabulary(wordpiece), "x") is None


def test_lookup_keeps_the_order_of_the_file_and_each_pair_once() -> None:
    assert find_translations(["arm", "other"], MANY) == {
        "arm": {"de": {"dog": None, "house": None, "unknownword": None}, "nl": {"cat": None}}
    }
    assert list(find_translations(["arm"], MANY)["arm"]) == ["de", "nl"]


def test_translations_weighted_by_their_frequency(source: Vocabulary) -> None:
    frequencies = np.ones(len(source))
    frequencies[source.tokens.index("Ġcat")] = 6
    found = _translate(MANY, source, "arm", "frequency", frequencies=frequencies)
    weights = {"Ġdog": 1 / 8, "Ġhouse": 1 / 8, "Ġcat": 6 / 8}
    assert found == ("dictionary", pytest.approx(weights), ("de", "nl"))


def test_the_nth_translation_of_a_language_counts_less(source: Vocabulary) -> None:
    found = _translate(MANY, source, "arm", "order")
    weights = {"Ġdog": 1 / 3, "Ġhouse": 1 / 6, "Ġcat": 1 / 2}
    assert found == ("dictionary", pytest.approx(weights), ("de", "nl"))


@pytest.mark.parametrize(
    ("one_to_many", "weights"),
    [
        ("mean", {"Ġdog": 0.1, "Ġhouse": 0.1, "Ġcat": 0.8}),
        ("order", {"Ġdog": 0.2 * 2 / 3, "Ġhouse": 0.2 / 3, "Ġcat": 0.8}),
        ("first", {"Ġdog": 0.2, "Ġcat": 0.8}),
    ],
)
def test_languages_count_by_their_shares(
    source: Vocabulary, one_to_many: OneToMany, weights: dict[str, float]
) -> None:
    found = _translate(MANY, source, "arm", one_to_many, shares={"de": 0.1, "nl": 0.4})
    assert found == ("dictionary", pytest.approx(weights), ("de", "nl"))


def test_the_source_language_has_its_say(source: Vocabulary) -> None:
    row = source.tokens.index("Ġred")
    own = ("arm", row, 0.5)
    found = _translate(MANY, source, "arm", shares={"de": 0.1, "nl": 0.4}, own=own)
    weights = {"Ġdog": 0.05, "Ġhouse": 0.05, "Ġcat": 0.4, "Ġred": 0.5}
    assert found == ("dictionary_blend", pytest.approx(weights), ("de", "nl", "en"))


def test_a_phrase_is_as_frequent_as_its_rarest_token(source: Vocabulary) -> None:
    frequencies = np.ones(len(source))
    frequencies[source.tokens.index("Ġred")] = 9
    frequencies[source.tokens.index("Ġcat")] = 3
    phrases = _make(de=[("x", "red cat"), ("x", "red dog")])
    found = _translate(phrases, source, "x", "frequency", frequencies=frequencies)
    weights = {"Ġred": 0.5, "Ġcat": 0.75 / 2, "Ġdog": 0.25 / 2}
    assert found == ("dictionary_tokens", pytest.approx(weights), ("de",))


def test_order_of_rows_stands_in_for_frequencies() -> None:
    guessed = guess_frequencies(4)
    assert guessed.tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])


def _pairs(num_words: int, reverse: bool = False) -> list[tuple[str, str]]:
    english = ["cat", "dog", "house", "girl", "city", "river", "sees", "loves", "love", "hotel"]
    english += ["cafe", "London", "Paris", "NATO", "red", "book", "cats", "dogs", "girls", "books"]
    foreign = [f"słowo{k}" for k in range(num_words)]
    pairs = list(zip(foreign, english, strict=False))
    return [(b, a) for a, b in pairs] if reverse else pairs


def test_a_dictionary_the_wrong_way_round_is_refused(source: Vocabulary) -> None:
    expected = (
        r"pl-en\.txt: its columns seem to stand the other way round: of its words the source "
        r"vocabulary knows 80%, of their translations 0%; rename"
    )
    with pytest.raises(MetaXLMError, match=expected):
        _translate(_make(pl=_pairs(20, reverse=True)), source, "x")
    assert _translate(_make(pl=_pairs(20)), source, "słowo1") is not None


def test_a_few_words_say_nothing_about_the_direction(source: Vocabulary) -> None:
    assert _translate(_make(pl=_pairs(19, reverse=True)), source, "cat") is not None


def test_words_spelled_alike_are_no_wrong_direction(source: Vocabulary) -> None:
    alike = [(english, english) for _, english in _pairs(20)]
    assert _translate(_make(tl=alike), source, "cat") is not None
