"""Sentences of test sets are removed from a corpus, and counted by language."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from metaxlm.data.decontaminate import TEST_SENTENCE, drop_test_lines, normalize, write_test_hashes


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Where is it?", "where  is it", True),
        ("I don't know.", "I do n't know .", True),  # as treebanks write it
        ("ﬁve ＡＢＣ", "FIVE abc", True),
        ("他是誰？", "他 是 誰 ?", True),
        ("Straße", "STRASSE", True),
        ("काम की बात", "काम का बात", False),  # marks count
        ("Room 12", "Room 13", False),
        ("He is here.", "He is not here.", False),
    ],
)
def test_letters_decide(one: str, other: str, same: bool) -> None:
    assert (normalize(one) == normalize(other)) == same


def test_whole_lines_are_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "hashes"
    assert write_test_hashes(path, ["A test.", "a TEST", "Another one!", "...", ""]) == 2
    documents = [["A test", "A test is here.", "..."], ["another one"], ["kept"]]
    dropped: Counter[str] = Counter()
    kept = list(drop_test_lines(documents, path, dropped))
    # A line without letters equals nothing.
    assert kept == [["A test is here.", "..."], ["kept"]]
    assert dropped == {TEST_SENTENCE: 2}
