"""French: articles and partitives, agreement, adjective position, `ne ... pas`, compound tenses.

In: phrases and lexicon entries with the features `gender plural feminine number at to` (nouns),
`feminine plural vowel pre invariable predicate degree comparative` (adjectives), `je il nous ils
participle future aux reflexive past` (verbs), `article gender` (names), `verb` (weather),
`future` (times), `hour feminine` (numbers), and `alt`, `alt.*` (see `variants`). Out: words.
The past is the passé composé, except for verbs marked `past=imperfect`. Elision and the
contractions of `à` and `de` are made in `finish`, when the neighbors are known.
"""

from __future__ import annotations

from typing import ClassVar

from metaxlm.phrasebook.lexicon import Lexeme, parse_words
from metaxlm.phrasebook.meaning import Agreement, Clause, Phrase, Word
from metaxlm.phrasebook.morphology.base import Flags, Morphology, Words
from metaxlm.phrasebook.morphology.contraction import contract
from metaxlm.phrasebook.morphology.fr_verbs import (
    conjugate_auxiliary,
    negate,
    reflexive_pronoun,
    say_verb,
)
from metaxlm.phrasebook.morphology.variants import choose_variant

_FLAGS = (
    "subject object clitic at to from of with by for bare neg no finite infinitive imperative "
    "imperfect ongoing auxiliary participle head tail comparative degree oclock have before after "
    "again"
)
_SUBJECTS = {
    "1sg": "je",
    "2sg": "tu",
    "3sg.m": "il",
    "3sg.f": "elle",
    "1pl": "nous",
    "3pl.m": "ils",
    "3pl.f": "elles",
}
_CLITICS = {"3sg.m": "le", "3sg.f": "la", "3pl.m": "les", "3pl.f": "les"}
_POSSESSIVES = {
    "1sg": ("mon", "ma", "mes"),
    "2sg": ("ton", "ta", "tes"),
    "3sg": ("son", "sa", "ses"),
    "1pl": ("notre", "notre", "nos"),
    "3pl": ("leur", "leur", "leurs"),
}
_PREPOSITIONS = {"with": "avec", "by": "en", "for": "pour", "of": "de", "from": "de"}
_VOWELS = frozenset("aeiouhàâæéèêëîïôœùûAEIOUHÀÂÆÉÈÊËÎÏÔŒÙÛ")
_ASPIRATED = frozenset({"haut", "haute", "hauts", "hautes", "huit", "onze", "Hambourg"})
"""Words that begin with a vowel or an `h` in writing and yet suffer no elision before them."""
_ELIDED = {
    "le": "l'",
    "la": "l'",
    "de": "d'",
    "ne": "n'",
    "que": "qu'",
    "je": "j'",
    "me": "m'",
    "te": "t'",
    "se": "s'",
}
_CONTRACTIONS = {
    ("à", "le"): "au",
    ("à", "les"): "aux",
    ("de", "le"): "du",
    ("de", "les"): "des",
}


def starts_with_vowel(text: str) -> bool:
    """Say whether `le` is elided before a word."""
    return text == "y" or (text[0] in _VOWELS and text not in _ASPIRATED)


class French(Morphology):
    """Inflection of French."""

    language: ClassVar[str] = "fr"
    flags: ClassVar[frozenset[str]] = frozenset(_FLAGS.split())

    def noun_phrase(self, phrase: Phrase, role: str, flags: Flags, clause: Clause) -> Words:
        """`le vieil homme`, `elle`, `au parc`, `de Paul`, `en train`, `pas de fleurs`."""
        lexeme = self.lexicon[phrase.concept]
        concept = self.concepts[phrase.concept]
        if phrase.pronoun or concept.kind == "pronoun":
            return (self._pronoun(phrase, role, flags),)
        preposition = self._preposition(phrase, lexeme, flags)
        words = [Word(preposition, "ADP", (role,))] if preposition else []
        if concept.entity:
            article = self._article_of_name(lexeme, preposition)
            if article:
                proper = article[0].isupper()
                words.append(
                    Word(article, "PROPN" if proper else "DET", (role,), "LOC" if proper else "")
                )
            words.extend(self.words_of(lexeme, role))
        else:
            words.extend(self._full(phrase, lexeme, role, flags, clause))
        return tuple(words)

    def _preposition(self, phrase: Phrase, lexeme: Lexeme, flags: Flags) -> str:
        concept = self.concepts[phrase.concept]
        for flag in flags:
            if flag in _PREPOSITIONS:
                return _PREPOSITIONS[flag]
            if flag not in ("at", "to"):
                continue
            if concept.kind == "country_name":
                return "à" if lexeme.get("gender") == "m" else "en"
            preposition = lexeme.get(flag, "à")
            vague = concept.kind == "place" and phrase.definiteness != "def"
            return "dans" if vague and preposition == "à" else preposition
        return ""

    def _article_of_name(self, lexeme: Lexeme, preposition: str) -> str:
        """`le Japon` after à and de, but `en France`; `Le Caire`, which contracts: `au Caire`."""
        kind = self.concepts[lexeme.concept].kind
        if kind == "country_name":
            return "le" if lexeme.get("gender") == "m" else ""
        article = lexeme.get("article")
        if kind == "city_name" and article and preposition not in ("à", "de"):
            return article.capitalize()
        return article

    def _full(
        self, phrase: Phrase, lexeme: Lexeme, role: str, flags: Flags, clause: Clause
    ) -> list[Word]:
        agreement = self.agreement(phrase)
        rest = self._noun(phrase, lexeme, role, agreement.number)
        leading = False
        if phrase.adjective:
            adjective = self.lexicon[phrase.adjective]
            leading = bool(adjective.get("pre"))
            elided = leading and starts_with_vowel(rest[0].text)
            said = _inflect(adjective, f"{role}.adjective", agreement, elided)
            rest = [*said, *rest] if leading else [*rest, *said]
        if phrase.numeral:
            numeral = self.lexicon[phrase.numeral].text
            return [Word(numeral, "NUM", (f"{role}.numeral",)), *rest]
        if "bare" in flags or "by" in flags or self.concepts[phrase.concept].kind == "unit":
            return rest
        vowel = starts_with_vowel(rest[0].text)
        if phrase.possessor:
            forms = _POSSESSIVES[phrase.possessor[:3]]
            column = 2 if agreement.number == "pl" else agreement.gender == "f" and not vowel
            return [Word(forms[column], "DET", (f"{role}.possessor",)), *rest]
        denied = "no" in flags or ("neg" in flags and clause.polarity == "negative")
        if phrase.definiteness == "indef":
            after_de = "of" in flags or "from" in flags
            determiner = self._indefinite(phrase, agreement, vowel, leading, denied, after_de)
        else:
            determiner = [_definite(phrase.definiteness == "this", agreement, vowel)]
        return [*(Word(text, "DET", (role,)) for text in determiner), *rest]

    def _indefinite(
        self,
        phrase: Phrase,
        agreement: Agreement,
        vowel: bool,
        leading: bool,
        denied: bool,
        after_de: bool,
    ) -> list[str]:
        """`un`, `des`, `du`, `de la`, `de l'`; `de` after a negation or before an adjective."""
        if denied and not after_de:
            return ["de"]
        feminine = agreement.gender == "f"
        uncounted = "mass" in self.concepts[phrase.concept].labels
        if agreement.number == "sg" and not uncounted:
            return ["une" if feminine else "un"]
        if after_de:
            return []
        if agreement.number == "pl":
            return ["de" if leading else "des"]
        if feminine or vowel:
            return ["de", "la" if feminine else "le"]
        return ["du"]

    def _noun(self, phrase: Phrase, lexeme: Lexeme, role: str, number: str) -> list[Word]:
        texts = [text for text, _ in lexeme.words]
        if phrase.gender == "f" and lexeme.get("feminine"):
            texts = [
                _pluralize(lexeme.get("feminine")) if number == "pl" else lexeme.get("feminine")
            ]
        elif number == "pl" and not lexeme.get("number"):
            texts = lexeme.get("plural").split() or [_pluralize(texts[0]), *texts[1:]]
        return [
            Word(text, tag, (role,)) for text, (_, tag) in zip(texts, lexeme.words, strict=True)
        ]

    def agreement(self, phrase: Phrase) -> Agreement:
        """Agree with the noun's number where it is fixed (`les échecs`)."""
        found = super().agreement(phrase)
        number = self.lexicon[phrase.concept].get("number")
        return found._replace(number=number) if number else found

    def _pronoun(self, phrase: Phrase, role: str, flags: Flags) -> Word:
        person, number, gender = self.agreement(phrase)
        key = f"{person}{number}"
        if person == "3":
            key = f"{key}.{gender}"
        return Word((_CLITICS if "clitic" in flags else _SUBJECTS)[key], "PRON", (role,))

    def adjective(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """`vieille`; with `comparative` `plus vieille`, with `degree` after très or trop."""
        if "comparative" in flags:
            adverb = lexeme.get("comparative.adverb", "plus")
            said = _inflect(_form_for(lexeme, "comparative"), role, clause.subject)
            return (Word(adverb, "ADV", (role,)), *said)
        lexeme = _form_for(lexeme, "degree" if "degree" in flags else "predicate")
        return tuple(_inflect(lexeme, role, clause.subject))

    def other(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """Say adverbs, times, numbers and weather (`du vent`, denied: `de vent`)."""
        if "oclock" in flags:
            return _hour(lexeme, role, "at" in flags)
        if clause.tense == "future" and lexeme.get("future"):
            parsed = parse_words(lexeme.get("future"), "NOUN", lexeme.concept)
            return tuple(Word(text, tag, (role,)) for text, tag in parsed)
        words = self.words_of(lexeme, role)
        if lexeme.get("verb") == "avoir" and clause.polarity == "negative":
            return (words[0]._replace(text="de"), *words[1:])
        # `il y a` in `il y a deux jours` only marks the time
        return tuple(
            w._replace(roles=("ago", role)) if w.upos in ("PRON", "VERB") else w for w in words
        )

    def element(self, name: str, role: str, flags: Flags, clause: Clause) -> Words:
        """Say the copula: être, of age avoir, of the weather faire or `y avoir`; or `ne`, `pas`."""
        if name == "negation":
            if clause.polarity == "affirmative":
                return ()
            return (Word("ne" if "before" in flags else "pas", "ADV", ("negation",)),)
        weather = self.lexicon[clause.governor].get("verb") if clause.governor else ""
        verb = weather or ("avoir" if "have" in flags else "être")
        tag = "AUX" if verb == "être" else "VERB"
        tense = {"past": "imperfect", "future": "future"}.get(clause.tense, "present")
        words = [Word(conjugate_auxiliary(verb, tense, clause.subject), tag, (role,))]
        if weather == "avoir":
            words.insert(0, Word("y", "PRON", (role,)))
        return tuple(negate(words, clause.polarity))

    def verb(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """`n'a pas acheté`, `s'est reposée`; `head` without and `tail` with only its last words."""
        lexeme = choose_variant(lexeme, clause.governor, self.concepts)
        tail = tuple(Word(text, tag, (role,)) for text, tag in lexeme.words[1:])
        if "tail" in flags:
            return tail
        if "infinitive" in flags:
            clitic = reflexive_pronoun(lexeme, role, clause.subject)
            return (*clitic, Word(lexeme.words[0][0], "VERB", (role,)), *tail)
        words = say_verb(lexeme, role, flags, clause)
        if "again" in flags:  # `retourner`, `racheter` contain the adverb
            words = _add_role(words, "VERB", "again")
        return words if "head" in flags else (*words, *tail)

    def finish(self, words: list[Word]) -> list[Word]:
        """Elide and contract: `le homme` -> `l'homme`, `de le` -> `du`, `si il` -> `s'il`."""
        result: list[Word] = []
        for word in words:
            if result and not word.glue:
                before = result[-1]
                short = _elide(before, word)
                if short:
                    result[-1] = before._replace(text=short)
                    word = word._replace(glue=True)
            result.append(word)
        return contract(result, _CONTRACTIONS)


def _definite(this: bool, agreement: Agreement, vowel: bool) -> str:
    if agreement.number == "pl":
        return "ces" if this else "les"
    if agreement.gender == "f":
        return "cette" if this else "la"
    return ("cet" if vowel else "ce") if this else "le"


def _pluralize(text: str) -> str:
    return text if text[-1] in "sxz" else text + "s"


def _form_for(lexeme: Lexeme, use: str) -> Lexeme:
    """Return the adjective to use as predicate, after `très` or compared: `neuf`, `récent`."""
    text = lexeme.get(use)
    if not text:
        return lexeme
    feminine = lexeme.get(f"{use}.feminine")
    return Lexeme(lexeme.concept, ((text, "ADJ"),), {"feminine": feminine} if feminine else {})


def _inflect(
    lexeme: Lexeme, role: str, agreement: Agreement, before_vowel: bool = False
) -> list[Word]:
    words = [Word(text, tag, (role,)) for text, tag in lexeme.words]
    if lexeme.get("invariable"):
        return words
    text = words[0].text
    if agreement.gender == "f":
        text = lexeme.get("feminine") or (text if text.endswith("e") else text + "e")
    if agreement.number == "pl":
        plural = lexeme.get("plural") if agreement.gender != "f" else ""
        text = plural or _pluralize(text)
    elif before_vowel and agreement.gender != "f":
        text = lexeme.get("vowel") or text
    return [words[0]._replace(text=text), *words[1:]]


def _hour(lexeme: Lexeme, role: str, at: bool) -> Words:
    """`huit heures`, `une heure`, `midi`."""
    front = (Word("à", "ADP", (role,)),) if at else ()
    if lexeme.get("hour"):
        return (*front, Word(lexeme.get("hour"), "NOUN", (role,)))
    one = lexeme.get("feminine")
    number = Word(one or lexeme.text, "NUM", (role,))
    return (*front, number, Word("heure" if one else "heures", "NOUN", (role,)))


def _elide(before: Word, word: Word) -> str:
    """Return the elided form of a word before another, or nothing."""
    if before.text == "si" and word.text in ("il", "ils"):
        return "s'"
    if before.upos == "PROPN" or not starts_with_vowel(word.text):
        return ""
    return _ELIDED.get(before.text, "")


def _add_role(words: Words, tag: str, role: str) -> Words:
    return tuple(w._replace(roles=(*w.roles, role)) if w.upos == tag else w for w in words)


MORPHOLOGY = French
