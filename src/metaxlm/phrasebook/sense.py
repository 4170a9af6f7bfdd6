"""Sense: refuses meanings that are grammatical everywhere and odd everywhere.

In: the filled slots of a pattern. Out: whether anybody would say that. The knowledge is in the
attributes of `concepts.tsv`: `unsaid:` (a verb's object is not called that), `unfit:` (a noun is
never called that), `clash:` (adjectives not said together), `without:` (what a place has not),
`years:` and `price:` (the numbers that go with someone or something, `from-to` or `from-to-step`).
"""

from __future__ import annotations

from collections.abc import Mapping

from metaxlm.phrasebook.concepts import Concepts
from metaxlm.phrasebook.meaning import Phrase

_SENTIMENTS = frozenset({"pos", "neg"})


def read_range(text: str) -> range:
    """Read `from-to` or `from-to-step`, both ends included."""
    first, last, *step = (int(part) for part in text.split("-"))
    return range(first, last + 1, *step)


def clashing(concepts: Concepts, adjective: str) -> set[str]:
    """Return the adjectives that are not said along with one: its opposite, and what clashes."""
    concept = concepts[adjective]
    return {concept.antonym, *concept.attribute("clash").split(",")} - {""}


def is_odd(concepts: Concepts, slots: Mapping[str, Phrase], polarity: str) -> bool:
    """Say whether fillers that are fine one by one do not go together."""
    return (
        _at_odd_place(concepts, slots)
        or _in_wrong_hands(concepts, slots)
        or _against_age(concepts, slots, polarity)
        or _against_itself(concepts, slots)
        or _of_two_minds(concepts, slots)
        or _denied_habit(concepts, slots, polarity)
    )


def _at_odd_place(concepts: Concepts, slots: Mapping[str, Phrase]) -> bool:
    """A sofa from the market, a castle in the street, snow in Cairo."""
    place = slots.get("place")
    if place is None:
        return False
    theme = slots.get("theme")
    bulky = theme is not None and "bulky" in concepts[theme.concept].labels
    if bulky and concepts.fits(place.concept, "shopping"):
        return True
    absent = concepts[place.concept].attribute("without")
    found = (slots[name].concept for name in ("theme", "weather", "verb") if name in slots)
    return bool(absent) and any(concepts.fits(concept, absent) for concept in found)


def _in_wrong_hands(concepts: Concepts, slots: Mapping[str, Phrase]) -> bool:
    """Children with wine."""
    theme = slots.get("theme")
    if theme is None or "adult_only" not in concepts[theme.concept].labels:
        return False
    people = (slots[name].concept for name in ("agent", "recipient", "source") if name in slots)
    return any("kid" in concepts[person].labels for person in people)


def _against_age(concepts: Concepts, slots: Mapping[str, Phrase], polarity: str) -> bool:
    """A father who is older than a grandmother."""
    agent, ground, adjective = (slots.get(name) for name in ("agent", "ground", "adjective"))
    if agent is None or ground is None or adjective is None:
        return False
    if adjective.concept not in ("young", "elderly"):
        return False
    ages = [concepts[person.concept].attribute("years") for person in (agent, ground)]
    if not all(ages):
        return False
    ours, theirs = (read_range(age).start for age in ages)
    if (adjective.concept == "young") != (polarity == "negative"):
        ours, theirs = theirs, ours
    return ours < theirs


def _against_itself(concepts: Concepts, slots: Mapping[str, Phrase]) -> bool:
    """`The polite boy is rude`, or polite once more."""
    agent, adjective = slots.get("agent"), slots.get("adjective")
    if agent is None or adjective is None or not agent.adjective:
        return False
    return adjective.concept in {agent.adjective, *clashing(concepts, agent.adjective)}


def _of_two_minds(concepts: Concepts, slots: Mapping[str, Phrase]) -> bool:
    """Terrible service by a friendly waiter: serving is all the waiter did."""
    theme, person = slots.get("theme"), slots.get("person")
    if theme is None or person is None or "service_like" not in concepts[theme.concept].labels:
        return False
    said = [concepts[slots[name].concept].labels for name in ("adjective", "adjective2")]
    return said[0] & _SENTIMENTS != said[1] & _SENTIMENTS


def _denied_habit(concepts: Concepts, slots: Mapping[str, Phrase], polarity: str) -> bool:
    """`Every day Anna does not sing.`"""
    time = slots.get("time")
    return polarity == "negative" and time is not None and concepts.fits(time.concept, "habit")
