from __future__ import annotations

import numpy as np
import pytest

from metaxlm.init.dictionary_rules import LanguageShares, find_doubtful, measure_shares
from metaxlm.init.vocabulary import list_vocabulary
from metaxlm.vocab.tokens import Kind

COUNTS = {
    # A large and a small text: what counts is the share of each text.
    "en": np.array([900, 100, 0, 0]),
    "de": np.array([0, 3, 1, 0]),
    "empty": np.zeros(4, np.int64),
}


def test_languages_count_as_equally_large() -> None:
    shares = measure_shares(COUNTS, "en")
    assert shares.languages == ("de", "en")
    assert shares.shares_LV[:, 0].tolist() == [0, 1]
    assert shares.shares_LV[:, 1].tolist() == pytest.approx([0.75 / 0.85, 0.1 / 0.85])
    assert shares.find_own(1) == pytest.approx(0.1 / 0.85, abs=2e-4)
    assert shares.find("de", 2) == pytest.approx(1, abs=2e-4)


def test_what_no_text_has_falls_to_all_alike() -> None:
    shares = measure_shares(COUNTS, "en")
    assert shares.find("de", 3) == shares.find_own(3) == shares.find("xx", 0) > 0


def _make(own: float, num_rows: int) -> LanguageShares:
    column = np.array([1 - own, own])[:, None]
    return LanguageShares("en", ("de", "en"), np.repeat(column, num_rows, axis=1))


TOKENS = ["▁lar", "lar", "▁haus", "haus", "の", "▁12", "lar12", "งาน"]
TARGET = list_vocabulary(TOKENS, Kind.SENTENCEPIECE)


def test_doubtful_rows() -> None:
    text = [TOKENS.index(token) for token in ("▁lar", "lar", "の", "▁12", "lar12")]
    translated = [TOKENS.index(token) for token in ("▁haus", "haus", "งาน")]
    doubtful = find_doubtful(TARGET, text, translated, _make(0.01, len(TOKENS)))
    # A text match alone; a word of the dictionary inside a word, but not in a script without
    # spaces; no numbers.
    expected = {"▁lar", "lar", "の", "lar12", "haus"}
    assert {TOKENS[row] for row in doubtful} == expected


def test_what_the_source_language_uses_is_not_doubtful() -> None:
    rows = range(len(TOKENS))
    assert find_doubtful(TARGET, rows, [], _make(0.04, len(TOKENS))) == set()
