"""Split paragraphs into sentences, in every language of the table.

sentencex finds the ends of sentences. This module corrects its mistakes on real text, and cuts
overlong sentences, so that packing into blocks loses no text. All characters are kept, except for
the whitespace between sentences. The paper (appendix A) does not describe how it split them.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from metaxlm.scripts import SOUTHEAST_ASIAN

MAX_CHARACTERS = 1_000  # a longer sentence is cut at a clause, else at a space, else anywhere
# The time of sentencex is quadratic in the number of unclosed quotation marks, so it gets at most
# this many characters at once (measured: 4,000 opening marks take 0.03 s).
_WINDOW = 4_000
# A longer quotation consists of several sentences.
_LONG = 400
# Thai and Lao have no mark at the end of sentences, and Khmer and Burmese few: split at spaces.
_SPACED = {"th": 200, "lo": 200, "km": 300, "my": 300}

_LETTER = re.compile(r"[^\W\d_]")
_LIST_MARK = re.compile(r"\([^()\s]{1,4}\) ")
# Only Asian quotation marks: the others close a quotation in one language and open it in another.
_CLOSING = frozenset("」』）》〉】〕］｝)]}")
_QUOTES = str.maketrans(dict.fromkeys("\"'`´«»‹›„“”‘’‚‛‟「」『』《》()（）[]{}<>", " "))
_OPENING_AT_END = re.compile(r"(?:(?<=\s)[\"'`»›]|[«‹„“‘‚「『（《〈【(\[])+$")
_KHMER_END = re.compile(r"(?<!។ល)[។៕៚](?!ល។)[”’»\"')\]]*\s*")
# Particles that continue the sentence after a quotation, without words of the same beginning.
_PARTICLES = {
    "ja": re.compile(
        r"って|と(?!にかく|ころ|ても|りわけ|もあれ|うとう|つぜん|りあえず|んでも|もかく|きに|きどき)"
    ),
    "ko": re.compile(r"라고|라는|라며|라면서|하고|하며|이라고|이라는|는 "),
}
_QUOTED = re.compile(r"[」』”’\"'] ?$")
_SPACE_BETWEEN_WORDS = re.compile(
    rf"(?<=[{SOUTHEAST_ASIAN}]) (?=[{SOUTHEAST_ASIAN}])"
    r"(?![ๆฯໆຯ])"
)
_CLAUSE = re.compile(r"[;:؛፤；：၊។᠃]\s*|(?<=\S)\s(?=[–—-]\s)|[，、]|[,،፣]\s")
# In order of preference. A cut before a letter does not separate a mark from its letter.
_CUTS = (_CLAUSE, re.compile(r"\s"), re.compile(r"(?<!\u200d)(?=\w)"), re.compile(""))


def split_sentences(paragraph: str, language: str) -> list[str]:
    """Return the sentences of a paragraph; the language may be any code."""
    # sentencex fails on rare whitespace such as U+2028.
    text = " ".join(paragraph.split())
    segment = _segment if len(text) <= _WINDOW else _segment_windows
    pieces = _join(segment(text, language), language)
    if len(text) > _LONG:
        pieces = _split_long(pieces, language)
    if language == "km":
        pieces = [part for piece in pieces for part in _cut_after(piece, _KHMER_END)]
    if limit := _SPACED.get(language):
        pieces = [part for piece in pieces for part in _cut(piece, limit, [_SPACE_BETWEEN_WORDS])]
    return [sentence for piece in pieces if (sentence := piece.strip())]


def _segment_windows(text: str, language: str) -> list[str]:
    pieces: list[str] = []
    start = 0
    while len(text) - start > _WINDOW:
        window = _segment(text[start : start + _WINDOW], language)
        # The end of a window is arbitrary, so its last sentence is part of the next one.
        taken = window[:-1] or _cut(window[0], _WINDOW // 2, _CUTS)[:1]
        pieces += taken
        start += sum(map(len, taken))
    return pieces + _segment(text[start:], language)


def _segment(text: str, language: str) -> list[str]:
    from sentencex import segment  # imported late: a machine that only trains does not need it

    # With a list mark in parentheses at its start, sentencex does not split a paragraph.
    mark = _LIST_MARK.match(text)
    begin = mark.end() if mark else 0
    try:
        pieces: list[str] = segment(language, text[begin:])
    except BaseException as error:
        # A panic of Rust is not an Exception. Do not split this paragraph.
        if type(error).__name__ != "PanicException":
            raise
        return [text]
    # sentencex removes blank lines, and there are none: no character may be lost.
    assert sum(map(len, pieces)) == len(text) - begin, (language, text)
    if begin:
        pieces[:1] = [text[:begin] + "".join(pieces[:1])]
    return pieces


def _join(pieces: Iterable[str], language: str) -> list[str]:
    joined: list[str] = []
    for piece in pieces:
        is_short = joined and len(joined[-1]) + len(piece) <= _LONG
        if is_short and _continues(joined[-1], piece, language):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def _continues(previous: str, piece: str, language: str) -> bool:
    # `M. de Nemours`, `19. yüzyıl`, `т.е. три`: no sentence begins with a small letter.
    if piece[0].islower() and not "ა" <= piece[0] <= "ჿ":  # all of Georgian's are small
        return True
    # `सीता॥१॥`, `1. One`: numbers and marks are not a sentence.
    if not _has_letters(piece) or not _has_letters(previous) or piece[0] in _CLOSING:
        return True
    # sentencex splits at the Burmese comma.
    if language == "my":
        return previous.rstrip().endswith("၊")
    # 「はい。」と彼は言った。 is one sentence.
    particle = _PARTICLES.get(language)
    return bool(particle and particle.match(piece) and _QUOTED.search(previous))


def _has_letters(piece: str) -> bool:
    return piece[0].isalpha() or _LETTER.search(piece) is not None


def _split_long(pieces: Iterable[str], language: str) -> list[str]:
    sentences: list[str] = []
    for piece in pieces:
        is_long = len(piece) > _LONG
        parts = _join(_split_quotation(piece, language), language) if is_long else [piece]
        for part in parts:
            sentences += _cut(part, MAX_CHARACTERS, _CUTS)
    return sentences


def _split_quotation(piece: str, language: str) -> list[str]:
    """Split at sentence ends inside quotation marks and parentheses, which sentencex ignores."""
    parts: list[str] = []
    start = end = 0
    for found in _segment(piece.translate(_QUOTES), language):
        end += len(found)
        opening = _OPENING_AT_END.search(piece, max(start, end - 8), end)
        stop = opening.start() if opening and end < len(piece) else end
        if stop > start:
            parts.append(piece[start:stop])
            start = stop
    return [*parts, piece[start:]] if start < len(piece) else parts


def _cut_after(piece: str, pattern: re.Pattern[str]) -> list[str]:
    ends = [0, *(match.end() for match in pattern.finditer(piece)), len(piece)]
    return [piece[a:b] for a, b in pairwise(ends) if a < b]


def _cut(piece: str, limit: int, patterns: Sequence[re.Pattern[str]]) -> list[str]:
    """Cut into about equal parts up to the limit, at the first pattern that matches in reach."""
    parts: list[str] = []
    start = 0
    while len(piece) - start > limit:
        rest = len(piece) - start
        wanted = start + -(-rest // -(-rest // limit))
        for pattern in patterns:
            # One more character, for a pattern that looks ahead.
            reach = pattern.finditer(piece, start + (wanted - start) // 2, start + limit + 1)
            ends = [match.end() for match in reach if match.end() <= start + limit]
            if ends:
                break
        else:
            break
        stop = min(ends, key=lambda end: abs(end - wanted))
        parts.append(piece[start:stop])
        start = stop
    return [*parts, piece[start:]]
