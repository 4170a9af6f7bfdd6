"""What nobody would say in any language is never drawn."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from metaxlm.phrasebook.concepts import load_concepts
from metaxlm.phrasebook.meaning import Meaning, Phrase
from metaxlm.phrasebook.sampling import Sampler
from metaxlm.phrasebook.sense import clashing, is_odd, read_range

FLOWERS = ("flower", "rose", "tulip")
DEAR = ("computer", "television", "phone", "camera", "bicycle", "guitar")
OLD_KIN = {"mother": 30, "father": 30, "uncle": 30, "aunt": 30}
OLDER_KIN = {"grandmother": 50, "grandfather": 50}
GENERATIONS = {"son": 0, "daughter": 0, **dict.fromkeys(OLD_KIN, 2), **dict.fromkeys(OLDER_KIN, 3)}


@pytest.fixture(scope="module")
def drawn() -> list[Meaning]:
    """About 3,000 sentences, every pattern among them in the same number."""
    sampler = Sampler(Random(17))
    return [sampler.sample(pattern) for pattern in sampler.patterns for _ in range(40)]


def concept(meaning: Meaning, slot: str) -> str:
    return meaning.slots[slot].concept if slot in meaning.slots else ""


def adjective(meaning: Meaning, slot: str = "theme") -> str:
    return meaning.slots[slot].adjective if slot in meaning.slots else ""


def object_verb(meaning: Meaning) -> str:
    """The verb whose object the theme is; the second verb of `want to wash the car`."""
    return concept(meaning, "verb2" if meaning.pattern in ("want_do", "must_do") else "verb")


def washes_the_clean(m: Meaning) -> bool:
    return object_verb(m) in ("to_clean", "wash", "paint") and adjective(m) == "clean"


def builds_the_old(m: Meaning) -> bool:
    return object_verb(m) == "build" and adjective(m) in ("dirty", "old", "ugly", "clean")


def poor_flowers(m: Meaning) -> bool:
    dull = ("brown", "black", "green", "ugly")
    kept = m.pattern == "flowers_grow" or object_verb(m) in ("draw", "bring", "give")
    return concept(m, "theme") in FLOWERS and (
        adjective(m) in dull or (kept and adjective(m) == "cheap")
    )


def poor_gift(m: Meaning) -> bool:
    bad = ("ugly", "boring", "dirty", "cheap")
    giving = m.pattern in ("thanks_for", "receive", "give")
    return giving and adjective(m) in bad


def contradicting_qualities(m: Meaning) -> bool:
    pair = {concept(m, "adjective"), concept(m, "adjective2")}
    return m.pattern == "two_qualities" and pair in (
        {"old", "modern"},
        {"new", "old"},
        {"new", "dirty"},
    )


def impossible_age(m: Meaning) -> bool:
    if m.pattern != "age":
        return False
    who, years = concept(m, "agent"), int(concept(m, "years")[1:])
    least = {**OLD_KIN, **OLDER_KIN}.get(who, 0)
    return years < least or (who in ("son", "daughter") and years > 25)


def impossible_comparison(m: Meaning) -> bool:
    if m.pattern != "person_comparison" or m.polarity == "negative":
        return False
    if concept(m, "adjective") not in ("young", "elderly"):
        return False
    ours, theirs = (GENERATIONS.get(concept(m, slot)) for slot in ("agent", "ground"))
    if ours is None or theirs is None:
        return False
    return ours > theirs if concept(m, "adjective") == "young" else ours < theirs


def polite_boy_is_rude(m: Meaning) -> bool:
    opposites = {"polite": "rude", "rich": "poor", "poor": "rich", "friendly": "unfriendly"}
    who, said = adjective(m, "agent"), concept(m, "adjective")
    return m.pattern == "person_quality" and who != "" and said in (who, opposites.get(who))


def paid_for_later(m: Meaning) -> bool:
    used = object_verb(m) in ("eat", "read", "wash", "draw")
    return used and adjective(m) in ("cheap", "expensive")


def long_evening(m: Meaning) -> bool:
    return m.pattern == "duration" and concept(m, "time") in ("this_morning", "yesterday_evening")


def castle_in_the_street(m: Meaning) -> bool:
    return concept(m, "theme") in ("park", "castle") and concept(m, "place") in ("street", "square")


def wrong_price(m: Meaning) -> bool:
    if m.pattern != "price":
        return False
    return (int(concept(m, "number")[1:]) < 100) == (concept(m, "theme") in DEAR)


def same_thing_twice(m: Meaning) -> bool:
    return m.pattern == "sequence" and concept(m, "theme") == concept(m, "theme2")


def snow_in_the_desert(m: Meaning) -> bool:
    cold = concept(m, "weather") == "cold_weather" or concept(m, "verb") == "snow"
    return cold and concept(m, "place") in ("cairo", "egypt", "brazil", "india")


def denied_habit(m: Meaning) -> bool:
    habits = ("every_day", "every_morning", "every_evening", "every_week", "at_the_weekend")
    return m.polarity == "negative" and concept(m, "time") in habits


def service_of_two_minds(m: Meaning) -> bool:
    if m.pattern != "review_two_sides" or concept(m, "theme") != "service":
        return False
    nice = concept(m, "adjective2") in ("friendly", "polite", "fast")
    return nice == (concept(m, "adjective") == "terrible")


RULES: list[tuple[Callable[[Meaning], bool], str]] = [
    (washes_the_clean, "must_do sequence after_meal want_do"),
    (builds_the_old, "transitive"),
    (poor_flowers, "flowers_grow transitive give"),
    (poor_gift, "thanks_for receive give"),
    (contradicting_qualities, "two_qualities"),
    (impossible_age, "age"),
    (impossible_comparison, "person_comparison"),
    (polite_boy_is_rude, "person_quality person_quality person_quality"),
    (paid_for_later, "counted transitive after_meal"),
    (long_evening, "duration"),
    (castle_in_the_street, "existential"),
    (wrong_price, "price"),
    (same_thing_twice, "sequence"),
    (snow_in_the_desert, "season_weather weather_event"),
    (denied_habit, "intransitive go_to"),
    (service_of_two_minds, "review_two_sides"),
]


@pytest.mark.parametrize(("odd", "patterns"), RULES, ids=[rule.__name__ for rule, _ in RULES])
def test_odd_meanings_are_not_drawn(
    odd: Callable[[Meaning], bool], patterns: str, drawn: list[Meaning]
) -> None:
    sampler = Sampler(Random(5))
    closer = [sampler.sample(pattern) for pattern in patterns.split() for _ in range(1000)]
    assert [m for m in drawn + closer if odd(m)] == []


def test_what_is_not_odd_is_still_drawn() -> None:
    sampler = Sampler(Random(6))
    washed = {m.slots["theme"].adjective for m in (sampler.sample("must_do") for _ in range(1500))}
    assert {"dirty", "old", "red"} <= washed
    places = {m.slots["place"].concept for m in (sampler.sample("existential") for _ in range(200))}
    assert places == {"city", "village", "street", "square"}
    prices = {m.slots["number"].concept for m in (sampler.sample("price") for _ in range(500))}
    assert {"#15", "#95", "#150", "#950"} <= prices


def test_ranges_and_clashes() -> None:
    assert list(read_range("3-5")) == [3, 4, 5]
    assert list(read_range("15-25-5")) == [15, 20, 25]
    assert clashing(load_concepts(), "old") == {"new", "modern"}
    assert clashing(load_concepts(), "red") == set()


def test_a_denial_turns_the_comparison_of_ages() -> None:
    slots = {
        "agent": Phrase("father"),
        "adjective": Phrase("elderly"),
        "ground": Phrase("grandmother"),
    }
    assert is_odd(load_concepts(), slots, "affirmative")
    assert not is_odd(load_concepts(), slots, "negative")
    slots["adjective"] = Phrase("young")
    assert not is_odd(load_concepts(), slots, "affirmative")
    assert is_odd(load_concepts(), slots, "negative")
