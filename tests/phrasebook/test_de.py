"""German: case, gender, endings, word order, contractions; and properties of every sentence."""

from __future__ import annotations

import re
from random import Random

import pytest

from metaxlm.phrasebook.lexicon import load_lexicon
from metaxlm.phrasebook.meaning import Meaning, Phrase, Sentence
from metaxlm.phrasebook.realization import realize
from metaxlm.phrasebook.sampling import Sampler

ANNA = Phrase("anna", gender="f")
PETER = Phrase("peter", gender="m")
MAX = Phrase("max", gender="m")
I_WOMAN = Phrase("i", gender="f")
WE = Phrase("we", "pl", gender="m")
BROTHER = Phrase("brother", gender="m", possessor="1sg")
PAST, NOT = {"tense": "past"}, {"polarity": "negative"}


def say(pattern: str, features: dict[str, str] | None = None, **slots: Phrase | str) -> str:
    filled = {k: Phrase(v) if isinstance(v, str) else v for k, v in slots.items()}
    return realize(Meaning(pattern, filled, **(features or {})), "de").text


def front(pattern: str, tense: str, **slots: Phrase | str) -> str:
    filled = {k: Phrase(v) if isinstance(v, str) else v for k, v in slots.items()}
    return realize(Meaning(pattern, filled, tense, fronted=True), "de").text


def sentences(seed: int, per_pattern: int = 12) -> list[Sentence]:
    sampler = Sampler(Random(seed))
    return [realize(sampler.sample(p), "de") for p in sampler.patterns for _ in range(per_pattern)]


def test_verb_second_and_the_bracket() -> None:
    apples = Phrase("apple", "pl", "indef", numeral="three", adjective="fresh")
    slots = {"agent": ANNA, "verb": "buy", "theme": apples, "place": "market", "time": "on_monday"}
    assert (
        say("counted", PAST, **slots)
        == "Anna hat am Montag auf dem Markt drei frische Äpfel gekauft."
    )
    assert (
        front("counted", "future", **slots)
        == "Am Montag wird Anna auf dem Markt drei frische Äpfel kaufen."
    )


def test_separable_and_reflexive_verbs() -> None:
    rest = {"agent": I_WOMAN, "verb": "rest", "place": "garden"}
    assert say("intransitive", **rest) == "Ich ruhe mich im Garten aus."
    assert say("intransitive", PAST | NOT, **rest) == "Ich habe mich nicht im Garten ausgeruht."
    called = {"agent": BROTHER, "verb": "call", "theme": ANNA, "time": "yesterday"}
    assert say("encounter", PAST, **called) == "Mein Bruder hat Anna gestern angerufen."
    assert (
        say("schedule", theme="train", goal="vienna", verb="leave", hour="one")
        == "Der Zug nach Wien fährt um ein Uhr ab."
    )


def test_subordinate_clauses_end_in_the_verb() -> None:
    key = Phrase("key", possessor="@agent")
    assert (
        say("state_because", agent=ANNA, adjective="sad", verb2="lose", theme=key)
        == "Anna ist traurig, weil sie ihren Schlüssel verloren hat."
    )
    assert (
        say("think_that", agent=PETER, verb="say", theme=Phrase("hotel"), adjective="expensive")
        == "Peter sagt, dass das Hotel teuer ist."
    )
    assert say("when_came", PAST, agent=WE, verb="come", weather="rain") == (
        "Als wir nach Hause kamen, regnete es."
    )
    assert say(
        "purpose",
        PAST,
        agent=ANNA,
        verb="go",
        goal="supermarket",
        verb2="buy",
        theme=Phrase("onion", "pl", "indef"),
    ) == ("Anna ist in den Supermarkt gegangen, um Zwiebeln zu kaufen.")


@pytest.mark.parametrize(
    ("theme", "expected"),
    [
        (Phrase("dog", definiteness="indef", adjective="black"), "einen schwarzen Hund"),
        (Phrase("rabbit", definiteness="indef", adjective="white"), "ein weißes Kaninchen"),
        (Phrase("cat", definiteness="indef", adjective="small"), "eine kleine Katze"),
        (Phrase("dog", adjective="black"), "den schwarzen Hund"),
        (Phrase("cat", "pl", adjective="small"), "die kleinen Katzen"),
        (Phrase("cat", "pl", "indef", adjective="small"), "kleine Katzen"),
        (Phrase("lion", definiteness="indef"), "einen Löwen"),
        (Phrase("tourist", "pl", gender="f"), "die Touristinnen"),
    ],
)
def test_accusative(theme: Phrase, expected: str) -> None:
    assert (
        say("transitive", PAST, agent=ANNA, verb="see", theme=theme)
        == f"Anna hat {expected} gesehen."
    )


def test_dative_and_weak_nouns() -> None:
    neighbor = Phrase("neighbor", gender="m", possessor="1sg")
    assert (
        say("encounter", PAST, agent=ANNA, verb="help", theme=neighbor)
        == "Anna hat meinem Nachbarn geholfen."
    )
    student = Phrase("student", gender="m", adjective="young")
    postcard = Phrase("postcard", definiteness="indef")
    assert (
        say("give", PAST, agent=ANNA, verb="send", recipient=student, theme=postcard)
        == "Anna hat dem jungen Studenten eine Postkarte geschickt."
    )
    assert (
        say("receive", PAST, agent=ANNA, verb="get", source=student, theme=postcard)
        == "Anna hat vom jungen Studenten eine Postkarte bekommen."
    )
    days = Phrase("day_unit", "pl")
    assert (
        say("review_broke", PAST, theme="phone", verb="break", numeral="four", unit=days)
        == "Das Handy ist nach vier Tagen kaputtgegangen."
    )


def test_genitive() -> None:
    this = Phrase("book", definiteness="this")
    assert (
        say("review_work", theme="story", theme2=this, adjective="interesting")
        == "Die Geschichte dieses Buches ist interessant."
    )
    assert (
        say("building_location", theme="bank", relation="near", ground="castle")
        == "Die Bank ist in der Nähe des Schlosses."
    )
    assert say("kinship", agent=PETER, owner=ANNA, relation=BROTHER._replace(possessor="")) == (
        "Peter ist Annas Bruder."
    )
    assert say("kinship", agent=PETER, owner=MAX, relation=BROTHER._replace(possessor="")) == (
        "Peter ist Max' Bruder."
    )


@pytest.mark.parametrize(
    ("goal", "to", "at", "away"),
    [
        ("park", "in den Park", "im Park", "aus dem Park"),
        ("cinema", "ins Kino", "im Kino", "aus dem Kino"),
        ("beach", "an den Strand", "am Strand", "vom Strand"),
        ("station", "zum Bahnhof", "am Bahnhof", "vom Bahnhof"),
        ("bank", "zur Bank", "in der Bank", "von der Bank"),
        ("market", "auf den Markt", "auf dem Markt", "vom Markt"),
    ],
)
def test_prepositions_and_contractions(goal: str, to: str, at: str, away: str) -> None:
    assert say("go_to", PAST, agent=PETER, verb="go", goal=goal) == f"Peter ist {to} gegangen."
    assert say("person_at", PAST, agent=PETER, place=goal) == f"Peter war {at}."
    assert (
        say("return_from", PAST, agent=PETER, verb="return", source=goal)
        == f"Peter ist {away} zurückgekommen."
    )


def test_countries() -> None:
    assert say("origin", agent=WE, verb="come", source="turkey") == "Wir kommen aus der Türkei."
    assert say("origin", agent=WE, verb="come", source="italy") == "Wir kommen aus Italien."


def test_negation_by_kein_or_nicht() -> None:
    car = {"agent": ANNA, "verb": "buy", "time": "on_friday"}
    assert (
        say("transitive", PAST | NOT, theme=Phrase("car", definiteness="indef"), **car)
        == "Anna hat am Freitag kein Auto gekauft."
    )
    assert (
        say("transitive", PAST | NOT, theme=Phrase("car"), **car)
        == "Anna hat das Auto am Freitag nicht gekauft."
    )
    assert say("profession", NOT, agent=ANNA, profession=Phrase("doctor", gender="f")) == (
        "Anna ist keine Ärztin."
    )
    cheese = Phrase("cheese", definiteness="generic")
    assert say("liking", NOT, agent=ANNA, verb="like", theme=cheese) == "Anna mag keinen Käse."
    assert say("liking", NOT, agent=ANNA, verb="hate", theme=cheese) == "Anna hasst Käse nicht."
    assert (
        say("intransitive", NOT, agent=ANNA, verb="swim", time="every_day")
        == "Anna schwimmt nicht jeden Tag."
    )


def test_grammatical_gender_of_pronouns_and_possessives() -> None:
    child = Phrase("child", gender="f")
    bag = Phrase("bag", possessor="@agent")
    assert say("transitive", PAST, agent=child, verb="lose", theme=bag) == (
        "Das Kind hat seine Tasche verloren."
    )
    guest = Phrase("guest", gender="f")
    assert say("stay_home_state", PAST, agent=guest, verb="stay", adjective="sick") == (
        "Der Gast ist zu Hause geblieben, weil er krank war."
    )
    watch = Phrase("watch", pronoun=True)
    assert say("review_again", {"tense": "future"}, agent=WE, verb="buy", theme=watch) == (
        "Wir werden sie wieder kaufen."
    )


def test_words_depend_on_what_they_go_with() -> None:
    wash = {"agent": ANNA, "verb": "wash"}
    assert say("transitive", PAST, theme="cup", **wash) == "Anna hat die Tasse gespült."
    assert say("transitive", PAST, theme="shirt", **wash) == "Anna hat das Hemd gewaschen."
    assert say("quality", theme="hotel", adjective="comfortable") == "Das Hotel ist komfortabel."
    assert say("quality", theme="chair", adjective="comfortable") == "Der Stuhl ist bequem."


def test_comparatives_and_stems() -> None:
    assert (
        say("person_comparison", agent=ANNA, adjective="elderly", ground=BROTHER)
        == "Anna ist älter als mein Bruder."
    )
    coat = Phrase("coat", definiteness="indef", adjective="expensive")
    assert say("wearing", PAST, agent=ANNA, verb="wear", theme=coat) == (
        "Anna trug einen teuren Mantel."
    )


def test_plural_of_the_simple_past() -> None:
    want = {"agent": WE, "verb": "want", "verb2": "visit", "theme": Phrase("castle")}
    assert say("want_do", PAST, **want) == "Wir wollten das Schloss besuchen."


def test_vegetables_are_a_mass() -> None:
    theme = Phrase("vegetable", "pl", "indef", adjective="delicious")
    assert say("transitive", PAST, agent=ANNA, verb="eat", theme=theme) == (
        "Anna hat leckeres Gemüse gegessen."
    )


def test_every_sentence_is_clean() -> None:
    contractible = re.compile(r"\b(in|an|zu|von) dem\b|\b(in|an) das\b|\bzu der\b", re.IGNORECASE)
    for sentence in sentences(11):
        text = sentence.text
        assert "None" not in text and "  " not in text and text[-1] in ".?!", text
        assert not contractible.search(text), text
        for word in sentence.items[1:]:
            if word.upos in ("NOUN", "PROPN"):
                assert word.text[0].isupper(), text
            elif word.upos != "NUM":
                assert word.text[0].islower() or word.upos == "PUNCT", text


def test_subordinators_follow_a_comma() -> None:
    for sentence in sentences(13):
        for before, word in zip(sentence.items, sentence.items[1:], strict=False):
            if word.text in ("weil", "dass", "um") and word.upos == "SCONJ":
                assert before.text == ",", sentence.text


def test_every_noun_and_verb_has_its_forms() -> None:
    lexicon = load_lexicon("de")
    for lexeme in lexicon.values():
        if lexeme.get("participle"):
            assert lexeme.get("er") and lexeme.get("past"), lexeme
            assert lexeme.text.endswith("n"), lexeme
        if lexeme.get("plural") and lexeme.get("gender"):
            assert lexeme.get("gender") in ("m", "f", "n") and lexeme.text[0].isupper()
