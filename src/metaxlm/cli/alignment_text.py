"""Word alignments on a terminal: words and links come in, colored lines go out.

Words that are linked have one color. Where there are no colors (a pipe, NO_COLOR, a dumb terminal)
the linked words are listed instead, as `house–Haus`. Right-to-left text stands between marks that
keep it in its place, and lines are broken by the width that characters really have.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from metaxlm.probe.alignment import LayerAlignment
from metaxlm.probe.directions import find_marks, isolate
from metaxlm.probe.link_spans import Links
from metaxlm.probe.pair_views import group_words

_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")
# After all colors come all colors with a line, then in reverse.
_LINES = ("", " underline", " reverse")
_UNLINKED = "dim"


def print_pair(
    console: Console, number: int, source: Sequence[str], target: Sequence[str], links: Links
) -> None:
    """Print one pair: two colored lines where there are colors, else a list of linked words."""
    # A pipe and a dumb terminal have no color system.
    if console.color_system is not None and not console.no_color:
        lines = color_pair(number, source, target, links, console.width)
    else:
        lines = [Text(list_pair(number, source, target, links))]
    for line in lines:
        console.print(line, soft_wrap=True)


def list_pair(number: int, source: Sequence[str], target: Sequence[str], links: Links) -> str:
    """Return the linked words of a pair in one line, in the order of the source."""
    found = [f"{isolate(source[i])}–{isolate(target[j])}" for i, j in sorted(links)]
    return f"{number}: {' '.join(found) or 'no links'}"


def color_pair(
    number: int, source: Sequence[str], target: Sequence[str], links: Links, width: int
) -> list[Text]:
    """Return the lines of a pair, source above target, linked words in one color."""
    label = f"{number} "
    lines: list[Text] = []
    groups = group_words(links, len(source), len(target))
    for words, numbers in zip((source, target), groups, strict=True):
        before, after = find_marks(" ".join(words))
        for places in _break_lines(words, width - len(label)):
            # A terminal orders every line by itself, so each needs its own marks.
            line = Text(label if not lines else " " * len(label))
            line.append(before)
            for place in places:
                line.append(words[place], style=choose_style(numbers[place]))
                line.append(" " if place != places[-1] else after)
            lines.append(line)
    return lines


def choose_style(group: int | None) -> str:
    """Return how the words of a group look."""
    if group is None:
        return _UNLINKED
    again, place = divmod(group, len(_COLORS))
    return _COLORS[place] + _LINES[again % len(_LINES)]


def _break_lines(words: Sequence[str], width: int) -> list[list[int]]:
    """Return the places of the words that fit on each line; a Chinese character takes two cells."""
    lines: list[list[int]] = [[]]
    used = 0
    for place, word in enumerate(words):
        size = cell_len(word) + (1 if lines[-1] else 0)
        if lines[-1] and used + size > width:
            lines.append([])
            used, size = 0, cell_len(word)
        lines[-1].append(place)
        used += size
    return lines


def make_score_table(layers: Sequence[LayerAlignment]) -> Table:
    """Return error rate, precision, recall and F1 by layer; the lowest error rate is bold."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("layer", "AER", "precision", "recall", "F1"):
        table.add_column(heading, justify="right")
    best = min(found.scores.aer for found in layers)
    for found in layers:
        scores = found.scores
        values = (scores.aer, scores.precision, scores.recall, scores.f1)
        is_best = len(layers) > 1 and scores.aer == best
        cells = [str(found.choice), *(f"{100 * value:.1f}" for value in values)]
        table.add_row(*cells, style="bold" if is_best else None)
    return table
