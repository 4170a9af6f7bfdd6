"""Reviews of a product, a book or film, a restaurant or hotel, with one sentiment throughout.

In: a sampler and a sentiment. Out: the sentences as meanings. Both sentiments use the same
patterns as far as language allows, negated ones included.
"""

from __future__ import annotations

from metaxlm.phrasebook.meaning import Meaning, Phrase
from metaxlm.phrasebook.sampling import Sampler

HELD_OUT = frozenset({"watch", "umbrella", "jacket", "camera", "guitar", "film", "hotel"})
"""What test reviews are about, and training text never reviews: no sentence can be in both."""


class Reviews:
    """Draws reviews."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._random = sampler.random
        self._held_out = False

    def draw(self, sentiment: str, held_out: bool = False) -> list[Meaning]:
        """Return a review in favor (`pos`) or against (`neg`).

        With `held_out` it is about one of `HELD_OUT` and names its subject in nearly every
        sentence, without it about anything else.
        """
        self._held_out = held_out
        kind = self._random.choices(["product", "artwork", "place"], [5, 3, 4])[0]
        if kind == "product":
            return self._product(sentiment)
        if kind == "artwork":
            return self._artwork(sentiment)
        return self._place(sentiment)

    def _subject(self, kind: str) -> str:
        members = self._sampler.concepts.members(kind)
        return self._random.choice([c for c in members if (c in HELD_OUT) == self._held_out])

    def _author(self) -> Phrase:
        return Phrase("i", gender=self._random.choice("mf"))

    def _adjective(self, noun: str, sentiment: str, extra: str = "adjective") -> Phrase | None:
        concepts = self._sampler.concepts
        found = [
            adjective
            for adjective in concepts.fitting(noun)
            if sentiment in concepts[adjective].labels and concepts.fits(adjective, extra)
        ]
        return Phrase(self._random.choice(found)) if found else None

    def _verdict(self, theme: Phrase, sentiment: str, tense: str = "present") -> Meaning:
        """Say it is good, or that it is not bad; a third of the verdicts are denials."""
        denied = self._random.random() < 0.3
        wanted = {"pos": "neg", "neg": "pos"}[sentiment] if denied else sentiment
        adjective = self._adjective(theme.concept, wanted, "good,bad" if denied else "rating")
        if adjective is None:
            adjective = self._adjective(theme.concept, sentiment, "rating")
            denied = False
        assert adjective is not None
        return Meaning(
            "review_verdict",
            {"theme": theme, "adjective": adjective},
            tense,
            "negative" if denied else "affirmative",
        )

    def _finish(self, opening: list[Meaning], body: list[Meaning]) -> list[Meaning]:
        count = min(len(body), self._random.randint(2, 4))
        return opening + self._random.sample(body, count)

    def _product(self, sentiment: str) -> list[Meaning]:
        sampler = self._sampler
        author = self._author()
        concept = self._subject("product")
        this = Phrase(concept, definiteness="this")
        said = this if self._held_out else this._replace(pronoun=True)
        polarity = "affirmative" if sentiment == "pos" else "negative"
        opening = [sampler.sample("review_bought", {"agent": author, "theme": this})]
        body = [
            self._verdict(said, sentiment),
            Meaning("review_happy", {"agent": author, "theme": this}, "present", polarity),
            sampler.sample("review_again", {"agent": author, "theme": said}, polarity=polarity),
            sampler.sample("review_recommend", {"agent": author, "theme": this}, polarity=polarity),
        ]
        quality = self._adjective(concept, sentiment, "adjective-rating")
        if quality is not None:
            slots = {"theme": this._replace(definiteness="def"), "adjective": quality}
            body.append(Meaning("very_quality", slots))
        if sentiment == "neg":
            if not self._held_out:
                body.append(Meaning("review_money_back", {"agent": author}))
            if "breakable" in sampler.concepts[concept].labels:
                theme = Phrase(concept)
                body.append(sampler.sample("review_broke", {"theme": theme}))
            body.append(
                Meaning("review_too", {"theme": Phrase(concept), "adjective": Phrase("expensive")})
            )
        return self._finish(opening, body)

    def _artwork(self, sentiment: str) -> list[Meaning]:
        sampler, author = self._sampler, self._author()
        concept = self._subject("artwork")
        this = Phrase(concept, definiteness="this")
        polarity = "affirmative" if sentiment == "pos" else "negative"
        story = sampler.sample(
            "review_work",
            {"theme2": this},
            accept=lambda m: sentiment in sampler.concepts[m.slots["adjective"].concept].labels,
        )
        if concept == "book":
            opening = [sampler.sample("review_bought", {"agent": author, "theme": this})]
        else:
            opening = [story]
        quality = self._adjective(concept, sentiment, "interesting,boring")
        assert quality is not None
        body = [
            self._verdict(this, sentiment),
            Meaning("very_quality", {"theme": Phrase(concept), "adjective": quality}),
            sampler.sample("review_recommend", {"agent": author, "theme": this}, polarity=polarity),
        ]
        if concept == "book":
            body.append(story)
        return self._finish(opening, body)

    def _place(self, sentiment: str) -> list[Meaning]:
        sampler, author = self._sampler, self._author()
        concept = self._subject("reviewable")
        this = Phrase(concept, definiteness="this")
        polarity = "affirmative" if sentiment == "pos" else "negative"
        concepts = sampler.concepts

        def consistent(meaning: Meaning) -> bool:
            chosen = (meaning.slots["adjective"], meaning.slots["adjective2"])
            return all(sentiment in concepts[phrase.concept].labels for phrase in chosen)

        opening = [sampler.sample("review_visited", {"agent": author, "place": this})]
        body = [
            self._verdict(this, sentiment),
            sampler.sample("review_two_sides", accept=consistent),
            sampler.sample("review_recommend", {"agent": author, "theme": this}, polarity=polarity),
            sampler.sample("review_return", {"agent": author, "goal": this}, polarity=polarity),
        ]
        if sentiment == "neg":
            slots = {"theme": Phrase(concept), "adjective": Phrase("noisy")}
            body.append(Meaning("review_too", slots, "past"))
        return self._finish(opening, body)
