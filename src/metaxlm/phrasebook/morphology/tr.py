"""Turkish: cases, possessives, the forms of the verb, predicates without a verb, subjects unsaid.

In: phrases and lexicon entries with the features `soft front iz raw` (nouns) and `soft aorist
object alt altsoft habit past intr short broken` (verbs). Out: words. Personal pronouns that are
subjects or owners are left unsaid; an empty word stands for them until `finish` gives their role
to the next word that shows their person.
"""

from __future__ import annotations

from typing import ClassVar

from metaxlm.phrasebook.lexicon import Lexeme, parse_words
from metaxlm.phrasebook.meaning import Agreement, Clause, Phrase, Word
from metaxlm.phrasebook.morphology import tr_suffixes as forms
from metaxlm.phrasebook.morphology.base import Flags, Morphology, Words
from metaxlm.phrasebook.morphology.tr_suffixes import NounStem, Stem, VerbStem

_SHOWS_PERSON = "&"
"""Role of words that show the person of their subject; removed in the end."""
_CASE_FLAGS = ("acc", "dat", "loc", "abl", "gen", "ins")
_COPULA_FLAGS = ("predicate", "predicate2")
_FLAGS = (
    "subject overt object bare owned compound acc dat loc abl gen ins predicate predicate2 "
    "comparative finite iyor iyordu infinitive pastime able must command lets because when "
    "short question oclock broken"
)


class Turkish(Morphology):
    """Inflection of Turkish."""

    language: ClassVar[str] = "tr"
    flags: ClassVar[frozenset[str]] = frozenset(_FLAGS.split())
    elements: ClassVar[frozenset[str]] = frozenset({"exist", "being", "aged", "pleased", "will_be"})

    # ---- nouns -------------------------------------------------------------------------------

    def noun_phrase(self, phrase: Phrase, role: str, flags: Flags, clause: Clause) -> Words:
        """`yeni bir araba`, `arabasını`, `Anna'ya`, `üç elma`; an empty word for `she`."""
        kind = self.concepts[phrase.concept].kind
        case = next((flag for flag in flags if flag in _CASE_FLAGS), "")
        if phrase.pronoun or kind == "pronoun":
            if "overt" in flags:
                text = "o" if kind != "pronoun" else self.lexicon[phrase.concept].text
                return (Word(text, "PRON", (role,)),)
            if "subject" in flags or case == "gen":
                return (Word("", "PRON", (role,)),)
            return (Word(self._pronoun(phrase, case or "acc"), "PRON", (role,)),)
        lexeme = self.lexicon[phrase.concept]
        if "object" in flags:
            phrase, case = self._as_object(phrase, clause, case)
        if self.concepts[phrase.concept].entity:
            words = list(self.words_of(lexeme, role))
            words[-1] = words[-1]._replace(text=forms.inflect_name(words[-1].text, case))
        elif "bare" in flags or kind in ("sport", "tongue", "meal", "day", "unit"):
            words = self._noun(phrase._replace(number="sg", possessor=""), role, case)
        else:
            words = self._full(phrase, role, flags, case, clause)
        for flag in _COPULA_FLAGS:
            if flag in flags:
                return self._predicate(words, clause, "copula2" if flag[-1] == "2" else "copula")
        return tuple(words)

    def _as_object(self, phrase: Phrase, clause: Clause, asked: str) -> tuple[Phrase, str]:
        """Return what an object looks like, and its case; bare if nothing particular is meant."""
        verb = self.lexicon.get(clause.governor)
        governed = asked or (verb.get("object") if verb else "")
        kind = self.concepts[phrase.concept].kind
        mass = kind in ("food", "beverage")
        if phrase.definiteness == "generic":
            number = "sg" if mass else "pl"
            return phrase._replace(number=number), governed or ("" if mass else "acc")
        if phrase.definiteness != "indef" or phrase.possessor:
            return phrase, governed or "acc"
        if phrase.number == "pl" and not phrase.numeral:
            denied = clause.polarity == "negative"
            plural = kind in ("person", "animal") or (phrase.adjective and not mass)
            if (denied or not plural) and governed != "acc":
                # `kitap okudu` read books: neither number nor article
                phrase = phrase._replace(number="sg", definiteness="generic")
        return phrase, governed

    def _full(
        self, phrase: Phrase, role: str, flags: Flags, case: str, clause: Clause
    ) -> list[Word]:
        words: list[Word] = []
        single = phrase.number == "sg" and "mass" not in self.concepts[phrase.concept].labels
        indefinite = phrase.definiteness == "indef" and single
        if indefinite and clause.polarity == "negative" and not phrase.adjective:
            indefinite = False
        if phrase.definiteness == "this":
            words.append(Word("bu", "DET", (role,)))
        if phrase.numeral:
            numeral = f"{role}.numeral"
            words.extend(self.words_of(self.lexicon[phrase.numeral], numeral))
            phrase = phrase._replace(number="sg")
        if phrase.adjective:
            words.extend(self.words_of(self.lexicon[phrase.adjective], f"{role}.adjective"))
        if indefinite:
            words.append(Word("bir", "DET", (role,)))
        if "owned" in flags:
            owner = f"{clause.subject.person}{clause.subject.number}"
            words.extend(self._noun(phrase._replace(possessor=owner), role, case))
            words[-1] = words[-1]._replace(roles=(role, _SHOWS_PERSON))
        elif "compound" in flags:
            words.extend(self._noun(phrase._replace(possessor="3sg"), role, case))
            words[-1] = words[-1]._replace(roles=(role,))
        else:
            words.extend(self._noun(phrase, role, case, clause.governor))
        return words

    def _noun(self, phrase: Phrase, role: str, case: str, governor: str = "") -> list[Word]:
        lexeme = self.lexicon[phrase.concept]
        if governor == "buy" and lexeme.get("raw"):
            soft = lexeme.get("rawsoft")
            lexeme = Lexeme(lexeme.concept, ((lexeme.get("raw"), "NOUN"),), {"soft": soft})
        words = list(self.words_of(lexeme, role))
        head, front = lexeme.get("iz") or words[-1].text, bool(lexeme.get("front"))
        noun = NounStem(
            Stem(head, lexeme.get("soft"), front), words[-1].text if lexeme.get("iz") else ""
        )
        possessor = phrase.possessor.removesuffix(".refl")[:3]
        text = forms.inflect_noun(noun, phrase.number, possessor, case)
        roles = (role, f"{role}.possessor") if possessor else (role,)
        words[-1] = words[-1]._replace(text=text, roles=roles)
        return words

    def _pronoun(self, phrase: Phrase, case: str) -> str:
        stem = "onlar" if phrase.number == "pl" else "o"
        if stem == "onlar":
            return forms.attach(stem, forms.CASES[case])
        return {
            "acc": "onu",
            "dat": "ona",
            "loc": "onda",
            "abl": "ondan",
            "gen": "onun",
            "ins": "onunla",
        }[case]

    # ---- predicates without a verb -----------------------------------------------------------

    def _predicate(
        self, words: list[Word], clause: Clause, role: str, front: bool = False
    ) -> Words:
        """`yorgunum`, `yorgun değildi`, `soğuk olacak`."""
        person, last = _person(clause.subject), words[-1]
        was = clause.tense == "past"
        if clause.tense == "future":
            will_be = self.element("will_be", role, (), clause)
            return (*words, *will_be)
        if clause.polarity == "negative":
            text = forms.copula("değil", person, was)
            return (*words, Word(text, "AUX", ("negation", role, _SHOWS_PERSON)))
        text = forms.copula(last.text, person, was, front)
        roles = (*last.roles, role) if text != last.text else last.roles
        return (*words[:-1], last._replace(text=text, roles=(*roles, _SHOWS_PERSON)))

    def adjective(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """`eski`, `daha eski`; with `predicate` as `_predicate` says it."""
        words = list(self.words_of(lexeme, role))
        if "comparative" in flags:
            words.insert(0, Word("daha", "ADV", ("degree", role)))
        for flag in _COPULA_FLAGS:
            if flag in flags:
                copula = "copula2" if flag[-1] == "2" else "copula"
                return self._predicate(words, clause, copula, bool(lexeme.get("front")))
        return tuple(words)

    def other(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """Say times (`sabahları` of a habit), hours (`saat sekizde`), relations, weather."""
        words = list(self.words_of(lexeme, role))
        if lexeme.get("habit") and clause.tense == "present":
            words[-1] = words[-1]._replace(text=lexeme.get("habit"))
        if "oclock" in flags:
            words.insert(0, Word("saat", "NOUN", ("clock", role)))
            if "loc" in flags:
                words[-1] = words[-1]._replace(text=forms.attach(words[-1].text, "DA"))
        if "predicate" in flags:
            return self._predicate(words, clause, "copula")
        return tuple(words)

    def element(self, name: str, role: str, flags: Flags, clause: Clause) -> Words:  # noqa: ARG002
        """Say `var` and `yok`, `olduğu` (being), `yaşında` (aged), `memnun`, `olacak`."""
        person, denied = _person(clause.subject), clause.polarity == "negative"
        negation = ("negation",) if denied else ()
        if name == "exist":
            text = forms.copula("yok" if denied else "var", "", clause.tense == "past")
            return (Word(text, "NOUN", (role, *negation)),)
        if name == "being":
            text = forms.participle(VerbStem(Stem("ol")), person)
            return (Word(text, "AUX", ("copula", role)),)
        if name == "pleased":
            return self._predicate([Word("memnun", "ADJ", (role,))], clause, "copula")
        if name == "aged":
            text = forms.copula("yaşında", person, clause.tense == "past")
            return (Word(text, "NOUN", (role, "old", "copula", _SHOWS_PERSON)),)
        text = forms.future(VerbStem(Stem("ol")), denied, person)
        return (Word(text, "AUX", (role, *negation, _SHOWS_PERSON)),)

    # ---- verbs -------------------------------------------------------------------------------

    def verb(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """`aldı`, `gitmeyecek`, `tamir ediyorum`; flags give infinitives and participles."""
        if lexeme.concept in ("have", "need"):
            return self._have(lexeme, role, clause)
        words, stem = self._verb_words(lexeme, flags, clause)
        denied = clause.polarity == "negative"
        negation = ("negation",) if denied else ()
        text, roles = self._nonfinite(stem, role, flags, clause)
        if text:
            return _with_last(words, role, text, roles)
        if "question" in flags:
            particle = Word(forms.attach("mi", "sIn"), "AUX", (role, _SHOWS_PERSON))
            text = forms.aorist(stem, denied, "3sg")
            return (*_with_last(words, role, text, (role, *negation)), particle)
        if "able" in flags:
            text = forms.able(stem, denied, _person(clause.subject), clause.tense == "past")
            return _with_last(words, role, text, (role, "verb", *negation, _SHOWS_PERSON))
        if "must" in flags:
            text = forms.must(stem, _person(clause.subject))
            return _with_last(words, role, text, (role, "verb", _SHOWS_PERSON))
        text = _finite(stem, lexeme, flags, clause)
        return _with_last(words, role, text, (role, *negation, _SHOWS_PERSON))

    def _nonfinite(
        self, stem: VerbStem, role: str, flags: Flags, clause: Clause
    ) -> tuple[str, tuple[str, ...]]:
        person = _person(clause.subject)
        if "infinitive" in flags or "short" in flags:
            return forms.infinitive(stem), (role,)
        if "pastime" in flags:
            return forms.infinitive(stem, "acc"), (role,)
        if "because" in flags:
            return forms.participle(stem, person), (role, "again")
        if "when" in flags:
            return forms.participle(stem, person, "loc"), (role, "when", _SHOWS_PERSON)
        if "command" in flags:
            return stem.stem.hard, (role,)
        if "lets" in flags:
            return forms.lets(stem), (role, "let")
        return "", ()

    def _verb_words(
        self, lexeme: Lexeme, flags: Flags, clause: Clause
    ) -> tuple[tuple[tuple[str, str], ...], VerbStem]:
        """Choose the verb: some objects ask for another one, a pastime for `read books`."""
        words, soft = lexeme.words, lexeme.get("soft")
        other, _, objects = lexeme.get("alt").partition(":")
        if clause.governor and clause.governor in objects.split(","):
            words, soft = parse_words(other, "VERB", lexeme.concept), lexeme.get("altsoft")
        elif "pastime" in flags and lexeme.get("intr"):
            words = parse_words(lexeme.get("intr"), "VERB", lexeme.concept)
        elif "short" in flags and lexeme.get("short"):
            words = parse_words(lexeme.get("short"), "VERB", lexeme.concept)
        elif "broken" in flags:
            words = parse_words(lexeme.get("broken"), "VERB", lexeme.concept)
        return words, VerbStem(Stem(words[-1][0], soft), lexeme.get("aorist"))

    def _have(self, lexeme: Lexeme, role: str, clause: Clause) -> Words:
        denied, words = clause.polarity == "negative", []
        if lexeme.concept == "need":
            owner = f"{clause.subject.person}{clause.subject.number}"
            noun = NounStem(Stem("ihtiyaç", "ihtiyac"))
            text = forms.inflect_noun(noun, "sg", owner, "")
            words.append(Word(text, "NOUN", (role, _SHOWS_PERSON)))
        roles = (role, "negation") if denied else (role,)
        text = forms.copula("yok" if denied else "var", "", clause.tense == "past")
        return (*words, Word(text, "NOUN", roles))

    # ---- the whole sentence ------------------------------------------------------------------

    def finish(self, words: list[Word]) -> list[Word]:
        """Let the words that show the person stand for the pronouns left unsaid."""
        finished: list[Word] = []
        unsaid = ""
        for word in words:
            if not word.text:
                unsaid = word.roles[0]
                continue
            if _SHOWS_PERSON in word.roles:
                own = tuple(role for role in word.roles if role != _SHOWS_PERSON)
                if unsaid and unsaid not in own:
                    own = (*own, unsaid)
                word = word._replace(roles=own)
                unsaid = ""
            if finished and _needs_comma(finished[-1], word):
                finished.append(Word(",", "PUNCT", ("comma",), glue=True))
            finished.append(word)
        return finished

    def capitalize(self, text: str) -> str:
        """Write the first letter large: i becomes İ."""
        return forms.capitalize(text)

    def lower(self, text: str) -> str:
        """Write in small letters: I becomes ı."""
        return forms.lower(text)


def _person(subject: Agreement) -> str:
    """Return the person a form shows; a plural third person that is named takes the singular."""
    return "3sg" if subject.person == "3" else f"{subject.person}{subject.number}"


def _finite(stem: VerbStem, lexeme: Lexeme, flags: Flags, clause: Clause) -> str:
    person, denied = _person(clause.subject), clause.polarity == "negative"
    was = clause.tense == "past"
    if "iyordu" in flags or (was and lexeme.get("past") == "iyordu"):
        return forms.progressive(stem, denied, person, past=True)
    if was:
        return forms.past(stem, denied, person)
    if clause.tense == "future":
        return forms.future(stem, denied, person)
    if clause.tense == "progressive" or "iyor" in flags or lexeme.get("habit") == "iyor":
        return forms.progressive(stem, denied, person)
    return forms.aorist(stem, denied, person)


def _with_last(
    words: tuple[tuple[str, str], ...], role: str, text: str, roles: tuple[str, ...]
) -> Words:
    """Return the words of a verb, the last of them inflected."""
    before = tuple(Word(word, tag, (role,)) for word, tag in words[:-1])
    return (*before, Word(text, words[-1][1], roles))


def _needs_comma(left: Word, right: Word) -> bool:
    """Say whether `öğretmen` and `Peter'e` would be read as one person, teacher Peter."""
    if left.roles[:1] != ("agent",) or right.roles[:1] == ("agent",):
        return False
    return right.entity == "PER" or (right.entity == "ORG" and left.entity == "PER")


MORPHOLOGY = Turkish
