"""German: four cases, three genders, adjective endings, the verbal bracket, contractions.

In: phrases and lexicon entries with the features `gender plural oblique genitive feminine number
mass at to from site` (nouns), `stem comparative` (adjectives), `er ich du plural past participle
prefix aux reflexive simple case imperative` (verbs), `article` (names), `hour` (numbers), and
`alt`, `alt.*` (see `variants`). Out: words. The past is the perfect (`hat gekauft`), except for
verbs marked `simple` (`wollte`). A verb is said in two pieces, `finite` and `rest`.
"""

from __future__ import annotations

from typing import ClassVar

from metaxlm.phrasebook.lexicon import Lexeme
from metaxlm.phrasebook.meaning import Agreement, Clause, Phrase, Word
from metaxlm.phrasebook.morphology.base import Flags, Morphology, Words
from metaxlm.phrasebook.morphology.contraction import contract
from metaxlm.phrasebook.morphology.variants import choose_variant

_FLAGS = (
    "subject object dative genitive possessive at to from site with by of bare neg no finite "
    "rest final preterite infinitive imperative reflexive modal comparative oclock"
)
_CASES = ("nom", "acc", "dat", "gen")
_DEFINITE = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "pl": ("die", "die", "den", "der"),
}
_STRONG_DETERMINER = {
    "m": ("er", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "es"),
    "pl": ("e", "e", "en", "er"),
}
"""Endings of `dieser`."""
_MIXED_DETERMINER = {**_STRONG_DETERMINER, "m": ("", "en", "em", "es"), "n": ("", "", "em", "es")}
"""Endings of `ein`, `kein`, `mein`."""
_ADJECTIVE = {
    "strong": {**_STRONG_DETERMINER, "m": ("er", "en", "em", "en"), "n": ("es", "es", "em", "en")},
    "mixed": {
        "m": ("er", "en", "en", "en"),
        "f": ("e", "e", "en", "en"),
        "n": ("es", "es", "en", "en"),
        "pl": ("en", "en", "en", "en"),
    },
    "weak": {
        "m": ("e", "en", "en", "en"),
        "f": ("e", "e", "en", "en"),
        "n": ("e", "e", "en", "en"),
        "pl": ("en", "en", "en", "en"),
    },
}
_POSSESSIVES = {
    "1sg": "mein",
    "2sg": "dein",
    "3sg": "sein",
    "3sg.m": "sein",
    "3sg.n": "sein",
    "3sg.f": "ihr",
    "1pl": "unser",
    "3pl": "ihr",
}
_PRONOUNS = {
    "1sg": ("ich", "mich", "mir"),
    "2sg": ("du", "dich", "dir"),
    "3sg.m": ("er", "ihn", "ihm"),
    "3sg.f": ("sie", "sie", "ihr"),
    "3sg.n": ("es", "es", "ihm"),
    "1pl": ("wir", "uns", "uns"),
    "3pl": ("sie", "sie", "ihnen"),
}
_REFLEXIVES = {"1sg": "mich", "2sg": "dich", "3sg": "sich", "1pl": "uns", "3pl": "sich"}
_AUXILIARIES = {
    "sein": ("bin", "bist", "ist", "sind"),
    "war": ("war", "warst", "war", "waren"),
    "haben": ("habe", "hast", "hat", "haben"),
    "werden": ("werde", "wirst", "wird", "werden"),
}
_PREPOSITIONS = {"with": "mit", "by": "mit", "of": "von"}
_MOTION_TO = frozenset({"in", "auf", "an"})
"""Two-way prepositions: accusative of direction; the others always take the dative."""
_CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
}


class German(Morphology):
    """Inflection of German."""

    language: ClassVar[str] = "de"
    flags: ClassVar[frozenset[str]] = frozenset(_FLAGS.split())

    def agreement(self, phrase: Phrase) -> Agreement:
        """Agree with the gender of the noun, not of the person: `das Kind ... es`."""
        concept = self.concepts[phrase.concept]
        if concept.kind in ("pronoun", "name"):
            return super().agreement(phrase)
        lexeme = self.lexicon[phrase.concept]
        return Agreement("3", lexeme.get("number", phrase.number), _gender(phrase, lexeme))

    def noun_phrase(self, phrase: Phrase, role: str, flags: Flags, clause: Clause) -> Words:
        """`der alte Mann`, `ihr`, `in den Park`, `Annas`, `mit dem Zug`, `keine Blumen`."""
        lexeme = self.lexicon[phrase.concept]
        concept = self.concepts[phrase.concept]
        if "possessive" in flags:
            return tuple(_possessive(word) for word in self.words_of(lexeme, role))
        if phrase.concept == "home":
            return (Word("zu", "ADP", (role,)), Word(lexeme.text, "NOUN", (role,)))
        preposition, case = self._government(phrase, lexeme, flags, clause)
        words = [Word(preposition, "ADP", (role,))] if preposition else []
        if phrase.pronoun or concept.kind == "pronoun":
            words.append(self._pronoun(phrase, role, case))
        elif concept.entity:
            article = lexeme.get("article")
            if article:
                words.append(Word(_DEFINITE[article][_CASES.index(case)], "DET", (role,)))
            words.extend(self.words_of(lexeme, role))
        else:
            words.extend(self._full(phrase, lexeme, role, flags, clause, case))
        return tuple(words)

    def _government(
        self, phrase: Phrase, lexeme: Lexeme, flags: Flags, clause: Clause
    ) -> tuple[str, str]:
        """Return the preposition, if any, and the case."""
        named = self.concepts[phrase.concept].entity == "LOC" and not lexeme.get("article")
        for flag in flags:
            if flag in _PREPOSITIONS:
                return _PREPOSITIONS[flag], "dat"
            if flag == "at":
                return lexeme.get("at", "in"), "dat"
            if flag == "site":
                return lexeme.get("site") or lexeme.get("at", "in"), "dat"
            if flag == "from":
                return lexeme.get("from", "aus"), "dat"
            if flag == "to":
                preposition = "nach" if named else lexeme.get("to", "in")
                return preposition, "acc" if preposition in _MOTION_TO else "dat"
            if flag == "object":
                governor = self.lexicon.get(clause.governor)
                return "", governor.get("case", "acc") if governor else "acc"
            if flag in ("dative", "genitive"):
                return "", flag[:3]
        return "", "nom"

    def _full(
        self,
        phrase: Phrase,
        lexeme: Lexeme,
        role: str,
        flags: Flags,
        clause: Clause,
        case: str,
    ) -> list[Word]:
        number = lexeme.get("number", phrase.number)
        column = "pl" if number == "pl" else _gender(phrase, lexeme)
        index = _CASES.index(case)
        determiner, declension = self._determiner(phrase, lexeme, role, flags, clause, column)
        words: list[Word] = []
        if determiner is not None:
            endings = _MIXED_DETERMINER if declension == "mixed" else _STRONG_DETERMINER
            text = determiner.text + endings[column][index]
            if determiner.text == "d":
                text = _DEFINITE[column][index]
            words.append(determiner._replace(text=text))
        if phrase.numeral:
            numeral = self.lexicon[phrase.numeral].text
            words.append(Word(numeral, "NUM", (f"{role}.numeral",)))
        if phrase.adjective:
            adjective = choose_variant(
                self.lexicon[phrase.adjective], phrase.concept, self.concepts
            )
            stem = adjective.get("stem") or adjective.text
            ending = _ADJECTIVE[declension][column][index]
            words.append(Word(stem + ending, "ADJ", (f"{role}.adjective",)))
        words.append(Word(_noun(phrase, lexeme, number, case), "NOUN", (role,)))
        return words

    def _determiner(
        self,
        phrase: Phrase,
        lexeme: Lexeme,
        role: str,
        flags: Flags,
        clause: Clause,
        column: str,
    ) -> tuple[Word | None, str]:
        """Return the determiner's stem (`d` for the article) and the adjective's declension."""
        concept = self.concepts[phrase.concept]
        if "no" in flags or ("neg" in flags and clause.polarity == "negative"):
            return Word("kein", "DET", ("negation", role)), "mixed"
        if "bare" in flags or concept.kind in ("sport", "tongue", "unit", "day"):
            return None, "strong"
        if phrase.possessor:
            stem = _POSSESSIVES[_possessor(phrase.possessor, clause)]
            return Word(stem, "DET", (f"{role}.possessor",)), "mixed"
        if phrase.definiteness == "this":
            return Word("dies", "DET", (role,)), "weak"
        if phrase.definiteness == "def":
            return Word("d", "DET", (role,)), "weak"
        uncounted = "mass" in concept.labels or lexeme.get("mass")
        if phrase.definiteness == "generic" or column == "pl" or uncounted:
            return None, "strong"
        return Word("ein", "DET", (role,)), "mixed"

    def _pronoun(self, phrase: Phrase, role: str, case: str) -> Word:
        person, number, gender = self.agreement(phrase)
        key = f"{person}{number}"
        if key == "3sg":
            key = f"3sg.{gender}"
        return Word(_PRONOUNS[key][_CASES.index(case)], "PRON", (role,))

    def adjective(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """`alt`, or with `comparative`: `älter`."""
        lexeme = choose_variant(lexeme, clause.governor, self.concepts)
        text = lexeme.text
        if "comparative" in flags:
            text = lexeme.get("comparative") or text + "er"
        return (Word(text, "ADJ", (role,)),)

    def other(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:  # noqa: ARG002
        """Say adverbs, times and numbers; with `oclock` an hour: `um acht Uhr`."""
        if "oclock" not in flags:
            return self.words_of(lexeme, role)
        hour = Word(lexeme.get("hour") or lexeme.text, "NUM", (role,))
        front = (Word("um", "ADP", (role,)),) if "at" in flags else ()
        return (*front, hour, Word("Uhr", "NOUN", (role,)))

    def element(self, name: str, role: str, flags: Flags, clause: Clause) -> Words:
        """Say `nicht`, or the copula; with `rest` its last piece (`wird ... sein`)."""
        if name == "negation":
            negative = clause.polarity == "negative"
            return (Word("nicht", "PART", ("negation",)),) if negative else ()
        if "rest" in flags:
            return (Word("sein", "AUX", (role,)),) if clause.tense == "future" else ()
        verb = {"past": "war", "future": "werden"}.get(clause.tense, "sein")
        return (_auxiliary(verb, role, clause.subject),)

    def verb(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """`finite` and `rest`: `hat ... gekauft`, `ruft ... an`; `final`: `gekauft hat`."""
        lexeme = choose_variant(lexeme, clause.governor, self.concepts)
        if "reflexive" in flags:
            return _reflexive(lexeme, role, clause.subject)
        if "infinitive" in flags:
            return (Word(lexeme.text, "VERB", (role,)),)
        if "imperative" in flags:
            return (Word(lexeme.get("imperative"), "VERB", (role,)),)
        perfect = clause.tense == "past" and not lexeme.get("simple") and "preterite" not in flags
        if perfect:
            helper = _auxiliary(lexeme.get("aux", "haben"), role, clause.subject)
            rest: Words = (Word(lexeme.get("participle"), "VERB", (role,)),)
        elif clause.tense == "future":
            helper = _auxiliary("werden", role, clause.subject)
            rest = (Word(lexeme.text, "VERB", (role,)),)
        else:
            tag = "AUX" if "modal" in flags else "VERB"
            helper = Word(_finite(lexeme, clause), tag, (role,))
            prefix = lexeme.get("prefix")
            rest = (Word(prefix, "ADP", (role,)),) if prefix else ()
        if "final" in flags:
            return (*rest, helper)
        return rest if "rest" in flags else (helper,)

    def finish(self, words: list[Word]) -> list[Word]:
        """Contract preposition and article: `in dem` -> `im`."""
        return contract(words, _CONTRACTIONS)


def _gender(phrase: Phrase, lexeme: Lexeme) -> str:
    if phrase.gender == "f" and lexeme.get("feminine"):
        return "f"
    return lexeme.get("gender")


def _possessor(possessor: str, clause: Clause) -> str:
    """Return the person of a possessor; the subject's own thing follows its noun's gender."""
    person = possessor.removesuffix(".refl")
    if person != possessor and person.startswith("3sg") and clause.subject.gender:
        return f"3sg.{clause.subject.gender}"
    return person


def _noun(phrase: Phrase, lexeme: Lexeme, number: str, case: str) -> str:
    feminine = lexeme.get("feminine") if phrase.gender == "f" else ""
    if number == "pl":
        text = f"{feminine}nen" if feminine else lexeme.get("plural")
        assert text, f"{lexeme.concept} has no plural"
        return text + "n" if case == "dat" and text[-1] not in "ns" and text != "Euro" else text
    if feminine or case == "nom":
        return feminine or lexeme.text
    if lexeme.get("oblique"):
        return lexeme.get("oblique")
    if case == "gen" and lexeme.get("gender") != "f":
        return lexeme.get("genitive") or lexeme.text + "s"
    return lexeme.text


def _possessive(word: Word) -> Word:
    """`Annas`, but `Max'`."""
    return word._replace(text=word.text + ("'" if word.text[-1] in "sxzß" else "s"))


def _reflexive(lexeme: Lexeme, role: str, subject: Agreement) -> Words:
    if not lexeme.get("reflexive"):
        return ()
    return (Word(_REFLEXIVES[subject.person + subject.number], "PRON", ("reflexive", role)),)


def _column(subject: Agreement) -> int:
    return 3 if subject.number == "pl" else int(subject.person) - 1


def _auxiliary(verb: str, role: str, subject: Agreement) -> Word:
    return Word(_AUXILIARIES[verb][_column(subject)], "AUX", (role,))


def _finite(lexeme: Lexeme, clause: Clause) -> str:
    """`kaufe`, `kauft`, `kaufen`, and in the past `kam`, `kamen`."""
    column = _column(clause.subject)
    if clause.tense == "past":
        past = lexeme.get("past")
        if column != 3:
            return past
        return past + ("n" if past.endswith("e") else "en")
    base = lexeme.text.removeprefix(lexeme.get("prefix"))
    if column == 0:
        return lexeme.get("ich") or base.removesuffix("n")
    if column == 1:
        return lexeme.get("du")
    return lexeme.get("er") if column == 2 else lexeme.get("plural") or base


MORPHOLOGY = German
