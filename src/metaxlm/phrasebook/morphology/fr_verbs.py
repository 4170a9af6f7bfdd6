"""French verbs: simple and compound tenses, agreement of the participle, negation, clitics.

In: a lexicon entry with `je il nous ils participle future aux reflexive past`, and the clause.
Out: words in order, such as `ne s'est pas reposée`.
"""

from __future__ import annotations

from metaxlm.phrasebook.lexicon import Lexeme
from metaxlm.phrasebook.meaning import Agreement, Clause, Word
from metaxlm.phrasebook.morphology.base import Flags, Words

_FUTURE = ("ai", "as", "a", "ons", "ont")
_IMPERFECT = ("ais", "ais", "ait", "ions", "aient")
_REFLEXIVES = ("me", "te", "se", "nous", "se")
_PRESENT = {
    "être": ("suis", "es", "est", "sommes", "sont"),
    "avoir": ("ai", "as", "a", "avons", "ont"),
    "faire": ("fais", "fais", "fait", "faisons", "font"),
}
_STEMS = {"être": ("ét", "ser"), "avoir": ("av", "aur"), "faire": ("fais", "fer")}
"""Stems of the imperfect and of the future."""


def _column(subject: Agreement) -> int:
    if subject.number == "pl":
        return 3 if subject.person == "1" else 4
    return int(subject.person) - 1


def conjugate_auxiliary(verb: str, tense: str, subject: Agreement) -> str:
    """Return a form of être, avoir or faire in the `present`, `imperfect` or `future`."""
    column = _column(subject)
    if tense == "present":
        return _PRESENT[verb][column]
    imperfect, future = _STEMS[verb]
    return imperfect + _IMPERFECT[column] if tense == "imperfect" else future + _FUTURE[column]


def _conjugate(lexeme: Lexeme, tense: str, subject: Agreement) -> str:
    column = _column(subject)
    if tense == "future":
        return lexeme.get("future") + _FUTURE[column]
    if tense == "imperfect":
        stem = lexeme.get("nous").removesuffix("ons")
        ending = _IMPERFECT[column]
        return (stem.removesuffix("e") if ending[0] == "i" else stem) + ending
    key = ("je", "tu", "il", "nous", "ils")[column]
    return lexeme.get(key) or lexeme.get("je") + "s"


def agree_participle(lexeme: Lexeme, agreement: Agreement) -> str:
    """Return the participle in gender and number: `allé`, `allée`, `allés`, `allées`."""
    text = lexeme.get("participle")
    if agreement.gender == "f":
        text += "e"
    return text + "s" if agreement.number == "pl" and text[-1] != "s" else text


def negate(words: list[Word], polarity: str) -> list[Word]:
    """Put `ne` in front and `pas` at the end, if the clause denies something."""
    if polarity == "affirmative":
        return words
    ne, pas = (Word(text, "ADV", ("negation",)) for text in ("ne", "pas"))
    return [ne, *words, pas]


def reflexive_pronoun(lexeme: Lexeme, role: str, subject: Agreement) -> Words:
    """Return `me`, `se`, `nous` if the verb needs it."""
    if not lexeme.get("reflexive"):
        return ()
    return (Word(_REFLEXIVES[_column(subject)], "PRON", ("reflexive", role)),)


def say_verb(lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
    """Return the finite verb with its clitics, negation and participle."""
    subject = clause.subject
    clitic = reflexive_pronoun(lexeme, role, subject)
    infinitive = Word(lexeme.words[0][0], "VERB", (role,))
    if "imperative" in flags:
        return (infinitive._replace(text=lexeme.get("il")),)
    if "ongoing" in flags and clause.tense == "progressive" and clause.polarity == "affirmative":
        return (
            Word(conjugate_auxiliary("être", "present", subject), "AUX", (role,)),
            Word("en", "ADP", (role,)),
            Word("train", "NOUN", ("ongoing", role)),
            Word("de", "ADP", (role,)),
            *clitic,
            infinitive,
        )
    if clause.tense != "past" or lexeme.get("past") == "imperfect" or "imperfect" in flags:
        tense = {"past": "imperfect", "future": "future"}.get(clause.tense, "present")
        finite = infinitive._replace(text=_conjugate(lexeme, tense, subject))
        return tuple(negate([*clitic, finite], clause.polarity))
    with_be = bool(clitic) or lexeme.get("aux") == "être"
    participle = agree_participle(lexeme, subject if with_be else Agreement())
    if "participle" in flags:
        participle = agree_participle(lexeme, subject)
        return (infinitive._replace(text=participle),)
    helper = conjugate_auxiliary("être" if with_be else "avoir", "present", subject)
    front = negate([*clitic, Word(helper, "AUX", (role,))], clause.polarity)
    if "auxiliary" in flags:
        return tuple(front)
    return (*front, infinitive._replace(text=participle))
