"""The checks of claims on made scores: noise, baselines, gaps in the data, single seeds."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from metaxlm.analysis.claims import (
    CHECKS,
    check_cost,
    check_count,
    check_keeps,
    check_order,
    check_share,
    check_similar,
    check_trade_off,
    evaluate_claims,
    list_claims,
)
from metaxlm.analysis.contrast import UNDECIDED, MissingScoresError
from metaxlm.analysis.curve_claims import (
    check_grows,
    check_lag,
    check_points,
    check_rises,
    check_settles,
    check_starts_low,
    check_stays_high,
    check_trend,
)
from metaxlm.analysis.layer_claims import check_best_layer, check_layer_mean, check_stability
from metaxlm.analysis.results import COMPARED, VARIANTS
from metaxlm.analysis.results import TASKS as ALL_TASKS
from tests.analysis.rows import make_comparison, make_results, make_row, make_scores

Rows = list[dict[str, Any]]
SEEDS = (-0.002, 0.0, 0.002)
TASKS = ["xnli", "pawsx", "amazon-dvd"]
REVIEWS = ["amazon-books", "amazon-dvd", "amazon-music"]
CODES = ["en", "de", "fr", "ja"]
PAIRS = ["de", "fr", "cs", "fa"]
MANY = [f"x{k}" for k in range(12)]
STEPS = range(2000, 42000, 2000)
Shape = Callable[[int], float]


# claims.yaml


def test_every_claim_calls_its_check_with_its_parameters() -> None:
    assert {claim.check for claim in list_claims()} == set(CHECKS)
    assert len(list_claims()) == 35
    keys = ("variants", "variant", "first", "second", "seconds", "base", "parts", "whole", "high",
            "low", "more", "less", "others")  # fmt: skip
    for claim in list_claims():
        inspect.signature(CHECKS[claim.check]).bind(None, **claim.parameters)
        tasks = claim.parameters.get("tasks", [claim.parameters.get("task")])
        assert {*tasks} <= {*ALL_TASKS} or claim.check == "cost"
        named = [claim.parameters.get(key, []) for key in keys]
        flat = {name for part in named for name in ([part] if isinstance(part, str) else part)}
        ours = {"dict+use"} if claim.check == "cost" else set()  # its step computes the same
        assert flat and flat <= VARIANTS.keys() | COMPARED.keys() | ours


def test_without_scores_every_claim_names_what_is_missing() -> None:
    for verdict in evaluate_claims(make_results([make_row("xnli", "mine", 0.5)])):
        assert verdict.outcome == UNDECIDED
        assert verdict.reason.startswith(("No scores of", "No training times"))


# Tables


def make_tasks(**means: float | list[float]) -> Rows:
    """Scores of three seeds on three tasks; a variant has one mean for all, or one for each."""
    rows = []
    for name, found in means.items():
        many = found if isinstance(found, list) else [found] * 3
        for task, value in zip(TASKS, many, strict=True):
            rows += make_scores(task, name, {"en": [value + noise for noise in SEEDS]})
            rows += make_scores(task, name, {"de": [value - 0.1 + noise for noise in SEEDS]})
    return rows


def make_levels(level: float) -> Rows:
    return [make_row(task, None, level, metric="majority", language=language)
            for task in TASKS for language in ("en", "de")]  # fmt: skip


@pytest.mark.parametrize(
    ("best", "outcome"), [(0.7, "holds"), (0.55, "fails"), (0.6005, UNDECIDED)]
)
def test_an_order_holds_fails_or_is_within_noise(best: float, outcome: str) -> None:
    rows = make_tasks(xlm=0.5, metaxlm=0.6, best=best)
    early = [{**row, "step": 10, "value": 0.9} for row in rows if row["variant"] == "xlm"]
    alone = make_scores("xnli", "xlm", {"fr": [1.0] * 3})  # a language of one variant
    results = make_results([*early, *rows, *alone])
    found = check_order(results, ["xlm", "metaxlm", "best"], TASKS)
    assert found[0] == outcome
    assert dict(found[1])["XLM"] == "45.0"
    assert "over 3 seeds" in found[2]


def test_different_steps_are_not_compared() -> None:
    rows = make_tasks(xlm=0.5, metaxlm=0.6)
    rows = [{**row, "step": 500} if row["variant"] == "xlm" else row for row in rows]
    with pytest.raises(MissingScoresError, match="XLM 500, MetaXLM 1000"):
        check_order(make_results(rows), ["xlm", "metaxlm"], TASKS)


def test_tasks_at_their_baselines_decide_nothing() -> None:
    rows = make_tasks(xlm=0.5, body=0.5, metaxlm=0.6)
    high = make_results(rows + make_levels(0.5))
    assert check_order(high, ["xlm", "metaxlm"], TASKS)[0] == "holds"
    low = make_results(rows + make_levels(0.54))
    for found in (
        check_order(low, ["xlm", "metaxlm"], TASKS),
        check_count(low, "metaxlm", ["xlm"], TASKS, at_least=1),
        check_share(low, "xlm", ["body"], "metaxlm", TASKS, share=0.25, may_harm=True),
    ):
        assert found[0] == UNDECIDED
        assert "no model is above guessing" in found[2]


@pytest.mark.parametrize(
    ("scores", "at_least", "outcome"),
    [
        ([0.6, 0.6, 0.6], 3, "holds"),
        ([0.6, 0.6, 0.501], 3, UNDECIDED),
        ([0.6, 0.6, 0.501], 2, "holds"),
        ([0.6, 0.6, 0.4], 3, "fails"),
        ([0.6, 0.4, 0.4], 2, "fails"),
        ([0.6, 0.501, 0.4], 2, UNDECIDED),
    ],
)
def test_tasks_are_counted_by_their_tests(scores: list[float], at_least: int, outcome: str) -> None:
    results = make_results(make_tasks(xlm=0.5, metaxlm=scores))
    assert check_count(results, "metaxlm", ["xlm"], TASKS, at_least=at_least)[0] == outcome


@pytest.mark.parametrize(
    ("part", "outcome"), [(0.51, "holds"), (0.499, UNDECIDED), (0.45, "fails"), (0.57, "fails")]
)
def test_a_small_gain_is_a_gain(part: float, outcome: str) -> None:
    rows = make_tasks(**{"xlm": 0.5, "xlm+kd": part, "metaxlm": 0.6})
    found = check_share(make_results(rows), "xlm", ["xlm+kd"], "metaxlm", TASKS, 0.25, False)
    assert found[0] == outcome


@pytest.mark.parametrize(
    ("scores", "outcome"),
    [([0.48, 0.49, 0.7], "holds"), ([0.48, 0.3, 0.7], "fails"), ([0.48, 0.459, 0.7], UNDECIDED)],
)
def test_a_share_of_a_score_is_kept(scores: list[float], outcome: str) -> None:
    results = make_results(make_tasks(freeze=scores, xlm=0.5))
    assert check_keeps(results, "freeze", "xlm", TASKS, 0.9)[0] == outcome
    low = make_results(make_tasks(freeze=scores, xlm=0.5) + make_levels(0.5))
    assert check_keeps(low, "freeze", "xlm", TASKS, 0.9)[0] == UNDECIDED


@pytest.mark.parametrize(
    ("english", "others", "outcome"),
    [(0.05, -0.05, "holds"), (0.05, 0.05, "fails"), (0.05, 0.0, UNDECIDED), (-0.1, -0.1, "fails")],
)
def test_a_trade_off_has_two_sides(english: float, others: float, outcome: str) -> None:
    rows = make_tasks(less=0.6)
    moves = {"en": english, "de": others}
    rows += [{**r, "variant": "more", "value": r["value"] + moves[r["language"]]} for r in rows]
    assert check_trade_off(make_results(rows), "more", "less", TASKS)[0] == outcome


@pytest.mark.parametrize(
    ("first", "others", "outcome"),
    [
        (0.05, [0.03, 0.031], "holds"), (0.032, [0.03, 0.031], UNDECIDED),
        (0.047, [0.028, 0.053], UNDECIDED), (0.02, [0.03, 0.031], "fails"),
    ],
)  # fmt: skip
def test_times_count_beyond_their_range(first: float, others: list[float], outcome: str) -> None:
    seconds = {"kd": first, **{f"v{k}": value for k, value in enumerate(others)}}
    results = replace(make_results([make_row("xnli", "kd", 0.5)]), step_seconds=seconds)
    assert check_cost(results, "kd", ["v0", "v1", "absent"])[0] == outcome
    with pytest.raises(MissingScoresError, match="No training times"):
        check_cost(results, "kd", ["v0", "absent"])


# Languages and directions

Gain = Callable[[str, str, str], float]


def make_reviews(gain: Gain, base: float = 0.7, noise: float = 0.004) -> Rows:
    """XLM at the base everywhere, MetaXLM with a gain by task, source and language."""
    rows = []
    for task in REVIEWS:
        for source in CODES:
            for language in CODES:
                scenario = "supervised" if source == language else "transfer"
                place = {"source": source, "language": language, "scenario": scenario}
                rows.append(make_row(task, None, 0.5, metric="majority", **place))
                for seed in range(3):
                    move = noise * (seed - 1)
                    found = gain(task, source, language)
                    rows.append(make_row(task, "xlm", base + move, seed=seed, **place))
                    rows.append(make_row(task, "metaxlm", base + found - move, seed=seed, **place))
    return rows


def count(rows: Rows, over: str, at_least: int | None = None) -> tuple[str, str]:
    found = check_count(make_results(rows), "metaxlm", ["xlm"], REVIEWS, over, at_least, CODES)  # type: ignore[arg-type]
    return found[0], dict(found[1])["better"]


@pytest.mark.parametrize(
    ("gain", "outcome", "better"),
    [
        (lambda *_: -0.03, "fails", 0),
        (lambda *at: -0.05 if at == ("amazon-dvd", "ja", "ja") else 0.03, "fails", 11),
        (lambda *at: -0.001 if at == ("amazon-dvd", "ja", "ja") else 0.03, UNDECIDED, 11),
        (lambda _, a, b: 0.03 if a == b else -0.1, "holds", 12),
        (lambda _, a, b: -0.05 if (a, b) == ("de", "ja") else 0.03, "holds", 15),
        # Two lost directions are corrected for sixteen.
        (lambda _, a, b: -0.0234 if {a, b} == {"de", "ja"} else 0.03, "fails", 14),
        (lambda _, a, b: -0.0190 if {a, b} == {"de", "ja"} else 0.03, UNDECIDED, 14),
        (lambda task, *_: -0.05 if task == "amazon-dvd" else 0.05, "holds", 16),
    ],
)
def test_every_set_or_fifteen_directions_must_be_better(
    gain: Gain, outcome: str, better: int
) -> None:
    over = ("languages", None) if better <= 12 else ("directions", 15)
    of = 12 if better <= 12 else 16
    assert count(make_reviews(gain), *over) == (outcome, f"{better} of {of}")


def test_directions_of_one_seed_or_at_their_baselines_decide_nothing() -> None:
    for gain in (0.1, -0.1):
        rows = [row for row in make_reviews(lambda *_, gain=gain: gain) if row["seed"] == 0]
        assert count(rows, "languages")[0] == UNDECIDED
    rows = make_reviews(lambda *_: 0.01, base=0.505, noise=0.001)
    assert count(rows, "directions", 15) == (UNDECIDED, "0 of 16")
    there = [r for r in rows if (r["source"], r["language"]) != ("de", "ja")]
    with pytest.raises(MissingScoresError, match="No scores of MetaXLM on Amazon Books de→ja"):
        count(there, "directions", 15)


def test_similar_languages() -> None:
    def check(gain: Gain, base: float = 0.7) -> str:
        results = make_results(make_reviews(gain, base))
        pairs = ([["en", "fr"], ["fr", "en"]], [["de", "ja"], ["ja", "de"]])
        return check_similar(results, ["metaxlm"], REVIEWS, *pairs)[0]

    assert check(lambda _, a, b: 0.05 if {a, b} == {"en", "fr"} else 0.0) == "holds"
    assert check(lambda _, a, b: 0.05 if {a, b} == {"de", "ja"} else 0.0) == "fails"
    assert check(lambda _, a, b: 0.05 if a == b else 0.0) == UNDECIDED
    with pytest.raises(MissingScoresError, match="at its baselines"):
        check(lambda *_: 0.0, base=0.51)


# Layers


def make_layers(
    task: str, variant: str, score: Callable[[int, int], float], languages: list[str], top: int = 12
) -> Rows:
    """One score for each layer and language, from its layer and the language's number."""
    return [
        make_row(task, variant, score(layer, k), layer=layer, language=code,
                 metric=ALL_TASKS[task].metric, scenario="features", examples=1000)
        for layer in range(top + 1)
        for k, code in enumerate(languages)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gain", "base", "outcome"),
    [
        (lambda *_: 0.05, 0.3, "holds"),
        (lambda layer, k: -0.05 if layer == 3 and k < 6 else 0.05, 0.3, UNDECIDED),
        (lambda layer, _: -0.05 if layer == 3 else 0.05, 0.3, "fails"),
        (lambda *_: 0.01, 0.001, UNDECIDED),
    ],
)
def test_every_layer_must_be_better(
    gain: Callable[[int, int], float], base: float, outcome: str
) -> None:
    rows = make_layers("tatoeba", "xlm", lambda *_: base, MANY)
    rows += make_layers("tatoeba", "metaxlm", lambda layer, k: base + gain(layer, k), MANY)
    found = check_count(make_results(rows), "metaxlm", ["xlm"], ["tatoeba"], "layers")
    assert found[0] == outcome


def test_lower_error_rates_are_better_and_a_layer_may_be_left_out() -> None:
    rows = make_layers("alignment", "xlm", lambda _, k: 0.5 + k / 50, PAIRS)
    rows += make_layers(
        "alignment", "metaxlm",
        lambda layer, k: 0.5 + k / 50 + (-0.1 - k / 100 if layer else 0.2), PAIRS,
    )  # fmt: skip
    results = make_results(rows)
    for first, second, without, outcome in (
        ("metaxlm", "xlm", [0], "holds"),
        ("metaxlm", "xlm", [], "fails"),
        ("xlm", "metaxlm", [0], "fails"),
    ):
        found = check_count(results, first, [second], ["alignment"], "layers", without=without)
        assert found[0] == outcome
    short = make_layers("alignment", "body", lambda *_: 0.5, PAIRS, top=6)
    with pytest.raises(MissingScoresError, match="different layers"):
        check_count(make_results([*rows, *short]), "body", ["xlm"], ["alignment"], "layers")


def test_layers_are_tested_over_languages_not_over_sentences() -> None:
    """Four pairs, of which one gains nearly nothing: sentences would settle it, pairs do not."""
    gains = (0.001, 0.1, 0.2, 0.15)
    rows = make_layers("alignment", "xlm", lambda _, k: 0.5 + k / 50, PAIRS, 1)
    rows += make_layers("alignment", "metaxlm", lambda _, k: 0.5 + k / 50 - gains[k], PAIRS, 1)
    by_pair = {("en", code): -gain for code, gain in zip(PAIRS, gains, strict=True)}
    tested = make_comparison(
        "alignment", ("metaxlm", "xlm"), by_pair, scenario="features", metric="aer"
    )
    tests = [replace(tested, layer=layer) for layer in (0, 1)]
    found = check_count(make_results(rows, tests), "metaxlm", ["xlm"], ["alignment"], "layers")
    assert found[0] == UNDECIDED
    assert "Student's t over 4 languages" in found[2]


@pytest.mark.parametrize(
    ("gain", "base", "outcome"),
    [(0.05, 0.3, "holds"), (-0.05, 0.3, "fails"), (0.002, 0.001, UNDECIDED)],
)
def test_the_mean_over_layers_is_compared_by_language(
    gain: float, base: float, outcome: str
) -> None:
    """A layer that is worse does not decide."""
    rows = make_layers("tatoeba", "xlm", lambda *_: base, MANY)
    rows += make_layers(
        "tatoeba", "metaxlm", lambda layer, _: base + (-gain if layer == 3 else gain), MANY
    )
    found = check_layer_mean(make_results(rows), "metaxlm", "xlm", "tatoeba")
    assert found[0] == outcome


@pytest.mark.parametrize(
    ("top", "best", "outcome"),
    [
        (12, [7] * 4, "holds"), (12, [9] * 4, "holds"), (12, [6] * 4, "fails"),
        (12, [8, 8, 2, 2], UNDECIDED), (6, [4] * 4, "holds"), (6, [5] * 4, "fails"),
        (6, [2] * 4, "fails"), (24, [14] * 4, "holds"), (2, [1] * 4, "holds"),
    ],
)  # fmt: skip
def test_the_best_layer_scales_with_the_model(top: int, best: list[int], outcome: str) -> None:
    """The best layers are of one language each."""
    scores = make_layers(
        "alignment", "xlm", lambda layer, k: 0.3 + abs(layer - best[k]) / 50, PAIRS, top
    )
    found = check_best_layer(make_results(scores), ["xlm"], "alignment", layer=8, of=12)
    assert found[0] == outcome


def test_the_variant_that_varies_less_is_more_stable() -> None:
    def make(variant: str, height: float) -> Rows:
        def score(layer: int, k: int) -> float:
            return 0.9 if layer == 0 else 0.3 + (height + k / 200) * abs(layer - 8)

        return make_layers("alignment", variant, score, PAIRS)

    results = make_results([*make("metaxlm", 0.01), *make("xlm", 0.03), *make("same", 0.01)])
    assert check_stability(results, "metaxlm", "xlm", "alignment")[0] == "holds"
    assert check_stability(results, "xlm", "metaxlm", "alignment")[0] == "fails"
    assert check_stability(results, "metaxlm", "same", "alignment")[0] == UNDECIDED


# Along pretraining


def rise(onset: int, height: float, level: float = 0.1) -> Shape:
    return lambda step: level + height * (1 - math.exp(-max(0, step - onset) / 8000))


def make_rows(
    variant: str, english: Shape, others: Shape, steps: range = STEPS, seeds: int = 3
) -> Rows:
    rows = []
    for step in steps:
        for seed in range(seeds):
            move = 0.002 * (seed - (seeds - 1) / 2) * (-1) ** (step // 2000)
            about = {"step": step, "seed": seed, "metric": "f1", "split": "dev"}
            rows.append(make_row("mlqa", variant, english(step) + move, **about))
            for code in ("de", "ar"):
                rows.append(make_row("mlqa", variant, others(step) - move, language=code, **about))
    return rows


XLM = make_rows("xlm", rise(14000, 0.6), rise(20000, 0.3))
METAXLM = make_rows("metaxlm", rise(0, 0.03, 0.75), rise(0, 0.4))


def curve_outcomes(rows: Rows) -> dict[str, str]:
    claims = [claim for claim in list_claims() if claim.section.startswith("5.1")]
    return {v.claim.name: v.outcome for v in evaluate_claims(make_results(rows), claims)}


def test_curves_like_the_papers_support_its_claims() -> None:
    assert set(curve_outcomes([*XLM, *METAXLM]).values()) == {"holds"}
    other = {"xlm": "metaxlm", "metaxlm": "xlm"}
    outcomes = curve_outcomes(
        [{**row, "variant": other[row["variant"]]} for row in [*XLM, *METAXLM]]
    )
    assert outcomes.pop("xlm-lags") == UNDECIDED
    assert set(outcomes.values()) == {"fails"}


@pytest.mark.parametrize(
    ("english", "others", "steps", "lag", "low"),
    [
        (rise(14000, 0.6), rise(14000, 0.3), STEPS, "fails", "holds"),
        (rise(20000, 0.6), rise(14000, 0.3), STEPS, "fails", "holds"),
        (rise(14000, 0.6), rise(20000, 0.3), STEPS, "holds", "holds"),
        (rise(20000, 0.6), rise(21000, 0.3), range(2000, 80000, 8000), UNDECIDED, "holds"),
        (rise(14000, 0.6), rise(10**6, 0.3), STEPS, UNDECIDED, "holds"),
        (rise(0, 0.03, 0.75), rise(12000, 0.4), STEPS, UNDECIDED, "fails"),
    ],
)
def test_lags(english: Shape, others: Shape, steps: range, lag: str, low: str) -> None:
    results = make_results(make_rows("xlm", english, others, steps))
    assert check_lag(results, "xlm", "mlqa")[0] == lag
    assert check_starts_low(results, "xlm", "mlqa")[0] == low
    alone = make_results(make_rows("xlm", english, others, steps, seeds=1))
    assert check_starts_low(alone, "xlm", "mlqa")[0] == UNDECIDED


@pytest.mark.parametrize(
    ("others", "outcome"),
    [
        (rise(0, 0.4), "holds"),
        (rise(20000, 0.4), "fails"),  # also where English leaves its plateau at the same step
        (lambda step: 0.1 + (step if step <= 12000 else 24000 - step / 2) / 50000, "fails"),
        (lambda _: 0.1, UNDECIDED),
    ],
)
def test_languages_keep_rising_from_the_start(others: Shape, outcome: str) -> None:
    results = make_results(make_rows("metaxlm", rise(20000, 0.6), others))
    assert check_rises(results, "metaxlm", "mlqa")[0] == outcome
    alone = make_results(make_rows("metaxlm", rise(20000, 0.6), others, seeds=1))
    assert check_rises(alone, "metaxlm", "mlqa")[0] == UNDECIDED


@pytest.mark.parametrize(
    ("gap", "outcome"),
    [
        (lambda step: 0.6 - step / 10**5, "holds"),
        (lambda step: 0.1 + step / 10**5, "fails"),
        (lambda step: 0.3 + 0.1 * (-1) ** (step // 2000), UNDECIDED),
        # It falls most of the way, and ends above its start.
        (lambda step: 0.6 - step / 10**5 + (0.6 if step == 40000 else 0), UNDECIDED),
    ],
)
def test_a_gap_falls_by_its_trend(gap: Shape, outcome: str) -> None:
    results = make_results(make_rows("metaxlm", lambda _: 0.8, lambda step: 0.8 - gap(step)))
    assert check_trend(results, "metaxlm", "mlqa", "gap", "down")[0] == outcome
    few = make_rows("metaxlm", lambda _: 0.8, lambda _: 0.3, range(2000, 10000, 2000))
    with pytest.raises(MissingScoresError, match="a trend needs 5"):
        check_trend(make_results(few), "metaxlm", "mlqa", "gap", "down")


@pytest.mark.parametrize(
    ("gap", "seeds", "grows", "settles"),
    [
        (lambda step: 0.1 if step < 14000 else 0.3, 3, "holds", "holds"),
        (lambda step: 0.1 if step < 14000 else 0.3, 1, UNDECIDED, UNDECIDED),
        (lambda step: 0.1 + step / 200000, 3, "fails", UNDECIDED),  # all along
        (lambda step: 0.1 if step < 36000 else 0.3, 3, "fails", "fails"),  # at the end only
        (lambda step: 0.3 - step / 200000, 3, "fails", "fails"),
        (lambda _: 0.2, 3, UNDECIDED, UNDECIDED),
    ],
)
def test_a_gap_grows_fast_and_settles(gap: Shape, seeds: int, grows: str, settles: str) -> None:
    rows = make_rows("xlm", lambda _: 0.8, lambda step: 0.8 - gap(step), seeds=seeds)
    results = make_results(rows)
    assert check_grows(results, "xlm", "mlqa", "gap")[0] == grows
    assert check_settles(results, "xlm", "mlqa", "gap")[0] == settles


def test_gaps_are_compared_at_the_first_common_checkpoint() -> None:
    rows = make_rows("metaxlm", lambda step: 0.9 if step == 4000 else 0.6, lambda _: 0.5)
    rows += make_rows("xlm", lambda _: 0.7, lambda _: 0.5, range(4000, 20000, 2000))
    rows += make_rows("body", lambda _: 0.7, lambda _: 0.5, range(3000, 20000, 4000))
    results = make_results(rows)
    found = check_points(results, "mlqa", "gap", "metaxlm", "xlm")
    assert found[0] == "holds"
    assert [number for _, number in found[1][:2]] == ["40.0", "20.0"]
    with pytest.raises(MissingScoresError, match="share no checkpoint"):
        check_points(results, "mlqa", "gap", "body", "xlm")


@pytest.mark.parametrize(
    ("english", "base", "outcome"),
    [
        (rise(0, 0.03, 0.75), 0.2, "holds"),
        (rise(0, 0.5, 0.2), 0.1, "fails"),
        (rise(0, 0.03, 0.75), 0.9, "fails"),
        (lambda step: 0.9 if step == 2000 else 1.0, 0.2, UNDECIDED),
        (lambda step: 0.9 if step == 2000 else 0.7, 0.2, "fails"),  # it forgets
        (rise(0, 0.03, 0.75), 0.775, UNDECIDED),
    ],
)
def test_english_stays_high(english: Shape, base: float, outcome: str) -> None:
    rows = [
        *make_rows("metaxlm", english, lambda _: 0.1),
        *make_rows("xlm", lambda _: base, lambda _: 0.1),
    ]
    assert check_stays_high(make_results(rows), "metaxlm", "xlm", "mlqa", 0.9)[0] == outcome


def test_a_model_that_learned_nothing_has_no_curve() -> None:
    rows = [*XLM, make_row("mlqa", None, 0.66, metric="chance", split="dev")]
    with pytest.raises(MissingScoresError, match="at its baselines on MLQA"):
        check_lag(make_results(rows), "xlm", "mlqa")
    few = make_results([row for row in XLM if row["step"] > 37000])
    with pytest.raises(MissingScoresError, match="Too few checkpoints"):
        check_lag(few, "xlm", "mlqa")
