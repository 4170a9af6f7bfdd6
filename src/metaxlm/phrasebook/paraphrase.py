"""Pairs of sentences with many words in common that do or do not say the same (as in PAWS-X).

In: a sampler. Out: balanced `(first, second, label)` meanings; 1 is a true paraphrase (the time in
front, the converse verb, partners swapped), 0 swaps who did what to whom. Both labels come from the
same patterns, so that only the roles tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from metaxlm.phrasebook.meaning import Meaning, Phrase
from metaxlm.phrasebook.sampling import Sampler


class Paraphrase(NamedTuple):
    """Two meanings, and 1 if they say the same, else 0."""

    first: Meaning
    second: Meaning
    label: int


class Paraphrases:
    """Draws pairs."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._random = sampler.random
        self._families: list[Callable[[int], Paraphrase]] = [
            self._given,
            self._sold,
            self._compared,
            self._met,
            self._together,
            self._flown,
            self._contrasted,
        ]

    def draw(self, label: int) -> Paraphrase:
        """Draw a pair that says the same (1) or not (0)."""
        first, second, label = self._random.choice(self._families)(label)
        if self._random.random() < 0.5:
            first, second = second, first
        return Paraphrase(first, second, label)

    def _third_persons(self, meaning: Meaning) -> bool:
        kinds = [self._sampler.concepts[phrase.concept].kind for phrase in meaning.slots.values()]
        return "pronoun" not in kinds

    def _draw(self, pattern: str, **keywords: bool) -> Meaning:
        return self._sampler.sample(
            pattern,
            polarity="affirmative",
            present=keywords,
            accept=self._third_persons,
        )

    def _reordered(self, meaning: Meaning, label: int, one: str, other: str) -> Paraphrase:
        """Move the time to the other end (1), or swap two roles as well (0)."""
        moved = meaning.front(not meaning.fronted)
        if label == 0:
            swapped = {one: meaning.slots[other], other: meaning.slots[one]}
            moved = moved.replace(**swapped)
        return Paraphrase(meaning, moved, label)

    def _given(self, label: int) -> Paraphrase:
        return self._reordered(self._draw("give", time=True), label, "agent", "recipient")

    def _met(self, label: int) -> Paraphrase:
        drawn = self._draw("encounter", time=True)
        if label == 0 and drawn.slots["verb"].concept == "meet":  # meeting goes both ways
            drawn = drawn.replace(verb=Phrase("call"))
        return self._reordered(drawn, label, "agent", "theme")

    def _flown(self, label: int) -> Paraphrase:
        return self._reordered(self._draw("flight", time=True), label, "source", "goal")

    def _sold(self, label: int) -> Paraphrase:
        sold = self._draw("sell_to", time=True)
        seller, buyer = sold.slots["agent"], sold.slots["recipient"]
        if label == 0:
            seller, buyer = buyer, seller
        slots = {"agent": buyer, "verb": Phrase("buy"), "source": seller}
        slots |= {name: sold.slots[name] for name in ("theme", "time")}
        return Paraphrase(sold, Meaning("buy_from", slots, "past", fronted=sold.fronted), label)

    def _compared(self, label: int) -> Paraphrase:
        first = self._draw("person_comparison")
        antonym = self._sampler.concepts[first.slots["adjective"].concept].antonym
        if not antonym or antonym == "lazy":
            return self._compared(label)
        swapped = {"agent": first.slots["ground"], "ground": first.slots["agent"]}
        if label == 1:
            swapped["adjective"] = Phrase(antonym)
        elif self._random.random() < 0.5:
            return Paraphrase(first, first.replace(adjective=Phrase(antonym)), label)
        return Paraphrase(first, first.replace(**swapped), label)

    def _together(self, label: int) -> Paraphrase:
        first = self._draw("joint", time=True)
        agent, companion = first.slots["agent"], first.slots["companion"]
        second = first.replace(agent=companion, companion=agent).front(not first.fronted)
        if label == 0:
            other = self._sampler.person("name")
            while other.concept in (agent.concept, companion.concept):
                other = self._sampler.person("name")
            second = second.replace(companion=other)
        return Paraphrase(first, second, label)

    def _contrasted(self, label: int) -> Paraphrase:
        first = self._draw("contrast_liking")
        slots = first.slots
        changed = {"agent": slots["agent2"], "agent2": slots["agent"]}
        if label == 1:
            changed |= {"theme": slots["theme2"], "theme2": slots["theme"]}
        return Paraphrase(first, first.replace(**changed), label)
