"""Dialogues: two people greet, ask, answer and part.

In: a sampler. Out: the turns as meanings in order. Whoever says `I` has a gender, because some
languages let the verb or the adjective show it.
"""

from __future__ import annotations

from metaxlm.phrasebook.meaning import Meaning, Phrase
from metaxlm.phrasebook.sampling import Sampler

_NEWS = [
    "transitive",
    "go_to",
    "encounter",
    "trip",
    "want_do",
    "must_do",
    "person_state",
    "joint_liking",
]


class Dialogues:
    """Draws dialogues."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._random = sampler.random

    def draw(self) -> list[Meaning]:
        """Return the turns of a dialogue."""
        sampler, random = self._sampler, self._random
        first, second = sampler.person("name"), sampler.person("name")
        while second.concept == first.concept:
            second = sampler.person("name")
        turns = [Meaning("greeting", {"addressee": second})]
        if random.random() < 0.3:
            turns.append(Meaning("my_name", {"name": first}))
        if random.random() < 0.6:
            turns += [Meaning("how_are_you", {}), Meaning("fine_thanks", {})]
        topics = [self._likes, self._lost, self._price, self._train, self._news, self._offer]
        for topic in random.sample(topics, random.randint(1, 3)):
            turns += topic(first, second)
        if random.random() < 0.5:
            turns.append(sampler.sample("suggestion"))
        if random.random() < 0.4:
            turns.append(sampler.sample("see_you"))
        else:
            turns.append(Meaning("goodbye", {"addressee": first}))
        return turns

    def _likes(self, first: Phrase, second: Phrase) -> list[Meaning]:
        asked = self._sampler.sample(
            "ask_liking", {"agent": Phrase("you", gender=second.gender)}, polarity="affirmative"
        )
        positive = self._random.random() < 0.5
        reply = Meaning(
            "yes_liking" if positive else "no_liking",
            {**asked.slots, "agent": Phrase("i", gender=second.gender)},
            polarity="affirmative" if positive else "negative",
        )
        told = self._sampler.sample("liking", {"agent": Phrase("i", gender=first.gender)})
        return [asked, reply, told][: self._random.choice((2, 3))]

    def _lost(self, first: Phrase, second: Phrase) -> list[Meaning]:  # noqa: ARG002
        if self._random.random() < 0.5:
            place, theme = "object_location", "on_table+losable"
        else:
            place, theme = "object_inside", "in_bag"
        thing = Phrase(self._random.choice(self._sampler.concepts.members(theme)), possessor="1sg")
        asked = Meaning("ask_where_thing", {"theme": thing})
        said = thing._replace(possessor="", pronoun=True)
        answer = self._sampler.sample(
            place, {"theme": said}, tense="present", polarity="affirmative"
        )
        return [asked, answer]

    def _price(self, first: Phrase, second: Phrase) -> list[Meaning]:  # noqa: ARG002
        asked = self._sampler.sample("ask_price")
        thing = asked.slots["theme"]._replace(pronoun=True, adjective="", definiteness="def")
        answer = self._sampler.sample("price", {"theme": thing})
        if self._random.random() < 0.4:
            return [
                asked,
                answer,
                Meaning("review_too", {"theme": thing, "adjective": Phrase("expensive")}),
            ]
        return [asked, answer]

    def _train(self, first: Phrase, second: Phrase) -> list[Meaning]:  # noqa: ARG002
        asked = self._sampler.sample("ask_schedule")
        return [asked, self._sampler.sample("schedule", asked.slots)]

    def _news(self, first: Phrase, second: Phrase) -> list[Meaning]:
        pattern = self._random.choice(_NEWS)
        fixed = {} if pattern == "joint_liking" else {"agent": Phrase("i", gender=first.gender)}
        taken = {first.concept, second.concept}
        told = self._sampler.sample(
            pattern,
            fixed,
            accept=lambda m: not taken & {phrase.concept for phrase in m.slots.values()},
        )
        return [told]

    def _offer(self, first: Phrase, second: Phrase) -> list[Meaning]:  # noqa: ARG002
        return [self._sampler.sample("offer"), Meaning("accept_offer", {})]
