"""Tables for the eye: a table object as HTML, Markdown, LaTeX (booktabs), CSV or on a terminal.

The best value is bold everywhere. HTML tables carry scopes and a caption, and sit in a container of
their own that scrolls, so that a phone never scrolls the page sideways.
"""

from __future__ import annotations

import csv
import math
from html import escape
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.table import Table as TerminalTable
from rich.text import Text

from metaxlm.report.cells import Cell, Column, Group, Line, Table, format_cell

_WIDE = 75
"""Letters that fit in a line of LaTeX's article; a wider table is shrunk to the line."""
_LONG_TEXT = 24
"""Letters; a column of longer texts breaks its lines."""
_LATEX_SPECIALS = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "±": r"$\pm$", "−": "$-$", "–": "--", "→": r"$\rightarrow$", "×": r"$\times$",
        "<": "$<$", ">": "$>$",
    }
)  # fmt: skip


def render_html(table: Table, swatches: dict[str, str]) -> str:
    """Return a table as HTML; `swatches` names the CSS class of each variant's color."""
    head = "".join(_html_heading(column) for column in table.columns)
    bodies = "".join(_html_group(group, len(table.columns), swatches) for group in table.groups)
    notes = " ".join(table.notes)
    return (
        f'<figure class="table" id="table-{escape(table.name)}">'
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">'
        f"<table><caption>{escape(table.title)}</caption>"
        f'<thead><tr><th scope="col"><span class="unseen">Variant</span></th>{head}</tr></thead>'
        f"{bodies}</table></div>"
        + (f"<figcaption>{escape(notes)}</figcaption>" if notes else "")
        + "</figure>"
    )


def _html_heading(column: Column) -> str:
    detail = f"<small>{escape(column.detail)}</small>" if column.detail else ""
    return f'<th scope="col">{escape(column.label)}{detail}</th>'


def _html_group(group: Group, width: int, swatches: dict[str, str]) -> str:
    lines = [_html_line(line, swatches) for line in group.lines]
    if group.label:
        heading = f'<th scope="rowgroup" colspan="{width + 1}">{escape(group.label)}</th>'
        lines.insert(0, f'<tr class="group">{heading}</tr>')
    return f"<tbody>{''.join(lines)}</tbody>"


def _html_line(line: Line, swatches: dict[str, str]) -> str:
    swatch = swatches.get(line.variant or "")
    mark = f'<span class="swatch {swatch}"></span>' if swatch else ""
    opening = '<tr class="reference">' if line.reference else "<tr>"
    cells = "".join(_html_cell(cell) for cell in line.cells)
    detail = f" <small>{escape(line.detail)}</small>" if line.detail else ""
    return f'{opening}<th scope="row">{mark}{escape(line.label)}{detail}</th>{cells}</tr>'


def _html_cell(cell: Cell) -> str:
    text = format_cell(cell)
    if cell.style == "text" or cell.beside is not None:
        shown = f"<strong>{escape(text)}</strong>" if cell.best else escape(text)
        return f"<td>{shown}</td>"
    if cell.value is None:
        return '<td class="absent"><span aria-label="not measured">–</span></td>'
    number, plus_minus, deviation = text.partition(" ± ")
    number = f"<strong>{number}</strong>" if cell.best else number
    return f"<td>{number}" + (f" <small>± {deviation}</small>" if plus_minus else "") + "</td>"


def render_markdown(table: Table) -> str:
    """Return a table as GitHub-flavored Markdown."""
    headings = ["", *(_one_line(column) for column in table.columns)]
    lines = [
        f"**{table.title}**",
        "",
        _markdown_row(headings),
        _markdown_row(["---", *["---:"] * len(table.columns)]),
    ]
    for group in table.groups:
        if group.label:
            lines.append(_markdown_row([f"*{group.label}*", *[""] * len(table.columns)]))
        for line in group.lines:
            cells = [f"**{format_cell(c)}**" if c.best else format_cell(c) for c in line.cells]
            lines.append(_markdown_row([_name_line(line), *cells]))
    if table.notes:
        lines += ["", " ".join(table.notes)]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def render_latex(table: Table) -> str:
    """Return a table as a LaTeX float that needs the booktabs package; graphicx if it is wide."""
    width = len(table.columns)
    columns = _latex_columns(table)
    is_wide = "p{" not in columns and _count_letters(table) > _WIDE
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        *([r"\resizebox{\linewidth}{!}{%"] if is_wide else []),
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _latex_row(["", *(column.label for column in table.columns)]),
    ]
    if any(column.detail for column in table.columns):
        lines.append(_latex_row(["", *(column.detail for column in table.columns)]))
    for group in table.groups:
        lines.append(r"\midrule")
        if group.label:
            label = group.label.translate(_LATEX_SPECIALS)
            lines.append(rf"\multicolumn{{{width + 1}}}{{l}}{{\textit{{{label}}}}} \\")
        lines += [_latex_line(line) for line in group.lines]
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


def _count_letters(table: Table) -> int:
    """Estimate how wide a table is: the longest text of each column, and the space between."""
    lines = [line for group in table.groups for line in group.lines]
    columns = [
        [column.label, column.detail, *(format_cell(line.cells[k]) for line in lines)]
        for k, column in enumerate(table.columns)
    ]
    columns.append([_name_line(line) for line in lines])
    return sum(2 + max(map(len, texts), default=0) for texts in columns)


def _latex_columns(table: Table) -> str:
    """Name the columns: numbers at the right, words at the left, in lines where they are long."""
    lines = [line for group in table.groups for line in group.lines]
    longest = [
        max((len(line.cells[k].text) for line in lines), default=0)
        if all(line.cells[k].style == "text" for line in lines)
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


def _latex_line(line: Line) -> str:
    cells = [format_cell(cell).translate(_LATEX_SPECIALS) for cell in line.cells]
    bold = [
        rf"\textbf{{{text}}}" if cell.best else text
        for text, cell in zip(cells, line.cells, strict=True)
    ]
    return " & ".join([_name_line(line).translate(_LATEX_SPECIALS), *bold]) + r" \\"


def _latex_row(texts: list[str]) -> str:
    return " & ".join(text.translate(_LATEX_SPECIALS) for text in texts) + r" \\"


def render_csv(table: Table) -> str:
    """Return a table as CSV with all digits; deviations and second scores in columns of their own.

    Percent stay fractions. Cells without a value are empty.
    """
    every = [(group, line) for group in table.groups for line in group.lines]
    parts = [_list_parts([line.cells[k] for _, line in every]) for k in range(len(table.columns))]
    headings = [
        " ".join(word for word in (_one_line(column), part) if word)
        for column, found in zip(table.columns, parts, strict=True)
        for part in found
    ]
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", "row", *headings])
    for group, line in every:
        numbers = [
            _write_part(cell, part)
            for cell, found in zip(line.cells, parts, strict=True)
            for part in found
        ]
        writer.writerow([group.label, _name_line(line), *numbers])
    return text.getvalue()


def _list_parts(cells: list[Cell]) -> list[str]:
    """List what a column's cells hold: the value, its deviation, a second score and its own."""
    parts = [""]
    if any(cell.deviation is not None for cell in cells):
        parts.append("deviation")
    if any(cell.beside is not None for cell in cells):
        parts.append("second")
    if any(cell.beside is not None and cell.beside.deviation is not None for cell in cells):
        parts.append("second deviation")
    return parts


def _write_part(cell: Cell, part: str) -> str:
    if cell.style == "text":
        return cell.text if not part else ""
    chosen = cell.beside if part.startswith("second") else cell
    value = chosen and (chosen.deviation if part.endswith("deviation") else chosen.value)
    return "" if value is None else f"{value:.10g}"


def render_terminal(table: Table) -> TerminalTable:
    """Return a table for rich's console."""
    terminal = TerminalTable(
        title=table.title,
        caption=" ".join(table.notes),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    terminal.add_column("", no_wrap=True)
    for column in table.columns:
        heading = Text("\n".join(part for part in (column.label, column.detail) if part))
        terminal.add_column(heading, justify="right", overflow="fold")
    for group in table.groups:
        if group.label:
            terminal.add_row(Text(group.label, style="italic"))
        for line in group.lines:
            cells = [Text(format_cell(c), style="bold" if c.best else "") for c in line.cells]
            terminal.add_row(
                Text(_name_line(line)), *cells, style="dim" if line.reference else None
            )
        terminal.add_section()
    return terminal


def _name_line(line: Line) -> str:
    return f"{line.label}, {line.detail}" if line.detail else line.label


def _one_line(column: Column) -> str:
    return f"{column.label} ({column.detail})" if column.detail else column.label
