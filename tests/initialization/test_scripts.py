from __future__ import annotations

import pytest

from metaxlm.initialization.scripts import find_script


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Haus", "Latin"),
        ("2024年", "Han"),
        ("々", "Han"),
        ("дом", "Cyrillic"),
        ("の", "Kana"),
        ("ー", "Kana"),
        ("ｶ", "Kana"),
        ("한국", "Hangul"),
        ("ा", "Devanagari"),
        ("กา", "Thai"),
        ("Ａ", "Latin"),
        ("µm", "Latin"),
        ("123", "Common"),
        ("", "Common"),
        ("\u0301", "Common"),
        ("...é", "Latin"),
    ],
)
def test_script_of_the_first_letter(text: str, script: str) -> None:
    assert find_script(text) == script
