"""How good links are: gold and predicted links come in, fractions go out.

Alignment error rate, precision, recall and F1 over sure and possible links (Och and Ney 2003), as
the paper's Section 4.4 reports them. Every number is a fraction in [0, 1]; the tables multiply by
100. No gold at all is a `ValueError`, never a zero.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

Link = tuple[int, int]


@dataclass(frozen=True)
class AlignmentScores:
    """Alignment error rate, precision, recall and F1 over a corpus."""

    aer: float
    """1 - (|A∩P| + |A∩S|) / (|A| + |S|) with the links A, the sure S and the possible P."""
    precision: float
    """|A∩P| / |A|."""
    recall: float
    """|A∩S| / |S|."""
    f1: float
    """Harmonic mean of precision and recall."""


def count_links(
    sure: Collection[Link], possible: Collection[Link], predicted: Collection[Link]
) -> tuple[int, int, int, int]:
    """Return |A∩S|, |A∩P|, |A| and |S| of one sentence pair."""
    gold, guesses = set(sure), set(predicted)
    allowed = gold | set(possible)
    return len(guesses & gold), len(guesses & allowed), len(guesses), len(gold)


def compute_alignment_scores(
    sure: Sequence[Collection[Link]],
    possible: Sequence[Collection[Link]],
    predicted: Sequence[Collection[Link]],
) -> AlignmentScores:
    """Return the scores over a corpus; what is sure is possible, whether it says so or not."""
    if not any(sure):
        raise ValueError("alignment scores need at least one sure link")
    counts = (count_links(*sets) for sets in zip(sure, possible, predicted, strict=True))
    in_sure, in_possible, num_predicted, num_sure = map(sum, zip(*counts, strict=True))
    precision = in_possible / num_predicted if num_predicted else 0.0
    recall = in_sure / num_sure
    return AlignmentScores(
        aer=1.0 - (in_possible + in_sure) / (num_predicted + num_sure),
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if precision and recall else 0.0,
    )
