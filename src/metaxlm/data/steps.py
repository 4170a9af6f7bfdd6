"""Corpus preparation as datatrove steps, which run the same on every engine.

    extract      ReadDocuments -> FilterParagraphs -> WriteParagraphs     a task a split of a file
    deduplicate  FindDuplicates                                           a task a language
    sentences    ReadParagraphs -> SplitSentences -> WriteSentences       a task a part
    tokenize     TokenizeText                                             a task a part
    join         JoinTokens                                               a task a language

Between steps flow datatrove documents whose text is a paragraph (later a sentence) a line. Each
task writes one folder, under its rank, that appears when it is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from itertools import compress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from datatrove.data import Document as Flowing
from datatrove.data import DocumentsPipeline
from datatrove.pipeline.base import PipelineStep

from metaxlm.config import CleaningRecipe, CorpusRecipe
from metaxlm.data.deduplication import find_duplicates, hash_paragraph
from metaxlm.data.documents import Reader, Rejection, Split
from metaxlm.data.engines.tasks import advance
from metaxlm.data.text import TextCounts, read_lines, write_lines
from metaxlm.files import remove, write_json
from metaxlm.manifest import atomic_folder

if TYPE_CHECKING:
    from metaxlm.data.shards import ShardWriter

PARAGRAPHS, HASHES, TALLY = ".txt", ".hashes", "tally.json"
SENTENCES, COUNTS, DUPLICATES = "text.txt", "counts.json", "duplicates"


@dataclass(frozen=True)
class Input:
    """A split of a file, and the language it is in."""

    language: str
    split: Split


@dataclass(frozen=True)
class Part:
    """Paragraphs of one language that one task splits into sentences."""

    language: str
    path: Path
    duplicates: Path | None
    """A file with a bit a paragraph, set for those to leave out."""


@dataclass
class Tally:
    """What happened to the records of one task; its steps share it."""

    records: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def reject(self, rejection: Rejection) -> None:
        """Count a record that could not be read or is not wanted."""
        self.records += 1
        self.rejected[rejection.reason] += 1
        self.examples.setdefault(rejection.reason, rejection.where)

    def drop(self, reason: str, where: str) -> None:
        """Count a paragraph that is left out."""
        self.dropped[reason] += 1
        self.examples.setdefault(reason, where)


class ReadDocuments(PipelineStep):  # type: ignore[misc]
    """Reads one split of one input file."""

    name, type = "read", "metaxlm"

    def __init__(self, inputs: Sequence[Input], recipe: CorpusRecipe, tally: Tally) -> None:
        super().__init__()
        self.inputs, self.recipe, self.tally = inputs, recipe, tally

    def run(
        self, data: DocumentsPipeline = None, rank: int = 0, world_size: int = 1
    ) -> Iterator[Flowing]:
        """Yield the documents of the task's split; count what is rejected."""
        del data, world_size
        task = self.inputs[rank]
        counts_lines = self.recipe.source == "text"
        for record in choose_reader(self.recipe)(task.split, advance):
            if isinstance(record, Rejection):
                self.tally.reject(record)
                continue
            self.tally.records += record.text.count("\n") + 1 if counts_lines else 1
            yield Flowing(record.text, record.name, metadata={"language": task.language})


class FilterParagraphs(PipelineStep):  # type: ignore[misc]
    """Leaves out paragraphs by length, script and language."""

    name, type = "filter", "metaxlm"

    def __init__(self, recipe: CleaningRecipe, tally: Tally) -> None:
        super().__init__()
        self.recipe, self.tally = recipe, tally

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> Iterator[Flowing]:
        """Yield the documents with the paragraphs that are kept."""
        from metaxlm.data.clean import ParagraphFilter

        del rank, world_size
        judges: dict[str, ParagraphFilter] = {}
        for document in data:
            language = document.metadata["language"]
            if language not in judges:
                judges[language] = ParagraphFilter(language, self.recipe)
            kept = []
            for paragraph in document.text.split("\n"):
                reason = judges[language].judge(paragraph)
                if reason is None:
                    kept.append(paragraph)
                else:
                    self.tally.drop(reason, f"{document.id}: {paragraph[:60]}")
            if kept:
                document.text = "\n".join(kept)
                yield document


class WriteParagraphs(PipelineStep):  # type: ignore[misc]
    """Writes paragraphs and their hashes in parts of a bounded size, and the tally."""

    name, type = "write", "metaxlm"

    def __init__(self, folder: Path, part_bytes: int, tally: Tally) -> None:
        super().__init__()
        self.folder, self.part_bytes, self.tally = folder, part_bytes, tally

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> None:
        """Write everything that arrives into the task's folder."""
        del world_size
        with atomic_folder(task_folder(self.folder, rank), internal=True) as temporary:
            with ExitStack() as files:
                text: IO[str] | None = None
                hashes: IO[bytes] | None = None
                number = written = 0
                for document in data:
                    if text is None or hashes is None or written >= self.part_bytes:
                        files.close()
                        stem = temporary / f"{number:03d}"
                        text = files.enter_context(
                            stem.with_suffix(PARAGRAPHS).open("w", encoding="utf-8", newline="\n")
                        )
                        hashes = files.enter_context(stem.with_suffix(HASHES).open("wb"))
                        number, written = number + 1, 0
                    text.write(f"\n{document.text}\n" if written else f"{document.text}\n")
                    paragraphs = document.text.split("\n")
                    hashes.write(b"".join(map(hash_paragraph, paragraphs)))
                    written += len(document.text.encode())
            write_json(temporary / TALLY, vars(self.tally))


class FindDuplicates(PipelineStep):  # type: ignore[misc]
    """Marks the paragraphs of one language that occurred before."""

    name, type = "deduplicate", "metaxlm"

    def __init__(self, folder: Path, parts: Sequence[Sequence[Path]]) -> None:
        super().__init__()
        self.folder, self.parts = folder, parts

    def run(self, data: DocumentsPipeline = None, rank: int = 0, world_size: int = 1) -> None:
        """Write a bit a paragraph for each part of the task's language."""
        del data, world_size
        hashes = [map_hashes(path.with_suffix(HASHES)) for path in self.parts[rank]]
        with atomic_folder(task_folder(self.folder, rank), internal=True) as temporary:
            for number, repeated in enumerate(find_duplicates(hashes)):
                np.packbits(repeated).tofile(duplicates_path(temporary, number))
        advance(sum(len(part) for part in hashes))


class ReadParagraphs(PipelineStep):  # type: ignore[misc]
    """Reads one part of the extracted paragraphs, without the repeated ones."""

    name, type = "read", "metaxlm"

    def __init__(self, parts: Sequence[Part], tally: Tally) -> None:
        super().__init__()
        self.parts, self.tally = parts, tally

    def run(
        self, data: DocumentsPipeline = None, rank: int = 0, world_size: int = 1
    ) -> Iterator[Flowing]:
        """Yield the documents of the task's part."""
        del data, world_size
        part = self.parts[rank]
        keep: np.ndarray[Any, np.dtype[np.bool_]] | None = None
        if part.duplicates is not None:
            keep = ~np.unpackbits(np.fromfile(part.duplicates, np.uint8)).astype(bool)
        place = 0
        for number, lines in enumerate(read_lines(part.path)):
            kept = lines
            if keep is not None:
                kept = list(compress(lines, keep[place : place + len(lines)]))
                self.tally.dropped["duplicate"] += len(lines) - len(kept)
                place += len(lines)
            advance(sum(len(line.encode()) + 1 for line in lines))
            if kept:
                yield Flowing("\n".join(kept), str(number), metadata={"language": part.language})


class SplitSentences(PipelineStep):  # type: ignore[misc]
    """Splits paragraphs into sentences."""

    name, type = "sentences", "metaxlm"

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> Iterator[Flowing]:
        """Yield the documents, a sentence a line."""
        from metaxlm.data.sentences import split_sentences

        del rank, world_size
        for document in data:
            language = document.metadata["language"]
            paragraphs = document.text.split("\n")
            document.text = "\n".join(
                sentence for text in paragraphs for sentence in split_sentences(text, language)
            )
            yield document


class WriteSentences(PipelineStep):  # type: ignore[misc]
    """Writes one part of the prepared text, and its counts."""

    name, type = "write", "metaxlm"

    def __init__(self, folder: Path, tally: Tally) -> None:
        super().__init__()
        self.folder, self.tally = folder, tally

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> None:
        """Write everything that arrives into the task's folder."""
        del world_size
        with atomic_folder(task_folder(self.folder, rank), internal=True) as temporary:
            documents = (document.text.split("\n") for document in data if document.text)
            counts: TextCounts = write_lines(temporary / SENTENCES, documents)
            facts = {"text": asdict(counts), "dropped": dict(self.tally.dropped)}
            write_json(temporary / COUNTS, facts)


class TokenizeText(PipelineStep):  # type: ignore[misc]
    """Turns one part of the prepared text into tokens."""

    name, type = "tokenize", "metaxlm"

    def __init__(self, folder: Path, tasks: Sequence[tuple[Path, Path]]) -> None:
        super().__init__()
        self.folder, self.tasks = folder, tasks

    def run(self, data: DocumentsPipeline = None, rank: int = 0, world_size: int = 1) -> None:
        """Write the tokens of the task's part with the task's tokenizer file."""
        del data, world_size
        tokenizer_file, text = self.tasks[rank]
        writer = _open_writer(tokenizer_file)
        with text.open(encoding="utf-8", newline="\n") as file:
            lines = (line.removesuffix("\n") for line in file)
            writer.write_part(task_folder(self.folder, rank), lines, advance)


class JoinTokens(PipelineStep):  # type: ignore[misc]
    """Joins the token parts of one language to its shard, and removes them."""

    name, type = "join", "metaxlm"

    def __init__(self, tasks: Sequence[tuple[Path, Sequence[Path]]]) -> None:
        super().__init__()
        self.tasks = tasks

    def run(self, data: DocumentsPipeline = None, rank: int = 0, world_size: int = 1) -> None:
        """Join the parts of the task's shard, unless that was done before."""
        from metaxlm.data.shards import ShardWriter

        del data, world_size
        shard, parts = self.tasks[rank]
        if not shard.is_dir():
            ShardWriter.join(shard, parts)
        for part in parts:
            remove(part)
        advance(1)


@lru_cache(maxsize=2)
def _open_writer(tokenizer_file: Path) -> ShardWriter:
    """Load a tokenizer once for all tasks of a worker."""
    from tokenizers import Tokenizer

    from metaxlm.data.shards import ShardWriter

    return ShardWriter(Tokenizer.from_file(str(tokenizer_file)))


def choose_reader(recipe: CorpusRecipe) -> Reader:
    """Return the reader of a corpus source."""
    if recipe.source == "text":
        from metaxlm.data.readers.text import read_text

        return read_text
    if recipe.source == "jsonl":
        from metaxlm.data.readers.jsonl import read_jsonl

        return partial(read_jsonl, text_key=recipe.text_key)
    if recipe.source == "parquet":
        from metaxlm.data.readers.parquet import read_parquet

        return read_parquet
    assert recipe.source == "dump", "the built-in corpus is not read"
    from metaxlm.data.readers.dump import read_dump

    return read_dump


def task_folder(folder: Path, rank: int) -> Path:
    """Return where a task leaves its output."""
    return folder / f"{rank:05d}"


def duplicates_path(folder: Path, number: int) -> Path:
    """Return the bits of one part of a language."""
    return folder / f"{number:05d}.{DUPLICATES}"


def map_hashes(path: Path) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Open the hashes of a part without reading them."""
    return np.memmap(path, "<u8", mode="r")
