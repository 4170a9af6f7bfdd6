"""The words of one language for every concept.

In: `data/lexicon/XX.tsv` with the columns concept, words, features. Out: a `Lexeme` per concept.
Words are written `word` (tag by the kind of the concept) or `word/UPOS`, several with spaces
between them; features are `key=value` separated by `;` and mean what the language's morphology
says they mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.phrasebook.concepts import NAME_KINDS, Concepts, load_concepts
from metaxlm.phrasebook.datafiles import DATA_FOLDER, read_rows

UPOS = frozenset(
    [
        "ADJ",
        "ADP",
        "ADV",
        "AUX",
        "CCONJ",
        "DET",
        "INTJ",
        "NOUN",
        "NUM",
        "PART",
        "PRON",
        "PROPN",
        "PUNCT",
        "SCONJ",
        "SYM",
        "VERB",
        "X",
    ]
)
_DEFAULT_TAGS = {
    "adjective": "ADJ",
    "verb": "VERB",
    "adverb": "ADV",
    "number": "NUM",
    "relation": "ADP",
    "weather": "ADJ",
    "pronoun": "PRON",
    "time": "ADV",
    **dict.fromkeys(NAME_KINDS, "PROPN"),
}


@dataclass(frozen=True, slots=True)
class Lexeme:
    """How a language says a concept, before inflection."""

    concept: str
    words: tuple[tuple[str, str], ...]
    """Pairs of word and universal tag."""
    features: dict[str, str]

    @property
    def text(self) -> str:
        """The words with spaces between them."""
        return " ".join(word for word, _ in self.words)

    def get(self, key: str, default: str = "") -> str:
        """Return a feature, or the default if the lexicon does not give it."""
        return self.features.get(key, default)


Lexicon = dict[str, Lexeme]


def read_lexicon(path: Path, concepts: Concepts) -> Lexicon:
    """Read a lexicon and check that it covers every concept and nothing else."""
    lexicon: Lexicon = {}
    for (concept, words, features), where in read_rows(path, 3):
        if concept not in concepts:
            raise MetaXLMError(f"{where}: {concept!r} is not in concepts.tsv; correct the id")
        if concept in lexicon:
            raise MetaXLMError(f"{where}: {concept!r} comes twice; keep one")
        if not words:
            raise MetaXLMError(f"{where}: {concept!r} has no words; write them in column 2")
        default = _DEFAULT_TAGS.get(concepts[concept].kind, "NOUN")
        lexicon[concept] = Lexeme(
            concept, parse_words(words, default, where), _parse_features(features, where)
        )
    missing = [concept.id for concept in concepts if concept.id not in lexicon]
    if missing:
        raise MetaXLMError(
            f"{path.name}:1: no entry for {len(missing)} concepts, such as {missing[:8]}; add them"
        )
    return lexicon


def parse_words(text: str, default: str, where: str) -> tuple[tuple[str, str], ...]:
    """Split `on/ADP Monday/PROPN` into words and tags; a bare word gets the default tag."""
    words = []
    for item in text.split():
        word, slash, tag = item.rpartition("/")
        if not slash:
            word, tag = item, default
        if tag not in UPOS:
            raise MetaXLMError(f"{where}: {tag!r} in {item!r} is no universal tag")
        words.append((word, tag))
    return tuple(words)


def _parse_features(text: str, where: str) -> dict[str, str]:
    features = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        key, equals, value = item.partition("=")
        if not equals:
            raise MetaXLMError(f"{where}: feature {item!r} should be key=value")
        features[key.strip()] = value.strip()
    return features


@cache
def load_lexicon(language: str) -> Lexicon:
    """Return the built-in lexicon of a language, read once."""
    return read_lexicon(DATA_FOLDER / "lexicon" / f"{language}.tsv", load_concepts())
