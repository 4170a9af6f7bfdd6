"""How a rewritten sentence is written: separators, contractions of adjacent words, capitals."""

import re
from collections.abc import Mapping

_PUNCTUATION = {
    "zh": {".": "。", ",": "，", "?": "？", "!": "！", ";": "；", ":": "："},
    "ja": {".": "。", ",": "、", "?": "？", "!": "！", '"': "」"},
    "th": {".": "", ",": " ", ";": " "},
    "ar": {",": "،", "?": "؟", ";": "؛"},
    "ur": {".": "۔", ",": "،", "?": "؟", ";": "؛"},
    "fa": {",": "،", "?": "؟", ";": "؛"},
    "hi": {".": "।"},
    "bn": {".": "।"},
    "el": {"?": ";"},
}
_FULL_WIDTH = frozenset({"zh", "ja"})  # their punctuation has no spaces around it

_FRENCH_VOWEL = "(?=[aeiouyhàâéèêëîïôùûœAEIOUYHÀÂÉÈÊ])"
_ITALIAN_VOWEL = "(?=[aeiouàèéìòùAEIOUÀÈÉ])"
_CONTRACTIONS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "fr": (
        (rf"\b([LlDdJjNnSsMmTt]|[Qq]u)(?:e|a) {_FRENCH_VOWEL}", r"\1'"),
        (r"\b([Cc])e (?=est|était)", r"\1'"),
        (r"\b([Ss])i (?=ils? )", r"\1'"),
        (r"\b([Dd])e le\b(?! ')", r"\1u"),
        (r"\b([Dd])e les\b", r"\1es"),
        (r"\bà le\b", "au"), (r"\bà les\b", "aux"),
    ),
    "it": (
        (rf"\b([Ll])[oa] {_ITALIAN_VOWEL}", r"\1'"),
        (rf"\b([Uu]n)a {_ITALIAN_VOWEL}", r"\1'"),
        (r"\bdi il\b", "del"), (r"\bdi la\b", "della"), (r"\bdi i\b", "dei"),
        (r"\ba il\b", "al"), (r"\ba la\b", "alla"), (r"\bin il\b", "nel"),
        (r"\bin la\b", "nella"), (r"\bda il\b", "dal"), (r"\bsu il\b", "sul"),
    ),
    "es": ((r"\bde el\b", "del"), (r"\ba el\b", "al")),
    "pt": (
        (r"\bde ([oa]s?)\b", r"d\1"), (r"\bem ([oa]s?)\b", r"n\1"), (r"\ba o(s?)\b", r"ao\1"),
        (r"\bpor ([oa]s?)\b", r"pel\1"),
    ),
    "de": (
        (r"\bin dem\b", "im"), (r"\ban dem\b", "am"), (r"\bzu dem\b", "zum"),
        (r"\bzu der\b", "zur"), (r"\bvon dem\b", "vom"), (r"\bbei dem\b", "beim"),
        (r"\bin das\b", "ins"),
    ),
    "ar": (
        (r"\bال (?=ال)", ""), (r"\b(ال|و|ل|ب) (?=\w)", r"\1"),
        (r"(?<=[ء-ي]) (ه|ك|ها|نا|ني)\b", r"\1"),
    ),
    "el": ((r"\bσε (το[νυ]?|τη[νς]?|τα|τις|τους)\b", r"σ\1"),),
}  # fmt: skip
_COMPILED = {
    language: [(re.compile(pattern), replacement) for pattern, replacement in rules]
    for language, rules in _CONTRACTIONS.items()
}
_OPENING = "\"'“”‘’„«»¿¡([-—– "
_DOTTED = frozenset({"az", "tr"})  # i has the capital İ


def convert_separator(text: str, language: str) -> str:
    """Return the punctuation between two words as a language writes it."""
    table = _PUNCTUATION.get(language)
    if table is None or text == " ":
        return text
    converted = "".join(table.get(character, character) for character in text)
    return converted.replace(" ", "") if language in _FULL_WIDTH else converted


def contract(text: str, language: str) -> str:
    """Join words that a language contracts or elides, such as `de le` and `la eau`."""
    for pattern, replacement in _COMPILED.get(language, ()):
        text = pattern.sub(replacement, text)
    return text


def contracts(language: str) -> bool:
    """Return whether a language has contractions."""
    return language in _COMPILED


def capitalize(text: str, language: str) -> str:
    """Return a text whose first letter is a capital, in scripts that have them."""
    first = text[:1]
    if not first.isalnum():  # quotation marks
        inner = text.lstrip(_OPENING)
        if inner in (text, ""):
            return text
        return text[: len(text) - len(inner)] + capitalize(inner, language)
    if first == "i" and language in _DOTTED:
        return "İ" + text[1:]
    capital = first.upper()
    return capital + text[1:] if len(capital) == 1 else text


def raise_case(text: str, language: str) -> str:
    """Return a text in capital letters."""
    return (text.replace("i", "İ") if language in _DOTTED else text).upper()
