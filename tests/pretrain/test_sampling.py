"""Sampling: languages and blocks as pure functions of (seed, step)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaxlm.languages import rebalance
from metaxlm.pretrain.batches.sampling import CHUNK, Schedule, spread_held_out
from metaxlm.pretrain.optimizer import largest, learning_rate, value_at

SIZES = {"en": 50, "de": 11, "sw": 3}
SHARES = {"en": 0.6, "de": 0.3, "sw": 0.1}


def make_schedule(
    seed: int = 3, batch_size: int = 7, held_out: Mapping[str, np.ndarray] | None = None
) -> Schedule:
    return Schedule(lambda step: SHARES, SIZES, batch_size, seed, held_out)


def list_rows(schedule: Schedule, step: int) -> list[tuple[int, int]]:
    languages, blocks = schedule.rows(step)
    return list(zip(languages.tolist(), blocks.tolist(), strict=True))


def collect(schedule: Schedule, steps: int) -> dict[int, list[int]]:
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for step in range(steps):
        for language, block in list_rows(schedule, step):
            seen[language].append(block)
    return seen


def test_rebalancing_follows_the_papers_formula() -> None:
    # English 12.58 GB and Swahili 0.03 GB of the paper's table at alpha 0.7.
    shares = rebalance({"en": 12.58, "sw": 0.03}, 0.7)
    assert shares["sw"] == pytest.approx(0.03**0.7 / (0.03**0.7 + 12.58**0.7))
    assert shares["sw"] > 0.03 / 12.61
    assert sum(shares.values()) == pytest.approx(1)
    assert rebalance({"a": 9, "b": 1}, 0.0) == {"a": 0.5, "b": 0.5}


def test_any_step_can_be_the_first() -> None:
    forward = make_schedule()
    rows = {step: list_rows(forward, step) for step in range(600)}
    for step in (599, 0, 256, 255, 257, 512):
        assert list_rows(make_schedule(), step) == rows[step]
    assert list_rows(make_schedule(seed=4), 5) != rows[5]
    assert rows[0] != rows[CHUNK]


def test_no_block_repeats_before_its_language_was_seen_whole() -> None:
    seen = collect(make_schedule(), 300)
    for language, size in enumerate(SIZES.values()):
        blocks = seen[language]
        epochs = [blocks[i : i + size] for i in range(0, len(blocks) - size + 1, size)]
        assert len(epochs) > 3
        assert all(sorted(epoch) == list(range(size)) for epoch in epochs)
        assert epochs[0] != epochs[1]


def test_rows_of_a_step_are_independent_draws() -> None:
    schedule = make_schedule(batch_size=40)
    counts = [int((schedule.rows(step)[0] == 0).sum()) for step in range(1_000)]
    # Binomial: 40 draws at 0.6. Chunks with fixed shares, or runs of a language, would differ.
    assert np.mean(counts) == pytest.approx(24, abs=0.4)
    assert np.var(counts) == pytest.approx(9.6, rel=0.2)
    chunks = np.reshape(counts[: 3 * CHUNK], (3, CHUNK)).sum(1)
    assert len(set(chunks.tolist())) > 1


def test_held_out_blocks_are_never_drawn_and_all_others_are() -> None:
    held_out = {"en": np.array([0, 7, 49]), "de": np.array([5])}
    seen = collect(make_schedule(held_out=held_out), 300)
    assert set(seen[0]) == set(range(50)) - {0, 7, 49}
    assert set(seen[1]) == set(range(11)) - {5}
    assert set(seen[2]) == {0, 1, 2}
    assert sorted(seen[0][:47]) == sorted(set(range(50)) - {0, 7, 49})


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 5_000), st.integers(0, 100))
def test_held_out_blocks_are_few_and_evenly_spread(num_blocks: int, wanted: int) -> None:
    held = spread_held_out(num_blocks, wanted)
    assert len(held) == min(wanted, num_blocks // 20)
    if len(held):
        assert 0 <= held[0] < num_blocks
        assert held[-1] < num_blocks
        gaps = np.diff(held)
        assert (np.abs(gaps - num_blocks / len(held)) < 1).all()


def test_scheduled_values_are_interpolated_linearly() -> None:
    assert value_at(0.15, 999) == largest(0.15) == 0.15
    schedule = {1_000: 0.1, 100: 0.3, 200: 0.2}
    found = [value_at(schedule, step) for step in (0, 100, 150, 200, 600, 1_000, 5_000)]
    assert found == pytest.approx([0.3, 0.3, 0.25, 0.2, 0.15, 0.1, 0.1])
    assert largest(schedule) == 0.3


def test_the_learning_rate_is_linear_up_and_down() -> None:
    rates = [learning_rate(step, 1.0, 10, 4) for step in range(11)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])
    assert learning_rate(0, 1.0, 10, 0) == 1.0
    assert [learning_rate(step, 2.0, 4, 4) for step in range(4)] == [0.5, 1.0, 1.5, 2.0]
