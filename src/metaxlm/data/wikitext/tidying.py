"""Last step: invisible characters, and what removed markup leaves behind.

Comes in: the text of a block, with a `HOLE` where something was removed. Goes out: plain text with
single spaces. Parentheses that became empty and commas that follow each other are tidied only
around holes: `main()` in an article about programs stays. Marks that steer the direction of text
go; the joiners that Persian and the Indic scripts spell words with stay.
"""

from __future__ import annotations

import re

from metaxlm.data.wikitext.marks import HOLE, unprotect

# Soft hyphens, direction marks, byte order marks, word joiners, invisible operators, interlinear
# annotation, object replacement, and control characters that are not white space.
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffc"
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]"
)
# A zero-width space parts words in Thai, Lao, Burmese and Khmer and means nothing elsewhere.
_PARTED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_ZERO_WIDTH_SPACE = re.compile(rf"(?<![{_PARTED}])\u200b|\u200b(?![{_PARTED}])")

_COMMAS = ",;،؛、，；"
_SEPARATORS = f" {_COMMAS}:：/–—·•-"
_PAIRS = {"(": ")", "（": "）", "[": "]"}
_CLOSING = tuple(_PAIRS.values())
# What stands close after a word in every language; French spaces the rest.
_CLOSE = tuple(",.。，、،؛।۔»”") + _CLOSING
_REACH = 200  # how far back from a hole punctuation is looked for
_MAX_NESTING = 10
# What is left of links and templates that were never closed, or closed twice.
_BRACKETS = re.compile(r"[\[\]{}|]{2,}")
_PAIRED = re.compile(r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}")
_LETTER = re.compile(r"[^\W\d_]")


def tidy(text: str) -> str:
    """Return plain text with single spaces; nothing when no letter is left."""
    if HOLE in text:
        text = _close_holes(text)
    text = " ".join(_BRACKETS.sub(_drop_brackets, text).split())
    if not text.isprintable():
        text = _ZERO_WIDTH_SPACE.sub("", _INVISIBLE.sub("", unprotect(text)))
        text = " ".join(text.split())
    return text if _LETTER.search(text) else ""


def _drop_brackets(run: re.Match[str]) -> str:
    return "" if _PAIRED.search(run[0]) else run[0]


def _close_holes(text: str) -> str:
    """Remove holes and the punctuation that made sense only with what stood there."""
    done: list[str] = []
    left, *rest = " ".join(text.split()).split(HOLE)
    for right in rest:
        while done and not left.strip(_SEPARATORS):
            before = done.pop()
            done += [before[:-_REACH]] if len(before) > _REACH else []
            left = before[-_REACH:] + left
        left, right = _close_hole(left, right)
        done.append(left)
        left = right
    return "".join([*done, left])


def _close_hole(left: str, right: str) -> tuple[str, str]:
    """Return what is left of the text on either side of a hole."""
    before, after = left.rstrip(_SEPARATORS), right.lstrip(_SEPARATORS)
    for _ in range(_MAX_NESTING):
        if not before or _PAIRS.get(before[-1]) != after[:1]:
            break
        left, right = before[:-1], after[1:]
        before, after = left.rstrip(_SEPARATORS), right.lstrip(_SEPARATORS)
    if before[-1:] in _PAIRS:
        return before, after
    if after.startswith(_CLOSING):
        return left.rstrip(f" {_COMMAS}"), after
    if not before:
        return "", right.lstrip(f" {_COMMAS}:")
    left_end, right_start = left.rstrip(), right.lstrip()
    follows_comma = left_end.endswith(tuple(_COMMAS)) and right_start.startswith(tuple(_COMMAS))
    if follows_comma or right_start.startswith(_CLOSE):
        return left_end.rstrip(f" {_COMMAS}"), right_start
    return left, right
