"""The one interface every language fills: it turns a slot's filler into inflected words.

In: a `Phrase`, the role it plays, the flags its template gave, and the `Clause` it stands in.
Out: a tuple of `Word`s. Results are cached by the engine, so every method must be a pure function
of its arguments. The engine asks `say`, which sends the phrase to `verb`, `adjective`,
`noun_phrase` or `other` by the kind of its concept, or `element` for names that are no slots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from metaxlm.phrasebook.concepts import NOUN_KINDS, Concepts
from metaxlm.phrasebook.lexicon import Lexeme, Lexicon
from metaxlm.phrasebook.meaning import Agreement, Clause, Phrase, Word

Words = tuple[Word, ...]
Flags = tuple[str, ...]


class Morphology(ABC):
    """Inflection of one language."""

    language: ClassVar[str]
    spaced: ClassVar[bool] = True
    """Whether words are separated by spaces."""
    flags: ClassVar[frozenset[str]]
    """Flags that templates of this language may use; others are an error at load."""
    elements: ClassVar[frozenset[str]] = frozenset({"copula", "negation"})
    """Names in braces that are no slots and go to `element`."""

    def __init__(self, lexicon: Lexicon, concepts: Concepts) -> None:
        self.lexicon = lexicon
        self.concepts = concepts

    def say(self, phrase: Phrase, role: str, flags: Flags, clause: Clause) -> Words:
        """Return the words for a filled slot."""
        if phrase.concept.startswith("#"):
            return (Word(phrase.concept[1:], "NUM", (role,)),)
        kind = self.concepts[phrase.concept].kind
        if kind == "verb":
            return self.verb(self.lexicon[phrase.concept], role, flags, clause)
        if kind == "adjective":
            return self.adjective(self.lexicon[phrase.concept], role, flags, clause)
        if kind in NOUN_KINDS:
            return self.noun_phrase(phrase, role, flags, clause)
        return self.other(self.lexicon[phrase.concept], role, flags, clause)

    @abstractmethod
    def noun_phrase(self, phrase: Phrase, role: str, flags: Flags, clause: Clause) -> Words:
        """Inflect a noun, name or pronoun with its article, numeral, adjective and possessor.

        Roles: the noun and its function words `role`, the adjective `role.adjective`, the numeral
        `role.numeral`, the possessive `role.possessor`.
        """

    @abstractmethod
    def verb(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """Inflect a verb for tense, polarity and subject; a word of negation has role `negation`.

        Auxiliaries and particles have the role of their verb.
        """

    @abstractmethod
    def adjective(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """Inflect an adjective that is a slot of its own: a predicate, or a comparative."""

    def other(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:  # noqa: ARG002
        """Say an adverb, a time, a number, a relation or a kind of weather: as the lexicon does."""
        return self.words_of(lexeme, role)

    @abstractmethod
    def element(self, name: str, role: str, flags: Flags, clause: Clause) -> Words:
        """Say an element that is no slot: `copula`, `negation`, or one of the language's own."""

    def agreement(self, phrase: Phrase) -> Agreement:
        """Return person, number and gender of a noun phrase."""
        concept = self.concepts[phrase.concept]
        if concept.kind == "pronoun":
            person = "2" if "hearer" in concept.labels else "1"
            return Agreement(person, "pl" if "plural" in concept.labels else "sg", phrase.gender)
        gender = phrase.gender or self.lexicon[phrase.concept].get("gender")
        return Agreement("3", phrase.number, gender)

    def finish(self, words: list[Word]) -> list[Word]:
        """Mend what depends on the neighbor: elision, contraction. Called once a sentence."""
        return words

    def capitalize(self, text: str) -> str:
        """Write the first letter large."""
        return text[:1].upper() + text[1:]

    def lower(self, text: str) -> str:
        """Write a word in small letters, for dictionaries."""
        return text.lower()

    def words_of(self, lexeme: Lexeme, role: str) -> Words:
        """Return the lexicon's words as they stand."""
        entity = self.concepts[lexeme.concept].entity
        return tuple(Word(text, tag, (role,), entity) for text, tag in lexeme.words)
