from __future__ import annotations

import pytest
import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.probe.calibration import calibrate
from metaxlm.probe.retrieval import mine_pairs

NUM_KNOWN = 240


def make_sides(noise: float, num_texts: int = 50) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Known pairs whose targets are noisy copies, and texts of which a few are."""
    random = torch.Generator().manual_seed(7)
    source = torch.randn(NUM_KNOWN, 8, generator=random) + 1
    target = source + noise * torch.randn(NUM_KNOWN, 8, generator=random)
    texts = torch.randn(2, num_texts, 8, generator=random) + 1
    texts[1, :10] = texts[0, :10]
    return source, target, (texts[0], texts[1])


def list_counted(
    source: Tensor, target: Tensor, texts: tuple[Tensor, Tensor] | None, half: int
) -> list[tuple[float, bool]]:
    """The score of each mined pair with a known sentence of a half, and whether it is right."""
    numbers = range(NUM_KNOWN)
    sources = [p for p in numbers if p // 2 % 3 != 2]
    targets = [p for p in numbers if p // 2 % 3 != 1]
    rows = [source[sources], target[targets]]
    if texts is not None:
        rows = [torch.cat(both) for both in zip(rows, texts, strict=True)]
    found = mine_pairs(rows[0], rows[1], margin="distance")
    counted = []
    for (a, b), score in zip(found.list_rows(), found.score_P.tolist(), strict=True):
        first = sources[a] if a < len(sources) else None
        second = targets[b] if b < len(targets) else None
        owner = second if first is None else first
        if owner is not None and owner % 2 == half:
            counted.append((score, first == second))
    return counted


@pytest.mark.parametrize("with_texts", [True, False])
@pytest.mark.parametrize("precision", [None, 0.8])
def test_threshold_and_precision_by_hand(with_texts: bool, precision: float | None) -> None:
    source, target, both = make_sides(0.6)
    texts = both if with_texts else None
    found = calibrate(source, target, texts, margin="distance", precision=precision)
    counted = list_counted(source, target, texts, 0)
    num_gold = NUM_KNOWN // 6
    best = None
    for score, _ in counted:  # the last of equal ones is the lowest threshold
        right = [is_right for value, is_right in counted if value >= score]
        f1 = 2 * sum(right) / (len(right) + num_gold)
        if precision is None and (best is None or f1 > best[0]):
            best = (f1, score)
        if precision is not None and sum(right) / len(right) >= precision:
            best = (f1, score)
    assert best is not None
    assert found.threshold == pytest.approx(best[1])
    right = [ok for score, ok in list_counted(source, target, texts, 1) if score >= found.threshold]
    scores = found.scores
    assert (scores.num_right, scores.num_found, scores.num_gold) == (sum(right), len(right), 40)
    assert 0 < scores.precision <= 1


def test_a_given_threshold_is_measured() -> None:
    source, target, texts = make_sides(0.3)
    low, high = (
        calibrate(source, target, texts, threshold=limit, margin="distance")
        for limit in (-9.0, 9.0)
    )
    assert low.scores.num_found > low.scores.num_gold  # a sentence without a partner has a best one
    assert (high.scores.num_found, high.scores.num_gold, high.false_rate) == (0, 40, 0.0)
    assert high.count_wrong(1_000, 20) == 0
    # All odd known sources without their target that are in a mined pair are false.
    alone = {source[p].tolist()[0] for p in range(NUM_KNOWN) if p // 2 % 3 == 1 and p % 2}
    sources = [p for p in range(NUM_KNOWN) if p // 2 % 3 != 2]
    targets = [p for p in range(NUM_KNOWN) if p // 2 % 3 != 1]
    sides = torch.cat([source[sources], texts[0]]), torch.cat([target[targets], texts[1]])
    found = sides[0][mine_pairs(*sides, margin="distance").source_P][:, 0].tolist()
    num_false = len(alone & set(found))
    assert low.false_rate == pytest.approx(num_false / len(alone))
    assert low.count_wrong(1_000, 900) == round(1_000 * num_false / len(alone))
    assert low.count_wrong(1_000, 20) == 20


def test_thresholds_that_do_not_exist() -> None:
    source, _, texts = make_sides(0.3)
    random = torch.randn(NUM_KNOWN, 8, generator=torch.Generator().manual_seed(1)) + 1
    with pytest.raises(MetaXLMError, match=r"precision 0.9: no threshold reaches it .* the best"):
        calibrate(source, random, texts, precision=0.9)
    with pytest.raises(MetaXLMError, match="59 known sources and 59 targets; give at least 60"):
        calibrate(source[:59], random[:59], texts)
