"""Russian noun phrases: prepositions, cases, agreement inside the phrase, numerals, pronouns.

In: a `Phrase`, the flags of its template and the clause. Out: words such as `на старом столе`,
`у неё`, `две красные чашки`, `со своей сестрой`.
"""

from __future__ import annotations

from typing import NamedTuple

from metaxlm.phrasebook.lexicon import Lexeme
from metaxlm.phrasebook.meaning import Agreement, Clause, Phrase, Word
from metaxlm.phrasebook.morphology.base import Flags, Morphology, Words
from metaxlm.phrasebook.morphology.ru_forms import (
    CASES,
    decline_adjective,
    decline_possessive,
    decline_pronoun,
    decline_this,
)

_FIXED = {
    "with": ("с", "ins"),
    "by": ("на", "loc"),
    "upon": ("на", "loc"),
    "into": ("в", "acc"),
    "owner": ("у", "gen"),
    "giver": ("от", "gen"),
}
"""Flags that mean a preposition and its case, whatever the noun."""
NOUN_FLAGS = (
    frozenset(CASES)
    | frozenset(_FIXED)
    | {
        *("object", "governed", "at", "to", "from"),
        *("adverb", "partitive", "quantity", "counted", "plot", "scene"),
    }
)
"""Flags of noun phrases."""


class _Noun(NamedTuple):
    """A noun in the shape in which its modifiers see it."""

    singular: str
    plural: str
    gender: str
    number: str
    animate: bool


class RussianNouns(Morphology):
    """The part of Russian that says nouns, names and pronouns."""

    def agreement(self, phrase: Phrase) -> Agreement:
        """Return what the verb sees: `часы` are plural, `пять кошек` neuter.

        A noun that has no feminine, such as `врач`, takes the masculine of any person.
        """
        if self.concepts[phrase.concept].kind == "pronoun":
            return super().agreement(phrase)
        if phrase.numeral:
            return Agreement("3", "sg", "n")
        noun = self._shape(phrase, self.lexicon[phrase.concept], counted=False)
        return Agreement("3", noun.number, noun.gender)

    def noun_phrase(self, phrase: Phrase, role: str, flags: Flags, clause: Clause) -> Words:
        """Say a noun phrase in the case its flags ask for, with its preposition."""
        lexeme = self.lexicon[phrase.concept]
        if "adverb" in flags or lexeme.get("at"):
            key = next(flag for flag in flags if flag in ("adverb", "at", "to"))
            return (Word(lexeme.get(key), "ADV", (role,)),)
        preposition, case = self._govern(phrase, lexeme, flags, clause)
        words = [Word(preposition, "ADP", (role,))] if preposition else []
        if phrase.pronoun or self.concepts[phrase.concept].kind == "pronoun":
            key = _pronoun_key(self.agreement(phrase))
            words.append(Word(decline_pronoun(key, case, bool(words)), "PRON", (role,)))
        elif "partitive" in flags and lexeme.get("partitive"):
            words.append(Word(lexeme.get("partitive"), "NOUN", (role,)))
        elif "quantity" in flags:
            words.extend(self._quantity(lexeme, clause.governor, role))
        else:
            words.extend(self._full(phrase, lexeme, role, flags, case, clause))
        return tuple(words)

    def _govern(
        self, phrase: Phrase, lexeme: Lexeme, flags: Flags, clause: Clause
    ) -> tuple[str, str]:
        """Return the preposition (or nothing) and the case."""
        place = lexeme.get("prep", "в")
        for flag in flags:
            if flag in CASES:
                return "", flag
            if flag in _FIXED:
                return _FIXED[flag]
            if flag == "at":
                return place, "loc"
            if flag == "to":
                return place, "acc"
            if flag == "from":
                return ("с" if place == "на" else "из"), "gen"
            if flag == "governed":
                return "", self.lexicon[clause.governor].get("case", "acc")
            if flag == "object":
                return "", self._object_case(phrase, clause)
        return "", "nom"

    def _object_case(self, phrase: Phrase, clause: Clause) -> str:
        """Return the genitive for a denied amount (`не купила хлеба`), else the accusative."""
        denied = clause.polarity == "negative" and clause.tense == "past"
        amount = "mass" in self.concepts[phrase.concept].labels and not phrase.adjective
        return "gen" if denied and amount and phrase.definiteness == "indef" else "acc"

    def _shape(self, phrase: Phrase, lexeme: Lexeme, counted: bool) -> _Noun:
        """Choose the feminine or the collective noun (`картофель` for potatoes), and the number."""
        singular, plural, gender = lexeme.get("sg"), lexeme.get("pl"), lexeme.get("gender")
        number = phrase.number if singular and plural else "sg" if singular else "pl"
        if phrase.gender == "f" and lexeme.get("feminine.sg"):
            singular, plural, gender = lexeme.get("feminine.sg"), lexeme.get("feminine.pl"), "f"
        if number == "pl" and lexeme.get("collective.sg") and not counted and not phrase.numeral:
            singular, gender, number = (
                lexeme.get("collective.sg"),
                lexeme.get("collective.gender"),
                "sg",
            )
        return _Noun(singular, plural, gender, number, bool(lexeme.get("animate")))

    def _full(
        self, phrase: Phrase, lexeme: Lexeme, role: str, flags: Flags, case: str, clause: Clause
    ) -> list[Word]:
        noun = self._shape(phrase, lexeme, "counted" in flags)
        if "plot" in flags and lexeme.get("plot.sg"):
            noun = noun._replace(singular=lexeme.get("plot.sg"), gender=lexeme.get("plot.gender"))
        if phrase.numeral:
            return self._counted(phrase, lexeme, noun, role, case)
        gender = "pl" if noun.number == "pl" else noun.gender
        words: list[Word] = []
        if phrase.possessor:
            person = self._possessor(phrase.possessor, flags, clause)
            text = decline_possessive(person, case, gender, noun.animate)
            words.append(Word(text, "DET", (f"{role}.possessor",)))
        elif phrase.definiteness == "this" or ("scene" in flags and lexeme.get("scene")):
            words.append(Word(decline_this(case, gender, noun.animate), "DET", (role,)))
        if phrase.adjective:
            words.append(self._attribute(phrase.adjective, role, case, gender, noun.animate))
        words.extend(self._inflect(lexeme, noun, role, case, noun.number))
        return words

    def _possessor(self, possessor: str, flags: Flags, clause: Clause) -> str:
        """Return whose it is; what belongs to the subject is `свой`."""
        person = possessor.removesuffix(".refl")
        mine = person == "1sg" and clause.subject[:2] == ("1", "sg") and "nom" not in flags
        return "refl" if possessor.endswith(".refl") or mine else person

    def _attribute(self, concept: str, role: str, case: str, gender: str, animate: bool) -> Word:
        text = decline_adjective(self.lexicon[concept].text, case, gender, animate)
        return Word(text, "ADJ", (f"{role}.adjective",))

    def _counted(
        self, phrase: Phrase, lexeme: Lexeme, noun: _Noun, role: str, case: str
    ) -> list[Word]:
        """`две красные чашки`, `два старых стола`, `пять новых книг`, `двух белых кошек`."""
        numeral = self.lexicon[phrase.numeral]
        few = numeral.get("count") == "few"
        if case == "acc":
            case = "gen" if few and noun.animate else "nom"
        amount = numeral.get("forms").split()[CASES.index(case)]
        if case == "nom":
            if noun.gender == "f":
                amount = numeral.get("feminine", amount)
            noun_case, number = "gen", "sg" if few else "pl"
            adjective_case = "nom" if few and noun.gender == "f" else "gen"
        else:
            noun_case, number, adjective_case = case, "pl", case
        words = [Word(amount, "NUM", (f"{role}.numeral",))]
        if phrase.adjective:
            words.append(
                self._attribute(phrase.adjective, role, adjective_case, "pl", noun.animate)
            )
        words.extend(self._inflect(lexeme, noun, role, noun_case, number))
        return words

    def _quantity(self, lexeme: Lexeme, numeral: str, role: str) -> list[Word]:
        """Say a unit after its number: `два часа`, `пять часов`."""
        few = self.lexicon[numeral].get("count") == "few"
        forms = lexeme.get("sg" if few else "pl").split()
        return [Word(forms[CASES.index("gen")], "NOUN", (role,))]

    def _inflect(
        self, lexeme: Lexeme, noun: _Noun, role: str, case: str, number: str
    ) -> list[Word]:
        if case == "loc":
            special = lexeme.get("loc") if number == "sg" else ""
            case = "prep"
        else:
            special = ""
        forms = (noun.plural if number == "pl" else noun.singular).split()
        form = special or (forms[0] if len(forms) == 1 else forms[CASES.index(case)])
        entity = self.concepts[lexeme.concept].entity
        words = [
            Word(text, tag, (role,), entity)
            for text, (_, tag) in zip(form.split("_"), lexeme.words, strict=True)
        ]
        if lexeme.get("quoted"):
            words[0] = words[0]._replace(glue=True)
            return [Word("«", "PUNCT"), *words, Word("»", "PUNCT", glue=True)]
        return words


def _pronoun_key(agreement: Agreement) -> str:
    person, number, gender = agreement
    if person == "3" and number == "sg":
        return "3" + (gender or "m")
    return person + number
