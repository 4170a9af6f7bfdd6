from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from metaxlm.probe.linear_head import STRENGTHS, fit_head, join_pair, train_head

RANDOM = np.random.default_rng(3)


def make_examples(num_classes: int, size: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Features of different scales, one of them constant, and noisy labels."""
    features = RANDOM.normal(size=(size, 6)) * [1, 10, 0.1, 3, 1, 0] + 5
    scores = features[:, :num_classes] + RANDOM.normal(size=(size, num_classes))
    return features.astype(np.float32), (scores - scores.mean(axis=0)).argmax(axis=1)


@pytest.mark.parametrize(("num_classes", "strength"), [(2, 1e-2), (3, 1e-1)])
def test_the_head_equals_scikit_learns(num_classes: int, strength: float) -> None:
    features, labels = make_examples(num_classes)
    head = fit_head(torch.from_numpy(features), torch.from_numpy(labels), num_classes, strength)
    scaled = StandardScaler().fit_transform(features.astype(np.float64))
    # Two classes: one vector of weights in scikit-learn, with half of the penalty of two.
    factor = 2 if num_classes == 2 else 1
    peer = LogisticRegression(C=factor / (strength * len(labels)), tol=1e-8, max_iter=1_000)
    peer.fit(scaled, labels)
    weights = head.weight_CF.numpy()
    if num_classes == 2:
        weights = weights[1:] - weights[:1]
    np.testing.assert_allclose(weights, peer.coef_, atol=2e-3)
    assert np.array_equal(head.predict(torch.from_numpy(features)), peer.predict(scaled))


@pytest.mark.parametrize("signal", [0.0, 0.3, 3.0])
def test_the_penalty_is_chosen_on_held_out_examples(signal: float) -> None:
    values = RANDOM.normal(size=(300, 40))
    truth = signal * values[:, :5].sum(axis=1) + RANDOM.normal(size=300) > 0
    features, labels = torch.from_numpy(values.astype(np.float32)), torch.from_numpy(truth).long()
    is_held = torch.arange(300) % 10 == 0
    right = {
        strength: int(
            (
                fit_head(features[~is_held], labels[~is_held], 2, strength).predict(
                    features[is_held]
                )
                == labels[is_held]
            ).sum()
        )
        for strength in STRENGTHS
    }
    best = max(STRENGTHS, key=lambda strength: (right[strength], strength))
    expected = fit_head(features, labels, 2, best)
    assert torch.equal(train_head(features, labels, 2).weight_CF, expected.weight_CF)


def test_features_of_pairs() -> None:
    first, second = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 0.5]])
    expected = [[1.0, -2.0, 3.0, 0.5, 2.0, 2.5, 3.0, -1.0]]
    assert join_pair(first, second).tolist() == expected
