"""Words that depend on what they go with: one bakes a cake, but cooks a soup.

In: a lexicon entry with the feature `alt` (a class expression) and features `alt.*`, and the
concept that governs it. Out: the entry to use. Shared by languages that choose words this way.
"""

from __future__ import annotations

from metaxlm.phrasebook.concepts import Concepts
from metaxlm.phrasebook.lexicon import Lexeme, parse_words

_PREFIX = "alt."


def choose_variant(lexeme: Lexeme, governor: str, concepts: Concepts) -> Lexeme:
    """Return the entry itself or, if the governor fits its `alt`, the one its `alt.*` describe.

    `alt.word` replaces the words (the tag is that of the first word unless given); every other
    `alt.key` replaces the feature `key`.
    """
    expression = lexeme.get("alt")
    if not expression or governor not in concepts or not concepts.fits(governor, expression):
        return lexeme
    changes = {
        key.removeprefix(_PREFIX): value
        for key, value in lexeme.features.items()
        if key.startswith(_PREFIX)
    }
    words = lexeme.words
    if "word" in changes:
        words = parse_words(changes.pop("word"), lexeme.words[0][1], lexeme.concept)
    kept = {key: value for key, value in lexeme.features.items() if not key.startswith("alt")}
    return Lexeme(lexeme.concept, words, {**kept, **changes})
