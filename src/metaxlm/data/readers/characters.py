"""One shape for the characters of raw text, whatever file they come from.

Comes in: decoded text with tabs, no-break spaces, carriage returns, stray control characters. Goes
out: lines of words with single spaces, no control characters, no empty lines. Letters and marks
stay as they are, also zero-width ones (Persian, Hindi and Khmer need them); normalization is the
tokenizer's business.
"""

from __future__ import annotations

import re

_BREAKS = "\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_SPACES = "\t\x1f\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"
_REMOVED = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufeff"
_SURROGATES = "\ud800-\udfff"

_BREAK = re.compile(f"[{_BREAKS}]")
_SPACE = re.compile(f"[{_SPACES}]")
_REMOVE = re.compile(f"[{_REMOVED}]")
_SURROGATE = re.compile(f"[{_SURROGATES}]")
_ODD = re.compile(f"[{_BREAKS}{_SPACES}{_REMOVED}{_SURROGATES}]")
_ASCII_ODD = bytes(code for code in (*range(32), 127) if code != ord("\n"))
_SEVERAL_SPACES = re.compile("  +")
_SEVERAL_BREAKS = re.compile("\n\n+")
# Patterns that start with the newline are found at memory speed.
_SPACE_AT_LINE_END = re.compile("\n(?<= \n)")
_SPACE_OR_BREAK_AFTER_BREAK = re.compile("\n[ \n]")

BLANK_LINES = re.compile(f"\n(?:[ {_SPACES}{_BREAKS}{_REMOVED}]*+\n)++")
"""The end of a line and all lines after it that have no visible character."""


def tidy_lines(text: str) -> str:
    r"""Return the text with tidy lines; only `\n` ends a line, and empty lines are left out."""
    return _tidy(text, " ")


def tidy_document(text: str) -> str:
    r"""Return the text with tidy lines; every line separator of Unicode ends a line."""
    return _tidy(text, "\n")


def _tidy(text: str, separator: str) -> str:
    if _has_odd(text):
        text = _REMOVE.sub("", text)
        text = _BREAK.sub(separator, text)
        text = _SPACE.sub(" ", text)
        # Half a character, which only escapes in JSON can make; it has no UTF-8.
        text = _SURROGATE.sub("\ufffd", text)
    if "  " in text:
        text = _SEVERAL_SPACES.sub(" ", text)
    if _SPACE_AT_LINE_END.search(text):
        text = text.replace(" \n", "\n")
    if _SPACE_OR_BREAK_AFTER_BREAK.search(text):
        text = _SEVERAL_BREAKS.sub("\n", text.replace("\n ", "\n"))
    return text.strip(" \n")


def _has_odd(text: str) -> bool:
    """Tell whether any character must go; the pattern alone would take most of a reader's time."""
    if text.isascii():
        data = text.encode()
        return len(data.translate(None, _ASCII_ODD)) < len(data)
    # Nothing odd is printable, but some characters that stay, such as joiners, are not either.
    return not text.replace("\n", "").isprintable() and _ODD.search(text) is not None
