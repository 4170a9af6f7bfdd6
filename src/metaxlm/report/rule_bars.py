"""Bars divided by the kind of rule that filled the rows: what a vocabulary starts with.

In come rows (or running tokens) by rule for each bar; the bars are drawn as shares of 100 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from matplotlib.axes import Axes

from metaxlm.report.palette import GRID, choose_rule_tone

_NORMALIZING = ("nfkc", "lower", "capitalized", "word_start", "accents")
_KINDS = ("special", "direct", "normalized", "dictionary")


def name_rule_kind(rule: str) -> str:
    """Return the family of a rule: `lower` and `accents` both normalize."""
    return "normalized" if rule in _NORMALIZING else rule.partition("_")[0]


def list_kinds(bars: Iterable[Mapping[str, float]]) -> list[str]:
    """List the kinds of rules that filled anything, in the order of their use, fillers last."""
    found = {name_rule_kind(rule) for bar in bars for rule, value in bar.items() if value}
    between = sorted(found - {*_KINDS, "filler"})
    return [kind for kind in (*_KINDS, *between, "filler") if kind in found]


def draw_rule_bars(axis: Axes, bars: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Draw a horizontal bar for each name, divided by kind of rule; return the kinds."""
    kinds = list_kinds(bars.values())
    for place, by_rule in enumerate(bars.values()):
        total = sum(by_rule.values()) or 1
        edges = [0.0]
        for kind in kinds:
            share = sum(n for rule, n in by_rule.items() if name_rule_kind(rule) == kind) / total
            edges.append(edges[-1] + 100 * share)
        for kind, (left, right) in zip(kinds, pairwise(edges), strict=True):
            axis.barh(place, right - left, 0.62, left=left, color=choose_rule_tone(kind).light)
    axis.set_yticks(range(len(bars)), list(bars))
    axis.set_ylim(len(bars) - 0.5, -0.5)
    axis.set_xlim(0, 100)
    axis.grid(False)
    axis.grid(axis="x", color=GRID.light)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    return kinds
