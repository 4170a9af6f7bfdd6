"""Rows made of shorter pieces: phrases and compounds.

Comes in: the target vocabulary and the origins that matching found. Goes out: origins for pieces
that had none but whose text falls into pieces that have one, such as Chinese, Japanese and Thai
phrases (`我不知道` is `我` + `不` + `知道`) and compounds; the paper leaves them random (3.2).

The segmentation is the one with the greatest sum of squared lengths, so that few long pieces win
over many short ones. Text between them may stay unexplained, but only a fifth of the letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from metaxlm.init.canonical import Vocabulary
from metaxlm.init.translation import Composed, scale, spell_word
from metaxlm.scripts import find_script

Mix = tuple[tuple[int, ...], tuple[float, ...]]
"""Source rows, and beside them their weights."""

# The shortest segment that means something by itself: one letter of an alphabet does not.
_SHORTEST = {"Han": 1, "Hangul": 2, "Kana": 2, "Thai": 2}
_SHORTEST_ELSEWHERE = 3
_LEAST_EXPLAINED = 0.8


def join_segments(
    target: Vocabulary, rows: Iterable[int], origins: Mapping[int, Mix]
) -> dict[int, Composed]:
    """Give rows the mean of the origins of the pieces in them, weighted by length."""
    pieces = _list_pieces(target, origins)
    longest = max((len(text) for text, _ in pieces), default=0)
    joined = {}
    for row in rows:
        form = target.forms[row]
        text = spell_word(form[0]) if form is not None else ""
        if not text or form is None:
            continue
        segments = _segment(text, form[1], pieces, longest)
        if sum(length for _, length in segments) < _LEAST_EXPLAINED * len(text):
            continue
        weights: dict[int, float] = {}
        for piece, length in segments:
            for source, weight in zip(*origins[piece], strict=True):
                weights[source] = weights.get(source, 0.0) + length * weight
        joined[row] = scale("segments", weights)
    return joined


def _list_pieces(target: Vocabulary, origins: Mapping[int, Mix]) -> dict[tuple[str, bool], int]:
    """Return rows by the word they spell, as written or else wherever they stand."""
    pieces: dict[tuple[str, bool], int] = {}
    anywhere: dict[tuple[str, bool], int] = {}
    for row in sorted(origins):
        form = target.forms[row]
        if form is not None and (text := spell_word(form[0])):
            pieces.setdefault((text, form[1]), row)
            anywhere.setdefault((text, not form[1]), row)
    return anywhere | pieces


def _segment(
    text: str, starts: bool, pieces: Mapping[tuple[str, bool], int], longest: int
) -> list[tuple[int, int]]:
    """Return the rows of the best segmentation with their lengths."""
    shortest = _SHORTEST.get(find_script(text), _SHORTEST_ELSEWHERE)
    scores = [0] * (len(text) + 1)
    last: list[tuple[int, int] | None] = [None] * (len(text) + 1)
    for end in range(1, len(text) + 1):
        scores[end] = scores[end - 1]
        for start in range(max(0, end - longest), end - shortest + 1):
            score = scores[start] + (end - start) ** 2
            if score > scores[end]:
                row = pieces.get((text[start:end], starts and start == 0))
                if row is not None:
                    scores[end], last[end] = score, (row, start)
    segments = []
    end = len(text)
    while end > 0:
        step = last[end]
        if step is None:
            end -= 1
        else:
            segments.append((step[0], end - step[1]))
            end = step[1]
    return segments[::-1]
