"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
LanguageList = Annotated[
    str | None, typer.Option("--languages", help="Codes separated by commas; all without it.")
]


def split_list(text: str | None) -> list[str] | None:
    """Read values separated by commas; None stays None."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
