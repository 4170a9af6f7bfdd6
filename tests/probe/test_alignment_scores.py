from __future__ import annotations

import pytest

from metaxlm.probe.alignment import compute_alignment_scores


def test_by_hand() -> None:
    # Och and Ney: A = {00, 11, 22}, S = {00, 12}, P = S + {11}; second pair adds one sure miss.
    sure = [{(0, 0), (1, 2)}, {(0, 0)}]
    possible = [{(0, 0), (1, 2), (1, 1)}, {(0, 0)}]
    predicted = [{(0, 0), (1, 1), (2, 2)}, set[tuple[int, int]]()]
    scores = compute_alignment_scores(sure, possible, predicted)
    assert scores.precision == pytest.approx(2 / 3)
    assert scores.recall == pytest.approx(1 / 3)
    assert scores.f1 == pytest.approx(4 / 9)
    assert scores.aer == pytest.approx(1 - (2 + 1) / (3 + 3))


def test_a_second_case_by_hand() -> None:
    """Two pairs count together, not each by itself; only sure links make AER 1 - F1."""
    sure = [{(0, 0), (1, 1), (2, 2), (3, 3)}, {(0, 1)}]
    predicted = [{(0, 0), (1, 1), (2, 3)}, {(0, 1), (1, 0)}]
    scores = compute_alignment_scores(sure, [set(), set()], predicted)
    assert (scores.precision, scores.recall) == (3 / 5, 3 / 5)
    assert scores.f1 == pytest.approx(0.6)
    assert scores.aer == pytest.approx(0.4)
    # Possible links raise precision, and are no loss for recall.
    scores = compute_alignment_scores(sure, [{(2, 3)}, {(1, 0), (5, 5)}], predicted)
    assert (scores.precision, scores.recall) == (1.0, 3 / 5)
    assert scores.f1 == pytest.approx(0.75)
    assert scores.aer == pytest.approx(1 - (5 + 3) / (5 + 5))


def test_sure_links_are_possible() -> None:
    perfect = compute_alignment_scores([{(0, 0)}], [set()], [{(0, 0)}])
    assert (perfect.aer, perfect.precision, perfect.recall, perfect.f1) == (0.0, 1.0, 1.0, 1.0)
    silent = compute_alignment_scores([{(0, 0)}], [{(0, 0)}], [set()])
    assert (silent.aer, silent.precision, silent.recall, silent.f1) == (1.0, 0.0, 0.0, 0.0)


def test_nothing_to_score_is_no_zero() -> None:
    with pytest.raises(ValueError, match="at least one sure link"):
        compute_alignment_scores([set()], [set()], [set()])


def test_sides_must_match() -> None:
    with pytest.raises(ValueError, match="shorter"):
        compute_alignment_scores([{(0, 0)}, {(0, 0)}], [set(), set()], [set()])
