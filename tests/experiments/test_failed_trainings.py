"""Finetunings that learned nothing: found by the score in their own training language."""

from __future__ import annotations

from typing import Any

import pytest
from tests.experiments.result_rows import make_row, make_scores

from metaxlm.experiments.claims import Evidence, judge_claims
from metaxlm.experiments.failed_trainings import (
    FailedTrainings,
    choose_failed,
    find_failed,
    has_learned,
)


def make_xnli(variant: str, english: list[float], german: list[float]) -> list[dict[str, Any]]:
    levels = [make_row("xnli", None, 0.33, metric="majority", language=c) for c in ("en", "de")]
    return [*make_scores("xnli", variant, {"en": english, "de": german}), *levels]


def test_one_collapsed_seed_is_found_with_the_mean_of_the_others() -> None:
    rows = make_xnli("metaxlm+dict", [0.33, 0.62, 0.60], [0.33, 0.44, 0.46])
    [failed] = find_failed(rows)
    expected = FailedTrainings("metaxlm+dict", "xnli", "en", (0,), 3, 0.33, pytest.approx(0.53))
    assert failed == expected
    assert failed.describe() == (
        "XNLI: 1 of 3 finetunings of MetaXLM+Dict learned nothing (seed 0: 33.0 in English "
        "itself); without it the mean is 53.0."
    )


def test_several_seeds_are_told_as_several() -> None:
    [failed] = find_failed(make_xnli("xlm", [0.33, 0.34, 0.60], [0.33, 0.33, 0.50]))
    assert "2 of 3 finetunings of XLM learned nothing (seeds 0, 1: 33.5 in English" in (
        failed.describe()
    )
    assert "without them the mean is 55.0" in failed.describe()


def test_a_task_that_no_seed_learned_is_no_collapse() -> None:
    assert find_failed(make_xnli("xlm", [0.33, 0.34], [0.33, 0.33])) == []


def test_a_low_score_in_another_language_is_no_collapse() -> None:
    assert find_failed(make_xnli("xlm", [0.60, 0.62], [0.33, 0.50])) == []


def test_guessing_counts_where_it_is_above_the_most_frequent_answer() -> None:
    rows = make_xnli("xlm", [0.45, 0.62], [0.40, 0.50])
    assert find_failed(rows) == []
    [failed] = find_failed([*rows, make_row("xnli", None, 0.44, metric="chance")])
    assert failed.seeds == (0,)


def test_learned_is_clearly_above_every_level() -> None:
    assert has_learned(0.5, 0.3, 0.4) and not has_learned(0.5, 0.3, 0.49)
    assert not has_learned(0.5, 0.49, 0.3) and has_learned(0.5) and not has_learned(0.01)


def test_each_training_language_is_looked_at_by_itself() -> None:
    levels = [
        make_row("amazon-dvd", None, 0.5, source=code, language=code, metric="majority",
                 scenario="supervised")
        for code in ("de", "fr")
    ]  # fmt: skip
    rows = levels + [
        make_row("amazon-dvd", "xlm", value, source=code, language=code, seed=seed,
                 scenario="supervised")
        for code, values in (("de", [0.75, 0.50]), ("fr", [0.77, 0.78]))
        for seed, value in enumerate(values)
    ]  # fmt: skip
    [failed] = find_failed(rows)
    assert (failed.source, failed.seeds, failed.others) == ("de", (1,), 0.75)
    assert "50.0 in German itself" in failed.describe()


def test_kept_checkpoints_and_features_are_left_out() -> None:
    early = make_scores("xnli", "xlm", {"en": [0.01, 0.6]}, step=10)
    final = make_scores("xnli", "xlm", {"en": [0.6, 0.6]})
    layer = make_scores("tatoeba", "xlm", {"en": [0.0, 0.6]}, scenario="features")
    assert find_failed([*final, *early, *layer]) == []
    assert len(find_failed(early)) == 1  # the last step of a run that got no further


def test_an_own_task_is_judged_by_its_own_metric() -> None:
    rows = make_scores("mine", "xlm", {"en": [0.0, 0.6]}, metric="f1")
    assert find_failed(rows) == []
    [failed] = find_failed(rows, {"mine": "f1"})
    assert failed.task == "mine"


def test_failures_are_chosen_by_variant_and_task() -> None:
    found = find_failed(make_xnli("xlm", [0.33, 0.62], [0.33, 0.44]))
    assert choose_failed(found, ["xlm"], ["xnli"]) == found
    assert choose_failed(found, ["metaxlm"], ["xnli"]) == []
    assert choose_failed(found, ["xlm"], ["pawsx"]) == []


def test_a_claim_names_the_collapse_that_it_suffers_from() -> None:
    rows = [
        *make_xnli("xlm", [0.50, 0.52, 0.51], [0.40, 0.41, 0.42]),
        *make_xnli("metaxlm", [0.33, 0.62, 0.60], [0.33, 0.44, 0.46]),
    ]
    for task in ("udpos", "panx", "xquad", "mlqa", "tydiqa", "pawsx"):
        metric = "accuracy" if task == "pawsx" else "f1"
        for variant, values in (("xlm", [0.5] * 3), ("metaxlm", [0.6] * 3)):
            rows += make_scores(task, variant, {"en": values, "de": values}, metric=metric)
            if task in ("xquad", "mlqa", "tydiqa"):
                rows += make_scores(task, variant, {"en": values, "de": values}, metric="em")
    told = {
        verdict.claim.name
        for verdict in judge_claims(Evidence(rows, []))
        if "XNLI: 1 of 3 finetunings of MetaXLM learned nothing" in verdict.reason
    }
    assert told == {"english-gains", "other-languages-gain", "six-of-seven-tasks"}
