"""Coherent little documents: stories, descriptions of people and places, dialogues, reviews.

In: a stream of random numbers. Out: a `Document`, a list of meanings in order together with what is
known to be true of it: the sentiment of a review, and questions about a story with their answers.
Someone is introduced by name and then mostly referred to by a pronoun.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from metaxlm.phrasebook.dialogues import Dialogues
from metaxlm.phrasebook.meaning import Meaning, Phrase
from metaxlm.phrasebook.reviews import Reviews
from metaxlm.phrasebook.sampling import Sampler

_EVENTS = [
    "transitive",
    "transitive",
    "transitive",
    "counted",
    "counted",
    "go_to",
    "give",
    "encounter",
    "zoo_visit",
    "sequence",
    "purpose",
    "receive",
    "want_do",
    "wearing",
    "forgetting",
    "return_from",
    "duration",
]
_FACTS = [
    "age",
    "origin",
    "liking",
    "like_doing",
    "can_do",
    "possession",
    "possession_counted",
    "person_quality",
    "speaks",
    "speaks_two",
    "learns",
    "plays_music",
    "plays_sport",
    "works_for",
    "frequency",
    "never",
]
_TOWN = ["building_location", "building_location", "between", "opening_hours", "existential"]
_HOME = [
    "existential_counted",
    "object_location",
    "object_inside",
    "flowers_grow",
    "object_location",
]
_TOWN_NOUNS = "museum,hotel,restaurant,cafe,library,church,cinema,park,street,square"
_HOME_NOUNS = "table,chair,sofa,bed,kitchen,garden,bathroom,lamp,cupboard"
_CLOSING_MOODS = "happy,sad,tired,angry,calm,nervous,busy"
_PRONOUN_SHARE = 0.65
_MIXTURE = {
    "story": 50,
    "person": 14,
    "place": 10,
    "dialogue": 12,
    "review": 11,
    "weather": 3,
    "page": 25,
}


@dataclass(frozen=True, slots=True)
class Question:
    """A question whose answer is one role of one sentence of its document."""

    meaning: Meaning
    sentence: int
    role: str


@dataclass(frozen=True, slots=True)
class Document:
    """Meanings in order, and what is known of them."""

    genre: str
    meanings: list[Meaning]
    sentiment: str = ""
    """`pos` or `neg` for a review, else empty."""
    questions: list[Question] = field(default_factory=list)


class Documents:
    """Draws documents from one stream of random numbers."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.sampler = Sampler(random)
        self._dialogues = Dialogues(self.sampler)
        self._reviews = Reviews(self.sampler)

    def draw(self) -> Document:
        """Draw a document of any genre."""
        genre = self.random.choices(list(_MIXTURE), list(_MIXTURE.values()))[0]
        if genre == "story":
            return self.story()
        if genre == "person":
            return self.person()
        if genre == "place":
            return self.place()
        if genre == "dialogue":
            return Document("dialogue", self._dialogues.draw())
        if genre == "review":
            return self.review(self.random.choice(("pos", "neg")))
        if genre == "page":
            return self.page()
        return self.weather()

    def page(self) -> Document:
        """Draw a page of a phrasebook: sentences of any pattern that stand on their own."""
        count = self.random.randint(3, 7)
        return Document("page", [self.sampler.draw() for _ in range(count)])

    def review(self, sentiment: str, held_out: bool = False) -> Document:
        """Draw a review that is in favor (`pos`) or against (`neg`); see `reviews.HELD_OUT`."""
        return Document("review", self._reviews.draw(sentiment, held_out), sentiment)

    def weather(self) -> Document:
        """Draw a short report on the weather of one city."""
        sampler = self.sampler
        city = Phrase(self.random.choice(sampler.concepts.members("city_name")))
        meanings = [
            sampler.sample("weekday_today"),
            sampler.sample(
                "weather_state", {"place": city}, tense="present", present={"time": False}
            ),
            sampler.sample(
                "weather_event", {"place": city, "time": Phrase("yesterday")}, tense="past"
            ),
            sampler.sample(
                "weather_event", {"place": city, "time": Phrase("tomorrow")}, tense="future"
            ),
            sampler.sample("if_weather"),
        ]
        return Document("weather", meanings[self.random.randrange(2) :])

    def person(self) -> Document:
        """Draw a description of someone."""
        hero = self.sampler.person("name")
        meanings = [self._introduction(hero)]
        patterns = [
            name for name in self.random.sample(_FACTS, 6) if not _repeats(name, meanings[0])
        ]
        for pattern in patterns[: self.random.randint(3, 5)]:
            meanings.append(self._about(pattern, hero))
        return Document("person", meanings, questions=self._questions(hero, meanings))

    def place(self) -> Document:
        """Draw a description of a town or of a home: what is there and what it is like."""
        in_town = self.random.random() < 0.6
        patterns, nouns = (_TOWN, _TOWN_NOUNS) if in_town else (_HOME, _HOME_NOUNS)
        meanings = []
        if in_town:
            where = Phrase(self.random.choice(["city", "village"]))
            meanings.append(
                self.sampler.sample(
                    "existential", {"place": where}, tense="present", polarity="affirmative"
                )
            )
        for pattern in self.random.sample(patterns, self.random.randint(2, 4)):
            meanings.append(self.sampler.sample(pattern, tense="present"))
        for pattern in self.random.sample(["quality", "very_quality", "two_qualities"], 2):
            noun = self.random.choice(self.sampler.concepts.members(nouns))
            try:
                meanings.append(
                    self.sampler.sample(pattern, {"theme": Phrase(noun)}, tense="present")
                )
            except LookupError:
                continue
        return Document("place", meanings)

    def story(self) -> Document:
        """Draw a story about one person, with questions about it."""
        hero = self.sampler.person("name")
        meanings = [self._introduction(hero)]
        if self.random.random() < 0.5:
            facts = [name for name in _FACTS if not _repeats(name, meanings[0])]
            meanings.append(self._about(self.random.choice(facts), hero))
        events = self.random.sample(_EVENTS, self.random.randint(2, 5))
        verbs: set[str] = set()
        for number, pattern in enumerate(events):
            event = self._event(pattern, hero, opening=number == 0)
            verb = event.slots["verb"].concept
            if verb in verbs:
                continue
            verbs.add(verb)
            meanings.append(event)
        closing = self.random.random()
        if closing < 0.4:
            mood = Phrase(self.random.choice(_CLOSING_MOODS.split(",")))
            slots = {"agent": self._refer(hero), "adjective": mood}
            meanings.append(Meaning("person_state", slots, "past"))
        elif closing < 0.6:
            meanings.append(
                self.sampler.sample(
                    "come_home", {"agent": self._refer(hero)}, tense="past", present={"time": False}
                )
            )
        return Document("story", meanings, questions=self._questions(hero, meanings))

    def _introduction(self, hero: Phrase) -> Meaning:
        pattern = self.random.choice(
            ["profession_and_city", "lives_in", "profession", "works_at", "age", "works_for"]
        )
        return self.sampler.sample(
            pattern,
            {"agent": hero},
            tense="present",
            polarity="affirmative",
            accept=lambda m: _others_differ(m, hero),
        )

    def _refer(self, hero: Phrase) -> Phrase:
        return hero._replace(pronoun=self.random.random() < _PRONOUN_SHARE)

    def _about(self, pattern: str, hero: Phrase, tense: str = "present") -> Meaning:
        if tense not in self.sampler.patterns[pattern].tense:
            tense = self.sampler.patterns[pattern].tense[0]
        present = {"city": False} if "city" in self.sampler.patterns[pattern].slots else {}
        return self.sampler.sample(
            pattern,
            {"agent": self._refer(hero)},
            tense=tense,
            present=present,
            accept=lambda m: _others_differ(m, hero),
        )

    def _event(self, pattern: str, hero: Phrase, opening: bool) -> Meaning:
        slots = self.sampler.patterns[pattern].slots
        tense = "past" if "past" in self.sampler.patterns[pattern].tense else "present"
        present = {"time": opening} if "time" in slots else {}
        agent = hero if opening else self._refer(hero)
        return self.sampler.sample(
            pattern,
            {"agent": agent},
            tense=tense,
            present=present,
            accept=lambda m: _others_differ(m, hero),
        )

    def _questions(self, hero: Phrase, meanings: list[Meaning]) -> list[Question]:
        patterns = [meaning.pattern for meaning in meanings]
        questions: list[Question] = []
        for index, meaning in enumerate(meanings):
            if meaning.polarity == "negative" or patterns.count(meaning.pattern) > 1:
                continue
            questions.extend(_ask(hero, meaning, index))
        return questions


def _repeats(pattern: str, introduction: Meaning) -> bool:
    """Say whether a fact would repeat or contest what the introduction told."""
    working = ("works_at", "works_for", "profession", "profession_and_city")
    told = introduction.pattern
    return pattern == told or (pattern in working and told in working)


def _others_differ(meaning: Meaning, hero: Phrase) -> bool:
    """Refuse that someone meets himself, or `my brother` where nobody says `I`."""
    return all(
        name == "agent" or (phrase.concept != hero.concept and phrase.possessor != "1sg")
        for name, phrase in meaning.slots.items()
    )


def _ask(hero: Phrase, meaning: Meaning, index: int) -> list[Question]:
    """Return the questions one sentence of a story answers."""
    slots, pattern = meaning.slots, meaning.pattern
    verb = slots.get("verb")
    asked: list[tuple[str, dict[str, Phrase], str]] = []
    if verb is None:
        return []
    doing = {"agent": hero, "verb": verb}
    if pattern in ("transitive", "zoo_visit"):
        theme = slots["theme"]
        seen = theme._replace(adjective="", definiteness="def", possessor="")
        asked.append(("ask_what", doing, "theme"))
        if "place" in slots:
            asked.append(("ask_where_event", {**doing, "theme": seen}, "place"))
        if "time" in slots:
            asked.append(("ask_when_event", {**doing, "theme": seen}, "time"))
        if not slots["agent"].pronoun:
            asked.append(("ask_who", {"verb": verb, "theme": seen}, "agent"))
    elif pattern == "counted":
        theme = slots["theme"]._replace(numeral="", adjective="")
        asked.append(("ask_how_many", {**doing, "theme": theme}, "theme.numeral"))
    elif pattern == "go_to":
        asked.append(("ask_where_go", doing, "goal"))
    elif pattern in ("lives_in", "profession_and_city"):
        asked.append(("ask_where_live", doing, "place"))
    elif pattern == "works_for":
        asked.append(("ask_employer", doing, "employer"))
    return [
        Question(Meaning(name, filled, meaning.tense), index, role) for name, filled, role in asked
    ]
