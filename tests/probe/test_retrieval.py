from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.parallel import ParallelSentences
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.nearest import FaissIndex
from metaxlm.probe.pool import LayerChoice
from metaxlm.probe.retrieval import (
    Margin,
    MinedPairs,
    Mode,
    measure_retrieval,
    mine_pairs,
    score_mining,
    tune_threshold,
)
from tests.finetune.conftest import CPU, TEXT
from tests.probe.conftest import MakeModel


def test_directions_and_examples(make_model: MakeModel) -> None:
    """Of the two foreign copies of one sentence only the first is found from English."""
    foreign = (TEXT[0], TEXT[1], TEXT[2], TEXT[2])
    english = (TEXT[0], TEXT[2], TEXT[1], TEXT[2])
    outcome = measure_retrieval(make_model(), ParallelSentences("de", foreign, english), CPU)
    last = outcome.layers[-1]
    # xx -> en: 0 finds 0; 1 finds 2; 2 and 3 find 1, the first copy. One of four is right.
    assert last.accuracy_to_source == 0.25
    # en -> xx: 0 finds 0; 1 finds 2; 2 finds 1; 3 finds 2, the first copy.
    assert last.accuracy_from_source == last.accuracy == 0.25
    found = [(e.query, e.expected, e.found) for e in last.examples]
    assert [found[0], found[3]] == [(TEXT[0],) * 3, (TEXT[2],) * 3]


def test_chosen_layers(make_model: MakeModel) -> None:
    """A mean of layers is its own choice; its accuracies are those of its vectors."""
    model = make_model()
    sentences = ParallelSentences("de", tuple(TEXT[:6]), (*TEXT[:2], *TEXT[6:10]))
    choices = [LayerChoice((2,)), LayerChoice((0, 1))]
    outcome = measure_retrieval(model, sentences, CPU, layers=choices)
    assert [layer.choice for layer in outcome.layers] == choices
    assert [layer.layer for layer in outcome.layers] == [2, 1]
    for choice, layer in zip(choices, outcome.layers, strict=True):
        foreign, english = (
            F.normalize(embed_texts(model, side, CPU, layers=[choice])[0])
            for side in (sentences.foreign, sentences.english)
        )
        cosines = foreign @ english.T
        rows = torch.arange(6)
        assert layer.accuracy_to_source == (cosines.argmax(dim=1) == rows).double().mean() > 0
        assert layer.accuracy_from_source == (cosines.argmax(dim=0) == rows).double().mean() > 0
        best = dict(zip(sentences.foreign, cosines.amax(dim=1).tolist(), strict=True))
        for example in layer.examples:
            assert example.similarity == pytest.approx(best[example.query], abs=1e-5)


def make_texts() -> tuple[Tensor, Tensor]:
    """Sources and targets of which the first 40 are noisy copies, and the rest distractors."""
    random = torch.Generator().manual_seed(1)
    source, target = (torch.randn(n, 12, generator=random) + 1.5 for n in (70, 90))
    target[:40] = source[:40] + 0.4 * torch.randn(40, 12, generator=random)
    return source, target


def mine_slowly(
    source: Tensor, target: Tensor, margin: str, k: int, mode: str
) -> list[tuple[int, int, float]]:
    """Sentence by sentence, as the margin's paper defines it."""
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


@pytest.mark.parametrize(
    ("margin", "mode"),
    [
        ("ratio", "mutual"), ("distance", "mutual"), ("absolute", "mutual"), ("ratio", "forward"),
        ("distance", "backward"), ("ratio", "max"),
    ],
)  # fmt: skip
def test_mined_pairs_equal_the_definition(margin: Margin, mode: Mode) -> None:
    source, target = make_texts()
    found = mine_pairs(source, target, margin=margin, k=3, mode=mode)
    expected = mine_slowly(source, target, margin, 3, mode)
    assert found.list_rows() == [(x, y) for x, y, _ in expected]
    assert found.score_P.tolist() == pytest.approx([score for *_, score in expected], abs=1e-6)
    assert found.score_P.tolist() == sorted(found.score_P.tolist(), reverse=True)


def test_threshold_and_faiss() -> None:
    source, target = make_texts()
    found = mine_pairs(source, target)
    limit = float(found.score_P[10])
    assert mine_pairs(source, target, threshold=limit).list_rows() == found.list_rows()[:11]
    assert len(mine_pairs(source, target, threshold=9.0)) == 0
    pytest.importorskip("faiss", reason="faiss is an extra")
    assert mine_pairs(source, target, faiss_index=FaissIndex()).list_rows() == found.list_rows()


def test_ratio_needs_positive_neighborhoods() -> None:
    source, target = torch.eye(3), -torch.eye(3)
    with pytest.raises(MetaXLMError, match="use the margin distance"):
        mine_pairs(source, target, k=2)
    assert len(mine_pairs(source, target, k=2, margin="distance", mode="forward")) == 3
    with pytest.raises(MetaXLMError, match="margin 'quotient': use ratio, distance, absolute"):
        mine_pairs(source, target, margin="quotient")  # type: ignore[arg-type]


def make_found(*pairs: tuple[int, int, float]) -> MinedPairs:
    source, target, score = zip(*pairs, strict=True)
    return MinedPairs(torch.tensor(source), torch.tensor(target), torch.tensor(score))


def test_mining_scores_by_hand() -> None:
    found = make_found((0, 0, 0.9), (1, 5, 0.8), (2, 2, 0.7), (3, 3, 0.7), (4, 9, 0.1))
    gold = [(0, 0), (2, 2), (3, 3), (7, 7)]
    scores = score_mining(found, gold)
    assert (scores.num_right, scores.num_found, scores.num_gold) == (3, 5, 4)
    assert (scores.precision, scores.recall) == (3 / 5, 3 / 4)
    assert scores.f1 == pytest.approx(2 / 3)
    # Down to 0.7 there are 3 of 4 right: precision and recall are 3/4. Equal scores stay together.
    threshold, tuned = tune_threshold(found, gold)
    assert threshold == pytest.approx(0.7)
    assert tuned.num_found == 4
    assert tuned.f1 == pytest.approx(3 / 4)
    assert score_mining(found.cut(threshold), gold) == tuned
    assert tune_threshold(found, [(8, 8)])[1].f1 == 0.0
    # Between equal scores there is no threshold, though F1 would be 1 there.
    tied = make_found((0, 0, 0.9), (1, 1, 0.5), (2, 7, 0.5))
    assert tune_threshold(tied, [(0, 0), (1, 1)])[1].num_found == 3
