"""The words of target-language text, and how often each occurs."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from metaxlm.init.dictionaries import Dictionary
from metaxlm.streams import open_stream


def count_words(
    text: Path | Iterable[str], language: str, dictionary: Dictionary | None = None
) -> Counter[str]:
    """Count the words of a text; without spaces, words are the longest of the dictionary."""
    counts: Counter[str] = Counter()
    lines: Iterable[str]
    if isinstance(text, Path):
        with open_stream(text) as stream:
            lines = stream.read().decode().splitlines()
    else:
        lines = text
    for line in lines:
        counts.update(line.lower().split())
    return counts
