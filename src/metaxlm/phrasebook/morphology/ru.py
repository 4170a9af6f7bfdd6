"""Russian: aspect and tense, gendered past, predicates without a copula, negation.

In: phrases and entries of `data/lexicon/ru.tsv`, whose head explains the order of the forms; verbs
give `present`, `past` (of the aspect a told event takes), `future` (perfective), `ipf` and `pf`
(infinitives), and `altN` forms for certain objects (`стирать рубашку`, but `мыть чашку`). Out:
words.
"""

from __future__ import annotations

from typing import ClassVar

from metaxlm.phrasebook.lexicon import Lexeme
from metaxlm.phrasebook.meaning import Clause, Phrase, Word
from metaxlm.phrasebook.morphology.base import Flags, Words
from metaxlm.phrasebook.morphology.ru_forms import (
    CASES,
    choose_past,
    choose_person,
    count_years,
    decline_adjective,
)
from metaxlm.phrasebook.morphology.ru_nouns import NOUN_FLAGS, RussianNouns

VERB_FLAGS = frozenset(
    {
        *("finite", "infinitive", "imperfective", "imperative", "middle", "setout", "ride"),
        *("together", "drop", "predicate", "comparative", "oclock", "years"),
        *("existential", "posture"),
    }
)
"""Flags of verbs, predicates, hours and the copula."""
_WAS = "был была было были"
_WILL_BE = "буду будешь будет будем будете будут"
_SATISFIED = "доволен довольна довольно довольны"
_POSTURES = {
    "stand": ("стоял стояла стояло стояли", "стою стоишь стоит стоим стоите стоят"),
    "lie": ("лежал лежала лежало лежали", "лежу лежишь лежит лежим лежите лежат"),
}
_PRECIPITATION = ("дождь", "дождя", "снег", "снега")
_VOWELS = "аеёиоуыэюя"


class Russian(RussianNouns):
    """Inflection of Russian."""

    language: ClassVar[str] = "ru"
    flags: ClassVar[frozenset[str]] = NOUN_FLAGS | VERB_FLAGS
    elements: ClassVar[frozenset[str]] = frozenset({"copula", "negation", "satisfied"})

    def say(self, phrase: Phrase, role: str, flags: Flags, clause: Clause) -> Words:
        """Say a slot; with `years` a number of years."""
        if "years" in flags:
            digits = phrase.concept[1:]
            years = Word(count_years(int(digits)), "NOUN", ("year",))
            return (Word(digits, "NUM", (role,)), years)
        return super().say(phrase, role, flags, clause)

    def verb(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """`купила`, `не любит`, `будет искать`; `drop` lets the verb stand for its subject too."""
        if lexeme.get("past.negative"):
            return _say_precipitation(lexeme, role, clause)
        if "imperative" in flags:
            return (Word(lexeme.get("imperative"), "VERB", (role,)),)
        variant = self._variant(lexeme, flags, clause.governor)
        roles = (role, "again") if "drop" in flags else (role,)
        if "infinitive" in flags:
            # What one does not want to do, or does as a pastime, is imperfective.
            ongoing = "imperfective" in flags or clause.polarity == "negative"
            form = "" if ongoing else lexeme.get(f"{variant}pf")
            words = [Word(form or lexeme.get(f"{variant}ipf"), "VERB", roles)]
        else:
            words = [*_negate(clause), *self._finite(lexeme, variant, roles, flags, clause)]
        words.extend(Word(text, tag, (role,)) for text, tag in lexeme.words[1:])
        return tuple(words)

    def _variant(self, lexeme: Lexeme, flags: Flags, governor: str) -> str:
        """Return the prefix of the forms that go with an object: nobody washes shirts like cups."""
        if "ride" in flags:
            return "alt1."
        number = 1
        while governor and lexeme.get(f"alt{number}"):
            if self.concepts.fits(governor, lexeme.get(f"alt{number}")):
                return f"alt{number}."
            number += 1
        return ""

    def _finite(
        self, lexeme: Lexeme, variant: str, roles: tuple[str, ...], flags: Flags, clause: Clause
    ) -> list[Word]:
        person, number, gender = ("1", "pl", "") if "together" in flags else clause.subject
        if lexeme.get("short"):
            return [Word(choose_past(lexeme.get("short"), gender, number), "ADJ", roles)]
        if clause.tense == "past":
            forms = self._past_forms(lexeme, variant, flags, clause)
            return [Word(choose_past(forms, gender, number), "VERB", roles)]
        if clause.tense == "future":
            forms = lexeme.get(f"{variant}future")
            if not forms:
                return [
                    Word(choose_person(_WILL_BE, person, number), "AUX", roles),
                    Word(lexeme.get(f"{variant}ipf"), "VERB", roles[:1]),
                ]
        else:
            forms = lexeme.get(f"{variant}present")
        return [Word(choose_person(forms, person, number), "VERB", roles)]

    def _past_forms(self, lexeme: Lexeme, variant: str, flags: Flags, clause: Clause) -> str:
        """Choose `сломался`, `пошла`, or for a denied activity the imperfective: `не читала`."""
        special = next((flag for flag in flags if flag in ("middle", "setout")), "")
        if special:
            return lexeme.get(special)
        denied = lexeme.get(f"{variant}denied") if clause.polarity == "negative" else ""
        return denied or lexeme.get(f"{variant}past")

    def adjective(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """Say a predicate; with `predicate` also its copula and its negation, if there are any.

        `новый`, `был новым`, `счастлива`, and states that are verbs: `грустит`, `устала`.
        """
        if "predicate" not in flags:
            return (self._predicative(lexeme, role, flags, clause),)
        words = [self._predicative(lexeme, role, flags, clause)]
        denied = clause.polarity == "negative" and clause.tense not in ("past", "future")
        if denied and lexeme.get("negated"):
            text = decline_adjective(lexeme.get("negated"), "nom", _shape(clause))
            return (Word(text, "ADJ", (role, "negation")),)
        if clause.tense in ("past", "future") and words[0].upos != "VERB":
            words[:0] = self._copula("copula", clause)
        if "drop" in flags:
            words[0] = words[0]._replace(roles=(*words[0].roles, "again"))
        negation = _negate(clause)
        if negation and words[0].text.startswith("не") and words[0].upos == "ADJ":
            negation.insert(0, Word("вовсе", "ADV"))  # `вовсе не неудобный`
        return (*negation, *words)

    def _predicative(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Word:
        person, number, gender = clause.subject
        if "comparative" in flags:
            return Word(lexeme.get("comparative"), "ADJ", (role,))
        past = clause.tense == "past"
        if lexeme.get("present"):
            if past:
                return Word(choose_past(lexeme.get("past"), gender, number), "VERB", (role,))
            return Word(choose_person(lexeme.get("present"), person, number), "VERB", (role,))
        if lexeme.get("now") and not past:
            return Word(choose_past(lexeme.get("now"), gender, number), "VERB", (role,))
        short = lexeme.get("short")
        if clause.polarity == "negative" and clause.tense == "present":
            short = lexeme.get("negated.short", short)  # `не хороша`; `нехорошая` is wicked
        if short:
            return Word(choose_past(short, gender, number), "ADJ", (role,))
        case = "ins" if clause.tense in ("past", "future") else "nom"
        return Word(decline_adjective(lexeme.text, case, _shape(clause)), "ADJ", (role,))

    def other(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:  # noqa: ARG002
        """Say adverbs, times, numbers; with `oclock` an hour: `в два часа`, `час`."""
        if "oclock" not in flags:
            return self.words_of(lexeme, role)
        front = (Word("в", "ADP", (role,)),) if "at" in flags else ()
        hour = self.lexicon["hour"]
        if lexeme.get("count") == "sg":
            return (*front, Word(hour.text, "NOUN", (role,)))
        forms = hour.get("sg" if lexeme.get("count") == "few" else "pl").split()
        unit = Word(forms[CASES.index("gen")], "NOUN", (role,))
        return (*front, *self.words_of(lexeme, role), unit)

    def element(self, name: str, role: str, flags: Flags, clause: Clause) -> Words:
        """Say the copula with its negation; in the present there is no copula."""
        if name == "negation":
            return tuple(_negate(clause))
        person, number, gender = clause.subject
        if name == "satisfied":
            return (Word(choose_past(_SATISFIED, gender, number), "ADJ", (role,)),)
        if "posture" in flags:
            posture = self.lexicon[clause.governor].get("posture", "lie")
            past, present = _POSTURES[posture]
            if clause.tense == "past":
                return (Word(choose_past(past, gender, number), "VERB", (role,)),)
            return (Word(choose_person(present, person, number), "VERB", (role,)),)
        words = self._copula(role, clause)
        if "existential" in flags:
            words = [word._replace(upos="VERB") for word in words]
        return (*_negate(clause), *words)

    def _copula(self, role: str, clause: Clause) -> list[Word]:
        person, number, gender = clause.subject
        if clause.tense == "past":
            # What has no subject is neuter: `было холодно`.
            return [Word(choose_past(_WAS, gender or "n", number), "AUX", (role,))]
        if clause.tense == "future":
            return [Word(choose_person(_WILL_BE, person, number), "AUX", (role,))]
        return []

    def finish(self, words: list[Word]) -> list[Word]:
        """Give в and с their vowel before clusters: `во Франции`, `со столом`, `со своей`."""
        for index in range(len(words) - 1):
            word = words[index]
            if word.upos == "ADP" and word.text in ("в", "с"):
                following = words[index + 1].text.lower()
                if _needs_vowel(word.text, following):
                    words[index] = word._replace(text=word.text + "о")
        return words


def _needs_vowel(preposition: str, following: str) -> bool:
    alike = "вф" if preposition == "в" else "сзшж"
    cluster = len(following) > 1 and following[1] not in _VOWELS + "ь"
    if preposition == "с" and (following[0] == "щ" or following.startswith("мн")):
        return True
    return following[0] in alike and cluster


def _shape(clause: Clause) -> str:
    """Return the gender, or `pl`, that a predicate takes from the subject."""
    return "pl" if clause.subject.number == "pl" else clause.subject.gender or "n"


def _negate(clause: Clause) -> list[Word]:
    if clause.polarity == "affirmative":
        return []
    return [Word("не", "PART", ("negation",))]


def _say_precipitation(lexeme: Lexeme, role: str, clause: Clause) -> Words:
    """`шёл дождь`, `снега не будет`: in the latter the noun alone says what the weather is."""
    tense = "present" if clause.tense == "progressive" else clause.tense
    denied = clause.polarity == "negative"
    words = []
    for text in lexeme.get(f"{tense}.negative" if denied else tense).split():
        if text == "не":
            words.extend(_negate(clause))
        elif text in ("было", "будет"):
            words.append(Word(text, "VERB", ("exist", role)))
        else:
            words.append(Word(text, "NOUN" if text in _PRECIPITATION else "VERB", (role,)))
    return tuple(words)


MORPHOLOGY = Russian
