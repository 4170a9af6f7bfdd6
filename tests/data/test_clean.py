"""Filters of paragraphs, and deduplication across parts and ranges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaxlm.data.clean import ParagraphFilter, find_duplicates, hash_paragraph
from metaxlm.languages import LANGUAGES
from metaxlm.recipe import CleaningRecipe

SCRIPT = CleaningRecipe(script=True)
LANGUAGE = CleaningRecipe(language=True)
BOTH = CleaningRecipe(script=True, language=True)

TEXTS = {
    "en": "The river rises in the hills north of the town, flows past two villages and joins the "
    "larger stream some ten miles below the old stone bridge.",
    "de": "Der Fluss entspringt in den Hügeln nördlich der Stadt, fließt an zwei Dörfern vorbei "
    "und mündet etwa zehn Meilen unterhalb der alten Brücke in den größeren Strom.",
    "ru": "Река берёт начало на холмах к северу от города, протекает мимо двух деревень и впадает "
    "в более крупную реку примерно в десяти милях ниже старого каменного моста.",
    "bg": "Реката извира в хълмовете на север от града, минава покрай две села и се влива в "
    "по-голямата река на около десет мили под стария каменен мост.",
    "id": "Sungai itu berhulu di perbukitan sebelah utara kota, mengalir melewati dua desa dan "
    "bermuara di sungai yang lebih besar sekitar sepuluh mil di bawah jembatan batu tua.",
    "zh": "这条河发源于城镇北面的丘陵，流经两个村庄，在古老的石桥下游大约十英里处汇入更大的河流。"
    "河的两岸种满了柳树，每年春天都有许多人从附近的城市来到这里散步和钓鱼，孩子们在水边玩耍。"
    "村里的老人说，很久以前这里曾经有一座水磨，后来被一场大洪水冲走了，再也没有重新修建起来。",
    "ja": "この川は町の北の丘に源を発し、二つの村のそばを流れ、古い石橋からおよそ十マイル下流で"
    "大きな川に合流する。両岸には柳の木が植えられていて、毎年春になると近くの町から大勢の人が"
    "散歩や釣りにやって来て、子どもたちは水辺で遊ぶ。昔はここに水車があったという。",
    "th": "แม่น้ำสายนี้มีต้นกำเนิดบนเนินเขาทางเหนือของเมือง ไหลผ่านหมู่บ้านสองแห่งและไหลลงสู่แม่น้ำที่ใหญ่กว่า"
    "ประมาณสิบไมล์ใต้สะพานหินเก่า",
}  # fmt: skip


def check(language: str, text: str, recipe: CleaningRecipe) -> str | None:
    return ParagraphFilter(language, recipe).find_fault(text)


def test_only_length_is_checked_by_default() -> None:
    recipe = CleaningRecipe(min_characters=5, max_characters=8)
    verdicts = [check("en", "x" * length, recipe) for length in (4, 5, 8, 9)]
    assert verdicts == ["too_short", None, None, "too_long"]
    assert check("en", TEXTS["ru"], CleaningRecipe(min_language_characters=10)) is None
    assert check("en", TEXTS["de"], SCRIPT) is None


@pytest.mark.parametrize("corpus", TEXTS)
def test_only_its_own_language_and_scripts_are_kept(corpus: str) -> None:
    for language, text in TEXTS.items():
        verdict = check(corpus, text, LANGUAGE)
        assert verdict == (None if corpus == language else "wrong_language")
        shared = set(LANGUAGES[corpus].scripts) >= set(LANGUAGES[language].scripts) - {"Bopomofo"}
        # Japanese is a good third Han, but not half.
        assert check(corpus, text, SCRIPT) == (None if shared else "wrong_script")


def test_short_paragraphs_are_not_filtered_by_language() -> None:
    short = "Der Hund schläft unter dem alten Baum."
    assert check("en", short, LANGUAGE) is None
    brave = CleaningRecipe(language=True, min_language_characters=len(short))
    assert check("en", short, brave) == "wrong_language"
    assert check("en", "Der Hund schläft unter dem alten Baum", brave) is None


def test_close_relatives_are_kept() -> None:
    assert check("ms", TEXTS["id"], LANGUAGE) is None
    croatian = (
        "Rijeka izvire u brdima sjeverno od grada, teče pokraj dva sela i ulijeva se u veću rijeku "
        "desetak milja nizvodno od starog kamenog mosta."
    )
    for language in ("bs", "hr", "sr"):
        assert check(language, croatian, BOTH) is None
    assert check("sl", croatian, LANGUAGE) == "wrong_language"
    assert check("zh-Hant", TEXTS["zh"], LANGUAGE) is None
    assert check("zh-Hant", TEXTS["en"], LANGUAGE) == "wrong_language"


def test_languages_that_py3langid_does_not_know_are_never_dropped_by_it() -> None:
    for language in ("ckb", "sd", "su", "yi", "tlh"):
        assert check(language, TEXTS["en"], LANGUAGE) is None
    assert check("tlh", TEXTS["ru"], BOTH) is None
    assert check("yi", TEXTS["en"], BOTH) == "wrong_script"


def test_foreign_names_and_numbers_are_kept() -> None:
    airport = (
        "Sevastopol International Airport (Ukrainian: Міжнародний аеропорт Севастополь, "
        "Russian: Международный аэропорт Севастополь) is a military airfield in Belbek."
    )
    shader = "着色器运行在 GPU 中，GLSL 不同于 JavaScript 和 Python，它是强类型语言。" * 3
    figures = "1 234 567,89 + 987 654,32 = 2 222 222,21 ... " * 4
    for language, text in (("en", airport), ("zh", shader), ("en", figures)):
        assert check(language, text, BOTH) is None


VALUES = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**63 - 1, 2**64 - 1])


@given(st.lists(st.lists(VALUES, max_size=30), min_size=1, max_size=5), st.integers(1, 40))
def test_duplicates_agree_with_a_set(parts: list[list[int]], range_size: int) -> None:
    seen: set[int] = set()
    expected = [[value in seen or seen.add(value) is not None for value in p] for p in parts]
    marks = find_duplicates([np.array(part, np.uint64) for part in parts], range_size)
    assert [mark.tolist() for mark in marks] == expected


def test_only_equal_texts_have_equal_hashes() -> None:
    assert hash_paragraph("Ein Satz") == hash_paragraph("Ein " + "Satz")
    texts = ["Ein Satz", "Ein Satz ", "ein Satz", "Ein Satz."]
    assert len({hash_paragraph(text) for text in texts}) == 4
