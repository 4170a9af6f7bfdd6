from __future__ import annotations

import sys
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.probe.nearest import FaissIndex, find_by_faiss, find_nearest
from metaxlm.probe.retrieval import (
    Margin,
    MinedPairs,
    Mode,
    mine_pairs,
    score_mining,
    tune_threshold,
)


def make_texts() -> tuple[Tensor, Tensor]:
    """Sources and targets of which the first 40 are noisy copies, and the rest distractors."""
    random = torch.Generator().manual_seed(1)
    source, target = (torch.randn(n, 12, generator=random) + 1.5 for n in (70, 90))
    target[:40] = source[:40] + 0.4 * torch.randn(40, 12, generator=random)
    return source, target


def mine_slowly(
    source: Tensor, target: Tensor, margin: str, k: int, mode: str
) -> list[tuple[int, int, float]]:
    """Sentence by sentence, as the paper of the margin words it."""
    cosine = (F.normalize(source.double(), dim=1) @ F.normalize(target.double(), dim=1).T).float()
    near = [sorted(range(len(target)), key=lambda y: -cosine[x, y])[:k] for x in range(len(source))]
    near_back = [
        sorted(range(len(source)), key=lambda x: -cosine[x, y])[:k] for y in range(len(target))
    ]

    def score(x: int, y: int) -> float:
        around = sum(float(cosine[x, z]) for z in near[x]) / (2 * k)
        around += sum(float(cosine[z, y]) for z in near_back[y]) / (2 * k)
        value = float(cosine[x, y])
        return {"ratio": value / around, "distance": value - around, "absolute": value}[margin]

    forward = [
        max(((x, y, score(x, y)) for y in near[x]), key=lambda c: c[2]) for x in range(len(source))
    ]
    backward = [
        max(((x, y, score(x, y)) for x in near_back[y]), key=lambda c: c[2])
        for y in range(len(target))
    ]
    if mode == "forward":
        found = forward
    elif mode == "backward":
        found = backward
    elif mode == "mutual":
        found = [c for c in forward if c[:2] in {b[:2] for b in backward}]
    else:
        found = []
        for x, y, value in sorted(forward + backward, key=lambda c: -c[2]):
            if all(x != a and y != b for a, b, _ in found):
                found.append((x, y, value))
    return sorted(found, key=lambda c: (-c[2], c[0], c[1]))


def unpack(pairs: MinedPairs) -> list[tuple[int, int]]:
    return list(zip(pairs.source_P.tolist(), pairs.target_P.tolist(), strict=True))


@pytest.mark.parametrize(
    ("margin", "mode"),
    [*product(("ratio", "distance", "absolute"), ("mutual", "forward", "backward", "max"))],
)
def test_pairs_are_those_of_the_definition(margin: Margin, mode: Mode) -> None:
    source, target = make_texts()
    found = mine_pairs(source, target, margin=margin, k=3, mode=mode)
    expected = mine_slowly(source, target, margin, 3, mode)
    assert unpack(found) == [(x, y) for x, y, _ in expected]
    assert found.score_P.tolist() == pytest.approx([score for *_, score in expected], abs=1e-6)
    assert found.score_P.tolist() == sorted(found.score_P.tolist(), reverse=True)


def test_a_threshold_keeps_what_reaches_it() -> None:
    source, target = make_texts()
    found = mine_pairs(source, target)
    limit = float(found.score_P[10])
    assert unpack(mine_pairs(source, target, threshold=limit)) == unpack(found)[:11]
    assert len(mine_pairs(source, target, threshold=9.0)) == 0


def test_a_margin_sees_through_hubs() -> None:
    """A target that is near to everything wins by cosine, and loses by margin."""
    random = torch.Generator().manual_seed(2)
    own, other = (F.normalize(torch.randn(30, 400, generator=random), dim=1) for _ in range(2))
    hub = F.normalize(torch.ones(1, 400), dim=1)
    # Cosines: about 0.7 with the hub, 0.68 with the translation, 0.5 with the rest.
    source, target = own + hub, torch.cat([0.36 * own + 0.93 * other + hub, hub])
    gold = [(k, k) for k in range(30)]
    by_cosine = score_mining(mine_pairs(source, target, margin="absolute", mode="forward"), gold)
    by_margin = score_mining(mine_pairs(source, target, mode="forward"), gold)
    assert by_cosine.recall < 0.5 < 0.9 < by_margin.recall


def test_ratio_cannot_divide_by_what_is_not_positive() -> None:
    source, target = torch.eye(3), -torch.eye(3)
    with pytest.raises(MetaXLMError, match="use the margin distance"):
        mine_pairs(source, target, k=2)
    assert len(mine_pairs(source, target, k=2, margin="distance", mode="forward")) == 3
    with pytest.raises(MetaXLMError, match="margin 'quotient': use ratio, distance, absolute"):
        mine_pairs(source, target, margin="quotient")  # type: ignore[arg-type]


def make_found(*pairs: tuple[int, int, float]) -> MinedPairs:
    source, target, score = zip(*pairs, strict=True)
    return MinedPairs(torch.tensor(source), torch.tensor(target), torch.tensor(score))


def test_scores_by_hand() -> None:
    found = make_found((0, 0, 0.9), (1, 5, 0.8), (2, 2, 0.7), (3, 3, 0.7), (4, 9, 0.1))
    gold = [(0, 0), (2, 2), (3, 3), (7, 7)]
    scores = score_mining(found, gold)
    assert (scores.num_right, scores.num_found, scores.num_gold) == (3, 5, 4)
    assert (scores.precision, scores.recall) == (3 / 5, 3 / 4)
    assert scores.f1 == pytest.approx(2 / 3)
    # Down to 0.7 there are 3 of 4 right: precision and recall are 3/4. Equal scores stay together.
    tuned = tune_threshold(found, gold)
    assert tuned.threshold == pytest.approx(0.7)
    assert tuned.scores.num_found == 4
    assert tuned.scores.f1 == pytest.approx(3 / 4)
    assert score_mining(found.cut(tuned.threshold), gold) == tuned.scores
    assert tune_threshold(found, [(8, 8)]).scores.f1 == 0.0
    # Between equal scores there is no threshold, though F1 would be 1 there.
    tied = make_found((0, 0, 0.9), (1, 1, 0.5), (2, 7, 0.5))
    assert tune_threshold(tied, [(0, 0), (1, 1)]).scores.num_found == 3


def test_faiss_finds_what_the_exact_search_finds() -> None:
    pytest.importorskip("faiss", reason="faiss is an extra")
    source, target = make_texts()
    exact = find_nearest(source, target, k=3)
    for index in (
        FaissIndex(),
        FaissIndex("HNSW16", "efSearch=200"),
        FaissIndex("IVF2,Flat", "nprobe=2"),
    ):
        found = find_by_faiss(source, target, index, k=3)
        assert torch.equal(found.indices_Qk, exact.indices_Qk), index
        torch.testing.assert_close(found.similarities_Qk, exact.similarities_Qk)
    assert unpack(mine_pairs(source, target, faiss_index=FaissIndex())) == unpack(
        mine_pairs(source, target)
    )
    for index, message in (
        (FaissIndex("IVG4"), "faiss index 'IVG4': cannot be built"),
        (FaissIndex("IVF4096,Flat"), "90 keys are too few"),
        (FaissIndex("Flat", "nprobes=3"), "faiss search 'nprobes=3'"),
        (FaissIndex("IVF40,Flat"), "found fewer than 20 keys for query"),
    ):
        with pytest.raises(MetaXLMError, match=message):
            find_by_faiss(source, target, index, k=20)


def test_without_faiss_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MetaXLMError, match=r"pip install 'metaxlm\[faiss\]'"):
        find_by_faiss(torch.eye(2), torch.eye(2), FaissIndex())
