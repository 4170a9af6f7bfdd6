"""What a vocabulary starts with, for the terminal, as Markdown and as a figure.

In come the coverage of a plan, the story of a token, or the comparison of two plans (section 3.2 of
the paper, row by row); out come rich tables, Markdown, and a figure of two panels: rows by script
and running text by language, each divided by the kind of rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from rich.table import Table
from rich.text import Text

from metaxlm.files import atomic_file, write_text
from metaxlm.initialization.comparison import Change, Comparison
from metaxlm.initialization.plan import Origin
from metaxlm.initialization.story import Story
from metaxlm.languages import language_name
from metaxlm.report.palette import choose_rule_tone
from metaxlm.report.rule_bars import draw_rule_bars, list_kinds
from metaxlm.report.vector import drawing_style, render_pdf, render_svg

Coverage = Mapping[str, Any]
"""What `initialization.ledger.coverage` returns."""

_MOST_SCRIPTS = 14
_MOST_LANGUAGES = 40
_MOST_EXAMPLES = 4


class Sheet(NamedTuple):
    """A table before it is set for the terminal or as Markdown."""

    title: str
    headings: tuple[str, ...]
    cells: list[list[str]]


def list_sheets(coverage: Coverage) -> list[Sheet]:
    """Return every table that the coverage allows."""
    sheets = [
        Sheet(
            "Rows by rule, in the order they are tried",
            ("rule", "rows", "share", "together"),
            list(_list_rules(coverage)),
        ),
        Sheet(
            "Rows by script",
            ("script", "rows", "matched", "share"),
            [
                [
                    name,
                    f"{one['rows']:,}",
                    f"{one['matched']:,}",
                    _share(one["matched"], one["rows"]),
                ]
                for name, one in coverage["by_script"].items()
            ],
        ),
    ]
    if coverage["by_dictionary"]:
        cells = [
            [language_name(code), f"{count:,}"] for code, count in coverage["by_dictionary"].items()
        ]
        sheets.append(Sheet("Rows by dictionary", ("language", "rows"), cells))
    if coverage["by_language"]:
        headings = ("language", "rows in use", "of these", "running tokens", "of these")
        cells = [
            [
                language_name(code),
                f"{one['rows']:,}",
                _share(one["matched_rows"], one["rows"]),
                f"{one['tokens']:,}",
                f"{100 * one['matched']:.1f} %",
            ]
            for code, one in _order_languages(coverage)
        ]
        sheets.append(Sheet("Text that a rule matched, by language", headings, cells))
    return sheets


def coverage_tables(coverage: Coverage) -> list[Table]:
    """Return the tables for the terminal."""
    return [_set_table(sheet) for sheet in list_sheets(coverage)]


def coverage_markdown(coverage: Coverage) -> str:
    """Return the tables as Markdown."""
    blocks = []
    for title, headings, cells in list_sheets(coverage):
        lines = [
            f"## {title}",
            "",
            "| " + " | ".join(headings) + " |",
            "|---" + "|---:" * (len(headings) - 1) + "|",
            *("| " + " | ".join(row) + " |" for row in cells),
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def draw_coverage(coverage: Coverage) -> Figure:
    """Draw rows by script and, where text was counted, running tokens by language."""
    scripts = {name: one["by_rule"] for name, one in coverage["by_script"].items()}
    languages = {language_name(code): one["by_rule"] for code, one in _order_languages(coverage)}
    panels = [("rows of the vocabulary by script", dict(list(scripts.items())[:_MOST_SCRIPTS]))]
    if languages:
        bars = dict(list(languages.items())[:_MOST_LANGUAGES])
        panels.append(("running text by language", bars))
    heights = [len(bars) for _, bars in panels]
    kinds = list_kinds(bar for _, bars in panels for bar in bars.values())
    with drawing_style():
        figure = Figure(figsize=(5.7, 0.6 + 0.25 * sum(heights) + 0.7 * len(heights)))
        axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axis, (title, bars) in zip(axes, panels, strict=True):
            draw_rule_bars(axis, bars)
            axis.set_title(title)
        axes[-1].set_xlabel("share (%)")
        patches = [Patch(color=choose_rule_tone(kind).light, label=kind) for kind in kinds]
        figure.legend(
            handles=patches, loc="outside upper left", ncols=len(patches), handlelength=1,
            columnspacing=1.2, handletextpad=0.5,
        )  # fmt: skip
    return figure


def write_coverage(folder: Path, coverage: Coverage) -> None:
    """Write the tables as Markdown and the figure as SVG and PDF."""
    figure = draw_coverage(coverage)
    write_text(folder / "coverage.md", coverage_markdown(coverage))
    write_text(folder / "coverage.svg", render_svg(figure))
    with atomic_file(folder / "coverage.pdf") as temporary:
        temporary.write_bytes(render_pdf(figure))


def story_text(story: Story) -> Text:
    """Tell the story of a token for the terminal."""
    text = Text(f"{story.origin.token}", style="bold")
    text.append(f"  row {story.row:,}: {story.description}\n", style="not bold")
    for step in story.steps:
        style = "bold green" if step.is_decisive else "dim"
        mark = "→" if step.is_decisive else " "
        text.append(f"  {mark} {step.rule:<18}{step.text}\n", style=style)
    text.append(f"  starts from {story.outcome}", style="not bold")
    return text


def comparison_table(comparison: Comparison) -> Table:
    """Return a line for each way in which rows changed, with examples."""
    table = Table(title="Rows that start from something else", title_justify="left")
    table.add_column("before")
    table.add_column("after")
    table.add_column("rows", justify="right")
    table.add_column("for example", overflow="fold")
    for (before, after), changes in comparison.changes.items():
        examples = "; ".join(map(_show_change, changes[:_MOST_EXAMPLES]))
        table.add_row(before, after, f"{len(changes):,}", Text(examples))
    for rule, tokens in (
        ("only before", comparison.only_before),
        ("only after", comparison.only_after),
    ):
        if tokens:
            shown = ", ".join(tokens[:_MOST_EXAMPLES])
            table.add_row(rule, "", f"{len(tokens):,}", Text(shown))
    return table


def _list_rules(coverage: Coverage) -> Iterator[list[str]]:
    together = 0
    for rule, count in coverage["by_rule"].items():
        together += count
        shares = [_share(value, coverage["rows"]) for value in (count, together)]
        yield [rule.replace("_", " "), f"{count:,}", *shares]


def _order_languages(coverage: Coverage) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Return the languages, the best covered first."""
    return sorted(coverage["by_language"].items(), key=lambda item: (-item[1]["matched"], item[0]))


def _set_table(sheet: Sheet) -> Table:
    table = Table(title=sheet.title, title_justify="left")
    for place, heading in enumerate(sheet.headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for row in sheet.cells:
        table.add_row(*row)
    return table


def _show_change(change: Change) -> str:
    return f"{change.before.token}: {_show_origin(change.before)} → {_show_origin(change.after)}"


def _show_origin(origin: Origin) -> str:
    ordered = sorted(zip(origin.weights, origin.source_tokens, strict=True), key=lambda p: -p[0])
    tokens = [token for _, token in ordered]
    return " + ".join(tokens[:3]) + (" + …" if len(tokens) > 3 else "") or "random"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"
