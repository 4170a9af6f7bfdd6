from __future__ import annotations

import random
import warnings

import pytest
import seqeval.metrics
from sklearn.metrics import accuracy_score
from sklearn.metrics import f1_score as sklearn_f1

from metaxlm.tasks.metrics import (
    compute_accuracy,
    compute_alignment_scores,
    compute_span_scores,
    compute_tagging_f1,
    find_chunks,
    find_majority,
)
from metaxlm.tasks.udpos import TAGS

BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]
ODD = ["B-A", "I-A", "E-A", "S-A", "I-B", "O", "X", "NOUN", "B", "I", ".", "I-A-B"]

Corpus = list[list[str]]


def draw_corpora(tags: list[str], seed: int) -> tuple[Corpus, Corpus]:
    draw = random.Random(seed)
    gold = [
        [draw.choice(tags) for _ in range(draw.randint(1, 9))] for _ in range(draw.randint(1, 5))
    ]
    predicted = [
        [tag if draw.random() < 0.6 else draw.choice(tags) for tag in sentence] for sentence in gold
    ]
    return gold, predicted


@pytest.mark.parametrize("tags", [BIO, list(TAGS), ["X", "NOUN", "SCONJ", "CCONJ"], ODD])
def test_span_scores_equal_seqeval(tags: list[str]) -> None:
    for seed in range(800):
        gold, predicted = draw_corpora(tags, seed)
        ours = compute_span_scores(gold, predicted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = [
                function(gold, predicted)
                for function in (
                    seqeval.metrics.precision_score,
                    seqeval.metrics.recall_score,
                    seqeval.metrics.f1_score,
                )
            ]
        assert [ours.precision, ours.recall, ours.f1] == pytest.approx(theirs, abs=1e-12)
        assert compute_tagging_f1(gold, predicted, "xtreme") == ours.f1


def test_token_mode_is_micro_f1() -> None:
    for seed in range(200):
        gold, predicted = draw_corpora(list(TAGS), seed)
        flat = [[tag for sentence in side for tag in sentence] for side in (gold, predicted)]
        expected = sklearn_f1(flat[0], flat[1], average="micro")
        assert compute_tagging_f1(gold, predicted, "token") == pytest.approx(expected)


def test_xtreme_mode_does_not_tell_the_conjunctions_apart() -> None:
    gold, predicted = [["NOUN", "SCONJ", "VERB"]], [["NOUN", "CCONJ", "VERB"]]
    assert compute_tagging_f1(gold, predicted, "xtreme") == 1.0
    assert compute_tagging_f1(gold, predicted, "token") == pytest.approx(2 / 3)


def test_xtreme_mode_joins_neighbors_of_one_tag() -> None:
    assert find_chunks([["NOUN", "NOUN", "DET"]]) == {("OUN", 0, 1), ("ET", 2, 2)}
    assert find_chunks([["DET"], ["DET"]]) == {("ET", 0, 0), ("ET", 2, 2)}


def test_spans_by_hand() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"]]
    predicted = [["B-PER", "I-PER", "O", "B-ORG"]]
    scores = compute_span_scores(gold, predicted)
    assert (scores.precision, scores.recall, scores.f1) == (0.5, 0.5, 0.5)
    nothing = compute_span_scores(gold, [["O"] * 4])
    assert (nothing.precision, nothing.recall, nothing.f1) == (0.0, 0.0, 0.0)


def test_accuracy_equals_sklearn() -> None:
    draw = random.Random(3)
    for _ in range(200):
        gold = [draw.choice("abc") for _ in range(draw.randint(1, 30))]
        predicted = [draw.choice("abc") for _ in gold]
        assert compute_accuracy(gold, predicted) == pytest.approx(accuracy_score(gold, predicted))


def test_majority_is_the_most_frequent_and_then_the_first() -> None:
    assert find_majority(["b", "a", "a", "c"]) == "a"
    assert find_majority(["b", "a", "a", "b"]) == "b"


def test_alignment_scores_by_hand() -> None:
    # Och and Ney: A = {00, 11, 22}, S = {00, 12}, P = S + {11}; second pair adds one sure miss.
    sure = [{(0, 0), (1, 2)}, {(0, 0)}]
    possible = [{(0, 0), (1, 2), (1, 1)}, {(0, 0)}]
    predicted = [{(0, 0), (1, 1), (2, 2)}, set[tuple[int, int]]()]
    scores = compute_alignment_scores(sure, possible, predicted)
    assert scores.precision == pytest.approx(2 / 3)
    assert scores.recall == pytest.approx(1 / 3)
    assert scores.aer == pytest.approx(1 - (2 + 1) / (3 + 3))


def test_alignment_scores_take_sure_links_as_possible() -> None:
    perfect = compute_alignment_scores([{(0, 0)}], [set()], [{(0, 0)}])
    assert (perfect.aer, perfect.precision, perfect.recall) == (0.0, 1.0, 1.0)
    silent = compute_alignment_scores([{(0, 0)}], [{(0, 0)}], [set()])
    assert (silent.aer, silent.precision, silent.recall) == (1.0, 0.0, 0.0)


def test_nothing_to_score_is_no_zero() -> None:
    with pytest.raises(ValueError, match="at least one gold label"):
        compute_accuracy([], [])
    with pytest.raises(ValueError, match="at least one gold tag"):
        compute_span_scores([[]], [[]])
    with pytest.raises(ValueError, match="at least one sure link"):
        compute_alignment_scores([set()], [set()], [set()])


def test_sides_must_match() -> None:
    with pytest.raises(ValueError, match="sentence 1 has 2 gold and 1 predicted tags"):
        compute_tagging_f1([["X"], ["X", "X"]], [["X"], ["X"]], "token")
    with pytest.raises(ValueError, match="shorter"):
        compute_accuracy(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="shorter"):
        compute_alignment_scores([{(0, 0)}, {(0, 0)}], [set(), set()], [set()])
