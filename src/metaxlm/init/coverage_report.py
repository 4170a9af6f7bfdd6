"""What a vocabulary is initialized with: tables and a figure of `metaxlm match`.

The coverage of a plan, the story of one token, and the comparison of two plans (section 3.2 of the
paper, token by token). The figure has the vocabulary by script and running text by language, each
divided by the kind of rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from metaxlm.analysis.style import choose_rule_tone, drawing_style, write_figure
from metaxlm.analysis.tables import Table, render_markdown, text_table
from metaxlm.files import write_text
from metaxlm.init.comparison import Change, Comparison
from metaxlm.init.plan import Origin
from metaxlm.init.story import Story
from metaxlm.languages import language_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Coverage = Mapping[str, Any]
"""What `initialization.ledger.coverage` returns."""

_MOST_SCRIPTS = 14
_MOST_LANGUAGES = 40
_MOST_EXAMPLES = 4


def coverage_tables(coverage: Coverage) -> list[Table]:
    """Return every table that the coverage allows."""
    rules, together = [], 0
    for rule, count in coverage["by_rule"].items():
        together += count
        shares = [_share(value, coverage["rows"]) for value in (count, together)]
        rules.append([rule.replace("_", " "), f"{count:,}", *shares])
    scripts = [
        [name, f"{one['rows']:,}", f"{one['matched']:,}", _share(one["matched"], one["rows"])]
        for name, one in coverage["by_script"].items()
    ]
    dictionaries = [
        [language_name(code), f"{count:,}"] for code, count in coverage["by_dictionary"].items()
    ]
    languages = [
        [
            language_name(code),
            f"{one['rows']:,}",
            _share(one["matched_rows"], one["rows"]),
            f"{one['tokens']:,}",
            f"{100 * one['matched']:.1f} %",
        ]
        for code, one in _order_languages(coverage)
    ]
    found = (
        ("rules", "Tokens by rule, in the order of their use",
         ("rule", "tokens", "share", "cumulative"), rules),
        ("scripts", "Tokens by script", ("script", "tokens", "matched", "share"), scripts),
        ("dictionaries", "Tokens by dictionary", ("language", "tokens"), dictionaries),
        ("languages", "Matched text, by language",
         ("language", "tokens in use", "matched", "running tokens", "matched"), languages),
    )  # fmt: skip
    return [text_table(*about) for about in found if about[-1]]


def draw_coverage(coverage: Coverage) -> Figure:
    """Draw tokens by script and, where text was counted, running text by language."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    from metaxlm.analysis.figures import draw_rule_bars, list_kinds

    scripts = {name: one["by_rule"] for name, one in coverage["by_script"].items()}
    languages = {language_name(code): one["by_rule"] for code, one in _order_languages(coverage)}
    panels = [("vocabulary by script", dict(list(scripts.items())[:_MOST_SCRIPTS]))]
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
    text = "\n".join(render_markdown(table) for table in coverage_tables(coverage))
    write_text(folder / "coverage.md", text)
    write_figure(folder, "coverage", draw_coverage(coverage))


def story_text(story: Story) -> Text:
    """Return the story of a token for the terminal."""
    text = Text(f"{story.origin.token}", style="bold")
    text.append(f"  row {story.row:,}: {story.description}\n", style="not bold")
    for step in story.steps:
        style = "bold green" if step.is_decisive else "dim"
        mark = "→" if step.is_decisive else " "
        text.append(f"  {mark} {step.rule:<18}{step.text}\n", style=style)
    text.append(f"  starts from {story.outcome}", style="not bold")
    return text


def comparison_table(comparison: Comparison) -> Table:
    """Return one row for each way in which rows changed, with examples."""
    rows = [
        [before, after, f"{len(changes):,}", "; ".join(map(_show_change, changes[:_MOST_EXAMPLES]))]
        for (before, after), changes in comparison.changes.items()
    ]
    for label, tokens in (
        ("only before", comparison.only_before),
        ("only after", comparison.only_after),
    ):
        if tokens:
            rows.append([label, "", f"{len(tokens):,}", ", ".join(tokens[:_MOST_EXAMPLES])])
    headings = ("before", "after", "tokens", "for example")
    return text_table("changes", "Tokens with another initialization", headings, rows)


def _order_languages(coverage: Coverage) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Return the languages by coverage, the best first."""
    return sorted(coverage["by_language"].items(), key=lambda item: (-item[1]["matched"], item[0]))


def _show_change(change: Change) -> str:
    return f"{change.before.token}: {_show_origin(change.before)} → {_show_origin(change.after)}"


def _show_origin(origin: Origin) -> str:
    ordered = sorted(zip(origin.weights, origin.source_tokens, strict=True), key=lambda p: -p[0])
    tokens = [token for _, token in ordered]
    return " + ".join(tokens[:3]) + (" + …" if len(tokens) > 3 else "") or "random"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"
