"""Drawing meanings: fills the slots of a pattern with concepts that go together.

In: a pattern id, perhaps some slots already filled. Out: a `Meaning`. Every restriction comes from
the tags in `concepts.tsv` and the slots in `patterns.yaml`; a draw that leads nowhere is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from random import Random
from typing import Any

from metaxlm.phrasebook.concepts import load_concepts
from metaxlm.phrasebook.meaning import Meaning, Phrase
from metaxlm.phrasebook.patterns import Pattern, Slot, load_patterns
from metaxlm.phrasebook.sense import clashing, is_odd, read_range

_MAX_TRIES = 200
_ADJECTIVES_OF_PEOPLE = 0.25
_OWNABLE = "ownable,wearable,losable,product,needed"


_REQUIRED = Slot("")


class _DeadEndError(Exception):
    """No concept fits the slots filled so far."""


class Sampler:
    """Draws meanings from one stream of random numbers."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.concepts = load_concepts()
        self.patterns = load_patterns()
        self._pairs: dict[tuple[str, str, str], list[str]] = {}
        self._adjectives: dict[tuple[str, bool, str], list[str]] = {}
        drawn = [pattern for pattern in self.patterns.values() if pattern.weight > 0]
        self._drawn = [pattern.id for pattern in drawn]
        self._weights = list(accumulate(pattern.weight for pattern in drawn))

    def draw(self) -> Meaning:
        """Draw a meaning of any pattern, by the patterns' weights."""
        return self.sample(self.random.choices(self._drawn, cum_weights=self._weights)[0])

    def sample(
        self,
        pattern: str,
        fixed: Mapping[str, Phrase] | None = None,
        *,
        tense: str = "",
        polarity: str = "",
        fronted: bool | None = None,
        present: Mapping[str, bool] | None = None,
        accept: Callable[[Meaning], bool] | None = None,
    ) -> Meaning:
        """Draw a meaning of one pattern.

        `fixed` fills slots beforehand; `present` says of optional slots whether to fill them;
        `accept` refuses draws.
        """
        for _ in range(_MAX_TRIES):
            try:
                meaning = self._try(
                    self.patterns[pattern], fixed or {}, tense, polarity, fronted, present or {}
                )
            except _DeadEndError:
                continue
            if accept is None or accept(meaning):
                return meaning
        raise LookupError(f"pattern {pattern!r} cannot be filled with {dict(fixed or {})}")

    def _try(
        self,
        pattern: Pattern,
        fixed: Mapping[str, Phrase],
        tense: str,
        polarity: str,
        fronted: bool | None,
        present: Mapping[str, bool],
    ) -> Meaning:
        random = self.random
        tense = tense or random.choice(pattern.tense)
        slots: dict[str, Phrase] = {}
        for name, slot in pattern.slots.items():
            if name in fixed:
                slots[name] = fixed[name]
            elif name in present:
                if present[name]:
                    slots[name] = self._fill(slot, slots, tense)
            elif slot.optional >= 1 or random.random() < slot.optional:
                try:
                    slots[name] = self._fill(slot, slots, tense)
                except _DeadEndError:
                    if slot.optional >= 1:
                        raise
        if pattern.needs and not present and not any(name in slots for name in pattern.needs):
            raise _DeadEndError
        if not polarity:
            negative = random.random() < pattern.negative
            polarity = "negative" if negative else "affirmative"
        if fronted is None:
            fronted = random.random() < pattern.fronted
        if is_odd(self.concepts, slots, polarity):
            raise _DeadEndError
        if polarity == "negative":
            self._simplify(pattern, slots, fixed)
        return Meaning(pattern.id, slots, tense, polarity, fronted and "time" in slots)

    def _simplify(
        self, pattern: Pattern, slots: dict[str, Phrase], fixed: Mapping[str, Phrase]
    ) -> None:
        """Keep a denial natural: no numbers, and no details of what is not the case."""
        theme = slots.get("theme")
        verb = slots.get("verb")
        if (theme is not None and theme.numeral) or (verb and verb.concept in ("love", "hate")):
            raise _DeadEndError
        if pattern.genre != "person":
            return
        if theme is not None and theme.definiteness == "indef" and "theme" not in fixed:
            slots["theme"] = theme._replace(adjective="")
        for name in ("companion", "time"):
            if name not in fixed and pattern.slots.get(name, _REQUIRED).optional < 1:
                slots.pop(name, None)

    def _fill(self, slot: Slot, slots: Mapping[str, Phrase], tense: str) -> Phrase:
        if slot.who:
            return self._person(slot, slots)
        if slot.digits:
            return self._digits(slot, slots)
        candidates = self._candidates(slot, slots, tense)
        if slot.others:
            taken = {slots[name].concept for name in slot.others if name in slots}
            for concept in list(taken):
                if self.concepts[concept].kind == "adjective":
                    taken |= clashing(self.concepts, concept)
            candidates = [concept for concept in candidates if concept not in taken]
        if not candidates:
            raise _DeadEndError
        concept = self.random.choice(candidates)
        kind = self.concepts[concept].kind
        if kind in ("verb", "adjective", "adverb", "time", "relation", "weather", "number"):
            return Phrase(concept)
        return self._noun(concept, slot, slots)

    def _digits(self, slot: Slot, slots: Mapping[str, Phrase]) -> Phrase:
        """Draw a number from the slot's range, or from the one that the other filler asks for."""
        assert slot.digits
        first, last = slot.digits
        numbers = range(first, last + 1)
        if slot.narrowed:
            name, _, attribute = slot.narrowed.partition(".")
            own = self.concepts[slots[name].concept].attribute(attribute)
            numbers = read_range(own) if own else numbers
        return Phrase(f"#{self.random.choice(numbers)}")

    def _candidates(self, slot: Slot, slots: Mapping[str, Phrase], tense: str) -> list[str]:
        if slot.object_of:
            return self._related("object", slots[slot.object_of].concept, slot.extra)
        if slot.place_of:
            return self._related("place", slots[slot.place_of].concept, slot.extra)
        if slot.fits:
            return self._fitting(slots[slot.fits].concept, slot.extra)
        if slot.when:
            key = ("when", tense, slot.when)
            if key not in self._pairs:
                self._pairs[key] = [
                    concept
                    for concept in self.concepts.members(f"time+{tense}")
                    if self.concepts.fits(concept, slot.when)
                ]
            return self._pairs[key]
        if slot.like:
            members = self._alike(slot.cls, slots[slot.like].concept)
        else:
            members = self.concepts.members(slot.cls)
        if slot.takes:
            adjective = slots[slot.takes].concept
            return [noun for noun in members if adjective in self.concepts.fitting(noun)]
        if slot.name == "verb" and tense != "past":
            return self._related_to_tense(slot.cls, tense)
        return members

    def _related_to_tense(self, expression: str, tense: str) -> list[str]:
        """Return the verbs of a class that go with a tense: nobody is finding, or will break."""
        key = ("tense", expression, tense)
        found = self._pairs.get(key)
        if found is None:
            banned = {"progressive": "punctual,accident", "present": "no_habit,accident"}
            refused = banned.get(tense, "accident")
            members = self.concepts.members(expression)
            found = [verb for verb in members if not self.concepts.fits(verb, refused)]
            self._pairs[key] = found
        return found

    def _alike(self, expression: str, noun: str) -> list[str]:
        parts = [part for part in expression.split(",") if self.concepts.fits(noun, part)]
        return self.concepts.members(",".join(parts))

    def _related(self, relation: str, verb: str, extra: str) -> list[str]:
        key = (relation, verb, extra)
        found = self._pairs.get(key)
        if found is None:
            expression = self.concepts[verb].attribute(relation)
            found = self.concepts.members(expression) if expression else []
            if extra:
                found = [concept for concept in found if self.concepts.fits(concept, extra)]
            self._pairs[key] = found
        return found

    def _fitting(self, noun: str, extra: str) -> list[str]:
        key = ("fits", noun, extra)
        found = self._pairs.get(key)
        if found is None:
            found = self.concepts.fitting(noun)
            if extra:
                found = [adjective for adjective in found if self.concepts.fits(adjective, extra)]
            self._pairs[key] = found
        return found

    def _noun(self, concept: str, slot: Slot, slots: Mapping[str, Phrase]) -> Phrase:
        random, info = self.random, self.concepts[concept]
        if info.entity:
            return Phrase(concept)
        values: dict[str, Any] = {
            "definiteness": random.choice(slot.definiteness),
            "number": random.choice(slot.number),
            "pronoun": slot.pronoun,
        }
        if slot.possessive_i:
            values["possessor"] = "1sg"
        labels = info.labels
        verb = slots.get(slot.object_of)
        if verb is not None and "one_object" in self.concepts[verb.concept].labels:
            values["number"] = "sg"
        if "mass" in labels:
            values["number"] = "sg"
        elif "plural_only" in labels:
            values["number"] = "pl"
        if slot.numeral and random.random() < slot.numeral and "mass" not in labels:
            living = info.kind in ("person", "animal")
            amounts = self.concepts.members("number+few" if living else "number+count")
            values["numeral"] = random.choice(amounts)
            values["number"] = "pl"
        if slot.possessor and random.random() < slot.possessor:
            self._own(concept, slot, slots, values)
        if slot.adjective and random.random() < slot.adjective:
            values["adjective"] = self.attributive(
                concept,
                values["definiteness"] == "indef",
                ",".join(filter(None, (slot.unsaid, self._unsaid_of(verb)))),
            )
        if info.kind == "person":
            values["gender"] = self._gender(concept, slot, slots)
        return Phrase(concept, **values)

    def _unsaid_of(self, verb: Phrase | None) -> str:
        return self.concepts[verb.concept].attribute("unsaid") if verb else ""

    def _own(
        self, concept: str, slot: Slot, slots: Mapping[str, Phrase], values: dict[str, Any]
    ) -> None:
        agent = slots.get("agent")
        if agent is None or not self.concepts.fits(concept, _OWNABLE):
            if slot.possessor >= 1:
                raise _DeadEndError
            return
        values.update(possessor="@agent", definiteness="def", number="sg")

    def _gender(self, concept: str, slot: Slot, slots: Mapping[str, Phrase]) -> str:
        labels = self.concepts[concept].labels
        if slot.gender_of:
            gender = slots[slot.gender_of].gender
            if {"m": "male", "f": "female"}[gender] not in labels:
                raise _DeadEndError
            return gender
        if "male" in labels and "female" in labels:
            return self.random.choice("mf")
        return "m" if "male" in labels else "f"

    def attributive(self, noun: str, new: bool, unsaid: str = "") -> str:
        """Return an adjective that may stand before a noun, or nothing.

        What something costs is said of things that are new to the hearer (`a cheap car`);
        `unsaid` is a class of adjectives that would be odd here (washing a clean cup).
        """
        key = (noun, new, unsaid)
        found = self._adjectives.get(key)
        if found is None:
            refused = "full,empty,rating,useful,useless,uncomfortable,slow,fast" + (
                "" if new else ",priced"
            )
            if unsaid:
                refused += f",{unsaid}"
            found = [
                adjective
                for adjective in self.concepts.fitting(noun)
                if not self.concepts.fits(adjective, refused)
            ]
            self._adjectives[key] = found
        return self.random.choice(found) if found else ""

    def _person(self, slot: Slot, slots: Mapping[str, Phrase]) -> Phrase:
        taken = {slots[name] for name in slot.others if name in slots}
        used = {phrase.concept for phrase in taken}
        for _ in range(20):
            phrase = self.person(self.random.choice(slot.who))
            if phrase.concept not in used:
                return phrase
        raise _DeadEndError

    def person(self, kind: str) -> Phrase:
        """Draw someone: `name`, `kin` (my brother), `person` (the young teacher), `i you we`."""
        random = self.random
        if kind in ("i", "you", "we"):
            return Phrase(kind, "pl" if kind == "we" else "sg", gender=random.choice("mf"))
        if kind == "name":
            concept = random.choice(self.concepts.members("name"))
            return Phrase(concept, gender="f" if self._is_female(concept) else "m")
        if kind == "kin":
            concept = random.choice(self.concepts.members("kin,spouse,friend,neighbor,colleague"))
            labels = self.concepts[concept].labels
            both = "male" in labels and "female" in labels
            gender = random.choice("mf") if both else "f" if "female" in labels else "m"
            return Phrase(concept, gender=gender, possessor="1sg")
        concept = random.choice(self.concepts.members("person+visible,profession"))
        labels = self.concepts[concept].labels
        both = "male" in labels and "female" in labels
        gender = random.choice("mf") if both else "f" if "female" in labels else "m"
        adjective = ""
        if random.random() < _ADJECTIVES_OF_PEOPLE:
            options = [a for a in self.concepts.fitting(concept) if a not in ("lazy", "rude")]
            adjective = random.choice(options)
        return Phrase(concept, gender=gender, adjective=adjective)

    def _is_female(self, concept: str) -> bool:
        return "female" in self.concepts[concept].labels
