"""Tables as data, and their renderers: Markdown, LaTeX, CSV and terminals here, HTML as a template.

Cells keep the values of the results (fractions, counts); renderers format them. The best value is
bold; values that print alike are equally good. A cell may have the paper's number beside ours: HTML
shows it as a second narrow column, Markdown and LaTeX as rows beneath where rows are models, else
as columns. CSV has one line per number with all digits, and the fields that identify its rows in
results.jsonl.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from itertools import product, zip_longest
from typing import TYPE_CHECKING, Any, Literal

from metaxlm.analysis.results import Names, Pairs
from metaxlm.analysis.scores import Section
from metaxlm.analysis.stats import SeedScores, deviation, mean

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table as TerminalTable

Better = Literal["higher", "lower"]
Style = Literal["percent", "count", "decimal", "seconds", "text"]
PAPER_LABEL = "The paper, over the same languages: 270 million parameters, not competitors"
_FIELDS = (
    "table", "group", "row", "column", "detail", "number", "value", "deviation", "paper", "variant",
    "step", "task", "scenario", "source", "language", "metric", "layer", "split", "seed", "origin",
)  # fmt: skip
_WIDE = 75  # letters that fit in a line of LaTeX's article; a wider table is shrunk to the line
_LONG_TEXT = 24  # letters; LaTeX breaks the lines of columns with longer texts
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
    """A value; `style` decides how it is formatted."""

    value: float | None = None
    deviation: float | None = None
    style: Style = "percent"
    best: bool = False
    beside: Cell | None = None  # a second score after a slash: exact match after F1
    text: str = ""
    paper: Cell | None = None
    trace: Mapping[str, Any] = field(default_factory=dict)  # fields of the rows behind the value

    @property
    def parts(self) -> list[Cell]:
        """The cell and the one beside it."""
        return [self, self.beside] if self.beside else [self]

    @property
    def numbers(self) -> list[Cell]:
        """The parts without deviations."""
        return [replace(part, deviation=None, beside=None) for part in self.parts]

    @property
    def deviations(self) -> list[str]:
        """The deviations of the parts."""
        return [f"{100 * part.deviation:.1f}" for part in self.parts if part.deviation is not None]

    @property
    def origin_text(self) -> str:
        """The trace for readers, with many languages as a number."""
        trace = dict(self.trace)
        if trace and self.beside is not None:
            trace["metric"] = f"{trace.get('metric')} / {self.beside.trace.get('metric')}"
        if len(languages := str(trace.get("language", "")).split()) > 4:
            trace["language"] = f"{len(languages)} languages"
        shown = {key: value for key, value in trace.items() if value not in (None, "")}
        return "; ".join(f"{key}: {value}" for key, value in shown.items() if key != "origin")


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
    cells: Sequence[Cell]
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

    lines: Sequence[Line]
    label: str = ""
    better: Better | None = None  # overrides the columns'


@dataclass(frozen=True)
class Table:
    """A table; `name` is that of its files."""

    name: str
    title: str
    columns: Sequence[Column]
    groups: Sequence[Group]
    notes: Sequence[str] = ()

    @property
    def lines(self) -> list[Line]:
        """The rows of all groups."""
        return [line for group in self.groups for line in group.lines]

    @property
    def has_paper(self) -> list[bool]:
        """Whether each column has any number of the paper."""
        return [any(cell.paper is not None for cell in column) for column in self.by_column]

    @property
    def by_column(self) -> list[list[Cell]]:
        """The cells of each column."""
        return [[line.cells[k] for line in self.lines] for k in range(len(self.columns))]

    def is_text(self, k: int) -> bool:
        """Return whether a column has texts only."""
        return all(cell.style == "text" for cell in self.by_column[k])

    def with_cells(self, change: Callable[[Line], Sequence[Cell]]) -> Table:
        """Return the table with other cells in each row."""
        return replace(self, groups=[
            replace(group, lines=[replace(line, cells=change(line)) for line in group.lines])
            for group in self.groups
        ])  # fmt: skip


def text_cell(text: str = "") -> Cell:
    """Return a cell of text."""
    return Cell(style="text", text=text)


def text_table(
    name: str, title: str, headings: Names, rows: Iterable[Names], notes: Names = (),
    totals: Iterable[Names] = (),
) -> Table:  # fmt: skip
    """Return a table of texts: the first column names the rows; totals are a group of their own."""
    parts = [[Line(row[0], list(map(text_cell, row[1:]))) for row in p] for p in (rows, totals)]
    groups = [Group(lines) for lines in parts if lines]
    return Table(name, title, list(map(Column, headings[1:])), groups, notes)


def seed_cell(series: SeedScores, **more: Any) -> Cell:
    """Return mean and deviation over seeds; empty without scores."""
    return Cell(mean(series), deviation(list(series.values())), **more) if series else Cell()


def section_cell(section: Section, variant: str, pairs: Pairs | None = None) -> Cell:
    """Return a variant's mean over pairs of languages (by default those that all have)."""
    pairs = section.shared if pairs is None else pairs
    cells = [
        seed_cell(series, trace=section.trace(variant, pairs, metric))
        for metric in section.metrics
        if (series := section.series(variant, pairs, metric))
    ]
    return join_cells(cells) or Cell()


def join_cells(cells: Sequence[Cell]) -> Cell | None:
    """Put the second of two cells beside the first; None without cells."""
    return replace(cells[0], beside=cells[1] if cells[1:] else None) if cells else None


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
    if cell.style == "seconds":
        minutes, seconds = divmod(round(cell.value), 60)
        if minutes >= 60:
            return f"{minutes // 60} h {minutes % 60:02d} min"
        return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
    text = f"{cell.value:.2f}" if cell.style == "decimal" else f"{100 * cell.value:.1f}"
    text = "0.0" if text == "-0.0" else text.replace("-", "−")
    return text if cell.deviation is None else f"{text} ± {100 * cell.deviation:.1f}"


def mark_best(table: Table) -> Table:
    """Mark the best value of every column in each group; a single value has nothing to beat."""
    marked: dict[int, list[Cell]] = {}
    for group in table.groups:
        lines = [line for line in group.lines if not line.reference]
        columns = [
            mark_row([line.cells[k] for line in lines], group.better or column.better)
            for k, column in enumerate(table.columns)
        ]
        marked |= {id(line): [cells[k] for cells in columns] for k, line in enumerate(lines)}
    return table.with_cells(lambda line: marked.get(id(line), line.cells))


def mark_row(cells: Sequence[Cell], better: Better | None = "higher") -> list[Cell]:
    """Mark the best of cells that compete, as printed."""
    shown = [
        None if cell.value is None or cell.style == "text"
        else float(f"{100 * cell.value:.1f}") if cell.style == "percent" else round(cell.value, 2)
        for cell in cells
    ]  # fmt: skip
    known = [value for value in shown if value is not None]
    choose = min if better == "lower" else max
    best = choose(known) if better is not None and len(known) > 1 else math.nan
    return [replace(cell, best=v == best) for cell, v in zip(cells, shown, strict=True)]


def separate_paper(table: Table) -> Table:
    """Take the paper's numbers out of the cells: rows of their own under models, else columns."""
    wide = table.has_paper
    if not any(wide):
        return table
    if any(line.variant for line in table.lines):
        theirs = [
            Line(line.label, [c.paper or Cell() for c in line.cells], None, line.detail, True)
            for line in table.lines
            if any(cell.paper for cell in line.cells)
        ]
        groups = []
        for group in table.groups:
            ours = [one for one in group.lines if any(c.style != "text" for c in one.cells)]
            groups += [replace(group, lines=ours)] if ours else []
        return replace(table, groups=[*groups, Group(theirs, PAPER_LABEL)])
    columns: list[Column] = []
    for column, has_paper in zip(table.columns, wide, strict=True):
        detail = ", ".join(part for part in (column.detail, "paper") if part)
        columns += [column, Column(column.label, detail)] if has_paper else [column]

    def spread(line: Line) -> list[Cell]:
        both = [[cell, cell.paper or text_cell()] for cell in line.cells]
        return [one for pair, has in zip(both, wide, strict=True) for one in pair[: 1 + has]]

    return replace(table.with_cells(spread), columns=columns)


def render_markdown(table: Table) -> str:
    """Return GitHub-flavored Markdown."""
    table = separate_paper(table)
    headings = [f"{c.label} ({c.detail})" if c.detail else c.label for c in table.columns]
    lines = [f"**{table.title}**", "", markdown_row(["", *headings])]
    lines.append(markdown_row(["---", *["---:"] * len(table.columns)]))
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
    texts = [[line.name for line in table.lines]] + [
        [column.label, column.detail, *map(format_cell, cells)]
        for column, cells in zip(table.columns, table.by_column, strict=True)
    ]
    letters = sum(2 + max(map(len, column), default=0) for column in texts)
    is_wide = "p{" not in layout and letters > _WIDE
    lines = [r"\begin{table}[t]", r"\centering"]
    lines += [r"\resizebox{\linewidth}{!}{%"] if is_wide else []
    lines += [rf"\begin{{tabular}}{{{layout}}}", r"\toprule"]
    lines.append(_latex_row(["", *(column.label for column in table.columns)]))
    if any(column.detail for column in table.columns):
        lines.append(_latex_row(["", *(column.detail for column in table.columns)]))
    for group in table.groups:
        lines.append(r"\midrule")
        if group.label:
            label = group.label.translate(_LATEX_SPECIALS)
            lines.append(rf"\multicolumn{{{len(table.columns) + 1}}}{{l}}{{\textit{{{label}}}}} \\")
        for line in group.lines:
            bold = [k for k, cell in enumerate(line.cells, start=1) if cell.best]
            lines.append(_latex_row([line.name, *map(format_cell, line.cells)], bold))
    caption = " ".join([f"{table.title}.", *table.notes]).translate(_LATEX_SPECIALS)
    lines += [r"\bottomrule", r"\end{tabular}" + ("}" if is_wide else "")]
    lines += [rf"\caption{{{caption}}}", rf"\label{{table:{table.name}}}", r"\end{table}"]
    packages = "booktabs,graphicx" if is_wide else "booktabs"
    return f"% needs \\usepackage{{{packages}}}\n" + "\n".join(lines) + "\n"


def _latex_row(texts: Sequence[str], bold: Sequence[int] = ()) -> str:
    safe = [text.translate(_LATEX_SPECIALS) for text in texts]
    return " & ".join(rf"\textbf{{{t}}}" if k in bold else t for k, t in enumerate(safe)) + r" \\"


def _latex_columns(table: Table) -> str:
    """Name the columns: numbers right, words left, long words in lines."""
    longest = [
        max((len(cell.text) for cell in cells), default=0) if table.is_text(k) else -1
        for k, cells in enumerate(table.by_column)
    ]
    total = sum(math.sqrt(n) for n in longest if n > _LONG_TEXT)
    return "l" + "".join(
        "r" if n < 0 else "l" if n <= _LONG_TEXT
        else rf"p{{{0.75 * math.sqrt(n) / total:.2f}\linewidth}}"
        for n in longest
    )  # fmt: skip


def render_csv(table: Table) -> str:
    """Return CSV with one line per number and its origin; percent stay fractions."""
    text = StringIO()
    writer = csv.DictWriter(text, _FIELDS, lineterminator="\n")
    writer.writeheader()
    for group in table.groups:
        for line in group.lines:
            row = {"table": table.name, "group": group.label, "row": line.name}
            for column, cell in zip(table.columns, line.cells, strict=True):
                place = row | {"column": column.label, "detail": column.detail}
                for number, fields in enumerate(_list_numbers(cell), start=1):
                    writer.writerow({**place, "number": number, **fields})
    return text.getvalue()


def _list_numbers(cell: Cell) -> list[dict[str, Any]]:
    if cell.style == "text" and cell.paper is None:
        return [{"value": cell.text}] if cell.text else []
    numbers = []
    for ours, theirs in zip_longest(cell.parts, (cell.paper or Cell()).parts, fillvalue=Cell()):
        values = {"value": ours.value, "deviation": ours.deviation, "paper": theirs.value}
        shown = {key: "" if v is None else f"{v:.10g}" for key, v in values.items()}
        numbers.append({**shown, **ours.trace})
    return numbers


def render_terminal(table: Table, *, wraps: bool = True) -> TerminalTable:
    """Return a table for rich's console; without `wraps`, only long texts may be broken."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as TerminalTable
    from rich.text import Text

    terminal = TerminalTable(
        title=table.title or None, caption=" ".join(table.notes) or None, title_justify="left",
        caption_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_edge=False,
        min_width=min(len(table.title), 80),
    )  # fmt: skip
    terminal.add_column("", no_wrap=True)
    for column, cells in zip(table.columns, table.by_column, strict=True):
        heading = Text("\n".join(part for part in (column.label, column.detail) if part))
        is_long = any(len(cell.text) > _LONG_TEXT for cell in cells)
        terminal.add_column(
            heading, justify="left" if is_long else "right", overflow="fold",
            no_wrap=not (wraps or is_long),
        )  # fmt: skip
    for group in table.groups:
        if group.label:
            terminal.add_row(Text(group.label, style="italic"))
        for line in group.lines:
            texts = [Text(format_cell(c), style="bold" if c.best else "") for c in line.cells]
            terminal.add_row(Text(line.name), *texts, style="dim" if line.reference else None)
        terminal.add_section()
    return terminal


def transpose(table: Table) -> Table:
    """Exchange rows and columns, because terminals are higher than wide."""
    columns = [Column(line.label, line.detail) for line in table.lines]
    turned = [
        Line(column.label, cells, detail=column.detail)
        for column, cells in zip(table.columns, table.by_column, strict=True)
    ]
    return replace(table, columns=columns, groups=[Group(turned)])


def drop_deviations(table: Table) -> Table:
    """Leave out deviations, for narrow terminals."""
    return table.with_cells(lambda line: [replace(cell, deviation=None) for cell in line.cells])


def write_tables(folder: Path, tables: Iterable[Table]) -> None:
    """Write each table as Markdown, LaTeX and CSV into an existing folder."""
    renderers = {"md": render_markdown, "tex": render_latex, "csv": render_csv}
    for table, (suffix, render) in product(tables, renderers.items()):
        path = folder / f"{table.name}.{suffix}"
        path.write_text(render(table), encoding="utf-8", newline="\n")
