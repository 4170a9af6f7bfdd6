"""Chinese: classifiers, 了 过 着 在, 的, 很 and 是...的, places with localizers; no spaces.

In: phrases and lexicon entries with the features `cl loc at def counted near raw attr type pre alt
altattr split intr short to aspect thing`. Out: words. What goes before the coverbs (没有, 会,
正在) is an element of its own, `mood`, because 在厨房里 stands between it and the verb.
"""

from __future__ import annotations

from typing import ClassVar

from metaxlm.phrasebook.lexicon import Lexeme
from metaxlm.phrasebook.meaning import Clause, Phrase, Word
from metaxlm.phrasebook.morphology.base import Flags, Morphology, Words

_PRONOUNS = {
    "1sg": "我",
    "2sg": "你",
    "3sg.m": "他",
    "3sg.f": "她",
    "3sg": "它",
    "1pl": "我们",
    "3pl": "它们",
}
_FLAGS = (
    "subject object bare known at loc be_at from from_person with counted state finite base exp "
    "zhe lasting pastime thing to predicate predicate2 very oclock again"
)
_PORTIONING = ("eat", "drink", "cook")
"""Verbs whose object is a cup, a bowl or a piece: 那杯茶, but one buys 那些茶."""
_PAST_WORDS = {"then": "当时", "before": "以前"}


class Chinese(Morphology):
    """The forms of Chinese."""

    language: ClassVar[str] = "zh"
    spaced: ClassVar[bool] = False
    flags: ClassVar[frozenset[str]] = frozenset(_FLAGS.split())
    elements: ClassVar[frozenset[str]] = frozenset({"mood", "le", "not", *_PAST_WORDS})

    # ---- nouns -------------------------------------------------------------------------------

    def noun_phrase(self, phrase: Phrase, role: str, flags: Flags, clause: Clause) -> Words:
        """`一本新书`, `那把椅子`, `在公园里`, `从彼得那里`, `和安娜一起`."""
        words: list[Word] = []
        if "at" in flags:
            words.append(Word("在", "ADP", (role,)))
        elif "be_at" in flags:
            words.append(Word("在", "VERB", ("copula", role)))
        elif "from" in flags or "from_person" in flags:
            words.append(Word("从", "ADP", (role,)))
        elif "with" in flags:
            words.append(Word("和", "ADP", (role,)))
        words.extend(self._core(phrase, role, flags, clause))
        if "with" in flags:
            words.append(Word("一起", "ADV", ("together", role)))
        elif "from_person" in flags:
            words.append(Word("那里", "PRON", ("there", role)))
        return tuple(words)

    def _core(self, phrase: Phrase, role: str, flags: Flags, clause: Clause) -> list[Word]:
        concept = self.concepts[phrase.concept]
        lexeme = self.lexicon[phrase.concept]
        if phrase.pronoun or concept.kind == "pronoun":
            return [self._pronoun(phrase, role)]
        if concept.entity:
            return list(self.words_of(lexeme, role))
        if concept.kind == "unit":
            return [*_classifier(lexeme, role, "unit"), *self.words_of(lexeme, role)]
        located = "at" in flags or "be_at" in flags or "loc" in flags
        if located and phrase.definiteness == "def":
            located_noun = Word(lexeme.get("at") or lexeme.text, "NOUN", (role,))
            localizer = lexeme.get("loc")
            return [located_noun, *([Word(localizer, "ADP", (role,))] if localizer else [])]
        front = self._determiner(phrase, lexeme, role, flags, clause)
        noun = self._noun(phrase, lexeme, role, clause)
        adjective = self._attribute(phrase, role, noun[0].text) if phrase.adjective else []
        if adjective and adjective[-1].text == "的" and front and front[-1].text == "的":
            front = [*front[:-1], *self._pointing("那", False, lexeme, role)]  # 我那把昂贵的雨伞
        return [*front, *adjective, *noun]

    def _noun(self, phrase: Phrase, lexeme: Lexeme, role: str, clause: Clause) -> list[Word]:
        words = list(self.words_of(lexeme, role))
        if phrase.numeral and lexeme.get("counted"):
            words[-1] = words[-1]._replace(text=lexeme.get("counted"))
        elif clause.governor == "buy" and lexeme.get("raw"):
            words[-1] = words[-1]._replace(text=lexeme.get("raw"))
        elif (
            phrase.number == "pl"
            and phrase.definiteness == "def"
            and self.concepts[phrase.concept].kind == "person"
        ):
            words[-1] = words[-1]._replace(text=words[-1].text + "们")
        return words

    def _determiner(
        self, phrase: Phrase, lexeme: Lexeme, role: str, flags: Flags, clause: Clause
    ) -> list[Word]:
        """Return what stands before adjective and noun: 三个, 这本, 那些, 一只, 我的."""
        if phrase.possessor:
            return self._possessor(phrase, lexeme, role)
        if phrase.numeral:
            numeral = Word(self.lexicon[phrase.numeral].text, "NUM", (f"{role}.numeral",))
            return [numeral, *_classifier(lexeme, role, f"{role}.numeral")]
        if "counted" in flags:
            return _classifier(lexeme, role, role)
        plural = phrase.number == "pl"
        if phrase.definiteness == "this":
            return self._pointing("这", plural, lexeme, role)
        if phrase.definiteness == "generic" or "bare" in flags:
            return []
        mass = "mass" in self.concepts[phrase.concept].labels
        kind = self.concepts[phrase.concept].kind
        if phrase.definiteness == "def":
            person = kind == "person" and plural
            if person or (lexeme.get("def") == "bare" and not plural):
                return []
            if "known" in flags and not plural and not self._is_heavy(phrase):
                return []
            if mass and "object" not in flags:
                return []
            portion = clause.governor in _PORTIONING and lexeme.get("def") != "some"
            return self._pointing("那", plural or (mass and not portion), lexeme, role)
        if mass or clause.polarity == "negative":
            return []
        if plural:
            return [] if kind == "food" else [Word("一些", "DET", (role,))]
        return [Word("一", "NUM", ("article", role)), *_classifier(lexeme, role, role)]

    def _pointing(self, text: str, several: bool, lexeme: Lexeme, role: str) -> list[Word]:
        if several:
            return [Word(text + "些", "DET", (role,))]
        return [Word(text, "DET", (role,)), *_classifier(lexeme, role, role)]

    def _possessor(self, phrase: Phrase, lexeme: Lexeme, role: str) -> list[Word]:
        person = phrase.possessor.removesuffix(".refl")
        own = person != phrase.possessor and person.startswith("3")
        text = "自己" if own else _PRONOUNS[person]
        words = [Word(text, "PRON", (f"{role}.possessor",))]
        body = self.concepts[phrase.concept].kind == "body"
        if not lexeme.get("near") and not body:
            words.append(Word("的", "PART", (f"{role}.possessor",)))
        return words

    def _attribute(self, phrase: Phrase, role: str, noun: str) -> list[Word]:
        """Return an adjective before its noun: 新, 美丽的, 很长的, 红色 or 红色的."""
        lexeme = self.lexicon[phrase.adjective]
        parts = lexeme.get(self._attribute_key(lexeme, phrase.concept)).split()
        if parts[0] in ("大", "小") and noun.startswith(("大", "学校")):
            parts = ["很", *parts, "的"]  # not 大大象, nor 大学校 which begins like 大学
        elif parts[0].endswith("色") and len(noun) > 1:
            parts = parts[:1]
        role = f"{role}.adjective"
        words = []
        for text in parts:
            if text == "的":
                words.append(Word(text, "PART", (role,)))
            elif text == "很":
                words.append(Word(text, "ADV", ("degree", role)))
            else:
                words.append(Word(text, "ADJ", (role,)))
        return words

    def _is_heavy(self, phrase: Phrase) -> bool:
        """Say whether an adjective asks for 那: 那个很轻的盒子, but 大盒子."""
        if not phrase.adjective:
            return False
        lexeme = self.lexicon[phrase.adjective]
        return lexeme.get(self._attribute_key(lexeme, phrase.concept)).endswith("的")

    def _attribute_key(self, lexeme: Lexeme, noun: str) -> str:
        return "altattr" if self._alternative(lexeme, noun) else "attr"

    def _pronoun(self, phrase: Phrase, role: str) -> Word:
        person, number, gender = self.agreement(phrase)
        key = f"{person}{number}"
        return Word(_PRONOUNS[f"3sg.{gender}" if key == "3sg" and gender else key], "PRON", (role,))

    def _alternative(self, lexeme: Lexeme, governor: str) -> str:
        """Return the word that some nouns ask for instead of the usual one, or nothing."""
        for choice in lexeme.get("alt").split("/"):
            word, _, nouns = choice.partition(":")
            if governor and governor in nouns.split(","):
                return word
        return ""

    # ---- predicates without a verb -----------------------------------------------------------

    def adjective(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """`很大`, `不大`, `非常大`, `是红色的`, `生病了`; without a flag only the word."""
        text = self._alternative(lexeme, clause.governor) or lexeme.text
        word = Word(text, "VERB" if lexeme.get("type") == "le" else "ADJ", (role,))
        copula = "copula2" if "predicate2" in flags else "copula"
        if "predicate" not in flags and "predicate2" not in flags:
            return (*self._topic(lexeme, role), word)
        predicate = self._predicate(lexeme, word, copula, flags, clause)
        return (*self._topic(lexeme, role), *predicate)

    def _topic(self, lexeme: Lexeme, role: str) -> Words:
        topic = lexeme.get("pre")
        weather = self.concepts[lexeme.concept].kind == "weather"
        roles = () if weather else ("topic", role)
        return (Word(topic, "NOUN", roles),) if topic else ()

    def _predicate(
        self, lexeme: Lexeme, word: Word, copula: str, flags: Flags, clause: Clause
    ) -> Words:
        denied, be = clause.polarity == "negative", Word("是", "AUX", (copula,))
        if lexeme.get("type") == "le":
            done = Word("了", "PART", (copula,))
            return (Word("没有", "ADV", ("negation",)), word) if denied else (word, done)
        if lexeme.get("type") == "shide":
            end = Word("的", "PART", (copula,))
            return (_not(), be, word, end) if denied else (be, word, end)
        degree = Word("很", "ADV", (copula,))
        if "very" in flags:
            degree = Word("非常", "ADV", ("very",))
        if clause.tense == "future":
            return (*((_not(),) if denied else ()), Word("会", "AUX", (copula,)), degree, word)
        if not denied:
            return (degree, word)
        if word.text.startswith("不"):
            return (Word("并", "ADV", ("negation",)), _not(), be, word)
        if word.text.startswith("有"):
            return (Word("没", "ADV", ("negation",)), word)
        return (_not(), word)

    def other(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """Say times, numbers, relations; hours (`八点`); kinds of weather like adjectives."""
        if self.concepts[lexeme.concept].kind == "weather":
            return self.adjective(lexeme, role, flags, clause)
        words = self.words_of(lexeme, role)
        return (*words, Word("点", "NOUN", (role,))) if "oclock" in flags else words

    # ---- verbs -------------------------------------------------------------------------------

    def element(self, name: str, role: str, flags: Flags, clause: Clause) -> Words:  # noqa: ARG002
        """Say `mood` (没有, 不, 会, 正在), `not`, the 了 that ends a sentence, 当时 and 以前."""
        denied, was = clause.polarity == "negative", clause.tense == "past"
        if name in _PAST_WORDS:
            return (Word(_PAST_WORDS[name], "NOUN", ("past", "copula", "verb")),) if was else ()
        if name == "le":
            return (Word("了", "PART", ("verb",)),) if was and not denied else ()
        if name == "not":
            return (_not(),) if denied else ()
        future = (Word("会", "AUX", ("verb",)),)
        if clause.tense == "future":
            return (_not(), *future) if denied else future
        if clause.tense == "progressive":
            if denied:
                return (Word("没有", "ADV", ("negation",)), Word("在", "ADV", ("aspect", "verb")))
            return (Word("正在", "ADV", ("aspect", "verb")),)
        if not denied:
            return ()
        event = was and "state" not in flags
        return (Word("没有", "ADV", ("negation",)),) if event else (_not(),)

    def verb(self, lexeme: Lexeme, role: str, flags: Flags, clause: Clause) -> Words:
        """`买了`, `跳了舞`, `穿着`, `爱吃`; only the verb with `base`, or outside the past."""
        roles = (role, "again") if "again" in flags else (role,)
        aspect = _aspect(lexeme, flags, clause)
        parts = [text for text, _ in lexeme.words]
        tags = [tag for _, tag in lexeme.words]
        other = self._other_verb(lexeme, flags, clause.governor)
        if other:
            parts, tags = [other], ["VERB"]
        if lexeme.concept == "love" and clause.governor:
            more = self._way_of_liking(lexeme, clause.governor)
            parts, tags = (["爱", more], ["VERB", "VERB"]) if more else (parts, tags)
        after: Words = ()
        if aspect and lexeme.get("split") and not other:
            verb, rest = lexeme.get("split").split()
            parts, tags, after = [verb], ["VERB"], (Word(rest, "NOUN", roles),)
        words = tuple(Word(text, tag, roles) for text, tag in zip(parts, tags, strict=True))
        marker = (Word(aspect, "AUX", (role,)),) if aspect else ()
        return (*words, *marker, *after)

    def _other_verb(self, lexeme: Lexeme, flags: Flags, governor: str) -> str:
        if "pastime" in flags:
            return lexeme.get("intr")
        if "lasting" in flags:
            return lexeme.get("short")
        if "thing" in flags:
            return lexeme.get("thing")
        if "to" in flags:
            return lexeme.get("to")
        return self._alternative(lexeme, governor)

    def _way_of_liking(self, lexeme: Lexeme, noun: str) -> str:
        """Return the second verb of 爱吃, 爱喝, 爱看; nothing for cats and flowers."""
        labels = self.concepts[noun].labels
        kind = self.concepts[noun].kind
        if kind == "thing" and "readable" not in labels:
            return ""
        return lexeme.get(noun) or lexeme.get(kind)

    # ---- the whole sentence ------------------------------------------------------------------

    def finish(self, words: list[Word]) -> list[Word]:
        """Let one 在 stand for two: 正在 and 在公园里 give 正在公园里."""
        finished: list[Word] = []
        for word in words:
            if word.text == "在" and finished and finished[-1].roles[:1] == ("aspect",):
                if finished[-1].text == "正在":
                    finished[-1] = finished[-1]._replace(text="正")
                else:
                    finished.pop()
            finished.append(word)
        return finished


def _not() -> Word:
    return Word("不", "ADV", ("negation",))


def _classifier(lexeme: Lexeme, role: str, of: str) -> list[Word]:
    classifier = lexeme.get("cl")
    return [Word(classifier, "NOUN", (f"{role}.classifier", of))] if classifier else []


def _aspect(lexeme: Lexeme, flags: Flags, clause: Clause) -> str:
    """Return 了, 过 or 着, or nothing."""
    if "zhe" in flags:
        return "着"
    if "base" in flags or clause.tense != "past":
        return ""
    if "exp" in flags:
        return "过"
    if clause.polarity == "negative":
        return ""
    own = "" if "lasting" in flags else lexeme.get("aspect")
    return {"": "了", "none": ""}.get(own, own)


MORPHOLOGY = Chinese
