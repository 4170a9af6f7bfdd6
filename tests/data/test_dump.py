"""The reader of dumps: which pages become documents, and what broken files and pages cost.

`dumps/XX.xml` is a hand-written MediaWiki export with hard cases of wikitext. `dumps/XX.txt` has
the expected result: `== TITLE` and paragraphs, or `-- TITLE: reason` for a rejected page.
"""

from __future__ import annotations

import bz2
import gzip
import html
import re
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from tests.data.readers.conftest import limited_memory, read_all, rejections_of, whole

from metaxlm.data.documents import Document, Record, Split
from metaxlm.data.readers import dump
from metaxlm.data.readers.dump import MAX_PAGE_BYTES, read_dump, split_dump
from metaxlm.errors import MetaXLMError

HEAD = b"""\
<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
  <siteinfo>
    <dbname>dewiki</dbname>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="10" case="first-letter">Vorlage</namespace>
    </namespaces>
  </siteinfo>
"""
FOOT = b"</mediawiki>\n"
BOMB = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY %c "%s">' % (letter + 1, b"&%c;" % letter * 10) for letter in range(97, 110)
) + b"]>\n"  # fmt: skip


def page(
    title: str = "Mühle", text: str = "Das Wasser fließt.", extra: str = "", ns: str = "0"
) -> bytes:
    return (
        f"  <page>\n    <title>{title}</title>\n    <ns>{ns}</ns>\n    <id>1</id>\n{extra}"
        "    <revision>\n      <id>2</id>\n      <model>wikitext</model>\n"
        "      <format>text/x-wiki</format>\n"
        f'      <text bytes="{len(text.encode())}" xml:space="preserve">{escape(text)}</text>\n'
        "    </revision>\n  </page>\n"
    ).encode()


def write(path: Path, *pages: bytes, head: bytes = HEAD, foot: bytes = FOOT) -> Path:
    path.write_bytes(head + b"".join(pages) + foot)
    return path


def read(split: Split | Path) -> list[Record]:
    return read_all(read_dump, whole(split) if isinstance(split, Path) else split)


def outcomes(records: list[Record]) -> list[str]:
    """Titles of documents, reasons of rejections."""
    return [r.name if isinstance(r, Document) else f"-{r.reason}" for r in records]


OLD = b"<revision><text>Alt und falsch.</text></revision>"
ARTICLES = {
    "article": (
        page(
            "Mühle &amp; Rad",
            "[[Datei:a|mini|b]]'''Die Mühle''' & das [[Rad]].\n\n== A ==\nZweitens.<ref>c</ref>",
        ),
        Document("Mühle & Rad", "Die Mühle & das Rad.\nZweitens."),
    ),
    "history": (
        page().replace(b"    <revision>", OLD + b"<revision>"),
        Document("Mühle", "Das Wasser fließt."),
    ),
    "older export": (
        b"<page><title>Rad: Das Buch</title><revision><text>Gut.</text></revision></page>",
        Document("Rad: Das Buch", "Gut."),
    ),
}


@pytest.mark.parametrize("case", ARTICLES)
def test_an_article_becomes_a_document(tmp_path: Path, case: str) -> None:
    written, document = ARTICLES[case]
    assert read(write(tmp_path / "de.xml", written)) == [document]


REJECTED = {
    "redirect": page(extra='    <redirect title="Rad" />\n'),
    "redirect by its word": page(text="#REDIRECT [[Rad]]"),
    "namespace": page(title="Vorlage:Mühle", ns="10"),
    "namespace by its title": page(title="Vorlage:Mühle").replace(b"<ns>0</ns>", b""),
    "namespace of a redirect": page(text="#REDIRECT [[Rad]]", ns="10"),
    "disambiguation": page(text="* [[Rad]]\n{{Begriffsklärung}}"),
    "empty": page(text="{{x}}"),
    "empty without text": page().replace(b"<text ", b'<text deleted="deleted" /><x ').replace(
        b"</text>", b"</x>"
    ),
    "empty without a revision": b"<page><title>A</title><ns>0</ns></page>",
    "not_wikitext by its model": page().replace(b">wikitext<", b">javascript<"),
    "not_wikitext by its format": page().replace(b"text/x-wiki", b"text/javascript"),
    "invalid_xml": page().replace(b"</text>", b""),
    "invalid_xml by an entity": page().replace(b"Wasser", b"&bomb;"),
    "invalid_xml by a document type": page().replace(b"<title>", BOMB + b"<title>"),
    "invalid_xml by a control character": page(text="Das \x01 Wasser."),
    "invalid_xml without an end": page().replace(b"</page>", b""),
    "invalid_utf8": page().replace("ß".encode(), b"\xff"),
    "invalid_utf8 by a surrogate": page().replace("ß".encode(), b"\xed\xa0\x80"),
    "nul": page(text="Das \0 Wasser."),
}  # fmt: skip


@pytest.mark.parametrize("stream_bytes", [None, 37, 5000, 1 << 20])
def test_accepted_and_rejected_are_all_pages_however_they_are_split(
    tmp_path: Path, stream_bytes: int | None
) -> None:
    pages, expected = [page("A")], ["A"]
    for number, (kind, data) in enumerate(REJECTED.items()):
        article = page(title=f"Seite {number}", text=f"Das ist Seite {number}. " * (number % 7 + 1))
        pages += [data, article]
        expected += [f"-{kind.split()[0]}", f"Seite {number}"]
    path = write(tmp_path / "de.xml", *pages)
    if stream_bytes is not None:
        data, path = path.read_bytes(), path.with_suffix(".xml.bz2")
        cuts = range(0, len(data), stream_bytes)
        path.write_bytes(b"".join(bz2.compress(data[cut : cut + stream_bytes]) for cut in cuts))
    for target in (1, 333, 4_000, 1 << 30):
        splits = split_dump(path, target)
        records = [record for split in splits for record in read(split)]
        assert outcomes(records) == expected
        assert all(str(path) in record.where for record in rejections_of(records))
        assert [split.start for split in splits] == [0, *[split.stop for split in splits[:-1]]]
        assert sum(split.size for split in splits) == path.stat().st_size
        assert len(splits) == 1 or stream_bytes != 1 << 20


def test_entities_in_the_head_are_not_expanded(tmp_path: Path) -> None:
    head = HEAD.replace(b"dewiki", b"&m;")
    path = write(
        tmp_path / "de.xml", page(), page(text="x").replace(b">x<", b">&m;<"), head=BOMB + head
    )
    with limited_memory(10 << 20):
        assert outcomes(read(path)) == ["Mühle", "-invalid_xml"]


def test_a_page_beyond_the_limit_is_never_held(tmp_path: Path) -> None:
    path = tmp_path / "de.xml.gz"
    before, after = page(title="Riesig", text="@").split(b"@")
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(HEAD + page(title="A") + before)
        for _ in range(5 * MAX_PAGE_BYTES >> 20):
            file.write(b"Wasser und Wind." * (1 << 16))
        file.write(after + page(title="B") + FOOT)
    with limited_memory(4 * MAX_PAGE_BYTES):
        records = read(path)
    assert outcomes(records) == ["A", "-page_too_large", "B"]
    assert records[1].where.endswith("page 'Riesig'")  # type: ignore[union-attr]


def test_the_end_of_a_huge_page_is_found_across_chunks(tmp_path: Path) -> None:
    before, after = page(title="Riesig", text="@").split(b"@")
    end = MAX_PAGE_BYTES + (1 << 20) - len(b"</p")  # chunks are a power of two
    filling = end - len(HEAD) - len(before) - after.index(b"</page>")
    path = write(tmp_path / "de.xml", before, b"x" * filling, after)
    assert path.read_bytes().index(b"</page>") == end
    assert outcomes(read(path)) == ["-page_too_large"]


@pytest.mark.parametrize(
    ("foot", "message"),
    [
        (page(title="B")[:-30], "cut short in page 'B'; fetch it again"),
        (b"", "cut short: it ends without </mediawiki>"),
        (b"</media", "cut short: it ends without </mediawiki>"),
    ],
)
def test_a_file_cut_short_is_an_error(tmp_path: Path, foot: bytes, message: str) -> None:
    path = write(tmp_path / "de.xml", page(title="A"), foot=foot)
    with pytest.raises(MetaXLMError, match=rf"de\.xml: {message}"):
        read(path)


@pytest.mark.parametrize("content", [b"Das Wasser.\n", b"<html><page></page></html>", page()])
def test_another_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "de.xml"
    path.write_bytes(content)
    with pytest.raises(MetaXLMError, match="no <mediawiki> element at its start; give a MediaWiki"):
        read(path)


def test_page_starts_are_found_across_chunks(tmp_path: Path) -> None:
    path = write(tmp_path / "de.xml", page(text="Wasser. " * 40_000), page(title="B"))
    start = path.read_bytes().rindex(b"<page>")
    splits = split_dump(path, start - (1 << 18) + len(b"<pa"))  # chunks are a power of two
    assert [split.start for split in splits] == [0, start]


def test_data_that_looks_like_a_stream_is_none(tmp_path: Path) -> None:
    stream = bz2.compress(page())
    path = tmp_path / "x"
    path.write_bytes(stream + b"BZh91AY&SY" + bytes(100) + stream)
    with path.open("rb") as file:
        found = list(dump._find_starts(file, 1, dump._STREAM_START))
    assert found == [len(stream) + 110]


DUMPS = Path(__file__).parent / "dumps"


def compress_by_pages(data: bytes) -> bytes:
    """As Wikimedia compresses: the head, groups of pages and the foot each are a bz2 stream."""
    pages = re.split(rb"(?=  <page>|</mediawiki>)", data)
    groups = [b"".join(pages[start : start + 3]) for start in range(1, len(pages) - 1, 3)]
    return b"".join(map(bz2.compress, [pages[0], *groups, pages[-1]]))


@pytest.mark.parametrize("language", ["en", "de", "fr", "ru", "ar", "he", "fa", "hi", "th", "zh"])
def test_hand_written_dumps(tmp_path: Path, language: str) -> None:
    expected = (DUMPS / f"{language}.txt").read_text("utf-8").split("\n")
    path = tmp_path / f"{language}wiki-20260101-pages-articles-multistream.xml.bz2"
    path.write_bytes(compress_by_pages((DUMPS / f"{language}.xml").read_bytes()))
    titles = [line for line in expected if line.startswith(("== ", "-- "))]
    numbers = []
    for target in (1, 1500, 10**9):
        splits = split_dump(path, target)
        assert sum(split.size for split in splits) == path.stat().st_size
        records = [record for split in splits for record in read(split)]
        lines: list[str] = []
        for record, title in zip(records, titles, strict=True):
            if isinstance(record, Document):
                lines += [f"== {record.name}", *record.text.split("\n")]
            else:
                name = title.removeprefix("-- ").rpartition(": ")[0]
                where = html.unescape(record.where)
                assert name in where or repr(name) in where
                lines.append(f"-- {name}: {record.reason}")
        assert lines == [line for line in expected if line]
        numbers.append(len(splits))
    assert numbers[0] >= numbers[1] > numbers[2] == 1
