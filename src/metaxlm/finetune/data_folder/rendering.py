"""A report on a data folder for a person: findings come in, text and a table for rich go out.

First a paragraph on each data set (what is there, what is missing, how it should lie, where its
home is), then one table with all verdicts, which is what one sees last on a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from metaxlm.finetune.data_folder.checking import MOST_DAMAGES, count_statuses
from metaxlm.finetune.data_folder.findings import Finding, Place, Report, SplitCount

_STYLES = {"complete": "green", "partial": "yellow", "damaged": "red", "missing": "dim"}
_READING = {"yes": "yes", "no": "no", None: "-"}
_FEW = 8


def render(report: Report) -> RenderableType:
    """Return the whole report."""
    parts: list[RenderableType] = []
    for finding in report.findings:
        parts += [
            _render_title(finding),
            Padding(_render_facts(finding, report.folder), (0, 0, 1, 2)),
        ]
    parts.append(_render_table(report.findings))
    parts += [Text(complaint, "red") for complaint in report.complaints]
    counts = count_statuses(report)
    verdicts = ", ".join(f"{counts[status]} {status}" for status in _STYLES if counts[status])
    parts.append(Text(f"{report.folder}: {verdicts}", overflow="fold"))
    return Group(*parts)


def _render_title(finding: Finding) -> Text:
    title = Text(finding.data_set.name, "bold")
    title.append(f", {finding.data_set.purpose}: ", "not bold")
    return title.append(finding.status, f"not bold {_STYLES[finding.status]}")


def _render_facts(finding: Finding, folder: Path) -> Table:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True, width=8)
    facts.add_column(overflow="fold")
    for label, text in _tell(finding, folder):
        facts.add_row(label, text)
    return facts


def _tell(finding: Finding, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield labeled lines about a data set."""
    for place in finding.places:
        yield "found", f"{_shorten(place.folder, folder)}/ (layout: {place.layout.name})"
        for name, count in sorted(place.splits.items(), key=_order_splits):
            yield "", _tell_split(finding, place, name, count)
        yield "use", _tell_usage(place)
    for need, codes in finding.missing.items():
        if finding.places or finding.damages:
            wanted = finding.data_set.needs[need]
            yield "missing", f"{need.replace('|', ' or ')}: {_tell_codes(codes, wanted)}"
    for split, fewer in finding.short.items():
        yield "fewer", f"{split}: {_tell_short(fewer)}"
    for damage in finding.damages[:MOST_DAMAGES]:
        yield "damaged", damage
    if len(finding.damages) > MOST_DAMAGES:
        yield "damaged", f"and {len(finding.damages) - MOST_DAMAGES} more files"
    for note in finding.notes:
        yield "note", note
    for number, layout in enumerate(finding.data_set.layouts):
        yield "or" if number else "layout", f"{layout.shape} ({layout.name})"
    yield "home", finding.data_set.home
    yield "license", finding.data_set.license


def _order_splits(item: tuple[str, SplitCount]) -> tuple[int, str]:
    order = ("train", "dev", "test")
    return next((k for k, name in enumerate(order) if name in item[0]), len(order)), item[0]


def _tell_split(finding: Finding, place: Place, name: str, split: SplitCount) -> str:
    wanted = sorted({code for codes in finding.data_set.needs.values() for code in codes})
    total = sum(split.examples.values())
    if place.layout.unit == "bytes":
        amount = f"{total / 1e9:,.2f} GB"
    else:
        amount = f"{total:,} {place.layout.unit}"
    text = f"{name}: {_tell_codes(tuple(split.examples), wanted)}, {amount}"
    if split.unlabeled:
        hidden = _tell_codes(tuple(split.unlabeled), tuple(split.examples))
        text += f"; labels blanked: {hidden}"
    return text


def _tell_usage(place: Place) -> str:
    if place.reading == "yes":
        return f"read as it is, with `{place.usage}`"
    return f"not read so: {place.usage}"


def _tell_codes(codes: Sequence[str], wanted: Sequence[str]) -> str:
    """Name languages: all, all but a few, or which."""
    absent = [code for code in wanted if code not in codes]
    if len(wanted) > 1 and not absent and len(codes) == len(wanted):
        return f"all {len(wanted)} languages"
    if len(codes) > _FEW and 0 < len(absent) <= _FEW:
        return f"{len(codes)} languages, all but {' '.join(absent)}"
    listed = " ".join(sorted(codes))
    return listed if len(codes) <= _FEW else f"{len(codes)} languages ({listed})"


def _tell_short(short: dict[str, tuple[int, int]]) -> str:
    listed = [f"{code} {n:,} of {size:,}" for code, (n, size) in sorted(short.items())]
    more = f" and {len(listed) - _FEW} more" if len(listed) > _FEW else ""
    return ", ".join(listed[:_FEW]) + more


def _shorten(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path != folder else folder.name


def _render_table(findings: Iterable[Finding]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name, width in (("data set", 14), ("status", 8)):
        table.add_column(name, min_width=width, no_wrap=True)
    for name, width in (("languages", 9), ("examples", 9)):
        table.add_column(name, min_width=width, justify="right", no_wrap=True)
    table.add_column("read", min_width=7, no_wrap=True)
    table.add_column("missing", overflow="fold")
    for finding in findings:
        style = _STYLES[finding.status]
        table.add_row(
            finding.data_set.name,
            Text(finding.status, style),
            _count_languages(finding),
            _sum_examples(finding),
            _READING[finding.reading],
            _summarize_missing(finding),
        )
    return table


def _count_languages(finding: Finding) -> str:
    wanted = {code for codes in finding.data_set.needs.values() for code in codes}
    found = {
        code
        for place in finding.places
        for split in place.splits.values()
        for code in split.labeled
    }
    return f"{len(found & wanted)} of {len(wanted)}"


def _sum_examples(finding: Finding) -> str:
    sums: dict[str, int] = {}
    for place in finding.places:
        count = sum(sum(split.labeled.values()) for split in place.splits.values())
        sums[place.layout.unit] = sums.get(place.layout.unit, 0) + count
    shown = [f"{n / 1e9:,.1f} GB" if unit == "bytes" else f"{n:,}" for unit, n in sums.items()]
    return " + ".join(shown) or "-"


def _summarize_missing(finding: Finding) -> str:
    if not finding.places:
        return "everything"
    parts = [f"{_count(finding.damages, 'file')} damaged"] if finding.damages else []
    for need, codes in finding.missing.items():
        parts.append(f"{need.replace('|', ' or ')} in {_count(codes, 'language')}")
    for need, codes in finding.blanked.items():
        parts.append(f"labels of {need} in {_count(codes, 'language')}")
    parts += [f"part of {split}" for split in finding.short]
    return ", ".join(parts)


def _count(things: Sequence[str], noun: str) -> str:
    return f"{len(things)} {noun}" + "s" * (len(things) != 1)
