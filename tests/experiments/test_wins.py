"""Counts of who is better where, against counts made by hand and scipy-free arithmetic."""

from __future__ import annotations

import pytest
from tests.experiments.result_rows import make_comparison, make_row, make_scores

from metaxlm.experiments.wins import (
    count_wins,
    find_differences,
    find_mean_difference,
    find_sign_p_value,
)

ROWS = [
    *make_scores("xnli", "xlm", {"en": [0.5, 0.5], "de": [0.4, 0.5], "fr": [0.3], "ru": [0.3]}),
    *make_scores("xnli", "metaxlm", {"en": [0.6, 0.6], "de": [0.3, 0.4], "fr": [0.3]}),
]
DIFFERENCES = {("en", "en"): -0.1, ("en", "de"): 0.1, ("en", "fr"): 0.0}


def test_units_are_sorted_by_the_better_model() -> None:
    wins = count_wins(ROWS, [], "xnli", "metaxlm", "xlm")
    assert wins.better == (("en", "en"),)
    assert wins.worse == (("en", "de"),)
    assert wins.equal == (("en", "fr"),)
    assert wins.total == 3
    assert wins.clearly_better is None and wins.clearly_worse is None
    assert wins.p_value == 1.0


def test_clear_ones_are_tested_whichever_way_round_the_pair_is() -> None:
    comparisons = [make_comparison("xnli", ("xlm", "metaxlm"), DIFFERENCES)]
    wins = count_wins(ROWS, comparisons, "xnli", "metaxlm", "xlm")
    assert wins.clearly_better == (("en", "en"),)
    assert wins.clearly_worse == (("en", "de"),)
    wins = count_wins(ROWS, comparisons, "xnli", "xlm", "metaxlm")
    assert wins.clearly_better == (("en", "de"),)
    weak = [make_comparison("xnli", ("xlm", "metaxlm"), DIFFERENCES, p_value=0.05)]
    wins = count_wins(ROWS, weak, "xnli", "metaxlm", "xlm")
    assert wins.clearly_better == () and wins.clearly_worse == ()


def test_differences_turn_with_their_intervals() -> None:
    comparisons = [make_comparison("xnli", ("xlm", "metaxlm"), DIFFERENCES, half_width=0.02)]
    turned = find_differences(comparisons, "xnli", "metaxlm", "xlm", "transfer")
    assert turned is not None
    found = turned["en", "de"]
    assert (found.value, found.low, found.high) == pytest.approx((-0.1, -0.12, -0.08))
    mean = find_mean_difference(
        [make_comparison("xnli", ("xlm", "metaxlm"), {("en", "en"): 0.3})],
        "xnli", "metaxlm", "xlm", "transfer",
    )  # fmt: skip
    assert mean is not None
    assert (mean.value, mean.low, mean.high) == pytest.approx((-0.3, -0.31, -0.29))
    assert find_differences(comparisons, "xnli", "metaxlm", "xlm", "supervised") is None
    assert find_mean_difference(comparisons, "xnli", "metaxlm", "freeze", "transfer") is None


def test_of_error_rates_the_lower_is_better() -> None:
    rows = [
        make_row("alignment", "xlm", 0.5, metric="aer", scenario="features"),
        make_row("alignment", "metaxlm", 0.4, metric="aer", scenario="features"),
    ]
    wins = count_wins(rows, [], "alignment", "metaxlm", "xlm", "features")
    assert wins.better == (("en", "en"),)


@pytest.mark.parametrize(
    ("better", "worse", "p_value"),
    [(6, 0, 2 / 64), (0, 6, 2 / 64), (15, 1, 34 / 65536), (3, 3, 1.0), (0, 0, 1.0)],
)
def test_the_sign_test_counts_both_tails(better: int, worse: int, p_value: float) -> None:
    assert find_sign_p_value(better, worse) == pytest.approx(p_value)
