from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaxlm.scripts import (
    COMMON,
    SAMPLE_CHARACTERS,
    UNSPACED,
    UNSPACED_CHARACTERS,
    drop_foreign,
    find_script,
    measure_share,
)


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Haus", "Latin"), ("2024年", "Han"), ("々", "Han"), ("дом", "Cyrillic"), ("の", "Kana"),
        ("ー", "Kana"), ("ｶ", "Kana"), ("한국", "Hangul"), ("ा", "Devanagari"), ("กา", "Thai"),
        ("Ａ", "Latin"), ("µm", "Latin"), ("123", "Common"), ("", "Common"), ("\u0301", "Common"),
        ("...é", "Latin"), ("ℵ", "Common"), ("\u212a", "Common"),
    ],
)  # fmt: skip
def test_script_of_the_first_letter(text: str, script: str) -> None:
    assert find_script(text) == script


@pytest.mark.parametrize(
    ("text", "scripts", "share"),
    [
        ("Café au lait", ("Latin",), 1.0), ("кошка", ("Cyrillic", "Latin"), 1.0),
        ("кошка", ("Latin",), 0.0), ("дом big", ("Cyrillic",), 0.5), ("", ("Thai",), 1.0),
        ("हिन्दी", ("Devanagari",), 1.0), ("ภาษาไทย 2540", ("Thai",), 1.0),
        ("2024: 3.14 (!)", ("Thai",), 1.0), ("𠀀中文ｶﾅ", ("Han", "Kana"), 1.0),
        ("\ud800中", ("Han",), 1.0), ("ж" * SAMPLE_CHARACTERS + "a" * 10_000, ("Cyrillic",), 1.0),
    ],
)  # fmt: skip
def test_share_of_some_scripts(text: str, scripts: tuple[str, ...], share: float) -> None:
    assert measure_share(text, scripts) == share


def test_a_chinese_character_counts_as_a_word_of_three_letters() -> None:
    assert measure_share("中abc", ("Han",)) == 0.5
    assert measure_share("中abc", ("Latin",)) == 0.5
    assert measure_share("가ab", ("Hangul", "Han")) == 0.5
    assert measure_share("用 JavaScript 和 Python 写成的程序很短。", ("Han",)) > 0.5


@settings(deadline=None)
@given(st.text(st.characters()), st.sampled_from(["Latin", "Greek", "Thai"]))
def test_share_agrees_with_the_script_of_each_character(text: str, script: str) -> None:
    weight = {"Han": 3, "Hangul": 2, "Kana": 2}
    found = [find_script(char) for char in text]
    total = sum(weight.get(s, 1) for s in found if s != COMMON)
    inside = sum(s == script for s in found)
    assert measure_share(text, (script,)) == (inside / total if total else 1.0)


def test_foreign_letters_are_dropped() -> None:
    assert drop_foreign("Kyiv (Київ, 京) 2.8 é", ("Latin",)) == "Kyiv (, ) 2.8 é"
    assert drop_foreign("日本の Tokyo", ("Han", "Kana")) == "日本の "


def test_characters_of_unspaced_scripts_match_their_pattern() -> None:
    pattern = re.compile(f"[{UNSPACED_CHARACTERS}]")
    for character in map(chr, range(0x40000)):
        script = find_script(character)
        if script != COMMON:
            assert (script in UNSPACED) == bool(pattern.match(character)), character
