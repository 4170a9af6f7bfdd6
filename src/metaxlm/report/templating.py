"""The templates of all pages, which complain about values that are missing."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"


def make_environment(*, is_html: bool = True) -> Environment:
    """Return what loads templates; a value that a page needs and does not get is an error."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
