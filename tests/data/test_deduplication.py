"""Repeated paragraphs are found across parts, whatever the ranges they are compared in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaxlm.data.deduplication import find_duplicates, hash_paragraph


def naive(parts: list[list[int]]) -> list[list[bool]]:
    seen: set[int] = set()
    found = []
    for part in parts:
        found.append([value in seen or seen.add(value) is not None for value in part])
    return found


VALUES = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**63 - 1, 2**64 - 1])


@given(st.lists(st.lists(VALUES, max_size=30), max_size=5), st.integers(1, 40))
def test_it_agrees_with_a_set(parts: list[list[int]], range_size: int) -> None:
    arrays = [np.array(part, np.uint64) for part in parts]
    if not arrays:
        return
    marks = find_duplicates(arrays, range_size)
    assert [mark.tolist() for mark in marks] == naive(parts)


def test_the_first_stays_and_the_order_of_parts_decides() -> None:
    first, second = np.array([5, 7, 5], np.uint64), np.array([7, 9], np.uint64)
    assert [m.tolist() for m in find_duplicates([first, second])] == [
        [False, False, True],
        [True, False],
    ]
    assert [m.tolist() for m in find_duplicates([second, first])] == [
        [False, False],
        [False, True, True],
    ]


@pytest.mark.parametrize("other", ["Ein Satz ", "ein Satz", "Ein Satz."])
def test_only_the_same_text_is_the_same(other: str) -> None:
    assert len(hash_paragraph("Ein Satz")) == 8
    assert hash_paragraph("Ein Satz") == hash_paragraph("Ein " + "Satz")
    assert hash_paragraph("Ein Satz") != hash_paragraph(other)
