"""Tables with the paper's numbers beside ours: as HTML, Markdown, LaTeX, and tidy CSV.

Tables of `PaperCell`s come in. HTML has two narrow columns under each heading, ours and the
paper's in a lighter tone; each number of ours has its trace as a tooltip. Markdown and LaTeX have
the paper's as rows beneath where rows are models, else as columns. The CSV has one line a number,
with the fields by which its rows are found in results.jsonl.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from html import escape
from io import StringIO

from metaxlm.report.cells import Cell, Column, Group, Line, Table, format_cell
from metaxlm.report.comparison import PAPER, PAPER_LABEL
from metaxlm.report.paper.measurements import PaperCell, Trace
from metaxlm.report.rendering import render_latex, render_markdown

_FIELDS = (
    "table", "group", "row", "column", "detail", "number", "value", "deviation", "paper",
    "variant", "step", "task", "scenario", "source", "language", "metric", "layer", "split",
    "seed", "origin",
)  # fmt: skip


def has_paper(table: Table) -> list[bool]:
    """Say for each column whether it has any number of the paper."""
    lines = [line for group in table.groups for line in group.lines]
    return [
        any(isinstance(c := line.cells[k], PaperCell) and c.paper is not None for line in lines)
        for k in range(len(table.columns))
    ]


def render_html(table: Table, swatches: dict[str, str]) -> str:
    """Return a table as HTML; `swatches` names the CSS class of each variant's color."""
    shown = has_paper(table)
    width = len(table.columns) + sum(shown) + 1
    bodies = "".join(_html_group(group, shown, width, swatches) for group in table.groups)
    notes = " ".join(table.notes)
    return (
        f'<figure class="table" id="table-{escape(table.name)}">'
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">'
        f'<table class="beside"><caption>{escape(table.title)}</caption>'
        f"{_html_head(table, shown)}{bodies}</table></div>"
        + (f"<figcaption>{escape(notes)}</figcaption>" if notes else "")
        + "</figure>"
    )


def _html_head(table: Table, shown: list[bool]) -> str:
    rows = "2" if any(shown) else "1"
    texts = _find_text_columns(table)
    top, below = [f'<th scope="col" rowspan="{rows}"><span class="unseen">Model</span></th>'], []
    for column, wide in zip(table.columns, shown, strict=True):
        detail = f"<small>{escape(column.detail)}</small>" if column.detail else ""
        words = ' class="words"' if column.label in texts else ""
        span = 'colspan="2" class="pair"' if wide else f'rowspan="{rows}"{words}'
        top.append(f'<th scope="col" {span}>{escape(column.label)}{detail}</th>')
        if wide:
            below.append('<th scope="col"><small>ours</small></th>')
            below.append('<th scope="col" class="theirs"><small>paper</small></th>')
    second = f"<tr>{''.join(below)}</tr>" if below else ""
    return f"<thead><tr>{''.join(top)}</tr>{second}</thead>"


def _find_text_columns(table: Table) -> set[str]:
    """Return the headings of columns that hold words, which stand at the left."""
    lines = [line for group in table.groups for line in group.lines]
    return {
        column.label
        for k, column in enumerate(table.columns)
        if all(line.cells[k].style == "text" for line in lines)
    }


def _html_group(group: Group, shown: list[bool], width: int, swatches: dict[str, str]) -> str:
    lines = [_html_line(line, shown, swatches) for line in group.lines]
    if group.label:
        label = f'<th scope="rowgroup" colspan="{width}">{escape(group.label)}</th>'
        lines.insert(0, f'<tr class="group">{label}</tr>')
    return f"<tbody>{''.join(lines)}</tbody>"


def _html_line(line: Line, shown: list[bool], swatches: dict[str, str]) -> str:
    swatch = swatches.get(line.variant or "")
    mark = f'<span class="swatch {swatch}"></span>' if swatch else ""
    detail = f" <small>{escape(line.detail)}</small>" if line.detail else ""
    cells = []
    for cell, wide in zip(line.cells, shown, strict=True):
        cells.append(_html_cell(cell))
        if wide:
            paper = cell.paper if isinstance(cell, PaperCell) else None
            cells.append(f'<td class="theirs">{escape(format_cell(paper)) if paper else ""}</td>')
    opening = '<tr class="reference">' if line.reference else "<tr>"
    name = f'<th scope="row">{mark}{escape(line.label)}{detail}</th>'
    return f"{opening}{name}{''.join(cells)}</tr>"


def _html_cell(cell: Cell) -> str:
    """Write our number with its deviation beneath, so that the columns stay narrow."""
    if cell.style == "text":
        return f'<td class="words">{escape(cell.text)}</td>' if cell.text else "<td></td>"
    if cell.value is None:
        return '<td class="absent"><span aria-label="not measured">–</span></td>'
    number = format_cell(_strip_deviations(cell))
    number = f"<strong>{number}</strong>" if cell.best else number
    deviations = [part.deviation for part in (cell, cell.beside) if part is not None]
    known = [f"{100 * deviation:.1f}" for deviation in deviations if deviation is not None]
    below = f"<small>± {' / '.join(known)}</small>" if known else ""
    traces = cell.traces if isinstance(cell, PaperCell) else ()
    title = f' title="{escape(describe_traces(traces))}"' if traces else ""
    return f"<td{title}>{number}{below}</td>"


def _strip_deviations(cell: Cell) -> Cell:
    beside = None if cell.beside is None else replace(cell.beside, deviation=None)
    return replace(cell, deviation=None, beside=beside)


def describe_traces(traces: tuple[Trace, ...]) -> str:
    """Write where the numbers of one cell come from; F1 and EM differ in the metric only."""
    if not traces:
        return ""
    metrics = " / ".join(trace.metric for trace in traces)
    return replace(traces[0], metric=metrics).describe()


def separate(table: Table) -> Table:
    """Take the paper's numbers out of the cells: rows of their own under models, else columns."""
    if not any(has_paper(table)):
        return table
    is_by_model = any(line.variant for group in table.groups for line in group.lines)
    return _stack(table) if is_by_model else _spread(table)


def _stack(table: Table) -> Table:
    ours, theirs = [], []
    for group in table.groups:
        lines = [line for line in group.lines if any(c.style != "text" for c in line.cells)]
        ours.append(replace(group, lines=tuple(lines)))
        for line in group.lines:
            papers = [cell.paper if isinstance(cell, PaperCell) else None for cell in line.cells]
            if any(papers):
                cells = tuple(paper or Cell() for paper in papers)
                theirs.append(replace(line, cells=cells, variant=None, reference=True))
    kept = tuple(group for group in ours if group.lines)
    return replace(table, groups=(*kept, Group(tuple(theirs), PAPER_LABEL)))


def _spread(table: Table) -> Table:
    shown = has_paper(table)
    columns: list[Column] = []
    for column, wide in zip(table.columns, shown, strict=True):
        columns.append(column)
        if wide:
            columns.append(Column(column.label, f"{column.detail}, {PAPER}".lstrip(", ")))
    groups = tuple(
        replace(group, lines=tuple(_spread_line(line, shown) for line in group.lines))
        for group in table.groups
    )
    return replace(table, columns=tuple(columns), groups=groups)


def _spread_line(line: Line, shown: list[bool]) -> Line:
    cells: list[Cell] = []
    for cell, wide in zip(line.cells, shown, strict=True):
        cells.append(cell)
        if wide:
            paper = cell.paper if isinstance(cell, PaperCell) else None
            cells.append(paper or Cell(style="text"))
    return replace(line, cells=tuple(cells))


def render_plain(table: Table) -> str:
    """Return a table as Markdown."""
    return render_markdown(separate(table))


def render_tex(table: Table) -> str:
    """Return a table as LaTeX."""
    return render_latex(separate(table))


def render_tidy(table: Table) -> str:
    """Return a table as CSV with one line a number, all digits, and where it comes from."""
    text = StringIO()
    writer = csv.DictWriter(text, _FIELDS, lineterminator="\n")
    writer.writeheader()
    for group in table.groups:
        for line in group.lines:
            for column, cell in zip(table.columns, line.cells, strict=True):
                place = {
                    "table": table.name, "group": group.label, "row": _name(line),
                    "column": column.label, "detail": column.detail,
                }  # fmt: skip
                for number, fields in enumerate(_list_numbers(cell), start=1):
                    writer.writerow({**place, "number": number, **fields})
    return text.getvalue()


def _list_numbers(cell: Cell) -> list[dict[str, object]]:
    """List what a cell holds: one number or two, each with the paper's and its trace."""
    paper = cell.paper if isinstance(cell, PaperCell) else None
    traces = cell.traces if isinstance(cell, PaperCell) else ()
    if cell.style == "text" and paper is None:
        return [{"value": cell.text}] if cell.text else []
    parts: list[tuple[Cell | None, Cell | None]] = [(cell, paper)]
    if cell.beside is not None or (paper is not None and paper.beside is not None):
        parts.append((cell.beside, paper.beside if paper else None))
    return [
        {
            "value": _digits(ours.value if ours else None),
            "deviation": _digits(ours.deviation if ours else None),
            "paper": _digits(theirs.value if theirs else None),
            **(_list_fields(traces[k]) if k < len(traces) else {}),
        }
        for k, (ours, theirs) in enumerate(parts)
    ]


def _list_fields(trace: Trace) -> dict[str, object]:
    return {
        "variant": trace.variant, "task": trace.task, "scenario": trace.scenario,
        "metric": trace.metric, "source": " ".join(trace.sources),
        "language": " ".join(trace.languages), "split": " ".join(trace.splits),
        "layer": "" if trace.layer is None else trace.layer,
        "step": "" if trace.step is None else trace.step,
        "seed": " ".join(map(str, trace.seeds)), "origin": " ".join(trace.origins),
    }  # fmt: skip


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def _name(line: Line) -> str:
    return f"{line.label}, {line.detail}" if line.detail else line.label
