"""The concepts Phrasebook can speak about: what they are, and which of them go together.

In: `data/concepts.tsv`. Out: `Concepts`, which answers class expressions such as
`food-mass,drink` (foods that are counted, or any drink). Selectional restrictions live here as
tags, so that nobody ever drinks a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.phrasebook.datafiles import DATA_FOLDER, read_rows

NOUN_KINDS = frozenset(
    [
        "pronoun",
        "person",
        "animal",
        "food",
        "beverage",
        "meal",
        "thing",
        "place",
        "transport",
        "nature",
        "body",
        "sport",
        "day",
        "unit",
        "tongue",
        "name",
        "city_name",
        "country_name",
        "organization",
    ]
)
"""Kinds that are said by `Morphology.noun_phrase`."""
KINDS = NOUN_KINDS | {"adjective", "verb", "relation", "adverb", "time", "weather", "number"}
NAME_KINDS = frozenset(["name", "city_name", "country_name", "organization"])
ENTITY_TAGS = frozenset({"PER", "LOC", "ORG"})


@dataclass(frozen=True, slots=True)
class Concept:
    """One concept with its labels (its id, its kind and its tags)."""

    id: str
    kind: str
    labels: frozenset[str]
    attributes: tuple[tuple[str, str], ...]
    """Tags of the form `key:value`, such as `object:edible`."""
    hypernym: str = ""
    antonym: str = ""

    def attribute(self, key: str) -> str:
        """Return the value of a `key:value` tag, several joined by commas; empty if absent."""
        return ",".join(value for name, value in self.attributes if name == key)

    @property
    def entity(self) -> str:
        """`PER`, `LOC`, `ORG` or empty."""
        return next(iter(self.labels & ENTITY_TAGS), "")


class Concepts:
    """All concepts by id, and lists of them by class expression."""

    def __init__(self, concepts: dict[str, Concept]) -> None:
        self._concepts = concepts
        self._classes: dict[str, list[str]] = {}

    def __getitem__(self, identifier: str) -> Concept:
        return self._concepts[identifier]

    def __contains__(self, identifier: str) -> bool:
        return identifier in self._concepts

    def __iter__(self) -> Iterator[Concept]:
        return iter(self._concepts.values())

    def __len__(self) -> int:
        return len(self._concepts)

    def kind(self, identifier: str) -> str:
        """Return the kind of a concept; a plain number such as `#34` is a `number`."""
        return "number" if identifier.startswith("#") else self._concepts[identifier].kind

    def fits(self, identifier: str, expression: str) -> bool:
        """Say whether a concept belongs to a class expression."""
        labels = self._concepts[identifier].labels
        return any(_matches(labels, part) for part in expression.split(","))

    def members(self, expression: str) -> list[str]:
        """Return the ids of a class expression: `a,b` either, `a+b` both, `a-b` a but not b."""
        found = self._classes.get(expression)
        if found is None:
            found = [concept.id for concept in self if self.fits(concept.id, expression)]
            self._classes[expression] = found
        return found

    def fitting(self, other: str) -> list[str]:
        """Return the concepts whose attribute `of:` admits another: mostly a noun's adjectives.

        The other's own attribute `unfit:` takes some of them away (no modern castle).
        """
        key = f"fitting {other}"
        found = self._classes.get(key)
        if found is None:
            unfit = self[other].attribute("unfit")
            found = [
                concept.id
                for concept in self
                if concept.attribute("of")
                and self.fits(other, concept.attribute("of"))
                and not (unfit and self.fits(concept.id, unfit))
            ]
            self._classes[key] = found
        return found


@cache
def _split(part: str) -> tuple[frozenset[str], frozenset[str]]:
    wanted: set[str] = set()
    unwanted: set[str] = set()
    for piece in part.replace("-", "+-").split("+"):
        (unwanted if piece.startswith("-") else wanted).add(piece.lstrip("-"))
    return frozenset(wanted), frozenset(unwanted)


def _matches(labels: frozenset[str], part: str) -> bool:
    wanted, unwanted = _split(part)
    return wanted <= labels and not unwanted & labels


def read_concepts(path: Path) -> Concepts:
    """Read `concepts.tsv`: id, kind, tags, hypernym, antonym."""
    concepts: dict[str, Concept] = {}
    places: dict[str, str] = {}
    for (identifier, kind, tags, hypernym, antonym), where in read_rows(path, 5):
        if identifier in concepts:
            raise MetaXLMError(f"{where}: concept {identifier!r} comes twice; rename one")
        if identifier in KINDS:
            raise MetaXLMError(f"{where}: {identifier!r} is the name of a kind; rename the concept")
        if kind not in KINDS:
            raise MetaXLMError(f"{where}: unknown kind {kind!r}; known are {sorted(KINDS)}")
        plain = [tag for tag in tags.split() if ":" not in tag]
        pairs = [tag.partition(":") for tag in tags.split() if ":" in tag]
        concepts[identifier] = Concept(
            identifier,
            kind,
            frozenset([identifier, kind, *plain]),
            tuple((key, value) for key, _, value in pairs),
            hypernym,
            antonym,
        )
        places[identifier] = where
    names = set(concepts) | KINDS
    for concept in concepts.values():
        clash = (concept.labels - {concept.id, concept.kind}) & names
        if clash:
            raise MetaXLMError(
                f"{places[concept.id]}: tag {min(clash)!r} is also a concept or a kind; rename it"
            )
        for other in (concept.hypernym, concept.antonym):
            if other and other not in concepts:
                raise MetaXLMError(f"{places[concept.id]}: {concept.id} names unknown {other!r}")
    return Concepts(concepts)


@cache
def load_concepts() -> Concepts:
    """Return the built-in concepts, read once."""
    return read_concepts(DATA_FOLDER / "concepts.tsv")
