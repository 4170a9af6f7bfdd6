"""Premises and hypotheses in the three classes of XNLI.

In: a sampler. Out: balanced `(premise, hypothesis, label)` meanings. The hypothesis is drawn first
and without regard to the label; only then is a premise built that entails it, contradicts it, or
leaves it open. So the hypothesis alone says nothing about the label, negated or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from metaxlm.phrasebook.meaning import Meaning, Phrase
from metaxlm.phrasebook.sampling import Sampler

LABELS = ("entailment", "neutral", "contradiction")
_MISPLACED_SHARE = 0.75
_WANTED_BUYS = "product,vehicle_own,furniture"


class Pair(NamedTuple):
    """One example: does the premise entail the hypothesis?"""

    premise: Meaning
    hypothesis: Meaning
    label: str


def opposite(polarity: str) -> str:
    """Return the other polarity."""
    return "negative" if polarity == "affirmative" else "affirmative"


class Entailment:
    """Draws examples; each family of hypotheses supports every label."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._random = sampler.random
        self._families: list[Callable[[str], Pair]] = [
            self._buying,
            self._buying,
            self._location,
            self._location,
            self._mood,
            self._quality,
            self._quality,
            self._comparison,
            self._transfer,
            self._profession,
            self._counting,
            self._kinds,
            self._outing,
        ]

    def draw(self, label: str) -> Pair:
        """Draw an example with a label."""
        family = self._random.choice(self._families)
        if label == "neutral" and self._coin(_MISPLACED_SHARE):
            pair = family(self._random.choice(("entailment", "contradiction")))
            if "agent" in pair.premise.slots:
                return self._misplace(pair)
        return family(label)

    def _misplace(self, pair: Pair) -> Pair:
        """Tell of someone else what would have decided the hypothesis, so that it stays open.

        Such premises look like those of the other labels: the premise alone says little either.
        """
        premise = pair.premise
        people = [
            premise.slots[name]
            for name in ("agent", "ground", "recipient", "theme")
            if name in premise.slots
        ]
        other = self._another(*people)
        while other.gender != premise.slots["agent"].gender:
            other = self._another(*people)
        return Pair(premise.replace(agent=other), pair.hypothesis, "neutral")

    def _coin(self, share: float = 0.5) -> bool:
        return self._random.random() < share

    def _polarity(self) -> str:
        return "negative" if self._coin() else "affirmative"

    def _someone(self) -> Phrase:
        return self._sampler.person(self._random.choice(("name", "name", "kin")))

    def _another(self, *taken: Phrase, kind: str = "name") -> Phrase:
        while True:
            phrase = self._sampler.person(kind)
            if phrase.concept not in {other.concept for other in taken}:
                return phrase

    def _buying(self, label: str) -> Pair:
        """`Anna did (not) buy the coat.`"""
        agent, polarity = self._someone(), self._polarity()
        theme = Phrase(self._random.choice(self._sampler.concepts.members(_WANTED_BUYS)))
        slots = {"agent": agent, "verb": Phrase("buy"), "theme": theme}
        hypothesis = Meaning("transitive", slots, "past", polarity)
        holds = polarity if label == "entailment" else opposite(polarity)
        if label == "neutral":
            premise = self._sampler.sample(
                self._random.choice(("want_do", "think_that", "frequency", "person_state")),
                {"agent": agent},
                polarity=self._polarity() if self._coin() else "affirmative",
            )
            if premise.pattern == "want_do":
                wanted = {"agent": agent, "verb": Phrase("want"), "verb2": Phrase("buy")}
                premise = Meaning("want_do", {**wanted, "theme": theme}, "past", premise.polarity)
            elif premise.pattern == "think_that":
                premise = self._sampler.sample("think_that", {"agent": agent, "theme": theme})
            return Pair(premise, hypothesis, label)
        if holds == "negative":
            reason = Phrase(self._random.choice(("expensive", "old")))
            return Pair(
                Meaning("not_bought_because", {**slots, "adjective": reason}, "past", "negative"),
                hypothesis,
                label,
            )
        premise = self._sampler.sample(
            "transitive",
            slots,
            tense="past",
            polarity="affirmative",
            present={"place": False, "time": True},
        )
        return Pair(premise, hypothesis, label)

    def _location(self, label: str) -> Pair:
        """`Anna is (not) in the kitchen.`"""
        agent, polarity = self._someone(), self._polarity()
        verb = Phrase(self._random.choice(("sleep", "read", "rest", "sing", "dance", "wait_for")))
        candidates = self._places(verb.concept)
        place, elsewhere = (Phrase(concept) for concept in self._random.sample(candidates, 2))
        hypothesis = Meaning("person_at", {"agent": agent, "place": place}, "present", polarity)
        if label == "neutral":
            premise = self._doing(agent, verb, None)
            return Pair(premise, hypothesis, label)
        there = (polarity == "affirmative") == (label == "entailment")
        return Pair(self._doing(agent, verb, place if there else elsewhere), hypothesis, label)

    def _places(self, verb: str) -> list[str]:
        if verb == "wait_for":
            return self._sampler.concepts.members("meeting")
        return self._sampler.concepts.members(self._sampler.concepts[verb].attribute("place"))

    def _doing(self, agent: Phrase, verb: Phrase, place: Phrase | None) -> Meaning:
        if verb.concept == "wait_for" and place is not None:
            slots = {"agent": agent, "verb": verb, "theme": self._another(agent), "place": place}
            return Meaning("wait_for", slots, "progressive")
        pattern = "transitive" if verb.concept == "read" else "intransitive"
        if place is None and (pattern == "intransitive" or verb.concept == "wait_for"):
            return self._sampler.sample("person_state", {"agent": agent}, tense="present")
        fixed = {"agent": agent, "verb": verb}
        if place is not None:
            fixed["place"] = place
        return self._sampler.sample(
            pattern,
            fixed,
            tense="progressive",
            polarity="affirmative",
            present={"place": False, "time": self._coin(0.3)},
        )

    def _mood(self, label: str) -> Pair:
        """`My brother was (not) tired on Friday.`"""
        agent, polarity = self._someone(), self._polarity()
        adjective = Phrase(self._random.choice(("tired", "sick")))
        time = self._random.choice(self._sampler.concepts.members("weekday"))
        slots = {"agent": agent, "adjective": adjective}
        hypothesis = Meaning("person_state", {**slots, "time": Phrase(time)}, "past", polarity)
        if label == "neutral":
            premise = self._sampler.sample(
                self._random.choice(("go_to", "encounter", "stay_home_weather")),
                {"agent": agent, "time": Phrase(time)},
                tense="past",
            )
            return Pair(premise, hypothesis, label)
        if (polarity == "affirmative") == (label == "entailment"):
            stayed = {**slots, "verb": Phrase("stay"), "time": Phrase(time)}
            return Pair(
                Meaning("stay_home_state", stayed, "past", fronted=self._coin()), hypothesis, label
            )
        premise = Meaning("person_state", hypothesis.slots, "past", opposite(polarity), True)
        return Pair(premise, hypothesis, label)

    def _quality(self, label: str) -> Pair:
        """`The room is (not) clean.`"""
        concepts = self._sampler.concepts

        def has_antonym(meaning: Meaning) -> bool:
            return bool(concepts[meaning.slots["adjective"].concept].antonym)

        drawn = self._sampler.sample("quality", tense="present", accept=has_antonym)
        theme = drawn.slots["theme"]._replace(definiteness="def")
        adjective = drawn.slots["adjective"]
        antonym = Phrase(concepts[adjective.concept].antonym)
        polarity = self._polarity()
        slots = {"theme": theme, "adjective": adjective}
        hypothesis = Meaning("quality", slots, "present", polarity)
        if label == "neutral":
            others = [
                found
                for found in concepts.fitting(theme.concept)
                if found not in (adjective.concept, antonym.concept)
                and not concepts.fits(found, "rating,priced")
            ]
            if not others:
                return self._quality(label)
            other = Phrase(self._random.choice(others))
            pattern = self._random.choice(("quality", "very_quality"))
            return Pair(Meaning(pattern, {**slots, "adjective": other}), hypothesis, label)
        is_so = (polarity == "affirmative") == (label == "entailment")
        said = adjective if is_so else antonym
        return Pair(Meaning("very_quality", {**slots, "adjective": said}), hypothesis, label)

    def _comparison(self, label: str) -> Pair:
        """`Anna is (not) older than Peter.`"""
        pairs = [("young", "elderly"), ("rich", "poor")]
        one, other = self._random.choice(pairs)
        if self._coin():
            one, other = other, one
        agent = self._another()
        ground, polarity = self._another(agent), self._polarity()
        hypothesis = Meaning(
            "person_comparison",
            {"agent": agent, "adjective": Phrase(one), "ground": ground},
            "present",
            polarity,
        )
        if label == "neutral":
            premise = self._sampler.sample(
                "person_comparison",
                {"agent": agent, "ground": ground},
                polarity="affirmative",
                accept=lambda m: m.slots["adjective"].concept not in (one, other),
            )
            return Pair(premise, hypothesis, label)
        more = (polarity == "affirmative") == (label == "entailment")
        turned = {"agent": ground, "ground": agent}
        said = {**turned, "adjective": Phrase(other if more else one)}
        return Pair(Meaning("person_comparison", said), hypothesis, label)

    def _transfer(self, label: str) -> Pair:
        """`Peter bought a red car from Anna.`"""
        drawn = self._sampler.sample("buy_from", fronted=False, present={"time": False})
        agent, source, theme = (drawn.slots[name] for name in ("agent", "source", "theme"))
        hypothesis = drawn.turn(self._polarity())
        sold = {"agent": source, "verb": Phrase("sell"), "recipient": agent, "theme": theme}
        is_so = (hypothesis.polarity == "affirmative") == (label == "entailment")
        if label == "neutral":
            third = self._another(agent, source)
            if self._coin():
                premise = Meaning("sell_to", {**sold, "agent": third}, "past")
            else:
                premise = Meaning("sell_to", {**sold, "recipient": third}, "past")
            kept = theme._replace(definiteness="indef")
            return Pair(premise.replace(theme=kept), hypothesis, label)
        polarity = "affirmative" if is_so else "negative"
        return Pair(Meaning("sell_to", sold, "past", polarity), hypothesis, label)

    def _profession(self, label: str) -> Pair:
        """`My sister is (not) a teacher.`"""
        agent, polarity = self._someone(), self._polarity()
        drawn = self._sampler.sample("profession_not_but", {"agent": agent})
        job, other = drawn.slots["profession"], drawn.slots["profession2"]
        hypothesis = Meaning("profession", {"agent": agent, "profession": job}, "present", polarity)
        if label == "neutral":
            pattern = self._random.choice(("lives_in", "age", "speaks", "origin"))
            premise = self._sampler.sample(pattern, {"agent": agent}, tense="present")
            return Pair(premise, hypothesis, label)
        if (polarity == "affirmative") == (label == "entailment"):
            if self._coin():
                slots = {"agent": agent, "profession": other, "profession2": job}
                return Pair(Meaning("profession_not_but", slots), hypothesis, label)
            premise = self._sampler.sample(
                "profession_and_city", {"agent": agent, "profession": job}
            )
            return Pair(premise, hypothesis, label)
        return Pair(drawn, hypothesis, label)

    def _counting(self, label: str) -> Pair:
        """`Anna has three cats.`"""
        drawn = self._sampler.sample("possession_counted")
        agent, theme = drawn.slots["agent"], drawn.slots["theme"]
        numbers = [n for n in self._sampler.concepts.members("number+few") if n != theme.numeral]
        if label == "entailment":
            color = self._sampler.attributive(theme.concept, new=True)
            if not color:
                return self._counting(label)
            return Pair(drawn.replace(theme=theme._replace(adjective=color)), drawn, label)
        if label == "contradiction":
            numeral = self._random.choice(numbers)
            return Pair(drawn.replace(theme=theme._replace(numeral=numeral)), drawn, label)
        kind = theme._replace(numeral="", definiteness="generic")
        if self._sampler.concepts[theme.concept].kind != "animal":
            return self._counting(label)
        slots = {"agent": agent, "verb": Phrase("like"), "theme": kind}
        return Pair(Meaning("liking", slots), drawn, label)

    def _kinds(self, label: str) -> Pair:
        """`Anna saw an animal at the zoo.`"""
        verb, nouns, place = self._random.choice(
            (("see", "zoo_animal", "zoo"), ("buy", "vehicle_own", ""), ("buy", "rose,tulip", ""))
        )
        concepts = self._sampler.concepts
        concept = self._random.choice(concepts.members(nouns))
        theme = Phrase(concept, definiteness="indef")
        hypernym = theme._replace(concept=concepts[concept].hypernym)
        agent, polarity = self._someone(), self._polarity()
        slots = {"agent": agent, "verb": Phrase(verb), "theme": hypernym}
        if place:
            slots["place"] = Phrase(place)
        pattern = "zoo_visit" if place else "transitive"
        hypothesis = Meaning(pattern, slots, "past", polarity)
        time = Phrase(self._random.choice(concepts.members("time+past+daytime,weekday")))
        if label == "neutral":
            goal = Phrase("zoo" if place else "market")
            went = {"agent": agent, "verb": Phrase("go"), "goal": goal, "time": time}
            return Pair(Meaning("go_to", went, "past", fronted=self._coin()), hypothesis, label)
        if (polarity == "affirmative") == (label == "entailment"):
            said = {**slots, "theme": theme, "time": time}
            return Pair(Meaning(pattern, said, "past", fronted=self._coin()), hypothesis, label)
        return Pair(Meaning(pattern, slots, "past", opposite(polarity)), hypothesis, label)

    def _outing(self, label: str) -> Pair:
        """`Anna did (not) go to the park on Sunday.`"""
        agent, polarity = self._someone(), self._polarity()
        drawn = self._sampler.sample(
            "go_to",
            {"agent": agent, "verb": Phrase("go")},
            tense="past",
            fronted=False,
            present={"companion": False, "time": False},
        )
        time = Phrase(self._random.choice(self._sampler.concepts.members("weekday")))
        hypothesis = drawn.replace(time=time).turn(polarity)
        if label == "neutral":
            if self._coin():
                return Pair(drawn.turn(polarity), hypothesis, label)
            premise = self._sampler.sample(
                "encounter", {"agent": agent, "time": time}, tense="past"
            )
            return Pair(premise, hypothesis, label)
        if (polarity == "affirmative") == (label == "entailment"):
            companion = self._another(agent)
            premise = hypothesis.replace(companion=companion).turn("affirmative")
            return Pair(premise.front(self._coin()), hypothesis, label)
        weather = Phrase(self._random.choice(("rain", "snow")))
        slots = {"agent": agent, "verb": Phrase("stay"), "weather": weather, "time": time}
        return Pair(
            Meaning("stay_home_weather", slots, "past", fronted=self._coin()), hypothesis, label
        )
