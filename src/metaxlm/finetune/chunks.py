"""Chunks of tagged words, counted: gold and predicted tags come in, counts by sentence go out.

What named entities (span F1) and XTREME's part-of-speech F1 are scored by, equal to seqeval 1.2.2
in its default mode on any tags, and vectorized: millions of words a second. A score is a function
of sums of these counts, so that it can be taken over any part of a corpus or resampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.float64]
"""Chunks found rightly, predicted and gold, [sentences, 3]; or sums of them, [..., 3]."""

_OUTSIDE = "O"


def count_chunks(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Counts:
    """Count the chunks that are right, predicted and gold, for the sentence in which they end.

    As lenient as seqeval: an I- that follows nothing opens a chunk. And as blind: a bare letter and
    O have the same type "_", so the UD tag X opens no chunk after O or at the start of a sentence.
    If it is closed later all the same, it reaches back to the last opening, even through the end of
    a sentence. That is why the corpus is read as one stream, with an O after each sentence.
    """
    lengths = np.array([len(tags) for tags in gold], dtype=np.int64)
    sentence_of_place = np.repeat(np.arange(len(lengths)), lengths + 1)
    is_word = np.ones(len(sentence_of_place), dtype=np.bool_)
    is_word[np.cumsum(lengths + 1) - 1] = False
    tags = sorted({_OUTSIDE, *chain.from_iterable(gold), *chain.from_iterable(predicted)})
    true, found = (_find_chunks(side, tags, is_word) for side in (gold, predicted))
    # A chunk of either side that ends here is the other's as well if it starts and is called so.
    both = np.flatnonzero(true.is_end & found.is_end)
    is_same = (true.starts[both] == found.starts[both]) & (true.types[both] == found.types[both])
    columns = (both[is_same], found.is_end, true.is_end)
    return np.stack(
        [np.bincount(sentence_of_place[at], minlength=len(lengths)) for at in columns], axis=1
    ).astype(np.float64)


def score_chunks(totals: Counts) -> tuple[Counts, Counts, Counts]:
    """Return precision, recall and F1 of sums [..., 3]; 0 where there is nothing to divide by."""
    right, predicted, gold = (totals[..., k] for k in range(3))
    precision, recall = _divide(right, predicted), _divide(right, gold)
    return precision, recall, _divide(2 * precision * recall, precision + recall)


def _divide(numerator: Counts, denominator: Counts) -> Counts:
    safe = np.where(denominator > 0, denominator, 1.0)
    return np.where(denominator > 0, numerator / safe, 0.0)


class _Chunks(NamedTuple):
    """The chunks of a stream, at the places after their last words."""

    is_end: npt.NDArray[np.bool_]
    starts: npt.NDArray[np.int32]
    types: npt.NDArray[np.int32]


def _find_chunks(
    sentences: Sequence[Sequence[str]], tags: Sequence[str], is_word: npt.NDArray[np.bool_]
) -> _Chunks:
    """Find the chunks of one side; `is_word` marks the words between the Os that end sentences."""
    ids = {tag: k for k, tag in enumerate(tags)}
    stream = np.full(len(is_word), ids[_OUTSIDE], dtype=np.int32)
    stream[is_word] = np.fromiter(
        map(ids.__getitem__, chain.from_iterable(sentences)), dtype=np.int32
    )
    previous = np.concatenate([stream[-1:], stream[:-1]])
    pairs = previous * len(tags) + stream
    opens, closes = _tabulate(tags)
    places = np.arange(len(stream), dtype=np.int32)
    openings = np.maximum.accumulate(places * opens.ravel().take(pairs))
    types = [_find_type(tag) for tag in tags]
    type_of_tag = np.array([types.index(name) for name in types], dtype=np.int32)
    return _Chunks(
        closes.ravel().take(pairs),
        np.concatenate([openings[:1], openings[:-1]]),
        type_of_tag.take(previous),
    )


def _tabulate(tags: Sequence[str]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Say for each (previous tag, tag) whether a chunk opens and whether one closes between."""
    opens = np.zeros((len(tags), len(tags)), dtype=np.bool_)
    closes = np.zeros_like(opens)
    for i, previous in enumerate(tags):
        for j, tag in enumerate(tags):
            changes = _find_type(previous) != _find_type(tag)
            opens[i, j] = _opens(previous[0], tag[0], changes)
            closes[i, j] = _closes(previous[0], tag[0], changes)
    return opens, closes


def _find_type(tag: str) -> str:
    return tag[1:].split("-", 1)[-1] or "_"


def _closes(previous: str, prefix: str, type_changes: bool) -> bool:
    """Whether a chunk ends between two tags, by their first letters."""
    if previous in "O.":
        return False
    return previous in "ES" or (previous in "BI" and prefix in "BSO") or type_changes


def _opens(previous: str, prefix: str, type_changes: bool) -> bool:
    """Whether a chunk starts between two tags, by their first letters."""
    if prefix in "O.":
        return False
    return prefix in "BS" or (prefix in "EI" and previous in "ESO") or type_changes
