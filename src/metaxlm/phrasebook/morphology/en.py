"""English: articles, plurals, do-support, the progressive, pronouns, a or an.

In: phrases and lexicon entries with the features `plural past ing third comparative feminine
article at stative modal`. Out: words.
"""

from __future__ import annotations

from typing import ClassVar

from metaxlm.phrasebook.lexicon import Lexeme
from metaxlm.phrasebook.meaning import Agreement, Clause, Phrase, Word
from metaxlm.phrasebook.morphology.base import Flags, Morphology, Words

_PRONOUNS = {
    "1sg": ("I", "me", "my"),
    "2sg": ("you", "you", "your"),
    "3sg.m": ("he", "him", "his"),
    "3sg.f": ("she", "her", "her"),
    "3sg": ("it", "it", "its"),
    "1pl": ("we", "us", "our"),
    "3pl": ("they", "them", "their"),
}
_PREPOSITIONS = {"to": "to", "from": "from", "by": "by", "with": "with", "for": "for", "of": "of"}
_VOWELS = "aeiou"


class English(Morphology):
    """Inflection of English."""

    language: ClassVar[str] = "en"
    flags: ClassVar[frozenset[str]] = frozenset(
        [
            "subject",
            "object",
            "no",
            "possessive",
            "at",
            "to",
            "from",
            "by",
            "with",
            "for",
            "of",
            "bare",
            "finite",
            "infinitive",
            "base",
            "auxiliary",
            "comparative",
            "oclock",
        ]
    )

    def noun_phrase(self, phrase: Phrase, role: str, flags: Flags, clause: Clause) -> Words:  # noqa: ARG002
        """`the old man`, `her`, `to the park`, `Anna 's`, `by train`."""
        lexeme = self.lexicon[phrase.concept]
        concept = self.concepts[phrase.concept]
        words: list[Word] = []
        for flag in flags:
            preposition = _PREPOSITIONS.get(flag)
            if flag == "at":
                preposition = lexeme.get("at", "in")
            if preposition and not (flag == "to" and phrase.concept == "home"):
                words.append(Word(preposition, "ADP", (role,)))
        if phrase.pronoun or concept.kind == "pronoun":
            words.append(self._pronoun(phrase, role, subject="subject" in flags))
            return tuple(words)
        if "by" in flags or "bare" in flags or concept.kind in ("sport", "tongue", "meal", "day"):
            words.extend(self._noun(phrase, lexeme, role))
        elif concept.entity:
            if lexeme.get("article") == "the":
                words.append(Word("the", "DET", (role,)))
            words.extend(self.words_of(lexeme, role))
        else:
            full = self._full(phrase, lexeme, role)
            if "no" in flags:
                full = [Word("no", "DET", ("negation",)), *full[full[0].upos == "DET" :]]
            words.extend(full)
        if "possessive" in flags:
            words.append(Word("'s", "PART", (role,), glue=True))
        return tuple(words)

    def _full(self, phrase: Phrase, lexeme: Lexeme, role: str) -> list[Word]:
        rest: list[Word] = []
        if phrase.numeral:
            numeral = self.lexicon[phrase.numeral].text
            rest.append(Word(numeral, "NUM", (f"{role}.numeral",)))
        if phrase.adjective:
            adjective = self.lexicon[phrase.adjective].text
            rest.append(Word(adjective, "ADJ", (f"{role}.adjective",)))
        rest.extend(self._noun(phrase, lexeme, role))
        determiner = self._determiner(phrase, lexeme, rest[0].text)
        if phrase.possessor:
            person = phrase.possessor.removesuffix(".refl")
            return [Word(_PRONOUNS[person][2], "PRON", (f"{role}.possessor",)), *rest]
        return [Word(determiner, "DET", (role,)), *rest] if determiner else rest

    def _determiner(self, phrase: Phrase, lexeme: Lexeme, following: str) -> str:
        if lexeme.get("article") == "none" or phrase.definiteness == "generic":
            return ""
        plural = phrase.number == "pl"
        if phrase.definiteness == "this":
            return "these" if plural else "this"
        if phrase.definiteness == "def":
            return "the"
        if plural or phrase.numeral or "mass" in self.concepts[phrase.concept].labels:
            return ""
        if following == self.lexicon.get(phrase.adjective, lexeme).text:
            explicit = self.lexicon.get(phrase.adjective, lexeme).get("article")
            if explicit in ("a", "an"):
                return explicit
        return "an" if following[0].lower() in _VOWELS else "a"

    def _noun(self, phrase: Phrase, lexeme: Lexeme, role: str) -> list[Word]:
        words = list(self.words_of(lexeme, role))
        if phrase.gender == "f" and lexeme.get("feminine"):
            words[-1] = words[-1]._replace(text=lexeme.get("feminine"))
        if phrase.number == "pl":
            text = lexeme.get("plural") or _add_s(words[-1].text)
            words[-1] = words[-1]._replace(text=text)
        return words

    def _pronoun(self, phrase: Phrase, role: str, subject: bool) -> Word:
        person, number, gender = self.agreement(phrase)
        key = f"{person}{number}"
        if key == "3sg" and gender:
            key = f"3sg.{gender}"
        return Word(_PRONOUNS[key][0 if subject else 1], "PRON", (role,))

    def adjective(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:  # noqa: ARG002
        """`old`, or with `comparative`: `older`, `more modern`."""
        if "comparative" not in flags:
            return self.words_of(lexeme, role)
        form = lexeme.get("comparative")
        if form == "more":
            return (Word("more", "ADV", (role,)), *self.words_of(lexeme, role))
        return (Word(form or _add_er(lexeme.text), "ADJ", (role,)),)

    def other(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:  # noqa: ARG002
        """Say adverbs, times and numbers; with `oclock` an hour: `at eight o'clock`."""
        if "oclock" in flags:
            hour = Word("o'clock", "ADV", (role,))
            front = (Word("at", "ADP", (role,)),) if "at" in flags else ()
            return (*front, *self.words_of(lexeme, role), hour)
        return self.words_of(lexeme, role)

    def element(self, name: str, role: str, flags: Flags, clause: Clause) -> Words:
        """Say the copula (`is not`, `will be`); `infinitive` gives `be`."""
        if name == "negation":
            return (_negation(),) if clause.polarity == "negative" else ()
        if "infinitive" in flags:
            return (Word("be", "AUX", (role,)),)
        return self._auxiliary_be(role, clause)

    def _auxiliary_be(self, role: str, clause: Clause) -> Words:
        negation = (_negation(),) if clause.polarity == "negative" else ()
        if clause.tense == "future":
            return (Word("will", "AUX", (role,)), *negation, Word("be", "AUX", (role,)))
        return (Word(_be(clause.subject, clause.tense == "past"), "AUX", (role,)), *negation)

    def verb(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """`bought`, `does not like`, `is reading`; a question has `auxiliary` and `base`."""
        tense = clause.tense
        if lexeme.get("stative") and tense == "progressive":
            tense = "present"
        if lexeme.get("modal"):
            return self._modal(lexeme, role, clause)
        if "infinitive" in flags:
            return self._with_particle(lexeme, lexeme.words[0][0], role)
        if "auxiliary" in flags:
            return (Word(_auxiliary(tense, clause.subject), "AUX", (role,)),)
        if "base" in flags:
            form = _ing(lexeme) if tense == "progressive" else lexeme.words[0][0]
            return self._with_particle(lexeme, form, role)
        if tense == "progressive" or tense == "future" or clause.polarity == "negative":
            negation = (_negation(),) if clause.polarity == "negative" else ()
            form = _ing(lexeme) if tense == "progressive" else lexeme.words[0][0]
            helper = Word(_auxiliary(tense, clause.subject), "AUX", (role,))
            return (helper, *negation, *self._with_particle(lexeme, form, role))
        if tense == "past":
            return self._with_particle(lexeme, _past(lexeme), role)
        if clause.subject.person == "3" and clause.subject.number == "sg":
            form = lexeme.get("third") or _add_s(lexeme.words[0][0])
            return self._with_particle(lexeme, form, role)
        return self._with_particle(lexeme, lexeme.words[0][0], role)

    def _modal(self, lexeme: Lexeme, role: str, clause: Clause) -> Words:
        past = clause.tense == "past"
        word = Word(lexeme.get("past") if past else lexeme.text, "AUX", (role,))
        if clause.polarity == "affirmative":
            return (word,)
        return (word, _negation()._replace(glue=word.text == "can"))

    def _with_particle(self, lexeme: Lexeme, form: str, role: str) -> Words:
        first, *rest = lexeme.words
        return (
            Word(form, first[1], (role,)),
            *(Word(text, tag, (role,)) for text, tag in rest),
        )


def _negation() -> Word:
    return Word("not", "PART", ("negation",))


def _be(subject: Agreement, past: bool) -> str:
    plural = subject.number == "pl" or subject.person == "2"
    if past:
        return "were" if plural else "was"
    return "are" if plural else "am" if subject.person == "1" else "is"


def _auxiliary(tense: str, subject: Agreement) -> str:
    if tense == "progressive":
        return _be(subject, past=False)
    if tense == "future":
        return "will"
    if tense == "past":
        return "did"
    return "does" if subject.person == "3" and subject.number == "sg" else "do"


def _ends_in_consonant_y(text: str) -> bool:
    return text.endswith("y") and text[-2] not in _VOWELS


def _add_s(text: str) -> str:
    if _ends_in_consonant_y(text):
        return text[:-1] + "ies"
    if text.endswith(("s", "x", "z", "ch", "sh")) or text in ("go", "do"):
        return text + "es"
    return text + "s"


def _past(lexeme: Lexeme) -> str:
    base = lexeme.words[0][0]
    if lexeme.get("past"):
        return lexeme.get("past")
    if _ends_in_consonant_y(base):
        return base[:-1] + "ied"
    return base + ("d" if base.endswith("e") else "ed")


def _ing(lexeme: Lexeme) -> str:
    base = lexeme.words[0][0]
    if lexeme.get("ing"):
        return lexeme.get("ing")
    return (base[:-1] if base.endswith("e") and not base.endswith("ee") else base) + "ing"


def _add_er(text: str) -> str:
    if _ends_in_consonant_y(text):
        return text[:-1] + "ier"
    return text + ("r" if text.endswith("e") else "er")


MORPHOLOGY = English
