"""Tables of the user's own: every form of them, and every way to get them wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.tables import Column, Row, read_rows

NAMES = ["body", "team"]


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def problem(path: Path, columns: list[Column] = NAMES, num_needed: int = 2) -> str:
    with pytest.raises(MetaXLMError) as caught:
        read_rows(path, columns, num_needed)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{path.parent}/", "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", 'id\tteam\tbody\n1\tx\tsay "hi"\n2\ty\tb, c\n'),
        ("a.tsv", 'id\tteam\tbody\r\n1\tx\tsay "hi"\r\n2\ty\tb, c'),
        ("a.txt", '\ufeffbody\tteam\nsay "hi"\tx\nb, c\ty\n'),
        ("a.csv", 'body,team\n"say ""hi""",x\n"b, c",y\n'),
        ("a.jsonl", '{"body": "say \\"hi\\"", "team": "x"}\n{"team": "y", "body": "b, c"}\n'),
    ],
)
def test_every_form_gives_the_same_cells(tmp_path: Path, name: str, text: str) -> None:
    rows = read_rows(write(tmp_path, name, text), NAMES, 2)
    first = 1 if name.endswith("jsonl") else 2
    assert rows == [Row(first, ('say "hi"', "x")), Row(first + 1, ("b, c", "y"))]


def test_numbers_mean_that_there_is_no_header(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "x\t7\ta b\ny\t8\tc\n")
    assert read_rows(path, [-1, 1], 2) == [Row(1, ("a b", "x")), Row(2, ("c", "y"))]
    assert problem(path, [4, 1]) == "a.tsv:1: no column 4; found: 3 columns"
    assert problem(path, [-4, 1]) == "a.tsv:1: no column -4; found: 3 columns"


def test_quotes_of_csv_may_hold_lines_and_rows_know_where_they_begin(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'body,team\r\n"one\r\ntwo",x\r\n\r\nthree,y\r\n')
    assert read_rows(path, NAMES, 2) == [Row(2, ("one\ntwo", "x")), Row(5, ("three", "y"))]
    path = write(tmp_path, "b.csv", 'body,team\none,x\n"two,y\n')
    assert problem(path).startswith("b.csv:3: not valid CSV")


def test_a_label_may_be_missing_where_that_is_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "body\tid\na\t1\n")
    assert read_rows(path, NAMES, 1) == [Row(2, ("a", None))]
    assert problem(path) == "a.tsv:1: no column 'team'; found: body, id"
    path = write(tmp_path, "a.jsonl", '{"body": "a"}\n{"body": "b", "team": null}\n')
    assert read_rows(path, NAMES, 1) == [Row(1, ("a", None)), Row(2, ("b", None))]
    assert problem(path) == "a.jsonl:1: no key 'team'; found: body"


def test_json_labels_are_text(tmp_path: Path) -> None:
    lines = ['{"body": "a", "team": 3}', '{"body": "b", "team": true}', '{"body": "c"}']
    path = write(tmp_path, "a.jsonl", "\n".join([*lines, ""]))
    assert [row.cells[1] for row in read_rows(path, NAMES, 1)] == ["3", "true", None]
    path = write(tmp_path, "a.jsonl", '{"body": "a", "team": ["x"]}\n')
    assert problem(path) == "a.jsonl:1: 'team' is a list, expected text"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.tsv", "body\tteam\na\tx\nb\n", "a.tsv:3: found 1 columns, the header has 2; "),
        ("a.tsv", "body\tteam\na\tb\tx\n", "a.tsv:2: found 3 columns, the header has 2; "),
        ("a.csv", "body,team\na,b,x\n", "a.csv:2: found 3 columns, the header has 2; "),
        ("a.tsv", "body\tbody\tteam\na\tb\tx\n", "a.tsv:1: the header has 'body' twice; "),
        ("a.tsv", "", "a.tsv:1: the file is empty; "),
        ("a.tsv", "body\tteam\n", "a.tsv:1: a header and nothing else; "),
        ("a.tsv", "body\tteam\nf\xfcr\tx\n".encode("latin-1"), "a.tsv:2: not UTF-8 (byte 0xFC); "),
        ("a.tsv", "body\tteam\nf\xfcr\tx\n".encode("utf-16"), "a.tsv:1: NUL characters"),
        ("a.tsv", "body\tteam\na\tx\n".encode("utf-16-le"), "a.tsv:1: NUL characters, as in "),
        ("a.jsonl", '{"body": "a", "team": "x"}\n{"body"\n', "a.jsonl:2: not valid JSON ("),
        ("a.jsonl", '["a", "x"]\n', "a.jsonl:1: found a list, expected an object a line"),
    ],
)
def test_broken_files_are_told(tmp_path: Path, name: str, text: str | bytes, expected: str) -> None:
    assert problem(write(tmp_path, name, text)).startswith(expected)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    assert problem(tmp_path / "no.tsv") == "no.tsv: no such file"
