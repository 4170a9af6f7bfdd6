"""Closed classes and regular endings of Russian: pronouns, possessives, adjectives, numerals.

In: a dictionary form with case, gender, number and animacy. Out: the inflected form. Nouns and
verbs come with all their forms from `data/lexicon/ru.tsv`; only what is regular is made here.
"""

from __future__ import annotations

from functools import cache

CASES = ("nom", "gen", "dat", "acc", "ins", "prep")
"""Order of the forms of a noun in the lexicon; `loc` is the prepositional after в and на."""

_PRONOUNS = {
    "1sg": "я меня мне меня мной мне",
    "2sg": "ты тебя тебе тебя тобой тебе",
    "1pl": "мы нас нам нас нами нас",
    "2pl": "вы вас вам вас вами вас",
    "3m": "он его ему его им нём",
    "3f": "она её ей её ей ней",
    "3n": "оно его ему его им нём",
    "3pl": "они их им их ими них",
}
_POSSESSIVES = {"1sg": "мо", "2sg": "тво", "refl": "сво", "1pl": "наш", "2pl": "ваш"}
FOREIGN_POSSESSIVES = {"3sg.m": "его", "3sg.f": "её", "3sg": "его", "3pl": "их"}
"""Possessives that never change."""

_ENDINGS = {
    "hard": {
        "m": "ый ого ому ый ым ом",
        "f": "ая ой ой ую ой ой",
        "n": "ое ого ому ое ым ом",
        "pl": "ые ых ым ые ыми ых",
    },
    "velar": {
        "m": "ий ого ому ий им ом",
        "f": "ая ой ой ую ой ой",
        "n": "ое ого ому ое им ом",
        "pl": "ие их им ие ими их",
    },
    "hushing": {
        "m": "ий его ему ий им ем",
        "f": "ая ей ей ую ей ей",
        "n": "ее его ему ее им ем",
        "pl": "ие их им ие ими их",
    },
    "soft": {
        "m": "ий его ему ий им ем",
        "f": "яя ей ей юю ей ей",
        "n": "ее его ему ее им ем",
        "pl": "ие их им ие ими их",
    },
}
_MINE = {
    "m": "й его ему й им ём",
    "f": "я ей ей ю ей ей",
    "n": "ё его ему ё им ём",
    "pl": "и их им и ими их",
}
_OUR = {
    "m": " его ему  им ем",
    "f": "а ей ей у ей ей",
    "n": "е его ему е им ем",
    "pl": "и их им и ими их",
}
_THIS = {
    "m": "этот этого этому этот этим этом",
    "f": "эта этой этой эту этой этой",
    "n": "это этого этому это этим этом",
    "pl": "эти этих этим эти этими этих",
}


def _cell(case: str, gender: str, animate: bool) -> int:
    """Return the column of a modifier; the accusative of living beings is their genitive."""
    if case == "loc":
        return CASES.index("prep")
    if case == "acc" and animate and gender in ("m", "pl"):
        return CASES.index("gen")
    return CASES.index(case)


@cache
def decline_adjective(lemma: str, case: str, gender: str, animate: bool = False) -> str:
    """Inflect an adjective such as `новый`, `большой`, `синий`, `свежий`; gender `m f n pl`."""
    stem, ending = lemma[:-2], lemma[-2:]
    column = _cell(case, gender, animate)
    if gender == "m" and column in (0, 3):
        return lemma
    if stem[-1] in "гкх" or (ending == "ой" and stem[-1] in "жшщч"):
        table = "velar"
    elif stem[-1] in "жшщч":
        table = "hushing"
    else:
        table = "soft" if ending == "ий" else "hard"
    return stem + _ENDINGS[table][gender].split()[column]


@cache
def decline_possessive(person: str, case: str, gender: str, animate: bool = False) -> str:
    """Inflect `мой`, `наш`, `свой`; `его`, `её` and `их` stay as they are."""
    if person in FOREIGN_POSSESSIVES:
        return FOREIGN_POSSESSIVES[person]
    stem = _POSSESSIVES[person]
    table = _MINE if stem.endswith("о") else _OUR
    return stem + table[gender].split(" ")[_cell(case, gender, animate)]


@cache
def decline_this(case: str, gender: str, animate: bool = False) -> str:
    """Inflect `этот`."""
    return _THIS[gender].split()[_cell(case, gender, animate)]


@cache
def decline_pronoun(key: str, case: str, after_preposition: bool) -> str:
    """Inflect a personal pronoun; after a preposition `его` becomes `него`."""
    form = _PRONOUNS[key].split()[_cell(case, "n", animate=False)]
    third = key.startswith("3") and case != "nom" and not form.startswith("н")
    return "н" + form if after_preposition and third else form


def choose_past(forms: str, gender: str, number: str) -> str:
    """Choose among `m f n pl`; who or what has no gender counts as masculine."""
    return forms.split()[3 if number == "pl" else "mfn".find(gender or "m")]


def choose_person(forms: str, person: str, number: str) -> str:
    """Choose among the six forms of the present or the future."""
    return forms.split()[int(person) - 1 + (3 if number == "pl" else 0)]


def count_years(number: int) -> str:
    """Return the word for `years` after a number: 21 год, 22 года, 25 лет."""
    if number % 100 in (11, 12, 13, 14) or number % 10 in (0, 5, 6, 7, 8, 9):
        return "лет"
    return "год" if number % 10 == 1 else "года"
