"""The corpus as a table (the paper's appendix table, for the user's data) and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from metaxlm.analysis.style import GRID, INK, drawing_style, write_figure
from metaxlm.analysis.tables import Table, render_markdown, text_table
from metaxlm.data.statistics import LanguageStatistics, Losses
from metaxlm.files import write_text
from metaxlm.languages import language_name

_HEADINGS = (
    "language", "MB", "documents", "sentences", "tokens", "tokens/word", "unknown", "sampled",
)  # fmt: skip
_SIZE_COLOR, _DRAWN_COLOR = "#0b6fad", "#c8500a"


def _cells(row: LanguageStatistics) -> list[str]:
    per_word, unknown = row.tokens_per_word, row.unknown_rate
    return [
        f"{row.language} {language_name(row.language)}",
        f"{row.bytes / 1e6:,.1f}",
        f"{row.documents:,}",
        f"{row.sentences:,}",
        "–" if row.tokens is None else f"{row.tokens:,}",
        "–" if per_word is None else f"{per_word:.2f}",
        "–" if unknown is None else f"{100 * unknown:.3f} %",
        f"{100 * row.probability:.2f} %",
    ]


def _total(rows: Sequence[LanguageStatistics]) -> list[str]:
    keys = ("bytes", "documents", "sentences", "words", "characters", "tokens", "unknown")
    sums: Any = {key: sum(getattr(row, key) or 0 for row in rows) for key in keys}
    if rows[0].tokens is None:
        sums |= {"tokens": None, "unknown": None}
    cells = _cells(LanguageStatistics("", **sums, probability=1.0))
    cells[0], cells[5], cells[7] = f"{len(rows)} languages", "", "100 %"
    return cells


def statistics_table(rows: Sequence[LanguageStatistics], alpha: float) -> Table:
    """Return one row per language and their sum."""
    title = f"Corpus, sampled at alpha = {alpha:g}"
    return text_table("corpus", title, _HEADINGS, map(_cells, rows), totals=[_total(rows)])


def describe_losses(losses: Losses) -> list[str]:
    """Describe what corpus preparation left out: one line for records, one for paragraphs."""
    return [
        f"{title}: " + (", ".join(f"{count:,} {name}" for name, count in reasons.items()) or "none")
        for title, reasons in (
            (f"rejected of {losses.records:,} records", losses.rejected),
            ("dropped paragraphs", losses.dropped),
        )
    ]


def draw_statistics(rows: Sequence[LanguageStatistics], alpha: float) -> Figure:
    """Draw each language's share of the text beside its share of the training."""
    with drawing_style():
        figure = Figure(figsize=(5.7, 0.7 + 0.2 * len(rows)))
        axis = figure.add_subplot()
        total = sum(row.bytes for row in rows)
        places = range(len(rows))
        natural = [100 * row.bytes / total for row in rows]
        drawn = [100 * row.probability for row in rows]
        axis.hlines(places, natural, drawn, color=GRID.light, linewidth=3, zorder=1)
        axis.scatter(natural, places, 22, _SIZE_COLOR, label="share of the text", zorder=2)
        axis.scatter(
            drawn, places, 22, _DRAWN_COLOR, marker="D", label=f"sampled at alpha = {alpha:g}",
            zorder=3,
        )  # fmt: skip
        axis.set_yticks(places, [language_name(row.language) for row in rows])
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g} %")
        axis.xaxis.set_minor_locator(NullLocator())
        axis.tick_params(colors=INK.light)
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return figure


def write_statistics(
    folder: Path, rows: Sequence[LanguageStatistics], alpha: float, losses: Losses | None
) -> None:
    """Write the table as Markdown and the figure as SVG and PDF."""
    notes = [f"{line[0].upper()}{line[1:]}." for line in describe_losses(losses)] if losses else []
    table = replace(statistics_table(rows, alpha), notes=tuple(notes))
    write_text(folder / "corpus.md", render_markdown(table))
    write_figure(folder, "corpus", draw_statistics(rows, alpha))
