"""Statistics against scipy, against enumeration, and against data whose truth is known."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from metaxlm.analysis import stats as ours
from metaxlm.analysis.stats import (
    compare_pairs,
    correct_holm,
    deviation,
    find_interval,
    share_test,
    sign_test,
    trend_test,
)

Floats = npt.NDArray[np.float64]


def accuracy(totals: Floats) -> Floats:
    """Tallies are (right, all)."""
    return np.asarray(totals[..., 0] / totals[..., 1])


def f1(totals: Floats) -> Floats:
    """Tallies are (right, predicted, gold): not a mean over examples."""
    return np.asarray(2 * totals[..., 0] / np.maximum(totals[..., 1] + totals[..., 2], 1))


def answer(right: npt.ArrayLike) -> Floats:
    """Tallies of right and wrong answers."""
    right = np.asarray(right, dtype=np.float64)
    return np.stack([right, np.ones_like(right)], axis=1)


def test_the_interval_over_seeds_is_scipys() -> None:
    values = [0.712, 0.698, 0.731, 0.705, 0.722]
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert deviation(values) == pytest.approx(np.std(values, ddof=1))
    assert find_interval(values) == pytest.approx((interval.low, interval.high))
    assert deviation([0.5]) is None and find_interval([0.5]) is None


def test_a_small_case_by_enumeration() -> None:
    """Nine examples have 512 exchanges; 20,000 draws must find the exact p-value."""
    random = np.random.default_rng(5)
    gold = random.integers(1, 4, 9).astype(float)
    tallies = []
    for bonus in (1, 0):
        right = np.minimum(random.integers(0, 3, 9) + bonus, gold)
        tallies.append(np.stack([right, right + 1, gold], axis=1))
    one, two = tallies
    observed = f1(one.sum(axis=0)) - f1(two.sum(axis=0))
    values = []
    for flips in itertools.product([False, True], repeat=9):
        keep = ~np.array(flips)[:, None]
        first, second = np.where(keep, one, two), np.where(keep, two, one)
        values.append(float(f1(first.sum(axis=0)) - f1(second.sum(axis=0))))
    exact = np.mean(np.abs(values) >= abs(observed) - 1e-12)
    [pair] = compare_pairs({"a": [one], "b": [two]}, f1, resamples=20_000)
    assert pair.mean.value == pytest.approx(observed)
    assert 0.02 < exact < 0.5
    assert pair.mean.p_value == pytest.approx(exact, abs=0.012)
    assert pair.by_language == (pair.mean,)


def test_exact_tests_are_scipys() -> None:
    for better, worse in ((0, 0), (0, 6), (3, 3), (9, 2), (15, 25)):
        exact = stats.binomtest(better, better + worse).pvalue if better + worse else 1.0
        assert sign_test(better, worse) == pytest.approx(exact)
    for hits, total, share in ((0, 4, 0.25), (3, 4, 0.25), (36, 36, 0.3)):
        assert share_test(hits, total, share) == pytest.approx(
            stats.binom.sf(hits - 1, total, share)
        )
    random = np.random.default_rng(3)
    for size, has_ties in itertools.product((2, 5, 20, 33, 50), (False, True)):
        values = random.normal(size=size).round(1 if has_ties else 9).tolist()
        theirs = stats.kendalltau(range(size), values)
        assert trend_test(values) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert trend_test([0.5, 0.5]) == (0.0, 1.0)


def test_p_value_and_interval_are_scipys() -> None:
    random = np.random.default_rng(12)
    one, two = (random.random(200) < share for share in (0.62, 0.5))
    [pair] = compare_pairs({"a": [answer(one)], "b": [answer(two)]}, accuracy)

    def difference(x: Floats, y: Floats, axis: int = -1) -> Floats:
        return np.asarray(x.mean(axis=axis) - y.mean(axis=axis))

    theirs = stats.permutation_test(
        (one.astype(float), two.astype(float)),
        difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=10_000,
        rng=1,
    )
    assert 0.005 < theirs.pvalue < 0.2
    assert pair.mean.p_value == pytest.approx(theirs.pvalue, abs=0.01)
    interval = stats.bootstrap(
        (one.astype(float), two.astype(float)),
        difference,
        paired=True,
        vectorized=True,
        n_resamples=10_000,
        method="percentile",
        rng=1,
    ).confidence_interval
    assert (pair.mean.low, pair.mean.high) == pytest.approx(
        (interval.low, interval.high), abs=0.008
    )
    # With 200 examples the exchange comes close to McNemar's exact test of the discordant ones.
    wins, losses = int((one & ~two).sum()), int((two & ~one).sum())
    exact = stats.binomtest(wins, wins + losses).pvalue
    assert pair.mean.p_value == pytest.approx(exact, abs=0.01)


def test_models_that_do_not_differ_are_called_different_in_five_of_a_hundred() -> None:
    random = np.random.default_rng(0)
    called = {"language": 0, "mean": 0}
    missed = 0
    for number in range(400):
        # Two languages whose examples are translations: hard ones are hard in both, for both.
        easy = random.random(60)
        models = {
            name: [answer(random.random(60) < 0.2 + 0.6 * easy) for _ in range(2)]
            for name in ("a", "b")
        }
        [pair] = compare_pairs(models, accuracy, seed=number, resamples=200)
        called["language"] += pair.by_language[0].p_value <= 0.05
        called["mean"] += pair.mean.p_value <= 0.05
        missed += not pair.mean.low <= 0 <= pair.mean.high
    # 5 % of 400 are 20, with a deviation of 4.4; ties make the test a little careful.
    assert 6 <= called["language"] <= 32
    assert 8 <= called["mean"] <= 32
    assert 10 <= missed <= 38


def test_translations_count_once() -> None:
    """Ten copies of one language say no more than one: the mean has its p-value and interval."""
    random = np.random.default_rng(1)
    one, two = (answer(random.random(100) < share) for share in (0.6, 0.5))
    [single] = compare_pairs({"a": [one], "b": [two]}, accuracy, resamples=2_000)
    [copies] = compare_pairs({"a": [one] * 10, "b": [two] * 10}, accuracy, resamples=2_000)
    assert copies.mean.p_value == pytest.approx(single.mean.p_value)
    assert copies.mean.low == pytest.approx(single.mean.low)


def test_chunks_change_nothing_and_seeds_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    models = {name: [answer(random.random(50) < 0.5)] for name in ("a", "b")}
    whole = compare_pairs(models, accuracy, resamples=500)
    assert compare_pairs(models, accuracy, resamples=500) == whole
    assert compare_pairs(models, accuracy, seed=1, resamples=500) != whole
    monkeypatch.setattr(ours, "_CHUNK", 56 * 7)
    # What was observed counts as one of the exchanges: no p-value is 0.
    certain = {"a": [answer(np.ones(40))], "b": [answer(np.zeros(40))]}
    assert compare_pairs(certain, accuracy, resamples=99)[0].mean.p_value == pytest.approx(0.01)
    parts = compare_pairs(models, accuracy, resamples=500)
    assert parts[0].mean.p_value == pytest.approx(whole[0].mean.p_value, abs=0.1)
    assert parts[0].mean.value == whole[0].mean.value


def test_holms_correction() -> None:
    assert correct_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert correct_holm([0.6, 0.7]) == [1, 1]
    assert correct_holm([]) == []
    assert correct_holm([0.2]) == [0.2]


@pytest.mark.slow
def test_strata_have_the_nominal_error_and_more_power() -> None:
    """Seven tasks of three seeds without a difference: 5 % below 0.05, as it should be."""
    random = np.random.default_rng(1)
    below = found = by_seed = 0
    for _ in range(2_000):
        noise = random.normal(size=(2, 7, 3))
        strata = [(1 / 7, [list(a)], [list(b)]) for a, b in zip(*noise, strict=True)]
        below += ours.find_p_value(*ours.weigh_strata(strata)) < 0.05
        moved = [(w, [[x + 1.2 for x in a[0]]], b) for w, a, b in strata]
        value, samples = ours.weigh_strata(moved)
        found += ours.find_p_value(value, samples) < 0.05
        means = [list(noise[0].mean(axis=0) + 1.2), list(noise[1].mean(axis=0))]
        by_seed += ours.find_p_value(value, means) < 0.05
    assert 0.03 < below / 2_000 < 0.065
    assert found > 1.05 * by_seed
