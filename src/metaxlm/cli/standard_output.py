"""The standard output when results are written there: UTF-8 and nothing else."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from metaxlm.errors import MetaXLMError
from metaxlm.progress import console


@contextmanager
def keep_output_clean(target: str | None) -> Iterator[None]:
    """Print messages to the standard error while results are written to the standard output (`-`).

    Results are UTF-8 there as in a file, in every locale.
    """
    if target != "-":
        yield
        return
    stream = sys.stdout
    if stream is None:
        raise MetaXLMError("standard output: closed; name a file with --output")
    before, encoding = console.stderr, stream.encoding
    console.stderr = True
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="strict")
    try:
        yield
    finally:
        console.stderr = before
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
