"""Remove sentences of test sets from a corpus.

Two texts are the same if their letters, marks and digits are, after Unicode compatibility
normalization and case folding: white space, punctuation and tokenization do not matter. Whole
paragraphs are compared, and then single sentences, by 64-bit hashes; a text that only contains a
test sentence, or quotes it with a change, stays.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from metaxlm.data.clean import hash_paragraph

TEST_SENTENCE = "test_sentence"  # the reason under which removed lines are counted


class _Letters(dict[int, int | None]):
    """Map letters, marks and digits to themselves and all other characters to nothing."""

    def __missing__(self, code: int) -> int | None:
        kept = self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else None
        return kept


_LETTERS = _Letters()


def normalize(text: str) -> str:
    """Return the letters, marks and digits that decide whether two texts are the same."""
    return unicodedata.normalize("NFKC", text).casefold().translate(_LETTERS)


def write_test_hashes(path: Path, texts: Iterable[str]) -> int:
    """Write the hashes of all texts that have letters; return their number."""
    hashes = {_hash(form) for text in texts if (form := normalize(text))}
    np.array(sorted(hashes), np.uint64).tofile(path)
    return len(hashes)


def drop_test_lines(
    documents: Iterable[list[str]], hashes: Path, dropped: Counter[str]
) -> Iterator[list[str]]:
    """Yield documents without the lines whose hashes are in the file, and count those."""
    known = _load(hashes)
    for lines in documents:
        kept = [line for line in lines if _hash(normalize(line)) not in known]
        dropped[TEST_SENTENCE] += len(lines) - len(kept)
        if kept:
            yield kept


def describe_removed(by_language: Sequence[tuple[str, int]]) -> str:
    """Write how many lines were removed, in all and by language."""
    shown = ", ".join(f"{language} {count:,}" for language, count in by_language if count)
    total = sum(count for _, count in by_language)
    return f"lines that are sentences of test sets: {total:,} removed ({shown or 'none'})"


def _hash(form: str) -> int:
    return int.from_bytes(hash_paragraph(form), "little")


@lru_cache(maxsize=1)  # once for all tasks of a worker
def _load(path: Path) -> frozenset[int]:
    return frozenset(np.fromfile(path, np.uint64).tolist())
