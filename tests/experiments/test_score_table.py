"""Scores out of rows: the last step, one split, means within seeds first."""

from __future__ import annotations

import pytest
from tests.experiments.result_rows import FINAL, make_row, make_scores

from metaxlm.experiments.results import find_final_steps, select_final
from metaxlm.experiments.score_table import (
    find_level,
    find_metric,
    gather_scores,
    list_metrics,
    share_units,
)
from metaxlm.experiments.series import average_series, subtract_series


def test_only_the_last_step_of_each_variant_is_final() -> None:
    rows = [
        make_row("xnli", "xlm", 0.4, step=10),
        make_row("xnli", "xlm", 0.6, step=30),
        make_row("xnli", "xlm", 0.5, step=20),
        make_row("xnli", "metaxlm", 0.7, step=None),
        make_row("xnli", None, 0.3, metric="majority"),
    ]
    assert find_final_steps(rows) == {"xlm": 30, "metaxlm": None}
    assert [row["value"] for row in select_final(rows)] == [0.6, 0.7, 0.3]


def test_test_sets_count_unless_more_languages_have_dev_sets() -> None:
    rows = [
        make_row("xnli", "xlm", 0.1, split="dev"),
        make_row("xnli", "xlm", 0.2, split="test", language="de"),
        make_row("xnli", "xlm", 0.3, split="test-first-10"),
    ]
    assert gather_scores(rows, "xnli", "xlm") == {("en", "de"): {0: 0.2}, ("en", "en"): {0: 0.3}}
    # Other variants count in the choice, so that all are judged by the same files.
    rows += make_scores(
        "xnli", "metaxlm", {code: [0.5] for code in ("de", "fr", "ru")}, split="dev"
    )
    assert gather_scores(rows, "xnli", "xlm") == {("en", "en"): {0: 0.1}}


def test_scores_are_of_one_metric_scenario_and_layer() -> None:
    rows = [
        make_row("mlqa", "xlm", 0.1, metric="f1"),
        make_row("mlqa", "xlm", 0.2, metric="em"),
        make_row("mlqa", "xlm", 0.3, metric="f1", scenario="supervised"),
        make_row("mlqa", "xlm", 0.4, metric="f1", layer=3),
        make_row("xquad", "xlm", 0.5, metric="f1"),
    ]
    assert gather_scores(rows, "mlqa", "xlm") == {("en", "en"): {0: 0.1}}
    assert gather_scores(rows, "mlqa", "xlm", layer=3) == {("en", "en"): {0: 0.4}}
    assert gather_scores(rows, "mlqa", "xlm", metric="em") == {("en", "en"): {0: 0.2}}
    assert gather_scores(rows, "mlqa", "metaxlm") == {}


def test_tasks_have_their_metrics() -> None:
    assert find_metric("alignment") == "aer"
    assert find_metric("udpos") == "f1"
    assert list_metrics("mlqa") == ("f1", "em")
    assert list_metrics("xnli") == ("accuracy",)


def test_series_are_joined_by_seed() -> None:
    assert average_series([{1: 0.1, 2: 0.3}, {1: 0.3, 2: 0.5}]) == pytest.approx({1: 0.2, 2: 0.4})
    assert average_series([{0: 0.2, 1: 0.4}, {1: 0.6, 2: 1.0}]) == {1: pytest.approx(0.5)}
    assert average_series([{0: 0.2}, {1: 0.6}]) == {0: pytest.approx(0.4)}
    assert average_series([{0: 0.2}, {}]) == {}
    assert subtract_series({0: 0.5, 1: 0.7}, {1: 0.3}) == {1: pytest.approx(0.4)}
    assert subtract_series({0: 0.5}, {1: 0.3}) == {0: pytest.approx(0.2)}
    assert share_units([{("en", "de"): {}, ("en", "fr"): {}}, {("en", "fr"): {}}]) == [("en", "fr")]


def test_the_level_is_the_better_of_guessing_and_the_most_frequent_label() -> None:
    rows = [
        make_row("pawsx", None, 0.55, metric="majority"),
        make_row("pawsx", None, 0.50, metric="chance"),
        make_row("pawsx", None, 0.45, metric="chance", language="de"),
        make_row("pawsx", "xlm", 0.9, step=FINAL),
    ]
    units = [("en", "en"), ("en", "de")]
    assert find_level(rows, "pawsx", "transfer", units) == pytest.approx(0.5)
    assert find_level(rows, "xnli", "transfer", units) == 0.0
