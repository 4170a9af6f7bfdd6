"""MediaWiki dumps: articles become documents, cleaned of wikitext.

Comes in: an export in XML, plain or compressed, as Wikimedia publishes it. Goes out: a `Document`
for each article and a `Rejection` for each other page. A page is found by its `<page>` and
`</page>`, which cannot occur in text, and parsed alone: one broken page costs one page, and what
stands before the first, such as a document type with entities, is never given to a parser. At most
one page is in memory.
"""

from __future__ import annotations

import bz2
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from metaxlm.data.documents import Document, Record, Rejection, Split
from metaxlm.data.wikitext import Site, clean_page, is_disambiguation, is_redirect, read_site
from metaxlm.errors import MetaXLMError
from metaxlm.reading import MAX_RECORD_BYTES
from metaxlm.streams import Advance, find_compression, open_stream

MAX_PAGE_BYTES = MAX_RECORD_BYTES
"""Longer pages are passed over without being held; Wikipedia's own limit is 2 MiB of wikitext."""

_MAX_HEAD_BYTES = 4 << 20
_MAX_PAGE_TAGS = 1 << 20  # each becomes an object of a hundred bytes; text has no tags
_CHUNK_BYTES = 1 << 18
_PAGE_START = re.compile(rb"<page>")
_PAGE_TAG = re.compile(rb"</?page>")
_END = b"</mediawiki>"
_TAIL_BYTES = 64  # the end, and white space after it
_TAG_BYTES = len(b"</page>")
_HEAD_END = re.compile(rb"</siteinfo>|<page>|</mediawiki>")
_TITLE = re.compile(rb"<title>([^<]{1,1000})</title>")
_STREAM_START = re.compile(rb"BZh[1-9]1AY&SY")
_STREAM_START_BYTES = 10
# The first stream of a multistream file holds the header, that of pbzip2's at most 900 KB of text.
_FIRST_STREAM_BYTES = 16 << 20


def read_dump(split: Split, advance: Advance) -> Iterator[Record]:
    """Yield a document for each article that starts in a split, a rejection for each other page."""
    site = _read_head(split.path)
    for page in _find_pages(split, advance):
        yield _read_page(page, split.path, site)


def split_dump(path: Path, target: int) -> list[Split]:
    """Cut a dump into parts of about `target` bytes, by what the file holds and nothing else.

    Plain files are cut before pages, bz2 files between their streams (multistream dumps have one
    for every 100 pages); others are one part.
    """
    assert target > 0
    open_stream(path).close()  # refuses what is missing or misnamed
    size = path.stat().st_size
    compression = find_compression(path)
    starts = [0]
    with path.open("rb") as file:
        if compression is None:
            starts += _find_starts(file, target, _PAGE_START)
        elif compression == ".bz2" and _find(file, 1, _FIRST_STREAM_BYTES, _STREAM_START):
            starts += _find_starts(file, target, _STREAM_START)
    if len(starts) == 1:
        return [Split(path, 0, None, size)]
    stops = [*starts[1:], size]
    return [
        Split(path, start, stop, stop - start) for start, stop in zip(starts, stops, strict=True)
    ]


def _find_starts(file: IO[bytes], target: int, pattern: re.Pattern[bytes]) -> Iterator[int]:
    """Yield where parts start: each the first match at least `target` bytes after the last."""
    found = _find(file, target, None, pattern)
    while found is not None:
        is_start = pattern is _PAGE_START or _is_stream(file, found)
        if is_start:
            yield found
        found = _find(file, found + (target if is_start else 1), None, pattern)


def _find(file: IO[bytes], start: int, stop: int | None, pattern: re.Pattern[bytes]) -> int | None:
    """Return where a pattern first matches in a file, from `start` on."""
    file.seek(start)
    overlap = _STREAM_START_BYTES - 1
    kept, position = b"", start
    while (stop is None or position < stop) and (chunk := file.read(_CHUNK_BYTES)):
        window = kept + chunk
        if match := pattern.search(window):
            return position - len(kept) + match.start()
        position += len(chunk)
        kept = window[-overlap:]
    return None


def _is_stream(file: IO[bytes], start: int) -> bool:
    """Say whether a bz2 stream starts here, and not a piece of data that happens to look so."""
    file.seek(start)
    decoder = bz2.BZ2Decompressor()
    try:
        # A block of text comes out only once its checksum was found right.
        while not decoder.eof and (chunk := file.read(_CHUNK_BYTES)):
            if decoder.decompress(chunk, 1):
                return True
    except OSError:
        return False
    return decoder.eof


def _read_head(path: Path) -> Site:
    """Read what stands before the first page."""
    head = b""
    with open_stream(path) as stream:
        while not _HEAD_END.search(head) and len(head) < _MAX_HEAD_BYTES:
            chunk = stream.read(1 << 14)
            if not chunk:
                break
            head += chunk
    if b"<mediawiki" not in head:
        raise MetaXLMError(
            f"{path}: no <mediawiki> element at its start; give a MediaWiki export such as "
            "dewiki-latest-pages-articles-multistream.xml.bz2"
        )
    return read_site(head)


@dataclass(frozen=True, slots=True)
class _Page:
    """The bytes of a page, from `<page>` to `</page>`; only the first ones of a rejected page."""

    data: bytes
    problem: str | None = None


def _find_pages(split: Split, advance: Advance) -> Iterator[_Page]:
    """Yield the pages that start in a split, the last one read to its end beyond the split."""
    is_last = split.stop is None or split.stop >= split.path.stat().st_size
    window = _Window(split, advance, is_last)
    while window.seek_page():
        yield window.take_page()
    if is_last and not window.is_whole():
        raise MetaXLMError(f"{split.path}: cut short: it ends without </mediawiki>; fetch it again")


class _Window:
    """The part of a split's uncompressed bytes that is in memory."""

    def __init__(self, split: Split, advance: Advance, is_last: bool) -> None:
        self._path = split.path
        self._start, self._stop = split.start, split.stop
        self._stream = open_stream(split.path, advance, split.start, split.stop)
        self._is_last = is_last
        self._data = bytearray()
        self._offset = 0  # of the window's first byte
        self._limit: int | None = None  # offset at which the split ends, once it is known
        self._open = True

    def seek_page(self) -> bool:
        """Move to the next page that starts in the split; say whether there is one."""
        while True:
            match = _PAGE_START.search(self._data)
            if match:
                self._drop(match.start())
                return self._limit is None or self._offset < self._limit
            self._keep_last(_TAIL_BYTES)
            if self._limit is not None and self._offset >= self._limit:
                return False
            if not self._read_more():
                return False

    def is_whole(self) -> bool:
        """Say whether the file's last bytes are there; a split may start within them."""
        tail = bytes(self._data).rstrip()
        return tail.endswith(_END) or (self._start > 0 and _END.endswith(tail))

    def take_page(self) -> _Page:
        """Take the page the window starts with."""
        position = 1
        head = b""  # of a page that is too large to be held
        while True:
            match = _PAGE_TAG.search(self._data, position)
            if match:
                is_closed = match[0] == b"</page>"
                data = bytes(self._data[: match.end() if is_closed else match.start()])
                self._drop(len(data))
                if head:
                    return _Page(head, "page_too_large")
                return _Page(data)
            if head or len(self._data) > MAX_PAGE_BYTES:
                head = head or bytes(self._data[:_CHUNK_BYTES])
                self._keep_last(_TAG_BYTES)
            position = max(1 if not head else 0, len(self._data) - _TAG_BYTES + 1)
            if not self._read_more():
                raise MetaXLMError(
                    f"{self._path}: cut short in {_where(head or self._data)}; fetch it again"
                )

    def _keep_last(self, num_bytes: int) -> None:
        self._drop(max(0, len(self._data) - num_bytes))

    def _drop(self, num_bytes: int) -> None:
        del self._data[:num_bytes]
        self._offset += num_bytes

    def _read_more(self) -> bool:
        """Read on, past the end of the split if need be; say whether there was more."""
        while self._open:
            chunk = self._stream.read(_CHUNK_BYTES)
            if chunk:
                self._data += chunk
                return True
            self._stream.close()
            if self._limit is None and not self._is_last:
                self._limit = self._offset + len(self._data)
                self._stream = open_stream(self._path, None, self._stop or 0)
            else:
                self._open = False
        return False


def _where(data: bytes | bytearray) -> str:
    """Name a page by its title, as far as it can be read."""
    title = _TITLE.search(data[:_CHUNK_BYTES])
    return f"page {title[1].decode('utf-8', 'replace')!r}" if title else "a page without a title"


def _read_page(page: _Page, path: Path, site: Site) -> Record:
    """Parse one page and clean its text."""
    where = f"{path}: {_where(page.data)}"
    problem = page.problem
    if problem is None and len(page.data) > MAX_PAGE_BYTES:
        problem = "page_too_large"
    if problem is None and b"\0" in page.data:
        problem = "nul"
    if problem is None and page.data.count(b"<") > _MAX_PAGE_TAGS:
        problem = "invalid_xml"
    if problem is not None:
        return Rejection(problem, where)
    try:
        page.data.decode("utf-8")
        root = ElementTree.fromstring(page.data)
    except UnicodeDecodeError:
        return Rejection("invalid_utf8", where)
    except (ElementTree.ParseError, ValueError):
        return Rejection("invalid_xml", where)
    return _read_article(root, where, site)


def _read_article(root: ElementTree.Element, where: str, site: Site) -> Record:
    title = root.findtext("title") or ""
    revisions = root.findall("revision")
    # A dump with the history of pages has their newest revision last.
    revision = revisions[-1] if revisions else root
    text = revision.findtext("text") or ""
    if not _is_article(root.findtext("ns"), title, site):
        return Rejection("namespace", where)
    if root.find("redirect") is not None or is_redirect(text):
        return Rejection("redirect", where)
    if not _is_wikitext(revision):
        return Rejection("not_wikitext", where)
    if is_disambiguation(text, site):
        return Rejection("disambiguation", where)
    paragraphs = clean_page(text, site)
    return Document(title, "\n".join(paragraphs)) if paragraphs else Rejection("empty", where)


def _is_article(namespace: str | None, title: str, site: Site) -> bool:
    """Say whether a page is an article; exports before version 0.6 only tell by the title."""
    return (namespace or "").strip() == "0" if namespace else site.namespace(title) == 0


def _is_wikitext(revision: ElementTree.Element) -> bool:
    """Say whether a revision is wikitext, which older exports take for granted."""
    model = revision.findtext("model") or "wikitext"
    form = revision.findtext("format") or "text/x-wiki"
    return model.strip() == "wikitext" and form.strip() == "text/x-wiki"
