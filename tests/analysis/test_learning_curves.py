"""Curves along pretraining: gaps by hand, onsets of made curves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from metaxlm.analysis.learning_curves import Curve, detect_rise, find_lag, find_onset, trace_curves
from metaxlm.analysis.stats import mean
from tests.analysis.rows import TWIN_COURSES, make_course, make_results, make_row

STEPS = list(range(2000, 42000, 2000))


def ramp(step: float, onset: float, height: float, level: float = 0.1) -> float:
    """Flat up to the onset, then towards level + height with a time of 8000 steps."""
    return level + height * (1 - math.exp(-max(0.0, step - onset) / 8000))


def make_curve(
    onset: float, height: float, noise: float = 0.0, seeds: int = 3, salt: int = 0
) -> Curve:
    random = np.random.default_rng([salt, int(onset)])
    return {
        step: {
            seed: ramp(step, onset, height) + float(noise * random.normal())
            for seed in range(seeds)
        }
        for step in STEPS
    }


def test_the_gap_is_taken_within_each_seed() -> None:
    rows: list[dict[str, Any]] = []
    for step, values in {10: (0.5, 0.7), 20: (0.6, 0.8)}.items():
        for seed, value in enumerate(values):
            about = {"step": step, "seed": seed, "metric": "f1"}
            rows += [
                make_row("mlqa", "xlm", value, **about),
                make_row("mlqa", "xlm", value - 0.2, language="de", **about),
                make_row("mlqa", "xlm", value - 0.4, language="ar", **about),
                make_row("mlqa", "xlm", 0.9, language="ar", source="de", **about),
                make_row("mlqa", "metaxlm", 0.9, language="fr", **about),
            ]
    curves = trace_curves(make_results(rows), "mlqa", "xlm")
    assert list(curves["gap"]) == [10, 20]
    assert curves["gap"][10] == pytest.approx({0: 0.3, 1: 0.3})
    assert curves["others"][20] == pytest.approx({0: 0.3, 1: 0.5})
    assert curves["source"][20] == pytest.approx({0: 0.6, 1: 0.8})


def test_steps_without_all_languages_are_left_out() -> None:
    rows = [
        make_row("mlqa", "xlm", 0.5, language=language, step=step, metric="f1")
        for step, languages in {10: ["en", "de", "ar"], 20: ["en", "de"]}.items()
        for language in languages
    ]
    assert list(trace_curves(make_results(rows), "mlqa", "xlm")["gap"]) == [10]
    alone = [row for row in rows if row["language"] == "en"]
    assert trace_curves(make_results(alone), "mlqa", "xlm") == {
        "source": {},
        "others": {},
        "gap": {},
    }


def test_all_points_are_of_one_split() -> None:
    rows = [make_row("mlqa", "xlm", 0.9, language=code, step=30, split="test", metric="f1")
            for code in ("en", "de")]  # fmt: skip
    rows += [
        make_row("mlqa", "xlm", 0.1, language=code, step=step, split="dev", metric="f1")
        for step in (10, 20, 30)
        for code in ("en", "de")
    ]
    source = trace_curves(make_results(rows), "mlqa", "xlm")["source"]
    assert source == {step: {0: 0.1} for step in (10, 20, 30)}
    # With both splits everywhere it is the dev set, as in the paper, in any order of rows.
    tests = [{**row, "split": "test", "value": 0.9} for row in rows if row["split"] == "dev"]
    for every in ([*rows, *tests], [*tests, *rows]):
        source = trace_curves(make_results(every), "mlqa", "xlm")["source"]
        assert source == {step: {0: 0.1} for step in (10, 20, 30)}


@pytest.mark.parametrize("onset", [8000, 14000, 15000, 23000])
@pytest.mark.parametrize("height", [0.1, 0.5])
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_known_onset_is_found(onset: int, height: float, seeds: int) -> None:
    for salt in range(5):
        found = find_onset(make_curve(onset, height, noise=0.004, seeds=seeds, salt=salt))
        assert found is not None and found.step is not None and found.low is not None
        assert found.low < found.step <= found.high
        assert found.high - found.low == 2000 == found.resolution
        # The curve must have left its noise, or a tenth of its rise: later, never far earlier.
        assert onset - 2000 <= found.step <= onset + 4000


def test_a_flat_curve_never_rises() -> None:
    for salt in range(20):
        assert find_onset(make_curve(10**6, 0.5, noise=0.01, salt=salt)) is None
        assert find_onset(make_curve(10**6, 0.5, noise=0.01, seeds=1, salt=salt)) is None
    assert find_onset(make_curve(14000, 0.015)) is None
    assert find_onset({}) is None
    falling = {step: {0: 0.5 - step / 10**6} for step in STEPS}
    assert find_onset(falling) is None


@pytest.mark.parametrize("number", [4, 6, 10, 20, 40])
@pytest.mark.parametrize("noise", [0.0, 0.004])
def test_a_straight_climb_has_no_plateau(number: int, noise: float) -> None:
    steps = [1000 * (k + 1) for k in range(number)]
    for salt in range(5):
        random = np.random.default_rng([number, salt])
        curve = {
            step: {seed: 0.1 + 0.4 * step / steps[-1] + float(noise * random.normal())
                   for seed in range(3)}
            for step in steps
        }  # fmt: skip
        found = find_onset(curve)
        assert found is not None and found.step is None


def test_a_plateau_may_climb_slowly_and_needs_three_points() -> None:
    def detect(*values: float) -> float | None:
        found = detect_rise([10 * k for k in range(len(values))], values, [0.0] * len(values))
        assert found is not None
        return found.step

    assert detect(0.0, 0.02, 0.04, 0.06, 0.5, 1.0) is not None
    # After the plateau it takes five steps to half of the rise: as slow as before.
    assert detect(0.0, 0.03, 0.06, 0.09, 0.15, 0.21, 0.27, 0.33, 0.39, 0.5, 0.55, 0.6) is None
    assert detect(0.0, 0.0, 0.5, 1.0) is None
    assert detect(0.0, 0.0, 0.0, 0.5, 1.0) == pytest.approx(22)
    assert detect(0.0, 0.0, 0.0, 0.0, 0.5) == pytest.approx(31)


def test_real_curves_are_read_as_by_eye() -> None:
    """XLM: English leaves its plateau after step 5,000, the others after 8,000; MetaXLM: none."""
    curves = trace_curves(make_results(make_course("xlm", TWIN_COURSES["xlm"])), "mlqa", "xlm")
    lag = find_lag(curves)
    assert lag is not None
    assert (lag.source.low, lag.source.high) == (5000, 6000)
    assert (lag.others.low, lag.others.high) == (8000, 11000)
    assert lag.bounds == (2000, 6000) and lag.resolution == 3000
    assert lag.bounds[0] < lag.steps < lag.bounds[1] and lag.is_resolved and lag.num_seeds == 1
    rows = make_course("metaxlm", TWIN_COURSES["metaxlm"])
    curves = trace_curves(make_results(rows), "mlqa", "metaxlm")
    assert find_onset(curves["source"]) is None  # high at once
    others = find_onset(curves["others"])
    assert others is not None and (others.step, others.high) == (None, 2000)
    assert find_lag(curves) is None
    gaps = {step: mean(series) for step, series in curves["gap"].items()}
    assert (gaps[500], gaps[14000]) == pytest.approx((0.214, 0.183))


def test_one_bad_checkpoint_does_not_move_the_onset() -> None:
    values = [ramp(step, 14000, 0.5) for step in STEPS]
    clean = detect_rise(STEPS, values, [0.004] * len(STEPS))
    for place, outlier in ((3, 0.45), (15, 0.05)):
        spoiled = [*values[:place], outlier, *values[place + 1 :]]
        assert clean is not None
        assert detect_rise(STEPS, spoiled, [0.004] * len(STEPS)) == clean


def test_the_onset_is_on_the_line_between_checkpoints() -> None:
    steps, values = [-10, 0, 10, 20, 30], [0.0, 0.0, 0.0, 0.5, 1.0]
    found = detect_rise(steps, values, [0.0] * 5)
    assert found is not None and found.step == pytest.approx(12)
    found = detect_rise(steps, values, [0.1, 0.1, 0.1, 0.9, 0.9])
    assert found is not None and found.step == pytest.approx(16)


def test_a_lag_is_found_with_its_resolution() -> None:
    for salt in range(10):
        lag = find_lag({
            "source": make_curve(14000, 0.6, noise=0.006, salt=salt),
            "others": make_curve(20000, 0.3, noise=0.006, salt=salt),
        })  # fmt: skip
        assert lag is not None
        assert lag.steps == pytest.approx(6000, abs=2000)
        assert lag.resolution == 2000
        assert lag.num_seeds == len(lag.by_seed) == 3
        assert lag.is_resolved


def test_a_seed_that_disagrees_leaves_a_lag_unresolved() -> None:
    source, others = make_curve(14000, 0.6), make_curve(20000, 0.6)
    both = find_lag({"source": source, "others": others})
    assert both is not None and both.is_resolved
    for step in STEPS:
        others[step][2] = ramp(step, 14000, 0.6)
    found = find_lag({"source": source, "others": others})
    assert found is not None and not found.is_resolved
    for step in STEPS:
        others[step][2] = 0.1
    found = find_lag({"source": source, "others": others})
    assert found is None or not found.is_resolved
