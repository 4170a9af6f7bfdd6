"""Read MediaWiki dumps: articles become documents without wikitext markup.

A page is found by `<page>` and `</page>`, which cannot occur in text, and parsed alone: a broken
page does not affect others, and a document type with entities before the first page is never
parsed. At most one page is in memory.
"""

import bz2
import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from metaxlm.data.documents import Document, Record, Rejection, Split
from metaxlm.data.wikitext import clean_page
from metaxlm.data.wikitext.site import Site, is_disambiguation, is_redirect, read_site
from metaxlm.errors import MetaXLMError
from metaxlm.reading import MAX_RECORD_BYTES
from metaxlm.streams import Advance, find_compression, open_stream

MAX_PAGE_BYTES = MAX_RECORD_BYTES  # Wikipedia's own limit is 2 MiB of wikitext
_MAX_HEAD_BYTES, _CHUNK_BYTES = 4 << 20, 1 << 18
_MAX_PAGE_TAGS = 1 << 20  # each takes a hundred bytes of memory, and text has none
_PAGE_START = re.compile(rb"<page>")
_PAGE_TAG = re.compile(rb"</?page>")
_END = b"</mediawiki>"
_TAIL_BYTES = 64  # the end, and white space after it
_TAG_BYTES = len(b"</page>")
_HEAD_END = re.compile(rb"</siteinfo>|<page>|</mediawiki>")
_FORMAT = {"model": "wikitext", "format": "text/x-wiki"}  # older exports have neither
_TITLE = re.compile(rb"<title>([^<]{1,1000})</title>")
_STREAM_START = re.compile(rb"BZh[1-9]1AY&SY")
_STREAM_START_BYTES = 10
# The first stream of a multistream file is the header, that of pbzip2 has at most 900 KB of text.
_FIRST_STREAM_BYTES = 16 << 20


def read_dump(split: Split, advance: Advance) -> Iterator[Record]:
    """Yield a document for each article that starts in a split, a rejection for each other page."""
    site = _read_head(split.path)
    is_last = split.stop is None or split.stop >= split.path.stat().st_size
    window = _Window(split, advance, is_last)
    while window.seek_page():
        data, is_too_large = window.take_page()
        where = f"{split.path}: {_describe(data)}"
        yield Rejection("page_too_large", where) if is_too_large else _read_page(data, where, site)
    if is_last and not window.is_whole():
        raise MetaXLMError(f"{split.path}: cut short: it ends without </mediawiki>; fetch it again")


def split_dump(path: Path, target: int) -> list[Split]:
    """Split a dump into parts of about `target` bytes: before pages, or between bz2 streams."""
    open_stream(path).close()  # raises an error if it is missing or misnamed
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
    return [Split(path, start, stop, stop - start) for start, stop in pairwise([*starts, size])]


def _find_starts(file: IO[bytes], target: int, pattern: re.Pattern[bytes]) -> Iterator[int]:
    """Yield the starts of parts: each is the first match `target` bytes after the last one."""
    found, step = 0, target
    while (place := _find(file, found + step, None, pattern)) is not None:
        found, step = place, 1
        if pattern is _PAGE_START or _is_stream(file, found):
            yield found
            step = target


def _find(file: IO[bytes], start: int, stop: int | None, pattern: re.Pattern[bytes]) -> int | None:
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
    """Return whether a bz2 stream starts here, and not data that looks like one."""
    file.seek(start)
    decoder = bz2.BZ2Decompressor()
    try:
        # The decoder returns text only after it has verified the checksum of a block.
        while not decoder.eof and (chunk := file.read(_CHUNK_BYTES)):
            if decoder.decompress(chunk, 1):
                return True
    except OSError:
        return False
    return decoder.eof


def _read_head(path: Path) -> Site:
    head = b""
    with open_stream(path) as stream:
        while not _HEAD_END.search(head) and len(head) < _MAX_HEAD_BYTES:
            if not (chunk := stream.read(1 << 14)):
                break
            head += chunk
    if b"<mediawiki" not in head:
        raise MetaXLMError(
            f"{path}: no <mediawiki> element at its start; give a MediaWiki export such as "
            "dewiki-latest-pages-articles-multistream.xml.bz2"
        )
    return read_site(head)


def _read_chunks(split: Split, advance: Advance, is_last: bool) -> Iterator[bytes]:
    """Yield the data of a split, and if it is not the last one an empty chunk and what follows."""
    with open_stream(split.path, advance, split.start, split.stop) as stream:
        yield from iter(partial(stream.read, _CHUNK_BYTES), b"")
    if not is_last:
        yield b""
        with open_stream(split.path, None, split.stop or 0) as stream:
            yield from iter(partial(stream.read, _CHUNK_BYTES), b"")


class _Window:
    def __init__(self, split: Split, advance: Advance, is_last: bool) -> None:
        self._split = split
        self._chunks = _read_chunks(split, advance, is_last)
        self._data = bytearray()
        self._offset = 0  # of the first byte in memory
        self._limit: int | None = None  # end of the split, once it is known

    def seek_page(self) -> bool:
        """Move to the next page that starts in the split; return whether there is one."""
        while True:
            if match := _PAGE_START.search(self._data):
                self._drop(match.start())
                return self._limit is None or self._offset < self._limit
            self._keep_last(_TAIL_BYTES)
            is_past = self._limit is not None and self._offset >= self._limit
            if is_past or not self._read_more():
                return False

    def is_whole(self) -> bool:
        tail = bytes(self._data).rstrip()  # a split may start within the end tag
        return tail.endswith(_END) or (self._split.start > 0 and _END.endswith(tail))

    def take_page(self) -> tuple[bytes, bool]:
        """Return the page at the start of the window; of one above the limit, only its head."""
        position, head = 1, b""
        while True:
            if match := _PAGE_TAG.search(self._data, position):
                is_closed = match[0] == b"</page>"
                data = bytes(self._data[: match.end() if is_closed else match.start()])
                self._drop(len(data))
                return head or data, bool(head) or len(data) > MAX_PAGE_BYTES
            if head or len(self._data) > MAX_PAGE_BYTES:
                head = head or bytes(self._data[:_CHUNK_BYTES])
                self._keep_last(_TAG_BYTES)
            position = max(1 if not head else 0, len(self._data) - _TAG_BYTES + 1)
            if not self._read_more():
                where = f"{self._split.path}: cut short in {_describe(head or self._data)}"
                raise MetaXLMError(f"{where}; fetch it again")

    def _keep_last(self, num_bytes: int) -> None:
        self._drop(max(0, len(self._data) - num_bytes))

    def _drop(self, num_bytes: int) -> None:
        del self._data[:num_bytes]
        self._offset += num_bytes

    def _read_more(self) -> bool:
        """Read a chunk, also past the end of the split; return whether there was one."""
        chunk = next(self._chunks, None)
        if chunk == b"":
            self._limit = self._offset + len(self._data)
        self._data += chunk or b""
        return chunk is not None


def _describe(data: bytes | bytearray) -> str:
    title = _TITLE.search(data[:_CHUNK_BYTES])
    return f"page {title[1].decode('utf-8', 'replace')!r}" if title else "a page without a title"


def _read_page(data: bytes, where: str, site: Site) -> Record:
    if b"\0" in data:
        return Rejection("nul", where)
    if data.count(b"<") > _MAX_PAGE_TAGS:
        return Rejection("invalid_xml", where)
    try:
        data.decode("utf-8")
        root = ElementTree.fromstring(data)
    except UnicodeDecodeError:
        return Rejection("invalid_utf8", where)
    except (ElementTree.ParseError, ValueError):
        return Rejection("invalid_xml", where)
    title = root.findtext("title") or ""
    # A dump with the history of pages has the newest revision last.
    revision = (root.findall("revision") or [root])[-1]
    text = revision.findtext("text") or ""
    namespace = root.findtext("ns")  # only the title shows it before version 0.6
    if namespace.strip() != "0" if namespace else site.namespace(title):
        return Rejection("namespace", where)
    if root.find("redirect") is not None or is_redirect(text):
        return Rejection("redirect", where)
    if any((revision.findtext(key) or usual).strip() != usual for key, usual in _FORMAT.items()):
        return Rejection("not_wikitext", where)
    if is_disambiguation(text, site):
        return Rejection("disambiguation", where)
    paragraphs = clean_page(text, site)
    return Document(title, "\n".join(paragraphs)) if paragraphs else Rejection("empty", where)
