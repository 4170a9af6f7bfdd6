"""CoNLL files of the user's own, in the forms in which people have them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from seqeval.metrics.sequence_labeling import get_entities

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.conll import ConllSentence, convert_to_bio, read_conll

EXPECTED = [
    (("Ada", "sleeps"), ("B-PER", "O")),
    (("in", "Rome"), ("O", "B-LOC")),
]


def write(folder: Path, text: str, name: str = "a.conll") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def read(path: Path, word: int | None = None, tag: int | None = None) -> list[object]:
    return [(sentence.words, sentence.tags) for sentence in read_conll(path, word, tag)]


def problem(path: Path, word: int | None = None, tag: int | None = None) -> str:
    with pytest.raises(MetaXLMError) as caught:
        read_conll(path, word, tag)
    return str(caught.value).replace(f"{path.parent}/", "")


@pytest.mark.parametrize(
    "text",
    [
        "Ada\tB-PER\nsleeps\tO\n\nin\tO\nRome\tB-LOC\n",
        "Ada B-PER\nsleeps O\n\n\nin O\nRome B-LOC",
        "Ada NNP B-PER\r\nsleeps VBZ O\r\n\r\nin IN O\r\nRome  NNP  B-LOC\r\n",
        "-DOCSTART- O\n\nAda B-PER\nsleeps O\n\n-DOCSTART- O\n\nin O\nRome B-LOC\n",
        "# id 1\n# text = Ada sleeps\nAda\tB-PER\nsleeps\tO\n\n# id 2\nin\tO\nRome\tB-LOC\n",
        "#\n# a comment\nAda B-PER\nsleeps O\n \n# short\nin O\nRome B-LOC\n",
    ],
)
def test_the_usual_forms_give_the_same_sentences(tmp_path: Path, text: str) -> None:
    assert read(write(tmp_path, text)) == EXPECTED


def test_words_that_look_like_comments_stay(tmp_path: Path) -> None:
    spaces = "# O\n1 O\nin O\nParis B-LOC\n\n#hi O\n# O\n"
    words = [("#", "1", "in", "Paris"), ("#hi", "#")]
    assert [s.words for s in read_conll(write(tmp_path, spaces))] == words
    tabs = spaces.replace(" ", "\t")
    assert [s.words for s in read_conll(write(tmp_path, tabs))] == words


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, "1 Ada B-PER x\n2 sleeps O y\n\n1 in O x\n2 Rome B-LOC y\n")
    assert read(path, 2, 3) == EXPECTED
    assert read(path, -3, -2) == EXPECTED
    assert problem(path, 5) == "a.conll:1: no column 5 for the word; found 4"


def test_conllu_has_its_own_columns_and_lines_that_are_no_words(tmp_path: Path) -> None:
    rest = "\t_" * 6
    text = (
        f"# text = im Haus\n1-2\tim\t_\t_{rest}\n1\tin\tin\tADP{rest}\n2\tdem\tder\tDET{rest}\n"
        f"2.1\tgroßen\tgroß\tADJ{rest}\n3\tHaus\tHaus\tNOUN{rest}\n\n"
    )
    path = write(tmp_path, text, "a.conllu")
    assert read(path) == [(("in", "dem", "Haus"), ("ADP", "DET", "NOUN"))]


def test_lines_of_words_are_kept_for_complaints(tmp_path: Path) -> None:
    (sentence, _) = read_conll(write(tmp_path, "# a b c\nAda O\nx O\n\nb O\n"))
    assert sentence.lines == (2, 3)


def test_untagged_sentences_are_read_as_such(tmp_path: Path) -> None:
    assert read(write(tmp_path, "Ada\nsleeps\n\nin\n")) == [
        (("Ada", "sleeps"), None),
        (("in",), None),
    ]
    path = write(tmp_path, "Ada\t_\nsleeps\t_\n\nin\tO\n")
    assert read(path) == [(("Ada", "sleeps"), None), (("in",), ("O",))]
    path = write(tmp_path, "Ada x\nis y\n")
    assert read(path, 1, 3) == [(("Ada", "is"), None)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tO\nb\n", "a.conll:2: found 1 columns, expected 2 as in the lines before"),
        ("a\tO\nb c\tO\td\n", "a.conll:2: found 3 columns, expected 2 as in the lines before"),
        ("a\tO\n\tO\n", "a.conll:2: the word is empty"),
        ("a\t_\nb\tO\n", "a.conll:1: the word 'a' has no tag, but others"),
        ("a\tO\nb\t\n", "a.conll:2: the word 'b' has no tag, but others"),
        ("\n\n", "a.conll:1: no words in it"),
        ("", "a.conll:1: the file is empty"),
    ],
)
def test_broken_files_are_told(tmp_path: Path, text: str, expected: str) -> None:
    assert problem(write(tmp_path, text)).startswith(expected)


def convert(*tags: str) -> tuple[str, ...] | None:
    lines = tuple(range(1, len(tags) + 1))
    return convert_to_bio(ConllSentence(("w",) * len(tags), tags, lines), Path("f"))


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-A I-A O I-A B-A I-B", "B-A I-A O B-A B-A B-B"),
        ("B-A I-A I-A B-A O I-B", "B-A I-A I-A B-A O B-B"),
        ("B-A I-A E-A S-A S-B O", "B-A I-A I-A B-A B-B O"),
        ("B-A L-A U-A U-A O E-B", "B-A I-A B-A B-A O B-B"),
        ("B-A M-A E-A I-A O S-x-y", "B-A I-A I-A B-A O B-x-y"),
    ],
)
def test_schemes_become_bio(tags: str, expected: str) -> None:
    assert convert(*tags.split()) == tuple(expected.split())


def test_conversion_keeps_the_spans_that_seqeval_finds() -> None:
    draw = random.Random(0)
    choices = ["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("X", "Y"))]
    for _ in range(2000):
        tags = draw.choices(choices, k=draw.randrange(1, 9))
        converted = convert(*tags)
        assert converted is not None
        assert get_entities(list(converted)) == get_entities(tags)


@pytest.mark.parametrize("tag", ["NOUN", "B-", "X-PER", "b-PER", "B_PER"])
def test_a_tag_of_no_scheme_is_told_with_its_line(tag: str) -> None:
    with pytest.raises(MetaXLMError, match=f"^f:2: the tag '{tag}' is neither O nor"):
        convert("O", tag)
