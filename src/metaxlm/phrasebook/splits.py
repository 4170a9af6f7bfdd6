"""Which sentences are for testing and which for training, in every language at once.

In: languages, a seed and sizes. Out: meanings drawn for each task. Test and dev meanings are drawn
first and their wording reserved in every language; whatever is drawn for training afterwards is
dropped when a reserved sentence occurs in it. Some test stories are drawn last instead: what they
ask about is then in no text that was written before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from metaxlm.errors import MetaXLMError
from metaxlm.phrasebook.documents import Document, Documents, Question
from metaxlm.phrasebook.entailment import LABELS, Entailment, Pair
from metaxlm.phrasebook.meaning import Meaning
from metaxlm.phrasebook.paraphrase import Paraphrase, Paraphrases
from metaxlm.phrasebook.realization import Realizer, load_realizer
from metaxlm.phrasebook.sampling import Sampler
from metaxlm.randomness import derive_seed

_TOO_FEW_WORDINGS = frozenset(
    ["clock", "weekday_today", "body_pain", "offer", "yes_liking", "no_liking"]
)
"""Patterns with so few sentences that reserving some would take them from the training text."""
_MAX_DRAWS_PER_ITEM = 60
_FEWEST_DRAWS = 20_000
"""So many are tried even for a few items: next to much text, new ones are rare."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class PhrasebookSizes:
    """How much of everything to write."""

    english_sentences: int = 60_000
    """Lines of `text/en.txt`."""
    other_sentences: int = 6_000
    """Lines of the text of every other language."""
    tatoeba: int = 500
    wordalign: int = 200
    xnli_train: int = 6_000
    pawsx_train: int = 4_000
    tagging_train: int = 3_000
    """Sentences in `udpos/train-en.tsv` and in `panx/train-en.tsv`."""
    squad_train: int = 1_000
    """Paragraphs, each with a few questions; TyDiQA's training set has half as many."""
    cls_train: int = 600
    """Reviews in each language and domain."""
    dev: int = 200
    test: int = 400
    """Examples in each dev and test file of a task."""
    dictionary_sentences: int = 12_000
    """Parallel sentences from which the bilingual dictionaries are read off."""


class Splits:
    """Draws disjoint sets of meanings and remembers what is reserved for testing."""

    def __init__(self, languages: Sequence[str], seed: int) -> None:
        if "en" not in languages:
            raise MetaXLMError(f"phrasebook: languages are {list(languages)}; add en, its pivot")
        self.languages = list(languages)
        self.realizers: dict[str, Realizer] = {code: load_realizer(code) for code in languages}
        self._seed = seed
        self._reserved: dict[str, set[str]] = {code: set() for code in languages}
        self._trained: dict[str, set[str]] = {code: set() for code in languages}
        """Sentences that models may have seen: pretraining text, and stories with questions."""

    def random(self, purpose: str) -> Random:
        """Return the stream of random numbers for one purpose."""
        return Random(derive_seed(self._seed, f"phrasebook {purpose}"))

    def say(self, meaning: Meaning, language: str) -> str:
        """Return the text of a meaning."""
        return self.realizers[language].realize(meaning).text

    def is_reserved(self, meaning: Meaning, language: str) -> bool:
        """Say whether a meaning's wording belongs to a test."""
        return self.say(meaning, language) in self._reserved[language]

    def is_free(self, meanings: Iterable[Meaning], languages: Iterable[str]) -> bool:
        """Say whether none of these sentences is reserved in these languages."""
        codes = list(languages)
        return not any(self.is_reserved(meaning, code) for meaning in meanings for code in codes)

    def reserve(self, meanings: Iterable[Meaning]) -> None:
        """Keep the wording of these meanings out of everything drawn from now on."""
        for meaning in meanings:
            for code in self.languages:
                self._reserved[code].add(self.say(meaning, code))

    def sentences(
        self, count: int, purpose: str, *, test: bool, names: bool = False
    ) -> list[Meaning]:
        """Draw single sentences, distinct in every language; with `names` most have an entity."""
        sampler = Sampler(self.random(purpose))
        seen: dict[str, set[str]] = {code: set() for code in self.languages}

        def draw(_: int) -> Meaning | None:
            meaning = sampler.draw()
            if test and meaning.pattern in _TOO_FEW_WORDINGS:
                return None
            if names and sampler.random.random() < 0.9 and not self._has_entity(meaning):
                return None
            wordings = {code: self.say(meaning, code) for code in self._codes(test)}
            if any(text in seen[code] for code, text in wordings.items()):
                return None
            for code, text in wordings.items():
                seen[code].add(text)
            return meaning

        return self._collect(count, purpose, draw, lambda meaning: [meaning], test)

    def entailment(self, count: int, purpose: str, *, test: bool) -> list[Pair]:
        """Draw balanced premise-hypothesis pairs."""
        entailment = Entailment(Sampler(self.random(purpose)))
        return self._collect(
            count,
            purpose,
            lambda number: entailment.draw(LABELS[number % 3]),
            lambda pair: [pair.premise, pair.hypothesis],
            test,
        )

    def paraphrases(self, count: int, purpose: str, *, test: bool) -> list[Paraphrase]:
        """Draw balanced pairs that say the same or not."""
        paraphrases = Paraphrases(Sampler(self.random(purpose)))
        return self._collect(
            count,
            purpose,
            lambda number: paraphrases.draw(number % 2),
            lambda pair: [pair.first, pair.second],
            test,
        )

    def stories(
        self, count: int, purpose: str, *, test: bool, is_last: bool = False
    ) -> list[Document]:
        """Draw stories and portraits that have questions answerable in every language asked.

        With `is_last` no question and no sentence that answers one is in the training text, in the
        stories for training that were drawn before, or asked about in another such set; other
        sentences of the story may be.
        """
        documents = Documents(self.random(purpose))

        def is_kept(document: Document, question: Question) -> bool:
            asked = (question.meaning, document.meanings[question.sentence])
            if is_last and any(self._is_trained(meaning) for meaning in asked):
                return False
            return self._is_answerable(document, question, test)

        def draw(_: int) -> Document | None:
            document = documents.story() if documents.random.random() < 0.8 else documents.person()
            questions = [q for q in document.questions if is_kept(document, q)]
            if not questions:
                return None
            return Document(document.genre, document.meanings, questions=questions)

        def parts(document: Document) -> list[Meaning]:
            return [*document.meanings, *(question.meaning for question in document.questions)]

        reserves = test and not is_last
        found = self._collect(
            count, purpose, draw, parts, test, exclusive=not is_last, reserves=reserves
        )
        if not reserves:
            meanings = [meaning for document in found for meaning in parts(document)]
            self._trained["en"].update(self.say(meaning, "en") for meaning in meanings)
        return found

    def reviews(
        self, count: int, purpose: str, *, test: bool, is_last: bool = False
    ) -> list[Document]:
        """Draw balanced reviews; those for testing are about things training never reviews.

        With `is_last` they leave out the sentences that are in the training text all the same.
        """
        documents = Documents(self.random(purpose))

        def draw(number: int) -> Document | None:
            document = documents.review(("pos", "neg")[number % 2], held_out=test)
            if is_last:
                kept = [m for m in document.meanings if not self._is_trained(m)]
                # One sentence alone may be the opening, which has no sentiment.
                return Document(document.genre, kept, document.sentiment) if kept[1:] else None
            if test:
                return document
            kept = [m for m in document.meanings if self.is_free([m], self.languages)]
            return Document(document.genre, kept, document.sentiment)

        return self._collect(
            count, purpose, draw, lambda document: document.meanings, test, exclusive=False
        )

    def text(self, language: str, num_sentences: int) -> Iterable[list[str]]:
        """Yield documents of a language as lists of lines, without any reserved sentence."""
        documents = Documents(self.random(f"text {language}"))
        realize = self.realizers[language].realize
        reserved = self._reserved[language]
        written = 0
        while written < num_sentences:
            lines = [realize(meaning).text for meaning in documents.draw().meanings]
            lines = [line for line in lines if line not in reserved][: num_sentences - written]
            if lines:
                written += len(lines)
                self._trained[language].update(lines)
                yield lines

    def _codes(self, test: bool) -> list[str]:
        return self.languages if test else ["en"]

    def _has_entity(self, meaning: Meaning) -> bool:
        return any(word.entity for word in self.realizers["en"].realize(meaning).items)

    def _is_trained(self, meaning: Meaning) -> bool:
        # English first: it has the most text.
        codes = ("en", *(code for code in self.languages if code != "en"))
        return any(self.say(meaning, code) in self._trained[code] for code in codes)

    def _is_answerable(self, document: Document, question: Question, test: bool) -> bool:
        meaning = document.meanings[question.sentence]
        return all(
            self.realizers[code].realize(meaning).span(question.role) is not None
            for code in self._codes(test)
        )

    def _collect(
        self,
        count: int,
        purpose: str,
        draw: Callable[[int], _Item | None],
        parts: Callable[[_Item], list[Meaning]],
        test: bool,
        exclusive: bool = True,
        reserves: bool | None = None,
    ) -> list[_Item]:
        """Draw until `count` items are found; `draw` learns how many there are (for balance).

        `exclusive` ones have no reserved sentence; those of tests are reserved unless `reserves`
        says otherwise.
        """
        items: list[_Item] = []
        seen: set[tuple[str, ...]] = set()
        for _ in range(max(count * _MAX_DRAWS_PER_ITEM, _FEWEST_DRAWS)):
            if len(items) == count:
                break
            item = draw(len(items))
            if item is None:
                continue
            meanings = parts(item)
            key = tuple(self.say(meaning, "en") for meaning in meanings)
            if key in seen or not key:
                continue
            if exclusive and not self.is_free(meanings, self._codes(test)):
                continue
            seen.add(key)
            items.append(item)
        if len(items) < count:
            raise MetaXLMError(
                f"phrasebook: only {len(items)} of {count} distinct examples for {purpose}; "
                "ask for fewer"
            )
        if test if reserves is None else reserves:
            for item in items:
                self.reserve(parts(item))
        return items
