"""The direction of text: left to right, right to left, and upright in narrow columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Literal

Direction = Literal["ltr", "rtl"]

_ISOLATES: dict[Direction, str] = {"ltr": "\u2066", "rtl": "\u2067"}
_POP_ISOLATE = "\u2069"
_RIGHT_TO_LEFT = frozenset({"R", "AL"})


def find_direction(words: Iterable[str]) -> Direction:
    """Return the direction of most letters: a Latin name first does not turn an Arabic sentence."""
    balance = 0
    for character in "".join(words):
        kind = unicodedata.bidirectional(character)
        balance += (kind in _RIGHT_TO_LEFT) - (kind == "L")
    return "rtl" if balance > 0 else "ltr"


def find_marks(text: str) -> tuple[str, str]:
    """Return the marks that keep right-to-left text from reordering what stands beside it.

    They go before and after it; both are empty for text that cannot do that.
    """
    kinds = {unicodedata.bidirectional(character) for character in text}
    if not kinds & _RIGHT_TO_LEFT:
        return "", ""
    return _ISOLATES[find_direction([text])], _POP_ISOLATE


def isolate(text: str) -> str:
    """Return text between the marks that it needs."""
    before, after = find_marks(text)
    return f"{before}{text}{after}"


def find_stance(word: str) -> Literal["level", "upright", "turned"]:
    """Say how a word stands over a narrow column so that it can be read.

    A single character, with the marks on it, stays as it is; characters as wide as high, as the
    Chinese ones, stand one below the other; everything else is turned.
    """
    letters = [char for char in word if not unicodedata.category(char).startswith("M")]
    if len(letters) < 2:
        return "level"
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in letters)
    return "upright" if 2 * wide > len(letters) else "turned"
