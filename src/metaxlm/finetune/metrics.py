"""The metrics of the paper's tables: gold and predicted labels come in, fractions go out.

Pure functions. Accuracy (XNLI), tagging F1 in two named modes (UD POS) and span F1 over BIO tags
(NER). Every number is a fraction in [0, 1]; the tables multiply by 100. No gold at all is a
`ValueError`, never a zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from metaxlm.finetune.chunks import count_chunks, score_chunks

Label = TypeVar("Label", bound=Hashable)

TaggingMode = Literal["xtreme", "token"]
"""`xtreme`: chunk F1 as seqeval 1.2.2 computes it on plain tags, which is what XTREME's script and
with it the paper report for POS. It reads a tag as a prefix letter and a type, so that NOUN has the
type OUN, SCONJ and CCONJ are one type, and neighbors of one type form one chunk. `token`: micro F1
over the words, which is accuracy because each word has one tag."""


@dataclass(frozen=True)
class SpanScores:
    """Precision, recall and F1 over the chunks of a corpus."""

    precision: float
    recall: float
    f1: float


def compute_accuracy(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """Return the share of equal entries."""
    if not gold:
        raise ValueError("accuracy needs at least one gold label")
    return sum(a == b for a, b in zip(gold, predicted, strict=True)) / len(gold)


def find_majority(labels: Iterable[Label]) -> Label:
    """Return the most frequent label; of equally frequent ones the first in the data."""
    return Counter(labels).most_common(1)[0][0]


def compute_tagging_f1(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], mode: TaggingMode
) -> float:
    """Return F1 over a corpus of tagged sentences, in the mode that the table names."""
    if mode == "xtreme":
        return compute_span_scores(gold, predicted).f1
    _check_sentences(gold, predicted)
    return compute_accuracy(
        [tag for tags in gold for tag in tags], [tag for tags in predicted for tag in tags]
    )


def compute_span_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> SpanScores:
    """Return micro-averaged scores over chunks, equal to seqeval 1.2.2 in its default mode."""
    _check_sentences(gold, predicted)
    totals = count_chunks(gold, predicted).sum(axis=0)
    return SpanScores(*(float(value) for value in score_chunks(totals)))


def _check_sentences(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
    if not any(gold):
        raise ValueError("tagging scores need at least one gold tag")
    for number, (tags, guesses) in enumerate(zip(gold, predicted, strict=True)):
        if len(tags) != len(guesses):
            raise ValueError(
                f"sentence {number} has {len(tags)} gold and {len(guesses)} predicted tags"
            )
