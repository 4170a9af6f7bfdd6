"""Prepared text: the folder `text/XX` with the parts `00000.txt`, ... and a manifest with counts.

A part has one sentence (or paragraph) per line, and a blank line between documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from itertools import chain, groupby
from operator import add
from pathlib import Path
from typing import Any

from metaxlm import __version__
from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.manifest import read_manifest, write_manifest

Lines = list[str]  # of one document


@dataclass
class TextCounts:
    """The amount of prepared text."""

    documents: int = 0
    sentences: int = 0
    words: int = 0  # between spaces; scripts without spaces have few and long ones
    characters: int = 0
    bytes: int = 0  # of the sentences in UTF-8, without line ends

    def add_document(self, lines: Lines) -> None:
        """Count one more document."""
        self.documents += 1
        self.sentences += len(lines)
        for line in lines:
            self.words += line.count(" ") + 1
            self.characters += len(line)
            self.bytes += len(line) if line.isascii() else len(line.encode())

    def __add__(self, other: TextCounts) -> TextCounts:
        return TextCounts(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class CorpusCounts:
    """Counts of the raw and the prepared text of a language."""

    text: TextCounts
    records: int = 0  # of the input: pages, rows or lines
    rejected: Mapping[str, int] | None = None  # records by reason
    dropped: Mapping[str, int] | None = None  # paragraphs by reason
    examples: Mapping[str, str] | None = None  # the first place of each reason


def write_lines(path: Path, documents: Iterable[Lines]) -> TextCounts:
    """Write documents to a text file under a temporary name, which the caller chooses."""
    counts = TextCounts()
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for lines in documents:
            file.write("\n" if counts.documents else "")
            file.writelines(f"{line}\n" for line in lines)
            counts.add_document(lines)
    return counts


def read_lines(path: Path) -> Iterator[Lines]:
    """Yield the documents of one part."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for is_text, lines in groupby(file, lambda line: line != "\n"):
            if is_text:
                yield [line.removesuffix("\n") for line in lines]


def list_parts(folder: Path) -> list[Path]:
    """Return the parts of a language's prepared text, in order."""
    parts = sorted(folder.glob("*.txt"))
    if not parts:
        raise MetaXLMError(f"{folder}: no prepared text; run the corpus stage again")
    return parts


def read_sentences(folder: Path) -> Iterator[str]:
    """Yield the sentences of a language's prepared text, without document boundaries."""
    require_whole(folder)
    for lines in chain.from_iterable(map(read_lines, list_parts(folder))):
        yield from lines


def seal_text(folder: Path, counts: CorpusCounts | None = None) -> None:
    """Write the manifest of a language's prepared text; count the text if no counts are given."""
    if counts is None:
        text = TextCounts()
        for lines in chain.from_iterable(map(read_lines, list_parts(folder))):
            text.add_document(lines)
        counts = CorpusCounts(text, text.documents)
    write_manifest(folder, {"metaxlm": __version__, "counts": asdict(counts)})


def read_counts(folder: Path) -> CorpusCounts:
    """Read the counts of a language's prepared text from its manifest."""
    facts: dict[str, Any] = read_manifest(folder)["counts"]
    return CorpusCounts(**facts | {"text": TextCounts(**facts["text"])})


def merge_reasons(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add up counts by reason, most frequent first."""
    total: Counter[str] = Counter()
    for part in counts:
        total.update(part)
    return dict(total.most_common())
