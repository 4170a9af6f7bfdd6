"""From the user's files to prepared text, and from prepared text to token shards.

Both are a few rounds of tasks on an engine (`steps.py` says which). What is done stays in the work
folder until everything is complete, so a run that was stopped, or of which a task failed, goes on
where it was. The paper's counterpart is section 4.1: Wikipedia dumps in 94 languages, sentences cut
into XLM-R's subwords.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datatrove.pipeline.base import PipelineStep

from metaxlm.config import CorpusRecipe, EngineRecipe
from metaxlm.data.engines import run_tasks
from metaxlm.data.readers.inputs import find_inputs, split_input
from metaxlm.data.steps import (
    COUNTS,
    PARAGRAPHS,
    SENTENCES,
    TALLY,
    FilterParagraphs,
    FindDuplicates,
    Input,
    JoinTokens,
    Part,
    ReadDocuments,
    ReadParagraphs,
    SplitSentences,
    Tally,
    TokenizeText,
    WriteParagraphs,
    WriteSentences,
    duplicates_path,
    task_folder,
)
from metaxlm.data.text import CorpusCounts, TextCounts, list_parts, merge_reasons, seal_text
from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.files import link, link_tree, read_json

_WANTED_REJECTIONS = frozenset({"redirect", "namespace", "disambiguation", "empty", "not_wikitext"})
"""Records that are left out on purpose; all other rejections are damage."""


Seconds = dict[str, float]
"""How long each round of tasks took."""


class _Rounds:
    """Runs one round of tasks after another on the same engine."""

    def __init__(self, engine: EngineRecipe, work_dir: Path) -> None:
        self.engine = engine
        self.work_dir = work_dir
        self.seconds: Seconds = {}

    def run(
        self,
        name: str,
        title: str,
        steps: Sequence[PipelineStep],
        weights: Sequence[int],
        unit: str = "MB",
    ) -> None:
        start = time.monotonic()
        run_tasks(steps, weights, self.work_dir / name, self.engine, title, unit)
        self.seconds[name] = time.monotonic() - start


@dataclass(frozen=True)
class _Extracted:
    """What extraction left of one language."""

    tally: Mapping[str, Any]
    parts: Sequence[Path]


def prepare_text(
    recipe: CorpusRecipe,
    languages: Sequence[str],
    engine: EngineRecipe,
    folder: Path,
    work_dir: Path,
) -> Seconds:
    """Read, clean, deduplicate and split the files of every language into `folder/XX`."""
    rounds = _Rounds(engine, work_dir.absolute())
    extracted = _extract(recipe, languages, rounds)
    for language, found in extracted.items():
        _check_rejections(language, found.tally, recipe.max_rejected)
    parts = _deduplicate(recipe, extracted, rounds)
    done = _split(recipe, parts, rounds)
    for language, found in extracted.items():
        mine = [task for task, part in zip(done, parts, strict=True) if part.language == language]
        _assemble(folder / language, language, found.tally, mine)
    return rounds.seconds


def _extract(
    recipe: CorpusRecipe, languages: Sequence[str], rounds: _Rounds
) -> dict[str, _Extracted]:
    """Run the reading tasks; return what they left, by language."""
    assert recipe.path is not None, "the recipe checks it"
    assert recipe.source != "phrasebook", "the built-in corpus is prepared"
    part_bytes = recipe.task_mb * 1_000_000
    folder = recipe.path.absolute()
    files = {language: find_inputs(folder, recipe.source, language) for language in languages}
    _check_shared(files)
    inputs = [
        Input(language, split)
        for language, paths in files.items()
        for path in paths
        for split in split_input(path, recipe.source, part_bytes)
    ]
    tally = Tally()
    output = rounds.work_dir / "paragraphs"
    steps = [
        ReadDocuments(inputs, recipe, tally),
        FilterParagraphs(recipe.cleaning, tally),
        # Only files that could not be split are worth cutting, so there is room for a whole split.
        WriteParagraphs(output, 2 * part_bytes, tally),
    ]
    weights = [task.split.size for task in inputs]
    rounds.run("extract", "corpus: read and clean", steps, weights)
    found = {}
    for language in languages:
        folders = [
            task_folder(output, rank)
            for rank, task in enumerate(inputs)
            if task.language == language
        ]
        parts = [path for task in folders for path in sorted(task.glob(f"*{PARAGRAPHS}"))]
        found[language] = _Extracted(_merge([read_json(task / TALLY) for task in folders]), parts)
    return found


def _check_shared(files: Mapping[str, Sequence[Path]]) -> None:
    """Refuse a file that is read for two languages, as Wikipedia's `zh` for both Chinese codes."""
    owners: dict[Path, str] = {}
    for language, paths in files.items():
        for path in paths:
            other = owners.setdefault(path, language)
            if other != language:
                raise MetaXLMError(
                    f"{path}: read for both {other!r} and {language!r}; keep one of them, or put "
                    f"the text of {language!r} into a folder {language}/"
                )


def _merge(tallies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    examples: dict[str, str] = {}
    for tally in tallies:
        examples = tally["examples"] | examples
    return {
        "records": sum(tally["records"] for tally in tallies),
        "rejected": merge_reasons(tally["rejected"] for tally in tallies),
        "dropped": merge_reasons(tally["dropped"] for tally in tallies),
        "examples": examples,
    }


def _check_rejections(language: str, tally: Mapping[str, Any], limit: float) -> None:
    """Refuse a corpus of which too much could not be read."""
    damaged = {
        reason: count
        for reason, count in tally["rejected"].items()
        if reason not in _WANTED_REJECTIONS
    }
    if sum(damaged.values()) > limit * tally["records"]:
        reason = max(damaged, key=lambda name: damaged[name])
        raise MetaXLMError(
            f"{tally['examples'][reason]}: {reason}, one of {damaged[reason]:,} such among "
            f"{tally['records']:,} records of language {language!r}; mend the files, or raise "
            f"corpus.max_rejected (now {limit})"
        )


def _deduplicate(
    recipe: CorpusRecipe, extracted: Mapping[str, _Extracted], rounds: _Rounds
) -> list[Part]:
    """Find repeated paragraphs; return all parts with where their repeated ones are marked."""
    full = {language: found for language, found in extracted.items() if found.parts}
    output = rounds.work_dir / "duplicates"
    if recipe.cleaning.deduplicate:
        step = FindDuplicates(output, [found.parts for found in full.values()])
        sizes = [
            sum(path.with_suffix(".hashes").stat().st_size // 8 for path in found.parts)
            for found in full.values()
        ]
        rounds.run("deduplicate", "corpus: find duplicates", [step], sizes, "paragraphs")
    return [
        Part(
            language,
            path,
            duplicates_path(task_folder(output, rank), number)
            if recipe.cleaning.deduplicate
            else None,
        )
        for rank, (language, found) in enumerate(full.items())
        for number, path in enumerate(found.parts)
    ]


def _split(recipe: CorpusRecipe, parts: Sequence[Part], rounds: _Rounds) -> list[Path]:
    """Split the parts into sentences; return the folder of each."""
    tally = Tally()
    output = rounds.work_dir / "sentences"
    steps = [ReadParagraphs(parts, tally), WriteSentences(output, tally)]
    if recipe.split_sentences:
        steps.insert(1, SplitSentences())
    weights = [part.path.stat().st_size for part in parts]
    rounds.run("split", "corpus: split sentences", steps, weights)
    return [task_folder(output, rank) for rank in range(len(parts))]


def _assemble(folder: Path, language: str, tally: Mapping[str, Any], tasks: Sequence[Path]) -> None:
    """Put the prepared text of a language in its place, with its manifest."""
    facts = [read_json(task / COUNTS) for task in tasks]
    counts = sum((TextCounts(**fact["text"]) for fact in facts), TextCounts())
    dropped = merge_reasons([tally["dropped"], *(fact["dropped"] for fact in facts)])
    if not counts.sentences:
        reasons = ", ".join(f"{n:,} {why}" for why, n in (tally["rejected"] | dropped).items())
        raise MetaXLMError(
            f"corpus of language {language!r}: no text is left of {tally['records']:,} records "
            f"({reasons or 'the files are empty'}); add text or take the language out"
        )
    folder.mkdir(parents=True)
    full = [task for task, fact in zip(tasks, facts, strict=True) if fact["text"]["sentences"]]
    for number, task in enumerate(full):
        link(task / SENTENCES, folder / f"{number:05d}.txt")
    dropped = {reason: count for reason, count in dropped.items() if count}
    seal_text(
        folder,
        CorpusCounts(counts, tally["records"], tally["rejected"], dropped, tally["examples"]),
    )


def tokenize_text(
    shards: Mapping[str, tuple[Path, Path]], engine: EngineRecipe, folder: Path, work_dir: Path
) -> Seconds:
    """Make shards `folder/NAME`, given for each its tokenizer file and prepared text."""
    for tokenizer_file, text in shards.values():
        require_whole(tokenizer_file)
        require_whole(text)
    rounds = _Rounds(engine, work_dir.absolute())
    texts = {name: list_parts(text.absolute()) for name, (_, text) in shards.items()}
    tasks = [(shards[name][0].absolute(), part) for name, parts in texts.items() for part in parts]
    output = rounds.work_dir / "parts"
    weights = [part.stat().st_size for _, part in tasks]
    rounds.run("tokenize", "tokenize", [TokenizeText(output, tasks)], weights)
    joins, rank = [], 0
    for name, parts in texts.items():
        mine = [task_folder(output, rank + number) for number in range(len(parts))]
        joins.append((rounds.work_dir / "shards" / name, mine))
        rank += len(parts)
    rounds.run("join", "join shards", [JoinTokens(joins)], [1] * len(joins), "shards")
    link_tree(rounds.work_dir / "shards", folder)
    return rounds.seconds
