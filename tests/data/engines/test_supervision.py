"""The bar over all tasks, and what steps report to it."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from metaxlm import progress
from metaxlm.data.engines.supervision import Work, show_work
from metaxlm.data.engines.tasks import (
    Outcome,
    advance,
    read_failure,
    record_failure,
    reporting_to,
)


def watch_bar(monkeypatch: pytest.MonkeyPatch, work: Work, completed: set[int]) -> list[int]:
    """Move a bar in a random way to its end; return where it stood."""
    positions: list[int] = []

    def say(line: str) -> None:
        positions.append(int(line.split(": ")[1].split("/")[0].replace(",", "")))

    monkeypatch.setattr(progress, "say", say)
    monkeypatch.setattr(progress, "_PLAIN_INTERVAL_S", 0.0)
    rng = random.Random(1)
    with show_work(work, completed) as bar:
        left = [rank for rank in range(len(work.weights)) if rank not in completed]
        while left:
            rank = rng.choice(left)
            action = rng.random()
            if action < 0.8:
                bar.advance(rank, rng.randrange(max(work.weights) // 4 + 1))
            elif action < 0.9:
                bar.restart(rank)
            else:
                bar.finish(rank)
                left.remove(rank)
    return positions


@pytest.mark.parametrize(
    ("weights", "unit", "total"),
    [
        ((30_000_000, 0, 12_345_678, 7), "MB", 42),
        ((3_000_000, 0, 1_234_567, 7), "MB", 4_235),
        ((10, 20, 3), "tasks", 33),
        ((5,) * 100, "MB", 1),
        ((0,), "MB", 1),
    ],
)
def test_bar_moves_forward_to_its_end_and_no_further(
    monkeypatch: pytest.MonkeyPatch, weights: tuple[int, ...], unit: str, total: int
) -> None:
    work = Work((), weights, Path(), "title", unit)
    positions = watch_bar(monkeypatch, work, set())
    assert positions == sorted(set(positions))
    assert positions[-1] == total


def test_bar_begins_with_completed_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work((), (30_000_000, 50_000_000, 20_000_000), Path(), "title", "MB")
    positions = watch_bar(monkeypatch, work, {0, 2})
    assert min(positions) > 50
    assert positions[-1] == 100


def test_a_second_attempt_shows_only_where_it_gets_further() -> None:
    with show_work(Work((), (10, 10), Path(), "title", "units"), set()) as bar:
        bar.advance(0, 6)
        bar.restart(0)
        bar.advance(0, 4)
        assert bar.units == 6
        bar.advance(0, 3)
        assert bar.units == 7
        bar.advance(0, 30)
        assert bar.units == 10


def test_reports_of_steps_are_few() -> None:
    reports: list[int] = []
    with reporting_to(reports.append):
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            advance(1)
    assert 1 <= len(reports) <= 3
    assert sum(reports) > 1_000


def test_advance_outside_of_a_worker_does_nothing() -> None:
    advance(1)


@pytest.mark.parametrize(
    "outcome", [Outcome(7, "failed", "no such page"), Outcome(7, "crashed", "KeyError: 1", "a\nb")]
)
def test_failures_are_read_back(tmp_path: Path, outcome: Outcome) -> None:
    assert read_failure(tmp_path, 7) is None
    record_failure(tmp_path, outcome)
    assert read_failure(tmp_path, 7) == outcome
