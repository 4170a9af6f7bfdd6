"""Plain text of one language becomes documents of sentences.

Comes in: a folder with `XX.txt`, `XX.txt.gz` or `XX.txt.xz` a language, a paragraph or sentence a
line, blank lines between documents. Goes out: `XX.txt` with exactly one sentence a line and one
blank line between documents, which is what everything downstream reads.
"""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from metaxlm.errors import MetaXLMError
from metaxlm.files import atomic_path

_OPENERS: dict[str, Callable[[Path], IO[bytes]]] = {
    ".txt": lambda path: path.open("rb"),
    ".txt.gz": lambda path: cast(IO[bytes], gzip.GzipFile(path, "rb")),
    ".txt.xz": lambda path: cast(IO[bytes], lzma.LZMAFile(path)),  # noqa: SIM115
}

Document = list[str]
"""The sentences of one document."""


def find_text(folder: Path, language: str) -> Path:
    """Return the one text file of a language in a folder."""
    if not folder.is_dir():
        raise MetaXLMError(f"{folder}: no such folder; corpus.path holds files like en.txt")
    found = [folder / f"{language}{ending}" for ending in _OPENERS]
    present = [path for path in found if path.is_file()]
    if len(present) == 1:
        return present[0]
    names = ", ".join(path.name for path in present or found)
    problem = "several files" if present else "no file"
    raise MetaXLMError(f"{folder}: {problem} for language {language!r} ({names}); keep exactly one")


def read_documents(path: Path) -> Iterator[Document]:
    """Yield the documents of a text file, line by line, without holding the file in memory."""
    ending = path.name[path.name.index(".") :]
    document: Document = []
    number = 0
    try:
        with _OPENERS[ending](path) as file:
            for raw in file:
                number += 1
                line = " ".join(raw.decode("utf-8").split())
                if line:
                    document.append(line)
                elif document:
                    yield document
                    document = []
    except UnicodeDecodeError as error:
        raise MetaXLMError(f"{path}:{number}: not UTF-8; convert the file with iconv") from error
    except (EOFError, OSError, lzma.LZMAError) as error:
        raise MetaXLMError(
            f"{path}:{number + 1}: cannot be read on ({error}); the file is damaged or cut short"
        ) from error
    if document:
        yield document


def split_into_sentences(documents: Iterable[Document], language: str) -> Iterator[Document]:
    """Split every line of every document into sentences with sentencex."""
    # Imported here: a training machine that gets finished shards does not need it.
    from sentencex import segment

    for document in documents:
        sentences = [s.strip() for line in document for s in segment(language, line)]
        kept = [sentence for sentence in sentences if sentence]
        if kept:
            yield kept


def write_documents(path: Path, documents: Iterable[Document]) -> int:
    """Write documents, a sentence a line; return how many. An empty corpus is refused."""
    num_sentences = 0
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for index, document in enumerate(documents):
            file.write("\n" * (index > 0) + "".join(f"{sentence}\n" for sentence in document))
            num_sentences += len(document)
        if not num_sentences:
            raise MetaXLMError(f"{path}: the corpus of this language is empty; nothing to train on")
    return num_sentences


def read_sentences(path: Path) -> Iterator[str]:
    """Yield the sentences of a prepared file, document boundaries left out."""
    for document in read_documents(path):
        yield from document
