from __future__ import annotations

from typing import Any

import pytest

from metaxlm.report.scores import (
    collect,
    collect_majority,
    find_source_language,
    list_transfer_metrics,
    score_series,
    summarize,
)

from .fake_run import make_row


def retrieval(variant: str, layer: int, language: str, value: float, **more: Any) -> dict[str, Any]:
    return make_row(variant, "tatoeba", "accuracy", language, value, layer=layer, **more)


def transfer(variant: str, language: str, value: float, **more: Any) -> dict[str, Any]:
    return make_row(variant, "xnli", "accuracy", language, value, scenario="transfer", **more)


def test_seeds_become_mean_and_sample_deviation() -> None:
    score = score_series({1: 0.2, 2: 0.4})
    assert score is not None
    assert score.mean == pytest.approx(0.3)
    assert score.deviation == pytest.approx(0.1414213562)
    assert score.seeds == 2
    single = score_series({1: 0.2})
    assert single is not None and single.deviation is None
    assert score_series({}) is None


def test_best_layer_is_that_of_the_mean() -> None:
    rows = [
        retrieval("xlm", 0, "de", 0.9), retrieval("xlm", 0, "fr", 0.1),
        retrieval("xlm", 1, "de", 0.6), retrieval("xlm", 1, "fr", 0.6),
        retrieval("xlm", 2, "de", 0.6), retrieval("xlm", 2, "fr", 0.6),
    ]  # fmt: skip
    (summary,) = summarize(rows)
    assert summary.retrieval_layer == 1
    assert summary.retrieval is not None and summary.retrieval.mean == pytest.approx(0.6)
    scores = collect(rows, task="tatoeba", metric="accuracy", scenario="features")
    assert scores.best_layer("xlm", lower=True, languages=["de", "fr"]) == 0


def test_variants_are_compared_on_common_languages() -> None:
    rows = [
        retrieval("xlm", 0, "de", 0.4), retrieval("xlm", 0, "fr", 1.0),
        retrieval("metaxlm", 0, "de", 0.5),
    ]  # fmt: skip
    first, second = summarize(rows)
    assert first.retrieval is not None and first.retrieval.mean == pytest.approx(0.4)
    assert second.retrieval is not None and second.retrieval.mean == pytest.approx(0.5)


def test_only_the_last_step_counts() -> None:
    rows = [retrieval("xlm", 0, "de", 0.2, step=200), retrieval("xlm", 0, "de", 0.9, step=100)]
    rows += [retrieval("metaxlm", 0, "de", 0.5, step=None)]
    scores = collect(rows, task="tatoeba", metric="accuracy", scenario="features")
    assert scores.series("xlm", 0, "de") == {1: 0.2}
    assert scores.series("metaxlm", 0, "de") == {1: 0.5}


def test_dev_scores_do_not_mix_with_test_scores() -> None:
    rows = [transfer("xlm", "en", 0.7), transfer("xlm", "en", 0.9, split="dev")]
    scores = collect(rows, task="xnli", metric="accuracy", scenario="transfer")
    assert scores.series("xlm", None, "en") == {1: 0.7}
    scores = collect(rows[1:], task="xnli", metric="accuracy", scenario="transfer")
    assert scores.series("xlm", None, "en") == {1: 0.9}


def test_other_transfer_directions_are_left_out() -> None:
    rows = [transfer("xlm", "de", 0.4), transfer("xlm", "de", 0.8, source="de")]
    scores = collect(rows, task="xnli", metric="accuracy", scenario="transfer")
    assert scores.series("xlm", None, "de") == {1: 0.4}
    assert find_source_language(rows) == "en"
    assert find_source_language(rows[1:]) == "de"


def test_gap_is_taken_within_a_seed() -> None:
    rows = [
        transfer("xlm", "en", 0.8), transfer("xlm", "de", 0.5), transfer("xlm", "fr", 0.7),
        transfer("xlm", "en", 0.9, seed=2), transfer("xlm", "de", 0.6, seed=2),
        transfer("xlm", "fr", 0.8, seed=2),
    ]  # fmt: skip
    (summary,) = summarize(rows)
    assert summary.transfer_source is not None and summary.transfer_others is not None
    assert summary.transfer_source.mean == pytest.approx(0.85)
    assert summary.transfer_others.mean == pytest.approx(0.65)
    assert summary.transfer_gap is not None
    assert summary.transfer_gap.mean == pytest.approx(0.2)
    assert summary.transfer_gap.deviation == pytest.approx(0.0, abs=1e-12)


def test_several_tasks_are_averaged_and_side_metrics_left_out() -> None:
    rows = [
        transfer("xlm", "en", 0.8), transfer("xlm", "de", 0.6),
        make_row("xlm", "udpos", "f1", "en", 0.9, scenario="transfer"),
        make_row("xlm", "udpos", "f1", "de", 0.4, scenario="transfer"),
        make_row("xlm", "udpos", "f1_token", "de", 0.0, scenario="transfer"),
        make_row(None, "udpos", "majority", "de", 0.25, scenario="transfer"),
    ]  # fmt: skip
    assert list_transfer_metrics(rows) == [("xnli", "accuracy"), ("udpos", "f1")]
    (summary,) = summarize(rows)
    assert summary.transfer_source is not None and summary.transfer_others is not None
    assert summary.transfer_source.mean == pytest.approx(0.85)
    assert summary.transfer_others.mean == pytest.approx(0.5)
    assert collect_majority(rows, "udpos") == {"de": 0.25}


def test_a_variant_without_a_task_has_no_mean_over_tasks() -> None:
    rows = [
        transfer("xlm", "en", 0.8), transfer("xlm", "de", 0.6), transfer("metaxlm", "en", 0.8),
        transfer("metaxlm", "de", 0.7),
        make_row("xlm", "udpos", "f1", "en", 0.9, scenario="transfer"),
        make_row("xlm", "udpos", "f1", "de", 0.4, scenario="transfer"),
    ]  # fmt: skip
    first, second = summarize(rows)
    assert first.transfer_others is not None
    assert second.transfer_source is None and second.transfer_others is None
