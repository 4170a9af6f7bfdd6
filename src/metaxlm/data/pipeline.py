"""Prepare a corpus: from the user's files to sentences, and from sentences to token shards.

    extract      read a split of a file, filter its paragraphs, hash them    a task per split
    deduplicate  mark the paragraphs that occurred before                    a task per language
    split        split paragraphs into sentences                             a task per part
    tokenize     encode the sentences of a part                              a task per part
    join         join the token parts of a shard                             a task per shard

Each round runs its tasks in parallel (`executors`). The work folder keeps the output of all rounds
until the end, so that a run that was stopped or failed continues.
"""

from __future__ import annotations

import time
from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from importlib import import_module
from itertools import compress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from metaxlm.data.decontaminate import drop_test_lines
from metaxlm.data.documents import Rejection, Split
from metaxlm.data.executors import advance, run_tasks
from metaxlm.data.text import (
    CorpusCounts,
    TextCounts,
    list_parts,
    merge_reasons,
    read_lines,
    seal_text,
    write_lines,
)
from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.files import link, link_tree, read_json, remove, write_json
from metaxlm.manifest import atomic_folder
from metaxlm.recipe import CorpusRecipe, EngineRecipe

# Tasks import their libraries when they run: a worker needs those of one round.
if TYPE_CHECKING:
    from metaxlm.data.shards import ShardWriter

Seconds = dict[str, float]  # of each round
Outputs = dict[str, list[Path]]  # by language, or by shard
_ROUNDS = {  # title, folder of the outputs, unit of the progress
    "extract": ("corpus: read and clean", "paragraphs", "MB"),
    "deduplicate": ("corpus: find duplicates", "duplicates", "paragraphs"),
    "split": ("corpus: split sentences", "sentences", "MB"),
    "tokenize": ("tokenize", "parts", "MB"),
    "join": ("join shards", "joined", "shards"),
}
# Records that are left out on purpose; all other rejections are damage.
_INTENDED_REJECTIONS = {"redirect", "namespace", "disambiguation", "empty", "not_wikitext"}
_READERS = {"text": "lines", "jsonl": "lines"}  # modules of other names than their source
_HASHES, _TALLY, _SENTENCES, _COUNTS = ".hashes", "tally.json", "text.txt", "counts.json"


@dataclass
class _Rounds:
    engine: EngineRecipe
    work_dir: Path
    seconds: Seconds = field(default_factory=dict)

    def run(
        self,
        name: str,
        function: Callable[[Any], None],
        items: Sequence[tuple[Any, ...]],
        weights: Sequence[int],
    ) -> Outputs:
        """Call a function with each `(*item, output)`; return the outputs by first field."""
        start = time.monotonic()
        title, folder, unit = _ROUNDS[name]
        outputs = [self.work_dir / folder / f"{rank:05d}" for rank in range(len(items))]
        tasks = [(*item, output) for item, output in zip(items, outputs, strict=True)]
        run_tasks(function, tasks, weights, self.work_dir / name, self.engine, title, unit)
        self.seconds[name] = time.monotonic() - start
        done: Outputs = defaultdict(list)
        for (key, *_), output in zip(items, outputs, strict=True):
            done[key].append(output)
        return done


def prepare_text(
    recipe: CorpusRecipe,
    languages: Sequence[str],
    engine: EngineRecipe,
    folder: Path,
    work_dir: Path,
    tests: Path | None = None,
) -> Seconds:
    """Read, clean, deduplicate and split the files of every language into `folder/XX`.

    `tests` is a file of `write_test_hashes`, whose sentences are removed.
    """
    rounds = _Rounds(engine, work_dir.absolute())
    tallies, parts = _extract(recipe, languages, rounds)
    for language, tally in tallies.items():
        _check_rejections(language, tally, recipe.max_rejected)
    marks = _deduplicate(parts, rounds) if recipe.cleaning.deduplicate else {}
    done = _split(recipe, parts, marks, rounds, tests)
    for language, tally in tallies.items():
        _assemble(folder / language, language, tally, done[language])
    return rounds.seconds


def tokenize_text(
    shards: Mapping[str, tuple[Path, Path]], engine: EngineRecipe, folder: Path, work_dir: Path
) -> Seconds:
    """Write the shards `folder/NAME`, given for each its tokenizer file and prepared text."""
    for tokenizer_file, text in shards.values():
        require_whole(tokenizer_file)
        require_whole(text)
    rounds = _Rounds(engine, work_dir.absolute())
    items = [
        (name, tokenizer_file.absolute(), part)
        for name, (tokenizer_file, text) in shards.items()
        for part in list_parts(text.absolute())
    ]
    parts = rounds.run("tokenize", _tokenize_part, items, [i[-1].stat().st_size for i in items])
    joined = rounds.run("join", _join_parts, list(parts.items()), [1] * len(parts))
    for name, (shard,) in joined.items():
        link_tree(shard, folder / name)
    return rounds.seconds


# Extraction


@dataclass
class _Tally:
    records: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, counts: Counter[str], reason: str, where: str) -> None:
        counts[reason] += 1
        self.examples.setdefault(reason, where)


def _extract(
    recipe: CorpusRecipe, languages: Sequence[str], rounds: _Rounds
) -> tuple[dict[str, dict[str, Any]], Outputs]:
    from metaxlm.data.readers.inputs import find_inputs, split_input

    assert recipe.path is not None and recipe.source != "phrasebook", "the recipe checks it"
    part_bytes, folder = recipe.task_mb * 1_000_000, recipe.path.absolute()
    files = {language: find_inputs(folder, recipe.source, language) for language in languages}
    _check_shared(files)
    splits = [
        (language, split)
        for language, paths in files.items()
        for path in paths
        for split in split_input(path, recipe.source, part_bytes)
    ]
    sizes = [split.size for _, split in splits]
    done = rounds.run("extract", partial(_extract_split, recipe), splits, sizes)
    tallies, parts = {}, {}
    for language in languages:
        outputs = done[language]
        read = [read_json(output / _TALLY) for output in outputs]
        tallies[language] = {
            "records": sum(tally["records"] for tally in read),
            "rejected": merge_reasons(tally["rejected"] for tally in read),
            "dropped": merge_reasons(tally["dropped"] for tally in read),
            "examples": dict(ChainMap(*(tally["examples"] for tally in read))),  # the first ones
        }
        parts[language] = [path for output in outputs for path in sorted(output.glob("*.txt"))]
    return tallies, parts


def _extract_split(recipe: CorpusRecipe, task: tuple[str, Split, Path]) -> None:
    from metaxlm.data.clean import hash_paragraph

    language, split, folder = task
    tally = _Tally()
    # Only files that cannot be split are longer than a part, which has room for a whole split.
    part_bytes = 2 * recipe.task_mb * 1_000_000
    with atomic_folder(folder, internal=True) as temporary:
        with ExitStack() as files:
            text: IO[str] | None = None
            hashes: IO[bytes] | None = None
            number = written = 0
            for paragraphs in _read_paragraphs(recipe, language, split, tally):
                if text is None or hashes is None or written >= part_bytes:
                    files.close()
                    path = temporary / f"{number:03d}.txt"
                    text = files.enter_context(path.open("w", encoding="utf-8", newline="\n"))
                    hashes = files.enter_context(path.with_suffix(_HASHES).open("wb"))
                    number, written = number + 1, 0
                document = "\n".join(paragraphs)
                text.write(f"\n{document}\n" if written else f"{document}\n")
                hashes.write(b"".join(map(hash_paragraph, paragraphs)))
                written += len(document.encode())
        write_json(temporary / _TALLY, vars(tally))


def _read_paragraphs(
    recipe: CorpusRecipe, language: str, split: Split, tally: _Tally
) -> Iterator[list[str]]:
    from metaxlm.data.clean import ParagraphFilter

    find_fault = ParagraphFilter(language, recipe.cleaning).find_fault
    source = recipe.source
    module = import_module(f"metaxlm.data.readers.{_READERS.get(source, source)}")
    options = {"text_key": recipe.text_key} if source == "jsonl" else {}
    for record in getattr(module, f"read_{source}")(split, advance, **options):
        if isinstance(record, Rejection):
            tally.records += 1
            tally.add(tally.rejected, record.reason, record.where)
            continue
        paragraphs = record.text.split("\n")
        tally.records += len(paragraphs) if source == "text" else 1
        kept = []
        for paragraph in paragraphs:
            reason = find_fault(paragraph)
            if reason is None:
                kept.append(paragraph)
            else:
                tally.add(tally.dropped, reason, f"{record.name}: {paragraph[:60]}")
        if kept:
            yield kept


def _check_shared(files: Mapping[str, Sequence[Path]]) -> None:
    """Reject a file of two languages, such as the Wikipedia `zh` for both codes of Chinese."""
    owners: dict[Path, str] = {}
    for path, language in ((path, code) for code, paths in files.items() for path in paths):
        if (other := owners.setdefault(path, language)) != language:
            raise MetaXLMError(
                f"{path}: read for both {other!r} and {language!r}; remove one of them, or put "
                f"the text of {language!r} into a folder {language}/"
            )


def _check_rejections(language: str, tally: Mapping[str, Any], limit: float) -> None:
    rejected = tally["rejected"].items()
    damaged = {reason: n for reason, n in rejected if reason not in _INTENDED_REJECTIONS}
    if sum(damaged.values()) > limit * tally["records"]:
        reason = max(damaged, key=damaged.__getitem__)
        raise MetaXLMError(
            f"{tally['examples'][reason]}: {reason}, the first of {damaged[reason]:,} among "
            f"{tally['records']:,} records of language {language!r}; fix the files, or raise "
            f"corpus.max_rejected (now {limit})"
        )


# Deduplication and sentences


def _deduplicate(parts: Outputs, rounds: _Rounds) -> dict[Path, Path]:
    found = [(language, paths) for language, paths in parts.items() if paths]
    sizes = [sum(p.with_suffix(_HASHES).stat().st_size // 8 for p in paths) for _, paths in found]
    done = rounds.run("deduplicate", _mark_duplicates, found, sizes)
    return {
        path: done[language][0] / _bits_name(number)
        for language, paths in found
        for number, path in enumerate(paths)
    }


def _mark_duplicates(task: tuple[str, Sequence[Path], Path]) -> None:
    from metaxlm.data.clean import find_duplicates

    _, parts, output = task
    hashes = [np.memmap(path.with_suffix(_HASHES), "<u8", mode="r") for path in parts]
    with atomic_folder(output, internal=True) as temporary:
        for number, repeated in enumerate(find_duplicates(hashes)):
            np.packbits(repeated).tofile(temporary / _bits_name(number))
    advance(sum(map(len, hashes)))


def _bits_name(number: int) -> str:
    return f"{number:05d}.duplicates"


def _split(
    recipe: CorpusRecipe,
    parts: Outputs,
    marks: Mapping[Path, Path],
    rounds: _Rounds,
    tests: Path | None,
) -> Outputs:
    items = [(language, path, marks.get(path)) for language in parts for path in parts[language]]
    split = partial(_split_part, recipe.split_sentences, tests)
    return rounds.run("split", split, items, [path.stat().st_size for _, path, _ in items])


def _split_part(
    split_sentences: bool, tests: Path | None, task: tuple[str, Path, Path | None, Path]
) -> None:
    language, path, marks, output = task
    dropped: Counter[str] = Counter()
    documents = _read_part(path, marks, dropped)
    if tests is not None:
        documents = drop_test_lines(documents, tests, dropped)
    if split_sentences:
        from metaxlm.data.sentences import split_sentences as split

        split_documents = (
            [line for text in paragraphs for line in split(text, language)]
            for paragraphs in documents
        )
        documents = filter(None, split_documents)
        if tests is not None:
            documents = drop_test_lines(documents, tests, dropped)
    with atomic_folder(output, internal=True) as temporary:
        counts = write_lines(temporary / _SENTENCES, documents)
        write_json(temporary / _COUNTS, {"text": asdict(counts), "dropped": dropped})


def _read_part(path: Path, marks: Path | None, dropped: Counter[str]) -> Iterator[list[str]]:
    keep: np.ndarray[Any, np.dtype[np.bool_]] | None = None
    if marks is not None:
        keep = ~np.unpackbits(np.fromfile(marks, np.uint8)).astype(bool)
    position = 0
    for lines in read_lines(path):
        kept = lines
        if keep is not None:
            kept = list(compress(lines, keep[position : position + len(lines)]))
            dropped["duplicate"] += len(lines) - len(kept)
            position += len(lines)
        advance(sum(len(line.encode()) + 1 for line in lines))
        if kept:
            yield kept


def _assemble(folder: Path, language: str, tally: Mapping[str, Any], tasks: Sequence[Path]) -> None:
    facts = [read_json(task / _COUNTS) for task in tasks]
    counts = sum((TextCounts(**fact["text"]) for fact in facts), TextCounts())
    dropped = merge_reasons([tally["dropped"], *(fact["dropped"] for fact in facts)])
    dropped = {reason: count for reason, count in dropped.items() if count}
    if not counts.sentences:
        reasons = ", ".join(f"{n:,} {why}" for why, n in (tally["rejected"] | dropped).items())
        raise MetaXLMError(
            f"corpus of language {language!r}: no text is left of {tally['records']:,} records "
            f"({reasons or 'the files are empty'}); add text, or remove the language"
        )
    folder.mkdir(parents=True)
    full = [task for task, fact in zip(tasks, facts, strict=True) if fact["text"]["sentences"]]
    for number, task in enumerate(full):
        link(task / _SENTENCES, folder / f"{number:05d}.txt")
    records, rejected, examples = (tally[key] for key in ("records", "rejected", "examples"))
    seal_text(folder, CorpusCounts(counts, records, rejected, dropped, examples))


# Tokens


def _tokenize_part(task: tuple[str, Path, Path, Path]) -> None:
    _, tokenizer_file, text, output = task
    writer = _open_writer(tokenizer_file)
    with text.open(encoding="utf-8", newline="\n") as file:
        writer.write_part(output, (line.removesuffix("\n") for line in file), advance)


def _join_parts(task: tuple[str, Sequence[Path], Path]) -> None:
    from metaxlm.data.shards import ShardWriter

    _, parts, shard = task
    if not shard.is_dir():
        ShardWriter.join(shard, parts)
    for part in parts:
        remove(part)
    advance(1)


@lru_cache(maxsize=2)  # once for all tasks of a worker
def _open_writer(tokenizer_file: Path) -> ShardWriter:
    from tokenizers import Tokenizer

    from metaxlm.data.shards import ShardWriter

    return ShardWriter(Tokenizer.from_file(str(tokenizer_file)))
