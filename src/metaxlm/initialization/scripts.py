"""The script of a token, for the tables that say what each script starts with.

Comes in: a token's text. Goes out: a script name such as Latin, Cyrillic or Han, taken from the
Unicode name of the first letter; `Common` for tokens without letters (digits, punctuation).
"""

from __future__ import annotations

import unicodedata
from functools import cache

COMMON = "Common"
SPECIAL = "Special"
"""In place of a script for rows that are not text: special tokens and broken-off bytes."""

# Unicode names a letter by its script first, but for these.
_RENAMED = {
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "HIRAGANA": "Kana",
    "KATAKANA": "Kana",
    "KATAKANA-HIRAGANA": "Kana",
}
_WIDTHS = {"FULLWIDTH", "HALFWIDTH"}
# First words of letters and marks that belong to no script, or to several.
_SHARED = {
    "CARON", "COMBINING", "DOUBLE-STRUCK", "FEMININE", "MASCULINE", "MATHEMATICAL", "MICRO",
    "MODIFIER", "SCRIPT", "VARIATION",
}  # fmt: skip


def find_script(text: str) -> str:
    """Return the script of the first letter of a text."""
    for char in text:
        script = _script_of(char)
        if script != COMMON:
            return script
    return COMMON


@cache
def _script_of(char: str) -> str:
    # Marks count too: a vowel sign is the whole text of some pieces.
    if unicodedata.category(char)[0] not in "LM":
        return COMMON
    words = unicodedata.name(char, "").split()
    if words and words[0] in _WIDTHS:
        words = words[1:]
    if not words or words[0] in _SHARED:
        return COMMON
    return _RENAMED.get(words[0], words[0].capitalize())
