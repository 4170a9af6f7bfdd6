"""Tables as data, and their one renderer: Markdown, LaTeX, HTML, CSV and terminal.

Values stay as they are in the results (fractions, counts) and are formatted when they are rendered.
The best value is bold everywhere; what prints alike is equally good. A cell may have the paper's
number beside ours: HTML shows it as a second narrow column, Markdown and LaTeX as rows beneath
where rows are models, else as columns. CSV has one line per number with all digits, and the fields
by which its rows are found in results.jsonl.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

from metaxlm.analysis.results import Section
from metaxlm.analysis.stats import SeedScores, deviation, mean

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table as TerminalTable

Better = Literal["higher", "lower"]
Style = Literal["percent", "count", "decimal", "seconds", "text"]
PAPER_LABEL = "Published by the paper: 270 million parameters, another size, not competitors"
_TRACE = ("variant", "step", "task", "scenario", "source", "language", "metric", "layer", "split",
          "seed", "origin")  # fmt: skip
_FIELDS = ("table", "group", "row", "column", "detail", "number", "value", "deviation", "paper",
           *_TRACE)  # fmt: skip
_WIDE = 75
"""Letters that fit in a line of LaTeX's article; a wider table is shrunk to the line."""
_LONG_TEXT = 24
"""Letters; LaTeX breaks the lines of columns with longer texts."""
_LATEX_SPECIALS = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "±": r"$\pm$", "−": "$-$", "–": "--", "→": r"$\rightarrow$", "×": r"$\times$",
        "<": "$<$", ">": "$>$",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A value; `style` says how it is formatted."""

    value: float | None = None
    deviation: float | None = None
    style: Style = "percent"
    best: bool = False
    beside: Cell | None = None
    """A second score after a slash: exact match after F1."""
    text: str = ""
    """What is printed, for the style `text`."""
    paper: Cell | None = None
    """The paper's number."""
    trace: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the rows behind the value."""


@dataclass(frozen=True)
class Column:
    """A heading; `detail` is a second, smaller line such as a metric."""

    label: str
    detail: str = ""
    better: Better | None = None


@dataclass(frozen=True)
class Line:
    """One row of cells; a reference row, such as a baseline, never competes."""

    label: str
    cells: tuple[Cell, ...]
    variant: str | None = None
    detail: str = ""
    reference: bool = False

    @property
    def name(self) -> str:
        """Label and detail in one."""
        return f"{self.label}, {self.detail}" if self.detail else self.label


@dataclass(frozen=True)
class Group:
    """Rows that compete with one another, or within each row where models are columns."""

    lines: tuple[Line, ...]
    label: str = ""
    better: Better | None = None
    """Overrides the columns'."""


@dataclass(frozen=True)
class Table:
    """A table; `name` is that of its files."""

    name: str
    title: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> list[Line]:
        """The rows of all groups."""
        return [line for group in self.groups for line in group.lines]

    @property
    def has_paper(self) -> list[bool]:
        """Whether each column has any number of the paper."""
        columns = range(len(self.columns))
        return [any(line.cells[k].paper is not None for line in self.lines) for k in columns]


def text_table(
    name: str,
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    notes: Sequence[str] = (),
    totals: Sequence[Sequence[str]] = (),
) -> Table:
    """Return a table of texts: the first column names the rows; totals are a group of their own."""
    groups = tuple(
        Group(tuple(Line(row[0], tuple(Cell(style="text", text=c) for c in row[1:]))
                    for row in part))
        for part in (list(rows), list(totals))
        if part
    )  # fmt: skip
    columns = tuple(Column(heading) for heading in headings[1:])
    return Table(name, title, columns, groups, tuple(notes))


def seed_cell(series: SeedScores, **more: Any) -> Cell:
    """Return mean and deviation over seeds; empty where nothing was measured."""
    return Cell(mean(series), deviation(list(series.values())), **more) if series else Cell()


def section_cell(
    section: Section, variant: str, pairs: Sequence[tuple[str, str]] | None = None
) -> Cell:
    """Return a variant's mean over pairs of languages (by default those that all have)."""
    pairs = section.shared if pairs is None else pairs
    cells = [
        seed_cell(series, trace=section.trace(variant, pairs, metric))
        for metric in section.metrics
        if (series := section.series(variant, pairs, metric))
    ]
    if not cells:
        return Cell()
    return replace(cells[0], beside=cells[1]) if len(cells) > 1 else cells[0]


def format_cell(cell: Cell) -> str:
    """Format a value: fractions as percent with one decimal, counts with thousands separators."""
    if cell.style == "text":
        return cell.text
    if cell.value is None:
        return "–"
    if cell.beside is not None:
        return f"{format_cell(replace(cell, beside=None))} / {format_cell(cell.beside)}"
    if cell.style == "count":
        return f"{round(cell.value):,}"
    if cell.style == "decimal":
        return f"{cell.value:.2f}".replace("-", "−")
    if cell.style == "seconds":
        return format_seconds(cell.value)
    text = f"{100 * cell.value:.1f}".replace("-", "−")
    text = "0.0" if text == "−0.0" else text
    return text if cell.deviation is None else f"{text} ± {100 * cell.deviation:.1f}"


def format_seconds(seconds: float) -> str:
    """Format a duration."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_p_value(p_value: float) -> str:
    """Format a p-value with three digits."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def mark_best(table: Table) -> Table:
    """Mark the best value of every column in each group; a single value has nothing to beat."""
    groups = []
    for group in table.groups:
        rows = [list(line.cells) for line in group.lines]
        for k, column in enumerate(table.columns):
            competing = [
                None if line.reference else row[k]
                for line, row in zip(group.lines, rows, strict=True)
            ]
            for row, best in zip(rows, _find_best(competing, group.better or column.better),
                                 strict=True):  # fmt: skip
                row[k] = replace(row[k], best=best)
        lines = (replace(line, cells=tuple(row))
                 for line, row in zip(group.lines, rows, strict=True))  # fmt: skip
        groups.append(replace(group, lines=tuple(lines)))
    return replace(table, groups=tuple(groups))


def mark_row(cells: Sequence[Cell], better: Better | None = "higher") -> tuple[Cell, ...]:
    """Mark the best of one row, where models are columns."""
    best = _find_best(cells, better)
    return tuple(replace(cell, best=is_best) for cell, is_best in zip(cells, best, strict=True))


def _find_best(cells: Sequence[Cell | None], better: Better | None) -> list[bool]:
    shown = [
        None if cell is None or cell.value is None or cell.style == "text"
        else float(f"{100 * cell.value:.1f}") if cell.style == "percent" else round(cell.value, 2)
        for cell in cells
    ]  # fmt: skip
    known = [value for value in shown if value is not None]
    if better is None or len(known) < 2:
        return [False] * len(cells)
    best = min(known) if better == "lower" else max(known)
    return [value == best for value in shown]


# Rendering ---------------------------------------------------------------------------------------


def render_html(table: Table, swatches: Mapping[str, str]) -> str:
    """Return HTML with scopes and a caption; `swatches` has the CSS class of each variant."""
    wide = table.has_paper
    texts = [all(line.cells[k].style == "text" for line in table.lines)
             for k in range(len(table.columns))]  # fmt: skip
    rows = "2" if any(wide) else "1"
    top, below = [f'<th scope="col" rowspan="{rows}"><span class="unseen">Model</span></th>'], []
    for column, has_paper, is_text in zip(table.columns, wide, texts, strict=True):
        detail = f"<small>{escape(column.detail)}</small>" if column.detail else ""
        words = ' class="words"' if is_text else ""
        span = 'colspan="2" class="pair"' if has_paper else f'rowspan="{rows}"{words}'
        top.append(f'<th scope="col" {span}>{escape(column.label)}{detail}</th>')
        if has_paper:
            below.append('<th scope="col"><small>ours</small></th>')
            below.append('<th scope="col" class="theirs"><small>paper</small></th>')
    second = f"<tr>{''.join(below)}</tr>" if below else ""
    bodies = []
    for group in table.groups:
        lines = [_html_line(line, wide, swatches) for line in group.lines]
        if group.label:
            span = f'colspan="{len(wide) + sum(wide) + 1}"'
            label = f'<th scope="rowgroup" {span}>{escape(group.label)}</th>'
            lines.insert(0, f'<tr class="group">{label}</tr>')
        bodies.append(f"<tbody>{''.join(lines)}</tbody>")
    notes = " ".join(table.notes)
    return (
        f'<figure class="table" id="table-{escape(table.name)}">'
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">'
        f"<table><caption>{escape(table.title)}</caption>"
        f"<thead><tr>{''.join(top)}</tr>{second}</thead>{''.join(bodies)}</table></div>"
        + (f"<figcaption>{escape(notes)}</figcaption>" if notes else "")
        + "</figure>"
    )


def _html_line(line: Line, wide: Sequence[bool], swatches: Mapping[str, str]) -> str:
    swatch = swatches.get(line.variant or "")
    mark = f'<span class="swatch {swatch}"></span>' if swatch else ""
    detail = f" <small>{escape(line.detail)}</small>" if line.detail else ""
    cells = []
    for cell, has_paper in zip(line.cells, wide, strict=True):
        cells.append(_html_cell(cell))
        if has_paper:
            paper = escape(format_cell(cell.paper)) if cell.paper else ""
            cells.append(f'<td class="theirs">{paper}</td>')
    opening = '<tr class="reference">' if line.reference else "<tr>"
    name = f'<th scope="row">{mark}{escape(line.label)}{detail}</th>'
    return f"{opening}{name}{''.join(cells)}</tr>"


def _html_cell(cell: Cell) -> str:
    """Print the deviation beneath the number, so that columns stay narrow."""
    if cell.style == "text":
        return f'<td class="words">{escape(cell.text)}</td>' if cell.text else "<td></td>"
    if cell.value is None:
        return '<td class="absent"><span aria-label="not measured">–</span></td>'
    parts = [part for part in (cell, cell.beside) if part is not None]
    number = " / ".join(format_cell(replace(part, deviation=None, beside=None)) for part in parts)
    number = f"<strong>{number}</strong>" if cell.best else number
    known = [f"{100 * part.deviation:.1f}" for part in parts if part.deviation is not None]
    below = f"<small>± {' / '.join(known)}</small>" if known else ""
    trace = dict(cell.trace)
    if trace and len(parts) > 1:
        trace["metric"] = " / ".join(str(part.trace.get("metric")) for part in parts)
    if len(str(trace.get("language", "")).split()) > 4:
        trace["language"] = f"{len(trace['language'].split())} languages"
    shown = "; ".join(
        f"{key}: {value}" for key, value in trace.items()
        if value not in (None, "") and key != "origin"
    )  # fmt: skip
    title = f' title="{escape(shown)}"' if shown else ""
    return f"<td{title}>{number}{below}</td>"


def separate_paper(table: Table) -> Table:
    """Take the paper's numbers out of the cells: rows of their own under models, else columns."""
    wide = table.has_paper
    if not any(wide):
        return table
    if any(line.variant for line in table.lines):
        theirs = [
            replace(line, cells=tuple(cell.paper or Cell() for cell in line.cells), variant=None,
                    reference=True)
            for line in table.lines
            if any(cell.paper for cell in line.cells)
        ]  # fmt: skip
        ours = [
            replace(group, lines=tuple(
                line for line in group.lines if any(c.style != "text" for c in line.cells)))
            for group in table.groups
        ]  # fmt: skip
        kept = [group for group in ours if group.lines]
        return replace(table, groups=(*kept, Group(tuple(theirs), PAPER_LABEL)))
    columns: list[Column] = []
    for column, has_paper in zip(table.columns, wide, strict=True):
        detail = ", ".join(part for part in (column.detail, "paper") if part)
        columns += [column, Column(column.label, detail)] if has_paper else [column]
    groups = [
        replace(group, lines=tuple(
            replace(line, cells=tuple(
                one
                for cell, has_paper in zip(line.cells, wide, strict=True)
                for one in ((cell, cell.paper or Cell(style="text")) if has_paper else (cell,))
            ))
            for line in group.lines
        ))
        for group in table.groups
    ]  # fmt: skip
    return replace(table, columns=tuple(columns), groups=tuple(groups))


def render_markdown(table: Table) -> str:
    """Return GitHub-flavored Markdown."""
    table = separate_paper(table)
    headings = ["", *(_one_line(column) for column in table.columns)]
    lines = [
        f"**{table.title}**",
        "",
        markdown_row(headings),
        markdown_row(["---", *["---:"] * len(table.columns)]),
    ]
    for group in table.groups:
        if group.label:
            lines.append(markdown_row([f"*{group.label}*", *[""] * len(table.columns)]))
        for line in group.lines:
            cells = [f"**{format_cell(c)}**" if c.best else format_cell(c) for c in line.cells]
            lines.append(markdown_row([line.name, *cells]))
    if table.notes:
        lines += ["", " ".join(table.notes)]
    return "\n".join(lines) + "\n"


def markdown_row(cells: Iterable[str]) -> str:
    """Return one row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def render_latex(table: Table) -> str:
    """Return a LaTeX float that needs the booktabs package; graphicx if it is wide."""
    table = separate_paper(table)
    layout = _latex_columns(table)
    is_wide = "p{" not in layout and _count_letters(table) > _WIDE
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        *([r"\resizebox{\linewidth}{!}{%"] if is_wide else []),
        rf"\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        _latex_row(["", *(column.label for column in table.columns)]),
    ]
    if any(column.detail for column in table.columns):
        lines.append(_latex_row(["", *(column.detail for column in table.columns)]))
    for group in table.groups:
        lines.append(r"\midrule")
        if group.label:
            label = group.label.translate(_LATEX_SPECIALS)
            lines.append(rf"\multicolumn{{{len(table.columns) + 1}}}{{l}}{{\textit{{{label}}}}} \\")
        lines += [
            _latex_row([line.name, *map(format_cell, line.cells)],
                       [False, *(cell.best for cell in line.cells)])
            for line in group.lines
        ]  # fmt: skip
    caption = " ".join([f"{table.title}.", *table.notes]).translate(_LATEX_SPECIALS)
    lines += [
        r"\bottomrule",
        r"\end{tabular}" + ("}" if is_wide else ""),
        rf"\caption{{{caption}}}",
        rf"\label{{table:{table.name}}}",
        r"\end{table}",
    ]
    packages = "booktabs,graphicx" if is_wide else "booktabs"
    return f"% needs \\usepackage{{{packages}}}\n" + "\n".join(lines) + "\n"


def _latex_row(texts: Sequence[str], bold: Sequence[bool] = ()) -> str:
    safe = [text.translate(_LATEX_SPECIALS) for text in texts]
    marked = [rf"\textbf{{{text}}}" if k < len(bold) and bold[k] else text
              for k, text in enumerate(safe)]  # fmt: skip
    return " & ".join(marked) + r" \\"


def _count_letters(table: Table) -> int:
    """Estimate how wide a table is: the longest text of each column, and the space between."""
    columns = [
        [column.label, column.detail, *(format_cell(line.cells[k]) for line in table.lines)]
        for k, column in enumerate(table.columns)
    ]
    columns.append([line.name for line in table.lines])
    return sum(2 + max(map(len, texts), default=0) for texts in columns)


def _latex_columns(table: Table) -> str:
    """Name the columns: numbers right, words left, long words in lines."""
    longest = [
        max((len(line.cells[k].text) for line in table.lines), default=0)
        if all(line.cells[k].style == "text" for line in table.lines)
        else None
        for k in range(len(table.columns))
    ]
    long = [math.sqrt(length) for length in longest if length and length > _LONG_TEXT]
    shares = [
        "r" if length is None
        else "l" if length <= _LONG_TEXT
        else rf"p{{{0.75 * math.sqrt(length) / sum(long):.2f}\linewidth}}"
        for length in longest
    ]  # fmt: skip
    return "".join(["l", *shares])


def render_csv(table: Table) -> str:
    """Return CSV with one line per number, and where it comes from; percent stay fractions."""
    text = StringIO()
    writer = csv.DictWriter(text, _FIELDS, lineterminator="\n")
    writer.writeheader()
    for group in table.groups:
        for line in group.lines:
            for column, cell in zip(table.columns, line.cells, strict=True):
                place = {
                    "table": table.name, "group": group.label, "row": line.name,
                    "column": column.label, "detail": column.detail,
                }  # fmt: skip
                for number, fields in enumerate(_list_numbers(cell), start=1):
                    writer.writerow({**place, "number": number, **fields})
    return text.getvalue()


def _list_numbers(cell: Cell) -> list[dict[str, Any]]:
    """List the numbers of a cell, one or two, each with the paper's and its trace."""
    if cell.style == "text" and cell.paper is None:
        return [{"value": cell.text}] if cell.text else []
    parts: list[tuple[Cell | None, Cell | None]] = [(cell, cell.paper)]
    if cell.beside is not None or (cell.paper is not None and cell.paper.beside is not None):
        parts.append((cell.beside, cell.paper.beside if cell.paper else None))
    return [
        {
            "value": _digits(ours.value if ours else None),
            "deviation": _digits(ours.deviation if ours else None),
            "paper": _digits(theirs.value if theirs else None),
            **(ours.trace if ours else {}),
        }
        for ours, theirs in parts
    ]


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def render_terminal(table: Table) -> TerminalTable:
    """Return a table for rich's console."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as TerminalTable
    from rich.text import Text

    terminal = TerminalTable(
        title=table.title or None, caption=" ".join(table.notes) or None, title_justify="left",
        caption_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_edge=False,
        min_width=min(len(table.title), 80),
    )  # fmt: skip
    terminal.add_column("", no_wrap=True)
    for k, column in enumerate(table.columns):
        heading = Text("\n".join(part for part in (column.label, column.detail) if part))
        longest = max((len(line.cells[k].text) for line in table.lines), default=0)
        terminal.add_column(
            heading, justify="left" if longest > _LONG_TEXT else "right", overflow="fold"
        )
    for group in table.groups:
        if group.label:
            terminal.add_row(Text(group.label, style="italic"))
        for line in group.lines:
            cells = [Text(format_cell(c), style="bold" if c.best else "") for c in line.cells]
            terminal.add_row(Text(line.name), *cells, style="dim" if line.reference else None)
        terminal.add_section()
    return terminal


def transpose(table: Table) -> Table:
    """Exchange rows and columns, for terminals, which are higher than wide."""
    columns = tuple(Column(line.label, line.detail) for line in table.lines)
    turned = tuple(
        Line(column.label, tuple(line.cells[k] for line in table.lines), detail=column.detail)
        for k, column in enumerate(table.columns)
    )
    return replace(table, columns=columns, groups=(Group(turned),))


def drop_deviations(table: Table) -> Table:
    """Leave out deviations, for narrow terminals."""
    groups = [
        replace(
            group,
            lines=tuple(
                replace(line, cells=tuple(replace(cell, deviation=None) for cell in line.cells))
                for line in group.lines
            ),
        )
        for group in table.groups
    ]
    return replace(table, groups=tuple(groups))


def write_tables(folder: Path, tables: Iterable[Table]) -> None:
    """Write each table as Markdown, LaTeX and CSV into an existing folder."""
    renderers = {".md": render_markdown, ".tex": render_latex, ".csv": render_csv}
    for table in tables:
        for suffix, render in renderers.items():
            path = folder / f"{table.name}{suffix}"
            path.write_text(render(table), encoding="utf-8", newline="\n")


def _one_line(column: Column) -> str:
    return f"{column.label} ({column.detail})" if column.detail else column.label
