"""The script of a token, and the share of a text's letters that are in given scripts.

A script has a name such as Latin, Cyrillic or Han, from the Unicode name of the first letter;
tokens without letters (digits, punctuation) are `Common`.
"""

import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

COMMON = "Common"
SPECIAL = "Special"  # tokens that are not text: special tokens and incomplete bytes

UNSPACED = frozenset({"Bopomofo", "Han", "Kana", "Khmer", "Lao", "Myanmar", "Thai", "Tibetan"})
"""Scripts that put no spaces between words."""
SOUTHEAST_ASIAN = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Thai, Lao, Burmese and Khmer, for a character class of a regular expression."""
UNSPACED_CHARACTERS = (
    rf"{SOUTHEAST_ASIAN}\ua9e0-\ua9ff\uaa60-\uaa7f\u0f00-\u0fff\u3005-\u3007"
    r"\u302a-\u302d\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    r"\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
"""Characters of the scripts in `UNSPACED`, for a character class of a regular expression."""

SAMPLE_CHARACTERS = 2_000  # that `measure_share` reads of a text

# Unicode names a letter by its script first, but for these.
_RENAMED = {"CJK": "Han", "IDEOGRAPHIC": "Han"} | dict.fromkeys(
    ("HENTAIGANA", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"), "Kana"
)
_WIDTHS = {"FULLWIDTH", "HALFWIDTH"}
# First words of letters and marks that belong to no script, or to several.
_SHARED = {
    "ALEF", "ANGSTROM", "BET", "BLACK-LETTER", "CARON", "COMBINING", "DALET", "DOUBLE-STRUCK",
    "EULER", "FEMININE", "GIMEL", "INFORMATION", "KELVIN", "MASCULINE", "MASU", "MATHEMATICAL",
    "MICRO", "MODIFIER", "MUSICAL", "OHM", "PLANCK", "ROMAN", "SCRIPT", "SUPERSCRIPT", "TURNED",
    "VARIATION", "VEDIC", "VERTICAL", "VIETNAMESE",
}  # fmt: skip

# A Chinese character counts as three letters of an alphabet, a Japanese or Korean syllable as two:
# translations into English have 2.6 to 2.9 and 1.8 times as many letters.
_WEIGHTS = {"Han": 3, "Hangul": 2, "Kana": 2}
# Characters in the scripts are known by their weight plus this.
_INSIDE = 4
_LAST_LETTER = 0x40000


def find_script(text: str) -> str:
    """Return the script of the first letter of a text."""
    return next((script for char in text if (script := _script_of(char)) != COMMON), COMMON)


def measure_share(text: str, scripts: Sequence[str]) -> float:
    """Return the share of a text's letters that are in one of the scripts; 1.0 without letters."""
    # Nearly all English, and much of Latin, is ASCII: known without a look at the letters.
    if text.isascii() and "Latin" in scripts:
        return 1.0
    sample = text[:SAMPLE_CHARACTERS].encode("utf-32-le", "surrogatepass")
    found = _classify(tuple(scripts)).take(np.frombuffer(sample, np.uint32)).tobytes()
    inside = sum(weight * found.count(weight + _INSIDE) for weight in (1, 2, 3))
    letters = inside + sum(weight * found.count(weight) for weight in (1, 2, 3))
    return inside / letters if letters else 1.0


def drop_foreign(text: str, scripts: Sequence[str]) -> str:
    """Return a text without its letters of other scripts; digits and punctuation stay."""
    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    weights = _classify(tuple(scripts)).take(characters)
    kept: bytes = characters[(weights == 0) | (weights > _INSIDE)].tobytes()
    return kept.decode("utf-32-le", "surrogatepass")


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


@cache
def _all_scripts() -> tuple[str, ...]:
    # Not through the cache of `_script_of`, which would keep 200,000 entries for good.
    return tuple(_script_of.__wrapped__(chr(code)) for code in range(_LAST_LETTER))


@cache
def _classify(scripts: tuple[str, ...]) -> NDArray[np.uint8]:
    """Return a code per character: weights of letters elsewhere and inside, 0 for the rest."""
    codes = {
        script: _WEIGHTS.get(script, 1) + (_INSIDE if script in scripts else 0)
        for script in set(_all_scripts())
    } | {COMMON: 0}
    table = np.zeros(0x110000, np.uint8)
    table[:_LAST_LETTER] = [codes[script] for script in _all_scripts()]
    return table
