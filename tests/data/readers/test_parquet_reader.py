from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaxlm.data.documents import Document, Rejection, tidy_document
from metaxlm.data.readers.inputs import split_input
from metaxlm.data.readers.parquet import read_parquet
from metaxlm.errors import MetaXLMError

from .conftest import limited_memory, read_all, thorough, whole


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("20231101.en") / "train-00000-of-00001.parquet"


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


cells = st.one_of(st.none(), st.text(max_size=8), st.sampled_from(["a\0", " ", "x\r\ny", b"\xff"]))


@given(st.lists(cells, max_size=12), st.integers(1, 5), st.integers(1, 500))
@thorough
def test_every_row_is_one_record_and_splits_give_what_the_file_gives(
    path: Path, rows: list[str | bytes | None], group: int, target: int
) -> None:
    raw = [row.encode() if isinstance(row, str) else row for row in rows]
    text = pa.array(raw, pa.binary()).view(pa.string())
    write(path, {"text": text}, row_group_size=group)
    records = read_all(read_parquet, whole(path))
    assert len(records) == len(rows)
    for number, (row, record) in enumerate(zip(rows, records, strict=True)):
        where = f"train-00000-of-00001.parquet, row {number}"
        if row is None:
            assert record == Rejection("no_text", where)
        elif isinstance(row, bytes):
            assert record == Rejection("invalid_utf8", where)
        elif "\0" in row:
            assert record == Rejection("nul", where)
        else:
            tidy = tidy_document(row)
            assert record == (Document(where, tidy) if tidy else Rejection("empty", where))
    splits = split_input(path, "parquet", target)
    assert sum(split.size for split in splits) == path.stat().st_size
    assert [record for split in splits for record in read_all(read_parquet, split)] == records


def test_wikipedia_rows_become_documents(path: Path) -> None:
    text = ["April is the fourth month.\n\nIt has  30 days.\n", "Art\xa0is."]
    columns = {"id": ["1", "2"], "url": ["https://a", "https://b"], "title": ["April", "Art"]}
    write(path, {**columns, "text": text})
    assert read_all(read_parquet, whole(path)) == [
        Document("April", "April is the fourth month.\nIt has 30 days."),
        Document("Art", "Art is."),
    ]


def test_row_groups_are_split_by_their_bytes(path: Path) -> None:
    write(path, {"text": [f"{n:0999}" for n in range(400)]}, row_group_size=100, compression=None)
    splits = split_input(path, "parquet", 150_000)
    assert [(split.start, split.stop) for split in splits] == [(0, 2), (2, 4)]
    assert [round(split.size / 1e5) for split in splits] == [2, 2]
    assert len(split_input(path, "parquet", 1 << 30)) == 1


STRINGS = [pa.string(), pa.large_string(), pa.binary(), pa.string_view()]


@pytest.mark.parametrize("kind", [*STRINGS, pa.dictionary(pa.int32(), pa.string())])
def test_text_of_every_kind_of_string_is_read(path: Path, kind: Any) -> None:
    write(path, {"text": pa.array(["a", None, "b"]).cast(kind), "id": [5, 6, 7]})
    first, second, third = read_all(read_parquet, whole(path))
    assert (first, third) == (Document("5", "a"), Document("7", "b"))
    assert isinstance(second, Rejection) and second.reason == "no_text"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": [1], "content": ["a"]}, "parquet: no column 'text' among id, content; rename"),
        ({"text": [1]}, "column 'text' holds int64, not strings"),
    ],
)
def test_tables_without_text(path: Path, columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(MetaXLMError, match=message):
        list(read_parquet(whole(write(path, columns)), lambda _: None))


def test_damaged_and_missing_files_are_errors(path: Path) -> None:
    data = write(path, {"text": ["some words"] * 1000}).read_bytes()
    for damaged in (data[:-5], data[:100], b"", b"no parquet at all"):
        path.write_bytes(damaged)
        for call in (split_input, lambda *_: list(read_parquet(whole(path), lambda _: None))):
            with pytest.raises(MetaXLMError, match=r"of-00001\.parquet: .*damaged or cut short"):
                call(path, "parquet", 1)
    with pytest.raises(MetaXLMError, match=r"none\.parquet: no such file"):
        split_input(path.with_name("none.parquet"), "parquet", 1)
    options = {"compression": None, "use_dictionary": False, "write_page_checksum": True}
    data = write(path, {"text": [f"words {n}" for n in range(1000)]}, **options).read_bytes()
    path.write_bytes(data.replace(b"words 500", b"words 501"))
    with pytest.raises(MetaXLMError, match="damaged or cut short"):
        list(read_parquet(whole(path), lambda _: None))


def test_an_error_of_the_caller_is_not_taken_for_damage(path: Path) -> None:
    write(path, {"text": ["a", "b"]})
    records = read_parquet(whole(path), lambda _: None)
    next(records)
    with pytest.raises(OSError, match="disk is full"):
        records.throw(OSError("disk is full"))  # type: ignore[attr-defined]


def test_memory_is_flat_within_a_row_group(tmp_path: Path) -> None:
    rows = [f"{n} " + "some wörds " * 250 for n in range(1_000)]
    table = pa.table({"text": rows * 10})  # 28 MB
    path = tmp_path / "en.parquet"
    pq.write_table(table, path, row_group_size=len(table), compression=None, use_dictionary=False)
    del table
    base, peak = pa.total_allocated_bytes(), 0
    with limited_memory(10e6):
        for num_rows, _ in enumerate(read_parquet(whole(path), lambda _: None), 1):
            if num_rows % 100 == 0:
                peak = max(peak, pa.total_allocated_bytes() - base)
    assert num_rows == 10_000 and peak < 10e6
