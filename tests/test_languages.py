from __future__ import annotations

import math

import pytest

from metaxlm.languages import (
    LANGUAGES,
    TASKS,
    explain_unknown,
    language_name,
    suggest_code,
    task_languages,
    wiki_code,
)
from metaxlm.scripts import COMMON, _all_scripts

# XLM-R's list, less bn_rom hi_rom ta_rom te_rom ur_rom my_zaw.
XLMR = """
af am ar as az be bg bn br bs ca cs cy da de el en eo es et eu fa fi fr fy ga gd gl gu ha he hi hr
hu hy id is it ja jv ka kk km kn ko ku ky la lo lt lv mg mk ml mn mr ms my ne nl no om or pa pl ps
pt ro ru sa sd si sk sl so sq sr su sv sw ta te th tl tr ug uk ur uz vi xh yi zh zh-Hant
"""


def test_the_94_languages_of_xlmr_and_the_87_of_the_paper() -> None:
    xlmr = {code for code, entry in LANGUAGES.items() if entry.in_xlmr}
    paper = {
        code: entry.paper_gb for code, entry in LANGUAGES.items() if entry.paper_gb is not None
    }
    assert xlmr == set(XLMR.split())
    assert len(xlmr) == 94
    assert len(paper) == 87
    assert math.fsum(paper.values()) == pytest.approx(67.40, abs=1e-9)
    assert paper["en"] == 12.58
    assert paper["ckb"] == 0.0
    assert set(paper) - xlmr == {"ba", "ckb", "mt", "nn", "tg", "tt"}
    assert set(LANGUAGES) - xlmr - set(paper) == {"yo"}


def test_languages_of_each_task() -> None:
    assert {task: len(task_languages(task)) for task in TASKS} == {
        "udpos": 33, "panx": 40, "xquad": 11, "mlqa": 7, "tydiqa": 9, "xnli": 15, "pawsx": 7,
        "cls": 4, "tatoeba": 36, "wordalign": 4,
    }  # fmt: skip
    assert {task for entry in LANGUAGES.values() for task in entry.tasks} == set(TASKS)
    assert sum(entry.has_dictionary for entry in LANGUAGES.values()) == 44
    assert task_languages("cls") == ("de", "en", "fr", "ja")


def test_every_row_is_whole() -> None:
    assert list(LANGUAGES) == sorted(LANGUAGES)
    assert len({entry.iso3 for entry in LANGUAGES.values()}) == len(LANGUAGES)
    assert len({entry.name for entry in LANGUAGES.values()}) == len(LANGUAGES)
    known_scripts = set(_all_scripts()) - {COMMON}
    for entry in LANGUAGES.values():
        assert entry.scripts and set(entry.scripts) <= known_scripts, entry
        assert entry.script == entry.scripts[0]
        assert entry.family and entry.wiki, entry


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("jp", "ja"), ("EN", "en"), ("en-US", "en"), ("pt_BR", "pt"), ("deu", "de"), ("ger", "de"),
        ("zh-TW", "zh-Hant"), ("zh_Hans_CN", "zh"), ("zh-hant", "zh-Hant"), ("German", "de"),
        ("Portugese", "pt"), ("nb", "no"), ("iw", "he"), ("sr-Latn", "sr"), ("zho", "zh"),
        ("tlh", None), ("x", None), ("", None), ("qq-DE", None),
    ],
)  # fmt: skip
def test_what_is_meant_by_another_code(written: str, meant: str | None) -> None:
    assert suggest_code(written) == meant


def test_codes_outside_the_table() -> None:
    assert (language_name("tlh"), wiki_code("tlh"), wiki_code("zh-Hant")) == ("tlh", "tlh", "zh")
    assert explain_unknown(["de", "jp", "tlh", "jp", "zh-Hant"]) == [
        "jp: not in the language table; did you mean ja?",
        "tlh: not in the language table; its text is used as it is",
    ]
