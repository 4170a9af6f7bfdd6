"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key; may be repeated."),
]
Output = Annotated[
    Path, typer.Option("--output", help="Folder in which the run folder NAME is made.")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
LanguageList = Annotated[
    str | None, typer.Option("--languages", help="Codes separated by commas; all without it.")
]


def split_list(text: str | None) -> list[str] | None:
    """Read values separated by commas; None stays None."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
