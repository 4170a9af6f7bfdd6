"""Turkish suffixes: vowel harmony, buffer letters, devoicing, and the forms of nouns and verbs.

In: stems and suffix patterns such as `(y)I`, `DAn`, `lAr`. Out: written forms. In a pattern `A` is
a or e, `I` is ı i u ü, `D` is d or t; a letter in parentheses stands only where two vowels or two
consonants would meet.
"""

from __future__ import annotations

from typing import NamedTuple

VOWELS = "aâeıiîoöuûü"
_FRONT = "eiöüî"
_ROUND = "oöuûü"
_VOICELESS = "fstkçşhpx"
_LARGE = {ord("I"): "ı", ord("İ"): "i"}

CASES = {"acc": "(y)I", "dat": "(y)A", "loc": "DA", "abl": "DAn", "gen": "(n)In", "ins": "(y)lA"}
_CASES_AFTER_THIRD = {
    "acc": "nI",
    "dat": "nA",
    "loc": "ndA",
    "abl": "ndAn",
    "gen": "nIn",
    "ins": "(y)lA",
}
_POSSESSIVES = {
    "1sg": "(I)m",
    "2sg": "(I)n",
    "3sg": "(s)I",
    "1pl": "(I)mIz",
    "2pl": "(I)nIz",
    "3pl": "lArI",
}
_NOMINAL_ENDINGS = {"1sg": "(y)Im", "2sg": "sIn", "1pl": "(y)Iz", "2pl": "sInIz"}
_PAST_ENDINGS = {"1sg": "m", "2sg": "n", "1pl": "k", "2pl": "nIz"}


def lower(text: str) -> str:
    """Write in small letters: I becomes ı, İ becomes i."""
    return text.translate(_LARGE).lower()


def capitalize(text: str) -> str:
    """Write the first letter large: i becomes İ."""
    first = "İ" if text[:1] == "i" else text[:1].upper()
    return first + text[1:]


def last_vowel(text: str) -> str:
    """Return the last vowel of a word, small."""
    for letter in reversed(lower(text)):
        if letter in VOWELS:
            return letter
    return "e"


def attach(stem: str, suffix: str, front: bool = False, mark: str = "") -> str:
    """Write a suffix after a stem.

    `front`: the stem takes front vowels in spite of its own (saat, meşgul). `mark` comes between
    the two (the apostrophe of names).
    """
    ends_in_vowel = lower(stem)[-1] in VOWELS
    if suffix.startswith("("):
        buffer = suffix[1]
        suffix = suffix[3:]
        if ends_in_vowel != (buffer == "I"):
            suffix = buffer + suffix
    vowel = last_vowel(stem)
    is_front, is_round = front or vowel in _FRONT, vowel in _ROUND
    previous = lower(stem)[-1]
    written = ""
    for letter in suffix:
        if letter == "A":
            letter = "e" if is_front else "a"
            is_round = False
        elif letter == "I":
            letter = ("ü" if is_round else "i") if is_front else ("u" if is_round else "ı")
        elif letter == "D":
            letter = "t" if previous in _VOICELESS else "d"
        elif letter in VOWELS:
            is_front, is_round = letter in _FRONT, letter in _ROUND
        written += letter
        previous = letter
    return stem + mark + written


def _begins_with_vowel(stem: str, suffix: str) -> bool:
    if suffix.startswith("("):
        ends_in_vowel = lower(stem)[-1] in VOWELS
        return not ends_in_vowel and (suffix[1] == "I" or suffix[3] in "AI")
    return suffix[0] in "AI"


class Stem(NamedTuple):
    """What a word is inflected from."""

    hard: str
    soft: str = ""
    """The stem before a vowel, if it is another one: kitab-, gid-, oğl-."""
    front: bool = False

    def add(self, suffix: str) -> str:
        """Write a suffix after the stem, softened where a vowel follows."""
        soft = self.soft and _begins_with_vowel(self.hard, suffix)
        return attach(self.soft if soft else self.hard, suffix, self.front)


class NounStem(NamedTuple):
    """A common noun; `compound` is its form with -(s)I if that is how it is named (kol saati)."""

    stem: Stem
    compound: str = ""


def inflect_noun(noun: NounStem, number: str, possessor: str, case: str) -> str:
    """Return a form of a noun; possessor and case may be empty."""
    third = bool(noun.compound) or possessor.startswith("3")
    possessor = possessor or ("3sg" if noun.compound else "")
    if noun.compound and number == "sg" and possessor == "3sg":
        stem = Stem(noun.compound)
    else:
        stem = noun.stem
        if number == "pl":
            stem = Stem(stem.add("lAr"))
            possessor = "3sg" if possessor == "3pl" else possessor
        if possessor:
            stem = Stem(stem.add(_POSSESSIVES[possessor]))
            third = possessor.startswith("3")
    if not case:
        return stem.hard
    return stem.add((_CASES_AFTER_THIRD if third else CASES)[case])


def inflect_name(name: str, case: str) -> str:
    """Return a form of a proper name: an apostrophe before the suffix, no change of the stem."""
    return attach(name, CASES[case], mark="'") if case else name


def copula(word: str, person: str, past: bool, front: bool = False) -> str:
    """Return a noun or an adjective as a predicate: yorgunum, hastaydı."""
    if past:
        word = attach(word, "(y)DI", front)
        return attach(word, _PAST_ENDINGS[person]) if person in _PAST_ENDINGS else word
    ending = _NOMINAL_ENDINGS.get(person)
    return attach(word, ending, front) if ending else word


class VerbStem(NamedTuple):
    """A verb; `aorist` is the vowel of its aorist, A or I, where it is not the usual one."""

    stem: Stem
    aorist: str = ""

    @property
    def denied(self) -> Stem:
        """The denied stem: gelme-."""
        return Stem(self.stem.add("mA"))

    @property
    def wide(self) -> Stem:
        """The stem before -AcAk, -Abil, -AlIm: ye- becomes yi-."""
        return Stem("yi") if self.stem.hard == "ye" else self.stem


def _end(form: str, person: str, endings: dict[str, str]) -> str:
    if form.endswith("k") and endings is _NOMINAL_ENDINGS and person in ("1sg", "1pl"):
        form = form[:-1] + "ğ"  # gidecek, gideceğim
    return attach(form, endings[person]) if person in endings else form


def progressive(verb: VerbStem, negative: bool, person: str, past: bool = False) -> str:
    """Return -Iyor, and -Iyordu in the past: geliyor, istemiyordu, oynuyor."""
    stem = verb.stem
    if negative:
        form = attach(stem.hard + "m", "Iyor")
    elif stem.hard[-1] in "ae":
        short = stem.hard[:-1]
        form = "yiyor" if stem.hard == "ye" else attach(short, "Iyor")
    elif stem.hard[-1] in VOWELS:
        form = stem.hard + "yor"
    else:
        form = stem.add("Iyor")
    if past:
        return _end(form + "du", person, _PAST_ENDINGS)
    return _end(form, person, _NOMINAL_ENDINGS)


def past(verb: VerbStem, negative: bool, person: str) -> str:
    """Return -DI: geldi, gitmedim."""
    stem = verb.denied if negative else verb.stem
    return _end(stem.add("DI"), person, _PAST_ENDINGS)


def future(verb: VerbStem, negative: bool, person: str) -> str:
    """Return -(y)AcAk: gelecek, gitmeyeceğim."""
    stem = verb.denied if negative else verb.wide
    return _end(stem.add("(y)AcAk"), person, _NOMINAL_ENDINGS)


def aorist(verb: VerbStem, negative: bool, person: str) -> str:
    """Return the aorist: gider, okur, gelmez, gelmem."""
    stem = verb.stem
    if negative:
        base = stem.add("mA")
        if person == "1sg":
            return base + "m"
        if person == "1pl":
            return attach(base, "(y)Iz")
        return _end(base + "z", person, _NOMINAL_ENDINGS)
    if stem.hard[-1] in VOWELS:
        form = stem.hard + "r"
    else:
        short = sum(letter in VOWELS for letter in stem.hard) == 1
        form = stem.add((verb.aorist or ("A" if short else "I")) + "r")
    return _end(form, person, _NOMINAL_ENDINGS)


def infinitive(verb: VerbStem, case: str = "") -> str:
    """Return -mAk, or with a case -mA and the case: yüzmek, yüzmeyi."""
    return attach(verb.stem.add("mA"), CASES[case]) if case else verb.stem.add("mAk")


def participle(verb: VerbStem, person: str, case: str = "") -> str:
    """Return -DIğI with the possessive of the subject: geldiği, kaybettiğim, geldiğinde."""
    stem = Stem(verb.stem.add("DIk"))
    stem = Stem(stem.hard, stem.hard[:-1] + "ğ")
    form = stem.add(_POSSESSIVES.get(person, "(s)I"))
    if not case:
        return form
    return attach(form, (_CASES_AFTER_THIRD if person.startswith("3") else CASES)[case])


def able(verb: VerbStem, negative: bool, person: str, was: bool) -> str:
    """Return -(y)AbIliyor, -(y)AmIyor: yüzebiliyor, yüzemiyordum."""
    suffix = "(y)A" if negative else "(y)Abil"
    return progressive(VerbStem(Stem(verb.wide.add(suffix))), negative, person, was)


def must(verb: VerbStem, person: str) -> str:
    """Return -mAlI: temizlemeliyim."""
    return _end(verb.stem.add("mAlI"), person, _NOMINAL_ENDINGS)


def lets(verb: VerbStem) -> str:
    """Return -(y)AlIm: gidelim."""
    return verb.wide.add("(y)AlIm")
