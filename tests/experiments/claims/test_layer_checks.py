"""Claims about layers: every layer, the best layer, stability, on made profiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.experiments.result_rows import make_row

from metaxlm.experiments.claims.claim import MissingEvidenceError
from metaxlm.experiments.claims.evidence import Evidence
from metaxlm.experiments.claims.layer_checks import (
    check_best_layer,
    check_layers,
    check_stability,
    find_share_p_value,
)

PAIRS = ["de", "fr", "cs", "fa"]
MANY = ["de", "fr", "es", "ru", "ar", "zh", "hi", "vi"]


def make_layers(
    task: str, variant: str, score: Callable[[int, int], float], languages: list[str], top: int = 12
) -> list[dict[str, Any]]:
    """One score for each layer and language, from its layer and the language's number."""
    metric = "aer" if task == "alignment" else "accuracy"
    return [
        make_row(task, variant, score(layer, k), layer=layer, language=code, metric=metric,
                 scenario="features", examples=1000)
        for layer in range(top + 1)
        for k, code in enumerate(languages)
    ]  # fmt: skip


def judge_retrieval(gain: Callable[[int, int], float], base: float = 0.3) -> str:
    rows = make_layers("tatoeba", "xlm", lambda *_: base, MANY)
    rows += make_layers("tatoeba", "metaxlm", lambda layer, k: base + gain(layer, k), MANY)
    return check_layers(Evidence(rows), "metaxlm", "xlm", "tatoeba").outcome


def test_every_layer_must_be_better_in_most_languages() -> None:
    assert judge_retrieval(lambda *_: 0.05) == "holds"
    assert judge_retrieval(lambda layer, _: 0.05 if layer else -0.05) == "cannot be told"
    assert judge_retrieval(lambda layer, k: -0.05 if layer == 3 and k < 4 else 0.05) == (
        "cannot be told"
    )
    # Eight signs have p = 0.008: not enough to call one of thirteen layers lost.
    assert judge_retrieval(lambda layer, _: -0.05 if layer in (3, 4) else 0.05) == "cannot be told"


def test_a_clearly_worse_layer_makes_it_fail() -> None:
    codes = [f"x{k}" for k in range(12)]
    rows = make_layers("tatoeba", "xlm", lambda *_: 0.3, codes)
    rows += make_layers("tatoeba", "metaxlm", lambda layer, _: 0.2 if layer == 3 else 0.4, codes)
    found = check_layers(Evidence(rows), "metaxlm", "xlm", "tatoeba")
    assert found.outcome == "fails"
    assert "better at 12 of 13 layers, clearly so at 12, and clearly worse at 1" in found.reason
    assert dict(found.numbers)["layer 3: MetaXLM less XLM"].startswith("-10.0")


def test_retrieval_at_the_level_of_guessing() -> None:
    assert judge_retrieval(lambda *_: 0.01, base=0.001) == "cannot be told"


def test_lower_error_rates_are_better_and_a_layer_may_be_left_out() -> None:
    rows = make_layers("alignment", "xlm", lambda _, k: 0.5 + k / 50, PAIRS)
    rows += make_layers(
        "alignment", "metaxlm",
        lambda layer, k: 0.5 + k / 50 + (-0.1 - k / 100 if layer else 0.2), PAIRS,
    )  # fmt: skip
    evidence = Evidence(rows)
    found = check_layers(evidence, "metaxlm", "xlm", "alignment", without=[0])
    assert found.outcome == "holds"
    assert "At layer 0 it is -20.0 points" in found.reason
    assert check_layers(evidence, "metaxlm", "xlm", "alignment").outcome == "fails"
    assert check_layers(evidence, "xlm", "metaxlm", "alignment", without=[0]).outcome == "fails"


def judge_best(best: Callable[[int], int], top: int = 12) -> str:
    rows = make_layers(
        "alignment", "xlm", lambda layer, k: 0.3 + abs(layer - best(k)) / 50, PAIRS, top
    )
    return check_best_layer(Evidence(rows), ["xlm"], "alignment", layer=8, of=12).outcome


@pytest.mark.parametrize(("top", "near", "far"), [(12, (7, 8, 9), (6, 10)), (6, (3, 4, 5), (2, 6))])
def test_the_best_layer_scales_with_the_model(
    top: int, near: tuple[int, ...], far: tuple[int, ...]
) -> None:
    assert {judge_best(lambda _, best=best: best, top) for best in near} == {"holds"}
    assert {judge_best(lambda _, best=best: best, top) for best in far} == {"fails"}


def test_a_flat_profile_has_no_best_layer() -> None:
    """Whichever layer leads by a hair, it neither confirms nor denies the paper's."""
    codes = [f"x{k}" for k in range(39)]
    for best in (1, 8):
        # Three languages have their best at each layer; the mean has its at `best` by a hair.
        rows = make_layers(
            "tatoeba", "xlm",
            lambda layer, k, best=best: 0.3 + (layer == k % 13) / 100 + (layer == best == k) / 1e5,
            codes,
        )  # fmt: skip
        found = check_best_layer(Evidence(rows), ["xlm"], "tatoeba", layer=8, of=12)
        assert found.outcome == "cannot be told"


def test_another_layer_must_be_clearly_better() -> None:
    codes = [f"x{k}" for k in range(12)]

    def check(losers: int) -> str:
        rows = make_layers(
            "tatoeba", "xlm",
            lambda layer, k: 0.4 if layer == 4 else 0.41 if layer == 8 and k < losers else 0.3,
            codes,
        )  # fmt: skip
        return check_best_layer(Evidence(rows), ["xlm"], "tatoeba", layer=8, of=12).outcome

    assert check(losers=1) == "fails"
    assert check(losers=5) == "cannot be told"


def test_a_share_is_binomial() -> None:
    assert find_share_p_value(4, 4, 0.5) == pytest.approx(1 / 16)
    assert find_share_p_value(3, 4, 0.5) == pytest.approx(5 / 16)
    assert find_share_p_value(1, 2, 0.25) == pytest.approx(1 - 0.75**2)


def test_the_best_layer_is_shown() -> None:
    rows = make_layers("alignment", "xlm", lambda layer, _: 0.3 + abs(layer - 7) / 50, PAIRS)
    found = check_best_layer(Evidence(rows), ["xlm"], "alignment", layer=8, of=12)
    assert dict(found.numbers) == {
        "XLM: best layer": "7 of 12",
        "XLM: languages with their best at 7 to 9": "4 of 4",
        "XLM: chance of so many": "p = 0.003",
    }
    assert found.reason == (
        "XLM is best at layer 7, and 4 of 4 languages at 7 to 9, more than by chance. The paper's "
        "8 of 12 would be 7 to 9 of 12 here."
    )
    rows = make_layers("alignment", "xlm", lambda layer, _: 0.3 + abs(layer - 3) / 50, PAIRS, 6)
    rows += make_layers("alignment", "body", lambda layer, _: 0.3 + abs(layer - 1) / 50, PAIRS, 6)
    found = check_best_layer(Evidence(rows), ["xlm", "body"], "alignment", layer=8, of=12)
    assert found.reason == (
        "XLM is best at layer 3, and 4 of 4 languages at 3 to 5, more than by chance. Body only is "
        "best at layer 1, clearly better than 3 to 5. The paper's 8 of 12 would be 3 to 5 of 6 "
        "here."
    )
    assert dict(found.numbers)["Body only: layer 1 less layer 3"].startswith("+4.0 (p")


def test_languages_that_differ_leave_the_best_layer_open() -> None:
    assert judge_best(lambda k: 8 if k < 2 else 2) == "cannot be told"
    assert judge_best(lambda k: 8 if k < 3 else 11) == "holds"


def test_the_variant_that_varies_less_is_more_stable() -> None:
    def make(variant: str, height: float) -> list[dict[str, Any]]:
        def score(layer: int, k: int) -> float:
            return 0.9 if layer == 0 else 0.3 + (height + k / 200) * abs(layer - 8)

        return make_layers("alignment", variant, score, PAIRS)

    evidence = Evidence([*make("metaxlm", 0.01), *make("xlm", 0.03), *make("same", 0.01)])
    assert check_stability(evidence, "metaxlm", "xlm", "alignment").outcome == "holds"
    assert check_stability(evidence, "xlm", "metaxlm", "alignment").outcome == "fails"
    assert check_stability(evidence, "metaxlm", "same", "alignment").outcome == "cannot be told"


def test_other_layers_or_none_are_missing() -> None:
    rows = make_layers("alignment", "xlm", lambda *_: 0.5, PAIRS)
    rows += make_layers("alignment", "metaxlm", lambda *_: 0.5, PAIRS, top=6)
    with pytest.raises(MissingEvidenceError, match="Not the same layers of MetaXLM and XLM"):
        check_layers(Evidence(rows), "metaxlm", "xlm", "alignment")
    rows += [make_row("xnli", "body", 0.5)]
    with pytest.raises(MissingEvidenceError, match="No scores of Body only on word alignment"):
        check_layers(Evidence(rows), "body", "xlm", "alignment")
