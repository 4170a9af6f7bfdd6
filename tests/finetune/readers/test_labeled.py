from __future__ import annotations

from pathlib import Path

import pytest

from metaxlm.finetune.readers.labeled import LabeledText, read_labeled_pairs
from metaxlm.finetune.xnli import LABELS, SYNONYMS
from tests.finetune.readers.files import refuse, write

NEUTRAL = LabeledText("a", "b", "neutral")


class TestColumns:
    def test_plain(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", 'a "b\tc\tneutral\r\nd\te\tcontradictory\r\n')
        assert read_labeled_pairs(path, LABELS, SYNONYMS).items == [
            LabeledText('a "b', "c", "neutral"),
            LabeledText("d", "e", "contradiction"),
        ]

    @pytest.mark.parametrize(
        "text",
        [
            "label\tpremise\thypothesis\tsource\nneutral\ta\tb\tx\n",
            "premise\thypo\tlabel\na\tb\tneutral\n",  # XNLI-MT 1.0
            "id\tsentence1\tsentence2\tlabel\n7\ta\tb\tneutral\n",  # PAWS-X
            "id\tone\tother\tlabel\n7\ta\tb\tneutral\n",
            # MultiNLI 1.0 has many columns and leaves out empty ones at the end.
            "gold_label\tparse\tsentence1\tsentence2\tlabel1\tlabel2\n"
            "neutral\tx\ta\tb\tentailment\n",
        ],
    )
    def test_header_names_columns(self, tmp_path: Path, text: str) -> None:
        assert read_labeled_pairs(write(tmp_path / "a.tsv", text), LABELS).items == [NEUTRAL]

    def test_one_language_of_many(self, tmp_path: Path) -> None:
        header = "language\tgold_label\tsentence1\tsentence2\n"
        text = f"{header}de\tneutral\tx\ty\nzh\tneutral\ta\tb\n"
        path = write(tmp_path / "a.tsv", text)
        assert read_labeled_pairs(path, LABELS, language="zh").items == [NEUTRAL]
        with refuse("{}:1: a header and no line of 'fr'; restore the file", path):
            read_labeled_pairs(path, LABELS, language="fr")

    def test_undecided_pairs_are_left_out_and_said(self, tmp_path: Path) -> None:
        header = "gold_label\tsentence1\tsentence2\n"
        path = write(tmp_path / "a.tsv", f"{header}-\tx\ty\nneutral\ta\tb\n-\tx\ty\n")
        found = read_labeled_pairs(path, LABELS)
        assert found.items == [NEUTRAL]
        assert found.notices == (f"{path}:2: no agreed label, as in 2 pairs; left out",)


class TestBlankedLabels:
    @pytest.mark.parametrize(
        "text",
        [
            "a\tb\r\nc\td\r\n",  # as XTREME's script leaves XNLI and PAWS-X
            "a\tb\t\nc\td\t\n",
            "id\tsentence1\tsentence2\tlabel\n1\ta\tb\t\n2\tc\td\t\n",
            "id\tsentence1\tsentence2\n1\ta\tb\n2\tc\td\n",
        ],
    )
    def test_all(self, tmp_path: Path, text: str) -> None:
        path = write(tmp_path / "a.tsv", text)
        found = read_labeled_pairs(path, LABELS)
        assert found.items == [LabeledText("a", "b", None), LabeledText("c", "d", None)]
        assert found.notices == (f"{path}: no labels; its 2 pairs are predicted, not scored",)

    def test_some(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "a\tb\tneutral\nc\td\t \ne\tf\t\n")
        found = read_labeled_pairs(path, LABELS)
        assert [pair.label for pair in found.items] == ["neutral", None, None]
        assert found.notices == (
            f"{path}:2: no label, as in 2 of 3 pairs; these are predicted, not scored",
        )

    def test_none(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "a\tb\tneutral\n")
        assert read_labeled_pairs(path, LABELS).notices == ()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("a\tb", "found 2 columns, expected 3 between tabs"),
        ("a\tb\tneutral\tc", "found 4 columns, expected 3 between tabs"),
        ("", "found 1 columns, expected 3 between tabs"),
        ("a\t \tneutral", "a text is empty; fill it or delete the line"),
        ("a\tb\tmaybe", "unknown label 'maybe'; known: entailment, neutral, contradiction"),
        ("a\tb\t-", "unknown label '-'; known: entailment, neutral, contradiction"),
    ],
)
def test_broken_line(tmp_path: Path, line: str, complaint: str) -> None:
    path = write(tmp_path / "a.tsv", f"a\tb\tneutral\n{line}\nc\td\tneutral\n")
    with refuse("{}:2: {}", path, complaint):
        read_labeled_pairs(path, LABELS)


def test_broken_line_of_a_wide_table(tmp_path: Path) -> None:
    header = "gold_label\tparse\tsentence1\tsentence2\tlabel1\n"
    path = write(tmp_path / "a.tsv", f"{header}neutral\tx\ta\n")
    with refuse("{}:2: found 3 columns, expected 5 between tabs", path):
        read_labeled_pairs(path, LABELS)
    header = "premise\thypothesis\tlabel\tsource\n"  # not wide: nothing is left out
    path = write(tmp_path / "a.tsv", f"{header}a\tb\tneutral\n")
    with refuse("{}:2: found 3 columns, expected 4 between tabs", path):
        read_labeled_pairs(path, LABELS)


@pytest.mark.parametrize("text", ["one column\n", "a\tb\tc\td\n"])
def test_no_known_columns(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.tsv", text)
    with refuse(
        "{}:1: found {} columns, expected two texts and a label between tabs, or a header that "
        "names them",
        path,
        text.count("\t") + 1,
    ):
        read_labeled_pairs(path, LABELS)


def test_only_a_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "premise\thypothesis\tlabel\n")
    with refuse("{}:1: a header and no line; restore the file", path):
        read_labeled_pairs(path, LABELS)
