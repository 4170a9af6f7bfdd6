from __future__ import annotations

import pytest

from metaxlm.probe.alignment_page import Direction, find_direction, find_stance, isolate


@pytest.mark.parametrize(
    ("text", "direction"),
    [
        ("the house", "ltr"),
        ("בית", "rtl"),
        ("السيارة", "rtl"),
        ("GPU קניתי חדש", "rtl"),
        ("the word בית", "ltr"),
        ("我喜欢", "ltr"),
        ("123 . !", "ltr"),
        ("", "ltr"),
    ],
)
def test_direction_of_most_letters(text: str, direction: Direction) -> None:
    assert find_direction(text.split()) == direction


def test_only_right_to_left_text_is_marked() -> None:
    assert isolate("the house – 我") == "the house – 我"
    assert isolate("בית 12") == "\u2067בית 12\u2069"
    assert isolate("the word בית") == "\u2066the word בית\u2069"


@pytest.mark.parametrize(
    ("word", "stance"),
    [
        ("house", "turned"),
        (".", "level"),
        ("。", "level"),
        ("喜欢", "upright"),
        ("カメラ", "upright"),
        ("한국", "upright"),
        ("3D电影院", "upright"),
        ("है", "level"),
        ("นี่", "level"),
        ("प्रस्ताव", "turned"),
        ("بيت", "turned"),
    ],
)
def test_stance_over_a_column(word: str, stance: str) -> None:
    assert find_stance(word) == stance
