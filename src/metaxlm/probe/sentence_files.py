"""Sentences of the user: a file or the standard input comes in, a text a line goes out.

For the feature-based scenario of the paper (Section 4.4) on texts of one's own. The input is gone
through once before anything is computed, so that its size is known and what is wrong with it (an
empty line, another encoding) is said at once with its line; then it is read line by line, and may
be larger than memory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError, naming
from metaxlm.files import STANDARD, get_standard_input
from metaxlm.finetune.readers.lines import InputLines, open_input
from metaxlm.reading import reading


@dataclass(frozen=True)
class SentenceFile:
    """Checked lines that can be read any number of times."""

    name: str
    """What messages call it."""
    path: Path
    num_texts: int

    def __len__(self) -> int:
        return self.num_texts

    def __iter__(self) -> Iterator[str]:
        with self._open() as lines:
            count = 0
            for count, text in lines:
                if count > self.num_texts:
                    break
                yield text
        if count != self.num_texts:
            raise MetaXLMError(f"{self.name}: changed while it was read; start again")

    def place(self, number: int) -> str:
        """Tell where the text of a number (from 1) stands."""
        return f"{self.name}:{number}"

    def _open(self) -> InputLines:
        opened = open_input(str(self.path))
        return InputLines(self.name, opened.file, opened.total_bytes)


@contextmanager
def open_sentences(source: str) -> Iterator[SentenceFile]:
    """Check a file, or the standard input for `-`, which is kept in a file until the end."""
    if source != STANDARD:
        yield _check(SentenceFile(source, Path(source), 0))
        return
    with tempfile.NamedTemporaryFile(prefix="metaxlm-") as kept:
        with naming(kept.name), reading("standard input"):
            shutil.copyfileobj(get_standard_input(), kept)
            kept.flush()
        yield _check(SentenceFile("standard input", Path(kept.name), 0))


def _check(file: SentenceFile) -> SentenceFile:
    """Count the lines; refuse empty ones, and name the first."""
    number, empty = 0, []
    with file._open() as lines:
        for number, text in lines:
            if not text.strip():
                empty.append(number)
    if number == 0:
        raise MetaXLMError(f"{file.name}:1: no text in it")
    if empty:
        others = f" (as are {len(empty) - 1:,} more)" if len(empty) > 1 else ""
        raise MetaXLMError(
            f"{file.place(empty[0])}: the line is empty{others}; a vector needs a text, remove it"
        )
    return SentenceFile(file.name, file.path, number)
