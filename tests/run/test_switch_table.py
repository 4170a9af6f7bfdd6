"""The lookup table of code switching: which tokens are words, and which spelling is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.pretrain.code_switching_cases import list_tokenizer

from metaxlm.init.dictionaries import load_dictionaries
from metaxlm.run.switch_table import build_switch_table

TEXT = {
    "en": {"▁the": 9, "▁The": 3, "▁house": 5, "▁House": 1, "▁HOUSE": 1, "▁cat": 2, "▁noodles": 2,
           "▁we": 4, "▁a": 7, "cat": 6, "▁radio": 3, "▁caf": 1},
    "de": {"▁die": 9, "▁Die": 3, "▁der": 8, "▁haus": 1, "▁Haus": 6, "▁HAUS": 1, "▁Katze": 2,
           "▁radio": 1, "▁ein": 3},
    "zh": {"我们": 5, "▁我们": 1, "面": 8, "猫": 3},
    "sw": {"▁paka": 4},
}  # fmt: skip
UNUSED = ["▁Feline", "▁ＣＡＴ"]
MUSE = {
    "en-de.txt": "the die\nthe der\nhouse haus\ncat katze\ncat feline\nradio radio\na ein\n",
    "en-zh.txt": "we 我们\nnoodles 面\ncat 猫\nhouse 房子\n",
}


@pytest.fixture
def muse(tmp_path: Path) -> Path:
    folder = tmp_path / "muse"
    folder.mkdir()
    for name, text in MUSE.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def build(muse: Path, text: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, list[str]]]:
    """Return the translations of each token by language."""
    pieces = dict.fromkeys([piece for counts in text.values() for piece in counts] + UNUSED)
    tokenizer = list_tokenizer(list(pieces))
    ids = tokenizer.get_vocab()
    counts = {}
    for language, used in text.items():
        counts[language] = np.zeros(len(tokenizer), np.int64)
        for piece, count in used.items():
            counts[language][ids[piece]] = count
    table = build_switch_table(load_dictionaries(muse), tokenizer, counts)
    assert table.languages == tuple(text)
    names = tokenizer.convert_ids_to_tokens
    return {
        language: {
            piece: [" ".join(names(group)) for group in table.find(language, row)]
            for piece, row in ids.items()
            if table.find(language, row)
        }
        for language in text
    }


def test_words_switch_both_ways_in_the_most_frequent_spelling(muse: Path) -> None:
    found = build(muse, TEXT)
    # Unusual spellings keep their case where they can.
    assert found["en"] == {
        "▁the": ["▁die ▁der"], "▁The": ["▁Die ▁der"], "▁house": ["▁Haus"], "▁House": ["▁Haus"],
        "▁HOUSE": ["▁HAUS"], "▁cat": ["▁Katze", "猫"], "▁noodles": ["面"], "▁we": ["我们"],
        "▁a": ["▁ein"],
    }  # fmt: skip
    assert found["de"] == {
        "▁die": ["▁the"], "▁Die": ["▁The"], "▁der": ["▁the"], "▁Haus": ["▁house"],
        "▁haus": ["▁house"], "▁HAUS": ["▁HOUSE"], "▁Katze": ["▁cat"], "▁ein": ["▁a"],
    }  # fmt: skip
    # Single characters are parts of words more often than words.
    assert found["zh"] == {"我们": ["▁we"], "▁我们": ["▁we"]}
    assert found["sw"] == {}


def test_the_most_frequent_spelling_depends_on_the_text(muse: Path) -> None:
    text = {**TEXT, "de": {**TEXT["de"], "▁haus": 7}, "zh": {**TEXT["zh"], "▁我们": 9}}
    found = build(muse, text)
    assert found["en"]["▁house"] == ["▁haus"]
    assert found["en"]["▁House"] == ["▁Haus"]
    assert found["en"]["▁we"] == ["▁我们"]


def test_languages_without_text_are_skipped(muse: Path) -> None:
    found = build(muse, {"de": TEXT["de"], "en": TEXT["en"]})
    assert found["en"]["▁cat"] == ["▁Katze"]
    assert found["de"]["▁Katze"] == ["▁cat"]
    assert build(muse, {"de": TEXT["de"], "zh": TEXT["zh"]}) == {"de": {}, "zh": {}}
