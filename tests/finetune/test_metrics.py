from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
from metaxlm.finetune.chunks import count_chunks
from metaxlm.finetune.udpos import TAGS
from scipy.sparse import csr_matrix
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support
from sklearn.metrics import accuracy_score, multilabel_confusion_matrix
from sklearn.metrics import f1_score as sklearn_f1

from metaxlm.finetune.metrics import (
    compute_accuracy,
    compute_span_scores,
    compute_tagging_f1,
    find_majority,
)

BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]
ODD = [
    *("B-A", "I-A", "E-A", "S-A", "I-B", "O", "X", "NOUN", "B", "I", ".", "I-A-B"),
    *("E", "S", "B-", "-", "X-A", "L-A"),
]
TAG_SETS = [BIO, list(TAGS), ["X", "NOUN", "SCONJ", "CCONJ", "O"], ODD, ["B-PER"], [*ODD, *BIO]]
CASES = 10_000

Corpus = list[list[str]]


def draw_corpora(tags: list[str], seed: int, shortest: int = 0) -> tuple[Corpus, Corpus]:
    draw = random.Random(seed)
    gold = [draw.choices(tags, k=draw.randint(shortest, 9)) for _ in range(draw.randint(1, 5))]
    predicted = [
        [tag if draw.random() < 0.6 else draw.choice(tags) for tag in sentence] for sentence in gold
    ]
    return gold, predicted


@pytest.mark.parametrize("tags", TAG_SETS)
def test_span_scores_equal_seqeval(tags: list[str]) -> None:
    """To the last digit, for sentences with every kind of odd tag and without words."""
    for seed in range(-(-CASES // len(TAG_SETS))):
        gold, predicted = draw_corpora(tags, seed)
        if not any(gold):
            continue
        ours = compute_span_scores(gold, predicted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = precision_recall_fscore_support(gold, predicted, average="micro")
        assert (ours.precision, ours.recall, ours.f1) == theirs[:3]
        assert compute_tagging_f1(gold, predicted, "xtreme") == ours.f1


def test_chunks_are_counted_where_they_end() -> None:
    """The bare X is closed by the NOUN and reaches back to the last opening, a sentence before."""
    gold = [["DET"], ["NOUN"], ["X", "NOUN"], ["DET"]]
    assert count_chunks(gold, gold).tolist() == [[1] * 3, [1] * 3, [2] * 3, [1] * 3]
    # The other side opens nothing in the second sentence, so that its X starts in the first.
    assert count_chunks(gold, [["DET"], ["O"], ["X", "NOUN"], ["VERB"]]).tolist() == [
        [1, 1, 1],
        [0, 0, 1],
        [1, 2, 2],
        [0, 1, 1],
    ]
    assert count_chunks([], []).shape == (0, 3)


def test_chunks_of_single_sentences_add_up_where_none_reaches_back() -> None:
    gold, predicted = draw_corpora(BIO, 3)
    alone = [count_chunks([a], [b])[0] for a, b in zip(gold, predicted, strict=True)]
    assert np.array_equal(count_chunks(gold, predicted), alone)


def test_accuracy_and_micro_f1_equal_sklearn() -> None:
    """A corpus is a row of word-and-tag marks, so that scikit-learn counts all rows at once."""
    marks = np.zeros((2, CASES, 5 * 9, len(ODD)), dtype=np.uint8)
    ours = np.zeros(CASES)
    for case in range(CASES):
        tags = TAG_SETS[case % 4]
        corpora = draw_corpora(tags, case, shortest=1)
        flat, guesses = ([tag for sentence in side for tag in sentence] for side in corpora)
        for side, words in enumerate((flat, guesses)):
            marks[side, case, range(len(words)), [tags.index(tag) for tag in words]] = 1
        ours[case] = compute_accuracy(flat, guesses)
        assert compute_tagging_f1(*corpora, "token") == ours[case]
        if case < 100:
            assert ours[case] == accuracy_score(flat, guesses)
            assert ours[case] == pytest.approx(sklearn_f1(flat, guesses, average="micro"))
    counts = multilabel_confusion_matrix(
        *(csr_matrix(side.reshape(CASES, -1)) for side in marks), samplewise=True
    )
    right, missed, wrong = counts[:, 1, 1], counts[:, 1, 0], counts[:, 0, 1]
    assert np.array_equal(ours, right / (right + missed))
    assert np.array_equal(ours, 2 * right / (2 * right + missed + wrong))


def test_xtreme_mode_does_not_tell_the_conjunctions_apart() -> None:
    gold, predicted = [["NOUN", "SCONJ", "VERB"]], [["NOUN", "CCONJ", "VERB"]]
    assert compute_tagging_f1(gold, predicted, "xtreme") == 1.0
    assert compute_tagging_f1(gold, predicted, "token") == pytest.approx(2 / 3)


def test_xtreme_mode_joins_neighbors_of_one_tag() -> None:
    gold = [["NOUN", "NOUN", "DET"], ["DET"]]
    assert count_chunks(gold, gold).tolist() == [[2, 2, 2], [1, 1, 1]]


def test_spans_by_hand() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"]]
    predicted = [["B-PER", "I-PER", "O", "B-ORG"]]
    scores = compute_span_scores(gold, predicted)
    assert (scores.precision, scores.recall, scores.f1) == (0.5, 0.5, 0.5)
    nothing = compute_span_scores(gold, [["O"] * 4])
    assert (nothing.precision, nothing.recall, nothing.f1) == (0.0, 0.0, 0.0)


def test_majority_is_the_most_frequent_and_then_the_first() -> None:
    assert find_majority(["b", "a", "a", "c"]) == "a"
    assert find_majority(["b", "a", "a", "b"]) == "b"


def test_nothing_to_score_is_no_zero() -> None:
    with pytest.raises(ValueError, match="at least one gold label"):
        compute_accuracy([], [])
    with pytest.raises(ValueError, match="at least one gold tag"):
        compute_span_scores([[]], [[]])


def test_sides_must_match() -> None:
    with pytest.raises(ValueError, match="sentence 1 has 2 gold and 1 predicted tags"):
        compute_tagging_f1([["X"], ["X", "X"]], [["X"], ["X"]], "token")
    with pytest.raises(ValueError, match="shorter"):
        compute_accuracy(["a", "b"], ["a"])
