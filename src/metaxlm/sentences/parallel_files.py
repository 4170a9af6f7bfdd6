"""Read parallel text."""

from collections.abc import Sequence
from pathlib import Path

from metaxlm.finetune.readers.input_lines import read_lines
from metaxlm.sentences.pairs import ParallelPairs


def load_parallel(
    path: Path, source_language: str = "en", languages: Sequence[str] | None = None, seed: int = 0
) -> ParallelPairs:
    """Load parallel text from a file or a folder."""
    rows = [line.split("\t") for line in read_lines(path)]
    language = path.name.split(".")[0].split("-")[-1]
    return ParallelPairs(
        [row[1] for row in rows], [row[0] for row in rows], [language] * len(rows), seed
    )
