"""Meaning -> sentence, in any language of the phrasebook.

In: a `Meaning`. Out: a `Sentence`. A realizer walks the pattern's template, asks the morphology for
the words of each element, and remembers the answers: there are few distinct phrases and many
sentences, which is what makes it fast.
"""

from __future__ import annotations

from functools import cache

from metaxlm.errors import MetaXLMError
from metaxlm.phrasebook.concepts import load_concepts
from metaxlm.phrasebook.datafiles import DATA_FOLDER
from metaxlm.phrasebook.meaning import Agreement, Clause, Meaning, Phrase, Sentence, Word
from metaxlm.phrasebook.morphology import load_morphology
from metaxlm.phrasebook.morphology.base import Words
from metaxlm.phrasebook.patterns import load_patterns
from metaxlm.phrasebook.templates import Element, Group, Item, read_templates

_NOBODY = Agreement()


def available_languages() -> list[str]:
    """Return the codes of the languages whose lexicon and templates are there, English first."""
    codes = sorted(path.stem for path in (DATA_FOLDER / "templates").glob("*.yaml"))
    return sorted(codes, key=lambda code: (code != "en", code))


class Realizer:
    """Puts meanings into the words of one language."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.morphology = load_morphology(language)
        self._patterns = load_patterns()
        self._templates = read_templates(
            DATA_FOLDER / "templates" / f"{language}.yaml",
            {pattern.id: list(pattern.slots) for pattern in self._patterns.values()},
            self.morphology.elements,
            self.morphology.flags,
            load_concepts(),
        )
        self._said: dict[tuple[int, Phrase | None, Clause], Words] = {}
        self._agreements: dict[Phrase, Agreement] = {}

    def realize(self, meaning: Meaning) -> Sentence:
        """Say a meaning: ordered, inflected, spaced and with a capital letter."""
        template = self._templates[meaning.pattern]
        words: list[Word] = []
        for condition, items in template.variants:
            if condition(meaning):
                self._walk(items, meaning, words)
                break
        words = self.morphology.finish(words)
        if not words:
            raise MetaXLMError(f"{template.where}: {meaning.pattern!r} came out empty")
        words[0] = words[0]._replace(text=self.morphology.capitalize(words[0].text))
        return Sentence(tuple(words), self.morphology.spaced)

    def _walk(self, items: tuple[Item, ...], meaning: Meaning, words: list[Word]) -> None:
        for item in items:
            if isinstance(item, Word):
                words.append(item)
            elif isinstance(item, Element):
                words.extend(self._say(item, meaning))
            elif item.condition(meaning):
                assert isinstance(item, Group)
                self._walk(item.items, meaning, words)

    def _say(self, item: Element, meaning: Meaning) -> Words:
        phrase = meaning.slots.get(item.name)
        if phrase is None and item.name not in self.morphology.elements:
            return ()
        options = item.options
        if phrase is not None:
            if item.pronoun or item.bare_noun or options:
                phrase = _adapt(phrase, item)
            if phrase.possessor.startswith("@"):
                phrase = phrase._replace(possessor=self._owner(phrase.possessor[1:], meaning))
        subject = self._subject(item, meaning)
        if options:
            clause = Clause(
                options.get("tense", meaning.tense),
                options.get("polarity", meaning.polarity),
                subject,
                meaning.slots[options["by"]].concept if "by" in options else "",
            )
        else:
            clause = Clause(meaning.tense, meaning.polarity, subject)
        key = (id(item), phrase, clause)
        words = self._said.get(key)
        if words is None:
            if phrase is None:
                words = self.morphology.element(item.name, item.role, item.flags, clause)
            else:
                words = self.morphology.say(phrase, item.role, item.flags, clause)
            self._said[key] = words
        return words

    def agreement(self, phrase: Phrase) -> Agreement:
        """Return what a verb agrees with when this phrase is its subject."""
        found = self._agreements.get(phrase)
        if found is None:
            found = self._agreements[phrase] = self.morphology.agreement(phrase)
        return found

    def _subject(self, item: Element, meaning: Meaning) -> Agreement:
        names = item.agree or self._patterns[meaning.pattern].subject
        found = [self.agreement(meaning.slots[name]) for name in names if name in meaning.slots]
        if not found:
            return _NOBODY
        if len(found) == 1:
            return found[0]
        genders = {agreement.gender for agreement in found}
        gender = genders.pop() if len(genders) == 1 else "m"
        return Agreement(min(agreement.person for agreement in found), "pl", gender)

    def _owner(self, slot: str, meaning: Meaning) -> str:
        owner = meaning.slots[slot]
        person, number, _ = self.agreement(owner)
        gender = f".{owner.gender}" if person == "3" and number == "sg" and owner.gender else ""
        return f"{person}{number}{gender}.refl"


def _adapt(phrase: Phrase, item: Element) -> Phrase:
    if item.bare_noun:
        phrase = phrase._replace(adjective="", numeral="", possessor="")
    if item.pronoun:
        phrase = phrase._replace(pronoun=True)
    options = item.options
    return phrase._replace(
        number=options.get("number", phrase.number),
        definiteness=options.get("definiteness", phrase.definiteness),
        possessor=options.get("possessor", phrase.possessor),
    )


@cache
def load_realizer(language: str) -> Realizer:
    """Return the realizer of a language, loaded once."""
    if language not in available_languages():
        raise MetaXLMError(
            f"phrasebook: no language {language!r}; there are {', '.join(available_languages())}"
        )
    return Realizer(language)


def realize(meaning: Meaning, language: str) -> Sentence:
    """Say a meaning in a language."""
    return load_realizer(language).realize(meaning)
