"""Dump files written by hand in ten languages, and the text a reader of the articles expects.

`dumps/XX.xml` is a MediaWiki export whose pages hold the hard cases of wikitext; `dumps/XX.txt`
says what must come out: `== TITLE` and a paragraph a line, or `-- TITLE: reason` for a rejected
page. The expectations were written from how the rendered article reads, not from what the cleaning
does.
"""

from __future__ import annotations

import bz2
import difflib
import gzip
import hashlib
import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from metaxlm.data.documents import Document, Split
from metaxlm.data.readers.dump import read_dump, split_dump

DUMPS = Path(__file__).parent / "dumps"
SCRIPTS = {
    "en": "LATIN",
    "de": "LATIN",
    "fr": "LATIN",
    "ru": "CYRILLIC",
    "ar": "ARABIC",
    "he": "HEBREW",
    "fa": "ARABIC",
    "hi": "DEVANAGARI",
    "th": "THAI",
    "zh": "CJK",
}
LANGUAGES = list(SCRIPTS)
XMLNS = "{http://www.mediawiki.org/xml/export-0.11/}"

HARD_CASES = {
    "template in a template": (r"\{\{[^{}]*\{\{", 10),
    "table in a template": (r"\{\{[^{}]*\n?\{\|", 7),
    "table in a template by {{!}}": (r"\{\{\{!\}\}", 2),
    "template in a table": (r"\{\|(?:(?!\|\})[^{])*\{\{", 10),
    "table in a table": (r"\{\|(?:(?!\|\})(?s:.))*\n\{\|", 4),
    "HTML table": (r"<table", 2),
    "parser function": (r"\{\{#\w+:", 5),
    "braces in nowiki, math or a comment in a template": (
        r"\{\{[^{}]*<(?:nowiki>\}\}|math>[^<]*\}\}|!-- \}\})",
        3,
    ),
    "template with an empty last value": (r"\{\{\w+\|\}\}", 3),
    "template that shows its text": (r"\{\{(?:lang|langue|nowrap|nobr)\|", 4),
    "link that is never closed in a template": (r"^\s*\|[^\[\n]*\[\[[^\]\n]*$|从\[\[", 4),
    "ref in a template": (r"\{\{[^{}]*<ref", 10),
    "template in a ref": (r"<ref[^>/]*>[^<]*\{\{", 10),
    "ref that closes itself": (r"<ref [^>]*/>", 10),
    "ref that is never closed": (r"<ref[^>/]*>(?!(?s:.)*</ref>)", 10),
    "div that is never closed": (r"<div[^>]*>(?!(?s:.)*</div>)", 8),
    "table that is never closed": (r"\{\|(?!(?s:.)*\n\|\})", 5),
    "link that is never closed": (r"\[\[[^\]\n]*\n\n", 9),
    "template that is never closed": (r"\{\{(?:(?!\}\}|\{\{)(?s:.))*(?:\n\n|\Z)", 9),
    "comment": (r"<!--(?s:.)*?-->", 5),
    "comment that is never closed": (r"<!--(?!(?s:.)*-->)", 4),
    "comment on a line of its own in a paragraph": (r"[^\n]\n<!--[^>]*-->\n[^\n=<{|]", 3),
    "less and greater than": (r"\w<\w[^<>]*\w>\d", 3),
    "brackets that are no link": (r"[^\[]\[(?!https?:|//)[\w.][^\[\]]*\][^\]]", 5),
    "link in brackets": (r"\[\[\[\w", 2),
    "HTML paragraph": (r"<p>", 3),
    "math in a sentence": (r"[^\s(] ?<math>[^<]*</math> ?[^\s)]", 10),
    "math in parentheses": (r"[(（]<math>.*?</math>[)）]", 10),
    "language link": (r"^\[\[[a-z]{2,3}(?:-[a-z]+)?:[^\]]+\]\]$", 10),
    "language link in the text": (r"\[\[:[a-z]{2}:[^\]|]+\|", 3),
    "file with a link and a template in its caption": (r"^\[\[.*\[\[.*\]\].*\{\{.*\}\}.*\]\]", 9),
    "direction mark in a link": (r"\[\[[\u200e\u200f]", 2),
    "namespace in other case or spacing": (r"\[\[(?: category :|datei:|категория:)", 3),
    "canonical namespace": (r"\[\[(?:File|Image|Category):", 4),
    "pipe trick": (r"\[\[[^\]|]+\|\]\]", 10),
    "link trail": (r"\]\][\w\u0900-\u097f]", 9),
    "external link with a label": (r"\[https?://\S+ [^\]]+\]", 10),
    "external link without a label": (r"\[https?://[^\s\]]+\]", 4),
    "bold and italic": (r"'''''", 6),
    "apostrophe beside bold or italic": (r"\w'''\w+''[^']|\w''''\w|\w'''s ", 2),
    "entity": (r"&\w+;", 10),
    "numeric entity": (r"&#x?\d+;", 2),
    "nowiki": (r"<nowiki>", 9),
    "extension with text of its own": (r"<(?:timeline|score|imagemap|mapframe|hiero|chem)\b", 6),
    "program text": (r"<(?:syntaxhighlight|source)", 2),
    "poem": (r"<poem>", 3),
    "line break": (r"</?br ?/?>", 7),
    "gallery": (r"<gallery", 9),
    "quotation": (r"<blockquote>", 5),
    "definition list": (r"^; .*\n: ", 7),
    "horizontal rule": (r"^----$", 2),
    "list of links only": (r"^\* \[\[[^\]]*\]\]$", 10),
    "list of sentences": (r"^[*#]+ (?!\[).{20,}$", 10),
    "behavior switch in the wiki's own language": (r"^__(?!NOTOC|DISAMBIG)\S+__$", 9),
    "redirect in the wiki's own language": (r"\A#(?!(?i:redirect\b))\w", 9),
    "zero-width joiner or non-joiner": (r"[\u200c\u200d]", 2),
    "zero-width space": (r"\u200b", 3),
    "direction mark": (r"[\u200e\u200f\u202a\u202c\u2066\u2069]|&[lr]rm;", 3),
    "soft hyphen": (r"&shy;", 2),
    "variants of Chinese": (r"-\{zh-hans:[^}]*\}-", 1),
    "conversion rule that shows nothing": (r"-\{H\|[^}]*\}-", 1),
}
"""What each hard case looks like in wikitext, and in how many languages it must occur."""


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


def test_page_beyond_the_limit_costs_only_itself(tmp_path: Path) -> None:
    data = (DUMPS / "de.xml").read_bytes()
    place = data.index(b"== Leben ==")
    path = tmp_path / "de.xml"
    path.write_bytes(data[:place] + b"Wasser und Wind. " * 2_000_000 + data[place:])
    expected = expected_pages("de")
    assert expected[2].title == "Konrad Weyhe"
    expected[2] = Page("Konrad Weyhe", reason="page_too_large")
    check_pages(read_pages(whole(path), titles_of("de")), expected)


@pytest.mark.parametrize("language", LANGUAGES)
def test_fixture_is_a_whole_export(language: str) -> None:
    root = ElementTree.parse(DUMPS / f"{language}.xml").getroot()
    assert root.tag == f"{XMLNS}mediawiki" and root.get("version") == "0.11"
    assert root.findtext(f"{XMLNS}siteinfo/{XMLNS}dbname") == f"{language}wiki"
    spaces = {space.get("key"): space.text for space in root.iter(f"{XMLNS}namespace")}
    for page in root.iter(f"{XMLNS}page"):
        prefix = spaces[page.findtext(f"{XMLNS}ns")]
        assert prefix is None or (page.findtext(f"{XMLNS}title") or "").startswith(f"{prefix}:")
        text = page.find(f".//{XMLNS}text")
        assert text is not None
        if text.get("deleted") is None:
            raw = (text.text or "").encode()
            assert text.get("bytes") == str(len(raw))
            assert int(text.get("sha1", ""), 36) == int(hashlib.sha1(raw).hexdigest(), 16)
    everything = "\n".join(text for _, text in wikitext_pages(language))
    assert f"[[{spaces['6']}:" in everything and f"[[:{spaces['6']}:" in everything
    assert f"[[{spaces['14']}:" in everything and f"[[:{spaces['14']}:" in everything


@pytest.mark.parametrize("language", LANGUAGES)
def test_expected_text_is_clean_and_in_its_script(language: str) -> None:
    pages, wikitext = expected_pages(language), dict(wikitext_pages(language))
    assert [page.title for page in pages] == list(wikitext)
    assert {"redirect", "disambiguation", "namespace", "empty"} <= {page.reason for page in pages}
    for page in pages:
        assert bool(page.paragraphs) != bool(page.reason)
        for paragraph in page.paragraphs:
            assert paragraph == " ".join(paragraph.split())
            letters = Counter(unicodedata.name(c).split()[0] for c in paragraph if c.isalpha())
            assert letters.most_common(1)[0][0] == SCRIPTS[language], paragraph
            # A zero-width space parts words in Thai; elsewhere it is noise.
            assert language == "th" or "\u200b" not in paragraph
            assert not re.search(r"[\u200e\u200f\u202a-\u202e\u2066-\u2069\xad]", paragraph)
            if "<nowiki>" not in wikitext[page.title]:
                assert not re.search(r"\{\{|\[\[|\]\]|''|</?\w+ ?/?>|__|&\w+;", paragraph), (
                    paragraph
                )


def test_every_hard_case_occurs() -> None:
    texts = {language: [text for _, text in wikitext_pages(language)] for language in LANGUAGES}
    too_few = {}
    for case, (pattern, least) in HARD_CASES.items():
        find = re.compile(pattern, re.MULTILINE).search
        languages = [code for code, pages in texts.items() if any(map(find, pages))]
        if len(languages) < least:
            too_few[case] = (least, languages)
    assert not too_few, too_few
