from __future__ import annotations

import bz2
from pathlib import Path

import pytest

from metaxlm.data.documents import Split
from metaxlm.data.readers.inputs import Source, find_inputs, split_input
from metaxlm.data.readers.lines import WINDOW_BYTES
from metaxlm.errors import MetaXLMError

DUMP = "wiki-20240101-pages-articles"


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


UNRELATED = [
    "eng.txt", "eng/a.txt", "eng.jsonl", "e/en.txt", "en-US.txt", "en-US.jsonl", "men.txt",
    "xen/a.jsonl", "en.txt.old.txt", ".hidden/en.txt", "20231101.simple/a.parquet", "en.md",
    f"simple{DUMP}.xml.bz2", f"simplewiki/simple{DUMP}.xml.bz2", f"ben{DUMP}.xml.bz2",
    "enwiktionary-20240101-pages-articles.xml.bz2", f"en{DUMP}-multistream-index.txt.bz2",
    "enwiki-20240101-stub-articles.xml.gz", "enwiki-20240101-pages-meta-history1.xml.bz2",
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("text", ["en.txt"]),
        ("text", ["en.txt.xz"]),
        ("text", ["en-00000.txt.gz", "en-00001.txt.gz"]),
        ("text", ["en/a.txt", "en/deeper/b.txt.zst"]),
        ("jsonl", ["en.jsonl.gz"]),
        ("jsonl", ["en/anything.jsonl", "en/c4.jsonl.zst"]),
        ("jsonl", ["en_part1.jsonl", "en_part2.jsonl"]),
        ("parquet", ["en.parquet"]),
        ("parquet", [f"20231101.en/train-0000{n}-of-00002.parquet" for n in range(2)]),
        ("dump", [f"en{DUMP}.xml.bz2"]),
        ("dump", ["enwiki-latest-pages-articles-multistream.xml.bz2"]),
        ("dump", [f"en{DUMP}1.xml-p1p41242.bz2", f"en{DUMP}2.xml-p41243p151573.bz2"]),
        ("dump", [f"enwiki/20240101/en{DUMP}-multistream1.xml-p1p41242.bz2"]),
        ("dump", ["en/some-export.xml"]),
        ("dump", ["en.xml"]),
    ],
)  # fmt: skip
def test_usual_layouts_are_found(tmp_path: Path, source: Source, names: list[str]) -> None:
    make(tmp_path, *names)
    make(tmp_path, *UNRELATED)
    assert find_inputs(tmp_path, source, "en") == [tmp_path / name for name in names]


@pytest.mark.parametrize("source", ["text", "dump"])
def test_only_the_language_itself_counts_inside_its_folder(tmp_path: Path, source: Source) -> None:
    wanted = {"text": "enwiki/a.txt", "dump": f"enwiki/en{DUMP}-multistream.xml.bz2"}
    make(tmp_path, *wanted.values(), "enwiki/README.txt", "enwiki/.a.txt", "enwiki/_tmp/b.txt")
    make(tmp_path, f"enwiki/en{DUMP}-multistream-index.txt.bz2", f"enwiki/simple{DUMP}.xml.bz2")
    make(tmp_path, "enwiki/enwiki-20240101-md5sums.txt", "enwiki/enwiki-20240101-abstract.xml.gz")
    make(tmp_path, "enwiki/enwikibooks-20240101-pages-articles.xml.bz2")
    assert find_inputs(tmp_path, source, "en") == [tmp_path / wanted[source]]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("text", ["en.txt", "en.txt.gz"]),
        ("text", ["en.txt", "en/a.txt"]),
        ("text", ["en/a.txt", "en/a.txt.xz"]),
        ("jsonl", ["en.jsonl", "en.ndjson"]),
        ("parquet", ["20231101.en/train-0.parquet", "20220301.en/train-0.parquet"]),
        ("dump", [f"en{DUMP}.xml", f"en{DUMP}.xml.bz2"]),
        ("dump", [f"en{DUMP}.xml.bz2", f"en{DUMP}-multistream.xml.bz2"]),
        ("dump", [f"en{DUMP}.xml.bz2", f"en{DUMP}1.xml-p1p41242.bz2"]),
        ("dump", [f"en{DUMP}.xml.bz2", "enwiki-20240201-pages-articles.xml.bz2"]),
        ("dump", [f"en{DUMP}.xml.bz2", "enwiki-20240101-pages-meta-current.xml.bz2"]),
        ("dump", [f"en/en{DUMP}.xml.bz2", f"enwiki/en{DUMP}.xml.bz2"]),
        ("dump", [f"en{DUMP}.xml.bz2", "en.xml"]),
    ],
)
def test_two_files_with_the_same_text(tmp_path: Path, source: Source, names: list[str]) -> None:
    make(tmp_path, *names)
    with pytest.raises(MetaXLMError, match="several files for language 'en'") as caught:
        find_inputs(tmp_path, source, "en")
    assert all(name in str(caught.value) for name in names)


def test_missing_files_are_an_error_with_the_present_ones(tmp_path: Path) -> None:
    make(tmp_path, "eng.txt", *[f"a{n}.txt" for n in range(9)])
    with pytest.raises(MetaXLMError, match=r"no file for language 'en'.*en\.txt.*a0\.txt.*4 more"):
        find_inputs(tmp_path, "text", "en")
    with pytest.raises(MetaXLMError, match=r"no such folder; set corpus\.path"):
        find_inputs(tmp_path / "none", "text", "en")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MetaXLMError, match=r"20231101\.en/\*\.parquet; here are none at all"):
        find_inputs(tmp_path / "empty", "parquet", "en")


def test_wikipedia_names_go_by_wikipedias_code(tmp_path: Path) -> None:
    make(tmp_path, f"zh{DUMP}.xml.bz2", "20231101.zh/a.parquet", "zh.txt", "zh/a.jsonl")
    assert find_inputs(tmp_path, "dump", "zh-Hant") == [tmp_path / f"zh{DUMP}.xml.bz2"]
    assert find_inputs(tmp_path, "parquet", "zh-Hant") == [tmp_path / "20231101.zh/a.parquet"]
    for source in ("text", "jsonl"):
        with pytest.raises(MetaXLMError, match="no file for language 'zh-Hant'"):
            find_inputs(tmp_path, source, "zh-Hant")
    make(tmp_path, "zh-Hant/a.parquet")
    assert find_inputs(tmp_path, "parquet", "zh-Hant") == [tmp_path / "zh-Hant/a.parquet"]
    make(tmp_path, f"be_x_old{DUMP}.xml.bz2", f"old{DUMP}.xml.bz2", "20231101.be-x-old/a.parquet")
    assert find_inputs(tmp_path, "dump", "be-x-old") == [tmp_path / f"be_x_old{DUMP}.xml.bz2"]
    assert len(find_inputs(tmp_path, "parquet", "be-x-old")) == 1


def test_plain_files_are_split_and_compressed_ones_are_not(tmp_path: Path) -> None:
    plain, packed = tmp_path / "en.txt", tmp_path / "en.txt.bz2"
    plain.write_bytes(b"line\n" * WINDOW_BYTES)
    packed.write_bytes(bz2.compress(b"line\n"))
    step = 2 * WINDOW_BYTES
    assert split_input(plain, "text", step - 5) == [
        Split(plain, 0, step, step),
        Split(plain, step, 2 * step, step),
        Split(plain, 2 * step, 5 * WINDOW_BYTES, WINDOW_BYTES),
    ]
    size = packed.stat().st_size
    assert split_input(packed, "text", 1) == [Split(packed, 0, None, size)]
    with pytest.raises(MetaXLMError, match=r"none\.jsonl: cannot be read"):
        split_input(tmp_path / "none.jsonl", "jsonl", 1)
