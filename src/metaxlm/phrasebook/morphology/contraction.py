"""Preposition and article in one word: German `in dem` -> `im`, French `à le` -> `au`."""

from __future__ import annotations

from collections.abc import Mapping

from metaxlm.phrasebook.meaning import Word


def contract(words: list[Word], contractions: Mapping[tuple[str, str], str]) -> list[Word]:
    """Join each preposition with the article behind it where the language does; roles add up."""
    result: list[Word] = []
    for word in words:
        if word.upos == "DET" and result and result[-1].upos == "ADP":
            before = result[-1]
            short = contractions.get((before.text, word.text))
            if short:
                roles = tuple(dict.fromkeys(before.roles + word.roles))
                result[-1] = before._replace(text=short, roles=roles)
                continue
        result.append(word)
    return result
