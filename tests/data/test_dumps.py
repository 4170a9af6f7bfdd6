"""Hand-written dumps in ten languages, and the text that a reader of the articles expects.

`dumps/XX.xml` is a MediaWiki export with hard cases of wikitext. `dumps/XX.txt` has the expected
result: `== TITLE` and paragraphs, or `-- TITLE: reason` for a rejected page.
"""

from __future__ import annotations

import bz2
import difflib
import gzip
import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from metaxlm.data.documents import Document, Split
from metaxlm.data.readers.dump import read_dump, split_dump

DUMPS = Path(__file__).parent / "dumps"
LANGUAGES = ["en", "de", "fr", "ru", "ar", "he", "fa", "hi", "th", "zh"]
XMLNS = "{http://www.mediawiki.org/xml/export-0.11/}"


class Page(NamedTuple):
    """What comes out of one page: its paragraphs, or why it was rejected."""

    title: str
    paragraphs: tuple[str, ...] = ()
    reason: str = ""

    def lines(self) -> list[str]:
        if self.reason:
            return [f"-- {self.title}: {self.reason}"]
        return [f"== {self.title}", *self.paragraphs]


def expected_pages(language: str) -> list[Page]:
    pages: list[Page] = []
    for line in (DUMPS / f"{language}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            pages.append(Page(line.removeprefix("== ")))
        elif line.startswith("-- "):
            title, _, reason = line.removeprefix("-- ").rpartition(": ")
            pages.append(Page(title, reason=reason))
        elif line:
            pages[-1] = pages[-1]._replace(paragraphs=(*pages[-1].paragraphs, line))
    return pages


def wikitext_pages(language: str) -> list[tuple[str, str]]:
    """Title and wikitext of each page, from the XML parsed as a whole."""
    root = ElementTree.parse(DUMPS / f"{language}.xml").getroot()
    return [
        (page.findtext(f"{XMLNS}title") or "", page.findtext(f".//{XMLNS}text") or "")
        for page in root.iter(f"{XMLNS}page")
    ]


def read_pages(split: Split, titles: list[str]) -> list[Page]:
    """What the reader gives; a rejection takes its title from the pages' order and must name it."""
    read = 0

    def advance(count: int) -> None:
        nonlocal read
        read += count

    pages: list[Page] = []
    for number, record in enumerate(read_dump(split, advance)):
        if isinstance(record, Document):
            pages.append(Page(record.name, tuple(record.text.split("\n"))))
        else:
            title = titles[number] if number < len(titles) else "one page too many"
            where = html.unescape(record.where)
            assert title in where or repr(title) in where
            pages.append(Page(title, reason=record.reason))
    assert read == split.size
    return pages


def whole(path: Path) -> Split:
    return Split(path, 0, None, path.stat().st_size)


def titles_of(language: str) -> list[str]:
    return [title for title, _ in wikitext_pages(language)]


def check_pages(found: list[Page], expected: list[Page]) -> None:
    """Fails with a line-by-line difference of every page that is not as expected."""
    problems = []
    for one, other in zip(expected, found, strict=False):
        if one != other:
            difference = difflib.ndiff(one.lines(), other.lines())
            problems.append("\n".join(line for line in difference if not line.startswith("?")))
    if problems:
        pytest.fail("- expected, + found\n" + "\n\n".join(problems), pytrace=False)
    assert len(found) == len(expected)


@pytest.mark.parametrize("language", LANGUAGES)
def test_text_is_what_a_reader_expects(language: str) -> None:
    found = read_pages(whole(DUMPS / f"{language}.xml"), titles_of(language))
    check_pages(found, expected_pages(language))


def multistream(data: bytes, pages_a_stream: int = 3) -> bytes:
    """As Wikimedia compresses: the header, groups of pages, and the footer each a bz2 stream."""
    first, last = data.index(b"  <page>"), data.rindex(b"</mediawiki>")
    pages = re.findall(rb"  <page>.*?</page>\n", data[first:last], re.DOTALL)
    assert b"".join(pages) == data[first:last]
    groups = [
        b"".join(pages[start : start + pages_a_stream])
        for start in range(0, len(pages), pages_a_stream)
    ]
    return b"".join(bz2.compress(part) for part in [data[:first], *groups, data[last:]])


def many_streams(data: bytes, size: int = 2500) -> bytes:
    """As pbzip2 compresses: streams end in the middle of a page, of a tag, of a character."""
    return b"".join(bz2.compress(data[k : k + size]) for k in range(0, len(data), size))


COMPRESSIONS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "bz2": (".xml.bz2", bz2.compress),
    "multistream": ("-multistream.xml.bz2", multistream),
    "pbzip2": (".xml.bz2", many_streams),
    "gz": (".xml.gz", gzip.compress),
}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_compressed_dumps_give_the_same_pages(
    tmp_path: Path, language: str, compression: str
) -> None:
    ending, compress = COMPRESSIONS[compression]
    plain = DUMPS / f"{language}.xml"
    path = tmp_path / f"{language}wiki-20260101-pages-articles{ending}"
    path.write_bytes(compress(plain.read_bytes()))
    titles = titles_of(language)
    expected = read_pages(whole(plain), titles)
    assert len(expected) == len(titles)
    check_pages(read_pages(whole(path), titles), expected)


@pytest.mark.parametrize("compression", ["plain", "multistream", "pbzip2"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_splits_give_the_same_pages(tmp_path: Path, language: str, compression: str) -> None:
    data = (DUMPS / f"{language}.xml").read_bytes()
    ending, compress = COMPRESSIONS.get(compression, (".xml", bytes))
    path = tmp_path / f"{language}wiki-20260101-pages-articles{ending}"
    path.write_bytes(compress(data))
    titles = titles_of(language)
    expected = read_pages(whole(path), titles)
    numbers = []
    for target in (1, 1500, 10**9):
        splits = split_dump(path, target)
        found: list[Page] = []
        for split in splits:
            found += read_pages(split, titles[len(found) :])
        check_pages(found, expected)
        assert sum(split.size for split in splits) == path.stat().st_size
        numbers.append(len(splits))
    assert numbers[0] >= numbers[1] > numbers[2] == 1


def test_huge_page_reads_like_its_parts(tmp_path: Path) -> None:
    plain = DUMPS / "ru.xml"
    data = plain.read_bytes()
    title, text = wikitext_pages("ru")[0]
    (first, *_), copies = expected_pages("ru"), 500
    raw = re.search(rb"(?s)preserve\">(.*?)</text>", data)
    assert raw is not None and len(text.encode()) * copies > 1_000_000
    path = tmp_path / "ru.xml"
    path.write_bytes(data.replace(raw[1], b"\n\n".join([raw[1]] * copies), 1))
    found = read_pages(whole(path), titles_of("ru"))
    assert found[0] == Page(title, first.paragraphs * copies)
    check_pages(found[1:], read_pages(whole(plain), titles_of("ru"))[1:])
