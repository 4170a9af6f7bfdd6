"""What is said, free of any language, and what comes out of saying it.

A `Meaning` is a pattern with its slots filled by `Phrase`s; it knows nothing of word order or case.
Realizing it in a language gives a `Sentence` of `Word`s, and every word keeps the role it plays in
the meaning, which is how two realizations of one meaning are aligned word by word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Phrase(NamedTuple):
    """The filler of one slot: a concept and, for nouns, what is said along with it."""

    concept: str
    """Id in `concepts.tsv`; `#34` is the plain number 34, written in digits."""
    number: str = "sg"
    """`sg` or `pl`."""
    definiteness: str = "def"
    """`def` (the), `indef` (a, or some of a mass), `generic` (tea, cats), `this`."""
    gender: str = ""
    """Natural gender of a person, `m` or `f`; empty for everything else."""
    adjective: str = ""
    """Concept id of an attributive adjective, or empty."""
    numeral: str = ""
    """Concept id of a number word (`three`), or empty; the number is then `pl`."""
    possessor: str = ""
    """Empty, a person (`1sg 2sg 3sg.m 3sg.f 1pl 3pl`), or `@slot`: the filler of that slot.

    When the engine resolves `@slot`, it appends `.refl`: `3sg.f.refl` is the subject's own thing.
    """
    pronoun: bool = False
    """Said as a personal pronoun that stands for this concept."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """A pattern with filled slots and the features of its main clause."""

    pattern: str
    slots: Mapping[str, Phrase]
    tense: str = "present"
    """`past`, `present` (habit or state), `progressive` (going on now), `future`."""
    polarity: str = "affirmative"
    """`affirmative` or `negative`."""
    fronted: bool = False
    """Whether the adverbial of time opens the sentence."""

    def replace(self, **changes: Phrase | None) -> Meaning:
        """Return the meaning with some slots filled anew; None empties a slot."""
        slots = dict(self.slots)
        for name, phrase in changes.items():
            if phrase is None:
                slots.pop(name, None)
            else:
                slots[name] = phrase
        return Meaning(self.pattern, slots, self.tense, self.polarity, self.fronted)

    def turn(self, polarity: str) -> Meaning:
        """Return the same meaning affirmed or denied."""
        return Meaning(self.pattern, self.slots, self.tense, polarity, self.fronted)

    def front(self, fronted: bool) -> Meaning:
        """Return the same meaning with the time in front, or in its usual place."""
        return Meaning(self.pattern, self.slots, self.tense, self.polarity, fronted)


class Agreement(NamedTuple):
    """What a verb or a predicate agrees with."""

    person: str = "3"
    number: str = "sg"
    gender: str = ""
    """Grammatical gender where the language has one (`m f n`), else the natural gender."""


class Clause(NamedTuple):
    """Everything about the sentence that may change the form of one element."""

    tense: str = "present"
    polarity: str = "affirmative"
    subject: Agreement = Agreement()
    governor: str = ""
    """Concept that governs the element (template option `by=slot`), such as a preposition."""


class Word(NamedTuple):
    """One word of a sentence, with everything the tasks need to know about it."""

    text: str
    upos: str
    roles: tuple[str, ...] = ()
    """Slots or elements it expresses, the first being the main one; empty: aligned to nothing."""
    entity: str = ""
    """`PER`, `LOC`, `ORG` or empty."""
    glue: bool = False
    """No space stands before it."""


CONTENT_TAGS = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM", "PRON", "INTJ"})
"""Tags whose words carry the meaning of their role; the others only mark it."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A realized meaning."""

    items: tuple[Word, ...]
    spaced: bool = True
    """Whether the language puts spaces between words."""
    text: str = field(init=False, compare=False)
    """The sentence as it is written."""

    def __post_init__(self) -> None:
        if self.spaced:
            text = "".join(w.text if w.glue else " " + w.text for w in self.items)
            object.__setattr__(self, "text", text.lstrip(" "))
        else:
            object.__setattr__(self, "text", "".join([w.text for w in self.items]))

    @property
    def words(self) -> list[str]:
        """The words one by one, punctuation apart."""
        return [word.text for word in self.items]

    @property
    def tags(self) -> list[str]:
        """Universal part-of-speech tags, one a word."""
        return [word.upos for word in self.items]

    @property
    def entities(self) -> list[str]:
        """BIO tags of the named entities, one a word."""
        tags: list[str] = []
        previous: tuple[str, tuple[str, ...]] = ("", ())
        for word in self.items:
            here = (word.entity, word.roles)
            prefix = "I" if here == previous else "B"
            tags.append(f"{prefix}-{word.entity}" if word.entity else "O")
            previous = here
        return tags

    def span(self, role: str) -> tuple[int, int] | None:
        """Characters from the first to the last word of a role, or None if it is not in one piece.

        Words of subordinate roles (`theme.adjective` of `theme`) belong to the span.
        """
        own = [
            any(name == role or name.startswith(role + ".") for name in word.roles)
            for word in self.items
        ]
        if True not in own:
            return None
        first, last = own.index(True), len(own) - 1 - own[::-1].index(True)
        if not all(own[first : last + 1]):
            return None
        start = end = 0
        position = 0
        for index, word in enumerate(self.items):
            position += int(self.spaced and index > 0 and not word.glue)
            if index == first:
                start = position
            position += len(word.text)
            if index == last:
                end = position
        return start, end
