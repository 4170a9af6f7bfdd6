"""The standard output while results go there: messages step aside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from metaxlm.progress import console


@contextmanager
def keep_output_clean(target: str | None) -> Iterator[None]:
    """Let messages go to the standard error while results go to the standard output (`-`)."""
    before = console.stderr
    console.stderr = before or target == "-"
    try:
        yield
    finally:
        console.stderr = before
