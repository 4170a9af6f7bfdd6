"""Merging: votes, order, cleaning, scripts, third languages."""

from __future__ import annotations

from collections import Counter

import pytest

from metaxlm.dictionary.entries import Entries, Entry
from metaxlm.dictionary.merging import MergedDictionary, join, merge
from metaxlm.errors import MetaXLMError


def source(
    name: str, *pairs: tuple[str, str] | tuple[str, str, float], language: str = "sw",
    source_language: str = "en",
) -> Entries:  # fmt: skip
    entries = (Entry(*pair) for pair in pairs)
    return Entries(name, source_language, language, entries)


def pairs_of(merged: MergedDictionary) -> list[tuple[str, str]]:
    return [(one.source, one.target) for one in merged.entries]


def test_votes_put_the_best_translation_first() -> None:
    merged = merge(
        [
            source("a", ("dog", "jibwa"), ("dog", "mbwa"), ("cat", "paka")),
            source("b", ("dog", "mbwa")),
            source("c", ("Dog", "Mbwa"), ("dog", "mbwa"), ("cat", "paka")),
        ]
    )
    assert pairs_of(merged) == [("Dog", "Mbwa"), ("dog", "jibwa"), ("cat", "paka")]
    best = merged.entries[0]
    assert (best.votes, best.origins) == (2.5, (0, 1, 2))
    assert [(one.entries, one.kept, one.only_here) for one in merged.sources] == [
        (3, 3, 1), (1, 1, 0), (3, 2, 0),
    ]  # fmt: skip


def test_weights_rank_within_a_source() -> None:
    merged = merge([source("a", ("dog", "x", 0.2), ("dog", "mbwa", 9.0), ("dog", "y", 0.5))])
    assert [one.target for one in merged.entries] == ["mbwa", "y", "x"]
    assert [one.votes for one in merged.entries] == [1.0, 1 / 2, 1 / 3]


def test_text_orders_translations_and_words() -> None:
    pairs = [("dog", "jibwa"), ("dog", "mbwa"), ("and", "na"), ("dog", "dog")]
    plain = merge([source("a", *pairs)])
    # Without text, words are in the order of the source.
    assert pairs_of(plain) == [pairs[place] for place in (0, 1, 3, 2)]
    counts = Counter({"Mbwa": 50, "na": 1000, "dog": 60})
    ranked = merge([source("a", *pairs)], counts)
    assert pairs_of(ranked) == [("and", "na"), ("dog", "mbwa"), ("dog", "dog"), ("dog", "jibwa")]
    assert pairs_of(plain.rank(counts)) == pairs_of(ranked)


@pytest.mark.parametrize(
    ("language", "pairs", "order", "num_phrases"),
    [
        ("sw", [("hot dog", "soseji"), ("fire", "moto mkali"), ("dog", "mbwa")], [2, 0, 1], 2),
        # Words of Vietnamese have spaces.
        ("vi", [("a dog", "chó"), ("language", "ngôn ngữ"), ("dog", "chó")], [1, 2, 0], 1),
    ],
)
def test_phrases_are_after_words(
    language: str, pairs: list[tuple[str, str]], order: list[int], num_phrases: int
) -> None:
    merged = merge([source("a", *pairs, language=language)])
    assert pairs_of(merged) == [pairs[place] for place in order]
    assert merged.num_phrases == num_phrases


@pytest.mark.parametrize(
    ("language", "given", "kept"),
    [
        ("ar", "كَلْب", "كلب"), ("ru", "соба́ка", "собака"), ("ru", "й", "й"),
        ("yo", "ẹ̀kọ́", "ẹ̀kọ́"), ("sw", "«mbwa».", "mbwa"), ("sw", " ng’ombe  dume", "ng'ombe dume"),
        ("hi", "क\u200dष", "क\u200dष"), ("de", "Ha\u00adus", "Haus"), ("fr", "e\u0301te", "éte"),
    ],
)  # fmt: skip
def test_entries_are_cleaned(language: str, given: str, kept: str) -> None:
    merged = merge([source("a", ("word", given), language=language)])
    assert pairs_of(merged) == [("word", kept)]


@pytest.mark.parametrize(
    ("language", "pair", "reason"),
    [
        ("ru", ("dog", "sobaka"), "translation in another script"),
        ("ru", ("собака", "собака"), "word in another script"),
        ("ja", ("dog", "собака"), "translation in another script"),
        ("sw", ("dog", "24"), "no letters"),
        ("sw", ("", "mbwa"), "no letters"),
        ("sw", ("genitive", "a/sw"), "symbols"),
        ("sw", ("plural", "wa-"), "part of a word"),
        ("sw", ("what is your name", "jina lako ni nani sasa"), "more than 4 words"),
    ],
)
def test_other_lines_are_counted(language: str, pair: tuple[str, str], reason: str) -> None:
    good = {"ru": "собака", "ja": "犬", "sw": "mbwa"}[language]
    given = source("a", pair, ("dog", good), language=language)
    given.dropped["not UTF-8"] += 2
    merged = merge([given])
    assert pairs_of(merged) == [("dog", good)]
    assert merged.sources[0].dropped == {"not UTF-8": 2, reason: 1}
    assert merged.sources[0].entries == 2


def test_mixed_scripts_and_unknown_languages_stay() -> None:
    assert pairs_of(merge([source("a", ("T-shirt", "Tシャツ"), language="ja")]))
    assert pairs_of(merge([source("a", ("dog", "ⲟⲩϩⲟⲣ"), language="cop")]))


def test_capitals_of_a_list_of_titles_are_dropped() -> None:
    titles = source("a", ("Dog", "mbwa"), ("Water", "maji"), ("House", "nyumba"))
    names = source("b", ("sunday", "jumapili"), ("dog", "mbwa"))
    third = source("c", ("Sunday", "Jumapili"), ("tree", "mti"))
    found = pairs_of(merge([titles, names, third]))
    assert {("dog", "mbwa"), ("water", "maji"), ("Sunday", "Jumapili")} <= set(found)


def test_no_entry_at_all_is_an_error() -> None:
    with pytest.raises(MetaXLMError, match=r"a, b: no entry for Russian \(ru\); found 2 translat"):
        merge([source(name, ("dog", "sobaka"), language="ru") for name in "ab"])
    with pytest.raises(MetaXLMError, match="nothing that names the language"):
        merge([source("a")])


def test_third_language_and_its_loss() -> None:
    first = merge(
        [source("en-fr", ("dog", "chien"), ("hound", "chien"), ("cat", "chat"), language="fr")]
    )
    second = merge(
        [
            source(
                "fr-sw", ("chien", "mbwa"), ("Chat", "paka"), ("eau", "maji"), source_language="fr"
            )
        ]
    )
    direct = merge([source("en-sw", ("dog", "mbwa"), ("cat", "pusi"), ("kitten", "paka"))])
    entries, loss = join(first, second, direct)
    found = {(one.source, one.target): one.weight for one in entries.entries}
    # The direct dictionary has `cat` and `paka`, but not together.
    assert found == {("dog", "mbwa"): 0.5, ("hound", "mbwa"): 0.5}
    entries = join(first, second, None)[0]
    assert Entry("cat", "paka", 1.0) in list(entries.entries)
    assert (loss.words, loss.joined, loss.pairs, loss.agreeing) == (3, 2, 3, 0.5)
    assert join(first, second, None)[1].agreeing is None
    assert (entries.source_language, entries.target_language) == ("en", "sw")
    assert "en-fr" in entries.name and "fr-sw" in entries.name
