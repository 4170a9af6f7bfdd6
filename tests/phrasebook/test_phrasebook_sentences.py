"""Sentences in every language: well formed, tagged, aligned; and English grammar in detail."""

from __future__ import annotations

import re
from random import Random

import pytest

from metaxlm.phrasebook.alignment import align
from metaxlm.phrasebook.lexicon import UPOS
from metaxlm.phrasebook.meaning import Meaning, Phrase, Sentence, Word
from metaxlm.phrasebook.realization import available_languages, load_realizer, realize
from metaxlm.phrasebook.sampling import Sampler
from metaxlm.phrasebook.templates import FINAL_PUNCTUATION

LANGUAGES = available_languages()
FOREIGN = [language for language in LANGUAGES if language != "en"]
ANNA = Phrase("anna", gender="f")
PETER = Phrase("peter", gender="m")


def english(
    pattern: str, tense: str = "present", polarity: str = "affirmative", **slots: Phrase
) -> str:
    return realize(Meaning(pattern, slots, tense, polarity), "en").text


def all_meanings(seed: int, per_pattern: int = 6) -> list[Meaning]:
    sampler = Sampler(Random(seed))
    return [sampler.sample(pattern) for pattern in sampler.patterns for _ in range(per_pattern)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_pattern_is_a_well_formed_sentence(language: str) -> None:
    realizer = load_realizer(language)
    for meaning in all_meanings(1):
        sentence = realizer.realize(meaning)
        assert sentence.text[-1] in FINAL_PUNCTUATION, sentence.text
        assert sentence.text == sentence.text.strip() and "  " not in sentence.text
        first = sentence.text[0]
        assert not first.islower(), sentence.text
        assert all(word.text and not re.search(r"\s", word.text) for word in sentence.items)
        assert all(word.upos in UPOS for word in sentence.items)
        assert sentence.items[-1].upos == "PUNCT"
        assert not re.search(r"[{}|\[\]@/~#]", sentence.text), sentence.text


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_joined_give_the_text_without_spaces(language: str) -> None:
    realizer = load_realizer(language)
    for meaning in all_meanings(2, 3):
        sentence = realizer.realize(meaning)
        assert "".join(sentence.words) == sentence.text.replace(" ", "")
        assert (" " in sentence.text) <= realizer.morphology.spaced


@pytest.mark.parametrize("language", LANGUAGES)
def test_names_are_entities_and_proper_nouns(language: str) -> None:
    sentence = realize(
        Meaning(
            "works_for",
            {
                "agent": ANNA,
                "verb": Phrase("work_for"),
                "employer": Phrase("red_cross"),
                "city": Phrase("paris"),
            },
        ),
        language,
    )
    tags = sentence.entities
    assert tags.count("B-PER") == 1 and tags.count("B-ORG") == 1 and tags.count("B-LOC") == 1
    for word in sentence.items:
        if word.entity == "PER":
            assert word.upos == "PROPN"


@pytest.mark.parametrize("language", LANGUAGES)
def test_denial_changes_the_sentence(language: str) -> None:
    for meaning in all_meanings(5, 2):
        pattern = load_realizer(language)._patterns[meaning.pattern]
        if 0 < pattern.negative < 1:
            yes, no = (realize(meaning.turn(p), language).text for p in ("affirmative", "negative"))
            assert yes != no, yes


@pytest.mark.parametrize("language", LANGUAGES)
def test_roles_swapped_change_the_sentence(language: str) -> None:
    slots = {"agent": ANNA, "verb": Phrase("call"), "theme": PETER}
    there = realize(Meaning("encounter", slots, "past"), language)
    back = realize(Meaning("encounter", {**slots, "agent": PETER, "theme": ANNA}, "past"), language)
    assert there.text != back.text


@pytest.mark.parametrize("language", FOREIGN)
def test_alignments_are_in_range_and_cover_the_content(language: str) -> None:
    covered = total = 0
    for meaning in all_meanings(7, 3):
        source, target = realize(meaning, language), realize(meaning, "en")
        links = align(source, target)
        assert links and any(link.sure for link in links)
        for link in links:
            assert 0 <= link.source < len(source.items) and 0 <= link.target < len(target.items)
        assert len({(link.source, link.target) for link in links}) == len(links)
        aligned = {link.target for link in links}
        content = [
            i
            for i, w in enumerate(target.items)
            if w.upos in ("NOUN", "PROPN", "VERB", "ADJ", "NUM")
        ]
        covered += sum(i in aligned for i in content)
        total += len(content)
    assert covered / total > 0.95


def test_alignment_rule() -> None:
    left = Sentence(
        (
            Word("the", "DET", ("theme",)),
            Word("dog", "NOUN", ("theme",)),
            Word("sleeps", "VERB", ("verb",)),
            Word(".", "PUNCT", ("end",), glue=True),
        )
    )
    right = Sentence(
        (
            Word("der", "DET", ("theme",)),
            Word("Hund", "NOUN", ("theme",)),
            Word("schläft", "VERB", ("verb",)),
            Word(".", "PUNCT", ("end",), glue=True),
        )
    )
    links = align(left, right)
    assert {(a, b) for a, b, sure in links if sure} == {(1, 1), (2, 2), (3, 3)}
    assert {(a, b) for a, b, sure in links if not sure} == {(0, 0), (0, 1), (1, 0)}


def test_a_word_of_two_roles_is_possibly_linked_to_the_second() -> None:
    left = Sentence((Word("my", "PRON", ("theme.possessor",)), Word("book", "NOUN", ("theme",))))
    right = Sentence((Word("kitabım", "NOUN", ("theme", "theme.possessor")),))
    assert set(align(left, right)) == {(0, 0, False), (1, 0, True)}


def test_span_includes_article_and_adjective() -> None:
    theme = Phrase("car", definiteness="indef", adjective="old")
    sentence = realize(
        Meaning("transitive", {"agent": ANNA, "verb": Phrase("buy"), "theme": theme}, "past"), "en"
    )
    span = sentence.span("theme")
    assert span is not None and sentence.text[slice(*span)] == "an old car"
    assert sentence.span("place") is None


# ---- English -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("concept", "adjective", "expected"),
    [
        ("apple", "", "an apple"),
        ("apple", "sweet", "a sweet apple"),
        ("car", "old", "an old car"),
        ("university", "", "a university"),
        ("university", "old", "an old university"),
        ("umbrella", "", "an umbrella"),
        ("bread", "fresh", "fresh bread"),
    ],
)
def test_a_or_an(concept: str, adjective: str, expected: str) -> None:
    theme = Phrase(concept, definiteness="indef", adjective=adjective)
    assert (
        english("want_thing", agent=ANNA, verb=Phrase("want"), theme=theme)
        == f"Anna wants {expected}."
    )


@pytest.mark.parametrize(
    ("concept", "plural"),
    [
        ("child", "children"),
        ("woman", "women"),
        ("wolf", "wolves"),
        ("sheep", "sheep"),
        ("potato", "potatoes"),
        ("city", "cities"),
        ("glass", "glasses"),
        ("church", "churches"),
        ("key", "keys"),
        ("dress", "dresses"),
    ],
)
def test_plurals(concept: str, plural: str) -> None:
    theme = Phrase(concept, number="pl", definiteness="indef", numeral="three")
    assert (
        english("possession_counted", agent=ANNA, verb=Phrase("have"), theme=theme)
        == f"Anna has three {plural}."
    )


@pytest.mark.parametrize(
    ("verb", "past", "third", "progressive"),
    [
        ("buy", "bought", "buys", "buying"),
        ("wash", "washed", "washes", "washing"),
        ("write", "wrote", "writes", "writing"),
        ("read", "read", "reads", "reading"),
        ("look_for", "looked for", "looks for", "looking for"),
        ("see", "saw", "sees", "seeing"),
    ],
)
def test_verb_forms(verb: str, past: str, third: str, progressive: str) -> None:
    slots = {"agent": ANNA, "verb": Phrase(verb), "theme": Phrase("book")}
    assert english("transitive", "past", **slots) == f"Anna {past} the book."
    assert english("transitive", "present", **slots) == f"Anna {third} the book."
    assert english("transitive", "progressive", **slots) == f"Anna is {progressive} the book."
    base = third.split()[0]
    assert english("transitive", "past", "negative", **slots).startswith("Anna did not ")
    assert base not in english("transitive", "past", "negative", **slots).split()


@pytest.mark.parametrize(
    ("agent", "verb", "copula"),
    [
        (Phrase("i", gender="f"), "I go", "I am"),
        (Phrase("we", "pl", gender="f"), "We go", "We are"),
        (ANNA, "Anna goes", "Anna is"),
        (ANNA._replace(pronoun=True), "She goes", "She is"),
        (PETER._replace(pronoun=True), "He goes", "He is"),
    ],
)
def test_agreement(agent: Phrase, verb: str, copula: str) -> None:
    assert english("go_to", agent=agent, verb=Phrase("go"), goal=Phrase("park")).startswith(
        verb + " "
    )
    assert english("person_state", agent=agent, adjective=Phrase("tired")) == f"{copula} tired."


def test_possessor_follows_the_subject() -> None:
    theme = Phrase("key", possessor="@agent")
    for agent, word in (
        (ANNA, "her"),
        (PETER, "his"),
        (Phrase("i"), "my"),
        (Phrase("we", "pl"), "our"),
    ):
        said = english("transitive", "past", agent=agent, verb=Phrase("lose"), theme=theme)
        assert said.endswith(f"lost {word} key.")


def test_cannot_is_one_word_in_writing_and_two_in_tags() -> None:
    sentence = realize(
        Meaning(
            "can_do",
            {"agent": ANNA, "verb": Phrase("can"), "verb2": Phrase("swim")},
            "present",
            "negative",
        ),
        "en",
    )
    assert sentence.text == "Anna cannot swim." and sentence.words == [
        "Anna",
        "can",
        "not",
        "swim",
        ".",
    ]
    assert sentence.tags == ["PROPN", "AUX", "PART", "VERB", "PUNCT"]


def test_comparatives() -> None:
    for adjective, form in (
        ("elderly", "older"),
        ("hardworking", "more hardworking"),
        ("rich", "richer"),
        ("smart", "smarter"),
    ):
        said = english("person_comparison", agent=ANNA, adjective=Phrase(adjective), ground=PETER)
        assert said == f"Anna is {form} than Peter."


def test_joint_subject_is_plural() -> None:
    said = english(
        "joint_liking",
        agent=ANNA,
        companion=PETER,
        verb=Phrase("like"),
        theme=Phrase("cat", "pl", "generic"),
    )
    assert said == "Anna and Peter like cats."


def test_time_in_front() -> None:
    slots = {
        "agent": ANNA,
        "verb": Phrase("go"),
        "goal": Phrase("park"),
        "time": Phrase("on_monday"),
    }
    assert (
        realize(Meaning("go_to", slots, "past", fronted=True), "en").text
        == "On Monday Anna went to the park."
    )
    assert realize(Meaning("go_to", slots, "past"), "en").text == "Anna went to the park on Monday."
