from __future__ import annotations

from pathlib import Path

import pytest

from metaxlm.finetune.readers.tagged import TaggedSentence, read_tagged_sentences
from metaxlm.finetune.udpos import TAGS
from tests.finetune.readers.files import refuse, write


def test_plain(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "\nfine\tADJ\r\n.\tPUNCT\r\n\r\n\r\nyes\tINTJ")
    found = read_tagged_sentences(path, TAGS)
    assert found.items == [
        TaggedSentence(("fine", "."), ("ADJ", "PUNCT")),
        TaggedSentence(("yes",), ("INTJ",)),
    ]
    assert found.notices == ()


def test_prefix_of_each_word(tmp_path: Path) -> None:
    path = write(tmp_path / "dev", "en:a:b\tX\nen:en:\tX\nc\tX\n")
    (sentence,) = read_tagged_sentences(path, TAGS, "en:").items
    assert sentence.words == ("a:b", "en:", "c")


@pytest.mark.parametrize("text", ["I\nsee\n\nNo\n", "I\t\nsee\t\n\nNo\t\n"])
def test_blanked_tags(tmp_path: Path, text: str) -> None:
    """As XTREME's script leaves UD POS and PAN-X: words alone."""
    path = write(tmp_path / "a.tsv", text)
    found = read_tagged_sentences(path, TAGS)
    assert found.items == [TaggedSentence(("I", "see"), None), TaggedSentence(("No",), None)]
    assert found.notices == (f"{path}: no labels; its 2 sentences are predicted, not scored",)


def test_some_blanked_tags(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "I\tPRON\n\nNo\nno\n\n\nsee\tVERB\n")
    found = read_tagged_sentences(path, TAGS)
    assert [sentence.tags for sentence in found.items] == [("PRON",), None, ("VERB",)]
    assert found.notices == (
        f"{path}:3: no label, as in 1 of 3 sentences; these are predicted, not scored",
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("word\tX\tX", "found 3 columns, expected a word, a tab and a tag"),
        ("\tX", "the word is empty; restore it"),
        ("word\tNP", f"unknown label 'NP'; known: {', '.join(TAGS)}"),
    ],
)
def test_broken_line(tmp_path: Path, line: str, complaint: str) -> None:
    path = write(tmp_path / "a.tsv", f"fine\tADJ\n{line}\n")
    with refuse("{}:2: {}", path, complaint):
        read_tagged_sentences(path, TAGS)


@pytest.mark.parametrize("line", ["word", "word\t"])
def test_a_sentence_with_and_without_tags(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "a.tsv", f"a\tX\n\nfine\tADJ\n{line}\n\nb\tX\n")
    with refuse(
        "{}:3: 1 of the 2 words of this sentence have no tag; expected a word, a tab and a tag in "
        "each line",
        path,
    ):
        read_tagged_sentences(path, TAGS)


def test_only_blank_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "\n\n")
    with refuse("{}:1: the file has blank lines and nothing else; restore it", path):
        read_tagged_sentences(path, TAGS)
