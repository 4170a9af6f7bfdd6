"""The vocabulary's sample: rebalanced, without repetition, even, and in little memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from metaxlm.vocab.unigram import sample_counts, sample_sentences


def _draw(count: int, wanted: int, seed: int) -> list[int]:
    names = [f"{number}" for number in range(count)]
    sample = sample_sentences({"en": names}, {"en": count}, {"en": wanted}, seed)
    return [int(name) for name in sample]


def test_the_sample_is_rebalanced_and_repeats_nothing() -> None:
    counts = {"en": 10_000, "sw": 100}
    wanted = sample_counts(counts, 0.5, 10**9)
    assert wanted["en"] / wanted["sw"] == pytest.approx(10, rel=0.02)
    assert wanted["sw"] == 100
    assert sum(sample_counts(counts, 0.5, 110).values()) == 110
    texts = {code: [f"{code} {i}" for i in range(n)] for code, n in counts.items()}
    sample = list(sample_sentences(texts, counts, wanted, seed=1))
    assert len(sample) == len(set(sample)) == sum(wanted.values())
    assert sample == list(sample_sentences(texts, counts, wanted, seed=1))
    assert sample != list(sample_sentences(texts, counts, wanted, seed=2))


def test_an_empty_language_gives_nothing() -> None:
    counts = {"en": 50, "sw": 0}
    wanted = sample_counts(counts, 0.7, 20)
    assert wanted == {"en": 20, "sw": 0}
    texts = {"en": map(str, range(50)), "sw": iter([])}
    assert len(list(sample_sentences(texts, counts, wanted, seed=1))) == 20


@pytest.mark.parametrize("wanted", [0, 1, 2, 70_000, 199_999, 200_000])
def test_several_blocks_give_exactly_what_is_wanted(wanted: int) -> None:
    sample = _draw(200_000, wanted, seed=3)
    assert len(sample) == wanted
    assert sample == sorted(set(sample))


def test_every_sentence_is_as_likely_as_any_other() -> None:
    count, wanted, draws = 150_000, 50_000, 12
    hits = np.zeros(count, int)
    for seed in range(draws):
        hits[_draw(count, wanted, seed)] += 1
    expected = draws * wanted / count
    # By fifteenths of the text, by place within a block, and sentence by sentence.
    assert hits.reshape(15, -1).mean(1) == pytest.approx(expected, rel=0.02)
    assert [hits[i::7].mean() for i in range(7)] == pytest.approx([expected] * 7, rel=0.02)
    assert hits.var() == pytest.approx(expected * (1 - wanted / count), rel=0.05)


def test_memory_does_not_grow_with_the_corpus() -> None:
    peaks = []
    for count in (150_000, 600_000):
        texts = {"en": ("x" for _ in range(count))}
        tracemalloc.start()
        taken = sum(1 for _ in sample_sentences(texts, {"en": count}, {"en": count // 3}, 1))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert taken == count // 3
    assert peaks[1] < 1.2 * peaks[0] < 4 << 20
