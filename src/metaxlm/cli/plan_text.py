"""The text of `metaxlm plan`: a table that fits 80 columns, and where its numbers come from.

Comes in: the rows that `planning.make_plan` computes. Goes out: a table for the terminal and notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from metaxlm.pretrain.cost import REACHED_OF_DATASHEET, Accelerator

if TYPE_CHECKING:
    import torch

    from metaxlm.config import Recipe


def plan_table(plan: dict[str, Any]) -> Table:
    """Return the table for the terminal; it fits 80 columns."""
    table = Table(
        title=f"{plan['recipe']} on {plan['device']}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        show_footer=True,
    )
    rows = plan["trainings"]
    table.add_column("training", "total", overflow="fold")
    total = {key: sum(row[key] for row in rows) for key in ("tokens", "flops", "disk_bytes")}
    footers = ["", _count(total["tokens"]), _power(total["flops"]), "", _size(total["disk_bytes"])]
    headings = ["params", "tokens", "FLOP", "memory", "disk"]
    headings.append("here")
    footers.append(_total_hours(rows, "hours"))
    if plan["on"]:
        headings.append(plan["on"])
        footers.append(_total_hours(rows, "hours_on"))
    for heading, footer in zip(headings, footers, strict=True):
        table.add_column(heading, footer, justify="right", no_wrap=True)
    for row in rows:
        memory = (row["measured"] or {}).get("memory_bytes") or row["memory_bytes"]
        cells = [_count(row["parameters"]), _count(row["tokens"]), _power(row["flops"])]
        cells += [_size(memory, binary=True), _size(row["disk_bytes"]), _duration(row["hours"])]
        table.add_row(row["name"], *cells, *([_duration(row["hours_on"])] if plan["on"] else []))
    return table


def explain(
    recipe: Recipe, rows: Sequence[dict[str, Any]], device: torch.device, named: Accelerator | None
) -> list[str]:
    """Say where the numbers come from, and what they leave out."""
    notes = [f"{row['name']}: not measured, {row['problem']}" for row in rows if row["problem"]]
    told: set[float] = set()
    for row in rows:
        if row["measured"] and row["measured"]["seconds_per_step"] not in told:
            told.add(row["measured"]["seconds_per_step"])
            notes.append(f"{row['name']}: {_tell_measured(row['measured'])}")
    largest = max(rows, key=lambda row: float(row["memory_bytes"]))
    parts = ", ".join(
        f"{name} {_size(size, binary=True)}"
        for name, size in largest["memory_parts"].items()
        if size
    )
    notes.append(f"memory of {largest['name']}, estimated for plain torch: {parts}")
    if named is not None:
        notes.append(_tell_named(rows, device, named))
    if recipe.meta.model is not None:
        notes.append(f"meta: {recipe.meta.model} is imported, nothing is trained")
    if recipe.vocabulary.min_count:
        notes.append("vocabulary.min_count will leave fewer rows than are counted here")
    if any(row["has_teacher"] for row in rows):
        notes.append("the teacher's forward passes (distill) are not counted")
    return notes


def _tell_named(rows: Sequence[dict[str, Any]], device: torch.device, named: Accelerator) -> str:
    share = max(row["assumed_share"] for row in rows)
    is_measured = device.type == "cuda" and any(row["measured"] for row in rows)
    needed = max(row["memory_bytes_on"] for row in rows)
    text = (
        f"{named.name}: an estimate from its datasheet ({named.peak / 1e12:,.0f} TFLOP/s), of "
        f"which large products reach {REACHED_OF_DATASHEET:.0%} and a step {share:.0%} of those "
        f"({'measured here' if is_measured else 'assumed'}); needs about "
        f"{_size(needed, binary=True)} of its {_size(named.memory, binary=True)}"
    )
    return text + ("; raise micro_batches" if needed > named.memory else "")


def _tell_measured(measured: dict[str, Any]) -> str:
    batch = f"{measured['batch_size']} x {measured['length']} tokens"
    seconds = measured["seconds_per_step"]
    pace = f"{seconds * 1e3:,.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"
    text = (
        f"{pace} a step of {batch}, "
        f"{measured['tokens_per_second']:,.0f} tokens/s, {measured['peak_share']:.0%} of the "
        f"{measured['matmul_flops'] / 1e12:,.2f} TFLOP/s of a large product; "
    )
    if measured["rows"] == measured["batch_size"]:
        return text + f"{measured['steps']} steps measured"
    return text + (
        f"extrapolated from steps of {measured['rows']} of the {measured['batch_size']} rows, "
        "because whole ones take too long here"
    )


def _total_hours(rows: Sequence[dict[str, Any]], key: str) -> str:
    values = [row[key] for row in rows]
    return "" if None in values else _duration(sum(values))


def _duration(hours: float | None) -> str:
    if hours is None:
        return "–"
    if hours >= 2 * 365 * 24:
        return f"{hours / 24 / 365:,.0f} years"
    if hours >= 100:
        return f"{hours / 24:,.0f} days"
    if hours >= 1:
        return f"{hours:.1f} h"
    if hours >= 1 / 40:
        return f"{hours * 60:.0f} min"
    seconds = hours * 3600
    return f"{seconds:.0f} s" if seconds >= 1 or not seconds else "< 1 s"


def _power(number: float) -> str:
    return f"{number:.1e}".replace("e+", "e") if number else "0"


def _count(number: float) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if number >= size:
            return (
                f"{number / size:.3g}{unit}"
                if number < 1000 * size
                else f"{number / size:,.0f}{unit}"
            )
    return f"{number:.0f}"


def _size(num_bytes: float, *, binary: bool = False) -> str:
    base, units = (1024, ("MiB", "GiB")) if binary else (1000, ("MB", "GB"))
    number = num_bytes / base**2
    return f"{number:,.0f} {units[0]}" if number < base else f"{number / base:,.1f} {units[1]}"
