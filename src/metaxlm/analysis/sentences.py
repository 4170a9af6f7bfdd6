"""Example sentences of a report: word alignments drawn as SVG, and retrieved sentences.

Examples are shown in the order in which each variant's evaluation stored them, so that none is
picked by its outcome. English is on top, the other language below; colors and dashes separate the
kinds of links. The drawn links are those that the alignment error rate of the paper's figure 4
counts.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar

from metaxlm.analysis.style import LINKS
from metaxlm.languages import LANGUAGES

Link = tuple[int, int]
Examples = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""Examples by variant and task."""

LINK_NAMES = {
    "sure": "right",
    "possible": "right (possible link)",
    "wrong": "wrong",
    "missed": "missed",
}
_DASHES = {"sure": "", "possible": "8 3", "wrong": "4 4", "missed": "1.5 4"}
_WIDTHS = {"sure": 2.4, "possible": 2.0, "wrong": 2.0, "missed": 2.2}
_RIGHT_TO_LEFT = frozenset({"Arabic", "Hebrew"})

_FONT_SIZE = 15
_GAP = 13
_MARGIN = 8
_TOP, _BOTTOM, _HEIGHT = 18, 104, 116


@dataclass(frozen=True)
class Drawing:
    """One variant's links for a sentence."""

    variant: str
    layer: int | None
    svg: str
    verdict: str


@dataclass(frozen=True)
class DrawnSentence:
    """A sentence pair with the links of every variant that has it."""

    language: str
    drawings: tuple[Drawing, ...]
    width: int
    """Pixels that each drawing needs."""


@dataclass(frozen=True)
class Answer:
    """What one variant found for a query."""

    variant: str
    found: str
    is_right: bool
    similarity: float | None


@dataclass(frozen=True)
class Query:
    """A query sentence with its translation and what each variant found instead."""

    language: str
    text: str
    expected: str
    answers: tuple[Answer, ...]


Shown = TypeVar("Shown", DrawnSentence, Query)


def collect_drawings(
    examples: Examples, layers: Mapping[str, int], variants: Sequence[str], most_per_language: int
) -> list[DrawnSentence]:
    """Put the same sentence of every variant together, the first few of each language.

    Where a variant stored a sentence at several layers, its best layer of `layers` is shown.
    """
    sentences: dict[tuple[str, tuple[str, ...], tuple[str, ...]], dict[str, Mapping[str, Any]]] = {}
    for variant in variants:
        for example in _order_examples(examples, variant, "alignment", layers):
            words = tuple(example["source_words"]), tuple(example["target_words"])
            sentences.setdefault((example["language"], *words), {}).setdefault(variant, example)
    drawn = [
        DrawnSentence(
            language,
            tuple(_draw(variant, found[variant]) for variant in found),
            math.ceil(max(_measure_row(source), _measure_row(target))),
        )
        for (language, source, target), found in sentences.items()
    ]
    return _keep_first(drawn, most_per_language)


def collect_queries(
    examples: Examples, layers: Mapping[str, int], variants: Sequence[str], most_per_language: int
) -> list[Query]:
    """Put what every variant found for the same query together, the first few of each language."""
    queries: dict[tuple[str, str, str], dict[str, Answer]] = {}
    for variant in variants:
        for example in _order_examples(examples, variant, "tatoeba", layers):
            key = (example["language"], example["query"], example["expected"])
            answer = Answer(
                variant,
                example["found"],
                example["found"] == example["expected"],
                example.get("similarity"),
            )
            queries.setdefault(key, {}).setdefault(variant, answer)
    collected = [Query(*key, tuple(answers.values())) for key, answers in queries.items()]
    return _keep_first(collected, most_per_language)


def _order_examples(
    examples: Examples, variant: str, task: str, layers: Mapping[str, int]
) -> list[Mapping[str, Any]]:
    """Put the examples of the variant's best layer first, otherwise as they were stored."""
    stored = examples.get(variant, {}).get(task, ())
    return sorted(stored, key=lambda example: example.get("layer") != layers.get(variant))


def _keep_first(items: Iterable[Shown], most: int) -> list[Shown]:
    by_language: dict[str, list[Shown]] = {}
    for item in items:
        by_language.setdefault(item.language, []).append(item)
    return [item for group in by_language.values() for item in group[:most]]


def _draw(variant: str, example: Mapping[str, Any]) -> Drawing:
    links = judge_links(
        predicted=map(tuple, example["predicted"]),
        sure=map(tuple, example["sure"]),
        possible=map(tuple, example["possible"]),
    )
    verdict = describe_links(links)
    svg = draw_links(
        example["source_words"], example["target_words"], example["language"], links, verdict
    )
    return Drawing(variant, example.get("layer"), svg, verdict)


def judge_links(
    predicted: Iterable[Link], sure: Iterable[Link], possible: Iterable[Link]
) -> dict[str, list[Link]]:
    """Sort links into right and sure, right and only possible, wrong, and missed."""
    found, certain = set(predicted), set(sure)
    allowed = certain | set(possible)
    return {
        "missed": sorted(certain - found),
        "wrong": sorted(found - allowed),
        "possible": sorted((found & allowed) - certain),
        "sure": sorted(found & certain),
    }


def describe_links(links: Mapping[str, Sequence[Link]]) -> str:
    """Count the links of a drawing in words."""
    right = len(links["sure"]) + len(links["possible"])
    return f"{right} right, {len(links['wrong'])} wrong, {len(links['missed'])} missed"


def draw_links(
    source_words: Sequence[str],
    target_words: Sequence[str],
    language: str,
    links: Mapping[str, Sequence[Link]],
    verdict: str,
) -> str:
    """Return the SVG of a sentence pair; a right-to-left language runs right to left below."""
    known = LANGUAGES.get(language)
    mirrored = known is not None and known.script in _RIGHT_TO_LEFT
    width = max(_measure_row(source_words), _measure_row(target_words))
    top = _place_words(source_words, width)
    bottom = _place_words(target_words, width, mirrored)
    paths = "".join(
        _draw_link(kind, top[i], bottom[j])
        for kind, found in links.items()
        for i, j in found
        if i < len(top) and j < len(bottom)
    )
    words = _draw_words(source_words, top, _TOP - 5, "en")
    words += _draw_words(target_words, bottom, _BOTTOM + 5, language)
    return (
        f'<svg class="links" width="{width:.0f}" height="{_HEIGHT}" '
        f'viewBox="0 0 {width:.0f} {_HEIGHT}" role="img" aria-label="{escape(verdict)}">'
        f"{paths}{words}</svg>"
    )


def draw_key(kind: str) -> str:
    """Return a short sample of a link for the legend."""
    return (
        '<svg class="key" width="34" height="10" viewBox="0 0 34 10" aria-hidden="true">'
        f'<path d="M1 5H33" {_stroke(kind)}/></svg>'
    )


def _stroke(kind: str) -> str:
    dash = f' stroke-dasharray="{_DASHES[kind]}"' if _DASHES[kind] else ""
    # Round caps turn the short strokes of a missed link into dots.
    cap = "round" if kind == "missed" else "butt"
    return (
        f'fill="none" style="stroke:var({LINKS[kind].variable})" '
        f'stroke-width="{_WIDTHS[kind]}" stroke-linecap="{cap}"{dash}'
    )


def _draw_link(kind: str, start: float, end: float) -> str:
    middle = (_TOP + _BOTTOM) / 2
    curve = (
        f"M{start:.1f} {_TOP + 2}C{start:.1f} {middle} {end:.1f} {middle} {end:.1f} {_BOTTOM - 10}"
    )
    return f'<path class="{kind}" d="{curve}" {_stroke(kind)}/>'


def _draw_words(words: Sequence[str], places: Sequence[float], y: int, language: str) -> str:
    return "".join(
        f'<text x="{place:.1f}" y="{y}" text-anchor="middle" lang="{escape(language)}">'
        f"{escape(word)}</text>"
        for word, place in zip(words, places, strict=True)
    )


def _place_words(words: Sequence[str], width: float, mirrored: bool = False) -> list[float]:
    """Return the middle of every word, the row centered in the width."""
    x = (width - _measure_row(words)) / 2 + _MARGIN
    places = []
    for word in words:
        size = measure_word(word)
        places.append(x + size / 2)
        x += size + _GAP
    return [width - place for place in places] if mirrored else places


def _measure_row(words: Sequence[str]) -> float:
    return sum(map(measure_word, words)) + _GAP * max(0, len(words) - 1) + 2 * _MARGIN


def measure_word(word: str) -> float:
    """Estimate a word's width in pixels, rather too wide, because browsers' fonts differ."""
    return max(8.0, _FONT_SIZE * sum(map(_measure_letter, word)))


def _measure_letter(letter: str) -> float:
    """Estimate a letter's width as a share of the font size."""
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    if letter in "iljtfrI.,;:!'|()[] ":
        return 0.38
    if letter in "mwMWШЩЮЖФМшщюжфм@%—":
        return 0.95
    return 0.72 if letter.isupper() else 0.6
