"""Differences of variants and their tests: against scipy-made numbers and by simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from metaxlm.analysis.claims import make_primary_tests
from metaxlm.analysis.contrast import (
    NUMBERS_ALONE,
    ONE_SEED,
    UNTESTED,
    Measure,
    contrast,
    contrast_strata,
)
from metaxlm.analysis.results import TASKS
from metaxlm.analysis.stats import (
    Difference,
    PairComparison,
    TaskComparison,
    find_p_value,
    join_p_values,
)
from tests.analysis.rows import make_comparison, make_results, make_row, make_scores

PAIR = ("metaxlm", "xlm")


Scores = dict[str, list[float]]


def make_rows(first: Scores, second: Scores) -> list[dict[str, Any]]:
    return [*make_scores("xnli", PAIR[0], first), *make_scores("xnli", PAIR[1], second)]


def test_welchs_test_is_scipys() -> None:
    # Six values of each and equal spreads: the degrees of freedom are whole, 10.
    one, two = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    expected = stats.ttest_ind(one, two, equal_var=False).pvalue
    assert find_p_value(0.2, [one, two]) == pytest.approx(expected, abs=1e-6)
    expected = stats.ttest_1samp(one, 0).pvalue
    assert find_p_value(0.35, [one]) == pytest.approx(expected, abs=1e-6)


def test_errors_of_examples_and_seeds_add_up() -> None:
    seeds = [[0.50, 0.52], [0.40, 0.42]]
    alone = find_p_value(0.1, seeds)
    assert alone < find_p_value(0.1, seeds, 0.05**2)
    assert find_p_value(0.1, [], 0.05**2) == pytest.approx(0.05, abs=0.001)
    assert find_p_value(0.1, [[0.5, 0.5], [0.4, 0.4]]) == 0.0
    assert find_p_value(0.0, [[0.5, 0.5], [0.5, 0.5]]) == 1.0


def test_a_difference_of_nothing_is_rarely_supported() -> None:
    random = np.random.default_rng(5)
    found = 0
    for _ in range(400):
        samples = random.normal(size=(2, 3))
        error = 0.5 * random.normal()
        value = float(samples[0].mean() - samples[1].mean() + error)
        found += find_p_value(value, samples.tolist(), 0.25) < 0.05
    assert found / 400 < 0.08


def test_partial_conjunctions() -> None:
    p_values = [0.2, 0.01, 0.02]
    assert join_p_values(p_values, 3) == pytest.approx(0.2)
    assert join_p_values(p_values, 2) == pytest.approx(0.04)
    assert join_p_values(p_values, 1) == pytest.approx(0.03)
    assert join_p_values(p_values, 4) == 1.0
    assert join_p_values([0.9, 0.9], 1) == 1.0


def test_seeds_and_examples_are_tested_where_there_are_both() -> None:
    rows = make_rows({"en": [0.6, 0.62], "de": [0.5, 0.52]}, {"en": [0.5, 0.52], "de": [0.4, 0.42]})
    tested = [make_comparison("xnli", PAIR, {("en", "en"): 0.1, ("en", "de"): 0.1}, 0.02)]
    found = contrast(make_results(rows, tested), *PAIR, [Measure("xnli")])
    assert found.value == pytest.approx(0.1)
    assert found.basis == "over examples and seeds"
    samples = [[0.55, 0.57], [0.45, 0.47]]
    assert found.p_value == pytest.approx(find_p_value(0.1, samples, (0.04 / 3.92) ** 2), rel=0.01)
    assert found.direction == 1
    back = contrast(make_results(rows, tested), "xlm", "metaxlm", [Measure("xnli")])
    assert back.value == pytest.approx(-0.1)
    assert back.direction == -1


@pytest.mark.parametrize("seeds", [([0.9], [0.5]), ([0.9, 0.91], [0.5]), ([0.9], [0.5, 0.51])])
def test_one_seed_proves_nothing(seeds: tuple[list[float], list[float]]) -> None:
    """A training that caught on is better in all examples and languages at once."""
    codes = ["en", "de", "fr", "ru", "ar", "zh"]
    rows = make_rows(dict.fromkeys(codes, seeds[0]), dict.fromkeys(codes, seeds[1]))
    units = {("en", code): 0.4 for code in codes}
    for tested in ([make_comparison("xnli", PAIR, units, p_value=0.0001)], []):
        found = contrast(make_results(rows, tested), *PAIR, [Measure("xnli")])
        assert (found.basis, found.p_value, found.direction) == (ONE_SEED, None, 0)
        assert found.describe().endswith("(one seed, not tested)")


def test_some_languages_of_a_test_have_their_own_interval() -> None:
    rows = make_rows({"en": [0.6, 0.6], "de": [0.5, 0.5]}, {"en": [0.5, 0.5], "de": [0.4, 0.4]})
    units = {("en", "en"): 0.1, ("en", "de"): 0.1}
    # Of two languages one: its interval decides, as the p-value by language is corrected.
    tested = [make_comparison("xnli", PAIR, units, half_width=0.2, p_value=0.03)]
    found = contrast(make_results(rows, tested), *PAIR, [Measure("xnli", pairs=(("en", "de"),))])
    assert found.p_value == pytest.approx(0.327, abs=0.01)


def test_a_test_of_the_other_sign_supports_nothing() -> None:
    rows = make_rows({"en": [0.6, 0.6]}, {"en": [0.5, 0.5]})
    tested = [make_comparison("xnli", PAIR, {("en", "en"): -0.1})]
    found = contrast(make_results(rows, tested), *PAIR, [Measure("xnli")])
    assert found.direction == 0
    assert "signs differ" in found.describe()


def test_languages_are_the_last_resort() -> None:
    codes = ["en", "de", "fr", "ru", "ar", "zh"]
    about = {"scenario": "features", "layer": 3}
    part = Measure("tatoeba", "features", layer=3)
    rows = make_scores(
        "tatoeba", PAIR[0], {code: [0.5 + k / 50] for k, code in enumerate(codes)}, **about
    )
    rows += make_scores("tatoeba", PAIR[1], {code: [0.4] for code in codes}, **about)
    found = contrast(make_results(rows), *PAIR, [part])
    assert found.p_value == pytest.approx(2 / 64)
    assert found.basis == "sign test, 6 of 6 sets better"
    few = [row for row in rows if row["language"] in codes[:4]]
    found = contrast(make_results(few), *PAIR, [part])
    assert found.basis == "Student's t over 4 languages"
    assert found.direction == 1
    fewer = [row for row in rows if row["language"] in codes[:2]]
    found = contrast(make_results(fewer), *PAIR, [part])
    assert (found.basis, found.p_value, found.direction) == (UNTESTED, None, 0)
    found = contrast(make_results(fewer, tested=False), *PAIR, [part])
    assert (found.basis, found.direction, found.describe()) == (NUMBERS_ALONE, 1, "+11.0")


def test_features_are_tested_over_the_same_sentences() -> None:
    rows = [
        make_row(
            "alignment", variant, value, language=language, layer=3,
            scenario="features", metric="aer", seed=0,
        )
        for variant, value in (("metaxlm", 0.6), ("xlm", 0.7))
        for language in ("de", "fr")
    ]  # fmt: skip
    mean = Difference(0.1, 0.08, 0.12, 0.0001)  # XLM less MetaXLM
    tested = TaskComparison(
        "alignment", "features", "aer", (("en", "de"), ("en", "fr")), (50, 60), 1,
        (PairComparison("xlm", "metaxlm", (), mean),), layer=3,
    )  # fmt: skip
    part = [Measure("alignment", "features", layer=3)]
    found = contrast(make_results(rows, [tested]), *PAIR, part)
    assert (found.basis, found.p_value, found.direction) == ("over sentences", 0.0001, 1)
    assert found.value == pytest.approx(0.1)
    for other in (replace(tested, layer=2), replace(tested, units=(("en", "de"),))):
        assert contrast(make_results(rows, [other]), *PAIR, part).basis == UNTESTED
    turned = replace(tested, pairs=(PairComparison("metaxlm", "xlm", (), mean),))
    assert contrast(make_results(rows, [turned]), *PAIR, part).direction == 0  # of unlike signs


def test_several_tasks_join_their_errors() -> None:
    rows = [row for task in ("xnli", "pawsx") for name, value in zip(PAIR, (0.6, 0.5), strict=True)
            for row in make_scores(task, name, {"en": [value, value]})]  # fmt: skip
    tested = [make_comparison(task, PAIR, {("en", "en"): 0.1}, 0.12) for task in ("xnli", "pawsx")]
    parts = [Measure("xnli"), Measure("pawsx")]
    one = contrast(make_results(rows, tested), *PAIR, parts)
    assert one.p_value == pytest.approx(0.025, abs=0.005)
    assert contrast(make_results(rows, tested[:1]), *PAIR, parts).basis == "over 2 seeds"


def make_seven(by_variant: dict[str, list[list[float]]]) -> list[dict[str, Any]]:
    """Make scores of all seeds for each of the seven tasks; questions have F1 and exact match."""
    tasks = ("udpos", "panx", "xquad", "mlqa", "tydiqa", "xnli", "pawsx")
    return [
        row
        for variant, scores in by_variant.items()
        for task, seeds in zip(tasks, scores, strict=True)
        for metric in TASKS[task].metrics
        for row in make_scores(task, variant, {"en": seeds, "de": seeds}, metric=metric)
    ]


def test_strata_add_their_variances() -> None:
    """A seed of 0 that is better in all tasks is seven independent seeds, not one."""
    ours = [[0.5, 0.6, 0.7]] * 7
    theirs = [[0.4, 0.5, 0.6]] * 7
    results = make_results(make_seven({"metaxlm": ours, "xlm": theirs}))
    found, counts = contrast_strata(results, *PAIR)
    assert counts == [1, 1]
    assert found.value == pytest.approx(0.1)
    assert found.basis == "over seeds"
    # XQuAD and MLQA are one sample of weight 2/7, the five others have 1/7.
    samples = [[w * x for x in side] for w in (1, 1, 2, 1, 1, 1) for side in (ours[0], theirs[0])]
    samples = [[x / 7 for x in sample] for sample in samples]
    assert found.p_value == pytest.approx(find_p_value(0.1, samples))
    by_seed = contrast(results, *PAIR, [Measure(task) for task in ("udpos", "panx", "xnli")])
    assert by_seed.p_value is not None
    assert found.p_value is not None
    assert found.p_value < by_seed.p_value / 3


def test_pretrainings_that_differ_count_as_one_more_sample() -> None:
    ours, again, theirs = ([[value, value + 0.01]] * 7 for value in (0.6, 0.5, 0.4))
    rows = make_seven({"metaxlm": ours, "metaxlm-2": again, "xlm": theirs})
    results = replace(make_results(rows), repeated={"metaxlm-2": "metaxlm"})
    found, counts = contrast_strata(results, *PAIR)
    assert counts == [2, 1]
    assert found.value == pytest.approx(0.15)
    alone, _ = contrast_strata(make_results(rows), *PAIR)
    assert alone.value == pytest.approx(0.2)
    assert alone.p_value is not None
    assert found.p_value is not None
    assert alone.p_value < 0.001 < 0.1 < found.p_value
    # Half of the weight for the seeds of each pretraining, and the averages of both.
    samples = [[w / 7 * share * x for x in side[0]] for w in (1, 1, 2, 1, 1, 1)
               for share, side in ((0.5, ours), (0.5, again), (1, theirs))]  # fmt: skip
    expected = find_p_value(0.15, [*samples, [0.605, 0.505]])
    assert found.p_value == pytest.approx(expected, rel=1e-9)
    assert results.own_variants == []
    assert results.variants == ["xlm", "metaxlm", "metaxlm-2"]


def test_primary_contrasts_are_corrected_and_need_all_tasks() -> None:
    variants = ("xlm", "metaxlm", "metaxlm+dict")
    random = np.random.default_rng(3)
    scores = {v: (0.3 + random.normal(0.02 * k, 0.03, (7, 3))).tolist()
              for k, v in enumerate(variants)}  # fmt: skip
    results = make_results(make_seven(scores))
    table = make_primary_tests(results)
    assert table is not None
    (group,) = table.groups
    assert [line.label for line in group.lines] == ["MetaXLM − XLM", "MetaXLM+Dict − MetaXLM"]
    alone = [contrast_strata(results, *pair)[0].p_value or 0.0
             for pair in (PAIR, ("metaxlm+dict", "metaxlm"))]  # fmt: skip
    low, high = sorted(alone)
    expected = {low: min(1.0, max(2 * low, 0.0)), high: max(high, 2 * low)}
    for line, p_value in zip(group.lines, alone, strict=True):
        assert line.cells[2].text == f"p = {expected[p_value]:.3f}"
    assert make_primary_tests(make_results(make_seven(scores)[:-1:5])) is None
    single = {v: [seeds[:1] for seeds in s] for v, s in scores.items()}
    table = make_primary_tests(make_results(make_seven(single)))
    assert table is not None
    assert [line.cells[2].text for line in table.groups[0].lines] == ["–", "–"]
