"""Claims about tables when there are seeds and tests: noise, guessing and gaps in the data."""

from __future__ import annotations

from typing import Any

import pytest
from tests.experiments.result_rows import make_row, make_scores

from metaxlm.experiments.claims.claim import MissingEvidenceError
from metaxlm.experiments.claims.evidence import Evidence
from metaxlm.experiments.claims.table_checks import check_order, check_small_gain, check_tasks

SEEDS = (-0.002, 0.0, 0.002)
TASKS = ["xnli", "pawsx", "amazon-dvd"]


def make_tasks(**means: float | list[float]) -> list[dict[str, Any]]:
    """Scores of three seeds on three tasks; a variant has one mean for all, or one for each."""
    rows = []
    for name, found in means.items():
        for task, mean in zip(
            TASKS, found if isinstance(found, list) else [found] * 3, strict=True
        ):
            rows += make_scores(task, name, {"en": [mean + noise for noise in SEEDS]})
            rows += make_scores(task, name, {"de": [mean - 0.1 + noise for noise in SEEDS]})
    return rows


def make_levels(level: float) -> list[dict[str, Any]]:
    return [make_row(task, None, level, metric="majority", language=language)
            for task in TASKS for language in ("en", "de")]  # fmt: skip


def test_an_order_holds_fails_or_is_within_noise() -> None:
    for means, outcome in (
        ({"xlm": 0.5, "metaxlm": 0.6, "best": 0.7}, "holds"),
        ({"xlm": 0.5, "metaxlm": 0.7, "best": 0.6}, "fails"),
        ({"xlm": 0.5, "metaxlm": 0.6, "best": 0.6005}, "cannot be told"),
    ):
        found = check_order(Evidence(make_tasks(**means)), ["xlm", "metaxlm", "best"], TASKS)
        assert found.outcome == outcome
        assert dict(found.numbers)["XLM"] == "45.0"
        assert "over 3 seeds" in found.reason
    assert "best does not differ clearly from MetaXLM" in found.reason


def test_an_order_may_be_of_some_languages() -> None:
    rows = make_tasks(xlm=0.5, metaxlm=0.6)
    for row in rows:
        if row["variant"] == "metaxlm" and row["language"] == "de":
            row["value"] -= 0.2
    evidence = Evidence(rows)
    assert check_order(evidence, ["xlm", "metaxlm"], TASKS, languages="source").outcome == "holds"
    assert check_order(evidence, ["xlm", "metaxlm"], TASKS, languages="others").outcome == "fails"
    english = Evidence([row for row in rows if row["language"] == "en"])
    with pytest.raises(MissingEvidenceError, match="No others languages"):
        check_order(english, ["xlm", "metaxlm"], TASKS, languages="others")


def test_tasks_at_the_level_of_guessing_decide_nothing() -> None:
    rows = make_tasks(xlm=0.5, metaxlm=0.6)
    assert (
        check_order(Evidence(rows + make_levels(0.5)), ["xlm", "metaxlm"], TASKS).outcome == "holds"
    )
    low = Evidence(rows + make_levels(0.54))
    found = check_order(low, ["xlm", "metaxlm"], TASKS)
    assert found.outcome == "cannot be told"
    assert "no model is above guessing" in found.reason
    found = check_tasks(low, "metaxlm", ["xlm"], TASKS, at_least=1)
    assert found.outcome == "cannot be told"
    assert "(not learned)" in dict(found.numbers)["XNLI: MetaXLM less XLM"]
    found = check_small_gain(
        Evidence(make_tasks(xlm=0.5, body=0.5, metaxlm=0.6) + make_levels(0.54)),
        "xlm", ["body"], "metaxlm", TASKS, share=0.25, may_harm=True,
    )  # fmt: skip
    assert found.outcome == "cannot be told"


@pytest.mark.parametrize(
    ("scores", "at_least", "outcome"),
    [
        ([0.6, 0.6, 0.6], 3, "holds"),
        ([0.6, 0.6, 0.501], 3, "cannot be told"),
        ([0.6, 0.6, 0.501], 2, "holds"),
        ([0.6, 0.6, 0.4], 3, "fails"),
        ([0.6, 0.4, 0.4], 2, "fails"),
        ([0.6, 0.501, 0.4], 2, "cannot be told"),
    ],
)
def test_tasks_are_counted_by_their_tests(scores: list[float], at_least: int, outcome: str) -> None:
    evidence = Evidence(make_tasks(xlm=0.5, metaxlm=scores))
    assert check_tasks(evidence, "metaxlm", ["xlm"], TASKS, at_least).outcome == outcome


def test_a_task_is_won_against_all() -> None:
    evidence = Evidence(make_tasks(xlm=0.5, body=[0.5, 0.5, 0.7], metaxlm=0.6))
    found = check_tasks(evidence, "metaxlm", ["xlm", "body"], TASKS, at_least=3)
    assert found.outcome == "fails"
    assert "better on 2 of 3 tasks, worse on 1" in found.reason
    assert check_tasks(evidence, "metaxlm", ["xlm"], TASKS, at_least=3).outcome == "holds"


@pytest.mark.parametrize(
    ("part", "may_harm", "outcome"),
    [
        (0.505, False, "holds"),
        (0.530, False, "cannot be told"),
        (0.555, False, "fails"),
        (0.620, False, "fails"),
        (0.450, False, "fails"),
        (0.450, True, "holds"),
        (0.499, False, "holds"),
    ],
)
def test_a_gain_is_small_beside_the_whole(part: float, may_harm: bool, outcome: str) -> None:
    evidence = Evidence(make_tasks(xlm=0.5, kd=part, metaxlm=0.6))
    found = check_small_gain(evidence, "xlm", ["kd"], "metaxlm", TASKS, 0.25, may_harm)
    assert found.outcome == outcome


def test_a_part_that_may_be_as_good_as_the_whole_cannot_be_told() -> None:
    rows = make_tasks(xlm=0.5, metaxlm=0.6)
    for task in TASKS:
        rows += make_scores(task, "kd", {"en": [0.2, 0.5, 0.8], "de": [0.1, 0.4, 0.7]})
    found = check_small_gain(Evidence(rows), "xlm", ["kd"], "metaxlm", TASKS, 0.25, False)
    assert found.outcome == "cannot be told"
    assert dict(found.numbers)["kd: share of the gain"] == "0 %"


def test_what_makes_a_small_gain_fail_is_named() -> None:
    def reason(part: float) -> str:
        evidence = Evidence(make_tasks(xlm=0.5, **{"xlm+kd": part}, metaxlm=0.6))
        tasks = ("xlm", ["xlm+kd"], "metaxlm", TASKS, 0.25, False)
        return check_small_gain(evidence, *tasks).reason

    assert reason(0.45) == (
        "XLM+KD is worse than XLM (over 3 seeds), where a small gain is claimed."
    )
    assert reason(0.555) == "XLM+KD gains over 50 % of MetaXLM over XLM (over 3 seeds)."
    assert reason(0.62) == "A part beats MetaXLM; over 3 seeds."


def test_a_share_of_no_gain_cannot_be_told() -> None:
    evidence = Evidence(make_tasks(xlm=0.5, kd=0.5, metaxlm=0.501))
    found = check_small_gain(evidence, "xlm", ["kd"], "metaxlm", TASKS, 0.25, False)
    assert found.outcome == "cannot be told"
    assert "MetaXLM itself is not supported to be better" in found.reason


def test_unequal_steps_are_not_compared() -> None:
    rows = make_tasks(xlm=0.5, metaxlm=0.6)
    rows = [{**row, "step": 500} if row["variant"] == "xlm" else row for row in rows]
    with pytest.raises(
        MissingEvidenceError, match="Unequal numbers of steps: XLM 500, MetaXLM 1000"
    ):
        check_order(Evidence(rows), ["xlm", "metaxlm"], TASKS)
    unknown = [{**row, "step": None} if row["variant"] == "xlm" else row for row in rows]
    assert check_order(Evidence(unknown), ["xlm", "metaxlm"], TASKS).outcome == "holds"


def test_earlier_checkpoints_do_not_count() -> None:
    rows = make_tasks(xlm=0.5, metaxlm=0.6)
    early = [{**row, "step": 10, "value": 0.9} for row in rows if row["variant"] == "xlm"]
    assert check_order(Evidence([*early, *rows]), ["xlm", "metaxlm"], TASKS).outcome == "holds"


def test_languages_of_only_one_variant_do_not_count() -> None:
    rows = [*make_tasks(xlm=0.5, metaxlm=0.6), *make_scores("xnli", "xlm", {"fr": [1.0] * 3})]
    found = check_order(Evidence(rows), ["xlm", "metaxlm"], TASKS)
    assert dict(found.numbers)["XLM"] == "45.0"
    apart = [row for row in rows if (row["variant"] == "xlm") == (row["language"] == "en")]
    with pytest.raises(
        MissingEvidenceError, match="No languages of XNLI that XLM and MetaXLM share"
    ):
        check_order(Evidence(apart), ["xlm", "metaxlm"], TASKS)
